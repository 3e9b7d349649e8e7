"""`make gpu`: how time is shared out, how a campaign goes on, what a step starts, what the summary says of it all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from array import array
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from bench import __main__ as sections
from bench import handoff
from bench.common import Bench
from gpu import archive, campaign, conformance, page, parts, session, state, summary, work
from gpu.campaign import Campaign, Ending
from gpu.ground import Ground
from gpu.state import Standing, State, Status
from gpu.steps import GRACE_S, LEAST_S, STEPS, Step, limit_s, measuring_s, shared_s, shares
from support.made import ended, header, played, prepared, rounds, write

from shootout import backends
from shootout.contract import Arm, Availability, Device, Precision, Target
from shootout.errors import SkippedArm, UsageError
from shootout.host.placement import place
from shootout.journal.records import Failure, Skip
from shootout.study import points, schema
from shootout.study.feasibility import Here
from shootout.study.group import GroupRecord
from shootout.study.plan import plan_groups
from shootout.study.schema import Study

NAMES = [step.name for step in STEPS]
STUDIES = [step for step in STEPS if step.study]
GPU_MACHINE = Here(
    available={(name, device): Availability(version="1") for name in backends.names() for device in Device},
    threads=15,
    cpus=16,
    memory_bytes=128 << 30,
)


# time


def test_the_most_valuable_steps_come_first():
    first = ["doctor", "shootout", "conformance", "batch-sweep", "matmul-transfers"]
    assert NAMES[: len(first)] == first
    assert len(set(NAMES)) == len(NAMES)
    wanted = {"selftest", "linear-precision", "width-sweep", "quantization", "small-networks", "nested-sin", "handoff"}
    assert wanted <= set(NAMES)


def test_shares_are_by_weight_and_make_up_the_whole():
    found = shares(STEPS[:3], 100.0)
    assert sum(seconds for _, seconds in found) == pytest.approx(100.0)
    assert found[0][1] / found[1][1] == pytest.approx(STEPS[0].weight / STEPS[1].weight)


def test_some_time_is_kept_for_the_summary():
    assert measuring_s(20) == 20 * 60 - 30
    assert measuring_s(1) == 54
    assert measuring_s(0) == 0


def test_a_step_never_goes_on_past_the_end():
    assert limit_s(100, 1_000) == 150
    assert limit_s(100, 120) == 120


def test_the_last_step_s_grace_is_before_the_end():
    assert shared_s(100.0) == 100.0 - GRACE_S
    assert shared_s(GRACE_S / 2) == 0.0


# a campaign on a clock of its own


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


# what a step starts


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_is_a_command(step: Step, tmp_path: Path):
    words = work.command(step, tmp_path, 300.0)
    assert words[0] == sys.executable
    assert not any("{" in word for word in words)
    if step.study:
        assert words[words.index("--out") + 1] == str(tmp_path / step.name)
        assert words[words.index("--max-time") + 1] == "270s"


def test_planning_takes_a_third_of_a_short_share_at_most():
    assert work.measuring_s(30.0) == 20.0


@pytest.mark.parametrize("step", STUDIES, ids=lambda step: step.name)
def test_a_race_has_every_gpu_arm_and_can_be_planned(step: Step, tmp_path: Path):
    words = work.command(step, tmp_path, 300.0)
    whole, chosen = schema.load(step.study), schema.load(words[words.index("run") + 1])
    assert chosen.name == step.name
    assert not chosen.ceilings
    groups = plan_groups(chosen, GPU_MACHINE)
    assert all(group.record.baseline for group in groups)
    if not step.targets:
        assert on_gpu(chosen) == [one for one in on_gpu(whole) if str(one) not in step.leave] != []
        assert {*step.leave} <= {str(one) for one in on_gpu(whole)}
        told = {"targets", "name", "ceilings", "crossover"}
        assert chosen.model_dump(exclude=told) == whole.model_dump(exclude=told)


def on_gpu(chosen: Study) -> list[Target]:
    return [one for one in points.targets_of(chosen) if one.device is Device.CUDA]


def test_of_the_cpu_s_arms_a_sweep_races_its_baseline_and_its_pairs_with_a_gpu(tmp_path: Path):
    steps = {step.name: step for step in STEPS}
    arms = work.raced(schema.load("batch-sweep"), steps["batch-sweep"])
    assert [arm for arm in arms if ":cuda:" not in arm] == ["onnxruntime"]
    arms = work.raced(schema.load("quantization"), steps["quantization"])
    assert [arm for arm in arms if ":cuda:" not in arm and arm != "tensorrt"] == [
        "torch-eager",
        "onnxruntime",
        "openvino",
    ]
    arms = work.raced(schema.load("nested-sin"), steps["nested-sin"])
    assert [arm for arm in arms if ":cuda:" not in arm] == ["torch-eager", "numpy"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": ("torch-egaer",)},
        {"cpu": ("jax-jit:cuda:fp32",)},
        {"leave": ("jax-jit:cuda:fp64",)},
        {"leave": ("numpy",)},
    ],
)
def test_a_name_that_the_study_does_not_have_on_that_device_is_refused(wrong: dict[str, tuple[str, ...]]):
    ((name,),) = wrong.values()
    step = Step(name="it", brings="", weight=1, study="batch-sweep", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"step it names {name}: not among"):
        work.raced(schema.load("batch-sweep"), step)


@pytest.mark.parametrize("step", STUDIES, ids=lambda step: step.name)
def test_the_names_in_today_s_steps_are_the_studies(step: Step):
    found = work.raced(schema.load(step.study), step)
    assert {*step.cpu} <= {*found}
    assert not {*step.leave} & {*found}


@pytest.mark.parametrize("step", STUDIES, ids=lambda step: step.name)
def test_what_a_race_needs_at_least_is_known_without_a_gpu(step: Step):
    racing, before = work.least_s(step)
    assert racing > 0
    assert before > 0


def test_a_dry_run_says_what_a_race_needs_beside_its_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert session.rehearse(20.0, str(tmp_path / "out"), Ground(path=(), have={})) == 0
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(NAMES))}
    assert [*told] == NAMES
    racing, before = work.least_s(STUDIES[0])
    needs = f"all its arms need {racing:.0f} s at least, and {before:.0f} s of exports and builds before"
    assert told[STUDIES[0].name].endswith(needs)
    assert "need" not in told["doctor"]


def test_what_can_go_on_is_kept_in_the_campaign_s_folder(tmp_path: Path):
    steps = {step.name: step for step in STEPS}
    words = work.command(steps["selftest"], tmp_path, 100.0)
    assert words[words.index("--out") + 1] == str(tmp_path / "selftest")
    words = work.command(steps["handoff"], tmp_path, 100.0)
    assert words[words.index("--only") + 1] == "handoff-gpu"


def test_a_sweep_looks_for_the_crossovers_with_a_gpu_alone(tmp_path: Path):
    (step,) = (step for step in STEPS if step.name == "batch-sweep")
    words = work.command(step, tmp_path, 300.0)
    whole, chosen = schema.load("batch-sweep").crossover, schema.load(words[words.index("run") + 1]).crossover
    assert whole is not None
    assert chosen is not None
    assert chosen.axis == whole.axis
    assert chosen.pairs == tuple(pair for pair in whole.pairs if any(":cuda:" in arm for arm in pair)) != ()


def test_an_arm_races_itself_on_the_gpu(tmp_path: Path):
    (step,) = (step for step in STEPS if step.name == summary.A_A)
    words = work.command(step, tmp_path, 300.0)
    chosen = schema.load(words[words.index("run") + 1])
    arm = "torch-eager:cuda:fp32"
    assert chosen.targets == (arm, arm)
    assert chosen.baseline == arm


# how a step ends


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
import time, signal, sys
{how}
print("ready", flush=True)
try:
    time.sleep(60)
finally:
    print("tidy", flush=True)
"""


