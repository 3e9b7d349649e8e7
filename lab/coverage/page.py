"""The tables of real files in docs/your-own-model.md, written from their records in results/reference.

`python -m lab.coverage.page` writes each between its two marks; no figure of them is typed by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .packaged_runs import MEASURED, TARGETS
from .packages import CORPUS
from .tasks import ARMS

ROOT = Path(__file__).parents[2]
RECORDS, PAGE = ROOT / "results/reference", ROOT / "docs/your-own-model.md"
AFTER = "onnx-files.json"
"""The last run of all files; an earlier one stays beside it."""
BEGIN, END = "<!-- from {} -->", "<!-- end of {} -->"
NAMES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch-eager": "torch-eager",
    "jax-jit": "jax-jit",
    "onnxruntime:cpu:int8": "ONNX Runtime INT8",
}
ROW = "| {} |"


def files(name: str) -> str:
    """The record as Markdown: what was run, a line for each file, and each reason once, with what it is for.

    Where the corpus was run again since, that is shown, and of this record what it came to.
    """
    before, after = _record(name), _record(AFTER)
    tables = (after or before)["sections"]["files"]["tables"]
    rows: Sequence[Mapping[str, Any]] = tables["files"]
    head = _head(rows, AFTER if after else name)
    if after:
        head += f"\n{_before(before['sections']['files']['tables']['files'], name)}"
    return "\n".join([head, "", *_lines(rows), "", "In words:", "", *_reasons(rows)])


def tasks(name: str) -> str:
    """The record of tasks as Markdown."""
    rows = _record(name)["sections"]["tasks"]["tables"]["tasks"]
    targets = [str(target) for target in ARMS]
    heads = ["counted", "file", "of", *targets]
    return "\n".join(
        (
            "**INT8 by the task's own measure**, from [`onnx-tasks.json`](../results/reference/onnx-tasks.json)",
            "(`python -m lab --only tasks`): right answers on real inputs; as many others calibrated:",
            "scikit-learn's photographs, this project's own files, lines of text set in a typeface, a recorded voice.",
            "",
            ROW.format(" | ".join(heads)),
            f"|{'---|' * len(heads)}",
            *(
                ROW.format(
                    " | ".join(
                        [row["measure"], f"`{row['file']}`", *(str(row.get(one, "")) for one in ("of", *targets))]
                    )
                )
                for row in rows
            ),
        )
    )


def _record(name: str) -> Any:
    """What lies in results/reference; None where nothing does."""
    path = RECORDS / name
    return json.loads(path.read_text()) if path.exists() else None


def _head(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    wheels = {one.name: one.wheel for one in CORPUS}
    packages = len({wheels[row["file"]] for row in rows})
    kinds = len({row["kind"].partition(",")[0] for row in rows})
    shipped = [row for row in rows if row["ships"]]
    so_far = sum(bool(row.get("open")) for row in shipped)
    behind = f", {so_far} of them as the fastest so far" if so_far else ""
    limits = " or ".join(sorted({row["max time"] for row in rows}))
    longest = max(row["wall s"] for row in rows)
    measured = sum(row[target].startswith(MEASURED) for row in rows for target in TARGETS)
    where = f"[`{name}`](../results/reference/{name}) (`python -m lab --only files`"
    return "\n".join(
        (
            f"**Real files.** {len(rows)} files of {kinds} kinds, out of {packages} packages, from",
            f"{where}; it names each wheel with its hash and licence,",
            f"and has each answer whole). Each went through one `shootout run --model FILE --max-time {limits}` on",
            "five targets, on drawn inputs, nothing of it being exported or built before.",
            "A number is the relative error of a row that was measured; the seconds are the whole command's,",
            f"{longest:.0f} at most. {len(shipped)} of {len(rows)} ended with an arm to ship{behind};",
            f"{measured} of {len(rows) * len(TARGETS)} rows were measured.",
        )
    )


def _before(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """What the same files came to in an earlier record."""
    shipped = sum(bool(row["ships"]) for row in rows)
    limits = " or ".join(sorted({row["max time"] for row in rows}))
    return (
        f"Before ([`{name}`](../results/reference/{name}): {len(rows)} of the files, `--max-time {limits}`), "
        f"{shipped} of {len(rows)} had an arm to ship."
    )


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    heads = ["", "file", *(NAMES[target] for target in TARGETS), "seconds", "to ship"]
    yield ROW.format(" | ".join(heads))
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        cells = [_cell(row[target]) for target in TARGETS]
        ships = f"{row['ships'] or 'no answer'}{' so far' if row.get('open') else ''}"
        yield ROW.format(" | ".join([row["kind"], f"`{row['file']}`", *cells, f"{row['wall s']:.0f}", ships]))


def _cell(told: str) -> str:
    """By how much it errs, or what became of it."""
    return told.partition(":")[0].removeprefix(f"{MEASURED}, error ")


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if why := _without_seconds(row["no answer"] or row.get("open") or ""):
            found.setdefault(why, {}).setdefault("", []).append(f"`{row['file']}`")
        for target in TARGETS:
            if why := _without_seconds(row[target].partition(": ")[2]):
                found.setdefault(why, {}).setdefault(NAMES[target], []).append(f"`{row['file']}`")
    for why, where in found.items():
        told = "; ".join(f"{name} on {', '.join(files)}" if name else ", ".join(files) for name, files in where.items())
        yield f"- {told}: {why}"


def _without_seconds(why: str) -> str:
    """A reason as it is the same for several files, which take different times."""
    why = re.sub(r"takes \d+ s at least, and --max-time leaves \d+ s", "takes more seconds than --max-time leaves", why)
    two = r"takes \d+ s at least, and a verdict takes two; --max-time leaves \d+ s"
    why = re.sub(two, "takes more than half of the seconds that --max-time leaves, and a verdict takes two", why)
    return re.sub(r"\b\d+ s\b", "so many s", why)


BLOCKS: Mapping[str, Callable[[str], str]] = {"onnx-runs.json": files, "onnx-tasks.json": tasks}


def main() -> None:
    """Write each table into the page, whose record is there."""
    text = PAGE.read_text()
    for name, block in BLOCKS.items():
        if (RECORDS / name).exists():
            before, _, rest = text.partition(BEGIN.format(name))
            _, mark, after = rest.partition(END.format(name))
            assert mark, f"{PAGE} has no {BEGIN.format(name)}"
            text = f"{before}{BEGIN.format(name)}\n\n{block(name)}\n\n{END.format(name)}{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
