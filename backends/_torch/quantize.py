"""Torchao's quantization of linear layers: INT8 with ranges taken in each call, and INT4 weights.

Torchao swaps a layer's weight for a tensor of its own class, whose `linear` runs integer kernels, in eager mode and
compiled alike. Only such weights are stored and loaded: the float ones are not read again.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import schemes
from shootout.backends._torch.session import architecture, float32_module
from shootout.contract import Arm, Device, Precision

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
WEIGHTS = "quantized.pt"
GROUPS = (128, 64, 32)
"""Inputs that share a scale in INT4, torchao's default first; a layer gets the widest that divides its inputs."""
INT4_OUTPUTS = 16
"""Torch's INT4 kernel for CPUs takes layers whose number of outputs is a multiple of this."""
NOISY = ("torchao", "torch.utils._pytree")
"""Importing torchao warns, through these loggers, of CUDA libraries in its wheel that a CPU doesn't need."""


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


def quantized_module(bundle: ModelBundle, arm: Arm) -> torch.nn.Module:
    """The module with torchao's weights in its linear layers.

    Raises:
        ValueError: no layer can be quantized; says why.
    """
    module = float32_module(bundle).requires_grad_(False)
    swapped = _int8_dynamic(module, arm) if arm.target.precision is Precision.INT8_DYNAMIC else _int4(module)
    if not swapped:
        raise ValueError(f"nothing to quantize: {_unfit(module, arm.target.precision)}")
    return module


def save(module: torch.nn.Module, folder: Path) -> None:
    """The quantized state as a file: integers take what they take in memory."""
    import torch

    torch.save(module.state_dict(), folder / WEIGHTS)


def stored_module(bundle: ModelBundle, folder: Path) -> torch.nn.Module:
    """The module with the weights that `save` wrote; the bundle's float ones stay on disk."""
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
