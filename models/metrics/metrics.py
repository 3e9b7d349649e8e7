"""Score each row of a model's output against its truth, by a metric that a user names: `accuracy`, `top-5`, `iou`.

Truth is what the user knows of a row, or the model's own FP32 output of it. scikit-learn computes the scores, or NumPy
where that is the same; nothing of a user's runs here. A NaN in a row of either side makes the row's score NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, unknown

NO_CLASS = (-100, 255)
"""Class ids that mark a place (a pixel, a token) without a class: PyTorch's and Pascal VOC's."""
MOST_COUNTED = 1 << 20
"""So many pairs of classes are counted by a table, more by sorting."""
MOST_CLASSES = 1000
"""`propose` takes an output with more columns for an embedding."""
_PROBABILITY_SLACK = 0.01
"""A quantized sigmoid may leave [0, 1] by this."""
_SUM_SLACK = 0.05
"""A quantized softmax may miss a sum of 1 by this."""
_CLASS_METRICS = ("accuracy", "top", "f1", "auc")
_CLASSES = re.compile("logit|prob|class|label|softmax", re.IGNORECASE)
_EMBEDDING = re.compile("embed|hidden_state|feature|pooler", re.IGNORECASE)
TOP = "top-K"
"""The family of `top-5`, whose parameter has no `@`."""
SCIKIT_LEARN = "scikit-learn"
MODULES: Mapping[str, str] = MappingProxyType({SCIKIT_LEARN: "sklearn"})
"""The names that packages are imported by, if these aren't their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """A metric with its parameter.

    Attributes:
        help: one sentence.
        library: the package that computes it; "" for NumPy.
        score: takes one output with the rows along axis 0, and their truth: an array, or a list with one entry a row.
            Returns one float64 a row, or with `reduce` statistics (rows, ...) of numbers or objects.
        split: takes the same, and returns by part of the data (`class 7`) one float64 a row, NaN if the row has none of
            that part; None if the metric knows no parts.
        reduce: makes a metric of the whole set of the statistics of all rows; None if the metric is a mean over rows.
    """

    name: str
    help: str
    lower_is_better: bool
    score: Callable[[Array, Any], Array]
    library: str = ""
    split: Callable[[Array, Any], Mapping[str, Array]] | None = None
    reduce: Callable[[Array], WholeSet] | None = None

    @property
    def is_share(self) -> bool:
        """Return whether it is the mean of rows' scores, each a share of which more is better."""
        return not (self.lower_is_better or self.reduce)

    def require_library(self) -> None:
        """Refuse the metric if its library is missing.

        Raises:
            UsageError: it is; says how to install it.
        """
        if self.library and find_spec(MODULES.get(self.library, self.library)) is None:
            raise UsageError(f"metric {self.name!r} needs {self.library}: python -m pip install {self.library}")


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
    library: str = ""
    parameter: Parameter | None = None

    @property
    def form(self) -> str:
        """Return how a user writes it."""
        if self.parameter is None or self.name == TOP:
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
    | none                           | (rows, 2 to 1,000) of classes     | `accuracy` |
    | none                           | (rows, over 1,000)                | `cosine`   |
    | none                           | (rows, ..., height, width)        | `iou`      |
    | none                           | whole numbers alone               | `accuracy` |
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
        return "accuracy"
    name = _pick_output(outputs, None, None, None)
    match outputs[name][0]:
        case _ if _EMBEDDING.search(name):
            return "cosine"
        case (_, columns) if columns > 1 and (name in probabilities or _CLASSES.search(name)):
            return "accuracy"
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
    for axis in class_axes(len(shape)):
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


def class_axes(rank: int) -> tuple[int, ...]:
    """Return where classes may lie, the likeliest first: (rows, tokens, classes), (rows, classes, height, width)."""
    return {1: (), 2: (1,), 3: (2, 1)}.get(rank, (1, rank - 1))


def refuse_shape(name: str, expected: str, truth: Array | list[Array]) -> UsageError:
    """Return an error that says the truth's shape."""
    shape = f"{len(truth)} rows of different shapes" if isinstance(truth, list) else f"{truth.dtype}{list(truth.shape)}"
    return UsageError(f"{name}: expected truth {expected}, received {shape}")


def _require_values(name: str, output: Array) -> None:
    if not output.size:
        raise UsageError(f"{name}: expected an output with values, received the shape {list(output.shape)}")


