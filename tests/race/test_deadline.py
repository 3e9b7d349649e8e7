"""A race whose time is over: what still fits is played, what doesn't is cut or left out, and tried again later."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from support.races import fakes
from support.races.fakes import World
from support.races.groups import group_of_rules
from support.races.planted import header, here, on_stage, run, study

from shootout.apps.judge.analysis import analyse
from shootout.core.build.preparation import NOT_BUILT
from shootout.core.clock import Deadline
from shootout.core.constants import MIN_ROUNDS, ROUNDS
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import ArmFailed, SkippedArm
from shootout.core.journal import journal
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import not_run
from shootout.core.messages import Ask, Scores, Turn
from shootout.core.race import restart
from shootout.core.race.pace import GRACE_S, LOADING_GRACE, TOO_LATE, RaceTime
from shootout.core.race.race import Race, find_next
from shootout.core.race.restart import Restart
from shootout.core.results.group import group_of
from shootout.core.run import tell_shortage
from shootout.core.scenario import Terms
from shootout.core.scoring import MetricSpec
from shootout.core.stats.group_evidence import Rules
from shootout.core.study.plan import plan_groups
from shootout.core.worker.process import no_answer
from shootout.scenarios.concurrent import SERVE_ROUNDS, RateStep
from shootout.scenarios.load_search import LoadTest


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.register(monkeypatch, *"abc")


class Told(Deadline):
    """As many seconds are left as somebody says."""

    def __init__(self, left: Callable[[], float]) -> None:
        super().__init__(1.0)
        self._left = left

    @property
    def left_s(self) -> float:
        return self._left()


UNCAPPED = SimpleNamespace(max_call_s=0.0, max_error=0.0)


def ending(left: Callable[[], float]) -> RaceTime:
    """The time of a run, and of its loading, of which so much is left."""
    time = RaceTime(run=Told(left))
    time.loaded_by = time.run
    return time


def context(world: World, left: Callable[[], float], out: dict[str, NotRun]) -> dict[str, Any]:
    events = dict[str, Any](setback=lambda arm, why: out.update({arm.label: why}))
    return fakes.on(world, **events, time=RaceTime(run=Told(left)))


def played(world: World, left: Callable[[], float], out: dict[str, NotRun] | None = None) -> Restart:
    arms = [fakes.arm(name) for name in world.call_ns]
    given = context(world, left, {} if out is None else out)
    return Restart(index=0, arms=arms, **given, rng=random.Random(0)).run()


def turns(world: World) -> int:
    return sum(name.startswith("turn ") for name, _ in world.events)


def test_a_restart_ends_with_the_last_round_that_fits() -> None:
    world = World({"a": 1e5, "b": 2e5})
    found = played(world, lambda: 60.0 if turns(world) < 10 else 0.0)
    assert found.rounds == 5
    assert [len(one.turns) for one in found.playing] == [5, 5]
    assert not found.is_cut


def two(terms: Terms | None = None) -> Race:
    """a, the baseline, and b."""
    scenario = "serve" if terms else "latency"
    arms = {arm.label: replace(arm, scenario=scenario) for arm in map(fakes.arm, "ab")}
    rules = Rules(baseline="a:cpu:fp32", control=None, comparisons=1, max_restarts=9, bias_floor=0.0)
    return Race(
        arms=arms,
        group=group_of_rules(rules, [*arms.values()]),
        seed="",
        terms=terms or Terms(),
        players=list(arms.values()),
    )


@pytest.mark.parametrize("rounds", [0, 1, MIN_ROUNDS - 1])
def test_one_with_too_few_rounds_is_cut_and_does_not_count(rounds: int) -> None:
    world, race = World({"a": 1e5, "b": 2e5}), two()
    tuned = lambda: sum(name == "tune" for name, _ in world.events)  # noqa: E731
    is_over = lambda: tuned() == 2 and turns(world) >= 2 * rounds  # noqa: E731
    found = race.play(**context(world, lambda: -1.0 if is_over() else 60.0, {}))
    assert (found.rounds, found.is_cut) == (rounds, True)
    assert (race.played, race.blocks, race.group.setbacks) == (0, {}, {})


class Late(fakes.FakePlayer):
    """Owes its answer to a command when the run's time is over; to a turn, after so many of them."""

    late: ClassVar[tuple[str, int]]

    def _command(self, name: str) -> None:
        super()._command(name)
        command, after = self.late
        if name == command and self.world.events.count((name, self.arm.label)) > after and self.arm.label[0] == "b":
            raise SkippedArm(*TOO_LATE)


