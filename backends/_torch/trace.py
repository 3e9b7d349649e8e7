"""What torch really computes: the operations it dispatches, by the dtype of their operands and torch's own flags.

Shared by every adapter that runs ATen: a float32 product may still be rounded to TF32 or bfloat16 on the way in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shootout.backends.common import COMPUTE_OPS, precision_of
from shootout.bundle.flops import convolution_flops, product_flops
from shootout.contract import Device, Precision

if TYPE_CHECKING:
    import torch

Shape = Sequence[int]
INT4_OPS = r"int4\w*mm"
"""Products whose weights hold two INT4 in a byte, and whose activations are float: no dtype shows it."""
PRODUCTS = rf"{COMPUTE_OPS}|{INT4_OPS}|linear_pointwise|conv_pointwise"
CONVERSIONS = r"^(_to_copy|clone|copy_|contiguous|_?(de)?quantize.*)$"
"""Operations that only change a tensor's type or layout."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one call computes, counted as it is seen."""

    products: Counter[str] = field(default_factory=Counter)
    flops: dict[str, float] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    conversions: int = 0

    def add_product(self, precision: str, flops: float) -> None:
        """One more product or convolution."""
        self.products[precision] += 1
        self.flops[precision] = self.flops.get(precision, 0.0) + flops

    def facts(self) -> dict[str, Any]:
        """The counts by their names in `Executed`, as JSON values."""
        return {
            "compute_nodes_by_precision": dict(self.products),
            "other_nodes_by_precision": dict(self.others),
            "flops_by_precision": dict(self.flops),
            "conversion_nodes": self.conversions,
        }


def float32_flags(device: Device) -> Mapping[str, Any]:
    """Torch's holders of `fp32_precision` by kind of operation: "ieee", "tf32", "bf16", or "none" (unset)."""
    import torch

    backends: Any = torch.backends
    if device is Device.CUDA:
        return {"conv": backends.cudnn.conv, "rnn": backends.cudnn.rnn, "matmul": backends.cuda.matmul}
    return {"conv": backends.mkldnn.conv, "rnn": backends.mkldnn.rnn, "matmul": backends.mkldnn.matmul}


def count_operations(module: Callable[..., Any], staged: list[torch.Tensor], device: Device) -> Tally:
    """What torch dispatches in one call; views aside, which compute nothing.

    Traced under `no_grad`: inference mode hides what composite operations are made of.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    tally, policy = Tally(), float32_policy(device)

    class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """False: wrapping the mode for torch.compile would import all of it, 0.8 s and 800 modules."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            operands = [arg for arg in args if isinstance(arg, torch.Tensor)]
            if operands and not func.is_view:
                _add(tally, func.overloadpacket.__name__, operands, result, policy)
            return result

    with torch.no_grad(), Trace():  # type: ignore[no-untyped-call]
        module(*staged)
    return tally


def _add(tally: Tally, name: str, operands: list[torch.Tensor], result: Any, policy: Mapping[str, str]) -> None:
    dtype = str(operands[0].dtype)
    if re.search(PRODUCTS, name):
        results = result if isinstance(result, tuple) else (result,)
        shapes = [None if one is None else one.shape for one in results]
        flops = flops_of(name, [one.shape for one in operands], *shapes)
        tally.add_product(product_precision(name, dtype, policy), flops)
        return
    tally.others[precision_of(dtype.removeprefix("torch."))] += 1
    tally.conversions += bool(re.search(CONVERSIONS, name))


def float32_policy(device: Device) -> Mapping[str, str]:
    """What float32 operands are rounded to, by kind of operation, as torch's flags stand now."""
    return {kind: flag.fp32_precision for kind, flag in float32_flags(device).items()}


def product_precision(name: str, dtype: str, policy: Mapping[str, str]) -> str:
    """The precision of a product called `name` on operands of torch's `dtype`, under the `float32_policy`."""
    if re.search(INT4_OPS, name):
        return Precision.INT4.value
    rounded = policy[_kind(name)]
    lowered = dtype == "torch.float32" and rounded in ("tf32", "bf16")
    return rounded if lowered else precision_of(dtype.removeprefix("torch."))


def flops_of(name: str, operands: Sequence[Shape], *results: Shape | None) -> float:
    """Operations of the product called `name`; 0 for recurrent layers, whose steps their operands don't show.

    Args:
        operands: shapes in the operation's own order: a bias comes first in `addmm` and its like.
        results: shapes likewise; of a backward operation, None for a gradient that isn't asked for.
    """
    if "backward" in name:
        return _backward_flops(name, operands, results)
    output = next(shape for shape in results if shape is not None)
    if "attention" in name:
        query, key, value = operands[:3]
        return product_flops((*query[:-1], key[-2]), query[-1]) + product_flops((*query[:-1], value[-1]), key[-2])
    if _kind(name) == "rnn":
        return 0.0
    if _kind(name) == "conv":
        return convolution_flops(output, operands[1])
    return product_flops(output, operands[1 if name.startswith(("add", "badd")) else 0][-1])


def _backward_flops(name: str, operands: Sequence[Shape], results: Sequence[Shape | None]) -> float:
    """Each gradient of a convolution takes what its forward takes; those of an attention four products, and the scores
    once more (Dao et al., arXiv:2205.14135, appendix B).
    """
    if "attention" in name:
        return 2.5 * flops_of(name.replace("backward", ""), operands[1:4], operands[0])
    gradients = sum(shape is not None for shape in results[:2])  # of the input and of the weight; a bias only sums
    return gradients * convolution_flops(operands[0], operands[2]) if "conv" in name else 0.0


def _kind(name: str) -> str:
    return "conv" if "conv" in name else "rnn" if re.search("rnn|lstm|gru", name) else "matmul"
