"""Attend from drawn queries to drawn keys and values: as one fused operation, or written out.

Written out, the scores of every two tokens are an array that is written, normalized and read again. Fused, they never
leave the cache: PyTorch's operation takes them in blocks (Dao et al. 2022, arXiv:2205.14135). Both forms are one
function. An exporter may write a fused one out again: ONNX files made here do, since most runtimes read only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shootout.core.contract import Artifact, TensorSpec
from shootout.models.base import Choice, IntRange, Model, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

HEAD = 64
FUSED, WRITTEN = "fused", "written"


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return queries, keys and values, (batch, heads, tokens, 64) each."""
    shape = (batch, int(parameters["heads"]), int(parameters["tokens"]), HEAD)
    return tuple(TensorSpec(name=name, shape=shape, dtype="float32") for name in ("query", "keys", "values"))


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; it has no weights."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def forward(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(query, keys, values)

    class WrittenAttention(nn.Module):
        def forward(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            scores = query * HEAD**-0.5 @ keys.transpose(2, 3)
            return torch.as_tensor(scores.softmax(-1) @ values)

    return (Attention if parameters["form"] == FUSED else WrittenAttention)().eval()


MODEL = Model(
    name="attention",
    description="one attention over drawn queries, keys and values, fused or written out: no weights",
    parameters={
        "form": Choice(default=FUSED, choices=(FUSED, WRITTEN)),
        "tokens": IntRange(default=512, low=1, high=16_384),
        "heads": IntRange(default=8, low=1, high=128),
    },
    parameter_count=lambda _: 0,
    inputs=inputs,
    forward=None,
    module=module,
    trained=module,
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
