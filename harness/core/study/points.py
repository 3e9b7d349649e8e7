"""A study's cells, from nothing but the study: its targets, its points in parameter space, what to export for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from shootout.core import backends, plugins, schemes
from shootout.core.constants import BATCH, MAX_CELLS, USUAL_SCENARIO
from shootout.core.contract import SCALED, Capabilities, Device, Precision, Target, Value
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.request import Request, find_model, is_file, is_own, name_model
from shootout.core.host.placement import Threads
from shootout.core.messages import Progress
from shootout.core.scenario import Arrivals, find_scenario
from shootout.core.scoring import MetricSpec, RowFiles
from shootout.core.study.schema import AXES, Study, checked, study_options
from shootout.core.study.target import Describe, parse_targets, refuse_namesakes, scheme_of, with_twins

POINT_WORDS = ("model", "batch", "scenario", "threads")
"""The names that one of a study's points may have beside a model's parameters."""
_OTHERS = {*POINT_WORDS} - {BATCH}
"""The names among these that are no size of the model."""
_CALIBRATED = {*SCALED} - {Precision.INT8_DYNAMIC}
"""The precisions whose quantizers may see rows: for ranges, or for the scales of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Hold what a group runs: a model with complete, checked parameters at a batch size, on so many threads (as asked).

    Attributes:
        others: ONNX files that race `model`, which is one too.
        arrivals: the sizes of the calls in order, where they vary; parameters and batch are of the largest then.
    """

    model: str
    others: tuple[str, ...] = ()
    parameters: Mapping[str, Value]
    batch: int
    scenario: str = USUAL_SCENARIO
    threads: Threads = None
    arrivals: Arrivals | None = None


def targets_of(study: Study, first: Describe | None = None) -> list[Target]:
    """Return all targets that the study names, in order.

    Args:
        first: gives what a target is that is named without a device or precision; None: as `describe` has it.

    Raises:
        UsageError: one of them isn't known.
    """
    for name in study.backend:
        if set(name) & set(":/"):
            raise UsageError(f"backend {name!r} must be a name alone: device and precision are axes of their own")
    texts = study.backend or study.targets
    named = [target for text in texts for target in parse_targets(text, first or describe, study.pythons)]
    targets = with_twins(_spread_targets(study, named), study.pythons)
    refuse_namesakes(targets)
    known = {name for target in targets for name in names_of(target)}
    for name in study.options:
        if name not in known:
            raise unknown("backend or target in --option", name, known)
    return targets


def _spread_targets(study: Study, targets: list[Target]) -> list[Target]:
    """Return the targets on every device and in every precision that the study has as axes; each once."""
    if not study.device and not study.precision:
        return targets
    moved = (
        _move_target(target, device, precision)
        for target in targets
        for device in ((not target.folder and study.device) or (target.device,))
        for precision in ((not target.folder and study.precision) or (target.precision,))
    )
    return list(dict.fromkeys(moved))


def _move_target(target: Target, device: Device, precision: Precision) -> Target:
    """Return the target there, without a scheme that its backend doesn't have for this precision."""
    can = describe(target.backend)[0]
    lost = schemes.unoffered(scheme_of(target), can.schemes.get(precision, ()))
    return replace(target, device=device, precision=precision, scheme="" if lost else target.scheme)


def names_of(target: Target) -> tuple[str, ...]:
    """Return the names that address an option to this target, from all of a backend's targets to this one alone.

    A shipped folder has none: its settings came with it.
    """
    if target.folder:
        return ()
    mode = (f"{target.backend}+{target.mode}",) if target.mode else ()
    python = (f"{target.backend}@{target.python}",) if target.python else ()
    return (target.backend, *mode, *python, str(target))


def describe(backend: str, *, native: bool = False) -> tuple[Capabilities, Target]:
    """Return a backend's capabilities and its first target.

    Args:
        native: for a file with precisions of its own, which the target runs if the backend can.
    """
    can, (device, precision) = backends.capabilities(backend), backends.entry(backend).default
    chosen = Precision.NATIVE if native and device in can.native else precision
    return can, Target(backend=backend, device=device, precision=chosen)


def points(study: Study) -> list[Point]:
    """List every model with every combination of its parameters, every batch, every scenario and every thread count.

    Raises:
        UsageError: a parameter that no model has, a value that isn't allowed, or more cells than a grid may have.
    """
    parts = [_fix_study(study, point) for point in study.points] or [study]
    _refuse_too_many(parts)
    return [point for part in parts for point in _make_points(part)]