def test_a_command_that_takes_too_long_may_tidy_up(tmp_path: Path):
    command = [sys.executable, "-c", SLEEPER.format(how="")]
    ending = campaign.run(command, tmp_path / "out", tmp_path / "err", 3.0)
    assert ending.code is None
    assert (tmp_path / "out").read_text() == "ready\ntidy\n"


def test_on_a_gpu_the_hand_off_alone_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    laps, asked = array("d", [1.0, 2.0, 3.0]), list[tuple[str, int]]()

    def hand_offs(bench: Bench, built: list[str], rounds: int) -> dict[str, Any]:
        asked.append((built[0], rounds))
        return {"hold": laps, "all": laps}

    monkeypatch.setattr(handoff.gpu, "require", lambda: None)
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

    monkeypatch.setattr(handoff.gpu, "require", require)
    ((row,),) = handoff.gpu_figures(Bench(quick=True, placement=place(None), folder=tmp_path)).values()
    assert row == {"backend": "torch-eager:cuda", "skipped": "there is none"}


def test_a_try_that_was_stopped_leaves_an_earlier_one_s_output(tmp_path: Path):
    out, errors = tmp_path / "it.out", tmp_path / "it.err"
    sleeper = [sys.executable, "-c", SLEEPER.format(how="")]
    campaign.run(sleeper, out, errors, 3.0)
    assert out.read_text() == "ready\ntidy\n"  # nothing was there before
    assert not list(tmp_path.glob("*.new"))
    campaign.run([sys.executable, "-c", "print('whole')"], out, errors, 60.0)
    assert out.read_text() == "whole\n"
    campaign.run(sleeper, out, errors, 3.0)
    assert out.read_text() == "whole\n"
    assert (tmp_path / "it.out.new").read_text() == "ready\ntidy\n"
    campaign.run([sys.executable, "-c", "print('again')"], out, errors, 60.0)
    assert out.read_text() == "again\n"
    assert not list(tmp_path.glob("*.new"))


