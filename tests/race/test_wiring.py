"""Protections that hold only if they are wired in: through the real worker, recorder, samples and journal."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from support.races import planted
from support.races.made import GROUP, A, B, header, prepared, write

from shootout.contract import Arm, NotRun, NotRunKind, Scenario, Target
from shootout.host import environment
from shootout.host.placement import place
from shootout.journal import journal, samples
from shootout.journal.journal import Journal
from shootout.journal.records import Failure, Line, Played, Rounds
from shootout.journal.run_folder import _obstacle
from shootout.messages import Scope, Turn
from shootout.race.race import block_medians
from shootout.race.recording import Recorder
from shootout.report.progress import Progress
from shootout.worker import __main__ as worker_main
from shootout.worker.concurrent import Instances

ARM = Arm(target=Target(backend="lib"), model="m")


def turn(*latency_ns: float) -> Turn:
    return Turn(latency_ns={scope: np.array(latency_ns) for scope in Scope})


def test_a_block_has_the_median_of_its_readings():
    performance: Any = SimpleNamespace(arm=ARM, turns=[turn(1.0, 2.0, 900.0), turn(5.0)])
    assert block_medians(performance) == {scope.value: (2.0, 5.0) for scope in Scope}


def test_samples_hold_every_reading_in_its_order(tmp_path: Path):
    slow = [*np.linspace(1e3, 2e3, 150), 9e9, 1.0]
    samples.write(tmp_path, "samples/g0-000.parquet", [("a", [turn(*slow), turn(7.0)])])
    for scope in Scope:
        assert samples.read(tmp_path, "samples/g0-000.parquet", "a", scope).tolist() == [*slow, 7.0]


def test_samples_are_on_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, synced = tmp_path / "samples/g0-000.parquet", []

    def sync(file: int) -> None:
        status = os.fstat(file)
        synced.extend([(status.st_size > 0, path.exists())] * stat.S_ISREG(status.st_mode))

    monkeypatch.setattr(os, "fsync", sync)
    samples.write(tmp_path, "samples/g0-000.parquet", [("a", [turn(1.0)])])
    assert synced == [(True, False)]
    assert path.exists()


def test_a_generation_s_lines_go_out_in_one_write_that_its_end_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: list[tuple[Line, ...]] = []
    append = Journal.append

    def note(self: Journal, *lines: Line) -> None:
        written.append(lines)
        append(self, *lines)

    monkeypatch.setattr(Journal, "append", note)
    planted.on_stage(monkeypatch)
    planted.run(tmp_path / "out", planted.study(1, crossover=None))
    generations = [lines for lines in written if any(isinstance(line, Played | Rounds) for line in lines)]
    assert generations
    for *played, last in generations:
        assert isinstance(last, Rounds)
        assert {(line.group, line.generation) for line in played if isinstance(line, Played)} == {
            (last.group, last.generation)
        }


def test_the_race_is_run_off_the_arms_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: set[frozenset[int]] = set()

    class Stage(planted.ByBatch):
        def spawn(self, arm: Any, generation: int, padding: int) -> Any:
            seen.add(frozenset(os.sched_getaffinity(0)))
            return super().spawn(arm, generation, padding)

    planted.on_stage(monkeypatch)[0] = Stage()
    before = os.sched_getaffinity(0)
    planted.run(tmp_path / "out", planted.study(1, crossover=None))
    assert seen == {frozenset(place(1).parent)}
    assert os.sched_getaffinity(0) == before


def test_a_resumed_run_knows_who_is_out_and_what_was_built(tmp_path: Path):
    failure = Failure(group=GROUP, arm=B, during="load", reason="broke")
    history = journal.read(write(tmp_path, header(), prepared(A), failure))
    told: list[Line] = []
    file: Any = SimpleNamespace(append=lambda *lines: told.extend(lines))
    recorder = Recorder(out=tmp_path, file=file, history=history, progress=Progress(Console(quiet=True)))
    found: Any = None  # not even looked at
    assert [recorder.is_out(GROUP, arm) for arm in (A, B)] == [False, True]
    recorder.note(GROUP, B, NotRun(NotRunKind.FAILED, "broke again"))
    recorder.built(GROUP, A, found, runs=True)
    assert told == []


def test_a_run_is_not_gone_on_with_elsewhere(tmp_path: Path):
    def obstacle(**facts: Any) -> str:
        history = journal.read(write(tmp_path / str(len(facts)), header(environment={**environment.facts(), **facts})))
        return _obstacle(history, cast(Any, SimpleNamespace(identity=history.header.identity)))

    assert obstacle() == ""
    assert obstacle(machine="another") == "was begun on another machine or with other versions"


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
    arm = Arm(target=Target(backend="numpy"), model="m", scenario=Scenario.THROUGHPUT, instances=2)
    claimed: list[Any] = []
    monkeypatch.setattr(worker_main, "verify", lambda claim, _: claimed.append(claim))
    built: Any = SimpleNamespace(arm=arm, bundle=None)
    worker._built, worker._session, worker._sessions = built, sessions[0], sessions  # type: ignore[assignment]
    worker._buffers, worker._strayed = buffers, "has threads elsewhere"
    worker._blocks = Instances(sessions, [buffers, buffers], 1)  # type: ignore[arg-type]
    worker.verify(with_accuracy=False)
    (claim,) = claimed
    assert claim.strayed == "has threads elsewhere"
    assert [[float(one["y"][0]) for one in outputs] for outputs in claim.together()] == [[1, 2], [1 + bias, 2 + bias]]
