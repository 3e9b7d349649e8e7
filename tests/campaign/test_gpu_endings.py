"""How a step of a GPU campaign ends: done, failed, stopped, interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from doctored import doctor
from gpu import campaign, conformance, parts, session
from gpu.campaign import Ending
from gpu.ground import Ground
from gpu.state import Status
from gpu.steps import STEPS
from support.races.made import ended, header, write

from lab import __main__ as sections
from lab import handoff
from lab.common import Bench
from shootout.errors import SkippedArm
from shootout.host.placement import place

pytestmark = pytest.mark.usefixtures("interruptible")  # as `session.hold` leaves it

STUDIES = [step for step in STEPS if step.study]


@pytest.mark.parametrize(
    ("code", "complete", "status"),
    [
        (0, True, "done"),
        (0, False, "unfinished"),
        (None, False, "unfinished"),
        (130, False, "unfinished"),
        (3, True, "failed"),
        (3, False, "unfinished"),
        (1, False, "failed"),
        (2, True, "failed"),
    ],
)
def test_what_came_of_a_race(
    code: int | None, complete: bool, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(campaign, "_complete", lambda folder: complete)
    assert campaign.outcome(STUDIES[0], tmp_path, Ending(code, 1.0), tmp_path / "none")[0] == status


@pytest.mark.parametrize(("code", "status"), [(0, "done"), (1, "failed"), (-11, "failed"), (None, "unfinished")])
def test_what_came_of_another_command(code: int | None, status: str, tmp_path: Path):
    found, words = campaign.outcome(STEPS[0], tmp_path, Ending(code, 1.0), tmp_path / "none")
    assert found == status
    assert bool(words) is (status != "done")


@pytest.mark.parametrize(
    ("code", "text", "status", "words"),
    [
        (1, '{"planted": []}', Status.DONE, "a verdict was wrong"),
        (0, '{"planted": []}', Status.DONE, ""),
        (1, "", Status.FAILED, "exit code 1"),
        (-11, '{"planted": []}', Status.FAILED, "exit code -11"),
    ],
)
def test_a_wrong_verdict_is_a_finding_and_a_crash_is_not(
    code: int, text: str, status: Status, words: str, tmp_path: Path
):
    (step,) = (step for step in STEPS if step.name == "selftest")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "selftest.out").write_text(text)
    assert campaign.outcome(step, tmp_path, Ending(code, 1.0), tmp_path / "none") == (status, words)


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ({"torch-eager": 1}, Status.DONE),
        ({"torch-eager": 0}, Status.FAILED),
        ({"torch-eager": 2}, Status.FAILED),
        ({}, Status.FAILED),
    ],
)
def test_a_failed_check_is_a_finding_where_all_were_asked(codes: dict[str, int], status: Status, tmp_path: Path):
    (step,) = (step for step in STEPS if step.name == "conformance")
    doctor(tmp_path, torch_eager=True)
    (tmp_path / conformance.FOLDER).mkdir()
    (tmp_path / conformance.CODES).write_text(json.dumps(codes))
    assert campaign.outcome(step, tmp_path, Ending(1, 1.0), tmp_path / "none")[0] is status


def test_a_folder_counts_as_complete_when_its_journal_says_so(tmp_path: Path):
    assert not campaign._complete(tmp_path / "nothing")
    assert not campaign._complete(write(tmp_path / "begun", header()))
    assert campaign._complete(write(tmp_path / "ended", header(), ended()))


def test_a_command_s_output_and_code_are_kept(tmp_path: Path):
    code = "import sys; print('data'); print('words', file=sys.stderr); sys.exit(7)"
    ending = campaign.run([sys.executable, "-c", code], tmp_path / "out", tmp_path / "err", 60.0)
    assert ending.code == 7
    assert (tmp_path / "out").read_text() == "data\n"
    assert (tmp_path / "err").read_text() == "words\n"


SLEEPER = """
import os, signal, time
{how}
try:
    os.write(1, b"ready\\n")
    time.sleep(60)
finally:
    os.write(1, b"tidy\\n")