def test_one_that_does_not_listen_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "GRACE_S", 0.5)
    command = [sys.executable, "-c", SLEEPER.format(how="signal.signal(signal.SIGINT, signal.SIG_IGN)")]
    ending = campaign.run(command, tmp_path / "out", tmp_path / "err", 3.0)
    assert ending.code is None
    assert (tmp_path / "out").read_text() == "ready\n"


def test_an_interrupted_campaign_leaves_no_step_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    class Interrupted(real):  # type: ignore[misc,valid-type]
        def wait(self, timeout: float | None = None) -> int:
            if not started:
                started.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(campaign.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        campaign.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "out", tmp_path / "err", 60.0)
    assert started[0].returncode == -signal.SIGINT or started[0].returncode == 1


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
    assert (out / archive.NAME).exists()


# conformance


def doctor(folder: Path, **works: bool) -> None:
    """A doctor's answer, in which these backends work on CUDA or don't (numpy: on the CPU only)."""
    found = [
        {
            "backend": name.replace("_", "-"),
            "device": "cpu" if name == "numpy" else "cuda",
            "availability": {"ok": ok, "reason": "" if ok else "not built for it", "fix": "" if ok else "get it"},
        }
        for name, ok in works.items()
    ]
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "doctor.out").write_text(json.dumps({"findings": found}))


def test_conformance_is_asked_of_what_works_on_cuda(tmp_path: Path):
    assert conformance.able(tmp_path) is None
    doctor(tmp_path, numpy=True, torch_eager=True, openvino=False)
    assert conformance.able(tmp_path) == ["torch-eager"]
    words = conformance.command("torch-eager", tmp_path / "torch-eager.xml")
    assert words[words.index("--backend") + 1] == "torch-eager"
    assert words[words.index("-k") + 1] == "cuda"


CHECKS = """
import pytest
@pytest.mark.parametrize("name", ["a:cuda:fp32", "b:cuda:fp32"])
def test_conforms(name):
    assert not name.startswith("b"), "wrong shape"
def test_skipped():
    pytest.skip("no")
"""


