"""Refuse a limit on a loss that rows so few can't show to be kept, before anything is exported."""

from __future__ import annotations

from pathlib import Path

from shootout.core.errors import UsageError
from shootout.core.exported.client import Request
from shootout.core.stats.paired import MOST_ROWS, bound_rare, count_rows_for_rare
from shootout.core.units import round_limit
from shootout.models.metrics import scoring
from shootout.models.metrics.metric_names import find_metric
from shootout.models.sources.input_sets import count_scored


def refuse_few_rows(
    option: str, limit: float, metric: str, rows: int, request: Request, place: Path | str, *, is_least: bool = False
) -> None:
    """Refuse a limit on a lost mean that rows so few can't show to be kept, if a metric scores each by a share.

    Args:
        option: the name of the limit and its unit if that is `%` or `pp`, for people, such as `--max-drop {}%`.
        limit: on the loss of the mean, a share.
        place: the file of the rows, for people.
        is_least: the option names what is left, and not what is lost.

    Raises:
        UsageError: they are too few; says how many do, and which limit these rows can show.
    """
    if metric == scoring.AUTO or scoring.is_own(metric) or not find_metric(metric).is_share:
        return
    if fault := find_few_rows(option, limit, rows, request, place, is_least=is_least):
        raise UsageError(fault)


def find_few_rows(
    option: str, limit: float, rows: int, request: Request, place: Path | str, *, is_least: bool = False
) -> str:
    """Return why rows so few can't show that a mean of shares lost less than the limit; "" if they can.

    Args:
        option, limit, place, is_least: see `refuse_few_rows`.
    """
    scored, needed = count_scored(rows, request.batch, scores_all=request.scores_all), count_rows_for_rare(1.0, limit)
    if scored >= needed:
        return ""

    def tell(lost: float, *, is_held: bool) -> str:
        scale = 100 if option.endswith(("%", "pp")) else 1
        if is_least:
            lost = 1 - (float(round_limit(lost)) if is_held else lost)
            return option.format(f"{scale * lost:.10g}")
        return option.format(round_limit(scale * lost) if is_held else f"{scale * lost:g}")

    give = needed if request.scores_all else 2 * needed
    takes = f"takes {needed:,} scored rows" if needed <= MOST_ROWS else "can't be shown by any number of rows"
    bring = f"give {give:,} rows or more, or" if needed <= MOST_ROWS else "give"
    return (
        f"{tell(limit, is_held=False)} {takes}, since fewer may hide a rare failure. "
        f"Of the {rows:,} rows of {place} {scored:,} are scored: {bring} {tell(bound_rare(scored), is_held=True)}"
    )