def _fix_study(study: Study, point: Mapping[str, Value]) -> Study:
    """Fix the study at one of its points; of its other axes those stay that the point's own model has."""
    words = {name: [value] for name, value in point.items() if name in POINT_WORDS}
    own = {name: [value] for name, value in point.items() if name not in words}
    chosen = [str(name) for name in words.get("model", study.model)]
    having = {name for model in chosen for name in find_model(model).parameters}
    others = {name: values for name, values in study.parameters.items() if name in having or "model" not in words}
    fields = study.model_dump(exclude_unset=True, exclude={"points"})
    return checked({**fields, **words, "parameters": {**others, **own}}, f"point {dict(point)}")


def _make_points(study: Study) -> list[Point]:
    known = {name for model in study.model for name in find_model(model).parameters}
    for name in () if all(map(is_file, study.model)) else study.parameters:
        for field, option in study_options().items():
            if name not in known and name in option.sizes_of(study.value_of(field)):
                raise unknown(f"axis in {option.flag}", name, known | {BATCH})
        if name not in known:
            raise unknown("parameter", name, known | set(AXES))
    files = [model for model in study.model if is_file(model)][1:]
    if files and study.pythons:
        raise UsageError("--python looks at one file: leave the others out")
    names = [name_model(model) for model in study.model if is_file(model)]
    if len(set(names)) < len(names):
        raise UsageError(f"give each model file a name of its own, got {', '.join(names)}")
    arrivals = {name: find_scenario(name).arrivals(study) for name in study.scenario}
    return [
        _size_point(
            study,
            Point(
                model=model,
                others=tuple(files) if is_file(model) else (),
                parameters=parameters,
                batch=batch,
                scenario=scenario,
                threads=threads,
                arrivals=sizes,
            ),
        )
        for model in study.model
        if model not in files
        for parameters in _combine_parameters(study, model)
        for batch in study.batch
        for scenario, sizes in arrivals.items()
        for threads in study.threads
        if batch == study.batch[0] or not find_scenario(scenario).selects  # where batches compete in one group
        if sizes is None or {**parameters, BATCH: batch}.get(sizes.axis) == max(sizes.sizes)  # whose group has all
    ]


def _size_point(study: Study, point: Point) -> Point:
    """Return the point with the sizes that the study's whole shapes tell, and else the rows of its data."""
    if not (is_file(point.model) or study.shapes):
        return point
    asked = Request(
        model=point.model,
        parameters=point.parameters,
        batch=point.batch,
        inputs_npz=rows_of(study).inputs,
        calibration_npz=Path(study.calibration) if study.calibration else None,
    )
    asked = asked.source.fit(asked, study.shapes or {}, to_rows=point.arrivals is None)
    return replace(point, parameters=asked.parameters, batch=asked.batch)


def _refuse_too_many(parts: Sequence[Study]) -> None:
    """Refuse too many cells, counted without making any."""
    lengths: dict[str, int] = {"point": len(parts), "model": len(parts[0].model)}
    cells = 0
    for part in parts:
        own = [{name: len(values) for name, values in _select_axes(part, model).items()} for model in part.model]
        common = {name: len(getattr(part, name)) for name in ("batch", "threads", "scenario")}
        common["target"] = len(targets_of(part))
        cells += sum(math.prod(lengths_of_model.values()) for lengths_of_model in own) * math.prod(common.values())
        for lengths_of_model in (*own, common):
            lengths |= lengths_of_model
    if cells > MAX_CELLS:
        largest = sorted(lengths.items(), key=lambda axis: -axis[1])[:3]
        named = ", ".join(f"{name} has {length:,} values" for name, length in largest if length > 1)
        raise UsageError(
            f"the grid has {cells:,} cells, {MAX_CELLS:,} at most: {named}; "
            "give fewer values (a range such as 1..2048 x2 spans much with few), or split the study"
        )


def _select_axes(study: Study, model: str) -> dict[str, tuple[Value, ...]]:
    """Return the study's parameters that this model has; a file has them all."""
    if is_file(model):
        return study.parameters
    return {name: values for name, values in study.parameters.items() if name in find_model(model).parameters}


def _combine_parameters(study: Study, model: str) -> list[dict[str, Value]]:
    own = _select_axes(study, model)
    combined = [dict(zip(own, values, strict=True)) for values in itertools.product(*own.values())]
    return [find_model(model).check(parameters) for parameters in combined]


def find_scored(metric: str | None, truth: Path | None) -> Literal["", "truth", "outputs"]:
    """Return what the rows of a user's inputs are scored against; see `Request.scored`."""
    return "" if not metric else "truth" if truth else "outputs"


