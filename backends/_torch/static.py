"""Static INT8 for torch.compile: torchao's PT2E flow with the quantizer that is made for Inductor on x86.

The exported graph gets observers, calibration sets run through it, and what comes out holds INT8 weights between
quantize and dequantize operations, which Inductor turns into oneDNN's INT8 kernels when it freezes the graph.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import schemes
from shootout.backends._torch.quantize import torchao_quietly
from shootout.backends._torch.session import example_of, float32_module, tensors_of
from shootout.backends.common import calibration_of
from shootout.contract import Arm, Device, Precision
from shootout.schemes import Scheme

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

TARGETS = frozenset({(Device.CPU, Precision.INT8)})
SCHEMES = {Precision.INT8: frozenset({"per-channel", "symmetric", "asymmetric", "minmax", "samples-*"})}
"""Not `per-tensor`: Inductor finds its INT8 kernels by per-channel weights only, and runs float ones otherwise."""
PROGRAM = "quantized.pt2"
EPSILON = 2**-12
"""The smallest scale, as in the quantizer's own configuration."""


def quantized_program(bundle: ModelBundle, arm: Arm) -> torch.export.ExportedProgram:
    """The model as an exported program with INT8 weights.

    Raises:
        ValueError: the quantizer found no layer, or the calibration data can't be used.
    """
    import torch

    with torchao_quietly():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    scheme, example = schemes.parse(arm.target.scheme), example_of(bundle, arm)
    sets = calibration_of(bundle, scheme)
    with torch.no_grad():
        module = float32_module(bundle).requires_grad_(False)
        prepared = prepare_pt2e(torch.export.export(module, example).module(), _quantizer(scheme))
        for one in sets:
            prepared(*tensors_of(bundle, one))
        converted = convert_pt2e(prepared)
        if not any("quantize_per" in str(node.target) for node in converted.graph.nodes):
            raise ValueError("nothing to quantize: torchao's x86 quantizer finds no layer of a kind that it knows")
        _drop_float_weights(converted)
        return torch.export.export(converted, example)


def save(program: torch.export.ExportedProgram, folder: Path) -> None:
    """The program as a file, weights and all."""
    import torch

    torch.export.save(program, folder / PROGRAM)


def stored_module(folder: Path) -> torch.nn.Module:
    """What `save` wrote; its folder is our own, checked by hash (`torch.export.load` may unpickle)."""
    import torch

    with torchao_quietly():  # registers the rewriting that makes INT8 kernels of what is loaded
        import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer  # noqa: F401
    return torch.export.load(folder / PROGRAM).module()


def _quantizer(scheme: Scheme) -> Any:
    """The x86 quantizer, by default with asymmetric U8 activations whose ranges lose least in a histogram."""
    import torch

    with torchao_quietly():
        from torchao.quantization.pt2e import MinMaxObserver
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    config = x86.get_default_x86_inductor_quantization_config()
    changes: dict[str, Any] = {}
    if scheme.symmetry == "symmetric":
        changes["qscheme"] = torch.per_tensor_symmetric
    if scheme.ranges == "minmax":
        changes["observer_or_fake_quant_ctr"] = MinMaxObserver.with_args(eps=EPSILON)
    activation = replace(config.input_activation, **changes)
    found: Any = x86.X86InductorQuantizer()
    return found.set_global(replace(config, input_activation=activation, output_activation=activation))


def _drop_float_weights(converted: Any) -> None:
    """Conversion leaves the float originals in the module, unused; exported, they would be stored as well."""
    used = {node.target for node in converted.graph.nodes if node.op == "get_attr"}
    for name, _ in list(converted.named_parameters()):
        if name not in used:
            owner, _, leaf = name.rpartition(".")
            delattr(converted.get_submodule(owner), leaf)