def test_reports_of_all_backends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tmp_path / "test_it.py"
    suite.write_text(CHECKS)

    def command(backend: str, report: Path) -> list[str]:
        words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
        return [sys.executable, "-m", "pytest", str(suite), *words, "--junitxml", str(report), "-k", backend]

    monkeypatch.setattr(conformance, "command", command)
    assert conformance.main(tmp_path, ["cuda", "skipped"]) == 1
    found = conformance.results(tmp_path)
    assert found["skipped"] == {"passed": 0, "failed": {}, "code": 0}
    assert found["cuda"]["code"] == 1
    assert found["cuda"]["passed"] == 1
    ((name, why),) = found["cuda"]["failed"].items()
    assert "b:cuda:fp32" in name
    assert "wrong shape" in why
    assert conformance.main(tmp_path, []) == 1  # nothing is left; what was found stays


CUT_CHECKS = """
def test_first_cuda():
    pass
def test_second_cuda():
    raise KeyboardInterrupt
"""


def test_a_suite_that_was_cut_does_not_read_as_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tmp_path / "test_it.py"
    suite.write_text(CUT_CHECKS)
    whole = conformance.command

    def command(backend: str, report: Path) -> list[str]:
        words = ["--rootdir", str(tmp_path), "-c", "/dev/null"]
        own = [str(suite) if word == conformance.SUITE else word for word in whole(backend, report)]
        return [*own[: own.index("--backend")], *words]

    monkeypatch.setattr(conformance, "command", command)
    doctor(tmp_path, torch_eager=True, jax_jit=True)
    assert conformance.left(tmp_path) == ["torch-eager", "jax-jit"]
    assert conformance.main(tmp_path, ["torch-eager"]) == conformance.CUT
    assert conformance.codes(tmp_path) == {"torch-eager": 2}
    assert conformance.left(tmp_path) == ["torch-eager", "jax-jit"]
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "- Conformance, torch-eager: 1 passed, 0 failed; cut off after 1." in text
    suite.write_text(CUT_CHECKS.replace("raise KeyboardInterrupt", "assert False"))
    assert conformance.main(tmp_path, ["torch-eager"]) == 1
    assert conformance.left(tmp_path) == ["jax-jit"]
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "- Conformance, torch-eager: 1 passed, 1 failed." in text


@pytest.mark.parametrize("text", ["", "[1]"])
def test_codes_and_reports_that_cannot_be_read_count_as_none(tmp_path: Path, text: str):
    doctor(tmp_path, torch_eager=True)
    (tmp_path / conformance.FOLDER).mkdir()
    (tmp_path / conformance.CODES).write_text(text)
    (tmp_path / conformance.FOLDER / "torch-eager.xml").write_text(text)
    assert conformance.results(tmp_path) == {"torch-eager": {"passed": 0, "failed": {}, "code": None}}
    assert conformance.left(tmp_path) == ["torch-eager"]


# the summary


CPU = Arm(target=Target(backend="torch-eager"), model="identity")
GPU = Arm(target=Target(backend="torch-eager", device=Device.CUDA), model="identity")
HALF = Arm(target=Target(backend="tensorrt", device=Device.CUDA, precision=Precision.FP16), model="identity")
LACKING = Arm(target=Target(backend="jax-jit", device=Device.CUDA), model="identity")
BROKEN = Arm(target=Target(backend="onnxruntime", device=Device.CUDA), model="identity")
COPY = Arm(target=CPU.target, model="identity", sentinel=True)
WOBBLE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)


MACHINE = {"machine": "made", "gpus": [{"name": "NVIDIA Some"}], "cpu": {"model": "Some CPU"}}


def race(folder: Path) -> Path:
    """A sweep over two batches: the CPU wins at 1, the GPU at 4; one arm can't run, one fails."""
    groups, lines = [], list[Any]()
    for batch, gpu_ns in ((1, 2_000.0), (4, 500.0)):
        arms = tuple(
            Arm(target=one.target, model=one.model, batch=batch, sentinel=one.sentinel)
            for one in (CPU, GPU, HALF, LACKING, BROKEN, COPY)
        )
        name = f"identity, batch {batch}"
        pair = ((CPU.label, GPU.label), (CPU.label, LACKING.label))
        groups.append(GroupRecord(name=name, baseline=CPU.label, comparisons=2, arms=arms, pairs=pair))
        lines.append(Skip(group=name, arm=arms[3], reason="jax has no GPU here", fix="pip install jax[cuda13]"))
        lines.append(Failure(group=name, arm=arms[4], during="load", reason="needs 9 GiB of device memory"))
        for arm, probe in ((CPU, "fp32"), (GPU, "fp32"), (HALF, "fp16")):
            lines.append(prepared(arm).model_copy(update={"group": name, "probe": probe}))
        for index, wobble in enumerate(WOBBLE):
            for arm, ns in ((CPU, 1_000.0), (GPU, gpu_ns * wobble), (HALF, 300.0 * wobble), (COPY, 1_000.0 / wobble)):
                lines.append(played(arm, index, ns, group=name))
            lines.append(rounds(index).model_copy(update={"group": name}))
    return write(folder, header(groups=tuple(groups), axis="batch", environment=MACHINE), *lines, ended())


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    return summed(tmp_path)