"""
"""It may be ended from its first word on, so that word is said where it tidies up behind."""
LIMIT_S = 30.0
"""What `Punctual` is given; in truth it is as long as the command needs to get to work."""


class Punctual(subprocess.Popen[bytes]):
    """A command whose time is over as soon as it is at work."""

    def __init__(self, *words: Any, **how: Any) -> None:
        self.output = Path(how["stdout"].name)
        super().__init__(*words, **how)

    def wait(self, timeout: float | None = None) -> int:
        if timeout != LIMIT_S:
            return super().wait(timeout)
        while self.poll() is None and b"ready" not in self.output.read_bytes():
            time.sleep(0.01)
        raise subprocess.TimeoutExpired("it", LIMIT_S)


@pytest.fixture
def _punctual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign.subprocess, "Popen", Punctual)


@pytest.mark.usefixtures("_punctual")
def test_a_command_that_takes_too_long_may_tidy_up(tmp_path: Path):
    command = [sys.executable, "-c", SLEEPER.format(how="")]
    ending = campaign.run(command, tmp_path / "out", tmp_path / "err", LIMIT_S)
    assert ending.code is None
    assert (tmp_path / "out").read_text() == "ready\ntidy\n"


def test_on_a_gpu_the_hand_off_alone_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    laps, asked = array("d", [1.0, 2.0, 3.0]), list[tuple[str, int]]()

    def hand_offs(bench: Bench, built: list[str], rounds: int) -> dict[str, Any]:
        asked.append((built[0], rounds))
        return {"hold": laps, "all": laps}

    monkeypatch.setattr(handoff.gpu, "require_gpu", lambda: None)
    monkeypatch.setattr(Bench, "built", lambda self, arm: arm.label)
    monkeypatch.setattr(handoff, "copies", lambda built, count: [built] * count)
    monkeypatch.setattr(handoff, "_hand_offs", hand_offs)
    ((title, rows),) = handoff.gpu_figures(Bench(quick=False, placement=place(None), folder=tmp_path)).items()
    assert title == "hand-off among 4 workers"
    assert [(row["step"], row["p50_us"]) for row in rows] == [("hold", 2.0), ("all", 2.0)]
    ((arm, rounds),) = asked
    assert arm.startswith("torch-eager:cuda")
    assert rounds < 1_000
    assert "handoff-gpu" not in sections.SECTIONS
    assert sections.ON_REQUEST["handoff-gpu"] is handoff.gpu_figures


def test_without_a_gpu_the_hand_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def require() -> None:
        raise SkippedArm("there is none", "get one")

    monkeypatch.setattr(handoff.gpu, "require_gpu", require)
    ((row,),) = handoff.gpu_figures(Bench(quick=True, placement=place(None), folder=tmp_path)).values()
    assert row == {"backend": "torch-eager:cuda", "skipped": "there is none"}


@pytest.mark.usefixtures("_punctual")
def test_a_try_that_was_stopped_leaves_an_earlier_one_s_output(tmp_path: Path):
    out, errors = tmp_path / "it.out", tmp_path / "it.err"
    sleeper = [sys.executable, "-c", SLEEPER.format(how="")]
    campaign.run(sleeper, out, errors, LIMIT_S)
    assert out.read_text() == "ready\ntidy\n"  # nothing was there before
    assert not list(tmp_path.glob("*.new"))
    campaign.run([sys.executable, "-c", "print('whole')"], out, errors, 60.0)
    assert out.read_text() == "whole\n"
    campaign.run(sleeper, out, errors, LIMIT_S)
    assert out.read_text() == "whole\n"
    assert (tmp_path / "it.out.new").read_text() == "ready\ntidy\n"
    campaign.run([sys.executable, "-c", "print('again')"], out, errors, 60.0)
    assert out.read_text() == "again\n"
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.usefixtures("_punctual")
def test_one_that_does_not_listen_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "GRACE_S", 0.5)
    command = [sys.executable, "-c", SLEEPER.format(how="signal.signal(signal.SIGINT, signal.SIG_IGN)")]
    ending = campaign.run(command, tmp_path / "out", tmp_path / "err", LIMIT_S)
    assert ending.code is None
    assert (tmp_path / "out").read_text() == "ready\n"


def test_an_interrupted_campaign_leaves_no_step_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(Punctual):
        def wait(self, timeout: float | None = None) -> int:
            try:
                return super().wait(timeout)
            except subprocess.TimeoutExpired:
                if timeout == LIMIT_S:
                    started.append(self)
                    raise KeyboardInterrupt from None
                raise

    monkeypatch.setattr(campaign.subprocess, "Popen", Interrupted)
    command = [sys.executable, "-c", SLEEPER.format(how="")]
    with pytest.raises(KeyboardInterrupt):
        campaign.run(command, tmp_path / "out", tmp_path / "err", LIMIT_S)
    assert started[0].returncode == -signal.SIGINT
    assert (tmp_path / "out").read_text() == "ready\ntidy\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_campaign_that_began_in_the_background_can_be_interrupted(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: Any) -> Ending:
        signal.raise_signal(number)
        raise AssertionError("it went on")

    monkeypatch.setattr(session, "no_gpu", lambda: "")
    monkeypatch.setattr(campaign, "run", interrupt)
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert session.hold(10.0, str(tmp_path / "out"), Ground(path=(), have={}), []) == 130
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_an_interrupted_campaign_still_sums_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any) -> Ending:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "no_gpu", lambda: "")
    monkeypatch.setattr(campaign, "run", interrupt)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    out = tmp_path / "out"
    assert session.hold(10.0, str(out), Ground(path=(), have={}), ["set up"]) == 130
    assert (out / "SUMMARY.md").exists()
    assert (out / parts.ARCHIVE).exists()
