"""ExecuTorch's own traps: what stays outside XNNPACK, a compiler that takes seconds to import, inputs in place."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from shootout.backends._executorch.account import PROGRAM, read_flatbuffer
from shootout.backends._executorch.backend import MODEL
from shootout.backends._executorch.quantize import write_out_gelu
from shootout.core import backends
from shootout.core.contract import Arm, Device, Executed, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.testing.checks import call, case_of, warm_of
from shootout.testing.fresh import run_fresh

FP32 = Target(backend="executorch")
OWN = {"kernels": "builtin", "alloc_graph_input": "false"}


def what_a_probe_imports() -> set[str]:
    assert backends.get("executorch").probe(Device.CPU).ok
    return {"executorch.exir", "torchao"} & set(sys.modules)


def test_what_runs_a_file_imports_no_compiler():
    """Which would take five seconds of each start."""
    assert run_fresh(what_a_probe_imports, warm="torch") == set()


def outside_xnnpack(folder: Path) -> tuple[Executed, bool, Any]:
    """A file without XNNPACK that plans no memory for its inputs: its account, whether it is right."""
    case, adapter = case_of(FP32), backends.get("executorch")
    built = adapter.build(case.exported, replace(case.arm, options=OWN), folder)
    session, inputs = adapter.load(built), case.exported.input_buffers()
    outputs = [call(session, one) for one in inputs]
    plan = read_flatbuffer((folder / MODEL).read_bytes(), PROGRAM)["execution_plan"][0]
    planned = plan["values"][plan["inputs"][0]]["val"].get("allocation_info")
    is_right = fidelity.gate(fidelity.compare(outputs, case.exported.reference_outputs()), 1e-5) is None
    return session.executed, is_right, planned


def test_what_xnnpack_does_not_run_is_told_and_counted(tmp_path: Path):
    executed, is_right, planned = run_fresh(outside_xnnpack, tmp_path, warm=warm_of(FP32))
    assert is_right
    assert planned is None
    assert executed.compute_nodes_by_precision == {"fp32": 1}
    assert executed.device == "cpu (builtin)"
    assert executed.fallbacks == (), "it was asked for"


def gelus_left() -> tuple[list[Any], float]:
    """How the GELUs that are left approximate, of an exact one and one by tanh, and what changed in the outputs."""
    import torch
    from torch.nn import GELU, Sequential

    module, x = Sequential(GELU(), GELU(approximate="tanh")), torch.linspace(-3, 3, 64)
    program = write_out_gelu(torch.export.export(module, (x,)))
    gelus = [node for node in program.graph.nodes if node.target is torch.ops.aten.gelu.default]
    return [node.kwargs.get("approximate") for node in gelus], float((program.module()(x) - module(x)).abs().max())


def test_the_gelu_that_xnnpack_would_take_for_another_is_written_out():
    left, change = run_fresh(gelus_left, warm="torch")
    assert left == [None]
    assert change < 1e-6


def test_instances_that_would_share_one_pool_of_threads_are_refused(tmp_path: Path):
    arm = Arm(target=FP32, model="m", threads=2, instances=2)
    with pytest.raises(SkippedArm, match="all models of a process share one pool of threads"):
        backends.get("executorch").build(Mock(), arm, tmp_path)
