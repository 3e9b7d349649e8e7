"""Torchao's quantization: INT8 with ranges taken in each call and INT4 weights, and for torch.compile static INT8.

For the first two torchao swaps a linear layer's weight for a tensor of its own class, whose `linear` runs integer
kernels, in eager mode and compiled alike. Only such weights are stored and loaded: the float ones are not read again.

Static INT8 is its PT2E flow with the quantizer that is made for Inductor on x86. The exported graph gets observers,
calibration sets run through it, and what comes out holds INT8 weights between quantize and dequantize operations, which
Inductor turns into oneDNN's INT8 kernels when it freezes the graph.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import schemes
from shootout.backends._torch.session import example_of, tensors_of
from shootout.backends.common import calibration_of
from shootout.backends.common_torch import architecture, float32_module
from shootout.contract import Arm, Device, Precision
from shootout.schemes import Scheme

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

TARGETS = frozenset((Device.CPU, precision) for precision in (Precision.INT8_DYNAMIC, Precision.INT4))
"""Not on CUDA: torchao takes another path there, `torch._int_mm`, which has limits on shapes and, beyond
those, a float32 product in its place. That such an arm runs what it is labelled can only be shown on a GPU.
"""
SCHEMES: Mapping[Precision, frozenset[str]] = {
    Precision.INT8_DYNAMIC: frozenset({"per-channel", "per-tensor", "symmetric", "asymmetric"})
}
STATIC_TARGETS = frozenset({(Device.CPU, Precision.INT8)})
STATIC_SCHEMES = {Precision.INT8: frozenset({"per-channel", "symmetric", "asymmetric", "minmax", "samples-*"})}
"""Not `per-tensor`: Inductor finds its INT8 kernels by per-channel weights only, and runs float ones otherwise."""
WEIGHTS, PROGRAM = "quantized.pt", "quantized.pt2"
GROUPS = (128, 64, 32)
"""Inputs that share a scale in INT4, torchao's default first; a layer gets the widest that divides its inputs."""
INT4_OUTPUTS = 16
"""Torch's INT4 kernel for CPUs takes layers whose number of outputs is a multiple of this."""
EPSILON = 2**-12
"""The smallest scale of static INT8, as in the x86 quantizer's own configuration."""
NOISY = ("torchao", "torch.utils._pytree")
"""Importing torchao warns, through these loggers, of CUDA libraries in its wheel that a CPU doesn't need."""

IMPORTED = (
    "shootout.backends._torch.first_compile,torchao.quantization,"
    "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
)
"""What quantizing imports, beside torch; freezing compiles."""


@contextmanager
def torchao_quietly() -> Iterator[None]:
    """What torchao says about itself while it is imported stays out of a worker's log."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def quantize_module(bundle: ModelBundle, arm: Arm) -> torch.nn.Module:
    """The module with torchao's weights in its linear layers.

    Raises:
        ValueError: no layer can be quantized; says why.
    """
    module = float32_module(bundle).requires_grad_(False)
    swapped = _int8_dynamic(module, arm) if arm.target.precision is Precision.INT8_DYNAMIC else _int4(module)
    if not swapped:
        raise ValueError(f"nothing to quantize: {_unfit(module, arm.target.precision)}")
    return module


def save_module(module: torch.nn.Module, folder: Path) -> None:
    """The quantized state as a file: integers take what they take in memory."""
    import torch

    torch.save(module.state_dict(), folder / WEIGHTS)


def load_module(bundle: ModelBundle, folder: Path) -> torch.nn.Module:
    """The module with the weights that `save_module` wrote; the bundle's float ones stay on disk."""
    with torchao_quietly():  # registers its classes with the unpickler, which takes no others
        import torchao.prototype.quantization.int4
        import torchao.quantization  # noqa: F401
    import torch

    with torch.device("meta"):
        module = architecture(bundle)
    state = torch.load(folder / WEIGHTS, weights_only=True)
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def _int8_dynamic(module: torch.nn.Module, arm: Arm) -> int:
    """Activations get a scale per row, as torchao has it by default; weights one per channel, or one by the scheme."""
    with torchao_quietly():
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, PerRow, PerTensor, quantize_
        from torchao.quantization.quant_primitives import MappingType
    scheme = schemes.parse(arm.target.scheme)
    config = Int8DynamicActivationInt8WeightConfig(
        granularity=[PerRow(), PerTensor() if scheme.granularity == "per-tensor" else PerRow()],
        act_mapping_type=MappingType.ASYMMETRIC if scheme.symmetry == "asymmetric" else MappingType.SYMMETRIC,
        set_inductor_config=False,  # process-wide switches, meant for CUDA
    )
    quantize_(module, config)
    return len(_linears(module))


def _int4(module: torch.nn.Module) -> int:
    """Each layer in the widest groups it can have; the kernel takes float32 activations as they are."""
    with torchao_quietly():
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
        from torchao.quantization import quantize_
    fitting = {name: group for name, layer in _linears(module).items() if (group := _group(layer))}
    for group in set(fitting.values()):
        config = PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)
        quantize_(module, config, filter_fn=lambda _, name, group=group: fitting.get(name) == group)
    return len(fitting)


def _group(layer: Any) -> int:
    """The layer's group size; 0 where the kernel can't take it."""
    fits = layer.out_features % INT4_OUTPUTS == 0
    return next((group for group in GROUPS if fits and layer.in_features % group == 0), 0)


def _linears(module: torch.nn.Module) -> dict[str, Any]:
    from torch import nn

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def _unfit(module: torch.nn.Module, precision: Precision) -> str:
    if not _linears(module):
        return f"torchao's {precision} is for linear layers, and the model has none"
    return f"int4 takes linear layers with inputs in {GROUPS[-1]}s and outputs in {INT4_OUTPUTS}s; the model has none"


def quantize_program(bundle: ModelBundle, arm: Arm) -> torch.export.ExportedProgram:
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


def save_program(program: torch.export.ExportedProgram, folder: Path) -> None:
    """The program as a file, weights and all."""
    import torch

    torch.export.save(program, folder / PROGRAM)


def load_program(folder: Path) -> torch.nn.Module:
    """What `save_program` wrote; its folder is our own, checked by hash (`torch.export.load` may unpickle)."""
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
