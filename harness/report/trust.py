"""What a reader must know to trust a table, or not to: how it was raced, what disturbed it, what its times are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from shootout.contract import Scenario
from shootout.host.noise import DisturbanceKind, recalled
from shootout.report.figures import ends_of
from shootout.report.lines import name_targets
from shootout.results.document import GroupSummary, Row
from shootout.results.time_spent import STEPS
from shootout.stats.verdicts import Verdict
from shootout.study.group import short
from shootout.units import counted, duration

_WHO = {
    DisturbanceKind.STEAL: "by other guests of the host",
    DisturbanceKind.FOREIGN_CPU: "by other programs",
    DisturbanceKind.THROTTLED: "by the container's CPU quota",
    DisturbanceKind.SM_CLOCK: "by a lower GPU clock",
    DisturbanceKind.GPU_THROTTLED: "by a GPU that was held down",
    DisturbanceKind.FOREIGN_GPU: "by other programs on the GPU",
    DisturbanceKind.PRESSURE: "by a wait for a CPU",
    DisturbanceKind.CANARY: "by a slow check loop",
}
"""What disturbed rounds."""
NOISY_SHARE = 0.05
"""From so many flagged rounds on, a reader is told what to do about it."""
NOISY_SD = 0.10
"""Likewise from so wide a spread between restarts on."""
_WHAT_HELPS = {
    DisturbanceKind.FOREIGN_CPU: ("met other programs on the same CPUs", "close them"),
    DisturbanceKind.STEAL: ("lost CPU time to other guests of the host", "use a host alone"),
    DisturbanceKind.THROTTLED: ("were throttled by the container", "raise its CPU quota"),
    DisturbanceKind.SM_CLOCK: ("met a lower GPU clock", "lock the clock (sudo nvidia-smi -lgc MHZ)"),
    DisturbanceKind.GPU_THROTTLED: ("met a GPU that was held down", "see to its cooling (nvidia-smi -q)"),
    DisturbanceKind.FOREIGN_GPU: ("met other programs on the GPU", "close them"),
}


def tell_noise(summaries: Sequence[GroupSummary]) -> list[str]:
    """What disturbed these groups and what helps, in a line, by what flagged most rounds; none where little did."""
    share = max(one.void_share for one in summaries)
    reasons = Counter[DisturbanceKind]()
    for category, count in (item for one in summaries for item in one.void_reasons.items()):
        reasons[recalled(category).kind] += count
    if share >= NOISY_SHARE and reasons:
        some = "up to " if len(summaries) > 1 else ""
        most, _ = reasons.most_common(1)[0]
        return [f"Noise: {some}{share:.0%} of the rounds {_helped(most, share)}."]
    sd = max((one.sd for one in summaries if one.sd is not None), default=0.0)
    return [f"Noise: restarts differ by {sd:.0%} (SD): give more time, or a quieter machine."] if sd >= NOISY_SD else []


def _helped(kind: DisturbanceKind, share: float) -> str:
    if kind not in _WHAT_HELPS:
        return "were thrown away by the older version that made this run"
    what, helps = _WHAT_HELPS[kind]
    if share > 0.5:  # then these are what counts, and more of them tell no more of a quiet machine
        return f"{what}: times and ratios are those of a busy machine; {helps}"
    return f"{what}: times are wider for it; {helps}, or give more time"


def tell_time(spent_s: Mapping[str, float]) -> list[str]:
    """Where the seconds of the run went, in a line."""
    parts = (f"{STEPS[name]} {spent:.1f} s" for name, spent in spent_s.items())
    return [f"Where the time went: {', '.join(parts)}."] if spent_s else []


def tell_trust(summary: GroupSummary, rows: Sequence[Row], *, full: bool) -> Iterator[str]:
    """How one group was raced and how far it is to be trusted; `rows` are those with a time."""
    noise = tell_noise([summary])
    yield _raced(summary, full=full, why=full or not noise)
    yield from noise
    if summary.control.ratio is None or summary.control.holds is not False:
        yield from _without_verdict(rows)
    yield from _undecided(rows)
    yield from _of_rows(rows, full=full)
    yield from tell_rates(rows)


def _raced(summary: GroupSummary, *, full: bool, why: bool) -> str:
    counts = ", ".join(f"{count} {_who(reason)}" for reason, count in sorted(summary.void_reasons.items()))
    spread = "" if summary.sd is None or not full else f", SD between restarts {summary.sd:.1%}"
    told = f"{counted(summary.restarts, 'restart')}, {summary.void_share:.0%} of the rounds disturbed"
    told += (f" ({counts})" if counts and why else "") + f"{spread}."
    if (ratio := summary.control.ratio) is None:
        return told
    states = {True: "passed", False: "FAILED: all verdicts are withheld", None: "which tells nothing yet"}
    state = states[summary.control.holds]
    ends = ends_of(ratio.low, ratio.high)
    return f"{told} Control (the baseline beside a copy of itself): {ratio.value:.4g}{ends}, {state}."


def _who(category: str) -> str:
    kind, colon, causes = category.partition(": ")
    return _WHO[recalled(kind).kind] + colon + causes


def _without_verdict(rows: Sequence[Row]) -> Iterator[str]:
    """Why ratios have no verdict; a row that left the race has its own line."""
    ratios = (row.end_to_end.ratio for row in rows if row.end_to_end and not row.reason)
    for reason in sorted({ratio.reason for ratio in ratios if ratio and ratio.reason}):
        yield f"No verdict: {reason}."


def _undecided(rows: Sequence[Row]) -> Iterator[str]:
    """What the rows without a verdict would take; each counts from what it played, for some left the race early."""
    open_ = [
        f"{short(row.arm)} about {max(ratio.restarts_needed - ratio.restarts, 1)} more"
        for row in rows
        if row.end_to_end
        and not row.end_to_end.own_fp32_ratio
        and (ratio := row.end_to_end.ratio)
        and ratio.verdict is Verdict.CANT_TELL
        and ratio.restarts_needed
    ]
    if open_:
        yield f"Can't tell yet; restarts that it would take: {', '.join(open_)}."


def _of_rows(rows: Sequence[Row], *, full: bool) -> Iterator[str]:
    """What runtimes and quantizers say of single rows; those of which the same is to be said share a line."""
    told: dict[str, list[str]] = {}
    for row in rows:
        for text in (*(row.executed or {}).get("fallbacks", ()), *row.notes):
            told.setdefault(text, []).append(row.arm)
    for text, arms in told.items():
        who = "all" if len(arms) == len(rows) > 1 else name_targets(arms, full=full)
        yield f"{who}: {text}."
    if full and any(row.build_cached for row in rows):
        yield "* built earlier, taken from the cache."


def tell_rates(rows: Sequence[Row]) -> list[str]:
    """What the times of these rows are, and how late the harness itself was."""
    found = []
    if any(row.scenario == Scenario.THROUGHPUT for row in rows):
        found.append("time is wall time per item, all instances together.")
    served = [row.serve for row in rows if row.serve]
    if served:
        what = "the time per request at the highest rate that held the limit" if served[0].searched else "p99"
        late = max(one.start_late_ns for one in served)
        found.append(
            f"time is {what}; latencies count from a request's arrival, p99 is its 99 % upper bound; "
            f"a free instance began up to {duration(late)} after the arrival."
        )
    return found
