"""Metrics of a whole set of rows, which are no mean over rows: mAP, F1, AUC, a word error rate, recall of neighbors.

Each takes statistics of every row, call by call, and then makes one number of those of any rows. So a row, or rows that
belong together, can be left out (the jackknife). scikit-learn, pycocotools and jiwer compute them; nothing of a
user's runs here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.models.metrics import metrics
from shootout.models.metrics.boxes import MAP
from shootout.models.metrics.metrics import COUNTS, SCIKIT_LEARN, Metric, WholeSet, reads

MOST_LEFT_OUT = 1_000
"""The metric is computed so many times at most: of more units, several are left out at a time."""
SEED = 20_261_124
HALVES = 64
"""`_is_uneven` looks at so many random halves of the units."""
HALVED_FROM = 300
"""Halves of fewer units tell nothing."""
LEAST_EXPLAINED = 0.85
"""The least share of a metric's variance over halves that the units must explain. Of 400 units, sums, ratios, F1 and
ranks have 0.9 to 1, percentiles less.
"""

ValueOf = Callable[[Array], float]
"""Take (rows,) bool, and return the metric of these rows."""
MOST_RANKED_ROWS = 4_096
"""Each row is compared with every other."""
TIED = 1e-6
"""Cosine distances that differ by no more than this are the same: float32 can't order them."""
WER = "wer"


def _count_word_edits(name: str, output: Array, truth: Any, space: float | None = None) -> Array:
    """Return the edits of each row in words, and the words of its truth."""
    import jiwer

    found = []
    for said, right in _decode_pairs(name, output, truth, -1 if space == 0 else 0):
        edits = jiwer.process_words(_spell(right, space), _spell(said, space))
        known = edits.substitutions + edits.deletions
        found.append([known + edits.insertions, known + edits.hits])
    return np.array(found, float)


def _spell(ids: Array, space: float | None) -> str:
    """Write class ids as text: each a word of its own, or words between spaces."""
    if space is None:
        return " ".join(map(str, ids.tolist()))
    return "".join(" " if id_ == space else f"{id_}," for id_ in ids.tolist())


