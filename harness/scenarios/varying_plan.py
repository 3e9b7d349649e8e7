"""Explain, before anything is exported, why targets can't run the sizes of varying calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shootout.core import schemes
from shootout.core.contract import Arm, Artifact, Capabilities, NotRun, NotRunKind
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request, is_file
from shootout.core.scenario import Arrivals
from shootout.core.study.plan import scheme_of
from shootout.core.study.points import at_size
from shootout.core.study.target import own_words


def find_closed_shapes(arm: Arm, can: Capabilities) -> NotRun | None:
    """Explain why a target can't take any size in one session; None if it can, or isn't asked to."""
    scheme = schemes.parse(arm.target.scheme, own=own_words(can))
    if not scheme.is_dynamic:
        return None
    static = replace(arm.target, scheme="+".join(replace(scheme, shapes="").words))
    fix = f"use {static}, a session for each size, or its /bucket-N"
    if arm.target.precision not in can.opens:
        reason = f"{arm.target.backend} takes no open shapes here in {arm.target.precision}"
        return NotRun(NotRunKind.UNSUPPORTED, reason, fix)
    if is_file(arm.model) and Artifact.ONNX not in can.consumes:
        return NotRun(NotRunKind.UNFIT, "the torch module of a file is made for one size", fix)
    return None


def find_bad_buckets(asked: Request, arms: Sequence[Arm], arrivals: Arrivals) -> dict[str, NotRun]:
    """Explain by label why the model can't have the sizes that arms pad to."""
    found = {}
    for arm in arms:
        bucket = scheme_of(arm.target).bucket
        for size, padded in arrivals.runs(bucket).items():
            try:
                other = at_size(asked, arrivals.axis, padded)
                other.source.check_sizes(other)
            except UsageError as error:
                reason = f"bucket-{bucket} pads {arrivals.axis}={size} to {padded}, and {error}"
                found[arm.label] = NotRun(NotRunKind.UNFIT, reason, f"a bucket that divides {size}")
                break
    return found
