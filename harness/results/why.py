"""Why a quantized row is faster than its own backend's FP32, or isn't: one line, from evidence in the two rows only.

The causes are asked in order; the first that the figures bear out is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shootout.results.document import Row
from shootout.results.explain import GAINS, LOSSES, NO_GAINS, Case, Reason, gigaflops
from shootout.stats.verdicts import Verdict

LIKELY = 0.95
"""Without a verdict, a ratio below this (or above its inverse) is explained as what it looks like."""
WORDS: Mapping[Verdict, tuple[str, tuple[Reason, ...]]] = {
    Verdict.FASTER: ("faster", GAINS),
    Verdict.SLOWER: ("slower", LOSSES),
    Verdict.SAME: ("no faster", NO_GAINS),
}


def explain(row: Row, own: Row, rows: Sequence[Row], environment: Mapping[str, Any]) -> str | None:
    """One line on why `row` is or isn't faster than `own`; None where nothing compares the two.

    Without a verdict the line says what the ratio looks like, and that there is none.

    Args:
        rows: all of the group.
        environment: as in the document.
    """
    ratio = row.end_to_end.own_fp32_ratio if row.end_to_end else None
    if ratio is None:
        return None
    plain = [one for one in rows if one.precision == own.precision and not one.scheme]
    best = max((rate for one in plain if (rate := gigaflops(one))), default=None)
    case = Case(row=row, own=own, best_rate=best, environment=environment)
    if ratio.verdict is Verdict.CANT_TELL:
        reasons = GAINS if ratio.value < LIKELY else LOSSES if ratio.value > 1 / LIKELY else NO_GAINS
        return f"no verdict (at {ratio.value:.2g} of FP32's time): {_first(reasons, case)}"
    opening, reasons = WORDS[ratio.verdict]
    return f"{opening}: {_first(reasons, case)}"


def _first(reasons: Sequence[Reason], case: Case) -> str:
    return next((found for reason in reasons if (found := reason(case))), "nothing that the runtime tells explains it")
