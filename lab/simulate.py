"""Simulate races for a goal and warm-ups at full size, with seeds: `python -m lab.simulate [--runs N] [--json]`.

The same worlds as in CI, with 4,000 runs for each figure instead of hundreds; takes some minutes and measures nothing,
so it may run on a busy machine. The figures in docs/design/measurement.md come from here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass

from lab.common import Bench, Tables
from shootout.core.stats.goals import Goal
from shootout.core.stats.readings import steady_from
from tests.support.races.goal_races import CLOSE, DEFAULT, race_for
from tests.support.races.simulation import CLOSE_RIVAL_MS, PINNED_SD, SD, STEADY, latencies, race_share, share


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One simulated share beside its target; `limit` is a least value where `at_least`, else a greatest one."""

    name: str
    value: float
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        """Return whether the target is met (always if there is none)."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def goals(runs: int) -> Iterator[Figure]:
    """Compare a race for the best arm with one for the verdicts: what it takes, and how often it misses the fastest."""
    for sd in (0.01, 0.03, 0.05):
        for goal in (Goal(), Goal(aim="best")):
            found = [race_for(goal, DEFAULT, sd=sd, seed=seed, rounding=2) for seed in range(runs // 20)]
            mean = [sum(figures) / len(found) for figures in zip(*map(astuple, found), strict=True)]
            restarts, played, told, _, leaders = mean
            yield Figure(
                name=f"ten arms, goal {goal}, SD {sd:.0%}: the fastest is no leader",
                value=share(not one.found for one in found),
                limit=0.05,
                note=f"{restarts:.1f} restarts, {played:.0f} of arms, {told:.1f} verdicts, {leaders:.1f} leaders",
            )
    for sd in (0.005, 0.02, 0.05):
        found = [race_for(Goal(aim="best"), CLOSE, sd=sd, seed=seed) for seed in range(runs // 10)]
        missed = share(not one.found for one in found)
        yield Figure(name=f"five arms within 2 %, SD {sd:.1%}: the fastest is no leader", value=missed, limit=0.05)


def races(runs: int) -> Iterator[Figure]:
    """Count the calls of a race over those of round-robin."""
    for sd in (SD, PINNED_SD):
        calls, agreement = race_share(CLOSE_RIVAL_MS, runs=runs // 20, seed=15, sd=sd)
        yield Figure(
            name=f"six-arm race, rival 1 % off the baseline, SD {sd:.1%}",
            value=calls,
            limit=0.60 if sd == PINNED_SD else None,
            note=f"verdicts equal in {agreement:.1%}",
        )


def warm_ups(runs: int) -> Iterator[Figure]:
    """Count false alarms on steady tapes and detection on unsteady ones."""
    for calls, tapes in ((60, runs // 10), (240, runs // 40)):
        for kind in (*STEADY, "20 % step at 1/4", "slow start"):
            found = [steady_from(latencies(kind, calls=calls, seed=seed)) for seed in range(tapes)]
            later = share(index is not None and index > 0 for index in found)
            yield Figure(
                name=f'"no steady state", {kind}, {calls} calls',
                value=share(index is None for index in found),
                limit=0.01,
                note=f"later than call 0: {later:.1%}",
            )
        for kind in ("20 % step at 3/4", "5 % step at 3/4", "20 % drift", "start as long as the tape"):
            found = [steady_from(latencies(kind, calls=calls, seed=seed)) for seed in range(tapes)]
            yield Figure(
                name=f"change seen, {kind}, {calls} calls",
                value=share(index != 0 for index in found),
                limit=0.95 if kind == "20 % step at 3/4" else None,
                at_least=True,
            )


def figures(runs: int) -> Iterator[Figure]:
    """Yield every simulated figure, as it comes in."""
    for part in (races, goals, warm_ups):
        yield from part(runs)


def section(bench: Bench) -> Tables:
    """Simulate as a section of `python -m lab`."""
    rows = [{**asdict(one), "holds": one.holds} for one in figures(bench.size(4_000, 40))]
    return {"races and warm-ups, simulated": rows}


def line(figure: Figure) -> str:
    """Write a figure as one line of the table."""
    target = "" if figure.limit is None else f"{'≥' if figure.at_least else '≤'} {figure.limit:.1%}"
    return f"{'  ' if figure.holds else '✗ '}{figure.name:<72} {figure.value:>7.2%}  {target:<9} {figure.note}"


def main() -> int:
    """Print the table (or JSON lines); exit 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4_000, help="runs for each figure (at least 40)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    missed = 0
    for figure in figures(max(40, options.runs)):
        print(json.dumps({**asdict(figure), "holds": figure.holds}) if options.json else line(figure), flush=True)
        missed += not figure.holds
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
