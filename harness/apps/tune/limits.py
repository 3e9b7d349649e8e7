"""Refuse limits that a tuning run could not show to be kept, and find what may keep them."""

from __future__ import annotations

from collections.abc import Mapping

from shootout import models
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request, is_file
from shootout.core.study.points import rows_of
from shootout.core.study.schema import Study
from shootout.models.metrics import refuse_unshown
from shootout.tell.limits import FIDELITY, Limit

OF_ROWS = FIDELITY - {Limit.ERROR}
"""The limits that are judged on a split's rows, of which a search sees one and its confirmation the other."""


def refuse_unjudged(limits: Mapping[Limit, float], study: Study, request: Request) -> None:
    """Refuse limits that no rows of this model could show to be kept, before anything is built.

    Raises:
        UsageError: with what to give.
    """
    wanted, labeled = FIDELITY & limits.keys(), _has_labels(request)
    if study.metric and not (labeled or rows_of(study).truth):
        why = "without truth a metric compares with FP32's own outputs, which a search has for no rows of its own"
        raise UsageError(
            f"--metric {study.metric}: {why}: give --truth, or limit the error in place of it, as in --max-error 2e-2"
        )
    if study.metric or labeled:
        refuse_unshown(study, {*filter(None, [request.source.check_sizes(request)])}, request)
    if study.metric or labeled or wanted == {Limit.ERROR}:
        return
    told = f"--max-drop {study.max_drop}" if study.max_drop else "what a precision costs"
    raise UsageError(
        f"{told} can't be judged: {study.model[0]} has no labels here: give --inputs data.npz --labels labels.npz, or "
        "limit the error instead, as in --max-error 2e-2"
    )


def _has_labels(request: Request) -> bool:
    if is_file(request.model) or request.inputs_npz:
        return request.source.labels(request) is not None
    return models.get(request.model).task is not None


def list_schemes_for(limits: Mapping[Limit, float], study: Study, request: Request) -> list[str]:
    """Return the words of schemes that may keep such limits by themselves, the cheapest first.

    That is the shared file, which rounds products alone, and what chooses layers to leave in float.
    """
    words = ["shared"]
    if not study.metric and _has_labels(request) and Limit.ERROR not in limits:
        words.append("accuracy-control")
    return words