@pytest.mark.parametrize(("whole", "counts"), [(11, True), (MIN_ROUNDS, True), (MIN_ROUNDS - 1, False)])
def test_whole_rounds_of_all_arms_outlive_a_turn_that_came_too_late(
    whole: int, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fakes, "FakePlayer", Late)
    monkeypatch.setattr(Late, "late", ("turn", whole), raising=False)
    world, race, out = World({"a": 1e5, "b": 2e5}), two(), dict[str, NotRun]()
    found = race.play(**context(world, lambda: 60.0, out))
    assert [len(one.turns) for one in found.playing] == [whole, whole]
    assert [len(one) for blocks in race.blocks.values() for one in blocks.values()] == [whole] * 2 * counts
    assert (found.is_cut, out) == (not counts, {})


def test_a_question_after_the_rounds_costs_nobody_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes, "FakePlayer", Late)
    monkeypatch.setattr(Late, "late", ("memory", 0), raising=False)
    world, race, out = World({"a": 1e5, "b": 2e5}), two(), dict[str, NotRun]()
    found = race.play(**context(world, lambda: 60.0, out))
    assert {label: len(blocks[0]) for label, blocks in race.blocks.items()} == {"a:cpu:fp32": 12, "b:cpu:fp32": 12}
    assert out == {}
    assert found.playing[-1].peak_rss_bytes is None


def test_nothing_is_asked_after_the_rounds_once_the_time_is_over() -> None:
    world = World({"a": 1e5, "b": 2e5})
    found = played(world, lambda: 60.0 if turns(world) < 2 * ROUNDS else -1.0)
    assert "memory" not in {name for name, _ in world.events}
    assert [(len(one.turns), one.peak_rss_bytes) for one in found.playing] == [(ROUNDS, None)] * 2


