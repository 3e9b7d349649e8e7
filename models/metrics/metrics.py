"""Score each row of a model's output against its truth, by a metric that a user names: `accuracy`, `top-5`, `iou`.

Truth is what the user knows of a row, or the model's own FP32 output of it. scikit-learn computes the scores, or NumPy
where that is the same; nothing of a user's runs here. A NaN in a row of either side makes the row's score NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError, unknown

NO_CLASS = (-100, 255)
"""Class ids that mark a place (a pixel, a token) without a class: PyTorch's and Pascal VOC's."""
_PROBABILITY_SLACK = 0.01
"""A quantized sigmoid may leave [0, 1] by this."""
_CLASS_METRICS = ("accuracy", "top", "f1", "auc")
"""The beginnings of the names of metrics that take an output (rows, classes) where there is one."""
TOP = "top-K"
"""The name in the table of `top-5`, whose parameter has no `@`."""
SCIKIT_LEARN = "scikit-learn"
MODULES: Mapping[str, str] = MappingProxyType({SCIKIT_LEARN: "sklearn"})
"""The names that packages are imported by, if these aren't their own."""


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
class Metric:
    """A metric by name.

    Attributes:
        help: one sentence.
        row_scores: takes the name, an output with the rows along axis 0, their truth (an array, or a list with one
            entry a row), and the parameter if one was given. Returns one float64 a row, or with `open_set` statistics
            (rows, ...) of numbers or objects.
        open_set: makes a metric of the whole set of the statistics of all rows and the parameter; None if the metric is
            a mean over rows.
        library: the package that computes it; "" for NumPy.
        form: how a user writes it; "" as its name.
        read: makes a number or a word of the parameter's text, or raises ValueError; None: it has no parameter.
        takes: the valid parameters, for people.
        given: the parameter, if there is one.
        pools: makes what is scored of the parameter, an output and the inputs of its rows; the truth goes through it
            too if it has the output's shape.
        parts: the metrics that it stands for, each with scores and a limit of its own; none if it is one itself.
    """

    name: str
    help: str
    row_scores: Callable[..., Array]
    open_set: Callable[..., WholeSet] | None = None
    lower_is_better: bool = False
    library: str = ""
    form: str = ""
    read: Callable[[str], float | str] | None = None
    takes: str = ""
    given: tuple[float | str, ...] = ()
    pools: Callable[[str, Array, Arrays], Array] | None = None
    parts: tuple[Metric, ...] = ()

    @property
    def is_share(self) -> bool:
        """Return whether it is the mean of rows' scores, each a share of which more is better."""
        return not (self.lower_is_better or self.open_set)

    def pool(self, output: Array, truth: Any, inputs: Arrays) -> tuple[Array, Any]:
        """Return an output and its truth as they are scored.

        Raises:
            UsageError: the output can't be pooled.
        """
        if not (self.pools and self.given):
            return output, truth
        is_alike = isinstance(truth, np.ndarray) and truth.shape == output.shape
        found, right = (self.pools(str(self.given[0]), one, inputs) for one in (output, truth if is_alike else output))
        return found, right if is_alike else truth

    def require_library(self) -> None:
        """Refuse the metric if its library is missing.

        Raises:
            UsageError: it is; says how to install it.
        """
        if self.library and find_spec(MODULES.get(self.library, self.library)) is None:
            raise UsageError(f"metric {self.name!r} needs {self.library}: python -m pip install {self.library}")

    def score(self, output: Array, truth: Any) -> Array:
        """Return what `row_scores` does, and NaN for rows with a NaN on either side.

        Raises:
            UsageError: the metric can't compare these.
        """
        output, truth = _as_numbers(output), _as_truth(self.name, truth)
        if output.dtype.kind not in "fiub" or not output.ndim:
            raise UsageError(f"{self.name}: expected an output of numbers, received {output.dtype}{list(output.shape)}")
        if len(truth) != len(output):
            raise UsageError(f"{self.name}: expected truth for {len(output)} rows, received {len(truth)}")
        if not len(output):
            return np.zeros(0)
        with np.errstate(invalid="ignore", over="ignore"):
            rows = self.row_scores(self.name, output, truth, *self.given)
        rows = rows.copy() if rows.dtype == object else rows.astype(np.float64)
        truth_gaps = [_has_nan(entry[None])[0] for entry in truth] if isinstance(truth, list) else _has_nan(truth)
        rows[_has_nan(output) | np.asarray(truth_gaps)] = np.nan
        return rows

    def reduce(self, statistics: Array) -> WholeSet:
        """Make a metric of the whole set of the statistics of all rows."""
        assert self.open_set, "a mean over rows has its scores alone"
        return self.open_set(statistics, *self.given)