def find_rows(inputs: str | None, read: str | None, truth: str | None, progress: Progress | None = None) -> RowFiles:
    """Return the files that hold a user's rows; a function of the user's reads them first, if it hasn't.

    Raises:
        UsageError: they can't be read; or the function gives truth, and there is some already.
    """
    given = RowFiles(inputs=Path(inputs) if inputs else None, truth=Path(truth).expanduser() if truth else None)
    if given.inputs is None or read is None:
        return given
    found: RowFiles = plugins.load(plugins.ROWS)(given.inputs, read, progress)
    if given.truth and found.truth:
        raise UsageError(f"--truth {truth} and {read} both say what is right: pass only one of them")
    return replace(found, truth=given.truth or found.truth)


def rows_of(study: Study, progress: Progress | None = None) -> RowFiles:
    """Return the files that hold a study's rows, as `find_rows`.

    Raises:
        UsageError: as `find_rows`; or the study has labels or a limit that truth contradicts.
    """
    found = find_rows(study.inputs, study.read, study.truth, progress)
    if found.truth and not study.truth:
        for name, given in (("--labels", study.labels), ("--min-agreement", study.min_agreement)):
            if given:
                raise UsageError(f"{study.read} gives truth already: leave {name} out")
    return found


def metric_of(study: Study) -> MetricSpec:
    """Return what a study's rows are scored by, as `MetricSpec.of`."""
    return MetricSpec.of(study, rows_of(study))


def request(study: Study, point: Point) -> Request:
    """Return what to export for one group; an ONNX file's parameters are the sizes of its free axes.

    Raises:
        UsageError: such a size isn't a whole number, the parameters aren't the model's, or it can't have this batch.
    """
    rows = rows_of(study)
    asked = Request(
        model=point.model,
        parameters=point.parameters,
        batch=point.batch,
        inputs_npz=rows.inputs,
        labels_npz=Path(study.labels) if study.labels else None,
        calibration_npz=Path(study.calibration) if study.calibration else None,
        weights=Path(study.weights) if study.weights else None,
        training=find_scenario(point.scenario).trains,
        scored=find_scored(study.metric, rows.truth),
        rows_by=Path(study.rows_by) if study.rows_by else None,
        sweep=find_sweep(study),
        state={} if point.arrivals else study.state,  # no call's state is of the next one's size
        steps=study.stream or 0,
    )
    if rows.inputs or is_own(point.model):
        asked = replace(asked, scores_all=not any(_takes_rows(target, study) for target in targets_of(study)))
    model = find_model(point.model)
    parameters = model.check(point.parameters)
    model.inputs(parameters, point.batch)
    sweep = {name: ends for name, ends in asked.sweep.items() if name in (*parameters, BATCH)}
    return replace(asked, parameters=parameters, sweep=sweep)


def _takes_rows(target: Target, study: Study) -> bool:
    """Return whether a target may be calibrated on a part of the user's rows, or chosen by it: none of it is scored.

    On which rows a shipped folder was calibrated isn't known.
    """
    scheme = scheme_of(target)
    if target.precision not in _CALIBRATED or scheme.activations == "weights-only":
        return False
    return study.calibration is None or bool(target.folder or scheme.search or scheme.variant)


def at_size(asked: Request, axis: str, size: int) -> Request:
    """Return the request with another size along one axis."""
    if axis == BATCH:
        return replace(asked, batch=size)
    return replace(asked, parameters={**asked.parameters, axis: size})


def find_sweep(study: Study) -> dict[str, tuple[int, int]]:
    """Return the least and the largest of each number that varies in the study, by parameter or `batch`."""
    values: dict[str, list[Value]] = {name: [*some] for name, some in study.parameters.items()}
    values[BATCH] = [*study.batch]
    for point in study.points:
        for name, value in point.items():
            values.setdefault(name, []).append(value)
    sizes = {name: [one for one in some if type(one) is int] for name, some in values.items() if name not in _OTHERS}
    return {name: (min(some), max(some)) for name, some in sizes.items() if len({*some}) > 1}


def group_name(point: Point) -> str:
    """Name the group for people: the model, what isn't the default of it, and the batch; of sizes that vary all."""
    defaults = find_model(point.model).defaults
    varied = {point.arrivals.axis: point.arrivals.span} if point.arrivals else {}
    own = {key: value for key, value in point.parameters.items() if defaults.get(key) != value or key in varied}
    special = ", ".join(f"{key}={varied.get(key, value)}" for key, value in own.items())
    scenario = "" if point.scenario == USUAL_SCENARIO else f", {point.scenario}"
    threads = "" if point.threads is None else f", threads {point.threads}"
    batch = "" if find_scenario(point.scenario).selects else f", batch {varied.get(BATCH, point.batch)}"
    # As people name a model: a file by its name, a config by its architecture.
    titles = [find_model(model).title or name_model(model) for model in (point.model, *point.others)]
    names = " and ".join(titles if len(titles) < 3 else [titles[0], f"{len(titles) - 1} other files"])
    return f"{names}{f' ({special})' if special else ''}{batch}{threads}{scenario}"
