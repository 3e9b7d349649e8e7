"""ExecuTorch's own traps: what stays outside XNNPACK, a compiler that takes seconds to import, inputs in place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from shootout.backends._executorch import backend
from shootout.backends._executorch.account import PROGRAM, read_flatbuffer
from shootout.backends._executorch.quantize import fewer_patterns, write_out_gelu
from shootout.backends._executorch.session import MODEL, ExecuTorchSession
from shootout.core import backends
from shootout.core.contract import Arm, Device, Executed, Precision, Target
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


def patterns_looked_for() -> list[tuple[bool, bool]]:
    """Whether XNNPACK's passes look for attention and enlarged images, in programs with one, the other and neither."""
    import torch
    from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa
    from torch.nn import ReLU, Softmax, Upsample

    def programs() -> Iterator[torch.export.ExportedProgram]:
        for module in (Softmax(3), Upsample(scale_factor=2, mode="bilinear"), ReLU()):
            yield torch.export.export(module, (torch.ones(1, 1, 2, 2),))

    attention, enlarging = sdpa.get_graphs, bilinear_2d.get_graphs_dict
    found = []
    for program in programs():
        with fewer_patterns(program):
            found.append((sdpa.get_graphs is attention, bilinear_2d.get_graphs_dict is enlarging))
    assert (sdpa.get_graphs, bilinear_2d.get_graphs_dict) == (attention, enlarging)
    return found


def test_patterns_that_a_program_may_hold_are_looked_for():
    assert run_fresh(patterns_looked_for, warm=warm_of(FP32)) == [(True, False), (False, True), (False, False)]


def batch_norms_looked_for() -> list[tuple[bool, bool]]:
    """Whether XNNPACK's quantizer looks for convolutions, and for those before a batch norm, with one and without."""
    import torch
    from torch.nn import BatchNorm2d, Conv2d, Sequential

    from shootout.backends._executorch.quantize import quantizer_for

    found = []
    for module in (Sequential(Conv2d(1, 1, 1), BatchNorm2d(1)), Conv2d(1, 1, 1)):
        graph = torch.export.export(module.eval(), (torch.ones(1, 1, 2, 2),)).module()
        names = {pattern.name for pattern in quantizer_for(graph).SUPPORTED_PATTERNS}
        found.append(("conv" in names, "conv_bn" in names))
    return found


def test_the_quantizer_looks_for_batch_norms_where_there_are_any():
    assert run_fresh(batch_norms_looked_for, warm=warm_of(FP32)) == [(True, True), (True, False)]


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


def test_nodes_outside_xnnpack_are_a_line_under_the_table(tmp_path: Path):
    (tmp_path / MODEL).write_bytes(b"a file")
    facts = {"compute_nodes_by_precision": {"fp32": 3}, "undelegated": {"native_layer_norm": 4, "bmm": 1}}
    session = object.__new__(ExecuTorchSession)
    session._built = Mock(facts={"account": facts}, arm=Mock(options={}))
    session._path, session._runtime = tmp_path / MODEL, Mock(_threadpool_get_thread_count=lambda: 2)
    assert session.executed.threads == 2
    assert session.executed.fallbacks == ("not in XNNPACK but in ExecuTorch's own kernels: 1 bmm, 4 native_layer_norm",)


def test_instances_that_would_share_one_pool_of_threads_are_refused(tmp_path: Path):
    arm = Arm(target=FP32, model="m", threads=2, instances=2)
    with pytest.raises(SkippedArm, match="all models of a process share one pool of threads"):
        backends.get("executorch").build(Mock(), arm, tmp_path)


@pytest.mark.parametrize(("instances", "notes"), [(1, [backend.NOTE]), (2, [backend.NOTE, backend.LOCKED])])
def test_instances_that_take_turns_are_a_line_under_the_table(
    instances: int, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("float32_module", "example_inputs", "read_executed"):
        monkeypatch.setattr(backend, name, Mock())
    monkeypatch.setattr(backend, "lower", lambda *_: b"a file")
    arm = Arm(target=FP32, model="m", instances=instances)
    assert backends.get("executorch").build(Mock(), arm, tmp_path).facts["notes"] == notes


def test_a_quantizer_that_takes_no_product_is_refused_with_what_runs_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("float32_module", "quantize", "example_inputs"):
        monkeypatch.setattr(backend, name, Mock())
    monkeypatch.setattr(backend, "lower", lambda *_: b"a file")
    monkeypatch.setattr(backend, "read_executed", lambda *_: {"compute_nodes_by_precision": {"fp32": 3}})
    arm = Arm(target=Target(backend="executorch", precision=Precision.INT8), model="m")
    with pytest.raises(ValueError, match=r"nothing to quantize: XNNPACK's quantizer takes .* products \(3 in fp32\)"):
        backends.get("executorch").build(Mock(), arm, tmp_path)