def summed(folder: Path) -> dict[str, Any]:
    race(folder / "batch-sweep")
    doctor(folder, torch_eager=True, openvino=False)
    standing = State.read(folder)
    for step in STEPS:
        standing.note(step, Status.DONE, 12.0)
    standing.note(STEPS[-1], Status.FAILED, 1.0, "it broke")
    result: dict[str, Any] = json.loads(json.dumps(summary.summary(standing, ["Python 3.12"])))
    return result


def test_the_summary_counts_the_gpu_s_rows(found: dict[str, Any]):
    (run,) = found["runs"]
    assert run["on_gpu"] == {"measured": 4, "failed": 2, "skipped": 2}
    assert run["sentinels"] == {"held": 2, "judged": 2}
    assert run["complete"]
    assert {row["arm"] for row in found["rows"]} == {GPU.label, HALF.label}
    (slow,) = (row for row in found["rows"] if row["arm"] == GPU.label and row["group"] == "identity, batch 1")
    assert slow["end_to_end_ns"] == pytest.approx(2_000.0, rel=0.01)
    assert slow["ratio"]["verdict"] == "slower"


def test_the_summary_has_the_crossover_with_its_bracket_in_both_scopes(found: dict[str, Any]):
    assert {one["scope"] for one in found["crossovers"]} == {"end_to_end", "compute"}
    for one in found["crossovers"]:
        if one["b"] == LACKING.label:
            assert one["outcome"] == "can't tell"
            continue
        assert (one["low"], one["high"]) == (1, 4)
        assert (one["below"], one["above"]) == (CPU.label, GPU.label)


def test_the_summary_says_what_the_probe_proved(found: dict[str, Any]):
    by_precision = {one["precision"]: one for one in found["probes"]}
    assert by_precision["fp16"] == {"precision": "fp16", "confirmed": 2, "refuted": [], "not_probed": 0}
    assert by_precision["fp32"]["confirmed"] == 2
    assert by_precision["tf32"]["confirmed"] == 0


def test_the_summary_says_what_failed_and_what_is_missing(found: dict[str, Any]):
    assert {one["reason"] for one in found["failed"]} == {"needs 9 GiB of device memory"}
    missing = {tuple(one["who"]): (one["reason"], one["fix"]) for one in found["missing"]}
    assert missing[("openvino:cuda",)] == ("not built for it", "get it")
    assert missing[(LACKING.label,)] == ("jax has no GPU here", "pip install jax[cuda13]")
    ((reason, fix),) = (one for who, one in missing.items() if who == (f"step {STEPS[-1].name}",))
    assert reason == "it broke"
    assert fix.startswith("make gpu OUT=")


def test_the_page_shows_all_of_it(found: dict[str, Any]):
    text = page.page(found)
    assert "- GPU: NVIDIA Some\n- CPU: Some CPU\n" in text
    assert "- Python 3.12" in text
    assert "| batch-sweep | yes | 4 | 2 | 2 | 0% | 2 of 2 groups |" in text
    crossing = f"`{CPU.label}` or `{GPU.label}`, by batch (end to end): {CPU.label} wins up to 1, {GPU.label} from 4 on"
    assert crossing in text
    assert f"- Not measured: batch-sweep: `{CPU.label}` or `{LACKING.label}`." in text
    assert "| fp16 | 2 |  | 0 |" in text
    assert "needs 9 GiB of device memory" in text
    assert "jax has no GPU here. Fix: pip install jax[cuda13]" in text
    assert "A/A: not measured" in text


