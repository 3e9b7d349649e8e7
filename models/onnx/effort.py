"""Decide how much an export may do from the seconds that it has and what a call takes, and note what it leaves out.

The export process makes one `Effort`, reports its progress in a file, and consults it before each long step. The parent
reads that file and ends an export that overruns all the same.

A model's size tells how long its calls, its export and its load take before anything is made of it. Calls follow from
what one of them computes. All rates are of one core of a server of 2024 (docs/evidence/sizes.md shows how far off that
is).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from shootout.core.clock import Deadline, Stopwatch
from shootout.core.constants import INPUT_BUFFERS, LEAST_RUNS, MIN_INPUT_BUFFERS
from shootout.core.contract import SCALED, Precision
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.exported.calls import Work
from shootout.core.exported.request import (
    LITTLE,
    LONGEST_EXPORT_S,
    is_export_whole,
    takes_little,
)
from shootout.core.messages import MORE_TIME, ExportProgress
from shootout.core.units import span
from shootout.models.onnx import INLINE_BYTES

T = TypeVar("T")
ALL_RUNS = 42.0
"""The number of runs of each input buffer if the error of every precision is predicted, with what rounding in the graph
costs. Besides, every set that gives the ranges of integers is run once.
"""
PREDICTED = frozenset(
    (
        Precision.FP16,
        Precision.BF16,
        Precision.TF32,
        Precision.INT4,
        Precision.INT8,
        Precision.INT8_DYNAMIC,
        Precision.FP8,
    )
)
SHORT_CALL_S = 0.2
"""After a shorter first call a second one is timed."""
LIKELY_SHARE = 0.7
"""A step that can't be cut begins where there is so much of the time that it is likely to take."""
BRIEF_SETS = 8
SETS = "the right outputs of {count} input sets, a call takes {call_s:.2g} s"
MOST_BESIDE = 4
"""Run at most so many input sets side by side: each needs memory of its own for what the graph computes."""
PRODUCTS_S = 6e10
"""Operations of matrix products a second."""
NODE_S = 8e-6
"""Seconds that a node takes which computes next to nothing."""
ELEMENT_S = 1.0e-9
"""Seconds of an element of all other nodes."""
WEIGHT_GB_S = 0.1
"""Seconds to read a GB of weights from memory, which a call can't avoid."""
EXPORT_S, EXPORT_GB_S, INLINE_GB_S = 0.8, 5.0, 28.0
"""Seconds of an export of a file, calls apart: a process that starts, a GB of weights that is copied and loaded. Of
weights in the graph itself a GB is parsed, moved and written several times.
"""
MODULE_S, MODULE_NODE_S, MODULE_GB_S = 4.5, 0.015, 18.0
"""Seconds of a torch module, of a file or from the user's code: torch is imported, nodes traced, weights written."""


def beside() -> int:
    """Return how many input sets of a file are run side by side."""
    return min(MOST_BESIDE, len(os.sched_getaffinity(0)))


