"""Simulate how often a decision is right: the chosen arm beside the truly best one, and how often none is chosen.

Six arms between one and two times the fastest, each with an artifact of its own, and a limit on p99 that about half of
them keep. All play every restart, so that a figure is of the decision and not of the arms that left early.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from lab.common import Bench, Table, Tables
from shootout.apps.judge.cell import Question, candidate_of
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.rows import median_interval
from shootout.core.contract import Array
from shootout.core.results.group import Group
from shootout.core.stats.group_evidence import GroupEvidence, Rules
from shootout.tell.document import Timing
from tests.support.races.cells import cell, document, row

ARMS = 6
TAIL = 1.6
"""The true ratio of an arm's p99 to its median."""
SDS = (0.01, 0.03, 0.10)
RESTARTS = (5, 10, 20)


def figures(bench: Bench) -> Tables:
    """Simulate decisions by the noise between restarts and how many there are."""
    runs = bench.runs or bench.size(400, 4)
    rows: Table = [_count_outcomes(sd, restarts, runs, bench.seed) for sd in SDS for restarts in RESTARTS]
    return {"decisions beside the truth, simulated": rows}


def _count_outcomes(sd: float, restarts: int, runs: int, seed: int) -> dict[str, Any]:
    outcomes, right, broken, sure = Counter[str](), 0, 0, 0
    for number in range(runs):
        rng = np.random.default_rng((seed, number, restarts, round(1_000 * sd)))
        truth = np.exp(rng.uniform(0.0, math.log(2.0), ARMS))
        limit = TAIL * float(np.median(truth)) * 1.02
        found = _simulate_decision(truth, limit, sd, restarts, rng)
        outcomes[found.outcome] += 1
        if found.chosen:
            mine, kept = truth[int(found.chosen[1])], truth[TAIL * truth <= limit]
            broken += TAIL * mine > limit
            near = TAIL * mine <= limit and mine <= 1.05 * kept.min()
            right += near
            sure += found.outcome == "chosen" and not near
    decided = outcomes["chosen"] + outcomes["tied"]
    return {
        "SD": sd,
        "restarts": restarts,
        "runs": runs,
        "chosen": outcomes["chosen"] / runs,
        "tied": outcomes["tied"] / runs,
        "undecided": (outcomes["undecided"] + outcomes["infeasible"]) / runs,
        "within 5 % of the best": right / decided if decided else None,
        "breaks the limit": broken / decided if decided else None,
        "chosen alone and wrong": sure / runs,
    }


def _simulate_decision(truth: Array, limit: float, sd: float, restarts: int, rng: np.random.Generator) -> Decision:
    labels = [f"b{index}" for index in range(ARMS)]
    noise = sd / math.sqrt(2) * rng.standard_normal((ARMS, restarts))
    times = truth[:, None] * np.exp(noise) * 1e6
    tails = TAIL * times * np.exp(sd / 2 * rng.standard_normal(times.shape))
    question = _make_question(dict(zip(labels, times, strict=True)), dict(zip(labels, tails, strict=True)), rng)
    return decide(_read_limit(limit), question)


def _read_limit(limit: float) -> Policy:
    return read_policy(None, {"p99": f"{limit:.6f}ms"})


def _make_question(times: Mapping[str, Array], tails: Mapping[str, Array], rng: np.random.Generator) -> Question:
    blocks = {f"{one}:cpu:fp32": {g: np.array([ns]) for g, ns in enumerate(mine)} for one, mine in times.items()}
    first, *_ = blocks
    rules = Rules(baseline=first, control=None, comparisons=2 * ARMS - 3, max_restarts=60, bias_floor=0.005)
    rows = [
        row(
            one,
            float(np.median(times[one])),
            end_to_end=_timing_of(times[one], tails[one]),
            artifact_bytes=int(rng.integers(1, 10)) * 1_000_000,
        )
        for one in times
    ]
    made = cell(
        *rows,
        rows=tuple(rows),
        compare=GroupEvidence(blocks, rules).compare_rivals,
        restarts_needed=lambda *_: None,
    )
    journal = cast(Group, SimpleNamespace(blocks=lambda _: blocks, served={}, void_share=0.0))
    candidates = tuple(candidate_of(replace(made, journal=journal), one) for one in rows)
    return Question(title=("toy",), candidates=candidates, documents=(document(made),), answers=())


def _timing_of(times: Array, tails: Array) -> Timing:
    middle, tail = median_interval(times), median_interval(tails)
    return Timing(
        median_ns=middle.median,
        low_ns=middle.low,
        high_ns=middle.high,
        confidence=middle.confidence,
        p99_ns=tail.high,
        p99_low_ns=tail.low,
        p99_highest_ns=float(tails.max()),
        samples=10_000,
        restarts=times.size,
        ratio=None,
    )
