"""Build single operations: one Linear layer, a product of two matrices, sin again and again, an attention.

The time of `linear` is all in one product of a stored matrix, whose weights keep the variance, so that outputs are
about as large as inputs in every precision. `matmul` shows one BLAS against another, and what copies to a device cost.
`nested_sin` is bound by memory if each sin is a pass of its own, less if they are fused; the published experiment has
one vector, here it is a row, so batch 1 is that experiment.

`attention` is one fused operation, or written out. Written out, the scores of every two tokens are an array that is
written, normalized and read again. Fused, they never leave the cache: PyTorch's operation takes them in blocks (Dao et
al. 2022, arXiv:2205.14135). Both forms are one function. An exporter may write a fused one out again: ONNX files made
here do, since most runtimes read only that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, Artifact, TensorSpec
from shootout.core.errors import UsageError
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters, variance_kept

if TYPE_CHECKING:
    import torch
    from torch import nn

BIAS = {"no": False, "yes": True}
HEAD = 64
FUSED, WRITTEN = "fused", "written"


def vectors(width: str) -> Callable[[Parameters, int], tuple[TensorSpec, ...]]:
    """Return the `inputs` of a model whose one input `x` is (batch, the parameter `width`)."""
    return lambda parameters, batch: (TensorSpec(name="x", shape=(batch, int(parameters[width])), dtype="float32"),)


def _multiply_stored(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = x W^T`, plus the bias."""
    matrix = weights["weight"].T
    if not BIAS[str(parameters["bias"])]:
        return lambda x: {"y": x["x"] @ matrix}
    bias = weights["bias"]
    return lambda x: {"y": x["x"] @ matrix + bias}


def _make_linear(parameters: Parameters) -> nn.Module:
    from torch import nn

    wide, narrow = int(parameters["inputs"]), int(parameters["outputs"])
    return nn.Linear(wide, narrow, bias=BIAS[str(parameters["bias"])]).eval()


LINEAR = Model(
    name="linear",
    description="one Linear layer, 1024 inputs and 2048 outputs unless said otherwise",
    parameters={
        "inputs": IntRange(default=1_024, low=1, high=2**20),
        "outputs": IntRange(default=2_048, low=1, high=2**20),
        "bias": Choice(default="no", choices=tuple(BIAS)),
        "seed": SEED,
    },
    parameter_count=lambda given: (int(given["inputs"]) + BIAS[str(given["bias"])]) * int(given["outputs"]),
    inputs=vectors("inputs"),
    forward=_multiply_stored,
    module=_make_linear,
    trained=lambda parameters: variance_kept(_make_linear, parameters),
)


def _list_matrices(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the two inputs `a` and `b`, (n, n).

    Raises:
        UsageError: the batch is not 1: matrices have no rows to put together, and a batch of products is another
            operation, with other kernels.
    """
    if batch != 1:
        raise UsageError(f"matmul multiplies two matrices: its batch is 1, got {batch}; set n instead")
    size = int(parameters["n"])
    return tuple(TensorSpec(name=name, shape=(size, size), dtype="float32") for name in ("a", "b"))


def _multiply(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = a b`.

    It isn't scaled, which would be a second pass over memory: FP16 holds the sum of 2^15 products of normal numbers,
    about 181 in size.
    """
    return lambda x: {"y": x["a"] @ x["b"]}


def _make_matmul(parameters: Parameters) -> nn.Module:  # noqa: ARG001 - it has no weights
    import torch
    from torch import nn

    class Matmul(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.matmul(a, b)

    return Matmul().eval()


MATMUL = Model(
    name="matmul",
    description="the product of two n x n matrices, both of them inputs (batch 1)",
    parameters={"n": IntRange(default=512, low=1, high=32_768)},
    parameter_count=lambda _: 0,
    inputs=_list_matrices,
    forward=_multiply,
    module=_make_matmul,
    trained=_make_matmul,
    by_rows=False,
    takes_batch=False,
)


def _nest(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = sin(sin(… sin(x)))`, `depth` times."""

    def run(x: Arrays) -> dict[str, Array]:
        y = x["x"]
        for _ in range(int(parameters["depth"])):
            y = xp.sin(y)
        return {"y": y}

    return run


def _make_sines(parameters: Parameters) -> nn.Module:
    import torch
    from torch import nn

    class NestedSin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depth = int(parameters["depth"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.depth):
                x = torch.sin(x)
            return x

    return NestedSin().eval()


NESTED_SIN = Model(
    name="nested_sin",
    description="sin applied 4 times to a vector of so many elements: no weights, all memory",
    parameters={
        "elements": IntRange(default=2**20, low=1, high=2**32),
        "depth": IntRange(default=4, low=1, high=64),
    },
    parameter_count=lambda _: 0,
    inputs=vectors("elements"),
    forward=_nest,
    module=_make_sines,
    trained=_make_sines,
)


def _list_tokens(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return queries, keys and values, (batch, heads, tokens, 64) each."""
    shape = (batch, int(parameters["heads"]), int(parameters["tokens"]), HEAD)
    return tuple(TensorSpec(name=name, shape=shape, dtype="float32") for name in ("query", "keys", "values"))


def _make_attention(parameters: Parameters) -> nn.Module:
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


ATTENTION = Model(
    name="attention",
    description="one attention over drawn queries, keys and values, fused or written out: no weights",
    parameters={
        "form": Choice(default=FUSED, choices=(FUSED, WRITTEN)),
        "tokens": IntRange(default=512, low=1, high=16_384),
        "heads": IntRange(default=8, low=1, high=128),
    },
    parameter_count=lambda _: 0,
    inputs=_list_tokens,
    module=_make_attention,
    trained=_make_attention,
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
