"""Is a loaded arm true to its label? What it computes, and what it tells of itself, is gathered first and then judged.

Each check looks at the same evidence and says what is wrong, or None; the first fault closes the gate, and an arm with
a closed gate is never timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import cast

from shootout.contract import Arm, Arrays, BoundStanding, Executed, Fidelity, Rests
from shootout.exported import fidelity, training
from shootout.exported.model import ExportedModel
from shootout.messages import Verified
from shootout.session import Session, TrainingSession
from shootout.worker.precision_checks import executed_fault, is_mostly_labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A loaded arm that is to be believed.

    Attributes:
        session: the first of its instances.
        buffers: its input buffers.
        rests: what its backend's quantized models compute in where nothing is quantized.
        max_error: the error that the user allows it, whatever its label explains.
        strayed: how it left the CPUs or the thread counts that it was given, or None.
        together: what each of several instances answers to each buffer while all work; None for one alone.
    """

    arm: Arm
    exported: ExportedModel
    session: Session
    buffers: Sequence[Arrays]
    strayed: str | None
    together: Callable[[], Sequence[Sequence[Arrays]]] | None
    rests: Rests = field(default_factory=dict)
    max_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a claim.

    Attributes:
        fidelity: of the outputs, complete.
        judged: what the gate goes by: the same, but for a file that races its original against what it gives itself.
        together: likewise, of each of several instances that work at once, or how its outputs' shape is wrong; they run
            when it is first asked for.
        step_fault: what is wrong with the training step itself, or None.
        error_bound: the largest error that the label explains; None: it explains nothing.
        is_judged: whether that is held against the error (see `ExportedModel.is_judged`).
        least: an error that is no larger can't be the label's.
    """

    claim: Claim
    executed: Executed
    fidelity: Fidelity
    judged: Fidelity
    together: Callable[[], Sequence[Fidelity | str]]
    step_fault: str | None
    error_bound: float | None
    is_judged: bool
    least: float


def verify(claim: Claim, with_accuracy: bool, keep: Path | None = None) -> Verified:
    """Compare the outputs for every input buffer with the reference outputs, read back what the runtime runs, and judge
    both.

    Args:
        with_accuracy: also count the labelled rows that it classifies rightly, where the exported model has some.
        keep: a folder that gets its outputs for these rows, for the user's own metric.
    """
    outputs = [call_once(claim.session, inputs, slot) for slot, inputs in enumerate(claim.buffers)]
    if fault := _shape_fault(claim.exported, outputs):
        nothing = replace(fidelity.NOTHING, standing=BoundStanding.REFUSED)
        return Verified(executed=claim.session.executed, fidelity=nothing, fault=fault)
    evidence = _evidence(claim, outputs, with_accuracy, keep)
    fault = next((why for check in CHECKS if (why := check(evidence))), None)
    standing = BoundStanding.REFUSED if fault else _standing(evidence)
    judged = replace(evidence.fidelity, standing=standing)
    return Verified(executed=evidence.executed, fidelity=judged, fault=fault, calls=len(outputs))


def call_once(session: Session, inputs: Arrays, slot: int = 0) -> Arrays:
    """The outputs for one set of inputs."""
    raw = session.execute(session.stage(inputs, slot))
    session.synchronize()
    return session.fetch(raw)


def _evidence(claim: Claim, outputs: Sequence[Arrays], with_accuracy: bool, keep: Path | None) -> Evidence:
    errors = fidelity.compare(outputs, claim.exported.reference_outputs())
    stepped, step_fault = _with_step(errors, claim) if claim.exported.trained else (errors, None)
    counted = _with_accuracy(stepped, claim, keep) if with_accuracy else stepped
    executed, target = claim.session.executed, claim.arm.target
    error_bound, least = claim.exported.error_bound(target, claim.rests, is_whole=is_mostly_labelled(executed, target))
    with_bound = replace(counted, error_bound=error_bound)
    reference = claim.exported.shared_outputs()
    found = fidelity.with_shared(with_bound, outputs, reference) if reference else with_bound
    return Evidence(
        claim=claim,
        executed=executed,
        fidelity=found,
        judged=fidelity.compare(outputs, claim.exported.own_outputs()) if claim.exported.original else found,
        together=cache(lambda: [*_together(claim)]),
        step_fault=step_fault,
        error_bound=error_bound,
        is_judged=claim.exported.is_judged(target, claim.rests),
        least=least,
    )


def _together(claim: Claim) -> Iterator[Fidelity | str]:
    own = claim.exported.own_outputs()
    for outputs in claim.together() if claim.together else ():
        yield _shape_fault(claim.exported, outputs) or fidelity.compare(outputs, own)


def _standing(evidence: Evidence) -> BoundStanding:
    """How a row without a fault stands to its error bound, in the worst of its instances."""
    found = [evidence.judged, *(one for one in evidence.together() if not isinstance(one, str))]
    worst = max(found, key=lambda one: math.inf if one.relative_l2 is None else one.relative_l2)
    return fidelity.standing(worst, evidence.error_bound, is_judged=evidence.is_judged)


def _with_step(found: Fidelity, claim: Claim) -> tuple[Fidelity, str | None]:
    return training.judged(found, cast("TrainingSession", claim.session), claim.exported, claim.buffers)


def _with_accuracy(found: Fidelity, claim: Claim, keep: Path | None) -> Fidelity:
    report, spare = claim.exported.report(), len(claim.buffers)  # a slot of its own: the others keep the timed inputs
    if report is None:
        return found

    def run(inputs: Arrays) -> Arrays:
        return call_once(claim.session, inputs, spare)

    if keep:
        from shootout.models.user.scoring import saving  # which hardly any worker needs

        return fidelity.with_accuracy(found, saving(run, keep), report, claim.exported.batch)
    return fidelity.with_accuracy(found, run, report, claim.exported.batch)


def _shape_fault(exported: ExportedModel, outputs: Sequence[Arrays]) -> str | None:
    return next((why for one in outputs if (why := fidelity.check_outputs(exported.outputs, one))), None)


def check_place(evidence: Evidence) -> str | None:
    """It stayed on the CPUs, and with the thread counts, that it was given; what is never timed may run anywhere."""
    return None if evidence.executed.software else evidence.claim.strayed


def check_account(evidence: Evidence) -> str | None:
    """The runtime's own account agrees with the label."""
    return executed_fault(evidence.executed, evidence.claim.arm)


