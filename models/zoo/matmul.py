"""Multiply two square matrices, both inputs: one BLAS against another, and what copies to a device cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shootout.core.contract import Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.models.base import Call, IntRange, Model, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the two inputs `a` and `b`, (n, n).

    Raises:
        UsageError: the batch is not 1: matrices have no rows to put together, and a batch of products is another
            operation, with other kernels.
    """
    if batch != 1:
        raise UsageError(f"matmul multiplies two matrices: its batch is 1, got {batch}; set n instead")
    size = int(parameters["n"])
    return tuple(TensorSpec(name=name, shape=(size, size), dtype="float32") for name in ("a", "b"))


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = a b`.

    It isn't scaled, which would be a second pass over memory: FP16 holds the sum of 2^15 products of normal numbers,
    about 181 in size.
    """
    return lambda x: {"y": x["a"] @ x["b"]}


def module(parameters: Parameters) -> nn.Module:  # noqa: ARG001
    """Build the torch module; it has no weights."""
    import torch
    from torch import nn

    class Matmul(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.matmul(a, b)

    return Matmul().eval()


MODEL = Model(
    name="matmul",
    description="the product of two n x n matrices, both of them inputs (batch 1)",
    parameters={"n": IntRange(default=512, low=1, high=32_768)},
    parameter_count=lambda _: 0,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=module,
    by_rows=False,
    takes_batch=False,
)
