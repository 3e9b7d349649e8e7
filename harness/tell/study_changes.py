"""Make a study with changes on top, a command's or a policy's: what they name takes the place of the study's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shootout.core.contract import Value
from shootout.core.errors import UsageError
from shootout.core.scenario import StudyOption, find_scenario, scenario_names
from shootout.core.study.schema import AXES, Study, as_axis, checked, study_options
from shootout.tell.option_values import read_axes


def change(
    study: Study,
    parameters: Mapping[str, Any] | None = None,
    options: Mapping[str, Mapping[str, str]] | None = None,
    **changes: Any,
) -> Study:
    """Return a study with changes on top, everything checked again.

    Args:
        parameters: added to the study's, or instead of them where `model` is another one; those with a name of
            `AXES`, or of an option without a flag in a scenario that is asked for, are changes to that key.
        options: added to the study's, knob by knob.
        changes: fields to replace; None changes nothing.

    Raises:
        UsageError: a value that the study can't take, or two answers to one question.
    """
    parameters, options = parameters or {}, options or {}
    given = {key: value for key, value in changes.items() if value is not None}
    scenarios = as_axis(given.get("scenario", parameters.get("scenario", study.all_scenarios)))
    words = _take_words(parameters, scenarios)
    for name in words:
        if name in given or (name == "backend" and "targets" in given):
            raise UsageError(f"{name} is given twice, by --set and by an option of its own: pass only one of them")
    same_model = tuple(as_axis(given.get("model", study.model))) == study.model
    kept = dict(study.parameters) if same_model else {}
    own = {name: values for name, values in parameters.items() if name not in words}
    knobs = {name: {**study.options.get(name, {}), **options.get(name, {})} for name in {*study.options, *options}}
    silenced = _find_silenced({**given, **words})
    silenced |= set() if same_model else {"shapes"}
    for name, option in study_options().items():  # a new value says the sizes of its axes
        sized = {*option.sizes_of(study.value_of(name)), *option.sizes_of(given[name])} if name in given else ()
        silenced |= {*sized} & {"batch"}
        kept = {axis: sizes for axis, sizes in kept.items() if axis not in sized}
    fields = {key: value for key, value in study.model_dump(exclude_unset=True).items() if key not in silenced}
    if study.points:
        fields["points"] = _drop_named(study.points if same_model else (), {*given, *words, *own})
    return checked(read_axes({**fields, **given, **words, "parameters": {**kept, **own}, "options": knobs}))


def _drop_named(points: Sequence[dict[str, Value]], names: set[str]) -> list[dict[str, Value]]:
    """Return the points without what the command line names, each once."""
    left = [{name: value for name, value in point.items() if name not in names} for point in points]
    return [point for index, point in enumerate(left) if point and point not in left[:index]]


def _options_among(scenarios: Iterable[object]) -> dict[str, StudyOption]:
    """Return the options of scenarios by name; none of one that there isn't."""
    found = [find_scenario(name).options for name in scenario_names() if name in {*scenarios}]
    return {name: option for options in found for name, option in options.items()}


def _take_words(parameters: Mapping[str, Any], scenarios: Iterable[object]) -> dict[str, Any]:
    """Return what `--set` says beside parameters of models: axes with words of their own, options without a flag."""
    found = {name: values for name, values in parameters.items() if name in AXES}
    for name, option in _options_among(scenarios).items():
        if name in parameters and not option.flag:
            values = parameters[name]
            found[name] = values[0] if isinstance(values, list | tuple) and len(values) == 1 else values
    return found


def _find_silenced(changed: Mapping[str, Any]) -> set[str]:
    """Return the fields of a study that have no meaning any more once others are changed."""
    silenced = {"backend", "device", "precision"} if "targets" in changed else set[str]()
    silenced |= {"targets"} if "backend" in changed else set()
    asked = as_axis(changed.get("scenario", ()))
    dropped = {name for name, option in study_options().items() if option.is_dropped and asked}
    return silenced | (dropped - {*_options_among(asked)})
