"""Race ONNX files that people ship in packages, as a user of such a file would: which targets ran, which didn't, and
when.

One `shootout run --model FILE` for each, one after the other, nothing of it being exported or built before. A file that
is done keeps its row in the bench's folder, beside those of other limits, and isn't run again: the same command goes on
with a bench that was stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.common import Bench, Tables, say
from lab.packages import CORPUS, Packaged, kept, stated, unpack
from lab.whole_runs import COMMAND
from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Stopwatch
from shootout.core.errors import one_line
from shootout.core.journal import journal
from shootout.tell.document import Document, Row

TARGETS = ("onnxruntime", "openvino", "torch-eager", "jax-jit", "onnxruntime:cpu:int8")
MAX_TIME = "60s"
QUICK = ("hey_jarvis_v0.1.onnx", "silero_vad.onnx")
GIVEN_UP_S = 600.0
"""A run that keeps to no limit is ended, and its row says so."""
BUSY = "waiting for another run on this machine"
"""The words of a run whose time another one had: that is no answer about a file."""
MEASURED = "measured"
LETTERS = 300
"""The most letters of a reason."""


def figures(bench: Bench) -> Tables:
    """Make one row for each file, and one for each wheel."""
    corpus = [one for one in CORPUS if not bench.quick or one.name in QUICK]
    max_time = bench.max_time or MAX_TIME
    folder, wheels = bench.folder / "files" / max_time, bench.folder / "wheels"
    tables: Tables = {"packages": stated(corpus, wheels), "files": []}
    for one in corpus:
        make = partial(_make_row, one, folder, wheels, max_time)
        row = kept(folder / f"{one.name}.json", make, _is_done)
        tables["files"].append(row)
        bench.keep(tables)
        say(f"  {one.name}: {row['wall s']:.0f} s, {row['ships'] or row['no answer']} {row['open'] or ''}")
    return tables


def _make_row(one: Packaged, folder: Path, wheels: Path, max_time: str) -> dict[str, Any]:
    place = folder / one.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return {"kind": one.kind, "file": one.name, **_run_file(one, place, wheels, max_time)}


def _is_done(row: Mapping[str, Any]) -> bool:
    return not row["waited"]


def _run_file(one: Packaged, place: Path, wheels: Path, max_time: str) -> dict[str, Any]:
    file = unpack(one, place, wheels)
    words = [str(file), *(f"--set={axis}={size}" for axis, size in one.sets.items())]
    out, log = place / "run", place / "log"
    asked = ["--backends", ",".join(TARGETS), "--max-time", max_time, "--out", str(out)]
    command = [sys.executable, "-c", COMMAND, "run", "--model", *words, *asked]
    cache = place.parent / "cache"
    environment = {**os.environ, "SHOOTOUT_CACHE": str(cache)}
    with log.open("w") as told, Stopwatch() as wall:
        try:
            code = subprocess.run(
                command, env=environment, stdout=told, stderr=told, timeout=GIVEN_UP_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    for made in cache.glob("*/"):  # what is left tells which backends work here
        shutil.rmtree(made)
    ended = {"bytes": file.stat().st_size, "max time": max_time, "wall s": wall.seconds, "exit code": code}
    said = log.read_text()
    ended["waited"] = BUSY in said
    last = one_line(said).rpartition(" | ")[2].replace(f"{place}/", "")
    return {**ended, **read_result(out, last if code else "", TARGETS)}


def read_result(out: Path, last: str, targets: Sequence[str]) -> dict[str, Any]:
    """Return what the run found.

    Args:
        last: its last word where it ended with an error.
        targets: those that were asked for.
    """
    document = analyse(out) if journal.begun(out) else None
    rows = document.rows if document else ()
    answer = document.answer[0] if document and document.answer else None
    ship, reason = (answer.ship, answer.reason) if answer else (None, None)
    return {
        "ships": ship.arm if ship else None,
        "open": reason if ship else None,
        "tied": [rival.arm for rival in (*answer.tied, *answer.unsettled)] if answer else [],
        "no answer": None if ship else reason or last,
        "complete": document.complete if document else False,
        "restarts": _count_restarts(document),
        **{target: _describe_row(_row_of(target, rows, targets), last) for target in targets},
    }


def _count_restarts(document: Document | None) -> int:
    return max((row.end_to_end.restarts for row in document.rows if row.end_to_end), default=0) if document else 0


def _row_of(target: str, rows: Sequence[Row], targets: Sequence[str]) -> Row | None:
    """Return the row of a target; a backend's name alone stands for FP32, or for the precisions that the file itself
    holds.
    """
    mine = (row for row in rows if row.arm == target or (row.backend == target and row.arm not in targets))
    return next(mine, None)


def _describe_row(row: Row | None, last: str) -> str:
    """Say whether a target was measured, how far off it was, and what it didn't run as asked; else why not."""
    if row is None:
        return f"failed: {last or 'no row'}"[:LETTERS]
    if row.outcome != MEASURED:
        return f"{row.outcome}: {row.reason}"[:LETTERS]
    error = row.fidelity.relative_l2 if row.fidelity else None
    beside = "; ".join((row.executed or {}).get("fallbacks", ()))[:LETTERS]
    return f"{MEASURED}, error {'unknown' if error is None else f'{error:.1e}'}" + (f": {beside}" if beside else "")
