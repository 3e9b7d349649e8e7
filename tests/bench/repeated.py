"""The default run, as people type it, again and again: quiet, and beside a loop that keeps one CPU busy.

Each arm must have a time in every run, and no two runs may contradict each other: not in a verdict, nor by shipping an
arm that another run found slower than what it shipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from shootout.clock import Stopwatch

from .common import Bench, Table, Tables, say

OPPOSITE = {"faster", "slower"}
RUN = "from shootout.cli import main; main()"


def figures(bench: Bench) -> Tables:
    """A row a run, and what they say together."""
    rows: Table = []
    documents: list[dict[str, Any]] = []
    for number in range(bench.size(10, 2)):
        beside = "a busy loop" if number % 2 else "nothing"
        say(f"  default run {number + 1}, beside {beside}")
        with _loop() if number % 2 else _nothing(), Stopwatch() as wall:
            found = _run(bench.folder / f"default-{number}")
        rows.append(_row(beside, wall.seconds, found))
        documents.append(found)
        say(f"  {rows[-1]}")  # a bench that is stopped has told what it saw
    return {"the default run, builds cached": rows, "what the runs say together": _together(documents)}


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _loop() -> Iterator[None]:
    """A process that takes a whole CPU, whichever the system gives it."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _run(out: Path) -> dict[str, Any]:
    """The document of one run; its own words go where the bench's go."""
    command = [sys.executable, "-c", RUN, "run", "--json", "--out", str(out)]
    done = subprocess.run(command, env=os.environ, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _measured(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By arm, its end-to-end figures."""
    return {row["arm"]: row["end_to_end"] for row in document["rows"] if row["end_to_end"]}


def _verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {arm: timing["ratio"]["verdict"] for arm, timing in _measured(document).items() if timing["ratio"]}


def _row(beside: str, wall_s: float, document: dict[str, Any]) -> dict[str, Any]:
    told, measured = _verdicts(document), _measured(document)
    able = [row["arm"] for row in document["rows"] if row["device"] == "cpu"]
    return {
        "beside": beside,
        "wall_s": round(wall_s, 1),
        "arms": len(able),
        "with a time": sum(arm in measured for arm in able),
        "verdicts": len([one for one in told.values() if one != "can't tell"]),
        "generations": document["groups"][0]["generations"],
        "flagged_percent": round(100 * document["void_share"], 1),
        "fastest_us": round(min(timing["median_ns"] for timing in measured.values()) / 1e3),
        "ship": ", ".join(ship["arm"] for answer in document["answer"] if (ship := answer["ship"])) or "no answer",
        "tied": ", ".join(tied["arm"] for answer in document["answer"] for tied in answer["tied"]),
    }


def _together(documents: Sequence[dict[str, Any]]) -> Table:
    """How often two runs' verdicts on the same arm exclude each other."""
    told = [_verdicts(document) for document in documents]
    pairs = [
        (arm, one[arm], other[arm]) for one, other in combinations(told, 2) for arm in sorted(set(one) & set(other))
    ]
    wrong = [f"{arm}: {one} and {other}" for arm, one, other in pairs if {one, other} == OPPOSITE]
    return [{"pairs of verdicts": len(pairs), "contradictions": len(wrong), "which": "; ".join(sorted(set(wrong)))}]
