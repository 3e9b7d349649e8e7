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
    """The record as Markdown: what was run, a line for each file, and each reason once, with what it is for."""
    tables = record["sections"]["files"]["tables"]
    rows: Sequence[Mapping[str, Any]] = tables["files"]
    return "\n".join([_head(rows, len(tables["packages"])), "", *_lines(rows), "", "In words:", "", *_reasons(rows)])


def _head(rows: Sequence[Mapping[str, Any]], packages: int) -> str:
    kinds = len({row["kind"].partition(",")[0] for row in rows})
    shipped = sum(bool(row["ships"]) for row in rows)
    limits = " or ".join(sorted({row["max time"] for row in rows}))
    longest = max(row["wall s"] for row in rows)
    measured = sum(row[target].startswith(MEASURED) for row in rows for target in TARGETS)
    where = "[`onnx-files.json`](../results/reference/onnx-files.json) (`python -m tests.bench --only files`"
    return "\n".join(
        (
            f"**Real files.** {len(rows)} files of {kinds} kinds, out of {packages} packages, from",
            f"{where}; it names each wheel with its hash and licence,",
            f"and has each answer whole). Each went through one `shootout run --model FILE --max-time {limits}` on",
            "five targets with nothing cached, on drawn inputs except those that must be what they are: a rate, say.",
            "A number is the relative error of a row that was measured; the seconds are the whole command's,",
            f"{longest:.0f} at most. {shipped} of {len(rows)} ended with an arm to ship, and {measured} of",
            f"{len(rows) * len(TARGETS)} rows were measured.",
        )
    )


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    heads = ["", "file", *(NAMES[target] for target in TARGETS), "seconds", "to ship"]
    yield ROW.format(" | ".join(heads))
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        cells = [_cell(row[target]) for target in TARGETS]
        ships = row["ships"] or "no answer"
        yield ROW.format(" | ".join([row["kind"], f"`{row['file']}`", *cells, f"{row['wall s']:.0f}", ships]))


def _cell(told: str) -> str:
    """By how much it errs, or what became of it."""
    return told.partition(":")[0].removeprefix(f"{MEASURED}, error ")


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if not row["ships"]:
            found.setdefault(row["no answer"], {}).setdefault("", []).append(f"`{row['file']}`")
        for target in TARGETS:
            if why := row[target].partition(": ")[2]:
                found.setdefault(why, {}).setdefault(NAMES[target], []).append(f"`{row['file']}`")
    for why, where in found.items():
        told = "; ".join(f"{name} on {', '.join(files)}" if name else ", ".join(files) for name, files in where.items())
        yield f"- {told}: {why}"


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, f"{PAGE} has no {BEGIN} … {END}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(json.loads(RECORD.read_text()))}\n\n{END}{after}")


if __name__ == "__main__":
    main()
