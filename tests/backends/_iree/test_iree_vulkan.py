"""IREE on Vulkan: on whatever device is here, most likely Mesa's in software; without one, these tests say so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shootout import backends
from shootout.bundle import fidelity
from shootout.bundle.bundle import ModelBundle
from shootout.contract import Arm, Availability, Device, Executed, NotRunKind, Precision, Target
from shootout.export.client import Request
from shootout.host import gpu
from shootout.testing.cases import OURS, bundles
from shootout.testing.checks import call
from shootout.testing.fresh import run_fresh
from shootout.worker.precision_checks import executed_fault

SMALL = Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 2}, batch=2)
ON_VULKAN = Target(backend="iree", device=Device.VULKAN)
DRIVERS = Path("/usr/share/vulkan/icd.d")


@dataclass(frozen=True)
class Seen:
    """What Vulkan says: of itself, of a device that isn't there, and of the model in both precisions."""

    found: Availability
    beyond: Availability
    ran: dict[Precision, tuple[Executed, int, float | None]]


def look(bundle: ModelBundle) -> Seen:
    adapter, ran = backends.get("iree"), {}
    found = adapter.probe(Device.VULKAN)
    for precision in (Precision.FP32, Precision.FP16) if found.ok else ():
        arm = Arm(target=replace(ON_VULKAN, precision=precision), model=bundle.model, batch=bundle.batch)
        with TemporaryDirectory() as folder:
            session = adapter.load(adapter.build(bundle, arm, Path(folder)))
            first, second, *_ = bundle.input_buffers()
            staged = [session.execute(session.stage(inputs, slot)) for slot, inputs in enumerate((first, second))]
            outputs = [dict(session.fetch(one)) for one in staged]
            outputs[0] = dict(call(session, first, slot=1))
            assert session.gpu is not None
            assert session.gpu.allocator is not None
            error = fidelity.compare(outputs, bundle.oracle_outputs()[:2]).relative_l2
            ran[precision] = session.executed, session.gpu.allocator()[1], error
            session.close()
            session.close()
    gpu.choose_gpu(99, {Device.VULKAN})
    return Seen(found, adapter.probe(Device.VULKAN), ran)


@cache
def everything() -> Seen:
    seen: Seen = run_fresh(look, *bundles(SMALL), warm=OURS)
    if not seen.found.ok:
        assert seen.found.fix
        assert not [*DRIVERS.glob("lvp_icd*.json")], f"Mesa's device in software is installed: {seen.found.reason}"
        pytest.skip(f"nothing to run on: {seen.found.reason}; {seen.found.fix}")
    return seen


def test_each_precision_is_its_own_by_account_and_error():
    """Two calls are queued before the first result is fetched."""
    for precision, (executed, most_bytes, error) in everything().ran.items():
        arm = Arm(target=replace(ON_VULKAN, precision=precision), model="residual_mlp")
        assert executed.compute_nodes_by_precision == {precision.value: 2}
        assert executed_fault(executed, arm) is None
        assert executed.device.startswith("vulkan: ")
        assert executed.software or "llvmpipe" not in executed.device
        assert most_bytes > 0
        assert error is not None
        assert (error > 1e-5) is (precision is Precision.FP16)
        assert error < 1e-2


def test_without_a_device_modules_can_be_built_and_the_probe_says_so():
    seen = everything()
    assert seen.ran[Precision.FP32][0].device.removeprefix("vulkan: ") in seen.found.version
    assert seen.beyond.why is not None
    assert seen.beyond.why.kind is NotRunKind.BUILT_ONLY
    assert seen.beyond.reason.startswith("gpu 99: Vulkan has only ")
