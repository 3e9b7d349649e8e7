"""Score a model's outputs against truths: find a metric by the name that a user gives it: `mae`, `top-5`, `map@0.5`.

A function of the user's own may take its place (`scoring.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from shootout.core.errors import UsageError, unknown
from shootout.models.data.data_files import HALF_ROWS
from shootout.models.metrics.embeddings import EMBEDDING_METRICS
from shootout.models.metrics.metrics import ROW_METRICS, TOP, Metric
from shootout.models.metrics.set_metrics import SET_METRICS, WER

SIGNED = "cosine"
"""The metric of which more is better that reaches as far below 0 as above."""
CONFIDENCE = 0.95
UNSEEN = (1 - CONFIDENCE) / 2
"""The chance that rows show nothing of a failure which is rare and costs a row all of its score."""
DEFAULT_DROP = "1%"
"""A metric may lose less than this of plain FP32's mean."""
MOST_ROWS = 100_000
"""More rows than that are not asked for: few could bring them."""
METRICS: Mapping[str, Metric] = MappingProxyType(
    {one.name: one for one in (*ROW_METRICS, *EMBEDDING_METRICS, *SET_METRICS)}
)
"""By name."""


def find_metric(word: str) -> Metric:
    """Return the metric that a user names.

    Raises:
        UsageError: no metric has the name, or its parameter isn't valid.
    """
    name, at, text = re.sub(r"^top-(\d+)$", rf"{TOP}@\1", word.strip().lower()).partition("@")
    metric = METRICS.get(name)
    if metric is None:
        raise unknown("metric", word, METRICS)
    if not at and (not metric.form or "[" in metric.form):
        return metric
    if metric.read is None:
        raise UsageError(f"metric {word!r}: {name} takes no parameter")
    try:
        value = metric.read(text)
    except ValueError:
        raise UsageError(f"metric {word!r}: expected {metric.form}, {metric.takes}; received {text!r}") from None
    told = value if isinstance(value, str) else f"{value:.12g}"
    return replace(metric, name=f"{'top-' if name == TOP else f'{name}@'}{told}", given=(value,))


def find_range(word: str) -> tuple[float, float]:
    """Return the least and the highest score of a metric; infinite ends of a user's own and of one without any."""
    try:
        metric = find_metric(word)
    except UsageError:
        return -math.inf, math.inf
    if metric.lower_is_better:
        return 0.0, math.inf
    return -1.0 if metric.name.partition("@")[0] == SIGNED else 0.0, 1.0


def find_max_drop(text: str, before: float) -> float:
    """Return how much a mean score may lose, in its own unit.

    Args:
        text: `0.005`, `0.5pp`, which is the same, or `1%` of the mean before.
        before: that mean.

    Raises:
        ValueError: it is none of these.
    """
    number, unit = text.strip(), unit_of_drop(text)
    try:
        value = float(number.removesuffix(unit))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError("expected a drop in the metric's own unit (0.005, or 0.5pp) or a share of FP32's mean (1%)")
    return value / 100 * (abs(before) if unit == "%" else 1) if unit else value


def unit_of_drop(text: str) -> str:
    """Return in which unit a drop is written: `pp`, `%` of the mean before, or "" for the metric's own."""
    return next((one for one in ("pp", "%") if text.strip().endswith(one)), "")


def read_share(text: str, _before: float = 1.0) -> float:
    """Return a share from 0 to 1, of `99%` or `0.99`.

    Raises:
        ValueError: it is none.
    """
    value = find_max_drop(text, 1.0)
    if value > 1:
        raise ValueError("expected a share from 0 to 1, such as 99% or 0.99")
    return value


def refuse_drop_of_all(option: str, limit: float, word: str) -> None:
    """Refuse a limit on a loss as large as the whole score, of a metric whose scores are 1 at most.

    Args:
        option: the name of the limit, for people.
        limit: in the metric's own unit, and no share of FP32's mean.
        word: the metric, which may be a user's own: its range isn't known.

    Raises:
        UsageError: it is as large; the percent sign is missing as a rule.
    """
    try:
        named = find_metric(word)
    except UsageError:
        return
    ends_at_one = not named.lower_is_better or named.name.partition("@")[0] == WER
    if ends_at_one and limit >= 1:
        raise UsageError(
            f"{option} {limit:g}: {named.name} is 1 at most, so that any loss keeps it: did you mean {limit:g}%?"
        )


def count_scored(rows: int, batch: int, *, scores_all: bool = False) -> int:
    """Return how many of a user's rows are scored, of those that are units by themselves; as `split_rows` has it."""
    return rows if scores_all or rows // 2 < max(HALF_ROWS, 2 * batch) else -(-rows // 2)


def bound_rare(rows: int, unseen: float = UNSEEN) -> float:
    """Return below which share a change of rows lies that none of so many shows.

    Args:
        unseen: the chance that they show none all the same.

    Source: Clopper and Pearson 1934, Biometrika 26, of none: (1 - share)^rows = unseen.
    """
    return 1 - math.pow(unseen, 1 / rows)


def count_rows_for_rare(worst: float, limit: float, loss: float = 0.0) -> int:
    """Return how many rows show a rare failure that takes the mean from what it was seen to lose to a limit.

    A failure of one row in a hundred, which loses all of the score, costs 1 % of the mean; fewer than 368 rows may well
    hold none of them. Then no interval of the rows' changes knows of it. What the rows did lose comes on top: so a loss
    that lies in few rows, some of which fail by halves, is missed in few of such sets of rows too.

    Args:
        worst: what a row may lose (`find_worst_loss`).
        limit: on the loss of the mean, 0 or more.
        loss: of the mean of the rows seen, below the limit; less than 0 counts as none.

    Source: (1 - (limit - loss) / worst)^n <= 2.5 %.
    """
    room = limit - max(loss, 0.0)
    if room >= worst:
        return 1
    return math.ceil(math.log(UNSEEN) / math.log1p(-room / worst)) if room else MOST_ROWS + 1