@pytest.mark.parametrize(("anew_s", "starts"), [(1.0, 2), (1e3, 1)])
def test_rounds_that_can_not_be_played_again_are_not_lost_with_an_arm_that_was_killed(
    anew_s: float, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(fakes.FakePlayer):
        def turn(self, ask: Ask) -> Turn:
            if self.arm.label[0] == "b" and self.world.events.count(("turn", self.arm.label)) == ROUNDS - 1:
                self.world.kills[self.arm.label, "turn"] = 1
            return super().turn(ask)

    monkeypatch.setattr(fakes, "FakePlayer", Dies)
    monkeypatch.setattr(restart, "entering_s", lambda _: anew_s)
    world, out = World({"a": 1e5, "b": 2e5, "c": 3e5}), dict[str, NotRun]()
    found = played(world, lambda: 60.0, out)
    assert world.events.count(("spawn", "b:cpu:fp32")) == starts
    assert {label: (why.kind, why.during) for label, why in out.items()} == (
        {"b:cpu:fp32": (NotRunKind.KILLED, "a round")} if starts == 1 else {}
    )
    assert {one.arm.label[0]: len(one.turns) for one in found.playing} == dict.fromkeys(
        "abc" if starts == 2 else "ac", ROUNDS
    )
    assert not found.is_cut


@pytest.mark.parametrize(
    ("rate_per_s", "whole"),
    [(100.0, 1), (None, 1), (None, SERVE_ROUNDS - 2)],
    ids=["given-1", "searched-1", "searched-7"],
)
def test_a_restart_under_requests_that_lacks_steps_does_not_count(
    rate_per_s: float | None, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for whole rounds, and then for the step of one arm."""
    served: list[float] = []

    def serve(player: fakes.FakePlayer, offer: RateStep) -> Turn:
        served.append((offer.requests + offer.lead_in) / offer.rate_per_s)
        return Turn(latency_ns={"end_to_end": player._latency(offer.requests)}, ask=offer)

    monkeypatch.setattr(fakes.FakePlayer, "turn", serve)
    race = two(LoadTest(rate_per_s=rate_per_s, limit_ns=1e7))
    left = lambda: 1e9 if len(served) < 2 * whole else 17.0 * (len(served) == 2 * whole)  # noqa: E731
    found = race.play(**context(World({"a": 1e5, "b": 2e5}), left, {}))
    assert {len(one.turns) for one in found.playing} == {found.rounds}
    assert found.is_cut
    assert (race.played, race.blocks) == (0, {})


@pytest.mark.parametrize(
    ("preparing_s", "slow", "told"),
    [
        (1.0, "a restart with it takes 6 min at least", "slow: a restart with it takes 6 min at least"),
        (9.0, "a restart with it takes 6 min at least", "exports and builds took 9 s"),
        (1.0, TOO_LATE[0], "exports and builds took 1 s, and loads the rest"),
    ],
)
def test_a_time_that_was_too_short_tells_for_what(preparing_s: float, slow: str, told: str) -> None:
    failed = NotRun(NotRunKind.KILLED, "segmentation fault", "")
    late = NotRun(NotRunKind.NOT_REACHED, slow, "")
    unbuilt = NotRun(NotRunKind.NOT_REACHED, NOT_BUILT, "")
    found = tell_shortage(10.0, preparing_s, {"broken": failed, "unbuilt": unbuilt, "slow": late})
    assert found == f"--max-time 10 s was too short for a figure: {told}"


def test_an_arm_that_is_asked_at_ever_lower_rates_does_not_cost_the_others_their_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand requests at a tenth of what an arm can do take as long as ten thousand calls."""
    left, served = [70.0], list[str]()

    def serve(player: fakes.FakePlayer, offer: RateStep) -> Turn:
        served.append(player.arm.label)
        left[0] -= (offer.requests + offer.lead_in) / offer.rate_per_s
        holds = player.arm.target.backend == "a" and offer.rate_per_s < 2e4
        latency_ns = np.full(offer.requests if holds else 1, 1e5)
        return Turn(latency_ns={"end_to_end": latency_ns}, ask=offer)

    monkeypatch.setattr(fakes.FakePlayer, "turn", serve)
    race, out = two(LoadTest(limit_ns=1e7)), dict[str, NotRun]()
    found = race.play(**context(World({"a": 1e5, "b": 2e6}), lambda: left[0], out))
    assert (found.is_cut, found.rounds, sorted(race.blocks)) == (False, SERVE_ROUNDS, ["a:cpu:fp32"])
    assert {label: why.kind for label, why in out.items()} == {"b:cpu:fp32": NotRunKind.NOT_REACHED}
    assert served.count("b:cpu:fp32") == 3


@pytest.mark.parametrize(
    ("left_s", "asked_s", "kind"),
    [
        (1e3, 300.0, NotRunKind.FAILED),
        (100.0, 50.0 + GRACE_S, NotRunKind.NOT_REACHED),
        (10.0, 5.0 + 10 * LOADING_GRACE, NotRunKind.NOT_REACHED),
        (-1.0, 0.0, NotRunKind.NOT_REACHED),
    ],
)
def test_no_arm_is_waited_for_beyond_its_part_of_the_time(left_s: float, asked_s: float, kind: NotRunKind) -> None:
    asked: list[float] = []

    def ask(command: str, most_s: float, part_s: float, **_: object) -> None:
        asked.append(min(most_s, part_s))
        raise no_answer(command, part_s, had_part=part_s < most_s)

    stage: Any = SimpleNamespace(time=ending(lambda: left_s), study=UNCAPPED)
    process: Any = SimpleNamespace(ask=ask)
    built: Any = None
    with pytest.raises(ArmFailed if left_s > 0 else SkippedArm) as found:
        fakes.Answering(process, built, stage, first=False).load()
    assert asked == [asked_s]
    assert found.value.why.kind is kind


@pytest.mark.parametrize("command", ["load", "verify", "warm", "tune", "turn", "memory"])
def test_an_arm_that_hangs_costs_no_other_its_row(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second that it is waited for is gone, in a run of one minute."""
    gone, calls = [0.0], [0]
    left = lambda: 60.0 - gone[0]  # noqa: E731

    class Watch:
        def __enter__(self) -> Watch:
            self.began = gone[0]
            return self

        def __exit__(self, *_: object) -> None:
            self.seconds = gone[0] - self.began

    def hang(name: str, most_s: float, part_s: float) -> None:
        gone[0] += min(most_s, part_s)
        raise no_answer(name, part_s, had_part=part_s < most_s)

    time = ending(left)
    time.loaded_by = Told(lambda: 30.0 - gone[0])
    process, built = SimpleNamespace(ask=hang), SimpleNamespace()
    live: Any = fakes.Answering(process, built, SimpleNamespace(time=time, study=UNCAPPED), first=False)  # type: ignore[arg-type]

    class Hangs(fakes.FakePlayer):
        def _command(self, name: str) -> None:
            super()._command(name)
            if self.arm.label[0] == "b" and name == command:
                calls[0] += 1
                if calls[0] > (command == "turn"):  # in its second round
                    live._ask_in_time(name, 0.0, 300.0)

    monkeypatch.setattr(fakes, "FakePlayer", Hangs)
    monkeypatch.setattr(restart, "Stopwatch", Watch)
    world, race, out = World({"a": 1e5, "b": 1e5, "c": 1e5}), two(), dict[str, NotRun]()
    race.players = list(map(fakes.arm, "abc"))
    race.arms = {one.label: one for one in race.players}
    found = race.play(**context(world, left, out))
    assert not found.is_cut
    assert {label: len(blocks[0]) for label, blocks in race.blocks.items()} == {"a:cpu:fp32": 12, "c:cpu:fp32": 12}
    why = out["b:cpu:fp32"]
    assert why.hung
    assert re.fullmatch(f"--max-time left it no more time: its {command} was stopped after [\\d.]+ s", why.reason)
    assert "more time" in why.fix
    assert left() > 20.0
    assert gone[0] == pytest.approx(found.hung_s, abs=0.1)  # no restart to come is taken to need it
    assert sum(found.spent_s.values()) == pytest.approx(found.hung_s, abs=0.1)
    assert min(found.spent_s.values()) >= 0.0
    assert found.spent_s["rounds"] == pytest.approx(0.0, abs=0.1)


def test_an_arm_that_hung_is_begun_behind_the_others_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = on_stage(monkeypatch)
    asked = study(1, goal="resolve 0.5%", max_restarts=4)
    (group,) = plan_groups(asked, here())
    baseline = group.playing[0]
    file = Journal(tmp_path)
    hung = replace(no_answer("load", 9.0, had_part=True).why, during="entering")
    file.append(header(asked), not_run(group.record.name, baseline, hung))
    file.close()
    assert run(tmp_path, asked)
    spawned, count = list(stage[0].spawned), len(group.playing)
    assert len(spawned) > count
    assert spawned[count - 1] == (1, baseline.label)
    assert journal.read(tmp_path).lines[1].why == hung  # type: ignore[union-attr]
    assert run(tmp_path / "none hung", asked)
    drawn = stage[0].spawned[len(spawned) :]
    assert spawned[:count] != drawn[:count]
    assert spawned[count:] == drawn[count:], "it has played, so the order is drawn again"


METRIC = MetricSpec(metric="m.py:cost")


@pytest.mark.parametrize("left_s", [10.0, 1e9])
def test_a_metric_that_hangs_costs_its_column_and_is_not_tried_again(
    left_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run itself has time without end."""
    hung, tried = Scores(name="m.py:cost", fault="m.py:cost took longer than 5 s and was killed"), list[MetricSpec]()

    def score(spec: MetricSpec, *_: object) -> Scores:
        tried.append(spec)
        return hung

    monkeypatch.setattr("shootout.models.metrics.scorer.score", score)
    monkeypatch.setattr("shootout.core.race.live_arm.Deadline", lambda part_s: Told(lambda: part_s - 301.0))
    stage: Any = SimpleNamespace(time=ending(lambda: left_s), study=UNCAPPED, hung=None)
    absent: Any = None
    built: Any = SimpleNamespace(exported=None)
    arms = [fakes.Answering(absent, built, stage, first=True) for _ in range(2)]
    assert [arm._score_outputs(Path("outputs"), METRIC) for arm in arms] == [hung, hung]
    assert tried == [METRIC]


def test_who_had_no_time_is_tried_again_and_then_is_no_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_stage(monkeypatch)
    asked = study(1)
    (group,) = plan_groups(asked, here())
    late = NotRun(NotRunKind.NOT_REACHED, "no time", "more time")
    file = Journal(tmp_path)
    file.append(header(asked), *(not_run(group.record.name, arm, late) for arm in group.playing[1:]))
    file.close()
    before = {row.arm: (row.outcome, row.reason) for row in analyse(tmp_path).rows}
    assert ("not timed", "no time") in before.values()
    assert run(tmp_path, asked)
    assert {row.outcome for row in analyse(tmp_path).rows} == {"measured"}


def test_a_run_without_its_verdicts_plays_as_many_restarts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = on_stage(monkeypatch)
    asked = study(1, goal="resolve 0.5%", max_restarts=2)
    for most in (2, 4):
        assert run(tmp_path, asked)
        (group,) = plan_groups(asked, here())
        assert len(group_of(journal.read(tmp_path), group.record).rounds) == most
    stage[0].stop_after = 3 * 5
    with pytest.raises(KeyboardInterrupt):  # what was begun then is only ended
        run(tmp_path, asked)
    stage[0].stop_after = None
    assert run(tmp_path, asked)
    assert len(group_of(journal.read(tmp_path), group.record).rounds) == 6


@pytest.mark.parametrize(
    ("played", "recalled", "left_s", "is_tried"), [(1, 1, 39.0, True), (1, 1, 11.0, False), (1, 0, 39.0, False)]
)
def test_a_run_that_goes_on_tries_a_restart_as_long_as_the_last_one(
    played: int, recalled: int, left_s: float, is_tried: bool
):
    """Of five arms one had played in 12 s: five times that isn't there, and the run ended after 21 of 60 s."""
    one: Any = SimpleNamespace(played=played, recalled=recalled, fewest=2, next_s=58.0, last_s=11.7, order=(0.0,))
    assert find_next([one], RaceTime(run=Deadline(left_s))) is (one if is_tried else None)
