"""Protections that hold only if they are wired in: through the real worker, recorder, samples and journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.races import planted
from support.races.fakes import Answering, FakePlayer, World
from support.races.made import GROUP, A, B, header, prepared, write

from shootout.core import clock
from shootout.core.constants import BLOCK_NS, LEAD_IN_CALLS, LEAD_IN_NS, SHORT_CALL_NS
from shootout.core.contract import Arm, NotRun, NotRunKind, Target
from shootout.core.errors import UsageError
from shootout.core.host import environment
from shootout.core.host.placement import place
from shootout.core.journal import journal, samples
from shootout.core.journal.folder import find_obstacle
from shootout.core.journal.records import Line, not_run
from shootout.core.messages import SCOPES, Ask, Scope, Tuned, Turn
from shootout.core.race import pace, restart, runner
from shootout.core.race.pace import RaceTime
from shootout.core.race.recording import Recorder
from shootout.core.race.restart import block_medians
from shootout.core.worker import worker as worker_main
from shootout.core.worker.blocks import Blocks
from shootout.tell.progress import ProgressDisplay

ARM = Arm(target=Target(backend="lib"), model="m")


def turn(*latency_ns: float) -> Turn:
    return Turn(latency_ns={scope: np.array(latency_ns) for scope in SCOPES})


def test_a_block_has_the_median_of_its_readings():
    performance: Any = SimpleNamespace(arm=ARM, turns=[turn(1.0, 2.0, 900.0), turn(5.0)])
    assert block_medians(performance) == dict.fromkeys(SCOPES, (2.0, 5.0))


def test_samples_hold_every_reading_in_its_order(tmp_path: Path):
    slow = [*np.linspace(1e3, 2e3, 150), 9e9, 1.0]
    samples.write(tmp_path, "samples/g0-000.npz", [("a", [turn(*slow), turn(7.0)])])
    for scope in SCOPES:
        assert samples.read(tmp_path, "samples/g0-000.npz", "a", scope).tolist() == [*slow, 7.0]


def test_samples_are_on_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, synced = tmp_path / "samples/g0-000.npz", []

    def sync(file: int) -> None:
        status = os.fstat(file)
        synced.extend([(status.st_size > 0, path.exists())] * stat.S_ISREG(status.st_mode))

    monkeypatch.setattr(os, "fsync", sync)
    samples.write(tmp_path, "samples/g0-000.npz", [("a", [turn(1.0)])])
    assert synced == [(True, False)]
    assert path.exists()


STAGE_NS, FETCH_NS = 40, 60


class Planned:
    """A session on a planted clock, where executions take the planned times in turn; `log` has every call as it was."""

    gpu = None

    def __init__(self, execute_ns: Iterator[int]) -> None:
        self.execute_ns = execute_ns
        self.now_ns = 0
        self.began_ns: int | None = None
        self.staged = False
        self.log: list[tuple[Scope, int]] = []

    def stage(self, inputs: Any, slot: int) -> Any:
        self.began_ns, self.staged = self.now_ns, True
        self.now_ns += STAGE_NS
        return inputs

    def execute(self, staged: Any) -> Any:
        if not self.staged:
            self.began_ns = self.now_ns
        self.now_ns += next(self.execute_ns)
        return staged

    def synchronize(self) -> None:
        if not self.staged:
            self._end("compute")

    def fetch(self, raw: Any) -> Any:
        self.now_ns += FETCH_NS
        self._end("end_to_end")
        return raw

    def _end(self, scope: Scope) -> None:
        if self.began_ns is not None:
            self.log.append((scope, self.now_ns - self.began_ns))
        self.began_ns, self.staged = None, False


class InProcess(FakePlayer):
    """The real player's turns, over a real worker in this process; `blocks` has the calls of each block."""

    def __init__(self, world: World, arm: Arm, session: Planned) -> None:
        super().__init__(world, arm)
        self.session, self.blocks = session, list[tuple[Scope, list[int]]]()
        built: Any = SimpleNamespace(arm=ARM)
        worker = worker_main.Worker()
        worker._session, worker._sessions = session, [session]  # type: ignore[assignment]
        worker._caller, session.staged = Blocks(session, [{}, {}]), False  # type: ignore[arg-type]
        process = SimpleNamespace(ask=lambda command, *_, **given: worker_main.answer(worker, command, given))
        stage: Any = SimpleNamespace(time=RaceTime())
        self.player = Answering(process, built, stage)

    def tune(self) -> Tuned:
        self.player.tuned = self.player.tune()
        return self.player.tuned

    def turn(self, ask: Ask) -> Turn:
        self.session.log.clear()
        found = self.player.turn(ask)
        self.blocks += [(scope, [ns for which, ns in self.session.log if which == scope]) for scope in ask.scopes]
        return found


class Real(World):
    """Arms that all take the same planned times, in their turns."""

    def __init__(self, *execute_ns: int) -> None:
        super().__init__(call_ns=dict.fromkeys(planted.LINES, 1e6))
        self.execute_ns = execute_ns

    def take(self, arm: Arm, padding: int) -> InProcess:
        return InProcess(self, arm, Planned(cycle(self.execute_ns)))


