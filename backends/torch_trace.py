"""What torch really computes: the operations it dispatches, by the dtype of their operands and torch's own flags.

Shared by every adapter that runs ATen: a float32 product may still be rounded to TF32 or bfloat16 on the way in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shootout.backends.common import COMPUTE_OPS, precision_of
from shootout.contract import Device

if TYPE_CHECKING:
    import torch


def float32_flags(device: Device) -> Mapping[str, Any]:
    """Torch's holders of `fp32_precision` by kind of operation: "ieee", "tf32", "bf16", or "none" (unset)."""
    import torch

    backends: Any = torch.backends
    if device is Device.CUDA:
        return {"conv": backends.cudnn.conv, "rnn": backends.cudnn.rnn, "matmul": backends.cuda.matmul}
    return {"conv": backends.mkldnn.conv, "rnn": backends.mkldnn.rnn, "matmul": backends.mkldnn.matmul}


def count_operations(module: torch.nn.Module, staged: list[torch.Tensor], device: Device) -> Mapping[str, int]:
    """Compute operations by precision, as torch dispatches them in one call.

    Traced under `no_grad`: inference mode hides what composite operations are made of.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: Counter[str] = Counter()
    fp32_precision = {kind: flag.fp32_precision for kind, flag in float32_flags(device).items()}

    class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """False: wrapping the mode for torch.compile would import all of it, 0.8 s and 800 modules."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            operand = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
            if operand is not None and re.search(COMPUTE_OPS, name):
                policy = fp32_precision[kind_of(name)]
                lowered = operand.dtype is torch.float32 and policy in ("tf32", "bf16")
                counts[policy if lowered else precision_of(str(operand.dtype).removeprefix("torch."))] += 1
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Trace():  # type: ignore[no-untyped-call]
        module(*staged)
    return dict(counts)


def kind_of(name: str) -> str:
    """Which of `float32_flags` an operation obeys."""
    return "conv" if "conv" in name else "rnn" if re.search("rnn|lstm|gru", name) else "matmul"
