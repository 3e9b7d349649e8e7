"""Quantized models for ExecuTorch by its vendor's own way: XNNPACK's quantizer in torchao's export flow (PT2E)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shootout.backends._executorch.lower import example_inputs
from shootout.backends.common import calibration_of
from shootout.core.contract import Arm, Precision
from shootout.core.schemes import Scheme, parse

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

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
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    scheme = parse(arm.target.scheme)
    with torch.no_grad():
        graph = torch.export.export(module, example_inputs(exported)).module()
        prepared = prepare_pt2e(graph, quantizer_for(graph).set_global(_make_config(arm, scheme)))
        if arm.target.precision is Precision.INT8:
            for one in calibration_of(exported, scheme):
                prepared(*(torch.from_numpy(one[spec.name]) for spec in exported.inputs))
        else:  # for the weights' ranges
            prepared(*example_inputs(exported))
        converted: torch.nn.Module = convert_pt2e(prepared)
    return converted


def quantizer_for(graph: Any) -> Any:
    """Return XNNPACK's quantizer, which looks only for what the graph module may hold.

    By itself it exports all patterns with a batch norm again for each model, in seconds.
    """
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    quantizer = XNNPACKQuantizer()
    if not any("batch_norm" in str(node.target) for node in graph.graph.nodes):
        quantizer.SUPPORTED_PATTERNS = [one for one in quantizer.SUPPORTED_PATTERNS if "_bn" not in one.name]
    return quantizer


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
