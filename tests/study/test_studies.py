from __future__ import annotations

import pytest

from shootout import models, studies
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.study import points, schema
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import plan_groups
from shootout.tell.study_changes import change

ALL = sorted(studies.names())
NO_GPU = NotRun(NotRunKind.UNAVAILABLE, "no GPU", "get one")
CPU_ONLY = Here(
    available={
        (name, device): Availability(version="1", why=None if device is Device.CPU else NO_GPU)
        for name in backends.names()
        for device in Device
    },
    threads=1,
    cpus=2,
    memory_bytes=16 << 30,
)
PUBLISHED = {
    *("batch-sweep", "width-sweep", "depth-sweep", "fixed-parameters", "linear-precision", "matmul-transfers"),
    *("nested-sin", "efficientnet-quantization", "frontier", "small-networks", "shootout"),
    *("attention", "training", "detectors"),
}


def test_every_published_experiment_ships():
    assert set(ALL) >= PUBLISHED


def test_a_named_study_is_raced_for_its_verdicts_and_the_default_one_for_the_best():
    assert {name: studies.load(name).aims_at for name in ALL} == {
        name: "best" if name == "shootout" else "baseline" for name in ALL
    }


@pytest.mark.parametrize("name", ALL)
def test_a_named_study_plans_on_a_machine_without_a_gpu(name: str):
    chosen = studies.load(name)
    assert chosen.description
    groups = plan_groups(chosen, CPU_ONLY)
    assert all(group.record.baseline for group in groups), "every group must have something that runs on a CPU"
    for group in groups:
        gone = {arm.label for arm in group.record.arms if arm.target.device is Device.CUDA}
        assert gone <= set(group.skips)
        assert all(group.skips[label].reason for label in gone)


CROSSING = ("batch-sweep", "width-sweep", "matmul-transfers", "nested-sin")


@pytest.mark.parametrize("name", CROSSING)
def test_it_tells_where_the_gpu_begins_to_win(name: str):
    chosen = studies.load(name)
    assert chosen.aims_at == "baseline"
    assert len({(point.batch, *point.parameters.values()) for point in points.points(chosen)}) > 2
    assert len([target for target in points.targets_of(chosen) if _on_cuda(target)]) >= 3


def _on_cuda(target: Target) -> bool:
    return target.device is Device.CUDA


@pytest.mark.parametrize("name", [*CROSSING, "shootout", "linear-precision"])
def test_it_races_every_backend_that_has_a_gpu_s_code(name: str):
    chosen = points.targets_of(studies.load(name))
    shipped = {"torch-eager", "torch-compile", "jax-jit", "onnxruntime", "tensorrt"}
    assert {target.backend for target in chosen if _on_cuda(target)} >= shipped
    assert "cudagraphs" in {target.mode for target in chosen}
    assert Precision.FP16 in {target.precision for target in chosen if target.backend == "tensorrt"}


def test_points_stand_for_the_combinations_that_they_name():
    found = points.points(studies.load("fixed-parameters"))
    sizes = [models.get("residual_mlp").parameter_count(point.parameters) for point in found]
    assert len(found) > 2
    assert set(sizes) == {2**24}


def test_a_point_may_name_its_model_batch_and_scenario():
    fields = {
        "name": "made",
        "model": ["mlp", "recurrent"],
        "targets": ["numpy"],
        "scenario": ["latency", "train-step"],
        "points": [
            {"model": "mlp", "inputs": 4, "batch": 7},
            {"model": "recurrent", "kind": "gru", "scenario": "latency"},
        ],
    }
    found = points.points(schema.checked(fields, "made"))
    assert [(one.model, one.batch, str(one.scenario)) for one in found] == [
        ("mlp", 7, "latency"),
        ("mlp", 7, "train-step"),
        ("recurrent", 1, "latency"),
    ]
    assert found[0].parameters["inputs"] == 4
    assert found[2].parameters["kind"] == "gru"
    assert found[2].scenario == "latency"


def test_the_command_line_wins_over_points():
    base = studies.load("small-networks")
    one = change(base, {"batch": (3,)}, {})
    assert {point.batch for point in points.points(one)} == {3}
    other = change(base, {}, {}, model=("matmul",))
    assert {point.model for point in points.points(other)} == {"matmul"}


def test_a_point_with_an_unknown_parameter_is_refused():
    fields = {"name": "made", "model": "mlp", "targets": ["numpy"], "points": [{"hiden": 3}]}
    chosen = schema.checked(fields, "made")
    with pytest.raises(UsageError, match=r"unknown parameter 'hiden'.*'hidden'"):
        points.points(chosen)