def _decode_pairs(name: str, output: Array, truth: Any, blank: int) -> list[tuple[Array, Array]]:
    """Return the class ids that each row of the output says, and those of its truth."""
    if output.ndim == 2 and output.dtype.kind in "iu":
        most = int(np.iinfo(np.int64).max)
        return [
            (_read_sequence(name, ids, blank, most), _read_sequence(name, entry, blank, most))
            for ids, entry in zip(output, truth, strict=True)
        ]
    if output.ndim != 3 or output.dtype.kind != "f":
        raise UsageError(
            f"{name}: expected an output of scores (rows, time, classes), or of class ids (rows, length), "
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
        raise metrics.refuse_shape(name, f"of class ids (length), or of scores (time, {classes}), a row", entry)
    if entry.max(initial=0) >= classes:
        raise UsageError(f"{name}: expected class ids from 0 to {classes - 1} as truth, received {entry.max()}")
    return np.asarray(entry[(entry >= 0) & (entry != blank)])


def _open_wer(statistics: Array) -> WholeSet:
    """Divide sums of edits by sums of words; a row may get all of its words wrong."""

    def divide(kept: Array) -> float:
        edits, words = statistics[kept].sum(axis=0)
        return float(edits / words) if words else math.nan

    return WholeSet(value_of=divide, worst=1.0)


def _count_classes(name: str, output: Array, truth: Any) -> Array:
    """Return what `count_classes` does, of an output of scores."""
    if output.dtype.kind in "iu":
        raise UsageError(f"{name}: expected an output of scores, received {output.dtype}; name one with --scores")
    if not isinstance(truth, list) and truth.shape == output.shape and math.prod(output.shape[1:]) > 1:
        axis = metrics.class_axes(output.ndim)[0]
        if truth.dtype.kind == "f" or ((truth != 0).sum(axis=axis) == 1).all():  # one-hot
            truth = truth.argmax(axis=axis)
    return metrics.count_classes(name, output, truth)


def _open_f1(statistics: Array) -> WholeSet:
    from sklearn.metrics import f1_score

    rows = np.repeat(np.arange(len(statistics)), [pairs.shape[1] for pairs in statistics])
    true, others, counts = np.concatenate(statistics, axis=1)

    def average(kept: Array) -> float:
        some = kept[rows]
        ids = np.unique(np.concatenate([true[some], others[some]]))
        if not len(ids := ids[ids >= 0]):
            return 1.0
        return float(f1_score(true[some], others[some], labels=ids, average="macro", sample_weight=counts[some]))

    sides, places, of_row = np.concatenate([true, others]), np.tile(counts, 2), np.tile(rows, 2)
    is_class = sides >= 0
    if not is_class.any():
        return WholeSet(value_of=average, worst=1.0)
    ids, sides = np.unique(sides[is_class], return_inverse=True)
    shares = places[is_class] / np.bincount(sides, places[is_class])[sides] / len(ids)
    most = np.bincount(of_row[is_class], shares).max()
    return WholeSet(value_of=average, worst=average(np.ones(len(statistics), bool)) * len(statistics) * float(most))


def _pair_scores(name: str, output: Array, truth: Any) -> Array:
    """Return the score of each row for the second of two classes, and whether that is the true one."""
    if output.ndim == 2 and output.shape[1] == 2 and output.dtype.kind == "f":
        _, expected, _ = metrics.pair_classes(name, output, truth)
        scores = output[:, 1].astype(np.float64) - output[:, 0]
    elif math.prod(output.shape[1:]) == 1 and not isinstance(truth, list) and truth.size == len(output):
        _, expected = metrics.split_in_two(name, output, truth)
        scores = output
    else:
        raise UsageError(
            f"{name}: expected an output (rows,), (rows, 1) or (rows, 2) and truth of two classes, received "
            f"{output.dtype}{list(output.shape)}"
        )
    return np.stack([scores.reshape(-1).astype(np.float64), expected.reshape(-1)], axis=1)


def _open_auc(statistics: Array) -> WholeSet:
    from sklearn.metrics import roc_auc_score

    scores, is_true = statistics[:, 0], statistics[:, 1] > 0

    def compare(kept: Array) -> float:
        if len(set(is_true[kept])) < 2:
            raise UsageError("auc: expected rows of both classes, received one class in all rows or in all but a unit")
        return float(roc_auc_score(is_true[kept], scores[kept]))

    value, rarer = compare(np.ones(len(scores), bool)), min(is_true.sum(), (~is_true).sum())
    return WholeSet(value_of=compare, worst=value * len(scores) / rarer)


def _keep_embeddings(name: str, output: Array, truth: Any, *_: float) -> Array:
    """Return each row's embedding with that of the truth (rows, 2, values), or with its label (rows, 1 + values)."""
    values = output.reshape(len(output), -1).astype(np.float64)
    if not isinstance(truth, list) and truth.dtype.kind == "f" and truth.shape == output.shape:
        return np.stack([values, truth.reshape(len(truth), -1).astype(np.float64)], axis=1)
    if isinstance(truth, list) or truth.size != len(output) or truth.dtype.kind not in "iub":
        raise metrics.refuse_shape(name, f"of a label a row, or of the output's shape {list(output.shape)}", truth)
    return np.concatenate([truth.reshape(-1, 1).astype(np.float64), values], axis=1)


def _open_recall(statistics: Array, neighbors: float) -> WholeSet:
    count, most = len(statistics), int(neighbors)
    if count > MOST_RANKED_ROWS:
        raise UsageError(
            f"recall: expected at most {MOST_RANKED_ROWS:,} scored rows, received {count:,}: give fewer rows"
        )
    sides = (statistics[:, 0], statistics[:, 1]) if statistics.ndim == 3 else (statistics[:, 1:],)
    distances = [_measure_distances(values) for values in sides]
    orders = [np.argsort(one, axis=1)[:, :-1] for one in distances]

    def share(kept: Array) -> float:
        if kept.sum() <= most:
            raise UsageError(
                f"recall: expected more than {most} rows, as each needs {most} neighbors; got {kept.sum()}"
            )
        near = [_find_nearest(order, kept, most) for order in orders]
        if len(near) == 1:
            labels = statistics[:, 0]
            return float((labels[near[0]] == labels[kept][:, None]).any(axis=1).mean())
        right, rows = distances[1], np.flatnonzero(kept)[:, None]
        farthest = right[rows, near[1][:, -1:]]
        return float((right[rows, near[0]] <= farthest + TIED).mean())  # copies of a text have no order among them

    return WholeSet(value_of=share, worst=share(np.ones(count, bool)))


def _measure_distances(values: Array) -> Array:
    """Return each row's cosine distance from each, (rows, rows); infinite from itself."""
    from sklearn.metrics.pairwise import cosine_distances

    found = np.asarray(cosine_distances(values))
    np.fill_diagonal(found, np.inf)
    return found


def _find_nearest(order: Array, kept: Array, most: int) -> Array:
    """Return the nearest `most` of the kept rows for each of them; few are left out as a rule."""
    for width in (2 * most + 50, order.shape[1]):
        near = order[kept, :width]
        flags = kept[near]
        ranks = flags.cumsum(axis=1)
        if (ranks[:, -1] >= most).all():
            break
    return near[flags & (ranks <= most)].reshape(-1, most)


SET_METRICS = (
    Metric(
        name="f1",
        help="Give the F1 of all rows: of the class yes (one score a row), else averaged over classes.",
        library=SCIKIT_LEARN,
        row_scores=_count_classes,
        open_set=_open_f1,
    ),
    Metric(
        name="auc",
        help="Give the area under the ROC curve of two classes: the share of pairs that scores put in order.",
        library=SCIKIT_LEARN,
        row_scores=_pair_scores,
        open_set=_open_auc,
    ),
    MAP,
    Metric(
        name=WER,
        help="Give the word error rate of all rows, decoded greedily; SPACE is the class id between words, "
        "else each id is a word. Class 0 is the blank, or the last class if SPACE is 0.",
        lower_is_better=True,
        library="jiwer",
        row_scores=_count_word_edits,
        open_set=lambda statistics, *_: _open_wer(statistics),
        form="wer[@SPACE]",
        read=reads(int, 0),
        takes="SPACE a class id",
    ),
    Metric(
        name="recall",
        help="Give the share of each row's K nearest rows by cosine that FP32 has too, or that tie with its last; "
        "with labels, the share of rows that have one of their label among them.",
        library=SCIKIT_LEARN,
        row_scores=_keep_embeddings,
        open_set=_open_recall,
        form="recall@K",
        read=reads(int, 1),
        takes=COUNTS,
    ),
)
"""The metrics of a whole set."""


def find_pseudo_values(value_of: ValueOf, units: Array, *, must_be_even: bool = False) -> Array:
    """Return what each unit adds to the metric, (units,); their mean is the metric of all rows.

    If there are more than `MOST_LEFT_OUT` units, several drawn at random share what they add. It is scaled by the root
    of their number, so that the variance of the mean stays what it is.

    Args:
        units: (rows,), the unit of each row, from 0 up; two at least.
        must_be_even: refuse a metric like a median, for which leaving units out doesn't tell how it varies.

    Raises:
        ValueError: the metric is no finite number, for all rows or without a unit; or it isn't even.

    Source: Tukey 1958; several at a time: Shao and Wu 1989, Annals of Statistics 17.
    """
    count = int(units.max()) + 1
    if count < 2:
        raise ValueError("one unit alone tells nothing of others")
    rng, size = np.random.default_rng(SEED), -(-count // MOST_LEFT_OUT)
    parts = np.empty(count, int)
    parts[rng.permutation(count) if size > 1 else np.arange(count)] = np.arange(count) // size
    part_of_row, sizes = parts[units], np.bincount(parts)
    whole = _evaluate(value_of, np.ones(len(units), bool), "all rows")
    left = [
        _evaluate(value_of, part_of_row != part, f"all rows but those of unit {np.flatnonzero(parts == part)[0]}")
        for part in range(len(sizes))
    ]
    added = (whole - np.array(left)) * (len(sizes) - 1)
    added -= added.mean()
    if must_be_even and _is_uneven(value_of, part_of_row, added, rng):
        raise ValueError(
            "it jumps like a median or a percentile, so nothing tells how far it may lie from that of others"
        )
    shared = (added * np.sqrt(sizes))[parts]
    return np.asarray(whole + shared - shared.mean())


def _is_uneven(value_of: ValueOf, units: Array, added: Array, rng: np.random.Generator) -> bool:
    """Tell whether what the units add doesn't explain what the metric is of random halves; few units don't show it."""
    if (count := len(added)) < HALVED_FROM:
        return False
    values, told = np.empty(HALVES), np.empty(HALVES)
    for half in range(HALVES):
        kept = rng.permutation(count) < count // 2
        values[half], told[half] = _evaluate(value_of, kept[units], "half of the rows"), added[kept].mean()
    return float(np.var(values - told)) > (1 - LEAST_EXPLAINED) * float(np.var(values))


def _evaluate(value_of: ValueOf, kept: Array, rows: str) -> float:
    value = value_of(kept)
    if not math.isfinite(value):
        raise ValueError(f"{value:g} for {rows}")
    return value
