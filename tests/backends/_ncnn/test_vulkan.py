"""ncnn on Vulkan: on whatever device is here, most likely Mesa's in software; without one, these tests say so."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shootout.backends import chosen_gpu
from shootout.core import backends
from shootout.core.adapter import GpuSide
from shootout.core.contract import Arm, Availability, Device, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import OURS, call, exported_models
from shootout.testing.fresh import run_fresh

MLP = Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2)
ON_VULKAN = Target(backend="ncnn", device=Device.VULKAN)
DRIVERS = Path("/usr/share/vulkan/icd.d")


@dataclass(frozen=True)
class Seen:
    """What Vulkan says: of itself, of a device that isn't there, and of the model in the precisions that it has."""

    found: Availability
    beyond: Availability
    ran: dict[Precision, tuple[Executed, GpuSide | None, float | None]]
    refused: str


def look(exported: ExportedModel) -> Seen:
    adapter, ran = backends.get("ncnn"), {}
    found = adapter.probe(Device.VULKAN)
    if not found.ok:
        return Seen(found, found, {}, "")
    for precision in (Precision.FP32, Precision.FP16):
        arm = Arm(target=replace(ON_VULKAN, precision=precision), model=exported.model, batch=exported.batch)
        with TemporaryDirectory() as folder, suppress(*([SkippedArm] if precision is Precision.FP16 else [])):
            session = adapter.load(adapter.build(exported, arm, Path(folder)))
            outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(exported.input_buffers())]
            error = fidelity.compare(outputs, exported.reference_outputs()).relative_l2
            ran[precision] = session.executed, session.gpu, error
    weights = replace(ON_VULKAN, precision=Precision.FP16, scheme="weights-only")
    with TemporaryDirectory() as folder, pytest.raises(SkippedArm) as caught:
        adapter.build(exported, Arm(target=weights, model=exported.model, batch=exported.batch), Path(folder))
    chosen_gpu.choose_gpu(99, {Device.VULKAN})
    return Seen(found, adapter.probe(Device.VULKAN), ran, f"{caught.value.reason}; {caught.value.fix}")


@cache
def everything() -> Seen:
    seen: Seen = run_fresh(look, *exported_models(MLP), warm=OURS)
    if not seen.found.ok:
        assert seen.found.fix
        assert not [*DRIVERS.glob("lvp_icd*.json")], f"Mesa's device in software is installed: {seen.found.reason}"
        pytest.skip(f"nothing to run on: {seen.found.reason}; {seen.found.fix}")
    return seen


def test_each_precision_is_its_own_by_account_and_error():
    seen = everything()
    executed, *_ = seen.ran[Precision.FP32]
    assert Precision.FP16 in seen.ran or "llvmpipe" not in executed.device
    for precision, (executed, side, error) in seen.ran.items():
        arm = Arm(target=replace(ON_VULKAN, precision=precision), model="residual_mlp")
        assert dict(executed.compute_nodes_by_precision) == {precision.value: 4}
        assert executed_fault(executed, arm) is None
        assert executed.device.startswith("vulkan: ")
        assert executed.software or "llvmpipe" not in executed.device
        assert side == GpuSide(copies="staged")
        assert error is not None
        assert (error > 1e-5) is (precision is Precision.FP16)


def test_weights_alone_are_not_fp16_where_the_device_computes_in_it():
    if Precision.FP16 not in everything().ran:
        pytest.skip(f"no FP16: {everything().refused}")
    assert everything().refused == "ncnn computes in FP16 here where weights are kept so; use ncnn:vulkan:fp16"


def test_the_probe_names_the_device_and_a_number_beyond_the_last_is_refused():
    seen = everything()
    device = seen.ran[Precision.FP32][0].device.removeprefix("vulkan: ")
    assert device in seen.found.version
    assert seen.beyond.reason.startswith("gpu 99: Vulkan has only ")
    assert seen.beyond.fix.endswith("or leave --gpu out")
