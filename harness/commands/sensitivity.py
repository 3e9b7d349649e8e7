"""`shootout sensitivity`: what rounding each layer or block alone does to a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

from shootout.apps.sensitivity.measure import measure_sensitivity
from shootout.apps.sensitivity.rounded import PRECISIONS, By, LayerSensitivity, PrecisionSensitivity, Wanted
from shootout.apps.sensitivity.screen import FLOATS, OFFERING_FLOATS, render
from shootout.commands import selection
from shootout.commands.output import print_answer, show_progress, width
from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Device, Precision, Target
from shootout.core.errors import UsageError, unknown
from shootout.core.host import environment
from shootout.core.scoring import scorer
from shootout.core.study import points
from shootout.core.study.points import metric_of
from shootout.core.study.schema import Study
from shootout.core.units import round_limit
from shootout.tell import registered, reproduce
from shootout.tell.cache_limit import in_use
from shootout.tell.paired import ask_drop
from shootout.tell.study_options import DEFAULT, SensitivityOptions

TIMES_THE_REST, LEAST_ERROR, MOST_ERROR = 2.0, 1e-2, 1e-1
"""A suggested limit is the error of what is left rounded, so many times since runtimes fuse, within the other two."""


def sensitivity(model: str, options: SensitivityOptions, *, as_json: bool) -> int:
    """Measure each layer or block, and print; return the exit code.

    Raises:
        UsageError: more than one model is asked for, or a precision isn't known.
    """
    if (by := options.get("by", "layer")) not in get_args(By):
        raise unknown("part in --by", by, get_args(By))
    wanted = Wanted(
        precisions=read_precisions(options.get("precision", ())),
        by=by,
        is_detailed=True,
        limit_s=options.get("max_time_s"),
    )
    chosen = selection.choose(DEFAULT, {"model": model, **options})
    (point, *more) = points.points(chosen)
    if more:
        raise UsageError(
            f"sensitivity looks at one model at a time: give one value for each --set, got {len(more) + 1} models"
        )
    with in_use(), show_progress() as progress:
        rows, asked = (
            points.rows_of(chosen, progress),
            replace(points.request(chosen, point), scores_all=False),
        )  # INT8 is calibrated
        count = asked.source.check_sizes(asked)
        scorer().check(chosen, rows, [] if count is None else [count], {point.model: asked})
        name = points.group_name(point)
        progress.stage(f"rounding each {wanted.by} of {name} alone")
        found = measure_sensitivity(asked, replace(wanted, metric=metric_of(chosen)), progress)
    then = write_search(found, chosen, point)
    return print_answer(render(found, name, width(), then), as_data(found, name), as_json=as_json)


def write_search(every: Sequence[PrecisionSensitivity], study: Study, point: points.Point) -> str:
    """Write the command that searches for the layers to leave in float, in the first precision with mixes; "" if none.

    The limit is on what scores rows. Without that it is on the error, at most twice that of a model whose worst part
    stays in float.
    """
    found = next((one for one in every if one.precision in OFFERING_FLOATS and one.whole.sqnr_db < math.inf), None)
    if found is None or study.stream or study.state:
        return ""
    names = [name for name in backends.names() if _is_mixing(name, found.precision)]
    if not names:
        return ""
    arm = Arm(target=Target(backend=names[0]), model=point.model, parameters=point.parameters, batch=point.batch)
    given = reproduce.options([arm], study.given)
    score = found.whole.score
    if score is None or (study.metric and not (study.truth or study.labels)):
        error = 10 ** (-(found.without_worst or found.whole).sqnr_db / 20)
        limit = "--max-error", round_limit(min(max(TIMES_THE_REST * error, LEAST_ERROR), MOST_ERROR))
        given = [option for option in given if option[0] not in ("--metric", "--labels")]
    else:
        limit = "--max-drop", ask_drop(score.rows)
    return reproduce.search_mix(given, ",".join(names), found.precision, limit)


def _is_mixing(backend: str, precision: Precision) -> bool:
    """Tell whether a backend is installed, runs an ONNX graph first, and leaves layers in float by their numbers."""
    if backend not in backends.shipped() or not registered.offers(backend, precision, f"{FLOATS}0"):
        return False
    can = backends.capabilities(backend)
    is_here = (Device.CPU, precision) in can.targets and registered.is_installed(backend, environment.libraries())
    return is_here and can.consumes[:1] == (Artifact.ONNX,)


def read_precisions(names: Sequence[str]) -> tuple[Precision, ...]:
    """Read the names of precisions that layers can be rounded to; none are INT8.

    Raises:
        UsageError: one is no such precision, or is named twice.
    """
    for name in names:
        if name not in PRECISIONS:
            raise unknown("precision in --precision", name, PRECISIONS)
    if len({*names}) < len(names):
        raise UsageError(f"--precision names one twice, got {','.join(names)}: name each once")
    return tuple(map(Precision, names)) or PRECISIONS[:1]


def as_data(found: Sequence[PrecisionSensitivity], name: str) -> dict[str, Any]:
    """Return all figures as JSON values."""
    return {
        "model": name,
        "by": found[0].by,
        "precisions": [
            {
                "precision": one.precision,
                "whole": _part_as_data(one.whole),
                "without_worst": _part_as_data(one.without_worst) if one.without_worst else None,
                "unmeasured": one.unmeasured,
                "parts": [_part_as_data(part) for part in one.parts],
            }
            for one in found
        ],
    }


def _part_as_data(part: LayerSensitivity) -> dict[str, Any]:
    """Return a part's figures; `sqnr_db` of a noise is null if there is none (`exact`) or it isn't finite."""
    return {
        "name": part.name,
        "layers": [asdict(layer) for layer in part.layers],
        "both": _noise_as_data(part.sqnr_db),
        "weights": None if part.weights_db is None else _noise_as_data(part.weights_db),
        "activations": None if part.activations_db is None else _noise_as_data(part.activations_db),
        "noise_share": part.noise_share,
        "score": asdict(part.score) if part.score else None,
        "weight_bytes": part.weight_bytes,
        "flops_share": part.flops_share,
    }


def _noise_as_data(sqnr_db: float) -> dict[str, Any]:
    return {
        "sqnr_db": sqnr_db if math.isfinite(sqnr_db) else None,
        "is_exact": sqnr_db == math.inf,
        "is_finite": sqnr_db > -math.inf,
    }
