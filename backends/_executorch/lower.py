"""From a torch module to a .pte file, as ExecuTorch's own pages do it: export, hand over to XNNPACK, plan memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shootout.contract import Arm, Option, Precision

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

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


def examples(bundle: ModelBundle) -> tuple[torch.Tensor, ...]:
    """The first input set, in the module's order."""
    import torch

    inputs = bundle.input_buffers()[0]
    return tuple(torch.from_numpy(inputs[spec.name].copy()) for spec in bundle.inputs)


def lower(module: torch.nn.Module, bundle: ModelBundle, arm: Arm) -> bytes:
    """The file's content."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.kernels import quantized  # noqa: F401 - for what stays outside XNNPACK of a quantized model

    with torch.no_grad():
        program = torch.export.export(module, examples(bundle))
    takers = [] if arm.options.get(KERNELS) == BUILTIN else [XnnpackPartitioner()]
    plan = MemoryPlanningPass(alloc_graph_input=arm.options.get(INPUTS) != NOT_PLANNED)
    lowered = to_edge_transform_and_lower(program, partitioner=takers)
    return bytes(lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan)).buffer)
