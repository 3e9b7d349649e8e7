"""Simulate searches for a release: how often a wrong one is named, how many restarts they take, what stays open.

Each process draws its own noise. A search errs if it names a release that brought nothing, ends with a range without
the right one, or says of a single step that no release brought most of it. Seeded, and it measures nothing, so it may
run on a busy machine. `python -m lab bisect-simulated`; `python -m lab.bisect_simulated` puts the tables of the kept
document into docs/evidence/bisect.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from lab.bisect_planted import write_counts
from lab.common import Bench, Table, Tables
from lab.levels import REFERENCE_RUNS
from lab.marked_tables import fill_tables, find_pages, write_table
from shootout.apps.bisect.search import Found, Outcome, search
from tests.support.bisecting import NOISES, Simulated

RUNS = 500
COUNTS = (5, 8, 20)
STEPS = ((0.01, 1.1), (0.01, 1.3), (0.10, 1.1), (0.10, 1.3), (0.10, 1.5))
"""The SD of a process's noise, and the ratio that one release brings."""
UNEVEN = (0.0, 0.5)
"""The log-SD of the releases' own SDs."""
SHAPES: dict[str, tuple[Sequence[float], Sequence[int]]] = {
    "no difference": ([0.0] * 8, []),
    "a difference of 5 %, the limit": ([0.0] * 4 + [math.log(1.05)] * 4, []),
    "steps of 1.3x and 1.1x": ([0.0] * 2 + [0.26] * 4 + [0.36] * 2, [2]),
    "1.5x, a third taken back": ([0.0] * 3 + [0.40] * 2 + [0.27] * 3, [3]),
    "two steps of 1.2x": ([0.0] * 2 + [0.18] * 3 + [0.36] * 3, []),
    "1.05x with each of seven": ([0.05 * at for at in range(8)], []),
}
"""By name, the log of each release's figure, and the releases that may be named."""
STEP, SHAPE = "one step", "other shapes"
MARK = "bisect"
KEPT = REFERENCE_RUNS / "bisect-simulated.json"


def figures(bench: Bench) -> Tables:
    """Return all tables."""
    runs = bench.repeats(RUNS, 5)
    found: Tables = {STEP: [], SHAPE: []}
    for title, rows in ((STEP, _list_steps(runs, bench.seed)), (SHAPE, _list_shapes(runs, bench.seed))):
        for row in rows:
            found[title].append(row)
            bench.keep(found)
    return found


def _list_steps(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    for count, (sd, ratio), noise, uneven in product(COUNTS, STEPS, NOISES, UNEVEN):
        searches = []
        for number in range(runs):
            first = 1 + number % (count - 1)
            logs = [0.0] * first + [math.log(ratio)] * (count - first)
            searches.append(simulate(logs, [first], sd, noise, seed=(seed, number), uneven=uneven))
        row = {"releases": count, "SD": sd, "step": ratio, "noise": noise, "own SDs": uneven}
        yield row | _count(searches)


def _list_shapes(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    for (shape, (logs, right)), sd, noise in product(SHAPES.items(), (0.01, 0.10), NOISES):
        searches = [simulate(logs, right, sd, noise, seed=(seed, number)) for number in range(runs)]
        yield {"shape": shape, "SD": sd, "noise": noise} | _count(searches)


def simulate(
    logs: Sequence[float], right: Sequence[int], sd: float, noise: str, *, seed: Sequence[int], uneven: float = 0.0
) -> tuple[str, int]:
    """Return how a search ended, and the restarts that it took.

    Args:
        right: the releases that may be named.
    """
    world = Simulated(logs, sd, seed=seed, noise=noise, uneven=uneven)
    found = search([f"1.{at}" for at in range(len(logs))], world)
    return _name_outcome(found, right), world.restarts


def _name_outcome(found: Found, right: Sequence[int]) -> str:
    after, upto = (int(release[2:]) for release in (found.last_good, found.first_bad))
    is_right = any(after < one <= upto for one in right)
    if found.outcome is Outcome.NAMED:
        return "named" if upto in right else "wrong name"
    if found.outcome is Outcome.RANGE:
        return "range" if is_right or not right else "wrong range"
    return str(found.outcome)


def _count(searches: Sequence[tuple[str, int]]) -> dict[str, Any]:
    outcomes, restarts = Counter(outcome for outcome, _ in searches), [count for _, count in searches]
    words = ("named", "wrong name", "range", "wrong range", "drift", "none", "open")
    shares = {word: outcomes[word] / len(searches) for word in words}
    return {
        **shares,
        "restarts, median": float(np.median(restarts)),
        "restarts, 90 %": float(np.quantile(restarts, 0.9)),
    }


def write_tables(name: str) -> list[str]:
    """Return a table of the page, of a kept document."""
    if name == "planted":
        return write_counts()
    tables = json.loads(KEPT.read_text(encoding="utf-8"))["sections"]["bisect-simulated"]["tables"]
    return _write_steps(tables[STEP]) if name == STEP else _write_shapes(tables[SHAPE])


def _write_steps(rows: Table) -> list[str]:
    heads = ("SD", "step", "noise", "named, of 5 / 8 / 20 releases", "wrong, at most", "restarts, median")
    lines = []
    for (sd, ratio), noise in product(STEPS, NOISES):
        some = [row for row in rows if (row["SD"], row["step"], row["noise"]) == (sd, ratio, noise)]
        even = [row for row in some if not row["own SDs"]]
        wrong = max(sum(row[word] for word in ("wrong name", "wrong range", "drift", "none")) for row in some)
        named = " / ".join(f"{100 * row['named']:.0f} %" for row in even)
        restarts = " / ".join(f"{row['restarts, median']:.0f}" for row in even)
        lines.append((f"{100 * sd:.0f} %", f"{ratio}x", noise, named, f"{100 * wrong:.1f} %", restarts))
    return write_table(heads, lines)


def _write_shapes(rows: Table) -> list[str]:
    words = ("named", "wrong name", "range", "drift", "none", "open")
    lines = []
    for row in (row for row in rows if row["noise"] == "Gaussian"):
        shares = [f"{100 * row[word]:.1f} %" for word in words]
        lines.append((row["shape"], f"{100 * row['SD']:.0f} %", *shares, f"{row['restarts, median']:.0f}"))
    return write_table(("difference", "SD", *words, "restarts"), lines)


def main() -> None:
    """Write the pages' tables anew."""
    for page in find_pages(MARK):
        page.write_text(fill_tables(page.read_text(encoding="utf-8"), MARK, write_tables), encoding="utf-8")


if __name__ == "__main__":
    main()
