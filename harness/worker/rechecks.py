"""Does a timed arm still compute? Asked between its blocks, when no clock runs; a fault fails the arm.

What is checked before timing alone could be kept: an arm could answer from memory, or stop computing once it is timed.
So some of its turns end with two more calls, through the very functions that are timed: one on an input that the block
had, whose answer must still be right, and one on an input that it never had, written over another one in the same
memory. Once in a generation calls of both sorts are also read: who keeps answers is slow on what is new. MLPerf's
LoadGen has the same two tests (TEST01 and TEST04). A last call after the rounds is for who stopped since.

An arm that trains is not asked again: each of its calls changes what the next one answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from shootout import clock
from shootout.bundle import fidelity
from shootout.constants import LONG_CALL_NS, RECHECK_SHARE, USEFUL_BAND
from shootout.contract import Array, Arrays, TensorSpec
from shootout.messages import Verified
from shootout.worker.blocks import Blocks
from shootout.worker.concurrent import Instances
from shootout.worker.verification import Claim

KEPT_BYTES = 32 << 20
"""Right answers are kept for as many inputs as fit, and for two at least."""
PAIRS, SHORT_PAIRS, SHORT_S = 3, 9, 1e-3
"""So many calls on known and on new inputs are read by turns; more of calls so short that they are read alone badly."""
SLOWER, TIMES = 2.0, 3
"""Who keeps answers takes so many times as long on new inputs, each of so many times: noise would have to meet the same
every other call again and again.
"""

_APART = 64
"""Steps that a number with a fraction is from the next whole one: more than any call takes it nearer to 0."""


@dataclass(slots=True, kw_only=True)
class Rechecks:
    """What a verified arm's later answers are held to.

    Attributes:
        right: the right outputs, by input buffer, and `sizes` of all of them.
        allowed: a larger relative L2 error is a fault: twice what the check before timing let pass, since a runtime may
            not repeat itself to the last bit; inf where nobody knows.
        is_exact: whether integers have to be right.
        is_finite: whether the float outputs were.
        call_s: what a call takes, as far as the arm has shown.
    """

    specs: Sequence[TensorSpec]
    right: Sequence[Arrays]
    sizes: Mapping[str, float]
    allowed: float
    is_exact: bool
    is_finite: bool
    call_s: float = 0.0
    _left_s: float = field(default=0.0, init=False)
    _needs_s: float = field(default=0.0, init=False)
    _asked: int = field(default=0, init=False)

    @classmethod
    def of(cls, claim: Claim, verified: Verified) -> Rechecks | None:
        """For an arm that passed; None for one that trains."""
        if claim.bundle.trained:
            return None
        right, band = claim.bundle.own_outputs(), verified.fidelity.band
        is_judged = claim.bundle.is_judged(claim.arm.target, claim.rests)
        most = max(math.inf if band is None else min(band, USEFUL_BAND), claim.max_error)
        size = sum(array.nbytes for array in right[0].values())
        return cls(
            specs=claim.bundle.outputs,
            right=right[: max(2, KEPT_BYTES // max(size, 1))],
            sizes=fidelity.sizes(right),
            allowed=2 * most if is_judged else math.inf,
            is_exact=is_judged,
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
        why = self._fault(slot, blocks.computed(slot))
        return f"between timed blocks it answered wrongly: {why}" if why else ""

    def _answers(self, blocks: Blocks) -> str:
        """Whether one session answers rightly to an input that it has had, and to one that it hasn't."""
        if wrong := self._answers_again(blocks):
            return wrong
        slot, other = self._slots()
        with _lent(blocks, slot) as memory:
            _fill(memory, blocks.buffers[other], nudges=1)
            why = self._fault(other, blocks.answered(slot))
        return f"to inputs that it had not seen it answered wrongly: {why}" if why else ""

    def _keeps_answers(self, blocks: Blocks) -> str:
        """Whether one session is much slower on inputs that it hasn't had: all else about them is the same.

        Known and new ones are a few steps of one number apart, so that a model whose inputs decide what it computes
        (While, If) goes the same way with both.
        """
        slot, other = self._slots()
        news = count(2)
        with _lent(blocks, slot) as memory:
            if not _fill(memory, blocks.buffers[other], nudges=1):
                return ""
            blocks.answered(slot)

            def read(nudges: int) -> float:
                _fill(memory, blocks.buffers[other], nudges)
                return blocks.seconds_to_answer(slot)

            for _ in range(TIMES):
                seen_s, unseen_s = zip(*((read(1), read(next(news))) for _ in range(self._pairs)), strict=True)
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

    def _fault(self, slot: int, outputs: Arrays) -> str | None:
        if why := fidelity.check_outputs(self.specs, outputs):
            return why
        right = self.right[slot]
        if self.is_exact and any(np.any(outputs[n] != right[n]) for n in right if n not in self.sizes):
            return "integer or boolean elements differ"
        error = fidelity.set_error(outputs, right, self.sizes)
        if error is None:
            return "the output has NaN or infinity" if self.is_finite else None
        return f"relative L2 error {error:.2g}, above {self.allowed:.2g}" if error > self.allowed else None


@contextmanager
def _lent(blocks: Blocks, slot: int) -> Iterator[Arrays]:
    """The memory of an input buffer, for other inputs; its own are in it again, and staged, on return."""
    memory = blocks.buffers[slot]
    own = {name: array.copy() for name, array in memory.items()}
    try:
        yield memory
    finally:
        _fill(memory, own)
        blocks.stage(slot)


def _fill(memory: Arrays, inputs: Arrays, nudges: int = 0) -> bool:
    """Write inputs over others, one number so many steps nearer to 0: new, and worth the same.

    It takes as long for any number of steps, so that calls after it differ in nothing else.

    Returns:
        Whether there is a number that this may be done to.
    """
    for name, array in inputs.items():
        np.copyto(memory[name], array)
    floats = [array for array in memory.values() if array.dtype in (np.float32, np.float64) and array.size > 1]
    for array in sorted(floats, key=lambda array: -array.size):
        flat = array.reshape(-1)
        sizes = _fractions(flat)
        if sizes[place := int(sizes.argmax())]:
            flat[place] -= nudges * np.spacing(flat[place])
            return True
    return False


def _fractions(numbers: Array) -> Array:
    """The magnitude of each number that has a fraction, and 0 for all others, which mean something as they are.

    Whole ones, 0 among them, may be tokens, counts or marks, and infinite ones masks; one that is a few steps from a
    whole one could pass it. A single number, such as a scale, may decide how large the outputs are: it isn't asked for.
    """
    sizes: Array = np.abs(numbers)
    with np.errstate(invalid="ignore"):  # of infinity and NaN
        is_apart = np.abs(sizes - np.rint(sizes)) > _APART * np.spacing(sizes)
    return np.where(is_apart, sizes, 0)
