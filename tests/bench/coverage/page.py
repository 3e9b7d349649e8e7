"""The table of real files in docs/your-own-model.md, written from results/reference/onnx-files.json.

`python -m tests.bench.coverage.page` writes it between its two marks; no figure of it is typed by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .packaged_runs import MEASURED, TARGETS

ROOT = Path(__file__).parents[3]
RECORD, PAGE = ROOT / "results/reference/onnx-files.json", ROOT / "docs/your-own-model.md"
BEGIN, END = "<!-- from onnx-files.json -->", "<!-- end of onnx-files.json -->"
NAMES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch-eager": "torch-eager",
    "jax-jit": "jax-jit",
    "onnxruntime:cpu:int8": "ONNX Runtime INT8",
}
ROW = "| {} |"


def table(record: Mapping[str, Any]) -> str:
    """The record as Markdown: a line for each file, then each reason once, with the files that it is for."""
    section = record["sections"]["files"]
    return "\n".join([*_lines(section["tables"]["files"]), "", *_reasons(section["tables"]["files"])])


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    heads = ["", "file", *(NAMES[target] for target in TARGETS), "seconds", "to ship"]
    yield ROW.format(" | ".join(heads))
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        cells = [_cell(row[target]) for target in TARGETS]
        answer = f"{row['ships']}" if row["ships"] else "no answer"
        yield ROW.format(" | ".join([row["kind"], f"`{row['file']}`", *cells, f"{row['wall s']:.0f}", answer]))


def _cell(told: str) -> str:
    """Measured: by how much it errs; else what became of it."""
    return told.partition("error ")[2] or "yes" if told.startswith(MEASURED) else told.partition(":")[0]


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for target in TARGETS:
            if not row[target].startswith(MEASURED):
                found.setdefault(row[target].partition(": ")[2], []).append(f"{NAMES[target]} on `{row['file']}`")
    for reason, where in found.items():
        yield f"- {', '.join(where)}: {reason}"


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, f"{PAGE} has no {BEGIN} … {END}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(RECORD.read_text()))}\n\n{END}{after}")


if __name__ == "__main__":
    main()
