"""Call the user's function to see what it does, in a process of its own: `python -m … TASK ANSWER PARENT_PID`.

The first file holds a `Task`, and what to do. The process writes the second: what it found, or a sentence as `fault`.

- `record` calls it on the pages twice with parts as usual, and keeps the results, and beside them what each part is
  called with;
- `time` only times it, as a restart of that;
- `score` calls it with the chosen parts, and compares the results with those that were kept.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends._joint.parts import ChosenPart, Key, Part, Program, Task
from shootout.core.clock import Deadline, now_ns
from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError, shorten
from shootout.core.host.child import leave_with
from shootout.models import source
from shootout.models.data.data_files import spread

MOST_SETS, MOST_BYTES = 8, 64 << 20
"""The inputs that are kept of a part at one size, and of a part in all."""
PASS_NS, TIMED_NS = 0.5e9, 1.0e9
"""A pass over the pages that are timed lasts so long at least, and passes are timed for so long in each process. Calls
shorter than `LONG_CALL_NS` are made eight times as often: a pass stays above that if pages turn out faster.
"""
CLOSE, TINY = 1e-3, 1e-6
"""Results are alike if their fractions differ by no more than this share, or by so little; integers must be equal."""
RETURNS = "return numbers, texts, arrays, or lists of these"


@dataclass(slots=True)
class Calls:
    """Hold the calls of a part at one size."""

    count: int = 0
    ns: int = 0
    sets: list[dict[str, Array]] = field(default_factory=list)


class Meter:
    """Count the time in which at least one part runs; those that run at the same time get equal shares of it."""

    def __init__(self) -> None:
        self._running, self._since_ns, self.lock = list[RecordedPart](), 0, threading.Lock()

    @contextmanager
    def count(self, part: RecordedPart) -> Iterator[None]:
        """Count what is inside as time of a part."""
        self._turn(self._running.append, part)
        try:
            yield
        finally:
            self._turn(self._running.remove, part)

    def _turn(self, change: Callable[[RecordedPart], None], part: RecordedPart) -> None:
        with self.lock:
            now = now_ns()
            for one in self._running:
                one.inside_ns += (now - self._since_ns) / len(self._running)
            self._since_ns = now
            change(part)


class RecordedPart(Part):
    """A part as usual that counts its time, and keeps what it is called with while `keeps`."""

    def __init__(self, file: str, threads: int, meter: Meter) -> None:
        super().__init__(file, threads)
        self.inside_ns, self.keeps, self.calls = 0.0, False, dict[Key, Calls]()
        self._bytes, self._meter = 0, meter

    def run(self, outputs: Sequence[str] | None, feed: Arrays, options: Any = None) -> list[Array]:
        """Return these outputs, all if none are named, in order."""
        began = now_ns()
        with self._meter.count(self):
            found = super().run(outputs, feed, options)
        took = now_ns() - began
        if self.keeps:
            with self._meter.lock:
                self._keep({name: np.asarray(feed[name]) for name in self._inputs if name in feed}, took)
        return found

    def _keep(self, arrays: dict[str, Array], took: int) -> None:
        key = tuple((name, array.shape, array.dtype.name) for name, array in arrays.items())
        calls = self.calls.setdefault(key, Calls())
        calls.count, calls.ns = calls.count + 1, calls.ns + took
        size = sum(array.nbytes for array in arrays.values())
        if not calls.sets or (len(calls.sets) < MOST_SETS and self._bytes + size <= MOST_BYTES):
            calls.sets.append({name: array.copy() for name, array in arrays.items()})
            self._bytes += size

    def save(self, path: Path) -> list[dict[str, Any]]:
        """Write the inputs of the size with the most time; return each size with its calls, that one first."""
        ranked = sorted(self.calls.items(), key=lambda one: -one[1].ns)
        kept = ranked[0][1].sets
        stacked: Any = {name: np.stack([one[name] for one in kept]) for name in kept[0]}
        np.savez(path, **stacked)
        return [
            {"inputs": {name: shape for name, shape, _ in key}, "calls": calls.count, "ns": calls.ns}
            for key, calls in ranked
        ]


def record(task: Task, results_file: Path, most_s: float) -> dict[str, Any]:
    """Call the function twice on as many pages as `most_s` seconds allow.

    Args:
        results_file: gets the results; the inputs of each part come beside it, as `NAME.npz`.

    Raises:
        UsageError: it raises, gives another result the second time, never calls a part, or gives what can't be kept.
    """
    parts = _record_parts(task)
    program, limit = Program(task, parts.__getitem__), Deadline(most_s)
    program.read(task.pages[0])
    pages = spread(task.pages, int(most_s * 1e9 / 2 / (1 + _time(program, task.pages[0])[1])))
    results, page_ns = list[Any](), list[int]()
    for page in pages:
        _set_keeping(parts, keeps=True)
        result = program.read(page)
        _set_keeping(parts, keeps=False)
        again, took = _time(program, page)
        _refuse_other(task, page, result, again)
        results.append(result)
        page_ns.append(took)
        if limit.left_s <= 0:
            break
    pages = pages[: len(results)]
    for name, part in parts.items():
        if not part.calls:
            raise UsageError(
                f"{_short(task)} never calls {name} on these {len(pages)} pages: leave it out of --parts, or call it"
            )
    _keep_results(task, results, results_file)
    count = PASS_NS * len(pages) / sum(page_ns)
    timed = spread(pages, math.ceil(count)) * math.ceil(count / len(pages))  # few short pages: all, several times
    sizes = {name: part.save(results_file.with_name(f"{name}.npz")) for name, part in parts.items()}
    return {"pages": pages, "timed": timed, "sizes": sizes, "restarts": [time_pages(program, parts, timed)]}


def time_pages(program: Program, parts: Mapping[str, RecordedPart], pages: Sequence[str]) -> dict[str, Any]:
    """Return the nanoseconds of a page in all, and inside each part, after a pass to warm up."""
    for page in pages:
        program.read(page)
    before, passes, call_ns = {name: part.inside_ns for name, part in parts.items()}, 0, 0
    while call_ns < TIMED_NS:
        call_ns += sum(_time(program, page)[1] for page in pages)
        passes += 1
    count = passes * len(pages)
    inside = {name: (part.inside_ns - before[name]) / count for name, part in parts.items()}
    return {"call_ns": call_ns / count, "inside_ns": inside}


def score(task: Task, results_file: Path, metric: str) -> dict[str, Any]:
    """Compare the results of the chosen parts with those of the usual ones.

    Args:
        metric: `file.py:score`, which gets both lists of results; "": the share of pages with a like result.
    """
    program = Program(task)
    usual = pickle.loads(results_file.read_bytes())  # noqa: S301 - of our own cache; may hold types of the user's file
    found = [program.read(page) for page in task.pages]
    by_usual = {
        name: part.usual_calls / max(1, part.calls)
        for name, part in program.parts.items()
        if isinstance(part, ChosenPart)
    }
    same = [are_alike(one, other) for one, other in zip(found, usual, strict=True)]
    scores = [sum(same) / len(same), 1.0]
    if metric:
        place = source.find(metric)
        function = source.find_function(place, "scores the results")
        scores = [_as_score(place.short, source.call(place, partial(function, one, usual))) for one in (found, usual)]
    differs = next((Path(page).name for page, one in zip(task.pages, same, strict=True) if not one), "")
    return {"scores": scores, "alike": sum(same), "pages": len(same), "differs": differs, "by_usual": by_usual}


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two results are equal, their fractions up to `CLOSE`."""
    if is_dataclass(one) and type(one) is type(other):
        return are_alike(_fields_of(one), _fields_of(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(are_alike, one, other))
    try:
        first, second = np.asarray(one), np.asarray(other)
        if "f" in (kinds := first.dtype.kind + second.dtype.kind) and {*kinds} <= {*"iuf"}:
            return first.shape == second.shape and np.allclose(first, second, rtol=CLOSE, atol=TINY, equal_nan=True)
        return bool(np.array_equal(first, second))
    except (TypeError, ValueError):
        return bool(one == other)


def _time(program: Program, page: str) -> tuple[Any, int]:
    began = now_ns()
    result = program.read(page)
    return result, now_ns() - began


def _record_parts(task: Task) -> dict[str, RecordedPart]:
    meter = Meter()
    return {name: RecordedPart(file, task.threads, meter) for name, file in task.parts.items()}


def _set_keeping(parts: Mapping[str, RecordedPart], *, keeps: bool) -> None:
    for part in parts.values():
        part.keeps = keeps


def _fields_of(one: Any) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _find_odd(value: Any) -> Any:
    """Return the first thing in a result that equals nothing but itself; None if there is none."""
    if isinstance(value, Mapping) or is_dataclass(value):
        value = [*(value if isinstance(value, Mapping) else _fields_of(value)).values()]
    if isinstance(value, list | tuple):
        return next((odd for odd in map(_find_odd, value) if odd is not None), None)
    own: Any = type(value)
    is_odd = own.__eq__ is object.__eq__ and value is not None and not isinstance(value, Enum)
    return value if is_odd else None


def _refuse_other(task: Task, page: str, result: Any, again: Any) -> None:
    if not are_alike(result, again):
        if (odd := _find_odd(result)) is not None:
            kind = source.kind_of(odd)
            raise UsageError(f"{_short(task)} returns {kind}, which can't be compared with another: {RETURNS}")
        told = f"{shorten(repr(result), 40)}, then {shorten(repr(again), 40)}"
        raise UsageError(
            f"{Path(page).name}: {_short(task)} gives another result the second time ({told}): make it give the same, "
            "without times or random numbers"
        )


def _keep_results(task: Task, results: Sequence[Any], results_file: Path) -> None:
    try:
        results_file.write_bytes(pickle.dumps(results))
    except Exception as error:
        why = f"{type(error).__name__}: {shorten(str(error), 80)}"
        raise UsageError(f"{_short(task)} returns what can't be kept ({why}): {RETURNS}") from error


def _as_score(name: str, found: Any) -> float:
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(
            f"{name} returned {shorten(repr(found), 40)}, expected a finite number: the higher, the better"
        )
    return value


def _short(task: Task) -> str:
    return source.find(task.function).short


def answer(path: Path) -> dict[str, Any]:
    """Do what the task in a file says."""
    task, asked = Task.read(path), json.loads(path.read_text(encoding="utf-8"))
    if asked["do"] == "record":
        return record(task, Path(asked["results"]), asked["most_s"])
    if asked["do"] == "score":
        return score(task, Path(asked["results"]), asked["metric"])
    parts = _record_parts(task)
    return time_pages(Program(task, parts.__getitem__), parts, task.pages)


def main() -> None:
    """Do one task; what goes wrong is the answer."""
    leave_with(int(sys.argv[3]))
    os.dup2(2, 1)  # what the user's code prints must not get into the answer
    try:
        found = answer(Path(sys.argv[1]))
    except UsageError as error:
        found = {"fault": str(error)}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
