"""Build a small pre-norm transformer decoder with seeded weights, as the two static models that serving one is made of.

`decoder_prefill` reads a whole prompt: scores for the token that follows, and each layer's keys and values.
`decoder_step` reads one token more, with the keys and values of `context` earlier ones as inputs. Both have the same
weights for the same seed, so a step after a prefill is the prefill of one token more (a test compares them).

Layer norm before attention and before the feed-forward part, tanh-GELU, no biases; positions are those of Vaswani et
al. 2017 (arXiv:1706.03762, section 3.5), which take no weights. Attention is written out, so that every runtime reads
the same graph of matrix products and a softmax. Token ids are int32: every runtime takes them without a conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.constants import CALIBRATION_BYTES, CALIBRATION_ROWS
from shootout.contract import Array, Arrays, TensorSpec
from shootout.errors import UsageError
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters, buffer_count, set_bytes, set_count
from shootout.models.seeding import variance_kept

if TYPE_CHECKING:
    import torch
    from torch import nn

HEAD, WIDENED, EPS = 64, 4, 1e-5
LONGEST_WAVE = 10_000.0
"""The longest wave of the positions, as in the paper."""
MASKED = -1e4
"""The score of a later token: e to this power is 0 in every precision, and FP16 holds it."""
KEPT, COPIED = "kept", "copied"
"""The ways of a step with the cache. It stays with the caller, which gets the new token's keys and values and appends
them; or all of it comes out again, one token longer, as exporters write it.
"""
WORDS = "words.weight"
BUFFERS, CALIBRATION = range(2)
"""The seeds of drawn inputs: each purpose has its own."""


def prefill_inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return token ids, (batch, tokens).

    Raises:
        UsageError: `d_model` can't be shared out among attention heads.
    """
    _head_count(parameters)
    return (TensorSpec(name="tokens", shape=(batch, int(parameters["tokens"])), dtype="int32"),)


def step_inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return one token id, (batch, 1), and of each layer the keys and the values so far, (batch, heads, context, 64).

    Raises:
        UsageError: `d_model` can't be shared out among attention heads.
    """
    shape = (batch, _head_count(parameters), int(parameters["context"]), HEAD)
    past = [TensorSpec(name=f"past_{name}", shape=shape, dtype="float32") for name in _cache_names(parameters)]
    return (TensorSpec(name="token", shape=(batch, 1), dtype="int32"), *past)


def outputs(parameters: Parameters) -> tuple[str, ...]:
    """Return the scores, (batch, vocabulary), and of each layer the keys and the values."""
    return ("scores", *_cache_names(parameters))


def parameter_count(parameters: Parameters) -> int:
    """Count the weights of words, layers and head."""
    width = int(parameters["d_model"])
    layer = (4 + 2 * WIDENED) * width**2 + 4 * width
    return int(parameters["n_layers"]) * layer + 2 * int(parameters["vocabulary"]) * width + 2 * width


def positions(first: int, count: int, width: int) -> Array:
    """Return what is added to the tokens at so many positions: (count, width), sines first, then cosines."""
    wave = LONGEST_WAVE ** (-np.arange(0, width, 2) / width)
    angles = np.arange(first, first + count)[:, None] * wave
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init. It returns a tuple, in the order of `outputs`."""
    import torch
    from torch import nn

    width, layers, vocabulary = (int(parameters[name]) for name in ("d_model", "n_layers", "vocabulary"))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocabulary, width)
            self.layers = nn.ModuleList(_make_layer(parameters) for _ in range(layers))
            self.norm = nn.LayerNorm(width, eps=EPS)
            self.head = nn.Linear(width, vocabulary, bias=False)
            places = torch.from_numpy(positions(*_token_places(parameters), width))
            self.register_buffer("positions", places, persistent=False)

        def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x, cache = self.words(tokens) + self.positions, []
            for index, layer in enumerate(self.layers):
                x, *own = layer(x, *past[2 * index : 2 * index + 2])
                cache += own
            return self.head(self.norm(x[:, -1])), *cache

    return Decoder().eval()