def check_step(evidence: Evidence) -> str | None:
    """A training step leaves the weights and momenta that it should."""
    return evidence.step_fault


def check_error(evidence: Evidence) -> str | None:
    """The outputs are as far from the reference outputs as the label's precision explains, where inputs can show that;
    of a file that races its original, from its own outputs.
    """
    return _gate(evidence, evidence.judged)


def check_reference(evidence: Evidence) -> str | None:
    """A row that runs the shared quantized model agrees with that model as it is written."""
    return None if evidence.claim.exported.original else fidelity.disagreement(evidence.fidelity, evidence.error_bound)


def check_instances(evidence: Evidence) -> str | None:
    """Instances that work at once answer as each does alone."""
    answers = evidence.together()
    for one in answers:
        if fault := one if isinstance(one, str) else _gate(evidence, one):
            return f"of {len(answers)} instances at once: {fault}"
    return None


def _gate(evidence: Evidence, found: Fidelity) -> str | None:
    return fidelity.gate(
        found,
        evidence.error_bound,
        evidence.least,
        is_judged=evidence.is_judged,
        is_real=not evidence.claim.exported.drawn,
        max_error=evidence.claim.max_error,
    )


CHECKS: Sequence[Callable[[Evidence], str | None]] = (
    check_place,
    check_account,
    check_step,
    check_error,
    check_reference,
    check_instances,
)
"""In the order in which a fault is told."""
