"""Score embeddings by cosine and by rank; token embeddings are pooled first, as sentence-transformers does it.

The outputs and FP32's own are pooled before they are compared, so that no backend has to hold the pooling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError
from shootout.models.data.text_folder import POOLINGS
from shootout.models.metrics.metrics import SCIKIT_LEARN, Metric, pair_values
from shootout.models.metrics.set_metrics import SET_METRICS

MASK = "attention_mask"
"""The input that is 1 for each token of a text, and 0 for padding."""
NEIGHBORS = 10


def read_pooling(text: str) -> str:
    """Return the pooling of this name.

    Raises:
        ValueError: there is none.
    """
    if text not in POOLINGS.values():
        raise ValueError(text)
    return text


def pool(pooling: str, output: Array, inputs: Arrays) -> Array:
    """Return one float64 embedding for each row, (rows, values).

    Args:
        pooling: one of `POOLINGS`' values.
        output: (rows, tokens, values); one of (rows, values) is pooled already, and stays as it is.
        inputs: of the same rows; without `MASK` among them, every token counts.

    Raises:
        UsageError: the output has another shape, or not the mask's tokens.

    Source: `Pooling` of sentence-transformers.
    """
    if output.ndim == 2:
        return output
    if output.ndim != 3:
        raise UsageError(
            f"{pooling} pooling: expected token embeddings (rows, tokens, values) or embeddings (rows, values), "
            f"received {output.dtype}{list(output.shape)}; name another output with --scores"
        )
    mask = np.asarray(inputs.get(MASK, np.ones(output.shape[:2])))
    if mask.shape != output.shape[:2]:
        raise UsageError(
            f"{pooling} pooling: expected an output with the tokens of {MASK} {list(mask.shape)}, received "
            f"{output.dtype}{list(output.shape)}; name another output with --scores"
        )
    return _WAYS[pooling](output.astype(np.float64), mask != 0)


def _average(tokens: Array, weights: Array) -> Array:
    return np.asarray((tokens * weights[..., None]).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)[:, None])


def _weigh_rising(tokens: Array, mask: Array) -> Array:
    return _average(tokens, mask * mask.cumsum(axis=1))


def _take_largest(tokens: Array, mask: Array) -> Array:
    return np.asarray(np.where(mask[..., None], tokens, -np.inf).max(axis=1))


def _take_first(tokens: Array, mask: Array) -> Array:
    return np.asarray(tokens[np.arange(len(tokens)), mask.argmax(axis=1)])


def _take_last(tokens: Array, mask: Array) -> Array:
    return np.asarray(tokens[np.arange(len(tokens)), mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)])


def _score_cosine(name: str, output: Array, truth: Any, *_: str) -> Array:
    """Return scikit-learn's `cosine_similarity` of each pair of rows, and 1 for two rows of zeros."""
    from sklearn import config_context
    from sklearn.preprocessing import normalize

    pair = pair_values(name, output, truth)
    with config_context(assume_finite=True):
        values, expected = map(normalize, pair)
    are_zero = ~(values.any(axis=1) | expected.any(axis=1))
    return np.asarray(np.where(are_zero, 1.0, np.clip((values * expected).sum(axis=1), -1, 1)))


_WAYS: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {"mean": _average, "cls": _take_first, "max": _take_largest, "last": _take_last, "weighted": _weigh_rising}
)
"""Each takes (rows, tokens, values) and the mask of bool (rows, tokens)."""

_COSINE = Metric(
    name="cosine",
    help="Give the cosine similarity of a row's output and truth; with POOLING, of token embeddings pooled to one a "
    "row.",
    library=SCIKIT_LEARN,
    row_scores=_score_cosine,
    form="cosine[@POOLING]",
    read=read_pooling,
    takes=f"POOLING one of {', '.join(_WAYS)}",
    pools=pool,
)
_RECALL = next(one for one in SET_METRICS if one.name == "recall")
EMBEDDING_METRICS = (
    _COSINE,
    replace(
        _COSINE,
        name="embedding",
        help=f"Give both cosine and recall@{NEIGHBORS}, each with a limit of its own; with POOLING, as cosine.",
        form="embedding[@POOLING]",
        parts=(_COSINE, replace(_RECALL, name=f"recall@{NEIGHBORS}", given=(NEIGHBORS,))),
    ),
)
"""Score how far an embedding moved, and if the same rows are nearest to it."""
