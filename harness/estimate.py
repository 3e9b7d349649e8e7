"""What a run would do and roughly how long it would take, for `--dry-run`."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.constants import BLOCK_NS, LEAD_IN_NS, ROUNDS
from shootout.evidence import min_generations
from shootout.messages import Scope
from shootout.runner import Plan

READY_S = 2.0
"""A fresh process until it is warm: NumPy takes 0.1 s, torch.compile 6 s, the default study's arms 1.5 s on average."""


def seconds(planned: Plan) -> float:
    """Seconds from the fewest generations, for calls shorter than a block; exports and builds come on top."""
    return sum(
        min_generations(group.record.comparisons) * len(group.playing) * (READY_S + _rounds_s())
        for group in planned.groups
    )


def _rounds_s() -> float:
    return ROUNDS * len(Scope) * (BLOCK_NS + LEAD_IN_NS) / 1e9


def as_data(planned: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    return {
        "study": planned.study.name,
        "threads": planned.placement.threads,
        "estimate_s": round(seconds(planned), 1),
        "groups": [
            {
                "name": group.record.name,
                "baseline": group.record.baseline,
                "generations": [min_generations(group.record.comparisons), planned.study.max_generations],
                "arms": [arm.label for arm in group.playing],
                "skipped": {label: {"reason": why.reason, "fix": why.fix} for label, why in group.skips.items()},
            }
            for group in planned.groups
        ],
    }


def render(planned: Plan) -> RenderableType:
    """The plan for people."""
    lines = []
    for group in planned.groups:
        lines.append(f"{group.record.name}")
        for arm in group.playing:
            role = " (baseline)" if arm.label == group.record.baseline else " (hidden copy)" if arm.sentinel else ""
            lines.append(f"  {arm.label}{role}")
        lines += [f"  skipped: {label}: {why.reason}. Fix: {why.fix}" for label, why in group.skips.items()]
        least = min_generations(group.record.comparisons)
        lines.append(f"  {least} to {planned.study.max_generations} generations of {ROUNDS} rounds")
    lines.append(f"about {seconds(planned):.0f} s at least, and exports and builds before; nothing was measured")
    return Group(*(Text(line) for line in lines))
