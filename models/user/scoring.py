"""Score each row of the report split by a user's own metric, a function of theirs, in a process of its own.

The worker that computes the outputs leaves them in a folder, batch by batch, and never runs the function; nor does the
process that started it. `python -m shootout.models.user.scoring METRIC FOLDER PARENT_PID` reads them there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array, Arrays
from shootout.errors import UsageError
from shootout.host import child
from shootout.messages import MOST_SCORE, Scores
from shootout.models.user import factory, source

NAMES, SCORES, LABELS, BATCHES = "names.json", "scores.json", "labels", "*.npz"
"""What the folder holds: the outputs' names, the answer, and a file for each batch with the labels of its rows."""
LOWER = "lower_is_better"
"""The function's attribute that says that lower is better."""
FORM = "expected score(outputs, labels): outputs is a dict of arrays by name; it returns one number for each row"


def check(metric: str) -> str:
    """Hash of a metric's source, which is read and not run.

    Raises:
        UsageError: there is no such file, module or function.
    """
    place = source.find(metric)
    source.definition(place, "scores the rows")
    return place.digest()


def saving(run: Callable[[Arrays], Arrays], folder: Path) -> Callable[[Arrays], Arrays]:
    """`run`, which also leaves what each call gives in the folder."""
    numbers = count()

    def saved(inputs: Arrays) -> Arrays:
        outputs = run(inputs)
        (folder / NAMES).write_text(json.dumps(list(outputs)), encoding="utf-8")
        np.savez(folder / f"{next(numbers):06}", *outputs.values())
        return outputs

    return saved


def score(metric: str, folder: Path, labels: Array, timeout_s: float) -> Scores:
    """Score the outputs that lie in a folder, in a process of its own.

    Args:
        labels: of their rows; the last batch may hold more rows than there are, which don't count.
        timeout_s: the process is ended after so many seconds.
    """
    name = source.find(metric).short
    np.save(folder / LABELS, labels, allow_pickle=False)
    ending = child.run(__name__, [metric, folder], timeout_s, child.ONE_THREAD)
    try:
        found = json.loads((folder / SCORES).read_text(encoding="utf-8"))
        return Scores(name=name, **{**found, "rows": tuple(found.get("rows", ()))})
    except (OSError, ValueError, TypeError):
        return Scores(name=name, fault=f"{name} {ending.how}")


def score_rows(metric: str, folder: Path) -> dict[str, Any]:
    """Run the user's function in this process, and return what `score` writes to disk.

    Raises:
        UsageError: that raises, or gives something else than a number for each row.
    """
    place = source.find(metric)
    function = factory.find_function(place)
    found: list[Array] = []
    for outputs, labels in _read_batches(folder):
        rows = np.asarray(factory.call(place, lambda given=(outputs, labels): function(*given)))  # type: ignore[misc]
        if rows.shape != labels.shape[:1] or rows.dtype.kind not in "biuf":
            got = f"{rows.dtype}{list(rows.shape)}"
            raise UsageError(f"{place.short} gave {got} for {len(labels)} rows: {FORM}")
        rows = rows.astype(np.float64)
        if (odd := rows[~(np.abs(rows) < MOST_SCORE)]).size:
            raise UsageError(f"{place.short} gave {odd[0]:g} for a row, which is no score")
        found.append(rows)
    return {"rows": np.concatenate(found).tolist(), LOWER: bool(getattr(function, LOWER, False))}


def _read_batches(folder: Path) -> Iterator[tuple[dict[str, Array], Array]]:
    """Yield the outputs of each batch by name, and its labels, without the rows that fill up the last one."""
    labels, names, first = (
        np.load(folder / f"{LABELS}.npy"),
        json.loads((folder / NAMES).read_text(encoding="utf-8")),
        0,
    )
    for path in sorted(folder.glob(BATCHES)):
        with np.load(path, allow_pickle=False) as stored:
            outputs = {name: stored[f"arr_{index}"] for index, name in enumerate(names)}
        here = labels[first : first + len(next(iter(outputs.values())))]
        first += len(here)
        yield {name: array[: len(here)] for name, array in outputs.items()}, here


def main() -> None:
    """Score one folder; what goes wrong is the answer."""
    child.leave_with(int(sys.argv[3]))
    os.dup2(2, 1)  # what the user's code prints is nobody's answer
    metric, folder = sys.argv[1], Path(sys.argv[2])
    try:
        found = score_rows(metric, folder)
    except UsageError as error:
        found = {"fault": str(error)}
    (folder / SCORES).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
