"""Check that a loaded arm is true to its label, before it is timed; `rechecks` does so between its timed blocks.

`verify` gathers what the arm computes and what it tells of itself, then judges both. Each check looks at the same
evidence and returns what is wrong, or None. The first fault closes the gate, and an arm with a closed gate is never
timed.

Of a stream, the arm plays whole clips, and gets its own states back as it does later. Its error may grow from call to
call, and so may what its precision explains. So it is held to the error bound of a clip's first call, of its first 10
and 100, and of all (see `Stream.marks`), as far as these bounds prove anything.

The runtime's own account may be wrong, so that a build is probed too. The probes are models of the harness's own, which
show from outside what computed them: the permutation probe tells float precisions apart, the grid probe integers and
FP8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from shootout.core import clock, schemes
from shootout.core.adapter import Session
from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import (
    SCALED,
    Arm,
    Arrays,
    BoundStanding,
    Device,
    Executed,
    Fidelity,
    Precision,
    Rests,
    StepError,
    Target,
)
from shootout.core.exported import fidelity
from shootout.core.exported.calls import saving
from shootout.core.exported.model import ExportedModel
from shootout.core.messages import Verified

COUNTED = {Precision.FP32: ("fp32", "fp64"), Precision.TF32: ("tf32", "fp32")}
"""Counts that bear a label out, where that isn't just its own name; a user's float64 file runs under fp32, and TF32 is
a way to round float32 operands that not every runtime shows: the permutation probe does.
"""

PROBED = {"fp16-weights": "fp32"}
"""The findings of a probe that aren't the products' own name: the permutation's weights are 0 and 1 in any float."""

NAN_FAULT = " (for inputs with NaN, a missing value, which it takes otherwise than the reference does)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A loaded arm that is to be believed.

    Attributes:
        session: the first of its instances.
        buffers: its input buffers.
        rests: what its backend's quantized models compute in where nothing is quantized.
        max_error: the error that the user allows it, whatever its label explains.
        is_scored: the user's metric tells what its error costs.
        strayed: how it left the CPUs or the thread counts that it was given, or None.
        together: what each of several instances answers to each buffer while all work; None for one alone.
        judge: adds to the outputs' error what a scenario looks at besides, and tells what is wrong there, or None.
    """

    arm: Arm
    exported: ExportedModel
    session: Session
    buffers: Sequence[Arrays]
    strayed: str | None
    together: Callable[[], Sequence[Sequence[Arrays]]] | None
    rests: Rests = field(default_factory=dict)
    max_error: float = 0.0
    is_scored: bool = False
    judge: Callable[[Fidelity, Claim], tuple[Fidelity, str | None]] = lambda found, _: (found, None)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Hold what is known of a claim.

    Attributes:
        outputs: for each input buffer.
        fidelity: of the outputs, complete: with the largest error that the label explains, and of a stream with the
            errors of a clip's first calls.
        own: the fidelity that the gate goes by: the same, but for a file that races its original, against what it gives
            itself.
        step_fault: what is wrong with the training step itself, or None.
        is_judged: whether the label's error bound is held against the error (see `ExportedModel.is_judged`).
        least: an error that is no larger can't be the label's.
    """

    claim: Claim
    outputs: Sequence[Arrays]
    executed: Executed
    fidelity: Fidelity
    own: Fidelity
    step_fault: str | None
    is_judged: bool
    least: float

    @cached_property
    def instances(self) -> Sequence[Fidelity | str]:
        """Return the fidelity of each of several instances that work at once, or how its outputs' shape is wrong.

        They run when this is first asked for.
        """
        exported, together = self.claim.exported, self.claim.together
        right = exported.pick(exported.own_outputs()) if together else []
        answers = together() if together else ()
        return [_shape_fault(exported, outputs) or fidelity.compare(outputs, right) for outputs in answers]

    @cached_property
    def is_of_nan(self) -> bool:
        """Return whether the input set with the largest error holds NaN, a missing value."""
        sets = self.claim.buffers
        missing = [any(np.isnan(one).any() for one in given.values() if one.dtype.kind == "f") for given in sets]
        if not any(missing):
            return False
        right = self.claim.exported.own_outputs()
        known = fidelity.sizes(right)
        pairs = zip(self.outputs, right, strict=True)
        errors = [math.inf if (error := fidelity.set_error(*pair, known)) is None else error for pair in pairs]
        return max(errors) > 0 and missing[int(np.argmax(errors))]


def verify(claim: Claim, keep: Path | None = None) -> Verified:
    """Compare the outputs for every input buffer with the reference outputs, read back what the runtime runs, and judge
    both.

    Args:
        keep: a folder that gets its outputs for the rows of the report split, which a metric scores.
    """
    outputs, calls_s = _call_all(claim)
    if fault := _shape_fault(claim.exported, outputs):
        nothing = replace(fidelity.NOTHING, standing="refused")
        return Verified(executed=claim.session.executed, fidelity=nothing, fault=fault)
    evidence = _gather_evidence(claim, outputs)
    fault = next((why for check in CHECKS if (why := check(evidence))), None)
    if keep and not fault:
        _keep_report(claim, keep)
    standing: BoundStanding = "refused"
    if not fault:
        worst = max([evidence.own, *(one for one in evidence.instances if isinstance(one, Fidelity))], key=rank_error)
        standing = fidelity.standing(worst, evidence.own.error_bound, is_judged=evidence.is_judged)
    found = replace(evidence.fidelity, standing=standing)
    return Verified(executed=evidence.executed, fidelity=found, fault=fault, call_s=min(calls_s))