def pick_output(outputs: Mapping[str, Array], truth: Any, scores: str, metric: Metric) -> str:
    """Return the name of the output that a metric scores.

    It is the one called `scores`, else the first float output. A metric of classes takes the first float output with
    two axes, so that a scikit-learn file's `label` is passed over. If entries of the truth have outputs' names, only
    those outputs come into question.

    Args:
        truth: an array or list, or a dict of them by name.

    Raises:
        UsageError: it isn't clear which output is meant.
    """
    if scores:
        if scores not in outputs:
            raise unknown("output", scores, outputs)
        return scores
    entries = truth if isinstance(truth, Mapping) else ()
    meant = [name for name in outputs if name in entries] or list(outputs)
    floats = [name for name in meant if _is_float(outputs[name])] or (meant if len(meant) == 1 else [])
    if not floats:
        raise UsageError(f"no output holds floats; name one with --scores: {list_kinds(outputs)}")
    takes_classes = metric.name.startswith(_CLASS_METRICS)
    return next((name for name in floats if takes_classes and outputs[name].ndim == 2), floats[0])


def pick_truth(output: str, truth: Any, outputs: Collection[str]) -> Any:
    """Return the truth that belongs to an output.

    Raises:
        UsageError: there is none.
    """
    if not isinstance(truth, Mapping):
        return truth
    entries = list(truth)
    if output in entries:
        return truth[output]
    if len(entries) == 1 and entries[0] not in outputs:
        return truth[entries[0]]
    raise UsageError(
        f"no truth for output {output!r}: the truth has {', '.join(entries) or 'nothing'}; the outputs are "
        f"{', '.join(outputs)}. Name the truth's array like the output, or the output with --scores"
    )


def list_kinds(arrays: Any) -> str:
    """Write the shapes and types of arrays by name, or of one."""
    named = arrays if isinstance(arrays, Mapping) else {"": arrays}
    told = {
        name: f"{array.dtype.name}{list(array.shape)}" if isinstance(array, np.ndarray) else f"object[{len(array)}]"
        for name, array in named.items()
    }
    return ", ".join(f"{name} {kind}".strip() for name, kind in told.items()) or "none"


def _is_float(array: Array) -> bool:
    return "float" in array.dtype.name


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
    return array.astype(np.float32) if array.dtype.kind == "V" and _is_float(array) else array


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


def pair_values(name: str, output: Array, truth: Any) -> tuple[Array, Array]:
    """Return the values of each row of both sides as float64 (rows, values)."""
    if isinstance(truth, list) or not _same_but_ones(output.shape, truth.shape) or truth.dtype.kind not in "fiub":
        raise refuse_shape(name, f"of the output's shape {list(output.shape)}", truth)
    _require_values(name, output)
    rows = len(output)
    return output.astype(np.float64).reshape(rows, -1), truth.astype(np.float64).reshape(rows, -1)


def _score_errors(loss: str, name: str, output: Array, truth: Any) -> Array:
    """Return one of scikit-learn's losses, for which rows are columns; a NaN stays one."""
    from sklearn import config_context, metrics

    values, expected = pair_values(name, output, truth)
    with config_context(assume_finite=True):
        return np.asarray(getattr(metrics, loss)(expected.T, values.T, multioutput="raw_values"))


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


def _average_places(find: Callable[..., tuple[Array, Array]], name: str, *given: Any) -> Array:
    """Return the share of right places in each row, of those whose class is known.

    Args:
        find: as `_find_right`, and with the metric's parameter.
    """
    right, expected = (places.reshape(len(places), -1) for places in find(name, *given))
    known = expected >= 0
    counts = known.sum(axis=1)
    if not counts.all():
        raise UsageError(f"{name}: expected a class for each row, received a row of truth without one")
    return np.asarray((right & known).sum(axis=1) / counts)


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
        return *split_in_two(name, output, truth), None
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


