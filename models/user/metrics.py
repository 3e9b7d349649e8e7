"""Score each row of a model's output against its truth, by a metric that a user names: `accuracy`, `top5`, `iou@0.5`.

Truth is what the user knows of a row, or the model's own FP32 output of it. NumPy alone; nothing of a user's runs here.
A NaN in a row of the output or of the truth makes the row's score NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.contract import Array
from shootout.errors import UsageError, unknown

LOWEST_SCORE = 0.25
"""A detection with a lower score doesn't count as one."""
NO_CLASS = (-100, 255)
"""Class ids that mark a place (a pixel, a token) without a class: PyTorch's and Pascal VOC's."""
MOST_DB = 200.0
"""The PSNR of a row without error; infinity has no mean."""
BOX_COLUMNS = (4, 6)
"""A box has at least its corners, and at most a score and a class behind them."""
BOX_SIDES = (32, 96)
"""COCO's small boxes have a smaller area than the square of 32 pixels, its large ones at least that of 96."""
_USUAL_SIDE = 640
"""COCO's images are about so many pixels wide; boxes in shares of the image have no pixels."""
_MOST_SHARE_OF_SIDE = 2.0
"""Boxes whose coordinates are all smaller are in shares of the image's sides."""
LEAST_SHARE = 1e-10
"""A probability counts as at least this, else one zero makes a divergence infinite."""
CACHED_VALUES = 1 << 15
"""Divergences of a large map are computed for so many values at a time, which a cache holds."""
MOST_CLASSES = 1000
"""`propose` takes an output with more columns for an embedding."""
_PROBABILITY_SLACK = 0.01
"""A quantized sigmoid may leave [0, 1] by this."""
_SUM_SLACK = 0.05
"""A quantized softmax may miss a sum of 1 by this."""
_CLASS_METRICS = ("accuracy", "agree", "top", "kl", "f1", "auc")
_CLASSES = re.compile("logit|prob|class|label|softmax", re.IGNORECASE)
_EMBEDDING = re.compile("embed|hidden_state|feature|pooler", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """A metric with its parameter.

    Attributes:
        help: one sentence.
        unit: "" for a share or for the truth's own unit.
        score: takes one output with the rows along axis 0, and their truth: an array, or a list with one entry a row.
            Returns one float64 a row, or with `reduce` statistics (rows, ...) of numbers or objects.
        split: takes the same, and returns by part of the data (`class 7`) one float64 a row, NaN if the row has none of
            that part; None if the metric knows no parts.
        reduce: makes a metric of the whole set of the statistics of all rows; None if the metric is a mean over rows.
    """

    name: str
    help: str
    lower_is_better: bool
    unit: str
    score: Callable[[Array, Any], Array]
    split: Callable[[Array, Any], Mapping[str, Array]] | None = None
    reduce: Callable[[Array], WholeSet] | None = None

    @property
    def is_share(self) -> bool:
        """Return whether it is the mean of rows' scores, each a share of which more is better."""
        return not (self.lower_is_better or self.unit or self.reduce)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSet:
    """A metric of a whole set of rows.

    Attributes:
        value_of: takes (rows,) bool, and returns the metric of these rows.
        worst: what the metric may lose, times the number of rows, if one row fails; 0 if that isn't known.
    """

    value_of: Callable[[Array], float]
    worst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """The part of a metric's name after `@`.

    Attributes:
        letter: stands for it in help.
        expected: its valid values in words.
        read: makes a number of the text, or raises ValueError.
        required: the metric has no default.
    """

    letter: str
    expected: str
    read: Callable[[str], float]
    valid: Callable[[float], bool]
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """A metric before its parameter is known; the attributes that `NamedMetric` has too mean the same.

    Attributes:
        score: takes the metric's name, an output, its truth and the parameter, if one was given; so does `split`.
        reduce: takes the statistics and the parameter, if one was given.
    """

    name: str
    help: str
    score: Callable[..., Array]
    split: Callable[..., Mapping[str, Array]] | None = None
    reduce: Callable[..., WholeSet] | None = None
    lower_is_better: bool = False
    unit: str = ""
    parameter: Parameter | None = None

    @property
    def form(self) -> str:
        """Return how a user writes it."""
        if self.parameter is None:
            return self.name
        tail = f"@{self.parameter.letter}"
        return f"{self.name}{tail}" if self.parameter.required else f"{self.name}[{tail}]"


def pick(outputs: Mapping[str, Array], truth: Any, scores: str | None, metric: NamedMetric) -> tuple[Array, Any]:
    """Return the output and the truth that a metric compares.

    The output is the one called `scores`, else the first float output. A metric of classes takes the first float output
    with two axes, so that a scikit-learn file's `label` is passed over. If entries of the truth have outputs' names,
    only those outputs come into question.

    Args:
        truth: an array or list, or a dict of them by name.

    Raises:
        UsageError: it isn't clear which output or which truth is meant.
    """
    name = pick_output(outputs, truth, scores, metric)
    return outputs[name], truth[_pick_truth(name, list(truth), outputs)] if isinstance(truth, Mapping) else truth


def pick_output(outputs: Mapping[str, Array], truth: Any, scores: str | None, metric: NamedMetric) -> str:
    """Return the name of that output."""
    entries = list(truth) if isinstance(truth, Mapping) else None
    kinds = {name: (array.shape, array.dtype.name) for name, array in outputs.items()}
    return _pick_output(kinds, entries, scores, _axes_of(metric.name))


def propose(
    outputs: Mapping[str, tuple[tuple[int, ...], str]],
    truth: Mapping[str, tuple[tuple[int, ...], str]] | None,
    probabilities: Collection[str] = (),
) -> str:
    """Return a metric's name by the shapes and types of the outputs and of the truth.

    | truth                          | output                            | metric     |
    |--------------------------------|-----------------------------------|------------|
    | whole numbers (rows,)          | (rows, classes)                   | `accuracy` |
    | whole numbers (rows, places)   | (rows, places, classes)           | `accuracy` |
    | whole numbers of spatial shape | (rows, 1 or classes, ..., ...)    | `iou`      |
    | bool (rows,)                   | one float a row                   | `accuracy` |
    | bool of the output's shape     | more than one float a row         | `iou`      |
    | floats of the output's shape   | floats                            | `mae`      |
    | none: the model's own outputs  | its name says embedding, features | `cosine`   |
    | none                           | (rows, 2 to 1,000) of classes     | `agree`    |
    | none                           | (rows, over 1,000)                | `cosine`   |
    | none                           | (rows, ..., height, width)        | `iou`      |
    | none                           | whole numbers alone               | `agree`    |
    | none                           | any other                         | `rmse`     |

    Args:
        outputs: shape, rows first, and type of each by name.
        truth: likewise; None if the model's own FP32 outputs are the truth.
        probabilities: the outputs whose rows add up to 1. Others may hold classes, too, if their name says so.

    Raises:
        UsageError: no metric fits, or more than one.
    """
    if truth is None:
        return _propose_alone(outputs, probabilities)
    entries = list(truth)
    for axes in (None, 2):
        name = _pick_output(outputs, entries, None, axes)
        shape, _ = outputs[name]
        truth_shape, kind = truth[_pick_truth(name, entries, outputs)]
        metric = _propose_pair(shape, truth_shape, kind)
        if metric is not None and name == _pick_output(outputs, entries, None, _axes_of(metric)):
            return metric
    raise UsageError(
        "--metric auto: no metric, or more than one, fits these shapes and types; name one with --metric. "
        f"Outputs: {list_kinds(outputs)}. Truth: {list_kinds(truth)}"
    )


def are_probabilities(output: Array) -> bool:
    """Return whether each row of an output (rows, classes) adds up to 1, so that it holds classes and no amounts."""
    is_matrix = output.ndim == 2 and output.shape[1] > 1 and _is_float(output.dtype.name)
    return is_matrix and _are_shares(_as_numbers(output), 1)


def _propose_alone(outputs: Mapping[str, tuple[tuple[int, ...], str]], probabilities: Collection[str]) -> str:
    if not any(_is_float(kind) for _, kind in outputs.values()):
        return "agree"
    name = _pick_output(outputs, None, None, None)
    match outputs[name][0]:
        case _ if _EMBEDDING.search(name):
            return "cosine"
        case (_, columns) if columns > 1 and (name in probabilities or _CLASSES.search(name)):
            return "agree"
        case (_, columns) if columns > MOST_CLASSES:
            return "cosine"
        case (_, _, height, width) if height > 1 and width > 1:
            return "iou"
    return "rmse"


def _propose_pair(shape: tuple[int, ...], truth: tuple[int, ...], kind: str) -> str | None:
    """Return the metric for one output and one truth, or None."""
    same = _same_but_ones(shape, truth)
    if _is_float(kind):
        return "mae" if same else None
    if not kind.startswith(("int", "uint", "bool")):
        return None
    if same:
        if math.prod(shape[1:]) == 1:
            return "accuracy" if kind == "bool" else None  # whole numbers may be classes or amounts
        one_channel = len(shape) == 3 or (len(shape) >= 4 and 1 in (shape[1], shape[-1]))
        return "iou" if kind == "bool" or one_channel else None
    for axis in _class_axes(len(shape)):
        if _same_but_ones(_without(shape, axis), truth):
            return "iou" if len(shape) >= 4 else "accuracy"
    return None


def _axes_of(metric: str) -> int | None:
    """Return how many axes the output should have that a metric compares; None if it doesn't matter."""
    return 2 if metric.startswith(_CLASS_METRICS) else None


def _pick_output(
    kinds: Mapping[str, tuple[tuple[int, ...], str]],
    entries: Collection[str] | None,
    scores: str | None,
    axes: int | None,
) -> str:
    """Return the name of the output that is scored.

    Args:
        entries: the names of the truth's arrays; None for one array.
        axes: prefer an output with so many axes.
    """
    if scores is not None:
        if scores not in kinds:
            raise unknown("output", scores, kinds)
        return scores
    meant = {name: kind for name, kind in kinds.items() if name in (entries or ())} or kinds
    floats = [name for name, (_, kind) in meant.items() if _is_float(kind)] or (list(meant) if len(meant) == 1 else [])
    if not floats:
        raise UsageError(f"no output holds floats; name one with --scores: {list_kinds(kinds)}")
    return next((name for name in floats if len(meant[name][0]) == axes), floats[0])


def _pick_truth(output: str, entries: Sequence[str], outputs: Collection[str]) -> str:
    """Return the name of the truth's array that belongs to an output."""
    if output in entries:
        return output
    if len(entries) == 1 and entries[0] not in outputs:
        return entries[0]
    raise UsageError(
        f"no truth for output {output!r}: the truth has {', '.join(entries) or 'nothing'}; the outputs are "
        f"{', '.join(outputs)}. Name the truth's array like the output, or the output with --scores"
    )


def list_kinds(kinds: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """Write the shapes and types of arrays by name."""
    return ", ".join(f"{name} {kind}{list(shape)}".strip() for name, (shape, kind) in kinds.items()) or "none"


def _is_float(kind: str) -> bool:
    return "float" in kind


def score_rows(
    name: str, score: Callable[..., Array], parameters: tuple[float, ...], output: Array, truth: Any
) -> Array:
    """Check what every metric needs, score the rows, and give those with a NaN a NaN."""
    output, truth = _check_pair(name, output, truth)
    if not len(output):
        return np.zeros(0)
    with np.errstate(invalid="ignore", over="ignore"):
        rows = score(name, output, truth, *parameters)
    rows = rows.copy() if rows.dtype == object else rows.astype(np.float64)
    truth_gaps = [_has_nan(entry[None])[0] for entry in truth] if isinstance(truth, list) else _has_nan(truth)
    rows[_has_nan(output) | np.asarray(truth_gaps)] = np.nan
    return rows


def split_rows(
    name: str, split: Callable[..., Mapping[str, Array]], parameters: tuple[float, ...], output: Array, truth: Any
) -> Mapping[str, Array]:
    """Check the same, and score each part of the rows."""
    output, truth = _check_pair(name, output, truth)
    with np.errstate(invalid="ignore", over="ignore"):
        return split(name, output, truth, *parameters) if len(output) else {}


def _check_pair(name: str, output: Array, truth: Any) -> tuple[Array, Array | list[Array]]:
    output = _as_numbers(output)
    if output.dtype.kind not in "fiub" or not output.ndim:
        raise UsageError(f"{name}: expected an output of numbers, received {output.dtype}{list(output.shape)}")
    truth = _as_truth(name, truth)
    if len(truth) != len(output):
        raise UsageError(f"{name}: expected truth for {len(output)} rows, received {len(truth)}")
    return output, truth


def _as_truth(name: str, truth: Any) -> Array | list[Array]:
    """Return an array, or a list of arrays if the entries' shapes differ."""
    if isinstance(truth, np.ndarray) and truth.dtype != object:
        return np.atleast_1d(_as_numbers(truth))
    try:
        entries = [_as_numbers(entry) for entry in truth]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name}: expected truth with an array for each row, received {type(truth).__name__}"
        ) from error
    return np.stack(entries) if len({entry.shape for entry in entries}) == 1 else entries


