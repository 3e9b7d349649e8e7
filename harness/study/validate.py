"""What a study file names and nothing here knows, told by its key before anything is planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from shootout import models
from shootout.contract import Value
from shootout.errors import UsageError, unknown
from shootout.study import axes
from shootout.study.points import describe, points, request
from shootout.study.schema import Study
from shootout.study.target import parse_targets

_SHIPPED = re.compile(r"[\w-]+")
"""A model's name, rather than a file or code of the user's."""


def unknowns(study: Study) -> Iterator[tuple[str, UsageError]]:
    """What is unknown or not allowed: under which key (`targets.2`), and the nearest that is known.

    The user's own files are not looked into.
    """
    for key, check in _checks(study):
        try:
            check()
        except UsageError as error:
            yield key, error


def _checks(study: Study) -> Iterator[tuple[str, Callable[[], object]]]:
    for index, name in enumerate(study.model):
        if _SHIPPED.fullmatch(name):
            yield f"model.{index}", partial(models.get, name)
    for key, texts in {"targets": study.targets, "backend": study.backend}.items():
        for index, text in enumerate(texts):
            yield f"{key}.{index}", partial(parse_targets, text, describe, study.pythons)
    if not all(map(_SHIPPED.fullmatch, study.model)):
        return
    for name, values in study.parameters.items():
        for index, value in enumerate(values):
            yield f"parameters.{name}.{index}", partial(_check_value, study, name, value)
    for index, point in enumerate(study.points):
        yield f"points.{index}", partial(_check_points, study.model_copy(update={"points": (point,)}))


def _check_points(study: Study) -> None:
    for point in points(study):
        request(study, point)


def _check_value(study: Study, name: str, value: Value) -> None:
    if name in axes.WORDS:
        raise UsageError(f"{name} is an axis of its own: write it at the top level, not under [parameters]")
    having = [models.get(model).parameters for model in study.model]
    known = {parameter for parameters in having for parameter in parameters}
    if name not in known:
        raise unknown("parameter", name, known | set(axes.WORDS))
    for parameters in having:
        if name in parameters:
            parameters[name].check(name, value)