class Effort:
    """Decide what one export may do in its time.

    Args:
        model: its name for people.
        limit: when the whole run ends: an export that can't make the least by then gives up.
        plan: when the export should end: what doesn't fit before that is left out.
        share: when it is ended.
        needs: the precisions whose error is needed, so that no others are predicted; none: those of all.
        leading: the precisions that may be the answer; if there isn't time for all, no others are predicted.
        report: the file for reports of progress; None: no process reads it.
    """

    def __init__(
        self,
        model: str = "",
        *,
        limit: Deadline | None = None,
        plan: Deadline | None = None,
        share: Deadline | None = None,
        needs: Collection[str] = (),
        leading: Collection[str] = (),
        report: Path | None = None,
    ) -> None:
        self.model = model
        self.limit, self.plan, self.share = (one or Deadline(None) for one in (limit, plan, share))
        self.whole_s: float | None = None
        self.needs, self.leading = frozenset(needs), frozenset(leading)
        self._parts: set[str] = set()
        self._report = report
        self.unpredicted: list[str] = []
        """The precisions whose error it left out, for want of time or because it isn't needed."""
        self._longest_s = 0.0
        self._input_sets = ""
        self._late: list[str] = []
        self._had_s = 0.0

    def tell(self, doing: str) -> None:
        """Say what is done now."""
        if self._report:
            fresh = self._report.with_suffix(".new")
            told = ExportProgress(model=self.model, doing=doing, whole_s=self.whole_s)
            fresh.write_text(json.dumps(asdict(told)), encoding="utf-8")
            fresh.replace(self._report)

    @property
    def is_brief(self) -> bool:
        """Return whether anything was left out."""
        return bool(self._input_sets or self._late)

    @property
    def most_sets(self) -> int | None:
        """Return how many drawn sets quantizers get; None: all there are."""
        return BRIEF_SETS if self._input_sets else None

    def require(self, seconds: float, what: str) -> None:
        """Check that there is time for a step that is all or nothing, and can't go on next time.

        Args:
            seconds: that it is likely to take; somewhat fewer do.
            what: it is, for people.

        Raises:
            SkippedArm: there is no time.
        """
        self.tell(what)
        if not self.share.allows(LIKELY_SHARE * seconds):
            raise SkippedArm(
                f"{what} of {self.model} takes about {span(seconds)}, and --max-time leaves "
                f"{span(max(self.share.left_s, 0.0))} for it; the file's own export is kept",
                MORE_TIME,
                NotRunKind.NOT_REACHED,
            )

    def buffers(
        self,
        count: int,
        call_s: float,
        least: int = MIN_INPUT_BUFFERS,
        *,
        load_s: float = 0.0,
        scored: int = 0,
    ) -> int:
        """Return for how many of `count` input buffers there is time, all else included.

        Args:
            call_s: seconds of a call of what the reference outputs are made with; of several side by side, a part.
            least: the fewest that will do; of a stream one clip, and only whole clips are taken.
            load_s: seconds to load the model, which each run of the buffers takes once.
            scored: calls of the rows that a metric scores, which are made once and never left out.

        Raises:
            SkippedArm: not even for the fewest.
        """
        if self.expect(count, call_s, load_s=load_s, scored=scored):
            return count
        fewest = min(count, least)
        least_s = LEAST_RUNS * (fewest * call_s + load_s) + scored * call_s
        if not self.limit.allows(least_s):
            raise SkippedArm(
                f"exporting {self.model} takes {span(least_s)} at least (a call takes about {call_s:.2g} s), "
                f"and --max-time leaves {span(max(self.limit.left_s, 0.0))} for all",
                MORE_TIME,
                NotRunKind.NOT_REACHED,
            )
        kept = fewest
        if count > INPUT_BUFFERS:  # a user's own: more of them show more
            whole_s = [self._foresee_whole(sets, call_s, load_s, scored) for sets in range(count)]
            within_s = LONGEST_EXPORT_S if self.limit.seconds is None else max(self.plan.left_s, 0.0)
            kept = max([fewest, *(sets for sets in range(0, count, least) if whole_s[sets] <= within_s)])
        self._longest_s = 2 * (call_s * kept + load_s)
        if kept < count:
            self._had_s = self.plan.left_s
            self._input_sets = f"{count - kept} of {count} input sets"
            self.tell(SETS.format(count=kept, call_s=call_s))
        return kept

    def _foresee_whole(self, count: int, call_s: float, load_s: float, scored: int) -> float:
        """Return the seconds of an export that leaves nothing out, of so many input buffers."""
        from shootout.quantize import RANGE_SETS  # reading a run loads this file, not that

        runs = LEAST_RUNS + (ALL_RUNS - LEAST_RUNS) * len(self.predicted) / len(PREDICTED)
        ranges = RANGE_SETS * bool(self.predicted.intersection(SCALED))
        return runs * (count * call_s + load_s) + (ranges + scored) * call_s

    def expect(self, count: int, call_s: float, *, load_s: float = 0.0, scored: int = 0) -> bool:
        """Return whether there is time for all of `count` input buffers, whose number is fixed.

        Args:
            call_s, load_s, scored: as in `buffers`.
        """
        self.whole_s = self._foresee_whole(count, call_s, load_s, scored)
        self.tell(SETS.format(count=count, call_s=call_s))
        is_whole = is_export_whole(self.whole_s, self.limit, self.plan)
        if takes_little(self.whole_s, self.limit):
            self.plan = self.limit.part(2 * LITTLE)  # twice the time that counts as little
        return is_whole

    @property
    def predicted(self) -> frozenset[str]:
        """Return the precisions whose error takes runs of its own to predict."""
        return PREDICTED if self._wanted_precisions is None else PREDICTED & self._wanted_precisions

    def wait_for(self, precisions: Collection[str]) -> None:
        """Predict these too, whatever the arms are: an error bound that is waited for is made of theirs."""
        self._parts |= set(precisions)

    @property
    def _wanted_precisions(self) -> frozenset[str] | None:
        """Return the precisions to predict; None: every one that the model has."""
        wanted = self.leading if self.leading and self._input_sets else self.needs
        return wanted | self._parts if wanted else None

    def wants(self, precisions: Collection[str]) -> bool:
        """Return whether any of these is predicted; if none is, the preparations for them can be left out too."""
        if self._wanted_precisions is None or self._wanted_precisions & set(precisions):
            return True
        self.unpredicted.extend(precisions)
        return False

    def allows(self, precision: str) -> bool:
        """Return whether a prediction of this precision's error ends in time, if it takes as long as the longest so
        far.
        """
        if self._wanted_precisions is not None and precision.partition("/")[0] not in self._wanted_precisions:
            self.unpredicted.append(precision)
            return False
        if self.plan.allows(self._longest_s):
            self.tell(f"predicting the error of {precision}")
            return True
        if not self.is_brief:
            self._had_s = self.plan.left_s
        self.unpredicted.append(precision)
        self._late.append(precision)
        return False

    def predict(self, run: Callable[[], T]) -> T:
        """Predict an error, and remember how long that took."""
        with Stopwatch() as watch:
            found = run()
        self._longest_s = max(self._longest_s, watch.seconds)
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a row's notes on an exported model that was made in a hurry."""
        if not self.is_brief:
            return ()
        errors = f"what error {', '.join(self._late)} explain" if self._late else ""
        left_out = "; ".join(filter(None, (self._input_sets, errors)))
        time = f"all of it takes {span(self.whole_s or 0.0)}"
        if self.plan.seconds is not None:
            time += f", and the export had {span(max(self._had_s, 0.0))}"
        return (f"left out of the export for want of time ({time}): {left_out}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Describe a model by what its times follow from.

    Attributes:
        weight_bytes: in float32.
        work: of a call; None where it isn't known, and then calls count nothing.
        nodes: in its graph.
        sets: of inputs, that calls rotate through.
    """

    weight_bytes: int
    work: Work | None = None
    nodes: int = 0
    sets: int = 1

    @property
    def gb(self) -> float:
        """Return the GB of weights (10^9 bytes)."""
        return self.weight_bytes / 1e9

    @property
    def call_s(self) -> float:
        """Return the seconds of a call on one thread."""
        if not (work := self.work):
            return 0.0
        products_s = (work.flops or 0.0) / PRODUCTS_S
        read_s = WEIGHT_GB_S * work.weight_bytes / 1e9
        return max(products_s, read_s) + work.elementwise_ops * ELEMENT_S + self.nodes * NODE_S


def file_s(size: ModelSize) -> float:
    """Return the seconds of the export of a file that leaves nothing out."""
    weights_s = size.gb * (EXPORT_GB_S if size.weight_bytes > INLINE_BYTES else INLINE_GB_S)
    return EXPORT_S + weights_s + ALL_RUNS * size.sets * size.call_s / beside()


def module_s(size: ModelSize) -> float:
    """Return the seconds of an export to a torch module."""
    fixed_s = MODULE_S + size.nodes * MODULE_NODE_S + size.gb * MODULE_GB_S
    return fixed_s + (2 + size.sets) * size.call_s
