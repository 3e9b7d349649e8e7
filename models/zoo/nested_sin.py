"""Apply sin again and again to a long vector: bound by memory if each sin is a pass of its own, less if fused.

The published experiment has one vector; here it is a row, so batch 1 is that experiment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.models.base import Call, IntRange, Model, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, elements)."""
    return (TensorSpec(name="x", shape=(batch, int(parameters["elements"])), dtype="float32"),)


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = sin(sin(… sin(x)))`, `depth` times."""
    depth = int(parameters["depth"])

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for _ in range(depth):
            y = xp.sin(y)
        return {"y": y}

    return run


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; it has no weights."""
    import torch
    from torch import nn

    depth = int(parameters["depth"])

    class NestedSin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depth = depth

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.depth):
                x = torch.sin(x)
            return x

    return NestedSin().eval()


MODEL = Model(
    name="nested_sin",
    description="sin applied 4 times to a vector of so many elements: no weights, all memory",
    parameters={
        "elements": IntRange(default=2**20, low=1, high=2**32),
        "depth": IntRange(default=4, low=1, high=64),
    },
    parameter_count=lambda _: 0,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=module,
)
