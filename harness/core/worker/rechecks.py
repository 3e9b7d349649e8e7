"""Check between the timed blocks of an arm, when no clock runs, that it still computes; a fault fails the arm.

An arm could keep the answers that were checked before timing (see `verification`), or stop computing once it is timed.
So some turns end with two more calls, through the very functions that are timed. One is on an input that the block had.
The other is on an input that the arm never had, written over another one in the same memory. Both answers must be
right. A restart has a few such inputs whose answers are known, and each answer is checked once. After those, the other
call is on another buffer's inputs.

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

The checks are of single calls; those of a stream are on the states that the reference had.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from statistics import mean, median

import numpy as np

from shootout.core import clock
from shootout.core.constants import LONG_CALL_NS, RECHECK_SHARE, USEFUL_BOUND
from shootout.core.contract import Arrays, TensorSpec
from shootout.core.exported import fidelity
from shootout.core.exported.calls import NUDGES, can_mix, mix_sets, nudge
from shootout.core.messages import Verified
from shootout.core.worker.blocks import Blocks, Caller
from shootout.core.worker.verification import Claim, find_flips

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
        last bit. The answer to an unseen input may also be off by half the way to the nearest known answer: no check
        before has shown that this arm rounds no more there. If the check before timing held nothing against the arm's
        label, neither do these.
        """
        exported = claim.exported
        if exported.trained:
            return None
        right = exported.pick(exported.own_outputs())
        sizes, bytes_of_one = fidelity.sizes(right), sum(array.nbytes for array in right[0].values())
        kept = right[: max(2, KEPT_BYTES // max(bytes_of_one, 1))]
        error_bound, widest = verified.fidelity.error_bound, math.inf if claim.is_scored else USEFUL_BOUND
        error = 2 * max(math.inf if error_bound is None else min(error_bound, widest), claim.max_error)
        seen = {one.name: one.flipped * right[0][one.name].size for one in verified.fidelity.by_output}
        if not exported.is_judged(claim.arm.target, claim.rests):
            error, seen = math.inf, dict.fromkeys(right[0], math.inf)
        explained, known = find_flips(claim), list[Expected]()
        for outputs in kept:
            others = [one for one in kept if one is not outputs]
            mismatches = _count_allowed(outputs, others, seen, explained)
            known.append(Expected(outputs=outputs, error=error, mismatches=mismatches))
        unseen = list[tuple[Arrays, Expected]]()
        for inputs, outputs in exported.unseen():
            nearest = min(fidelity.set_error(one, outputs, sizes) or 0.0 for one in right)
            mismatches = _count_allowed(outputs, kept, seen)
            unseen.append((inputs, Expected(outputs=outputs, error=max(error, nearest / 2), mismatches=mismatches)))
        is_finite = verified.fidelity.relative_l2 is not None
        return cls(specs=exported.outputs, right=known, unseen=unseen, sizes=sizes, is_finite=is_finite)

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
        ratios = timer.read_moves(mix, move, islice(numbers, MOST_PAIRS))
        return times if judge_ratios(ratios, self._pair_count) else 0.0

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


def _count_allowed(
    outputs: Arrays, others: Sequence[Arrays], seen: Mapping[str, float], explained: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Count how many elements of each whole-number output may differ from the right ones.

    They are half of those in which the nearest other right answer differs, 1 at least, and no fewer than the check
    before timing saw.

    Args:
        others: right answers to other inputs.
        seen: by output, in how many elements it differed before timing.
        explained: the share that the precision explains, of which twice is the most; None: no check has shown that it
            explains no more here.
    """
    counts, allowed = [fidelity.count_flips(one, outputs) for one in others], dict[str, float]()
    for name in (name for name, right in outputs.items() if right.dtype.kind != "f"):
        most = max(1.0, min((one[name] for one in counts), default=0) / 2)
        if explained is not None:
            most = min(most, 2 * explained.get(name, 0.0) * outputs[name].size)
        allowed[name] = max(most, np.ceil(seen.get(name, 0.0)))
    return allowed


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