def _as_numbers(values: Any) -> Array:
    """Return an array, of float32 if its type is one that NumPy itself lacks, such as bfloat16."""
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype.kind == "V" and _is_float(array.dtype.name) else array


def _has_nan(rows: Array) -> Array:
    if rows.dtype.kind != "f":
        return np.zeros(len(rows), bool)
    return np.asarray(np.isnan(rows).reshape(len(rows), -1).any(axis=1))


def _same_but_ones(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two shapes have the same rows, and the same axes but for those of length 1."""
    return shape[:1] == other[:1] and [n for n in shape[1:] if n != 1] == [n for n in other[1:] if n != 1]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _class_axes(rank: int) -> tuple[int, ...]:
    """Return where classes may lie, the likeliest first: (rows, tokens, classes), (rows, classes, height, width)."""
    return {1: (), 2: (1,), 3: (2, 1)}.get(rank, (1, rank - 1))


def _refuse_shape(name: str, expected: str, truth: Array | list[Array]) -> UsageError:
    shape = f"{len(truth)} rows of different shapes" if isinstance(truth, list) else f"{truth.dtype}{list(truth.shape)}"
    return UsageError(f"{name}: expected truth {expected}, received {shape}")


def _require_values(name: str, output: Array) -> None:
    if not output.size:
        raise UsageError(f"{name}: expected an output with values, received the shape {list(output.shape)}")


def _pair_values(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    """Return the values of each row of both sides as float64 (rows, values)."""
    if isinstance(truth, list) or not _same_but_ones(output.shape, truth.shape) or truth.dtype.kind not in "fiub":
        raise _refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
    _require_values(name, output)
    rows = len(output)
    return output.astype(np.float64).reshape(rows, -1), truth.astype(np.float64).reshape(rows, -1)


def _score_mae(name: str, output: Array, truth: Any) -> Array:
    values, expected = _pair_values(name, output, truth)
    return np.asarray(np.abs(values - expected).mean(axis=1))


def _score_rmse(name: str, output: Array, truth: Any) -> Array:
    values, expected = _pair_values(name, output, truth)
    return np.asarray(np.sqrt(np.square(values - expected).mean(axis=1)))


def _score_quantile(name: str, output: Array, truth: Any, share: float) -> Array:
    values, expected = _pair_values(name, output, truth)
    above = expected - values
    return np.asarray(np.maximum(share * above, (share - 1) * above).mean(axis=1))


def _score_cosine(name: str, output: Array, truth: Any) -> Array:
    values, expected = _pair_values(name, output, truth)
    lengths, others = np.linalg.norm(values, axis=1), np.linalg.norm(expected, axis=1)
    both = (lengths > 0) & (others > 0)
    shares = (values * expected).sum(axis=1) / np.where(both, lengths * others, 1)
    return np.asarray(np.where(both, np.clip(shares, -1, 1), (lengths == 0) & (others == 0)))


def _score_psnr(name: str, output: Array, truth: Any, peak: float | None = None) -> Array:
    values, expected = _pair_values(name, output, truth)
    if peak is not None:
        peaks: Any = peak
    elif truth.dtype.kind == "u":
        peaks = float(np.iinfo(truth.dtype).max)
    else:
        peaks = np.ptp(expected, axis=1)
        peaks = np.where(peaks > 0, peaks, np.abs(expected).max(axis=1))  # an image of one color
        peaks = np.where(peaks > 0, peaks, 1.0)
    share = np.square((values - expected) / np.reshape(peaks, (-1, 1))).mean(axis=1)
    return np.asarray(-10 * np.log10(np.maximum(share, 10 ** (-MOST_DB / 10))))


def _score_kl(name: str, output: Array, truth: Any) -> Array:
    _require_values(name, output)
    axes = _class_axes(output.ndim)
    if isinstance(truth, list) or truth.shape != output.shape or not axes or output.shape[axes[0]] < 2:
        raise _refuse_shape(name, f"of the output's shape {list(output.shape)}, with two classes at least", truth)
    are_shares = [_are_shares(scores, axes[0]) for scores in (output, truth)]
    scores, wanted = (
        np.moveaxis(array, axes[0], 1).reshape(len(array), array.shape[axes[0]], -1) for array in (output, truth)
    )
    places = max(CACHED_VALUES // scores.shape[1], 1)
    sums = np.zeros(len(output))
    for row, first in product(range(len(output)), range(0, scores.shape[2], places)):
        pair = (array[row, :, first : first + places] for array in (scores, wanted))
        (_, logs), (expected, differences) = (_find_shares(*one) for one in zip(pair, are_shares, strict=True))
        differences -= logs
        differences *= expected
        sums[row] += differences.sum()
    return sums / scores.shape[2]


def _are_shares(scores: Array, axis: int) -> bool:
    """Return whether class scores are probabilities rather than logits, but for what a quantized softmax may miss."""
    if (scores < -_PROBABILITY_SLACK).any():
        return False
    return not bool((np.abs(scores.sum(axis=axis, dtype=np.float64) - 1) > _SUM_SLACK).any())


def _find_shares(scores: Array, are_shares: bool) -> tuple[Array, Array]:
    """Return probabilities (classes, places) by class scores, and their logarithms."""
    values = scores.astype(np.float64, order="C")
    if are_shares:
        shares = np.maximum(values, 0, out=values)
        shares /= shares.sum(axis=0)
        return shares, np.log(np.maximum(shares, LEAST_SHARE))
    values -= values.max(axis=0)
    shares = np.exp(values)
    sums = shares.sum(axis=0)
    shares /= sums
    values -= np.log(sums)
    return shares, np.maximum(values, math.log(LEAST_SHARE), out=values)


def _find_right(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    """Return whether each place's class of highest score is the true one, and the true one."""
    chosen, expected, _ = _pair_classes(name, output, truth)
    return chosen == expected, expected


def _find_alike(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    if isinstance(truth, list) or not _same_but_ones(output.shape, truth.shape):
        raise _refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
    return _find_right(name, output, truth)


def _find_near(name: str, output: Array, truth: Any, most: float = 5) -> tuple[Array, Array]:
    """Return whether each place's true class is among the first, and that class."""
    if output.ndim < 2 or output.dtype.kind != "f":
        raise UsageError(
            f"{name}: expected an output of class scores (rows, classes), received {output.dtype}{list(output.shape)}"
        )
    _, expected, axis = _pair_classes(name, output, truth)
    classes = output.shape[axis] if axis is not None else 1
    if most >= classes:
        raise UsageError(f"{name}: every class is among the first {most:g} of {classes}; expected more classes")
    scores = np.moveaxis(output, axis or -1, -1)
    own = np.take_along_axis(scores, np.maximum(expected, 0)[..., None], axis=-1)
    earlier = np.arange(classes) < expected[..., None]
    ranks = ((scores > own) | ((scores == own) & earlier)).sum(axis=-1)
    return ranks < most, expected


FindRight = Callable[..., tuple[Array, Array]]
"""As `_find_right`, and with the metric's parameter."""


def _average_places(find: FindRight, name: str, *given: Any) -> Array:
    """Return the share of right places in each row, of those whose class is known."""
    right, expected = (places.reshape(len(places), -1) for places in find(name, *given))
    known = expected >= 0
    counts = known.sum(axis=1)
    if not counts.all():
        raise UsageError(f"{name}: expected a class for each row, received a row of truth without one")
    return np.asarray((right & known).sum(axis=1) / counts)


def _average_places_by_class(find: FindRight, name: str, *given: Any) -> dict[str, Array]:
    """Return the same of the places of each true class."""
    right, expected = (places.reshape(len(places), -1) for places in find(name, *given))
    return {
        f"class {int(id_)}": _divide((right & (expected == id_)).sum(axis=1), (expected == id_).sum(axis=1))
        for id_ in np.unique(expected[expected >= 0])
    }


def _divide(some: Array, all_: Array) -> Array:
    """Return the share of each row, NaN for none of none."""
    return np.where(all_ > 0, some / np.maximum(all_, 1), np.nan)


def _pair_classes(name: str, output: Array, truth: Any) -> tuple[Array, Array, int | None]:
    """Return the class of each place of the output and of the truth, -1 if unknown, and the output's axis of classes.

    There is no such axis (None) if the output holds class ids, or one score for two classes.
    """
    if isinstance(truth, list):
        raise _refuse_shape(name, f"of one shape in each row, for an output of the shape {list(output.shape)}", truth)
    _require_values(name, output)
    same = _same_but_ones(output.shape, truth.shape)
    if output.dtype.kind in "iub":
        if not same:
            raise _refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
        return output, _read_ids(name, truth, None).reshape(output.shape), None
    if math.prod(output.shape[1:]) == 1 and same:
        return *_split_by_threshold(name, output, truth, None), None
    for axis in _class_axes(output.ndim):
        if output.shape[axis] > 1 and _same_but_ones(place := _without(output.shape, axis), truth.shape):
            return output.argmax(axis), _read_ids(name, truth, output.shape[axis]).reshape(place), axis
    if output.shape == truth.shape:
        for axis in _class_axes(output.ndim):
            likeliest = axis == _class_axes(output.ndim)[0]
            if output.shape[axis] > 1 and (likeliest or output.shape[axis] == math.prod(output.shape[1:])):
                return output.argmax(axis), _find_first_class(name, truth, axis), axis
    places = " or ".join(f"{list(_without(output.shape, axis))}" for axis in _class_axes(output.ndim))
    expected = f"of class ids {places}, or class scores" if places else "of the shape"
    raise _refuse_shape(name, f"{expected} {list(output.shape)}", truth)


def _find_first_class(name: str, truth: Array, axis: int) -> Array:
    """Return the class with the highest score; whole numbers must be one-hot."""
    if truth.dtype.kind != "f" and not ((truth != 0).sum(axis) == 1).all():
        raise UsageError(
            f"{name}: expected class ids, class scores or one-hot masks as truth, received whole numbers "
            "that are not one-hot"
        )
    return np.asarray(truth.argmax(axis))


def _read_ids(name: str, truth: Array, classes: int | None) -> Array:
    """Return class ids as integers, -1 for a place without a class.

    Args:
        classes: so many there are; None if the output doesn't say it.
    """
    if truth.dtype.kind == "f":
        truth = np.nan_to_num(truth, nan=0)  # the row's score will be NaN
    if truth.dtype.kind not in "fiub" or (truth != np.floor(truth)).any():
        raise UsageError(f"{name}: expected class ids (whole numbers) as truth, received {truth.dtype}")
    ids = truth.astype(np.int64)
    unknown_class = np.isin(ids, [mark for mark in NO_CLASS if not 0 <= mark < (classes or 0)])
    beyond = (ids < 0) | (ids >= classes) if classes else ids < 0
    if (odd := ids[beyond & ~unknown_class]).size:
        raise UsageError(
            f"{name}: expected class ids from 0 {f'to {classes - 1}' if classes else 'up'} as truth, received {odd[0]}"
        )
    return np.where(unknown_class, -1, ids)


def _split_by_threshold(name: str, output: Array, truth: Array, threshold: float | None) -> tuple[Array, Array]:
    """Return where one channel of the output says yes, and where the truth does.

    Without a threshold it is 0.5 for probabilities, and 0 for logits, which reach beyond [0, 1].
    """
    known = truth[~np.isnan(truth)] if truth.dtype.kind == "f" else truth
    is_mask = bool(np.isin(known, (0, 1)).all() or np.isin(known, (0, 255)).all())
    if truth.dtype.kind not in "fiub" or (truth.dtype.kind != "f" and not is_mask):
        raise UsageError(f"{name}: expected 0 and 1 as truth for an output of one score, received other {truth.dtype}")
    if threshold is None:  # reference scores tell more surely than a quantized output what both are
        threshold = 0.0 if _are_logits(output if is_mask else truth) else 0.5
    return output > threshold, (truth > (0 if is_mask else threshold)).reshape(output.shape)


def _are_logits(values: Array) -> bool:
    return bool(((values < -_PROBABILITY_SLACK) | (values > 1 + _PROBABILITY_SLACK)).any())


def _score_iou(name: str, output: Array, truth: Any, threshold: float | None = None) -> Array:
    found = _count_overlap(name, output, truth, threshold)
    return _average_classes(found.hits, found.sizes - found.hits)


def _score_dice(name: str, output: Array, truth: Any, threshold: float | None = None) -> Array:
    found = _count_overlap(name, output, truth, threshold)
    return _average_classes(2 * found.hits, found.sizes)


def _split_iou(name: str, output: Array, truth: Any, threshold: float | None = None) -> dict[str, Array]:
    found = _count_overlap(name, output, truth, threshold)
    return _split_classes(found, _divide(found.hits, found.sizes - found.hits))


def _split_dice(name: str, output: Array, truth: Any, threshold: float | None = None) -> dict[str, Array]:
    found = _count_overlap(name, output, truth, threshold)
    return _split_classes(found, _divide(2 * found.hits, found.sizes))


def _split_classes(found: Overlap, shares: Array) -> dict[str, Array]:
    """Return the shares by class, of the rows whose truth has it."""
    by_class = zip(found.ids, shares.T, found.expected.T, strict=False)
    return {f"class {id_}": np.where(has, share, np.nan) for id_, share, has in by_class if has.any()}


def _average_classes(hits: Array, sizes: Array) -> Array:
    """Return the mean share over the classes that a row has; 1 if neither side has any."""
    present = sizes > 0
    sums = (hits / np.maximum(sizes, 1)).sum(axis=1)
    return np.where(present.any(axis=1), sums / np.maximum(present.sum(axis=1), 1), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Count places by class, each array (rows, classes).

    Attributes:
        hits: places where both sides have the class.
        sizes: the places of both sides added up.
        expected: whether the truth has the class.
        ids: of the classes; none for one channel, split at a threshold.
    """

    hits: Array
    sizes: Array
    expected: Array
    ids: Sequence[int]


def _count_overlap(name: str, output: Array, truth: Any, threshold: float | None) -> Overlap:
    _require_values(name, output)
    rows = len(output)
    one_channel = output.dtype.kind in "fb" and (output.ndim < 4 or 1 in (output.shape[1], output.shape[-1]))
    if one_channel and not isinstance(truth, list) and _same_but_ones(output.shape, truth.shape):
        yes, expected = (flags.reshape(rows, -1) for flags in _split_by_threshold(name, output, truth, threshold))
        return Overlap(
            hits=(yes & expected).sum(axis=1, keepdims=True),
            sizes=yes.sum(axis=1, keepdims=True) + expected.sum(axis=1, keepdims=True),
            expected=np.asarray(expected.any(axis=1, keepdims=True)),
            ids=(),
        )
    if threshold is not None:
        raise _refuse_shape(name, f"of the output's shape {list(output.shape)} and one channel for a threshold", truth)
    chosen, expected, axis = _pair_classes(name, output, truth)
    chosen, expected = (ids.reshape(rows, -1) for ids in (chosen, expected))
    known = expected >= 0
    if not known.any(axis=1).all():
        raise UsageError(f"{name}: expected a class for each row, received a row of truth without one")
    ids: Array = np.arange(output.shape[axis] if axis is not None else 0)
    if axis is None:  # ids of the model's own, as large as they may be
        both = np.stack([chosen.astype(np.int64), expected])
        ids = np.unique(both)
        chosen, expected = np.searchsorted(ids, both)
    classes = len(ids)
    firsts = np.arange(rows)[:, None] * classes

    def count(places: Array, flags: Array) -> Array:
        return np.bincount((firsts + places)[flags], minlength=rows * classes).reshape(rows, classes)

    counts = count(expected, known)
    return Overlap(
        hits=count(expected, known & (chosen == expected)),
        sizes=count(chosen, known) + counts,
        expected=counts > 0,
        ids=ids.tolist(),
    )


def _score_ctc(name: str, output: Array, truth: Any, blank: float = 0) -> Array:
    pairs = _decode_rows(name, output, truth, int(blank))
    return np.array([1 - _edit_distance(*pair) / max(*map(len, pair), 1) for pair in pairs])


def _decode_rows(name: str, output: Array, truth: Any, blank: int) -> list[tuple[Array, Array]]:
    """Return the class ids that each row of the output says, and those of its truth."""
    if output.ndim != 3 or output.dtype.kind != "f" or not -1 <= blank < output.shape[2]:
        raise UsageError(
            f"{name}: expected an output of scores (rows, time, classes) with class {blank:g}, "
            f"received {output.dtype}{list(output.shape)}"
        )
    silent = blank % output.shape[2]
    expected = [_read_sequence(name, entry, silent, output.shape[2]) for entry in truth]
    return list(zip((_decode_ctc(scores, silent) for scores in output), expected, strict=True))


def _decode_ctc(scores: Array, blank: int) -> Array:
    """Return the best class of each step, repeats as one, without blanks."""
    best = scores.argmax(axis=1)
    fresh = np.ones(len(best), bool)
    fresh[1:] = best[1:] != best[:-1]
    return np.asarray(best[fresh & (best != blank)])


def _read_sequence(name: str, entry: Array, blank: int, classes: int) -> Array:
    """Return one row's truth as class ids: decoded from scores, or ids without blanks and fillers below 0."""
    if entry.ndim == 2 and entry.dtype.kind == "f" and entry.shape[1] == classes:
        return _decode_ctc(entry, blank)
    if entry.ndim != 1 or (entry.size and entry.dtype.kind not in "iu"):
        raise _refuse_shape(name, f"of class ids (length), or of scores (time, {classes}), a row", entry)
    if entry.max(initial=0) >= classes:
        raise UsageError(f"{name}: expected class ids from 0 to {classes - 1} as truth, received {entry.max()}")
    return np.asarray(entry[(entry >= 0) & (entry != blank)])


def _edit_distance(left: Array, right: Array) -> int:
    """Return Levenshtein's distance, row by row of its table."""
    steps = np.arange(len(right) + 1)
    distances = steps
    for symbol in left:
        changed = np.minimum(distances[1:] + 1, distances[:-1] + (right != symbol))
        row = np.concatenate([distances[:1] + 1, changed])
        distances = np.minimum.accumulate(row - steps) + steps  # symbols put in from the left
    return int(distances[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedBoxes:
    """Hold one row's boxes.

    Attributes:
        boxes: so many the output has.
        expected: the true boxes.
        found: which of them an output's box matches.
    """

    boxes: int
    expected: Array
    found: Array


def _match_rows(name: str, output: Array, truth: Any, overlap: float) -> list[MatchedBoxes]:
    if output.ndim == 2 and len(output) == 1 and isinstance(truth, np.ndarray) and truth.ndim == 2:
        output, truth = output[:, None], truth[:, None]
    check_boxes(name, output)
    return [_match_boxes(name, *pair, overlap) for pair in zip(output, truth, strict=True)]


def check_boxes(name: str, output: Array) -> None:
    """Refuse an output that holds no boxes, such as a detector's raw head: (rows, 4 + classes, boxes)."""
    if output.ndim != 3 or not BOX_COLUMNS[0] <= output.shape[2] <= BOX_COLUMNS[1]:
        raise UsageError(
            f"{name}: expected an output of boxes (rows, boxes, 4 to 6 of x1 y1 x2 y2 score class), "
            f"received {list(output.shape)}; decode a raw head by a metric of your own: see docs/metrics.md"
        )


def _match_boxes(name: str, output: Array, truth: Any, overlap: float) -> MatchedBoxes:
    """Match one row's boxes one to one, the surest first, of the same class if both sides say it."""
    boxes, expected = _read_boxes(name, output), _read_boxes(name, truth, is_truth=True)
    found = np.zeros(len(expected), bool)
    if not len(boxes) or not len(expected):
        return MatchedBoxes(boxes=len(boxes), expected=expected, found=found)
    if boxes.shape[1] > 4:
        boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")]
    shares = _find_overlaps(boxes, expected)
    if boxes.shape[1] > 5 and expected.shape[1] > 5:
        shares[boxes[:, None, 5] != expected[None, :, 5]] = 0
    for row in np.flatnonzero((shares >= overlap).any(axis=1)):
        if shares[row, nearest := shares[row].argmax()] >= overlap:
            found[nearest] = True
            shares[:, nearest] = -1
    return MatchedBoxes(boxes=len(boxes), expected=expected, found=found)


def _score_boxes(name: str, output: Array, truth: Any, overlap: float = 0.5) -> Array:
    """Return the F1 of each row; 1 if neither side has a box."""
    matched = _match_rows(name, output, truth, overlap)
    sizes = np.array([one.boxes + len(one.expected) for one in matched])
    return np.where(sizes > 0, [2 * one.found.sum() for one in matched] / np.maximum(sizes, 1), 1.0)


def _split_boxes(name: str, output: Array, truth: Any, overlap: float = 0.5) -> dict[str, Array]:
    """Return the share of true boxes that are found, by their size and class."""
    matched = _match_rows(name, output, truth, overlap)
    shares: dict[str, Array] = {}
    for row, one in enumerate(matched):
        for part, flags in _name_parts(one.expected).items():
            shares.setdefault(part, np.full(len(matched), np.nan))[row] = one.found[flags].mean()
    return shares


def _name_parts(boxes: Array) -> dict[str, Array]:
    """Return which boxes are of each size and class that there is."""
    areas: Array = np.maximum(boxes[:, 2:4] - boxes[:, :2], 0).prod(axis=1)
    small, medium = (side**2 for side in BOX_SIDES)
    names = "under 32² pixels", "of 32² to 96² pixels", "over 96² pixels"
    if boxes[:, :4].max(initial=0) <= _MOST_SHARE_OF_SIDE:
        areas = areas * _USUAL_SIDE**2
        names = "under 0.25 % of the image", "of 0.25 to 2.25 % of the image", "over 2.25 % of the image"
    flags: tuple[Array, ...] = areas < small, (areas >= small) & (areas < medium), areas >= medium
    parts = {f"boxes {name}": some for name, some in zip(names, flags, strict=True)}
    if boxes.shape[1] > 5:
        parts |= {f"class {id_:g}": boxes[:, 5] == id_ for id_ in np.unique(boxes[:, 5])}
    return {name: some for name, some in parts.items() if some.any()}


def _read_boxes(name: str, entry: Array, *, is_truth: bool = False, least: float = LOWEST_SCORE) -> Array:
    """Return one row's boxes, without fillers (four equal coordinates) and those with a lower score than the least."""
    if not entry.size:
        return np.zeros((0, 6))
    if entry.ndim != 2 or entry.shape[1] < 4 or entry.dtype.kind not in "fiu":
        raise _refuse_shape(name, "of boxes (boxes, 4 to 6 of x1 y1 x2 y2 score class) a row", entry)
    boxes: Array = entry.astype(np.float64)[(entry[:, :4] != entry[:, :1]).any(axis=1)]
    if boxes.shape[1] == 4:
        return boxes
    if is_truth and _are_logits(boxes[:, 4]):
        raise UsageError(f"{name}: expected x1 y1 x2 y2 score class as truth, received a score beyond 0 to 1")
    return np.asarray(boxes[~(boxes[:, 4] < least)])


def _find_overlaps(boxes: Array, others: Array) -> Array:
    """Return the intersection over union of each pair."""
    corners, other_corners = boxes[:, None], others[None]
    sides = np.minimum(corners[..., 2:4], other_corners[..., 2:4]) - np.maximum(
        corners[..., :2], other_corners[..., :2]
    )
    common = np.maximum(sides, 0).prod(axis=-1)
    areas, other_areas = (np.maximum(c[..., 2:4] - c[..., :2], 0).prod(axis=-1) for c in (corners, other_corners))
    return np.asarray(common / np.maximum(areas + other_areas - common, np.finfo(np.float64).tiny))


_THRESHOLD = Parameter(letter="T", expected="T a number, the threshold of one channel", read=float, valid=math.isfinite)

ROW_METRICS: Mapping[str, MetricFamily] = MappingProxyType(
    {
        family.name: family
        for family in (
            MetricFamily(
                name="accuracy",
                help="Give the share of rows (or of a row's places) whose class of highest score is the true one.",
                score=partial(_average_places, _find_right),
                split=partial(_average_places_by_class, _find_right),
            ),
            MetricFamily(
                name="agree",
                help="Give the share of rows (or of a row's places) where output and truth have the same first class.",
                score=partial(_average_places, _find_alike),
                split=partial(_average_places_by_class, _find_alike),
            ),
            MetricFamily(
                name="top",
                help="Give the share of rows whose true class is among the K (5) with the highest scores: `top5`.",
                score=partial(_average_places, _find_near),
                split=partial(_average_places_by_class, _find_near),
                parameter=Parameter(
                    letter="K", expected="K a whole number from 1", read=int, valid=lambda value: value >= 1
                ),
            ),
            MetricFamily(
                name="mae", help="Give the mean absolute error of a row.", lower_is_better=True, score=_score_mae
            ),
            MetricFamily(
                name="rmse",
                help="Give the root of the mean squared error within a row.",
                lower_is_better=True,
                score=_score_rmse,
            ),
            MetricFamily(
                name="quantile",
                help="Give the mean pinball loss of a row for a forecast of quantile Q: `quantile@0.9`.",
                lower_is_better=True,
                score=_score_quantile,
                parameter=Parameter(
                    letter="Q",
                    expected="Q a number between 0 and 1",
                    read=float,
                    valid=lambda value: 0 < value < 1,
                    required=True,
                ),
            ),
            MetricFamily(
                name="cosine", help="Give the cosine similarity of a row's output and truth.", score=_score_cosine
            ),
            MetricFamily(
                name="iou",
                help="Give the intersection over union of masks, averaged over classes; one channel is split at T.",
                score=_score_iou,
                split=_split_iou,
                parameter=_THRESHOLD,
            ),
            MetricFamily(
                name="dice",
                help="Give the Dice score (F1) of masks, averaged over classes; one channel is split at T.",
                score=_score_dice,
                split=_split_dice,
                parameter=_THRESHOLD,
            ),
            MetricFamily(
                name="kl",
                help="Give the Kullback-Leibler divergence of the output's class probabilities from the truth's.",
                lower_is_better=True,
                unit="nats",
                score=_score_kl,
            ),
            MetricFamily(
                name="psnr",
                help="Give the peak signal-to-noise ratio of a row; PEAK is by default the range of its truth.",
                unit="dB",
                score=_score_psnr,
                parameter=Parameter(
                    letter="PEAK",
                    expected="PEAK a number above 0",
                    read=float,
                    valid=lambda value: 0 < value < math.inf,
                ),
            ),
            MetricFamily(
                name="ctc",
                help="Give 1 minus the edit distance of the greedily decoded text, per symbol of the longer text.",
                score=_score_ctc,
                parameter=Parameter(
                    letter="BLANK",
                    expected="BLANK a class id (0 by default), or -1 for the last class",
                    read=int,
                    valid=lambda value: value >= -1,
                ),
            ),
            MetricFamily(
                name="boxes",
                help="Give the F1 of a row's boxes, matched one to one at an intersection over union of IOU (0.5); a "
                f"score below {LOWEST_SCORE} counts as no box.",
                score=_score_boxes,
                split=_split_boxes,
                parameter=Parameter(
                    letter="IOU",
                    expected="IOU a number above 0 and up to 1",
                    read=float,
                    valid=lambda value: 0 < value <= 1,
                ),
            ),
        )
    }
)
"""The metrics of a row by name."""