def split_in_two(name: str, output: Array, truth: Array) -> tuple[Array, Array]:
    """Return where one channel of the output says yes, and where the truth does.

    Above 0.5 is yes for probabilities, and above 0 for logits, which reach beyond [0, 1].
    """
    known = truth[~np.isnan(truth)] if truth.dtype.kind == "f" else truth
    is_mask = bool(np.isin(known, (0, 1)).all() or np.isin(known, (0, 255)).all())
    if truth.dtype.kind not in "fiub" or (truth.dtype.kind != "f" and not is_mask):
        raise UsageError(f"{name}: expected 0 and 1 as truth for an output of one score, received other {truth.dtype}")
    # reference scores tell more surely than a quantized output what both are
    threshold = 0.0 if are_logits(output if is_mask else truth) else 0.5
    return output > threshold, (truth > (0 if is_mask else threshold)).reshape(output.shape)


def are_logits(values: Array) -> bool:
    """Return whether scores reach beyond what probabilities can."""
    return bool(((values < -_PROBABILITY_SLACK) | (values > 1 + _PROBABILITY_SLACK)).any())


def count_classes(name: str, output: Array, truth: Any) -> Array:
    """Return for each row the pairs of classes that its places have, and how many: true ones, others and counts.

    scikit-learn takes such (3, pairs) with weights, in a hundredth of the time of a map's places. A place that says no,
    or whose class isn't known, has -1.
    """
    _require_values(name, output)
    one_channel = output.dtype.kind in "fb" and (output.ndim < 4 or 1 in (output.shape[1], output.shape[-1]))
    if one_channel and not isinstance(truth, list) and _same_but_ones(output.shape, truth.shape):
        chosen, expected = (np.where(flags, 1, -1) for flags in split_in_two(name, output, truth))
    else:
        chosen, expected, _ = pair_classes(name, output, truth)
        if not (expected >= 0).reshape(len(output), -1).any(axis=1).all():
            raise UsageError(f"{name}: expected a class for each row, received a row of truth without one")
        chosen = np.where(expected >= 0, np.maximum(chosen.astype(np.int64), -1), -1)
    found = np.empty(len(output), object)
    span = int(max(expected.max(), chosen.max())) + 2  # classes begin at -1
    for row, codes in enumerate((expected.astype(np.int64) + 1) * span + chosen + 1):
        pairs, counts = np.unique(codes, return_counts=True)
        found[row] = np.stack([pairs // span - 1, pairs % span - 1, counts])
    return found


def _score_iou(name: str, output: Array, truth: Any) -> Array:
    """Return the mean over the classes of each row; 1 if neither side has any."""
    from sklearn.metrics import jaccard_score

    shares = []
    for true, others, counts in count_classes(name, output, truth):
        ids = np.unique(np.concatenate([true, others]))
        given = {"labels": ids[ids >= 0], "average": "macro", "sample_weight": counts, "zero_division": 1.0}
        shares.append(jaccard_score(true, others, **given) if (ids >= 0).any() else 1.0)
    return np.array(shares)


def reads(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], float]:
    """Return what makes a number of this type, within both ends, of a parameter's text."""

    def read(text: str) -> float:
        if not least <= (value := kind(text)) <= most:
            raise ValueError(text)
        return value

    return read


COUNTS = "K a whole number from 1"
ROW_METRICS = (
    Metric(
        name="accuracy",
        help="Give the share of rows (or of a row's places) whose class of highest score is the true one.",
        row_scores=partial(_average_places, _find_right),
    ),
    Metric(
        name=TOP,
        help="Give the share of rows whose true class is among the K with the highest scores: `top-5`.",
        row_scores=partial(_average_places, _find_near),
        form=TOP,
        read=reads(int, 1),
        takes=COUNTS,
    ),
    Metric(
        name="mae",
        help="Give the mean absolute error of a row.",
        lower_is_better=True,
        library=SCIKIT_LEARN,
        row_scores=partial(_score_errors, "mean_absolute_error"),
    ),
    Metric(
        name="rmse",
        help="Give the root of the mean squared error within a row.",
        lower_is_better=True,
        library=SCIKIT_LEARN,
        row_scores=partial(_score_errors, "root_mean_squared_error"),
    ),
    Metric(
        name="iou",
        help="Give the intersection over union of masks, averaged over classes.",
        library=SCIKIT_LEARN,
        row_scores=_score_iou,
    ),
)
"""The metrics of a row."""