def rank_error(found: Fidelity) -> float:
    """Return the size of an error: one that isn't known is the largest."""
    return math.inf if found.relative_l2 is None else found.relative_l2


def _call_all(claim: Claim) -> tuple[list[Arrays], list[float]]:
    """Return the outputs for every input buffer, and each call's seconds.

    Of a stream, call by call, in a slot that no handle is kept of.
    """
    calls_s = list[float]()

    def call(inputs: Arrays, slot: int) -> Arrays:
        with clock.Stopwatch() as watch:
            outputs = call_once(claim.session, inputs, slot)
        calls_s.append(watch.seconds)
        return outputs

    if stream := claim.exported.stream:
        step = stream.carry(lambda inputs: call(inputs, _spare_slot(claim)))
        return list(map(step, claim.buffers)), calls_s
    return [call(inputs, slot) for slot, inputs in enumerate(claim.buffers)], calls_s


def _spare_slot(claim: Claim) -> int:
    """Return a slot behind those that keep the timed inputs."""
    return len(claim.exported.pick(claim.buffers))


def call_once(session: Session, inputs: Arrays, slot: int = 0) -> Arrays:
    """Return the outputs for one set of inputs."""
    raw = session.execute(session.stage(inputs, slot))
    session.synchronize()
    return session.fetch(raw)


def _gather_evidence(claim: Claim, outputs: Sequence[Arrays]) -> Evidence:
    exported, target = claim.exported, claim.arm.target
    reference = exported.reference_outputs()
    found, step_fault = claim.judge(fidelity.compare(outputs, reference, exported.batch), claim)
    executed = claim.session.executed
    error_bound, least = exported.error_bound(target, claim.rests, is_whole=is_mostly_labeled(executed, target))
    found = replace(
        found,
        error_bound=error_bound,
        by_output=tuple(replace(one, row=exported.number_row(one.row)) for one in found.by_output),
        by_step=_find_step_errors(claim, outputs, reference, executed),
    )
    if shared := exported.shared_outputs():
        found = replace(found, shared_l2=fidelity.compare(outputs, shared).relative_l2)
    own = found
    if exported.original:
        right = exported.own_outputs()
        own = replace(
            fidelity.compare(outputs, right),
            error_bound=error_bound,
            by_step=_find_step_errors(claim, outputs, right, executed),
        )
    return Evidence(
        claim=claim,
        outputs=outputs,
        executed=executed,
        fidelity=found,
        own=own,
        step_fault=step_fault,
        is_judged=exported.is_judged(target, claim.rests),
        least=least,
    )


def _find_step_errors(
    claim: Claim, outputs: Sequence[Arrays], reference: Sequence[Arrays], executed: Executed
) -> tuple[StepError, ...]:
    """Compare a clip's first calls with the reference, at each mark of the stream; none of single calls."""
    stream, target = claim.exported.stream, claim.arm.target
    if stream is None:
        return ()
    is_whole, found = is_mostly_labeled(executed, target), list[StepError]()
    for mark, error in zip(stream.marks, fidelity.errors_by_mark(outputs, reference, stream), strict=True):
        upto = claim.exported.up_to(mark)
        bound = upto.error_bound(target, claim.rests, is_whole=is_whole)[0]
        is_judged = upto.is_judged(target, claim.rests) and bound is not None and bound <= USEFUL_BOUND
        found.append(StepError(step=mark, relative_l2=error, error_bound=bound if is_judged else None))
    return tuple(found)


