"""A GPU campaign on a clock of its own: the order of its steps, what it goes on with, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from doctored import doctor
from gpu import campaign, session, state, work
from gpu.campaign import Campaign, Ending
from gpu.state import Standing, State, Status
from gpu.steps import GRACE_S, LEAST_S, STEPS, Step

from shootout.errors import UsageError

NAMES = [step.name for step in STEPS]


@dataclass
class Clock:
    """A deadline whose time passes only while steps run."""

    seconds: float
    elapsed_s: float = 0.0

    def allows(self, seconds: float) -> bool:
        raise NotImplementedError


@dataclass
class Runner:
    """Instead of processes: each step takes what it is told to (None: all that it may), and ends with a code."""

    clock: Clock
    takes: dict[str, float | None]
    codes: dict[str, int] = field(default_factory=dict)
    began: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, command: list[str], out: Path, errors: Path, limit: float) -> Ending:
        name = out.stem
        wanted = self.takes.get(name, 1.0)
        seconds = limit if wanted is None else min(wanted, limit)
        self.began.append((name, limit))
        self.clock.elapsed_s += seconds
        errors.write_text("Traceback …\nwhat broke\n")
        return Ending(None if wanted is None or wanted > limit else self.codes.get(name, 0), seconds)


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every race ends complete, and the doctor found a backend that works on CUDA."""
    doctor(tmp_path, torch_eager=True)
    monkeypatch.setattr(campaign, "_complete", lambda folder: True)


def held(folder: Path, seconds: float, without: dict[str, str] | None = None, **how: Any) -> tuple[State, Runner]:
    folder.mkdir(exist_ok=True)
    clock = Clock(seconds)
    standing, runner = State.read(folder), Runner(clock, **{"takes": {}, **how})
    said: list[str] = []
    Campaign(state=standing, deadline=clock, without=without or {}, say=said.append, run=runner).play()  # type: ignore[arg-type]
    return standing, runner


def statuses(standing: State) -> dict[str, str]:
    return {name: str(one.status) for name, one in standing.standings.items()}


def test_everything_is_done_once_where_there_is_time(tmp_path: Path, finished: None):
    standing, runner = held(tmp_path, 1_000)
    assert [name for name, _ in runner.began] == NAMES
    assert standing.complete
    again, later = held(tmp_path, 1_000)
    assert later.began == []
    assert again.complete


def test_no_step_outlives_the_campaign(tmp_path: Path, finished: None):
    standing, runner = held(tmp_path, 300, takes=dict.fromkeys(NAMES))
    assert runner.clock.elapsed_s <= 300 - GRACE_S
    assert not standing.complete
    begun = [name for name, _ in runner.began]
    assert begun == NAMES[: len(begun)]
    assert statuses(standing)["shootout"] == "unfinished"


def test_no_step_begins_without_time(tmp_path: Path, finished: None):
    _, runner = held(tmp_path, GRACE_S + LEAST_S - 1)
    assert runner.began == []


def test_time_that_a_step_saves_is_the_later_ones(tmp_path: Path, finished: None):
    limits = [dict(held(tmp_path / str(takes), 1_000, takes={"shootout": takes})[1].began) for takes in (0.0, 150.0)]
    assert limits[0]["batch-sweep"] > limits[1]["batch-sweep"]


def test_what_is_left_goes_to_what_is_unfinished(tmp_path: Path, finished: None):
    standing, runner = held(tmp_path, 1_000, takes={"batch-sweep": 500.0})
    tries = [limit for name, limit in runner.began if name == "batch-sweep"]
    assert len(tries) == 2
    assert tries[1] > tries[0]
    assert runner.began[-1][0] == "batch-sweep"
    assert statuses(standing)["batch-sweep"] == "done"
    assert standing.standings["batch-sweep"].wall_s == pytest.approx(tries[0] + 500.0, abs=0.2)


