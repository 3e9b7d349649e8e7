"""From a torch module to a .pte file, as ExecuTorch's own pages do it: export, hand over to XNNPACK, plan memory.

Quantized models for ExecuTorch by its vendor's own way: XNNPACK's quantizer in torchao's export flow (PT2E).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shootout.backends.common import calibration_of
from shootout.core.contract import Arm, Option, Precision
from shootout.core.schemes import Scheme, parse

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from shootout.core.exported.model import ExportedModel

KERNELS, BUILTIN = "kernels", "builtin"
INPUTS, NOT_PLANNED = "alloc_graph_input", "false"
OPTIONS = (
    Option(
        name=KERNELS,
        help="whose kernels run in place of XNNPACK's: ExecuTorch's own",
        values=(BUILTIN,),
        precisions=frozenset({Precision.FP32}),
    ),
    Option(
        name=INPUTS,
        help="whether the file plans memory of its own for inputs, and copies them there (it does)",
        values=(NOT_PLANNED,),
        tries=(NOT_PLANNED,),
    ),
)


def example_inputs(exported: ExportedModel) -> tuple[torch.Tensor, ...]:
    """Return the first input set, in the module's order."""
    import torch

    inputs = exported.input_buffers()[0]
    return tuple(torch.from_numpy(inputs[spec.name].copy()) for spec in exported.inputs)


def lower(module: torch.nn.Module, exported: ExportedModel, arm: Arm) -> bytes:
    """Export the module, lower it to XNNPACK and return the file's content."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.kernels import quantized  # noqa: F401 - for what stays outside XNNPACK of a quantized model

    with torch.no_grad():
        program = write_out_gelu(torch.export.export(module, example_inputs(exported)))
    takers = [] if arm.options.get(KERNELS) == BUILTIN else [XnnpackPartitioner()]
    plan = MemoryPlanningPass(alloc_graph_input=arm.options.get(INPUTS) != NOT_PLANNED)
    lowered = to_edge_transform_and_lower(program, partitioner=takers)
    return bytes(lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan)).buffer)


def write_out_gelu(program: ExportedProgram) -> ExportedProgram:
    """Return the program with GELU's approximation by tanh in single operators.

    XNNPACK's part would compute the exact GELU in its place (ExecuTorch 1.5.1 hands it no `approximate`), an error of
    2e-4.
    """
    import torch

    gelu, approximation = torch.ops.aten.gelu.default, "tanh"
    if not any(node.target is gelu and node.kwargs.get("approximate") == approximation for node in program.graph.nodes):
        return program

    def written(x: torch.Tensor, *, approximate: str = "none") -> Any:
        if approximate != approximation:
            return NotImplemented
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    rewritten: ExportedProgram = program.run_decompositions({gelu: written})
    return rewritten


SCHEMES = {
    Precision.INT8: frozenset({"per-channel", "per-tensor", "minmax", "samples-*"}),
    Precision.INT8_DYNAMIC: frozenset({"per-channel"}),
}
SMALLEST_SCALE = 2**-12
"""The smallest scale of the quantizer's own observers, for one in their place."""


def quantize(module: torch.nn.Module, exported: ExportedModel, arm: Arm) -> torch.nn.Module:
    """Put quantize and dequantize nodes around what XNNPACK computes in integers; inputs and outputs stay float.

    Raises:
        ValueError: the calibration data can't be used.
    """
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    scheme = parse(arm.target.scheme)
    quantizer = XNNPACKQuantizer().set_global(_make_config(arm, scheme))
    # Those of training look for a batch norm, which `prepare_pt2e` has folded by then, and export twelve graphs: 1.3 s.
    quantizer.SUPPORTED_PATTERNS = [one for one in quantizer.SUPPORTED_PATTERNS if not one.is_qat]
    with torch.no_grad():
        graph = torch.export.export(module, example_inputs(exported)).module()
        prepared = prepare_pt2e(graph, quantizer)
        if arm.target.precision is Precision.INT8:
            for one in calibration_of(exported, scheme):
                prepared(*(torch.from_numpy(one[spec.name]) for spec in exported.inputs))
        else:  # for the weights' ranges
            prepared(*example_inputs(exported))
        converted: torch.nn.Module = convert_pt2e(prepared)
    return converted


def _make_config(arm: Arm, scheme: Scheme) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config
    from torchao.quantization.pt2e import MinMaxObserver

    config = get_symmetric_quantization_config(
        is_per_channel=scheme.granularity != "per-tensor", is_dynamic=arm.target.precision is Precision.INT8_DYNAMIC
    )
    if scheme.ranges != "minmax":
        return config
    activations = replace(
        config.input_activation, observer_or_fake_quant_ctr=MinMaxObserver.with_args(eps=SMALLEST_SCALE)
    )
    return replace(config, input_activation=activations, output_activation=activations)
