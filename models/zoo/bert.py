"""Build the BERT encoder (Devlin et al. 2018, arXiv:1810.04805), never trained: for fidelity and speed.

The architecture is that of transformers' `BertModel`, layer by layer (a test compares them); see `efficientnet` for why
it is written out here. Attention is written out too, so that every runtime reads the same graph of matrix products and
a softmax. Linear layers keep the variance: with BERT's own deviation of 0.02 the attention of an untrained model is the
same everywhere, and a wrong mask would go unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shootout.core.contract import Array, Artifact, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import buffer_count
from shootout.models.base import CALIBRATION_ROWS, SEED, IntRange, Model, Parameters, seeded, set_count

if TYPE_CHECKING:
    import torch
    from torch import nn

HEAD, WIDENED, TYPES, EPS = 64, 4, 2, 1e-12
PLACE_STD = 0.1
"""The deviation of embeddings of positions and types, against 1 of words: what all texts share must not prevail."""
MASKED = -1e4
"""As in the original: e to this power is 0 in every precision, and FP16 holds it."""
BUFFERS, CALIBRATION = range(2)
"""The seeds of drawn inputs: each purpose has its own."""


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return token ids and mask (1: a token, 0: padding), both int64 (batch, tokens).

    Raises:
        UsageError: `hidden` can't be shared out among attention heads.
    """
    if int(parameters["hidden"]) % HEAD:
        raise UsageError(f"hidden must be a multiple of {HEAD} (one attention head), got {parameters['hidden']}")
    shape = (batch, int(parameters["tokens"]))
    return tuple(TensorSpec(name=name, shape=shape, dtype="int64") for name in ("input_ids", "attention_mask"))


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of embeddings and layers."""
    hidden = int(parameters["hidden"])
    embeddings = (int(parameters["vocabulary"]) + int(parameters["tokens"]) + TYPES) * hidden + 2 * hidden
    attention = 4 * (hidden + 1) * hidden + 2 * hidden
    feed_forward = (hidden + 1) * WIDENED * hidden + (WIDENED * hidden + 1) * hidden + 2 * hidden
    return embeddings + int(parameters["layers"]) * (attention + feed_forward)


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init. Its output is the last hidden state."""
    import torch
    from torch import nn

    hidden = int(parameters["hidden"])

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(int(parameters["vocabulary"]), hidden)
            self.positions = nn.Embedding(int(parameters["tokens"]), hidden)
            self.types = nn.Embedding(TYPES, hidden)
            self.norm = nn.LayerNorm(hidden, eps=EPS)
            self.layers = nn.ModuleList(_make_layer(hidden) for _ in range(int(parameters["layers"])))

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            padding = attention_mask[:, None, None, :] == 0
            x = self.norm(self.words(input_ids) + self.types.weight[0] + self.positions.weight)
            for layer in self.layers:
                x = layer(x, padding)
            return torch.as_tensor(x)

    return Bert().eval()


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded weights: linear layers of deviation 1/sqrt(what they read), biases of 0; embeddings by PLACE_STD."""
    import torch
    from torch import nn

    with seeded(parameters), torch.no_grad():
        model = module(parameters)
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                nn.init.zeros_(layer.bias)
        for places in (model.positions, model.types):
            assert isinstance(places, nn.Embedding)
            nn.init.normal_(places.weight, std=PLACE_STD)
    return model.requires_grad_(False)


def _make_layer(hidden: int) -> nn.Module:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))

        def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            shape = (x.shape[0], x.shape[1], hidden // HEAD, HEAD)
            query, key, value = (part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
            scores = (query @ key.transpose(2, 3) * HEAD**-0.5).masked_fill(padding, MASKED)
            return torch.matmul(scores.softmax(-1), value).transpose(1, 2).reshape(x.shape)

    class BertLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.out = Attention(), nn.Linear(hidden, hidden)
            self.middle = nn.LayerNorm(hidden, eps=EPS)
            wide = WIDENED * hidden
            self.feed_forward = nn.Sequential(nn.Linear(hidden, wide), nn.GELU(), nn.Linear(wide, hidden))
            self.last = nn.LayerNorm(hidden, eps=EPS)

        def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            x = self.middle(self.out(self.attention(x, padding)) + x)
            return torch.as_tensor(self.last(self.feed_forward(x) + x))

    return BertLayer()


def _draw_sets(parameters: Parameters, batch: int, count: int, purpose: int) -> list[dict[str, Array]]:
    """Draw random tokens; each row is padded after a length of its own, from a half to all of them."""
    rng, tokens = np.random.default_rng([int(parameters["seed"]), purpose]), int(parameters["tokens"])
    lengths = rng.integers((tokens + 1) // 2, tokens + 1, (count, batch, 1))
    mask = (np.arange(tokens) < lengths).astype(np.int64)
    ids = rng.integers(1, int(parameters["vocabulary"]), mask.shape) * mask
    return [{"input_ids": ids[index], "attention_mask": mask[index]} for index in range(count)]


BERT = Model(
    name="bert",
    description="a BERT encoder with seeded weights: fidelity only",
    parameters={
        "layers": IntRange(default=4, low=1, high=48),
        "hidden": IntRange(default=768, low=HEAD, high=8_192),
        "tokens": IntRange(default=128, low=1, high=512),
        "vocabulary": IntRange(default=30_522, low=2, high=1_000_000),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    module=module,
    trained=trained,
    draw=lambda given, batch: _draw_sets(given, batch, buffer_count(inputs(given, batch)), BUFFERS),
    calibration=lambda given, batch: _draw_sets(
        given, batch, set_count(CALIBRATION_ROWS, batch, inputs(given, batch)), CALIBRATION
    ),
    artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
)