def test_a_step_that_fails_costs_the_others_nothing_and_is_tried_again_last(tmp_path: Path, finished: None):
    standing, _ = held(tmp_path, 1_000, codes={"doctor": 1})
    assert standing.standings["doctor"] == Standing(status=Status.FAILED, wall_s=1.0, words="Traceback … | what broke")
    assert {name for name, one in statuses(standing).items() if one != "done"} == {"doctor"}
    _, again = held(tmp_path, 1_000)
    assert [name for name, _ in again.began] == ["doctor"]


def test_failed_steps_come_after_those_that_were_never_begun(tmp_path: Path):
    standing = State.read(tmp_path)
    standing.note(STEPS[0], Status.FAILED, 1.0, "it broke")
    standing.note(STEPS[1], Status.DONE, 1.0)
    standing.note(STEPS[2], Status.UNFINISHED, 1.0)
    assert [step.name for step in State.read(tmp_path).waiting()] == [*NAMES[2:], NAMES[0]]


def test_what_cannot_be_asked_is_skipped_with_the_reason(tmp_path: Path, finished: None):
    standing, runner = held(tmp_path, 1_000, without={"conformance": "pytest is missing"})
    assert standing.standings["conformance"].words == "pytest is missing"
    assert "conformance" not in dict(runner.began)
    assert campaign.without({"conformance": ()}) == {"conformance": "pytest or pytest-timeout is missing"}
    assert campaign.without({"jax": ()}) == {}


def test_without_a_backend_on_cuda_no_conformance_is_asked(tmp_path: Path, finished: None):
    doctor(tmp_path, numpy=True)
    standing, _ = held(tmp_path, 1_000)
    assert statuses(standing)["conformance"] == "skipped"
    (tmp_path / "logs" / "doctor.out").unlink()
    standing, _ = held(tmp_path, 1_000)
    assert standing.standings["conformance"].words == campaign.NO_DOCTOR


def test_conformance_is_asked_when_the_doctor_ends_in_the_second_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "_complete", lambda folder: True)
    folder, clock, tries = tmp_path, Clock(1_000.0), list[str]()

    def run(command: list[str], out: Path, errors: Path, limit: float) -> Ending:
        tries.append(out.stem)
        if out.stem == "doctor" and tries.count("doctor") == 1:
            return Ending(None, 1.0)
        if out.stem == "doctor":
            doctor(folder, torch_eager=True)
        return Ending(0, 1.0)

    standing = State.read(folder)
    Campaign(state=standing, deadline=clock, without={}, say=lambda text: None, run=run).play()  # type: ignore[arg-type]
    assert tries[-2:] == ["doctor", "conformance"]
    assert standing.complete


def test_a_step_that_cannot_be_started_costs_the_others_nothing(
    tmp_path: Path, finished: None, monkeypatch: pytest.MonkeyPatch
):
    whole = work.command

    def command(step: Step, out: Path, share_s: float) -> list[str]:
        if step.name == "batch-sweep":
            raise UsageError("no such study")
        return whole(step, out, share_s)

    monkeypatch.setattr(work, "command", command)
    standing, runner = held(tmp_path, 1_000)
    assert standing.standings["batch-sweep"] == Standing(status=Status.FAILED, words="no such study")
    assert [name for name, _ in runner.began] == [name for name in NAMES if name != "batch-sweep"]


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1, "steps": {"doctor": {"status": "gone"}}}'])
def test_a_state_that_cannot_be_read_is_named(tmp_path: Path, text: str):
    (tmp_path / state.NAME).write_text(text)
    with pytest.raises(ValueError, match=r"campaign.json can't be read .*choose another OUT"):
        State.read(tmp_path)


def test_a_newer_state_is_not_touched(tmp_path: Path):
    (tmp_path / state.NAME).write_text('{"schema": 9, "steps": {}}')
    with pytest.raises(ValueError, match="schema 9"):
        State.read(tmp_path)


def test_the_newest_unfinished_campaign_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert session.folder_of("named") == Path("named")
    fresh = session.folder_of("")
    assert fresh.parent == session.RESULTS
    old = session.RESULTS / "2026-01-01"
    old.mkdir(parents=True)
    State.read(old).write()
    assert session.folder_of("") == old
    done = State.read(old)
    for step in STEPS:
        done.note(step, Status.DONE, 1.0)
    assert session.folder_of("") not in (old, None)
