"""One library's cases, in a process of its own: the same work done as an adapter did it once and as it does it now.

Run as a script: `cases.py LIBRARY FOLDER PARENT`. For each case a line of JSON: the ratio of each way to the first one,
by turns in this process, and the median times. What both ways compute must agree, or it says by how much it doesn't.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from shootout.clock import quiet_collector
from shootout.host.child import leave_with

Call = Callable[[int], Any]
"""One call, with any input that it rotates over; returns what it computed."""
ROUNDS, BLOCK_NS, LEAST_CALLS, WARM_UP_NS = 12, 5_000_000, 3, 50_000_000
APART = 1e-3


@dataclass(frozen=True, kw_only=True)
class Case:
    """Work done in several ways.

    Attributes:
        name: the same in `claims.py`.
        ways: the first one is what the others are compared with.
        apart: the largest relative L2 difference of two ways' results that rounding explains.
        before: what has to be so before a way is called, where that belongs to the process.
    """

    name: str
    ways: Mapping[str, Call]
    apart: float = APART
    before: Callable[[str], None] = lambda way: None


def measure(case: Case, loop: Callable[..., list[int]], rng: random.Random) -> dict[str, Any]:
    """Each way's median in microseconds, and its log ratio to the first: the median over rounds."""
    medians: dict[str, list[float]] = {way: [] for way in case.ways}
    calls = {way: _calls(case, way, loop) for way in case.ways}
    quiet_collector()
    for _ in range(ROUNDS):
        for way in rng.sample(list(case.ways), len(case.ways)):
            case.before(way)
            medians[way].append(statistics.median(loop(case.ways[way], 1, calls[way])))
    first, *others = medians
    return {
        "case": case.name,
        "us": {way: statistics.median(found) / 1e3 for way, found in medians.items()},
        "x": {
            way: statistics.median(math.log(a / b) for a, b in zip(medians[first], medians[way], strict=True))
            for way in others
        },
        "apart": _apart(case),
        "most_apart": case.apart,
    }


def _calls(case: Case, way: str, loop: Callable[..., list[int]]) -> int:
    """How many calls a block of this way has, after some that warm it up."""
    case.before(way)
    few = loop(case.ways[way], 1, LEAST_CALLS)
    warm = loop(case.ways[way], 1, max(LEAST_CALLS, min(2_000, int(WARM_UP_NS / statistics.median(few)))))
    return max(LEAST_CALLS, int(BLOCK_NS / statistics.median(warm)) + 1)


def _apart(case: Case) -> float:
    """The largest relative L2 difference of a way's result from the first's."""
    results = []
    for way, call in case.ways.items():
        case.before(way)
        results.append(np.asarray(call(0), np.float64))
    first, *others = results
    size = float(np.linalg.norm(first)) or 1.0
    return max((float(np.linalg.norm(one - first)) / size for one in others), default=0.0)


def main() -> None:
    """Every case of the library named, each told as soon as it is measured."""
    _, library, folder, parent = sys.argv
    leave_with(int(parent))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    here = Path(__file__).parent
    sys.path += [str(here), str(here.parent / "parity")]
    from plain import loop  # type: ignore[import-not-found] # no package there

    cases: Iterator[Case] = import_module(f"ways_{library}").cases(Path(folder))
    for case in cases:
        print(json.dumps(measure(case, loop, random.Random())), file=answers, flush=True)


if __name__ == "__main__":
    sys.modules["cases"] = sys.modules["__main__"]  # so that the ways' `Case` is this one
    main()
