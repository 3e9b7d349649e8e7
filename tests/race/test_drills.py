"""Fault drills: each protection of the method is taken out once, and the check that relies on it must then fail.

The arms carry planted effects that a real machine has: later spawns run slower, an idle neighbor spins, a mode is
slow. With the protection the planted effect does no harm; without it the verdict comes out wrong.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.races import fakes
from support.races.fakes import World

from shootout.core.constants import ROUNDS
from shootout.core.contract import Arm
from shootout.core.host.noise import Disturbance, Gpus
from shootout.core.race import race as races
from shootout.core.results import group
from shootout.core.stats.group_evidence import GroupEvidence
from shootout.core.stats.verdicts import Verdict
from shootout.core.worker import blocks
from shootout.scenarios.load_search import tail_bound

RUNS = 30
WRONG = (Verdict.FASTER, Verdict.SLOWER)


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drills are about rounds; warm-up has its own tests and would take most of the time."""
    monkeypatch.setattr("shootout.core.race.live_arm.steady_from", lambda _: 0)


def false_verdicts(**planted) -> tuple[float, float]:
    """Shares of A/A races (an arm against itself, in every restart the same true time) that end in a difference.

    The first is without what the control shows; the second with it, which widens the floor and so hides that another
    protection is gone.
    """
    wrong = np.zeros(2)
    for seed in range(RUNS):
        found = fakes.race(World({"a": 1e5}, seed=seed, **planted), ["a", "a"], restarts=10)
        both = [GroupEvidence(found.blocks, rules) for rules in (replace(found.rules, control=None), found.rules)]
        wrong += [one.compare("a:cpu:fp32#2", "a:cpu:fp32").verdict in WRONG for one in both]
    alone, vouched = wrong / RUNS
    return alone, vouched


def test_with_every_protection_an_arm_equals_itself() -> None:
    assert false_verdicts()[0] <= 0.05


def test_a_shuffled_spawn_order_defuses_a_spawn_bias() -> None:
    assert false_verdicts(spawn_bias=0.02)[0] <= 0.05


def test_drill_fixed_spawn_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races.random, "Random", fakes.InOrder)
    alone, vouched = false_verdicts(spawn_bias=0.02)
    assert alone > 0.5, "a fixed spawn order went unnoticed: the A/A check proves nothing"
    assert vouched <= 0.05, "the control shows a bias too, and widens the floor"


def verdict_beside_a_spinning_neighbor(*, holds: bool) -> Verdict:
    """a and b take the same time, but b's idle threads slow whoever runs beside it by 10 %."""
    world = World({"a": 1e5, "b": 1e5}, neighbors={"b": 0.1}, holds=holds)
    found = fakes.race(world, ["a", "b"])
    return GroupEvidence(found.blocks, found.rules).compare("b:cpu:fp32", "a:cpu:fp32").verdict


def test_holding_idle_arms_defuses_a_spinning_neighbor() -> None:
    assert verdict_beside_a_spinning_neighbor(holds=True) not in WRONG


def test_drill_no_sigstop() -> None:
    assert verdict_beside_a_spinning_neighbor(holds=False) is Verdict.FASTER


MET = frozenset(range(0, ROUNDS, 2))
"""The rounds of each restart in which another program meets b, and b alone."""


class Met(fakes.FakePlayer):
    """A planted arm that takes 20 % longer in these rounds."""

    def _latency(self, calls: int) -> np.ndarray:
        met = self.arm.target.backend == "b" and self._turns in MET
        return super()._latency(calls) * (1.2 if met else 1.0)


class Street(World):
    """A world in which others pass by."""

    def take(self, arm: Arm, padding: int) -> fakes.FakePlayer:
        return Met(self, arm)