def trained(parameters: Parameters) -> nn.Module:
    """Draw seeded weights: linear layers of deviation 1/sqrt(what they read), so that keys are near standard normal."""
    return variance_kept(module, parameters)


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Write the same model in an array library; `xp.dtype` follows the weights."""
    heads, count = _head_count(parameters), int(parameters["n_layers"])
    words, head = weights[WORDS], weights["head.weight"].T
    added = positions(*_token_places(parameters), words.shape[1]).astype(words.dtype)
    attend, last = _make_attention(xp, parameters), _make_norm(xp, weights, "norm")
    norms = [
        [_make_norm(xp, weights, f"layers.{index}.{name}") for name in ("before", "middle")] for index in range(count)
    ]
    matrices = [
        [weights[f"layers.{index}.{name}.weight"].T for name in ("attention", "out", "up", "down")]
        for index in range(count)
    ]
    past_names, cache_names = [f"past_{name}" for name in _cache_names(parameters)], _cache_names(parameters)

    def run(inputs: Arrays) -> dict[str, Array]:
        tokens = inputs["token" if "context" in parameters else "tokens"]
        past = [inputs[name] for name in past_names] if "context" in parameters else []
        x, found = words[tokens] + added, list[Array]()
        for index, ((before, middle), (attention, out, up, down)) in enumerate(zip(norms, matrices, strict=True)):
            parts = (before(x) @ attention).reshape(*x.shape[:2], 3, heads, HEAD).transpose(2, 0, 3, 1, 4)
            y, *own = attend(*parts, *past[2 * index : 2 * index + 2])
            x = x + y.transpose(0, 2, 1, 3).reshape(x.shape) @ out
            x = x + _gelu(xp, middle(x) @ up) @ down
            found += own
        return {"scores": last(x[:, -1]) @ head, **dict(zip(cache_names, found, strict=True))}

    return run


def _head_count(parameters: Parameters) -> int:
    width = int(parameters["d_model"])
    if width % HEAD:
        raise UsageError(f"d_model must be a multiple of {HEAD} (one attention head), got {width}")
    return width // HEAD


def _cache_names(parameters: Parameters) -> list[str]:
    return [f"{what}_{index}" for index in range(int(parameters["n_layers"])) for what in ("keys", "values")]


def _token_places(parameters: Parameters) -> tuple[int, int]:
    """Return the first position and how many."""
    return (int(parameters["context"]), 1) if "context" in parameters else (0, int(parameters["tokens"]))


def _later_tokens(tokens: int) -> Array:
    """Return (tokens, tokens): whether a token comes after the one that looks."""
    return np.triu(np.ones((tokens, tokens), dtype=bool), 1)


def _make_layer(parameters: Parameters) -> nn.Module:
    import torch
    from torch import nn

    width, steps, cache = int(parameters["d_model"]), "context" in parameters, str(parameters.get("cache", ""))

    class DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.middle = nn.LayerNorm(width, eps=EPS), nn.LayerNorm(width, eps=EPS)
            self.attention = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, WIDENED * width, bias=False)
            self.down = nn.Linear(WIDENED * width, width, bias=False)
            self.gelu = nn.GELU(approximate="tanh")
            if not steps:
                self.register_buffer(
                    "later", torch.from_numpy(_later_tokens(int(parameters["tokens"]))), persistent=False
                )

        def forward(self, x: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
            shape = (x.shape[0], x.shape[1], width // HEAD, HEAD)
            parts = self.attention(self.before(x)).chunk(3, -1)
            query, keys, values = (part.view(shape).transpose(1, 2) for part in parts)
            query = query * HEAD**-0.5
            if cache == KEPT:
                scores = torch.cat([query @ past[0].transpose(2, 3), query @ keys.transpose(2, 3)], -1)
                shares, context = scores.softmax(-1), past[0].shape[2]
                y = shares[..., :context] @ past[1] + shares[..., context:] @ values
            else:
                if cache == COPIED:
                    keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
                scores = query @ keys.transpose(2, 3)
                y = (scores if steps else scores.masked_fill(self.later, MASKED)).softmax(-1) @ values
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(self.gelu(self.up(self.middle(x)))), keys, values

    return DecoderLayer()


def _make_attention(xp: Any, parameters: Parameters) -> Callable[..., tuple[Array, ...]]:
    """Make a function that reads queries, keys and values, and returns the result and what to keep of both.

    In a step it also takes the earlier keys and values.
    """
    cache = str(parameters.get("cache", ""))
    later = None if "context" in parameters else _later_tokens(int(parameters["tokens"]))

    def attend(query: Any, keys: Any, values: Any, *past: Any) -> tuple[Array, ...]:
        query = query * HEAD**-0.5
        if cache == KEPT:
            context = past[0].shape[2]
            scores = [query @ one.transpose(0, 1, 3, 2) for one in (past[0], keys)]
            shares = _softmax(xp, xp.concatenate(scores, axis=-1))
            return shares[..., :context] @ past[1] + shares[..., context:] @ values, keys, values
        if cache == COPIED:
            keys, values = (xp.concatenate(pair, axis=2) for pair in zip(past, (keys, values), strict=True))
        scores = query @ keys.transpose(0, 1, 3, 2)
        if later is not None:
            scores = xp.where(later, xp.asarray(MASKED, dtype=scores.dtype), scores)
        return _softmax(xp, scores) @ values, keys, values

    return attend


def _softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _make_norm(xp: Any, weights: Arrays, name: str) -> Callable[[Any], Any]:
    scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def norm(x: Any) -> Any:
        centered = x - x.mean(axis=-1, keepdims=True)
        return centered / xp.sqrt((centered * centered).mean(axis=-1, keepdims=True) + EPS) * scale + shift

    return norm


def _gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _draw_sets(parameters: Parameters, batch: int, count: int, purpose: int) -> list[dict[str, Array]]:
    """Draw random tokens, and standard normal keys and values: what these weights give, but for their being related."""
    rng, specs = np.random.default_rng([int(parameters["seed"]), purpose]), _inputs_of(parameters, batch)

    def drawn(spec: TensorSpec) -> Array:
        if spec.dtype == "int32":
            return rng.integers(0, int(parameters["vocabulary"]), spec.shape, dtype=np.int32)
        return rng.standard_normal(spec.shape, dtype=np.float32)

    return [{spec.name: drawn(spec) for spec in specs} for _ in range(count)]


def _inputs_of(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    return (step_inputs if "context" in parameters else prefill_inputs)(parameters, batch)


def _draw_buffers(parameters: Parameters, batch: int) -> list[dict[str, Array]]:
    return _draw_sets(parameters, batch, buffer_count(_inputs_of(parameters, batch)), BUFFERS)


def _draw_calibration(parameters: Parameters, batch: int) -> list[dict[str, Array]]:
    specs = _inputs_of(parameters, batch)
    many = min(set_count(CALIBRATION_ROWS, batch, specs), CALIBRATION_BYTES // set_bytes(specs))
    return _draw_sets(parameters, batch, max(many, buffer_count(specs)), CALIBRATION)


_SIZES: dict[str, IntRange] = {
    "d_model": IntRange(default=256, low=HEAD, high=16_384),
    "n_layers": IntRange(default=2, low=1, high=128),
    "vocabulary": IntRange(default=1_024, low=2, high=1_000_000),
}
PREFILL = Model(
    name="decoder_prefill",
    description="a small transformer decoder reads a prompt: the next token's scores, keys and values",
    parameters={**_SIZES, "tokens": IntRange(default=32, low=1, high=16_384), "seed": SEED},
    parameter_count=parameter_count,
    inputs=prefill_inputs,
    outputs=outputs,
    forward=forward,
    module=module,
    trained=trained,
    draw=_draw_buffers,
    calibration=_draw_calibration,
    tables=(WORDS,),
)
STEP = replace(
    PREFILL,
    name="decoder_step",
    description="the same decoder reads one token more, after `context` ones whose keys and values are inputs",
    parameters={
        **_SIZES,
        "context": IntRange(default=64, low=1, high=131_072),
        "cache": Choice(default=KEPT, choices=(KEPT, COPIED)),
        "seed": SEED,
    },
    inputs=step_inputs,
)
