"""Does a timed arm still compute? Asked between its blocks, when no clock runs; a fault fails the arm.

What is checked before timing alone could be kept: an arm could answer from memory, or stop computing once it is timed.
So some of its turns end with two more calls, through the very functions that are timed: one on an input that the block
had, whose answer must still be right, and one on an input that it never had, written over another one in the same
memory. Once in a generation calls on new inputs are also read, each of them twice: an arm that keeps answers is slow
the first time only. MLPerf's LoadGen has the same two tests (TEST01 and TEST04). A last call after the rounds is for an
arm that stopped since.

A new input is like the known ones and near none of them (see `bundle.unseen`). An arm that knows inputs by a part, a
sum or a rounding of their numbers either takes it for new, and is slow, or for a known one, and is wrong.

An arm that trains is not asked again: each of its calls changes what the next one answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np

from shootout import clock
from shootout.bundle import fidelity
from shootout.bundle.unseen import mixed
from shootout.constants import LONG_CALL_NS, RECHECK_SHARE, USEFUL_BAND
from shootout.contract import Arrays, TensorSpec
from shootout.messages import Verified
from shootout.worker.blocks import Blocks
from shootout.worker.concurrent import Instances
from shootout.worker.verification import Claim

KEPT_BYTES = 32 << 20
"""Right answers are kept for as many inputs as fit, and for two at least."""
PAIRS, SHORT_PAIRS, SHORT_S = 5, 9, 1e-3
"""So many calls on new inputs are read, and as many on them again, in pairs; more of calls so short that they are read
alone badly.
"""
SLOWER, TIMES = 2.0, 5
"""An arm that keeps answers takes so many times as long on new inputs, each of so many times: noise would have to meet
the same call of each pair again and again. Which comes first is drawn, or a scheduler's rhythm could meet it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an arm is to answer to one set of inputs.

    Attributes:
        error: a larger relative L2 error is a fault; inf where nobody knows.
        mismatches: so many wrong integers are none.
    """

    outputs: Arrays
    error: float
    mismatches: float


@dataclass(slots=True, kw_only=True)
class Rechecks:
    """What a verified arm's later answers are held to.

    Attributes:
        right: what is expected for each input buffer, and the `sizes` of all these outputs.
        unseen: inputs that the arm hasn't had, and what is expected for them.
        is_finite: whether the float outputs were.
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

    @classmethod
    def of(cls, claim: Claim, verified: Verified) -> Rechecks | None:
        """For an arm that passed; None for one that trains.

        It may err by twice what the check before timing let pass, since a runtime may not repeat itself to the last
        bit. The answer to an unseen input may also be off by half the way to the nearest known answer: no check before
        has shown that this arm rounds no more there.
        """
        if claim.bundle.trained:
            return None
        right, band = claim.bundle.own_outputs(), verified.fidelity.band
        is_judged, sizes = claim.bundle.is_judged(claim.arm.target, claim.rests), fidelity.sizes(right)
        most = max(math.inf if band is None else min(band, USEFUL_BAND), claim.max_error)
        allowed = 2 * most if is_judged else math.inf
        size = sum(array.nbytes for array in right[0].values())

        def expected(outputs: Arrays, nearest: float = 0.0, differing: float = 0.0) -> Expected:
            mismatches = differing / 2 if is_judged else math.inf
            return Expected(outputs=outputs, error=max(allowed, nearest / 2), mismatches=mismatches)

        def unseen(outputs: Arrays) -> Expected:
            nearest = min(fidelity.set_error(one, outputs, sizes) or 0.0 for one in right)
            differing = min(_mismatches(one, outputs) for one in right)
            return expected(outputs, nearest, max(2, differing))

        return cls(
            specs=claim.bundle.outputs,
            right=[expected(outputs) for outputs in right[: max(2, KEPT_BYTES // max(size, 1))]],
            unseen=[(inputs, unseen(outputs)) for inputs, outputs in claim.bundle.unseen()],
            sizes=sizes,
            is_finite=verified.fidelity.relative_l2 is not None,
        )

    def look(self, blocks: Blocks | Instances, played_s: float) -> str:
        """Ask again, if what was played since pays for it; what is wrong, or "".

        Args:
            played_s: seconds of the turn that has just ended.
        """
        self._left_s += RECHECK_SHARE * played_s
        if self._left_s < self._needs_s:
            return ""
        self._asked += 1
        with clock.Stopwatch() as watch:
            found = blocks.at_once(self._keeps_answers if self._asked == 2 else self._answers)
        self._left_s -= watch.seconds
        if self._asked == 1:  # who keeps answers plays short turns, which would never pay for the one that it computed
            self._left_s = max(self._left_s, 0.0)
        is_next_read = self._asked == 1 and self.call_s * 1e9 <= LONG_CALL_NS
        self._needs_s = 2 * self._pairs * self.call_s if is_next_read else 0.0
        return next(filter(None, found), "")

    def look_once_more(self, blocks: Blocks | Instances) -> str:
        """Ask once after the last round, whatever it takes; what is wrong, or ""."""
        self._asked += 1
        return next(filter(None, blocks.at_once(self._answers_again)), "")

    def _answers_again(self, blocks: Blocks) -> str:
        """Whether one session answers rightly to an input that it has had."""
        slot, _ = self._slots()
        why = self._fault(self.right[slot], blocks.computed(slot))
        return f"between timed blocks it answered wrongly: {why}" if why else ""

    def _answers(self, blocks: Blocks) -> str:
        """Whether one session answers rightly to an input that it has had, and to one that it hasn't.

        Where no other inputs are known to be valid, the latter is that of another buffer in the same memory.
        """
        if wrong := self._answers_again(blocks):
            return wrong
        slot, other = self._slots()
        with _lent(blocks, slot) as (memory, sets):
            inputs, expected = sets[other], self.right[other]
            if self.unseen:
                inputs, expected = self.unseen[self._asked // 2 % len(self.unseen)]
            _fill(memory, inputs)
            outputs = blocks.answered(slot)
            if not (why := self._fault(expected, outputs)):
                return ""
            old = "" if all(self._fault(one, outputs) for one in self.right) else "; it gave the answer to other inputs"
        return f"to inputs that it had not seen it answered wrongly: {why}{old}"

    def _keeps_answers(self, blocks: Blocks) -> str:
        """Whether one session is much slower on inputs that it hasn't had than on the same ones again.

        Each new input is read again after the next one. So a model whose inputs decide what it computes (While, If)
        computes the same in both, and one that looks whether its input has changed at all does so in both.
        """
        if not self.unseen:  # nobody knows whether inputs like these are valid
            return ""
        slot, _ = self._slots()
        rng = np.random.default_rng()
        drawn = int(rng.integers(2**32))
        news = count(1)
        with _lent(blocks, slot) as (memory, sets):

            def write(number: int) -> None:
                """Mix inputs anew, also those that were read: so calls differ in nothing else."""
                _fill(memory, mixed(sets, np.random.default_rng((drawn, number))))

            def read(number: int) -> float:
                write(number)
                return blocks.seconds_to_answer(slot)

            write(0)
            blocks.answered(slot)
            for _ in range(TIMES):
                unseen_s, seen_s = list[float](), list[float]()
                for number in islice(news, self._pairs):
                    for is_new in rng.permutation([True, False]):
                        (unseen_s if is_new else seen_s).append(read(number if is_new else number - 1))
                odd = self._pairs // 4
                times = sorted(unseen_s)[odd] / sorted(seen_s)[-1 - odd]
                if times < SLOWER:
                    return ""
        return f"inputs that it had not seen took {times:.0f} times as long: it keeps answers"

    @property
    def _pairs(self) -> int:
        return SHORT_PAIRS if self.call_s < SHORT_S else PAIRS

    def _slots(self) -> tuple[int, int]:
        """Two input buffers whose answers are known, others each time."""
        known = len(self.right)
        return self._asked % known, (self._asked + 1) % known

    def _fault(self, expected: Expected, outputs: Arrays) -> str | None:
        if why := fidelity.check_outputs(self.specs, outputs):
            return why
        if _mismatches(outputs, expected.outputs) > expected.mismatches:
            return "integer or boolean elements differ"
        error = fidelity.set_error(outputs, expected.outputs, self.sizes)
        if error is None:
            return "the output has NaN or infinity" if self.is_finite else None
        return f"relative L2 error {error:.2g}, above {expected.error:.2g}" if error > expected.error else None


def _mismatches(outputs: Arrays, right: Arrays) -> int:
    """How many elements of the outputs that are no floats differ."""
    pairs = ((outputs[name], array) for name, array in right.items() if array.dtype.kind != "f")
    return sum(int(np.count_nonzero(one != other)) for one, other in pairs)


@contextmanager
def _lent(blocks: Blocks, slot: int) -> Iterator[tuple[Arrays, Sequence[Arrays]]]:
    """The memory of an input buffer, for other inputs, and what all buffers hold; its own are in it again, and staged,
    on return.
    """
    memory = blocks.buffers[slot]
    own = {name: array.copy() for name, array in memory.items()}
    try:
        yield memory, [own if one is memory else one for one in blocks.buffers]
    finally:
        _fill(memory, own)
        blocks.stage(slot)


def _fill(memory: Arrays, inputs: Arrays) -> None:
    for name, array in inputs.items():
        np.copyto(memory[name], array)
