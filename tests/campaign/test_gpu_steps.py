"""How a GPU campaign's time is shared out, and what each of its steps starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpu import session, summary, work
from gpu.ground import Ground
from gpu.steps import GRACE_S, STEPS, Step, limit_s, measuring_s, shared_s, shares

from shootout import backends
from shootout.contract import Availability, Device, Target
from shootout.study import points, schema
from shootout.study.feasibility import Here
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
