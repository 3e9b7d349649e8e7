"""Where the seconds of a run went, by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from shootout.core.journal.records import Ended, Line, Rounds

STEPS = {
    "planning": "planning",
    "preparing": "exports and builds",
    "load": "loading",
    "warm_up": "warm-up",
    "rounds": "rounds",
    "hand_off": "hand-off",
    "leave": "leaving",
    "hung": "waiting for targets that hung",
    "racing": "the rest of the race",
}
"""The steps of a run in their order: name in journals and documents → for people."""


def find_time_spent(lines: Iterable[Line]) -> dict[str, float]:
    """Return seconds by step, in the order in which they come; steps that took none are left out.

    `planning` is finding out what works here; `preparing` all outside of restarts: ceilings, exports, builds;
    `load`, `warm_up`, `rounds`, `hand_off` and `leave` are steps of restarts, `hung` the wait in them for arms that
    gave no answer, and `racing` what no step accounts for.
    """
    steps = defaultdict[str, float](float)
    for line in lines:
        if isinstance(line, Ended):
            steps["planning"] += line.planning_s
            steps["preparing"] += line.wall_s
        elif isinstance(line, Rounds):
            steps["preparing"] -= line.wall_s
            for name, seconds in line.spent_s.items():
                steps[name] += seconds
            steps["racing"] += line.wall_s - sum(line.spent_s.values())
    return {name: steps[name] for name in STEPS if steps[name] > 0}
