"""Refuse a limit on a loss that rows so few can't show to be kept, before anything is exported."""

from __future__ import annotations

import math
from pathlib import Path

from shootout.errors import UsageError
from shootout.export.client import Request
from shootout.export.input_sets import count_scored
from shootout.export.request import labels_of
from shootout.exported.data_files import read_labels
from shootout.models.user import scoring
from shootout.models.user.metric_names import find_metric
from shootout.stats.paired import (
    UNSEEN,
    compare_right,
    count_rows_for_rare,
    count_rows_for_share,
    most_share_shown,
    read_share,
)
from shootout.units import round_limit


def refuse_few_labels(option: str, limit: float, request: Request) -> None:
    """Refuse a limit on lost accuracy that labels so few couldn't show to be kept, even if every row stayed right.

    Args:
        option: the name of the limit, for people.
        limit: a share of the rows.

    Raises:
        UsageError: they are too few; says how many do, and which limit these rows can show.
    """
    if not (limit and (place := labels_of(request))):
        return
    count = len(read_labels(place))
    scored = count_scored(count, request.batch, scores_all=request.scores_all)
    held = -compare_right("1" * scored, "1" * scored).low
    if held > limit:
        needed = _count_to_give(math.ceil(held * (scored + 2) / limit), request)
        raise UsageError(
            f"{option} {100 * limit:g}pp can't be shown by {scored:,} scored rows of the {count:,} with labels "
            f"in {place}: give {needed:,} rows or more, or {option} {round_limit(100 * held)}pp"
        )


def _count_to_give(scored: int, request: Request) -> int:
    return scored if request.scores_all else 2 * scored


def refuse_few_scores(
    option: str, limit: float, metric: str | None, rows: int, request: Request, place: Path | str
) -> None:
    """Refuse a limit on a lost mean that rows so few can't show to be kept, if a metric scores each by a share.

    Args:
        option: the name of the limit and its unit if that is `%`, for people, such as `--max-drop {}%`.
        limit: on the mean, a share.
        place: the file of the rows, for people.

    Raises:
        UsageError: they are too few; says how many do, and which limit these rows can show.
    """
    if not _is_of_shares(metric):
        return
    if fault := find_few_scores(option, limit, rows, request, place):
        raise UsageError(fault)


def find_few_scores(option: str, limit: float, rows: int, request: Request, place: Path | str) -> str:
    """Return why rows so few can't show that a mean of shares lost less than the limit; "" if they can.

    Args:
        option, limit, place: see `refuse_few_scores`.
    """
    scored = count_scored(rows, request.batch, scores_all=request.scores_all)
    needed = count_rows_for_rare(1.0, limit)
    if scored >= needed:
        return ""
    scale = 100 if "%" in option else 1
    held = scale * (1 - UNSEEN ** (1 / scored))
    return (
        f"{option.format(f'{scale * limit:g}')} takes {needed:,} scored rows, since fewer may hide a rare failure. "
        f"Of the {rows:,} rows of {place} {scored:,} are scored: give {_count_to_give(needed, request):,} rows or "
        f"more, or {option.format(round_limit(held))}"
    )


def refuse_few_agreeing(
    option: str, limit: str, metric: str | None, rows: int, request: Request, place: Path | str
) -> None:
    """Refuse an agreement with FP32's outputs that rows so few can't show, even if each of them agrees wholly.

    Args:
        option, place: see `refuse_few_scores`.
        limit: on the mean, as it was written.

    Raises:
        UsageError: they are too few; says how many do, and which limit these rows can show.
    """
    if not _is_of_shares(metric):
        return
    scored = count_scored(rows, request.batch, scores_all=request.scores_all)
    needed = count_rows_for_share(read_share(limit))
    if needed is not None and scored >= needed:
        return
    shown = math.floor(1000 * most_share_shown(scored)) / 10
    takes = f"takes {needed:,} scored rows" if needed else "can't be shown by any number of rows"
    give, half = "give at most", "" if request.scores_all else ", since half of them are scored"
    if needed:
        give = f"give {_count_to_give(needed, request):,} rows or more{half}, or"
    raise UsageError(
        f"{option.format(limit)} {takes}, even if each agrees wholly. Of the {rows:,} rows of {place} "
        f"{scored:,} are scored: {give} {option.format(f'{shown:g}%')}"
    )


def _is_of_shares(metric: str | None) -> bool:
    """Tell whether a metric of shootout's own scores each row by a share."""
    if not metric or metric == scoring.AUTO or scoring.is_own(metric):
        return False
    return find_metric(metric).is_share
