"""Protections that hold only if they are wired in: through the real worker, recorder, samples and journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from support.races import planted
from support.races.fakes import EXECUTED, Answering, FakePlayer, World
from support.races.made import GROUP, A, B, header, prepared, write

from shootout.core import clock, scenario
from shootout.core.constants import BLOCK_NS, LEAD_IN_CALLS, LEAD_IN_NS, SHORT_CALL_NS
from shootout.core.contract import Arm, NotRun, NotRunKind, Target
from shootout.core.errors import UsageError
from shootout.core.exported.model import ReportRows
from shootout.core.host import environment
from shootout.core.host.placement import Placement, place
from shootout.core.journal import journal, samples
from shootout.core.journal.folder import find_obstacle
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import Line, Played, Rounds, not_run
from shootout.core.messages import SCOPES, Ask, Loaded, Scope, Scores, Tuned, Turn
from shootout.core.race import pace, restart, runner
from shootout.core.race.live_arm import Launcher
from shootout.core.race.pace import RaceTime
from shootout.core.race.recording import Recorder
from shootout.core.race.restart import block_medians
from shootout.core.scoring import MetricSpec
from shootout.core.worker import verification
from shootout.core.worker import worker as worker_main
from shootout.core.worker.blocks import Blocks
from shootout.core.worker.process import WorkerProcess
from shootout.models.metrics import scorer
from shootout.scenarios.concurrent import Instances
from shootout.tell.progress import ProgressDisplay

ARM = Arm(target=Target(backend="lib"), model="m")
ARM_HERE = Arm(target=Target(backend="numpy"), model="m")


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


def test_an_arm_is_started_on_the_arms_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    placement, started = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1), []
    monkeypatch.setattr(WorkerProcess, "__init__", lambda _, __, cpus, *rest: started.append(cpus))
    arm = Arm(target=Target(backend="numpy"), model="m")
    built = {arm.label: cast(Any, None)}
    Launcher(built=built, placement=placement, logs=tmp_path, study=cast(Any, None), watch=cast(Any, None)).take(
        arm, 0
    ).start()
    assert started == [placement.arms]


def test_a_restart_s_lines_go_out_in_one_write_that_its_end_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[tuple[Line, ...]] = []
    append = Journal.append

    def note(self: Journal, *lines: Line) -> None:
        written.append(lines)
        append(self, *lines)

    monkeypatch.setattr(Journal, "append", note)
    planted.on_stage(monkeypatch)
    planted.run(tmp_path / "out", planted.study(1))
    restarts = [lines for lines in written if any(isinstance(line, Played | Rounds) for line in lines)]
    assert restarts
    for *played, last in restarts:
        assert isinstance(last, Rounds)
        assert {(line.group, line.restart) for line in played if isinstance(line, Played)} == {
            (last.group, last.restart)
        }


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


class Instance:
    """A session of which only the answer counts; `fails_beside` answers wrongly while another one works."""

    gpu = None

    def __init__(self, bias: float = 0.0) -> None:
        self.bias = bias

    def stage(self, inputs: Any, slot: int) -> Any:
        return inputs

    def execute(self, staged: Any) -> Any:
        return {"y": staged["x"] + self.bias}

    def synchronize(self) -> None:
        """Nothing is queued."""

    def fetch(self, raw: Any) -> Any:
        return raw


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_worker_has_all_its_instances_verified(bias: float, monkeypatch: pytest.MonkeyPatch):
    """The claim that it makes of itself can ask every instance, not the first one alone."""
    sessions, buffers = [Instance(), Instance(bias)], [{"x": np.array([1.0])}, {"x": np.array([2.0])}]
    worker = worker_main.Worker()
    arm = Arm(target=Target(backend="numpy"), model="m", scenario="throughput", instances=2)
    claimed: list[Any] = []
    broken = SimpleNamespace(fault="any")
    monkeypatch.setattr(scenario, "verify", lambda claim, *_: claimed.append(claim) or broken)
    built: Any = SimpleNamespace(arm=arm, exported=None)
    worker._built, worker._session, worker._sessions = built, sessions[0], sessions  # type: ignore[assignment]
    worker._strayed = "has threads elsewhere"
    worker._caller = Instances(sessions, [buffers, buffers], 1)  # type: ignore[arg-type]
    worker.verify()
    (claim,) = claimed
    assert claim.strayed == "has threads elsewhere"
    assert [[float(one["y"][0]) for one in outputs] for outputs in claim.together()] == [[1, 2], [1 + bias, 2 + bias]]


class Labeled(Instance):
    """One that also tells what it ran."""

    executed = EXECUTED


def labeled_exported() -> Any:
    """Of a model of two classes that gives its inputs back, with three labeled rows and error bounds that hold."""
    outputs = [{"y": np.array([[1.0, 2.0]])}]
    return SimpleNamespace(
        outputs=(SimpleNamespace(name="y", shape=(1, 2), dtype="float64"),),
        batch=1,
        trained=False,
        original=None,
        stream=None,
        pick=list,
        reference_outputs=lambda: outputs,
        own_outputs=lambda: outputs,
        shared_outputs=lambda: None,
        error_bound=lambda *_, **__: (1.0, 0.0),
        flips_of=lambda *_: {},
        is_judged=lambda *_: True,
        report_calls=3,
        is_scored=True,
        has_report=True,
        number_row=lambda row: row,
        report=lambda: ReportRows(
            inputs={"x": np.array([[0.0, 1], [2, 3], [5, 4]])},
            rows=np.arange(3),
            other_rows=np.arange(3),
            labels=np.array([1, 0, 0]),
        ),
    )


@pytest.mark.parametrize("first", [True, False])
def test_the_users_own_metric_scores_the_labeled_rows_in_the_first_restart(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the live player through a worker, whose outputs are kept, into the journal."""
    worker, kept = worker_main.Worker(), list[Any]()
    built: Any = SimpleNamespace(arm=ARM_HERE, exported=labeled_exported())
    worker._built, worker._session, worker._sessions, worker._strayed = built, Labeled(), [], None  # type: ignore[assignment]
    worker._caller = cast(Any, SimpleNamespace(together=None, sets=[{"x": np.array([[1.0, 2.0]])}]))
    monkeypatch.setattr(worker_main, "Rechecks", SimpleNamespace(of=lambda *_: None))
    monkeypatch.setattr(verification, "CHECKS", ())

    def score(spec: MetricSpec, folder: Path, exported: Any, *_: Any, **__: Any) -> Scores:
        kept.extend(one for path in sorted(folder.glob("*.npz")) for one in np.load(path)["arr_0"].tolist())
        return Scores(name=spec.metric, rows=tuple(map(float, exported.report().labels)))

    monkeypatch.setattr(scorer, "score", score)
    process: Any = SimpleNamespace(ask=lambda command, *_, **given: worker_main.answer(worker, command, given))
    study, unwatched = planted.study(1, metric="m.py:f"), cast(Any, None)
    stage = Launcher(placement=place(1), logs=tmp_path, study=study, watch=unwatched)
    verified = Answering(process, built, stage, first=first).verify()
    assert kept == ([[[0, 1]], [[2, 3]], [[5, 4]]] if first else [])
    told: list[Any] = []
    file: Any = SimpleNamespace(append=told.append)
    history = journal.read(write(tmp_path / "run", header()))
    recorder = Recorder(out=tmp_path, file=file, history=history, progress=ProgressDisplay(Console(quiet=True)))
    loaded = Loaded(load_s=1.0, first_call_s=1.0, rss_before_bytes=1, rss_after_bytes=2)
    recorder.checked(GROUP, ARM_HERE, loaded, verified)
    assert told[0].scores == (Scores(name="m.py:f", rows=(1.0, 0.0, 0.0)) if first else None)


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