def _pair_values(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    """Return the values of each row of both sides as float64 (rows, values)."""
    if isinstance(truth, list) or not _same_but_ones(output.shape, truth.shape) or truth.dtype.kind not in "fiub":
        raise refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
    _require_values(name, output)
    rows = len(output)
    return output.astype(np.float64).reshape(rows, -1), truth.astype(np.float64).reshape(rows, -1)


def _score_errors(loss: str, name: str, output: Array, truth: Any) -> Array:
    """Return one of scikit-learn's losses, for which rows are columns; a NaN stays one."""
    from sklearn import config_context, metrics

    values, expected = _pair_values(name, output, truth)
    with config_context(assume_finite=True):
        return np.asarray(getattr(metrics, loss)(expected.T, values.T, multioutput="raw_values"))


def _score_cosine(name: str, output: Array, truth: Any) -> Array:
    """Return scikit-learn's `cosine_similarity` of each pair of rows, and 1 for two rows of zeros."""
    from sklearn import config_context
    from sklearn.preprocessing import normalize

    pair = _pair_values(name, output, truth)
    with config_context(assume_finite=True):
        values, expected = map(normalize, pair)
    are_zero = ~(values.any(axis=1) | expected.any(axis=1))
    return np.asarray(np.where(are_zero, 1.0, np.clip((values * expected).sum(axis=1), -1, 1)))


def _are_shares(scores: Array, axis: int) -> bool:
    """Return whether class scores are probabilities rather than logits, but for what a quantized softmax may miss."""
    if (scores < -_PROBABILITY_SLACK).any():
        return False
    return not bool((np.abs(scores.sum(axis=axis, dtype=np.float64) - 1) > _SUM_SLACK).any())


def _find_right(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    """Return whether each place's class of highest score is the true one, and the true one."""
    chosen, expected, _ = pair_classes(name, output, truth)
    return chosen == expected, expected


def _find_near(name: str, output: Array, truth: Any, most: float) -> tuple[Array, Array]:
    """Return whether each place's true class is among the first, and that class."""
    if output.ndim < 2 or output.dtype.kind != "f":
        raise UsageError(
            f"{name}: expected an output of class scores (rows, classes), received {output.dtype}{list(output.shape)}"
        )
    _, expected, axis = pair_classes(name, output, truth)
    classes = output.shape[axis] if axis is not None else 1
    if most >= classes:
        raise UsageError(f"{name}: every class is among the first {most:g} of {classes}; expected more classes")
    scores = np.moveaxis(output, axis or -1, -1)
    nearest = np.argsort(-scores, axis=-1, kind="stable")[..., : int(most)]  # the first class of equals, as in argmax
    return (nearest == expected[..., None]).any(axis=-1), expected


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


def pair_classes(name: str, output: Array, truth: Any) -> tuple[Array, Array, int | None]:
    """Return the class of each place of the output and of the truth, -1 if unknown, and the output's axis of classes.

    There is no such axis (None) if the output holds class ids, or one score for two classes.
    """
    if isinstance(truth, list):
        raise refuse_shape(name, f"of one shape in each row, for an output of the shape {list(output.shape)}", truth)
    _require_values(name, output)
    same = _same_but_ones(output.shape, truth.shape)
    if output.dtype.kind in "iub":
        if not same:
            raise refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
        return output, _read_ids(name, truth, None).reshape(output.shape), None
    if math.prod(output.shape[1:]) == 1 and same:
        return *split_by_threshold(name, output, truth, None), None
    for axis in class_axes(output.ndim):
        if output.shape[axis] > 1 and _same_but_ones(place := _without(output.shape, axis), truth.shape):
            return output.argmax(axis), _read_ids(name, truth, output.shape[axis]).reshape(place), axis
    if output.shape == truth.shape:
        for axis in class_axes(output.ndim):
            likeliest = axis == class_axes(output.ndim)[0]
            if output.shape[axis] > 1 and (likeliest or output.shape[axis] == math.prod(output.shape[1:])):
                return output.argmax(axis), _find_first_class(name, truth, axis), axis
    places = " or ".join(f"{list(_without(output.shape, axis))}" for axis in class_axes(output.ndim))
    expected = f"of class ids {places}, or class scores" if places else "of the shape"
    raise refuse_shape(name, f"{expected} {list(output.shape)}", truth)


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


def split_by_threshold(name: str, output: Array, truth: Array, threshold: float | None) -> tuple[Array, Array]:
    """Return where one channel of the output says yes, and where the truth does.

    Without a threshold it is 0.5 for probabilities, and 0 for logits, which reach beyond [0, 1].
    """
    known = truth[~np.isnan(truth)] if truth.dtype.kind == "f" else truth
    is_mask = bool(np.isin(known, (0, 1)).all() or np.isin(known, (0, 255)).all())
    if truth.dtype.kind not in "fiub" or (truth.dtype.kind != "f" and not is_mask):
        raise UsageError(f"{name}: expected 0 and 1 as truth for an output of one score, received other {truth.dtype}")
    if threshold is None:  # reference scores tell more surely than a quantized output what both are
        threshold = 0.0 if are_logits(output if is_mask else truth) else 0.5
    return output > threshold, (truth > (0 if is_mask else threshold)).reshape(output.shape)


def are_logits(values: Array) -> bool:
    """Return whether scores reach beyond what probabilities can."""
    return bool(((values < -_PROBABILITY_SLACK) | (values > 1 + _PROBABILITY_SLACK)).any())


def pair_places(name: str, output: Array, truth: Any, threshold: float | None) -> tuple[Array, Array, bool]:
    """Return the class of each place (rows, places) of both sides, and whether there is a single one.

    A place that says no, or whose class isn't known, has -1.
    """
    _require_values(name, output)
    rows = len(output)
    one_channel = output.dtype.kind in "fb" and (output.ndim < 4 or 1 in (output.shape[1], output.shape[-1]))
    if one_channel and not isinstance(truth, list) and _same_but_ones(output.shape, truth.shape):
        yes, expected = (flags.reshape(rows, -1) for flags in split_by_threshold(name, output, truth, threshold))
        return np.where(yes, 1, -1), np.where(expected, 1, -1), True
    if threshold is not None:
        raise refuse_shape(name, f"of the output's shape {list(output.shape)} and one channel for a threshold", truth)
    chosen, expected, _ = pair_classes(name, output, truth)
    chosen, expected = (ids.reshape(rows, -1) for ids in (chosen, expected))
    if not (expected >= 0).any(axis=1).all():
        raise UsageError(f"{name}: expected a class for each row, received a row of truth without one")
    return np.where(expected >= 0, chosen, -1), expected, False


def count_pairs(expected: Array, chosen: Array) -> Array:
    """Return each pair of classes that places have, and how many: true ones, others and counts (3, pairs).

    scikit-learn takes them with weights, in a hundredth of the time of a map's places.
    """
    span = int(max(expected.max(), chosen.max())) + 2  # classes begin at -1
    codes = (expected.astype(np.int64) + 1) * span + np.maximum(chosen, -1) + 1
    if span * span <= MOST_COUNTED:
        found = np.flatnonzero(counts := np.bincount(codes))
        counts = counts[found]
    else:
        found, counts = np.unique(codes, return_counts=True)
    return np.stack([found // span - 1, found % span - 1, counts])


def _score_classes(pairs: Array) -> tuple[Array, Array]:
    """Return the classes that a row's places have, and the intersection over union of each."""
    from sklearn.metrics import jaccard_score

    true, others, counts = pairs
    ids = np.unique(pairs[:2][pairs[:2] >= 0])
    if not len(ids):
        return ids, np.zeros(0)
    return ids, jaccard_score(true, others, labels=ids, average=None, sample_weight=counts, zero_division=1.0)


def _score_iou(name: str, output: Array, truth: Any, threshold: float | None = None) -> Array:
    """Return the mean over the classes of each row; 1 if neither side has any."""
    chosen, expected, _ = pair_places(name, output, truth, threshold)
    shares = [_score_classes(count_pairs(*pair))[1] for pair in zip(expected, chosen, strict=True)]
    return np.array([found.mean() if len(found) else 1.0 for found in shares])


def _split_iou(name: str, output: Array, truth: Any, threshold: float | None = None) -> dict[str, Array]:
    """Return the shares by class, of the rows whose truth has it."""
    chosen, expected, is_single = pair_places(name, output, truth, threshold)
    parts: dict[str, Array] = {}
    for row, pair in enumerate(() if is_single else zip(expected, chosen, strict=True)):
        for id_, share in zip(*_score_classes(count_pairs(*pair)), strict=True):
            if id_ in pair[0]:
                parts.setdefault(f"class {id_}", np.full(len(output), np.nan))[row] = share
    return parts


COUNT = Parameter(
    letter="K", expected="K a whole number from 1", read=int, valid=lambda value: value >= 1, required=True
)
THRESHOLD = Parameter(letter="T", expected="T a number, where one score is split", read=float, valid=math.isfinite)
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
                name=TOP,
                help="Give the share of rows whose true class is among the K with the highest scores: `top-5`.",
                score=partial(_average_places, _find_near),
                split=partial(_average_places_by_class, _find_near),
                parameter=COUNT,
            ),
            MetricFamily(
                name="mae",
                help="Give the mean absolute error of a row.",
                lower_is_better=True,
                library=SCIKIT_LEARN,
                score=partial(_score_errors, "mean_absolute_error"),
            ),
            MetricFamily(
                name="rmse",
                help="Give the root of the mean squared error within a row.",
                lower_is_better=True,
                library=SCIKIT_LEARN,
                score=partial(_score_errors, "root_mean_squared_error"),
            ),
            MetricFamily(
                name="cosine",
                help="Give the cosine similarity of a row's output and truth.",
                library=SCIKIT_LEARN,
                score=_score_cosine,
            ),
            MetricFamily(
                name="iou",
                help="Give the intersection over union of masks, averaged over classes; one channel is split at T.",
                library=SCIKIT_LEARN,
                score=_score_iou,
                split=_split_iou,
                parameter=THRESHOLD,
            ),
        )
    }
)
"""The metrics of a row by name."""