def test_a_run_that_cannot_be_read_costs_the_others_nothing(tmp_path: Path):
    (tmp_path / "shootout").mkdir()
    (tmp_path / "shootout" / "journal.jsonl").write_text("{}\n{}\n")
    found = summed(tmp_path)
    assert [run["run"] for run in found["runs"]] == ["batch-sweep"]
    (lack,) = (one for one in found["missing"] if one["who"] == ["step shootout"])
    assert lack["reason"].startswith("its run can't be read: ")
    assert lack["reason"] in page.page(found)


def test_the_page_of_nothing_says_so(tmp_path: Path):
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "No race has begun." in text
    assert "None was looked for yet." in text
    assert f"step {STEPS[0].name}" in text
    assert "not begun" in text


def test_an_arm_against_itself_is_told(tmp_path: Path):
    twice = Arm(target=GPU.target, model="identity", ordinal=2)
    copy = Arm(target=GPU.target, model="identity", sentinel=True)
    lines: list[Any] = [prepared(GPU), prepared(twice)]
    for index, wobble in enumerate(WOBBLE):
        for arm, ns in ((GPU, 1_000.0), (twice, 1_000.0 * wobble), (copy, 1_000.0 / wobble)):
            lines.append(played(arm, index, ns))
        lines.append(rounds(index))
    write(tmp_path / summary.A_A, header((GPU, twice, copy), environment=MACHINE), *lines, ended())
    found = summary.summary(State.read(tmp_path))["a_a"]
    assert found["holds"]
    assert set(found["ratios"]) == {twice.label, "the hidden copy"}
    assert found["ratios"][twice.label]["value"] == pytest.approx(1.0, abs=0.001)
    assert "A/A, a GPU arm against itself: torch-eager:cuda:fp32#2 1.00" in page.page(
        json.loads(json.dumps(summary.summary(State.read(tmp_path))))
    )


SELFTEST = {"planted": [{"ratio": 1.02, "found": 1.0204, "verdict": "slower"}]}
HANDOFF = {
    "sections": {
        "handoff-gpu": {"tables": {"hand-off": [{"backend": "torch", "step": "all", "p50_us": 90, "p99_us": 150}]}}
    }
}


def test_the_other_steps_documents_are_told(tmp_path: Path):
    standing = State.read(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "selftest.out").write_text(json.dumps(SELFTEST))
    (tmp_path / "handoff.json").write_text(json.dumps(HANDOFF))
    text = page.page(json.loads(json.dumps(summary.summary(standing))))
    assert "true 1.02, found 1.0204, slower" in text
    assert "Hand-off, torch: p50 90 us, p99 150 us." in text


@pytest.mark.parametrize("text", ["", '{"planted"'])
def test_a_document_that_was_cut_off_counts_as_none(tmp_path: Path, text: str):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "selftest.out").write_text(text)
    (tmp_path / "handoff.json").write_text(text)
    assert "Self-test on the GPU: not finished." in page.page(
        json.loads(json.dumps(summary.summary(State.read(tmp_path))))
    )


# the archive


def members(files: list[Path]) -> set[str]:
    whole = BytesIO(b"".join(file.read_bytes() for file in files))
    with tarfile.open(fileobj=whole, mode="r:xz") as packed:
        return {one.name for one in packed.getmembers() if one.isfile()}


@pytest.mark.parametrize(("most", "several"), [(1 << 20, False), (300, True)])
def test_everything_is_packed_in_parts_that_cat_joins(tmp_path: Path, most: int, several: bool):
    folder = tmp_path / "it"
    folder.mkdir()
    race(folder / "batch-sweep")
    for _ in range(2):  # the second time without the first archive in it
        files = archive.pack(folder, most)
    assert (len(files) > 1) is several
    assert all(file.stat().st_size <= most for file in files)
    assert members(files) == {"it/batch-sweep/journal.jsonl"}
    assert sorted(folder.glob(f"{archive.NAME}*")) == sorted(files)
    assert [files] == list(parts.gathered(files).values()) or not several
