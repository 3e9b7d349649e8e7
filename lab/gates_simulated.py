"""Simulate how often a gate is red, green and undecided: candidates as fast, slower by the limit, and by more.

They race as in a live gate: a reference, its hidden copy and the candidate, whose times in a restart scatter, until
the package's own stopping rule ends it or the time is up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables
from shootout.core.constants import ALPHA, BIAS_FLOOR
from shootout.core.contract import Arm, Target
from shootout.core.race.race import Race
from shootout.core.stats.goals import Goal
from shootout.core.stats.group_evidence import Blocks, GroupEvidence, Rules
from shootout.core.stats.verdicts import Verdict
from tests.support.races.groups import group_of_rules, take
from tests.support.races.simulation import NOISES

SLOWER = 0.05
"""The limit."""
INJECTED = (0.0, 0.05, 0.06, 0.10)
"""At the limit and just over it a gate that passes is wrong most easily."""
SDS = (0.01, 0.03, 0.05, 0.10)
NOISE = ("gaussian", "7 % bad restarts")
RESTARTS = (20, 40, 80, 160)
"""That eight minutes bring where one takes 24, 12, 6 and 3 s."""
REFERENCE, CANDIDATE, COPY = "reference", "candidate", "reference#control"
MOST_RED, MOST_UNDECIDED = 0.01, 0.20
"""The most that may fail or stay undecided, of candidates that are as fast."""
LEAST_RED = 0.95
"""The least that must fail, of candidates that are slower by most."""
MOST_GREEN = ALPHA
"""The most that may pass, of candidates that are slower by the limit or more."""


def figures(bench: Bench) -> Tables:
    """Simulate gates by the noise between restarts, how many there is time for, and what was injected."""
    runs = bench.runs or bench.size(400, 4)
    rows: Table = []
    for noise, sd, most, injected in product(NOISE, SDS, RESTARTS, INJECTED):
        rows.append(share(noise, sd, most, injected, runs, bench.seed))
        bench.keep({"gates, simulated": rows})
    return {"gates, simulated": rows}


def share(noise: str, sd: float, most: int, injected: float, runs: int, seed: int) -> dict[str, Any]:
    """Return how such gates end, and whether that keeps to the promised rates."""
    outcomes, played = Counter[str](), []
    for number in range(runs):
        rng = np.random.default_rng((seed, number, most, round(1_000 * sd), round(1_000 * injected)))
        outcome, restarts = race(noise, sd, most, injected, rng)
        outcomes[outcome] += 1
        played.append(restarts)
    red, green, undecided = (outcomes[one] / runs for one in ("fail", "pass", "undecided"))
    if injected < SLOWER:
        keeps = red <= MOST_RED and undecided <= MOST_UNDECIDED
    else:
        keeps = green <= MOST_GREEN and (injected < max(INJECTED) or red >= LEAST_RED)
    return {
        "noise": noise,
        "SD": sd,
        "restarts in time": most,
        "slower by": injected,
        "runs": runs,
        "red": red,
        "green": green,
        "undecided": undecided,
        "median restarts": float(np.median(played)),
        "keeps the bars": keeps,
    }


def race(noise: str, sd: float, most: int, injected: float, rng: np.random.Generator) -> tuple[str, int]:
    """Simulate one gate: return its outcome, and the restarts that it took."""
    rules = Rules(
        baseline=REFERENCE,
        control=COPY,
        comparisons=1,
        max_restarts=most,
        bias_floor=BIAS_FLOOR,
        goal=Goal(aim="limit", within=SLOWER),
    )
    truth = {REFERENCE: 1.0, CANDIDATE: 1.0 + injected, COPY: 1.0}
    drawn = sd / math.sqrt(2) * NOISES[noise](rng.standard_normal((len(truth), most)), rng)
    times = dict(zip(truth, np.array(list(truth.values()))[:, None] * np.exp(drawn), strict=True))
    arms = {label: Arm(target=Target(backend="spin"), model="identity") for label in truth}
    race = Race(arms=arms, group=group_of_rules(rules), seed="")
    while players := race.find_players():
        take(race.group, {label: times[label][race.played : race.played + 1] for label in players})
    return _outcome_of(race.blocks, rules), race.played


def _outcome_of(blocks: Mapping[str, Blocks], rules: Rules) -> str:
    """Judge as a gate does: undecided while the copy comes out different."""
    evidence = GroupEvidence(blocks, rules)
    copy = evidence.compare(COPY, REFERENCE)
    found = evidence.compare(CANDIDATE, REFERENCE, limit=SLOWER)
    if copy is None or found is None or copy.verdict in (Verdict.FASTER, Verdict.SLOWER):
        return "undecided"
    return {Verdict.SLOWER: "fail", Verdict.FASTER: "pass"}.get(found.verdict, "undecided")
