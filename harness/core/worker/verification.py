"""Check that a loaded arm is true to its label: before it is timed, and between its timed blocks.

`verify` gathers what the arm computes and what it tells of itself, then judges both. Each check looks at the same
evidence and returns what is wrong, or None. The first fault closes the gate, and an arm with a closed gate is never
timed.

`Rechecks` checks between the blocks, when no clock runs, that a timed arm still computes; a fault fails the arm. An arm
could keep the answers that were checked before timing, or stop computing once it is timed. So some turns end with two
more calls, through the very functions that are timed. One is on an input that the block had. The other is on an input
that the arm never had, written over another one in the same memory. Both answers must be right. A restart has a few
such inputs whose answers are known, and each answer is checked once. After those, the other call is on another buffer's
inputs.

Once in a restart calls on new inputs are also read, each of them twice. An arm that keeps answers is slow the first
time only. MLPerf's LoadGen has the same two tests (TEST01 and TEST04). A last call after the rounds finds an arm that
stopped since.

A new input is like the known ones and near none of them (see `ExportedModel.unseen`). An arm may know inputs by a
part, a sum or a rounding of their numbers. If it takes a new input for new, it is slow; if it takes it for known, it
is wrong.

An arm that computes may be slow on new inputs too. Its library may prepare kernels for each inner shape, and shapes
may follow from values; a large forest's new branches aren't in the cache. So an arm keeps answers only if inputs that
hardly differ also take it longer the first time. If most of these get the same answer to the last bit, a key may round
them, so they differ by more. Answers of a forest are the same as well, but take as long.

An arm that trains is not checked so: each of its calls changes the next answer.

Of a stream, the arm plays whole clips before it is timed, and gets its own states back as it does later. Its error may
grow from call to call, and so may what its precision explains. So it is held to the error bound of a clip's first call,
of its first 10 and 100, and of all (see `Stream.marks`), as far as these bounds prove anything. The checks between
blocks are of single calls, on the states that the reference had.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from statistics import mean, median

import numpy as np

from shootout.core import clock
from shootout.core.adapter import Session
from shootout.core.constants import LONG_CALL_NS, RECHECK_SHARE, USEFUL_BOUND
from shootout.core.contract import Arm, Arrays, BoundStanding, Executed, Fidelity, Rests, StepError, TensorSpec
from shootout.core.exported import fidelity
from shootout.core.exported.calls import NUDGES, can_mix, mix_sets, nudge
from shootout.core.exported.model import ExportedModel
from shootout.core.host.npz import saving
from shootout.core.messages import Verified
from shootout.core.worker.blocks import Blocks, Caller
from shootout.core.worker.precision_checks import executed_fault, is_mostly_labeled

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
        steps: of a stream, the errors of a clip's first calls as the gate goes by them, at all marks; else none.
        is_judged: whether that is held against the error (see `ExportedModel.is_judged`).
        least: an error that is no larger can't be the label's.
        is_of_nan: whether the input set with the largest error holds NaN, a missing value; compared when first asked.
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
    steps: tuple[StepError, ...] = ()
    is_of_nan: Callable[[], bool]


def verify(claim: Claim, keep: Path | None = None) -> Verified:
    """Compare the outputs for every input buffer with the reference outputs, read back what the runtime runs, and judge
    both.

    Args:
        keep: a folder that gets its outputs for the rows of the report split, which a metric scores.
    """
    outputs, calls_s = _call_all(claim)
    if fault := _shape_fault(claim.exported, outputs):
        nothing = replace(fidelity.NOTHING, standing=BoundStanding.REFUSED)
        return Verified(executed=claim.session.executed, fidelity=nothing, fault=fault)
    evidence = _gather_evidence(claim, outputs)
    fault = next((why for check in CHECKS if (why := check(evidence))), None)
    if keep and not fault:
        _keep_report(claim, keep)
    standing = BoundStanding.REFUSED if fault else _find_standing(evidence)
    judged = replace(evidence.fidelity, standing=standing)
    return Verified(executed=evidence.executed, fidelity=judged, fault=fault, call_s=min(calls_s))


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
    errors = fidelity.compare(outputs, claim.exported.reference_outputs(), claim.exported.batch)
    stepped, step_fault = claim.judge(errors, claim)
    executed, target = claim.session.executed, claim.arm.target
    error_bound, least = claim.exported.error_bound(target, claim.rests, is_whole=is_mostly_labeled(executed, target))
    by_output = tuple(replace(one, row=claim.exported.number_row(one.row)) for one in stepped.by_output)
    with_bound = replace(stepped, error_bound=error_bound, by_output=by_output)
    reference = claim.exported.shared_outputs()
    steps = _find_step_errors(claim, outputs, claim.exported.reference_outputs(), executed)
    compared = replace(fidelity.with_shared(with_bound, outputs, reference) if reference else with_bound, by_step=steps)
    return Evidence(
        claim=claim,
        executed=executed,
        fidelity=compared,
        judged=fidelity.compare(outputs, claim.exported.own_outputs()) if claim.exported.original else compared,
        together=cache(lambda: [*_compare_instances(claim)]),
        step_fault=step_fault,
        error_bound=error_bound,
        is_judged=claim.exported.is_judged(target, claim.rests),
        least=least,
        steps=_find_step_errors(claim, outputs, claim.exported.own_outputs(), executed)
        if claim.exported.original
        else steps,
        is_of_nan=cache(lambda: _is_of_nan(claim, outputs)),
    )


def _is_of_nan(claim: Claim, outputs: Sequence[Arrays]) -> bool:
    """Return whether the input set with the largest error holds NaN."""
    missing = [any(np.isnan(one).any() for one in given.values() if one.dtype.kind == "f") for given in claim.buffers]
    if not any(missing):
        return False
    right = claim.exported.own_outputs()
    known = fidelity.sizes(right)
    pairs = zip(outputs, right, strict=True)
    errors = [math.inf if (error := fidelity.set_error(*pair, known)) is None else error for pair in pairs]
    return max(errors) > 0 and missing[int(np.argmax(errors))]


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


def _compare_instances(claim: Claim) -> Iterator[Fidelity | str]:
    own = claim.exported.pick(claim.exported.own_outputs())
    for outputs in claim.together() if claim.together else ():
        yield _shape_fault(claim.exported, outputs) or fidelity.compare(outputs, own)


def _find_standing(evidence: Evidence) -> BoundStanding:
    """Compare an arm without a fault to its error bound, by the worst of its instances."""
    fidelities = [evidence.judged, *(one for one in evidence.together() if not isinstance(one, str))]
    worst = max(fidelities, key=rank_error)
    return fidelity.standing(worst, evidence.error_bound, is_judged=evidence.is_judged)


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
    fault = _apply_gate(evidence, evidence.judged)
    return f"{fault}{NAN_FAULT}" if fault and evidence.is_of_nan() else fault


def check_first_calls(evidence: Evidence) -> str | None:
    """Check that a clip's first calls err no more than the label's precision explains so soon."""
    for one in evidence.steps[:-1]:  # the last is the whole
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
    return None if evidence.claim.exported.original else fidelity.disagreement(evidence.fidelity, evidence.error_bound)


def check_instances(evidence: Evidence) -> str | None:
    """Check that instances answer at once as each does alone."""
    answers = evidence.together()
    for answer in answers:
        if fault := answer if isinstance(answer, str) else _apply_gate(evidence, answer):
            return f"of {len(answers)} instances at once: {fault}"
    return None


def _apply_gate(evidence: Evidence, found: Fidelity) -> str | None:
    return fidelity.gate(
        found,
        evidence.error_bound,
        evidence.least,
        is_judged=evidence.is_judged,
        is_real=not evidence.claim.exported.drawn,
        max_error=evidence.claim.max_error,
        is_scored=evidence.claim.is_scored,
        flips=_find_flips(evidence.claim),
    )


def _find_flips(claim: Claim) -> dict[str, float]:
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


KEPT_BYTES = 32 << 20
"""Keep right answers for as many inputs as fit, and for two at least."""
SLOWER, MOSTLY, ODDS = 2.0, 0.75, 1e5
"""An arm that keeps answers takes more than `SLOWER` times as long on new inputs, in `MOSTLY` of the pairs of calls. An
honest arm does in half of them at most, whatever the noise, since which call of a pair comes first is drawn. So odds of
`ODDS` for `MOSTLY` against half come by chance once in as many restarts, after however many pairs (Ville's inequality).
"""
PAIRS, SHORT_PAIRS, MOST_PAIRS, SHORT_S = 5, 10, 200, 1e-3
"""Give up after so many pairs in a row that aren't slow, which halve the odds each, or after the most pairs. Calls
below `SHORT_S` seconds are noisier.
"""
KNOWN_CALLS = 9
"""Take the median of so many short calls on known inputs if there are few new ones."""
NUDGED = 16
"""Move so many inputs a little, and see if their answers move as well."""
Make = Callable[[int], Arrays]
"""Makes the inputs of a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Hold what an arm must answer to one set of inputs.

    Attributes:
        error: a larger relative L2 error is a fault; inf if no bound is known.
        mismatches: more wrong integers of an output than these are a fault; none of outputs that aren't here.
    """

    outputs: Arrays
    error: float
    mismatches: Mapping[str, float]


@dataclass(slots=True, kw_only=True)
class Rechecks:
    """Check a verified arm's later answers.

    Attributes:
        right: what is expected for each input buffer, and the `sizes` of all these outputs.
        unseen: inputs that the arm hasn't had, and what is expected for them.
        is_finite: whether the float outputs were finite before timing.
        call_s: what a call takes, as far as the arm has shown.
    """

    specs: Sequence[TensorSpec]
    right: Sequence[Expected]
    unseen: Sequence[tuple[Arrays, Expected]]
    sizes: Mapping[str, float]
    is_finite: bool
    call_s: float = 0.0
    _left_s: float = field(default=0.0, init=False)
    _needs_s: float = field(default=0.0, init=False)
    _asked: int = field(default=0, init=False)
    _used: int = field(default=-1, init=False)

    @classmethod
    def of(cls, claim: Claim, verified: Verified) -> Rechecks | None:
        """Make the checks of an arm that passed; None if it trains.

        An answer may err by twice what the check before timing let pass, since a runtime may not repeat itself to the
        last bit. The answer to an unseen input may also be off by half the way to the nearest known answer. No check
        before has shown that this arm rounds no more there. Of whole numbers no more may differ than half of those in
        which the nearest other known answer does, unless the check before timing saw as many.
        """
        if claim.exported.trained:
            return None
        right = claim.exported.pick(claim.exported.own_outputs())
        error_bound = verified.fidelity.error_bound
        is_judged, sizes = claim.exported.is_judged(claim.arm.target, claim.rests), fidelity.sizes(right)
        widest = math.inf if claim.is_scored else USEFUL_BOUND
        most = max(math.inf if error_bound is None else min(error_bound, widest), claim.max_error)
        allowed = 2 * most if is_judged else math.inf
        size = sum(array.nbytes for array in right[0].values())
        kept = right[: max(2, KEPT_BYTES // max(size, 1))]
        flips = _find_flips(claim)
        seen = {one.name: math.ceil(one.flipped * right[0][one.name].size) for one in verified.fidelity.by_output}

        def expected(outputs: Arrays, nearest: float = 0.0, *, is_known: bool = False) -> Expected:
            most = _halfway(outputs, [one for one in kept if one is not outputs])
            if is_known:
                most = {name: min(2 * flips.get(name, 0.0) * outputs[name].size, half) for name, half in most.items()}
            most = {name: max(count, seen.get(name, 0)) if is_judged else math.inf for name, count in most.items()}
            return Expected(outputs=outputs, error=max(allowed, nearest / 2), mismatches=most)

        def unseen(outputs: Arrays) -> Expected:
            return expected(outputs, min(fidelity.set_error(one, outputs, sizes) or 0.0 for one in right))

        return cls(
            specs=claim.exported.outputs,
            right=[expected(outputs, is_known=True) for outputs in kept],
            unseen=[(inputs, unseen(outputs)) for inputs, outputs in claim.exported.unseen()],
            sizes=sizes,
            is_finite=verified.fidelity.relative_l2 is not None,
        )

    def look(self, blocks: Caller, played_s: float) -> str:
        """Check once more if the turns since the last check pay for it; return what is wrong, or "".

        Args:
            played_s: seconds of the turn that has just ended.
        """
        self._left_s += RECHECK_SHARE * played_s
        if self._left_s < self._needs_s:
            return ""
        self._asked += 1
        is_short = self.call_s * 1e9 <= LONG_CALL_NS
        is_read = self._asked == 2 and is_short
        self._used += not is_read
        with clock.Stopwatch() as watch:
            faults = blocks.at_once(self._check_kept_answers if is_read else self._check_answers)
        self._left_s -= watch.seconds
        if self._asked == 1:  # an arm that keeps answers plays short turns, which would never pay for its one real call
            self._left_s = max(self._left_s, 0.0)
        self._needs_s = 2 * self._pair_count * self.call_s if self._asked == 1 and is_short else 0.0
        return next(filter(None, faults), "")

    def look_once_more(self, blocks: Caller) -> str:
        """Check once after the last round, whatever it takes; return what is wrong, or ""."""
        self._asked += 1
        return next(filter(None, blocks.at_once(self._check_known_answer)), "")

    def _check_known_answer(self, blocks: Blocks) -> str:
        """Check one session's answer to an input that it has had."""
        slot, _ = self._choose_slots()
        why = self._find_fault(self.right[slot], blocks.computed(slot))
        return f"between timed blocks it answered wrongly: {why}" if why else ""

    def _check_answers(self, blocks: Blocks) -> str:
        """Check one session's answers to an input that it has had, and to one that it hasn't.

        Each unseen input is checked once, since it isn't new any more then. After those, or if no other inputs are
        known to be valid, the second input is that of another buffer in the same memory.
        """
        if wrong := self._check_known_answer(blocks):
            return wrong
        slot, other = self._choose_slots()
        with _lend_memory(blocks, slot) as (memory, sets):
            inputs, expected = sets[other], self.right[other]
            if self._used < len(self.unseen):
                inputs, expected = self.unseen[self._used]
            _fill_memory(memory, inputs)
            outputs = blocks.answered(slot)
            if not (why := self._find_fault(expected, outputs)):
                return ""
            is_new = all(self._find_fault(known, outputs) for known in self.right)
            old = "" if is_new else "; it gave the answer to other inputs"
        return f"to inputs that it had not seen it answered wrongly: {why}{old}"

    def _check_kept_answers(self, blocks: Blocks) -> str:
        """Check whether one session is much slower on inputs that it hasn't had than on the same ones again.

        Each new input is read again after the next one. So a model whose inputs decide what it computes (While, If)
        computes the same in both. One that looks whether its input has changed at all does so in both. No export has
        run these mixes: if the arm can't take one, this tells nothing.
        """
        if not self.unseen:  # inputs like these may be invalid
            return ""
        slot, _ = self._choose_slots()
        with _lend_memory(blocks, slot) as (memory, sets):
            try:
                times = self._find_slowdown(_CallTimer(blocks=blocks, slot=slot, memory=memory), sets)
            except Exception:  # mixes of valid inputs may be invalid
                traceback.print_exc()
                return ""
        return f"inputs that it had not seen took {times:.0f} times as long: it keeps answers" if times else ""

    def _find_slowdown(self, timer: _CallTimer, sets: Sequence[Arrays]) -> float:
        """Return how many times as long new inputs take if the arm keeps its answers, else 0."""
        if not can_mix(sets):  # then the checked sets are all that is new, without the one that was used
            checked = [inputs for inputs, _ in self.unseen]
            known = KNOWN_CALLS if self.call_s < SHORT_S else 1
            found = list(timer.read_ratios(checked.__getitem__, iter(range(len(checked))), known))
            return median(found) if len(found) >= PAIRS and min(found) > SLOWER else 0.0
        seed = int(np.random.default_rng().integers(2**32))

        def mix(number: int) -> Arrays:
            return mix_sets(sets, np.random.default_rng((seed, number)))

        def nudged(number: int, share: float) -> Arrays:
            return nudge(mix(number), np.random.default_rng((seed, number, 1)), share)

        numbers = count()
        times = judge_ratios(timer.read_ratios(mix, islice(numbers, MOST_PAIRS)), self._pair_count)
        if not times:
            return 0.0
        moves = (partial(nudged, share=share) for share in NUDGES)
        move = next((one for one in moves if timer.are_distinct(mix, one, islice(numbers, NUDGED))), None)
        move = move or partial(nudged, share=NUDGES[-1])
        return (
            times if judge_ratios(timer.read_moves(mix, move, islice(numbers, MOST_PAIRS)), self._pair_count) else 0.0
        )

    @property
    def _pair_count(self) -> int:
        return SHORT_PAIRS if self.call_s < SHORT_S else PAIRS

    def _choose_slots(self) -> tuple[int, int]:
        """Return two input buffers whose answers are known, others each time."""
        known = len(self.right)
        return self._asked % known, (self._asked + 1) % known

    def _find_fault(self, expected: Expected, outputs: Arrays) -> str | None:
        if why := fidelity.check_outputs(self.specs, outputs):
            return why
        flips = fidelity.count_flips(outputs, expected.outputs)
        if any(count > expected.mismatches.get(name, 0) for name, count in flips.items()):
            return "integer or boolean elements differ"
        error = fidelity.set_error(outputs, expected.outputs, self.sizes)
        if error is None:
            return "the output has NaN or infinity" if self.is_finite else None
        return f"relative L2 error {error:.2g}, above {expected.error:.2g}" if error > expected.error else None


def judge_ratios(ratios: Iterable[float], pairs: int) -> float:
    """Return the median of these ratios as soon as most are shown to be above `SLOWER`; 0 if they aren't.

    Args:
        ratios: of the seconds of a call on new inputs and on known ones.
        pairs: give up after so many in a row that are not above, if these are the first.
    """
    odds, seen = 1.0, list[float]()
    for ratio in ratios:
        seen.append(ratio)
        odds *= 2 * MOSTLY if ratio > SLOWER else 2 * (1 - MOSTLY)
        if odds >= ODDS:
            return median(seen)
        if odds <= (2 * (1 - MOSTLY)) ** pairs:
            return 0.0
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _CallTimer:
    """Read calls on inputs that are written over those of one buffer."""

    blocks: Blocks
    slot: int
    memory: Arrays

    def read_ratios(self, make: Make, numbers: Iterator[int], known: int = 1) -> Iterator[float]:
        """Yield how many times as long each new input takes as the one before takes again.

        Args:
            make: makes the inputs of a number, again for each call: so calls on new and on known inputs differ in
                nothing else.
            numbers: of the inputs. The first is known after a call that isn't read.
            known: calls on known inputs for each on new ones; their median counts.
        """
        before = next(numbers)
        self._fetch_answer(make(before))
        for number in numbers:
            yield self._read_pair(partial(make, number), partial(make, before), known)
            before = number

    def read_moves(self, make: Make, move: Make, numbers: Iterator[int]) -> Iterator[float]:
        """Yield likewise how many times as long inputs take that were moved a little, if their answer moved, too."""
        for number in numbers:
            self._fetch_answer(make(number))
            ratio = self._read_pair(partial(move, number), partial(make, number))
            if not self._is_same(make(number), move(number)):
                yield ratio

    def are_distinct(self, make: Make, move: Make, numbers: Iterator[int]) -> bool:
        """Return whether most of these inputs get another answer when they are moved a little."""
        return mean(self._is_same(make(number), move(number)) for number in numbers) < 1 / 2

    def _read_pair(self, new: Callable[[], Arrays], known: Callable[[], Arrays], calls: int = 1) -> float:
        seen_s, new_s = list[float](), list[float]()
        for at in np.random.default_rng().permutation(1 + calls):
            _fill_memory(self.memory, known() if at else new())
            (seen_s if at else new_s).append(self.blocks.seconds_to_answer(self.slot))
        return new_s[0] / max(median(seen_s), 1e-9)

    def _is_same(self, one: Arrays, other: Arrays) -> bool:
        """Return whether both get the same floats to the last bit; False if outputs have none."""
        floats = [
            [array.tobytes() for array in self._fetch_answer(inputs).values() if array.dtype.kind == "f"]
            for inputs in (one, other)
        ]
        return bool(floats[0]) and floats[0] == floats[1]

    def _fetch_answer(self, inputs: Arrays) -> Arrays:
        _fill_memory(self.memory, inputs)
        return self.blocks.answered(self.slot)


def _halfway(outputs: Arrays, others: Sequence[Arrays]) -> dict[str, float]:
    """Return half of the elements, but 1 at least, in which the nearest other answer's whole numbers differ."""
    counts = [fidelity.count_flips(one, outputs) for one in others]
    wholes = [name for name, right in outputs.items() if right.dtype.kind != "f"]
    return {name: max(1.0, min((one[name] for one in counts), default=0) / 2) for name in wholes}


@contextmanager
def _lend_memory(blocks: Blocks, slot: int) -> Iterator[tuple[Arrays, Sequence[Arrays]]]:
    """Lend the memory of an input buffer, with the inputs of all buffers; its own are staged again on return."""
    memory = blocks.buffers[slot]
    own = {name: array.copy() for name, array in memory.items()}
    try:
        alike = (buffer for buffer in blocks.buffers if _shapes(buffer) == _shapes(own))  # those of its size
        yield memory, [own if buffer is memory else buffer for buffer in alike]
    finally:
        _fill_memory(memory, own)
        blocks.stage(slot)


def _shapes(inputs: Arrays) -> list[tuple[int, ...]]:
    return [array.shape for array in inputs.values()]


def _fill_memory(memory: Arrays, inputs: Arrays) -> None:
    for name, array in inputs.items():
        np.copyto(memory[name], array)