def _keep_report(claim: Claim, keep: Path) -> None:
    """Leave the outputs for the report split in a folder."""
    report, stream, batch = claim.exported.report(), claim.exported.stream, claim.exported.batch
    assert report is not None, "a folder is given for a model with rows to score"

    def call(inputs: Arrays) -> Arrays:
        return call_once(claim.session, inputs, _spare_slot(claim))

    run: Callable[[Arrays], Arrays] = stream.carry(call) if stream else call
    run = saving(run, keep, calls=-(-len(report.rows) // batch))
    for inputs in report.calls(batch):
        run(inputs)


def _shape_fault(exported: ExportedModel, outputs: Sequence[Arrays]) -> str | None:
    return next((why for answer in outputs if (why := fidelity.check_outputs(exported.outputs, answer))), None)


def check_place(evidence: Evidence) -> str | None:
    """Check that it stayed on its CPUs and thread counts; a software device is never timed and may run anywhere."""
    return None if evidence.executed.software else evidence.claim.strayed


def check_account(evidence: Evidence) -> str | None:
    """Check that the runtime's own account agrees with the label."""
    return executed_fault(evidence.executed, evidence.claim.arm)


def check_step(evidence: Evidence) -> str | None:
    """Check that a training step leaves the weights and momenta that it should."""
    return evidence.step_fault


def check_error(evidence: Evidence) -> str | None:
    """Check that the outputs err no more, and no less, than the label's precision explains, if inputs can show that.

    A file that races its original is compared with its own outputs.
    """
    fault = _apply_gate(evidence, evidence.own)
    return f"{fault}{NAN_FAULT}" if fault and evidence.is_of_nan else fault


def check_first_calls(evidence: Evidence) -> str | None:
    """Check that a clip's first calls err no more than the label's precision explains so soon."""
    for one in evidence.own.by_step[:-1]:  # the last is the whole
        if one.error_bound is None:
            continue
        calls = "the first call of a clip" if one.step == 1 else f"the first {one.step} calls of a clip"
        if one.relative_l2 is None:
            return f"the output has NaN or infinity where the reference has none, or the other way round, in {calls}"
        if one.relative_l2 > max(one.error_bound, evidence.claim.max_error):
            told = f"relative L2 error {one.relative_l2:.2g} in {calls}"
            return f"{told} is above the error bound of this precision there, {one.error_bound:.2g}"
    return None


def check_reference(evidence: Evidence) -> str | None:
    """Check that a row which runs the shared quantized model agrees with that model as it is written."""
    found = evidence.fidelity
    return None if evidence.claim.exported.original else fidelity.disagreement(found, found.error_bound)


def check_instances(evidence: Evidence) -> str | None:
    """Check that instances answer at once as each does alone."""
    for answer in evidence.instances:
        if fault := answer if isinstance(answer, str) else _apply_gate(evidence, answer):
            return f"of {len(evidence.instances)} instances at once: {fault}"
    return None


def _apply_gate(evidence: Evidence, found: Fidelity) -> str | None:
    return fidelity.gate(
        found,
        evidence.fidelity.error_bound,
        evidence.least,
        is_judged=evidence.is_judged,
        is_real=not evidence.claim.exported.drawn,
        max_error=evidence.claim.max_error,
        is_scored=evidence.claim.is_scored,
        flips=find_flips(evidence.claim),
    )


def find_flips(claim: Claim) -> dict[str, float]:
    """Return the share of each whole-number output that may differ; if a metric scores it, all that is explained."""
    flips = claim.exported.flips_of(claim.arm.target, claim.rests)
    return flips if claim.is_scored or not flips else fidelity.useful_flips(flips, claim.exported.own_outputs())


CHECKS: Sequence[Callable[[Evidence], str | None]] = (
    check_place,
    check_account,
    check_step,
    check_error,
    check_first_calls,
    check_reference,
    check_instances,
)
"""In the order in which a fault is told."""


def probe_name(precision: Precision) -> str:
    """Return which of the probes' models shows this precision."""
    return "grid_probe" if precision in SCALED else "permutation_probe"


def executed_fault(executed: Executed, arm: Arm) -> str | None:
    """Explain how the runtime's own account contradicts the arm's label; None if it agrees.

    It tells the precision, the device and the threads.
    """
    if arm.threads and executed.threads is not None and executed.threads != arm.threads:
        return f"asked for {arm.threads} threads, but {executed.library} uses {executed.threads}"
    named = next((device for device in Device if device.is_gpu and device in executed.device.lower()), Device.CPU)
    if named is not arm.target.device:
        return f"labeled {arm.target.device}, but {executed.library} computes on {executed.device}"
    if arm.target.precision is Precision.NATIVE:
        return None
    return _precision_fault(executed, arm.target)


def _precision_fault(executed: Executed, target: Target) -> str | None:
    """Explain a runtime that ran nothing in the labeled precision; a mixed account is no fault.

    A float model without compute nodes (a reshape, say) contradicts nothing; a quantized model must show some.
    """
    counts, label = executed.compute_nodes_by_precision, schemes.promised(target.precision, target.scheme)
    if not counts and target.precision in SCALED:
        return f"labeled {label}, but {executed.library} reports no compute node at all"
    known = COUNTED.get(target.precision) or (schemes.shown_as(target.precision, target.scheme),)
    if not counts or any(counts.get(name) for name in known):
        return None
    ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
    moved = f"; beside them {executed.conversion_nodes} nodes only convert" if executed.conversion_nodes else ""
    return f"labeled {label}, but {executed.library} ran its compute nodes elsewhere: {ran}{moved}"


def probe_fault(found: str | None, target: Target) -> str | None:
    """Explain how the probe's answer contradicts the label, or return None, as without an answer."""
    shown = schemes.shown_as(target.precision, target.scheme)
    if found is None or found == PROBED.get(shown, shown):
        return None
    probe, label = probe_name(target.precision).replace("_", " "), schemes.promised(target.precision, target.scheme)
    return f"labeled {label}, but the {probe} finds {found}: the runtime did not honor the precision"


def is_mostly_labeled(executed: Executed, target: Target) -> bool:
    """Return whether at least half of the compute nodes ran in the label's precision, by the runtime's own account."""
    counts = executed.compute_nodes_by_precision
    return 2 * counts.get(schemes.shown_as(target.precision, target.scheme), 0) >= sum(counts.values())
