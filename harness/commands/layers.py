"""Run `shootout explain` and `shootout sensitivity`: a model layer by layer, as two targets run it, or rounded."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from shootout.apps.explain.measure import Side, choose_sides
from shootout.apps.explain.measure import explain as explain_sides
from shootout.apps.explain.screen import render as render_sides
from shootout.apps.judge.analysis import analyse_cells
from shootout.apps.sensitivity import (
    PRECISIONS,
    By,
    LayerSensitivity,
    PrecisionSensitivity,
    Wanted,
    measure_sensitivity,
    render,
)
from shootout.commands import selection
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, show_progress, width
from shootout.core.contract import Precision
from shootout.core.errors import UsageError, unknown
from shootout.core.study import points
from shootout.tell.cache_limit import in_use
from shootout.tell.study_options import DEFAULT, SensitivityOptions


def explain(
    run: Path,
    targets: Sequence[str],
    *,
    group: str | None,
    full: bool,
    as_json: bool,
) -> int:
    """Compare the targets and print; return the exit code.

    Raises:
        UsageError: see `find_sides` and `measure.explain`.
    """
    sides = find_sides(run, targets, group)
    # profiles have times, and both the builds and the float graph would disturb another run's
    with in_use(), show_progress() as progress, machine_lock(f"explain {run}", progress.wait):
        found = explain_sides(sides, progress)
    return print_answer(render_sides(found, width(), full=full), asdict(found), as_json=as_json, found=found)


def find_sides(run: Path, targets: Sequence[str], group: str | None = None) -> tuple[Side, Side]:
    """Find the two targets of the run in a folder; see `choose_sides`.

    Raises:
        UsageError: there is no run, or as `choose_sides`.
    """
    found = analyse_cells(run)
    return choose_sides(found, found.document, targets, group)


def sensitivity(model: str, options: SensitivityOptions, *, as_json: bool) -> int:
    """Measure each layer or block, and print; return the exit code.

    Raises:
        UsageError: more than one model is asked for, or a precision isn't known.
    """
    if (by := options.get("by", "layer")) not in get_args(By):
        raise unknown("part in --by", by, get_args(By))
    if (precision := options.get("precision", PRECISIONS[0])) not in PRECISIONS:
        raise unknown("precision in --precision", precision, PRECISIONS)
    limit_s = options.get("max_time_s")
    wanted = Wanted(precision=Precision(precision), by=by, is_detailed=True, limit_s=limit_s)
    chosen = selection.choose(DEFAULT, {"model": model, **options})
    (point, *more) = points.points(chosen)
    if more:
        raise UsageError(
            f"sensitivity looks at one model at a time: give one value for each --set, got {len(more) + 1} models"
        )
    if point.others:
        raise UsageError(f"sensitivity looks at one model at a time: name one file, such as {shlex.quote(point.model)}")
    with in_use(), show_progress() as progress:
        points.rows_of(chosen, progress)  # what --read takes is shown once
        asked = replace(points.request(chosen, point), scores_all=False)  # INT8 is calibrated
        asked.source.check_sizes(asked)
        name = points.group_name(point)
        progress.stage(f"rounding each {by} of {name} alone")
        found = measure_sensitivity(asked, wanted, progress)
    return print_answer(render(found, name, width()), as_data(found, name), as_json=as_json)


def as_data(found: PrecisionSensitivity, name: str) -> dict[str, Any]:
    """Return all figures as JSON values."""
    return {
        "model": name,
        "by": found.by,
        "precision": found.precision,
        "whole": _part_as_data(found.whole),
        "without_worst": _part_as_data(found.without_worst) if found.without_worst else None,
        "unmeasured": found.unmeasured,
        "parts": [_part_as_data(part) for part in found.parts],
    }


def _part_as_data(part: LayerSensitivity) -> dict[str, Any]:
    """Return a part's figures; a ratio is null if it wasn't measured, there is no noise, or it isn't finite."""
    told = {
        name: value if math.isfinite(value) else None
        for name, value in asdict(part).items()
        if isinstance(value, float)
    }
    return {**asdict(part), **told, "is_exact": part.sqnr_db == math.inf, "is_finite": part.sqnr_db > -math.inf}
