"""IREE on Vulkan: on whatever device is here, most likely Mesa's in software; without one, these tests say so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shootout.core import backends
from shootout.core.contract import Arm, Availability, Device, Executed, Target
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import OURS, call, exported_models
from shootout.testing.fresh import run_fresh

SMALL = Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 2}, batch=2)
ARM = Arm(target=Target(backend="iree", device=Device.VULKAN), model="residual_mlp")
DRIVERS = Path("/usr/share/vulkan/icd.d")


@dataclass(frozen=True)
class Seen:
    """What Vulkan says: of itself, and of the model."""

    found: Availability
    executed: Executed
    most_bytes: int
    error: float | None


def look(exported: ExportedModel) -> Seen | Availability:
    adapter = backends.get("iree")
    found = adapter.probe(Device.VULKAN)
    if not found.ok:
        return found
    with TemporaryDirectory() as folder:
        session = adapter.load(adapter.build(exported, replace(ARM, batch=exported.batch), Path(folder)))
        first, second, *_ = exported.input_buffers()
        staged = [session.execute(session.stage(inputs, slot)) for slot, inputs in enumerate((first, second))]
        outputs = [dict(session.fetch(one)) for one in staged]
        outputs[0] = dict(call(session, first, slot=1))
        assert session.gpu is not None
        assert session.gpu.allocator is not None
        error = fidelity.compare(outputs, exported.reference_outputs()[:2]).relative_l2
        seen = Seen(found, session.executed, session.gpu.allocator()[1], error)
        session.close()
        session.close()
    return seen


@cache
def everything() -> Seen:
    seen: Seen | Availability = run_fresh(look, *exported_models(SMALL), warm=OURS)
    if isinstance(seen, Availability):
        assert seen.fix
        assert not [*DRIVERS.glob("lvp_icd*.json")], f"Mesa's device in software is installed: {seen.reason}"
        pytest.skip(f"nothing to run on: {seen.reason}; {seen.fix}")
    return seen


def test_two_calls_are_queued_before_the_first_result_is_fetched():
    seen = everything()
    assert seen.executed.compute_nodes_by_precision == {"fp32": 2}
    assert executed_fault(seen.executed, ARM) is None
    assert seen.executed.software or "llvmpipe" not in seen.executed.device
    assert seen.executed.device.removeprefix("vulkan: ") in seen.found.version
    assert seen.most_bytes > 0
    assert seen.error is not None
    assert seen.error < 1e-5