def raced(out: Path, monkeypatch: pytest.MonkeyPatch, *execute_ns: int) -> dict[Scope, tuple[list[list[int]], Any]]:
    """By scope, the calls of an arm's blocks in one restart, and its samples in the run folder."""
    stage: Any = Real(*execute_ns)
    planted.on_stage(monkeypatch)[0] = stage
    monkeypatch.setattr(restart, "ROUNDS", 3)
    monkeypatch.setattr(pace, "MIN_ROUNDS", 3)
    monkeypatch.setattr(clock, "quiet_collector", lambda: None)
    monkeypatch.setattr(clock, "now_ns", lambda: sum(player.session.now_ns for player in stage.players))
    planted.run(out, planted.study(1, max_restarts=1))
    player: Any = stage.players[0]
    return {
        scope: (
            [calls for which, calls in player.blocks if which == scope],
            samples.read(out, "samples/g0-000.npz", player.arm.label, scope),
        )
        for scope in SCOPES
    }


def test_every_call_after_the_lead_in_of_its_block_is_among_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The slow ones too, and the last, with the copies inside the end-to-end ones; from the worker to the file."""
    for scope, (blocks, found) in raced(tmp_path, monkeypatch, *[10**6] * 6, 3 * 10**6).items():
        own_ns = {"end_to_end": STAGE_NS + FETCH_NS, "compute": 0}[scope]
        kept = [calls[1 if calls[0] >= LEAD_IN_NS else 2 :] for calls in blocks]
        assert found.tolist() == [ns for calls in kept for ns in calls]
        assert {*found} == {10**6 + own_ns, 3 * 10**6 + own_ns}
        for calls in kept:
            assert sum(calls[:-1]) < BLOCK_NS <= sum(calls)


def test_short_calls_are_read_together_and_told_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for blocks, found in raced(tmp_path, monkeypatch, 900, 1_100).values():
        kept = [np.array(calls[LEAD_IN_CALLS:]) for calls in blocks]
        each = SHORT_CALL_NS // 1_000
        assert found == pytest.approx(np.concatenate([calls.reshape(-1, each).mean(axis=1) for calls in kept]))
        assert 900 <= found.min() <= found.max() <= 1_100 + STAGE_NS + FETCH_NS


def test_the_race_is_run_off_the_arms_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: set[frozenset[int]] = set()

    class Stage(planted.ByBatch):
        def begin(self, player: FakePlayer) -> None:
            seen.add(frozenset(os.sched_getaffinity(0)))
            super().begin(player)

    planted.on_stage(monkeypatch)[0] = Stage()
    before = os.sched_getaffinity(0)
    planted.run(tmp_path / "out", planted.study(1))
    assert seen == {frozenset(place(1).parent)}
    assert os.sched_getaffinity(0) == before


def test_a_resumed_run_knows_who_is_out_and_what_was_built(tmp_path: Path):
    failure = not_run(GROUP, B, NotRun(NotRunKind.FAILED, "broke", during="load"))
    history = journal.read(write(tmp_path, header(), prepared(A), failure))
    told: list[Line] = []
    file: Any = SimpleNamespace(append=lambda *lines: told.extend(lines))
    recorder = Recorder(out=tmp_path, file=file, history=history, progress=ProgressDisplay(Console(quiet=True)))
    found: Any = SimpleNamespace(install_bytes=7)  # all else isn't even looked at
    assert [recorder.is_out(GROUP, arm) for arm in (A, B)] == [False, True]
    recorder.note(GROUP, B, NotRun(NotRunKind.FAILED, "broke again"))
    recorder.built(GROUP, A, found, runs=True)
    assert told == []
    assert recorder.installed == {(GROUP, A.label): 7}


def test_a_run_is_not_gone_on_with_elsewhere(tmp_path: Path):
    def obstacle(**facts: Any) -> str:
        history = journal.read(
            write(tmp_path / "-".join(["at", *facts]), header(environment={**environment.facts(), **facts}))
        )
        return find_obstacle(history, history.header.identity)

    assert obstacle() == ""
    for name, other in {"machine": "another", "libraries": {"numpy": "0.1"}, "python": {"version": "2.7"}}.items():
        assert obstacle(**{name: other}) == "was begun on another machine or with other versions", name


@pytest.mark.parametrize("has_report", [True, False])
def test_a_metric_goes_to_the_launcher_and_is_refused_without_rows_of_the_user_s_own(
    has_report: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stages, world = list[dict[str, Any]](), planted.ByBatch()
    planted.on_stage(monkeypatch)
    monkeypatch.setattr(runner, "Launcher", lambda **given: stages.append(given) or world)
    one: Any = SimpleNamespace(exported=SimpleNamespace(varying=None, has_report=has_report, model="digits"))
    monkeypatch.setattr(
        planted.Planted,
        "_prepare_groups",
        lambda _, groups: {group.record.name: {arm.label: one for arm in group.playing} for group in groups},
    )
    with nullcontext() if has_report else pytest.raises(UsageError, match="and digits has none here: give --inputs"):
        planted.run(tmp_path / "run", planted.study(1, metric="m.py:f"))
    assert [given["study"].metric for given in stages] == (["m.py:f"] if has_report else [])
