"""An encoder of the shape of MiniLM-L6 with seeded weights: token ids and a mask in, one vector out."""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """Attend, then widen and narrow; each with a norm behind it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape; none attends to where `padding` is true."""
        batch, tokens, width = x.shape
        q, k, v = (one.reshape(batch, tokens, self.heads, -1).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(2, 3) * (width // self.heads) ** -0.5).masked_fill(padding, -1e4)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = self.first(x + self.out(mixed))
        return torch.as_tensor(self.last(x + self.wide(x)))


class Encoder(nn.Module):
    """Embed words and places, and average the tokens that the mask leaves."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.layers = nn.ModuleList(Layer(width, width // 32) for _ in range(layers))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return a vector for each row of token ids."""
        x = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, attention_mask[:, None, None] == 0)
        mask = attention_mask[:, :, None].float()
        return (x * mask).sum(1) / mask.sum(1)


def make(
    sequence: int = 64, width: int = 384, layers: int = 6, batch: int = 1
) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Make it, and an example whose last quarter is padding; the weights come first, so that no size changes them."""
    torch.manual_seed(0)
    net = Encoder(width, layers).eval()
    ids = torch.randint(1, 30522, (batch, sequence))
    mask = torch.ones_like(ids)
    mask[:, -(sequence // 4) :] = 0
    return net, {"input_ids": ids * mask, "attention_mask": mask}