def verdict_beside_a_passer_by(monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """a and b take the same time, but others meet b in every second round, which outside evidence shows."""

    class Seeing(fakes.FakeWatch):
        def reasons(self, gpus: Gpus, own_ns: int | None, own_contexts: int) -> tuple[Disturbance, ...]:
            super().reasons(gpus, own_ns, own_contexts)
            return (fakes.STOLEN,) if self.seen % ROUNDS in MET else ()

    monkeypatch.setattr(fakes, "FakeWatch", Seeing)
    found = fakes.race(Street({"a": 1e5, "b": 1e5}), ["a", "b"])
    return GroupEvidence(found.blocks, found.rules).compare("b:cpu:fp32", "a:cpu:fp32").verdict


def test_a_restart_counts_by_the_rounds_that_nobody_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict_beside_a_passer_by(monkeypatch) not in WRONG


def test_drill_flags_that_count_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "counted", lambda medians, flagged: np.array(medians))
    assert verdict_beside_a_passer_by(monkeypatch) is Verdict.SLOWER


SLOW_MODE = {"b": (0.6, 0.10)}
"""60 % of b's calls take 10 % longer: its median is truly slower than a's."""


def verdict_on_a_slow_mode() -> Verdict:
    found = fakes.race(World({"a": 1e5, "b": 1e5}, slow=SLOW_MODE), ["a", "b"])
    return GroupEvidence(found.blocks, found.rules).compare("b:cpu:fp32", "a:cpu:fp32").verdict


def test_no_reading_is_dropped() -> None:
    assert verdict_on_a_slow_mode() is Verdict.SLOWER


def test_drill_per_sample_dropping(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fakes.FakePlayer.turn

    def dropping(self, ask):
        turn = honest(self, ask)
        for scope, latency in turn.latency_ns.items():
            turn.latency_ns[scope] = latency[latency <= 1.05 * latency.min()]
        return turn

    monkeypatch.setattr(fakes.FakePlayer, "turn", dropping)
    assert verdict_on_a_slow_mode() is not Verdict.SLOWER, "dropping outliers changed nothing: the check proves nothing"


def test_drill_dropping_hides_the_tail() -> None:
    latency = np.random.default_rng(0).lognormal(0, 0.01, 2_000)
    latency[::50] *= 3
    kept = latency[latency < 2]
    assert (tail_bound(latency, 0.99) or 0) > 2.5
    assert (tail_bound(kept, 0.99) or 0) < 1.1


class Queued:
    """A session whose device works on after `execute` returns, on a fake clock."""

    def __init__(self) -> None:
        self.now_ns = self.pending_ns = 0

    def stage(self, inputs, slot):
        return inputs

    def execute(self, staged):
        self.now_ns += 5_000
        self.pending_ns += 100_000
        return staged

    def synchronize(self) -> None:
        self.now_ns, self.pending_ns = self.now_ns + self.pending_ns, 0

    def fetch(self, raw):
        return raw


def compute_ns(session: Queued, monkeypatch: pytest.MonkeyPatch) -> float:
    """What the worker's bracket reads for one call of `session`."""
    monkeypatch.setattr("shootout.core.clock.now_ns", lambda: session.now_ns)
    from array import array

    from shootout.core.clock import read_block

    call = blocks.make_timed_calls(session, [{}, {}])["compute"]
    readings = array("q", [0] * 5)
    count = read_block(call, 2, readings, per_reading=1, block_ns=0, min_calls=5)
    return float(np.median(readings[:count]))


def test_the_bracket_holds_until_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compute_ns(Queued(), monkeypatch) == 105_000


def test_drill_missing_synchronize(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Queued()
    monkeypatch.setattr(session, "synchronize", lambda: None)
    assert compute_ns(session, monkeypatch) < 105_000


def test_a_biased_baseline_is_caught_by_its_control() -> None:
    """Whatever makes the baseline process differ from its own copy must not become a verdict."""
    found = fakes.race(World({"a": 1e5, "b": 1e5}), ["a", "b"])
    honest = GroupEvidence(found.blocks, found.rules).compare("a:cpu:fp32#control", "a:cpu:fp32")
    assert honest.verdict not in WRONG
    for restart, medians in found.blocks["a:cpu:fp32"].items():
        found.blocks["a:cpu:fp32"][restart] = medians * 1.05
    planted = GroupEvidence(found.blocks, found.rules).compare("a:cpu:fp32#control", "a:cpu:fp32")
    assert planted.verdict is Verdict.FASTER
