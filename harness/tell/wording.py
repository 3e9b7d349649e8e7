"""Put controls, CPUs, threads and what a metric lost into words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shootout.core.contract import short
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, number
from shootout.models.metrics import MOST_ROWS
from shootout.tell.document import Control, GroupSummary, Metric, Why
from shootout.tell.limits import Standing, limit_digits
from shootout.tell.paired import MeanChange, admits_any_loss
from shootout.tell.ratios import tell_ratio

BUSY_SHARE = 0.5
"""Above this share of disturbed rounds, times are taken from these."""
BUSY = "the times are of a busy machine: close other programs"
QUIET_SHARE, NOISY_SHARE = 0.05, 0.2
"""Noise is low up to the first and high from the second on: of the share of disturbed rounds, and of the standard
deviation between restarts.
"""
CONTROL_HELD, CONTROL_BROKEN = "equal", "DIFFERENT"
"""The words for a control that lies within what it must, and for one that is significantly faster or slower than its
baseline.
"""
CONTROL_OPEN = "not different"
"""The words for a control whose interval holds 1 and is wider than what it must lie within to be equal."""
NOT_COMPARED = "not compared yet"
"""The words for a control that shares no two restarts with its baseline."""
ALL_ZERO = "FP32 itself scores 0 on every row; does the metric read the right output?"
"""Follows a metric by which no loss could be seen."""
LEAST_ERROR = 1e-5
"""A relative error below this isn't told in figures."""
NO_LABELS = "without labels its accuracy is unknown"
RANDOM_INPUTS = "random inputs can't show its accuracy"


def describe_noise(groups: Sequence[GroupSummary]) -> str:
    """Describe the noise of the worst group: `medium (2 % of the rounds disturbed, restarts differ by 13 %)`."""
    disturbed = max(group.void_share for group in groups)
    sd = max((group.sd for group in groups if group.sd is not None), default=None)
    worst = max(disturbed, sd or 0.0)
    level = "low" if worst <= QUIET_SHARE else "high" if worst >= NOISY_SHARE else "medium"
    differ = "" if sd is None else f", restarts differ by {number(100 * sd, 2)} %"
    return f"{level} ({100 * disturbed:.0f} % of the rounds disturbed{differ})"


def tell_error(relative_l2: float) -> str:
    """Write a relative error in two digits: `0.19 %`."""
    if relative_l2 < LEAST_ERROR:
        return "under 0.001 %"
    percent = 100 * relative_l2
    return f"{f'{percent:#.2g}' if percent < 10 else number(percent, 2)} %"


def tell_controls(groups: Sequence[GroupSummary]) -> str:
    """Tell how the controls came out: `control (a hidden copy of numpy) equal (within 6 %)`.

    Of several groups: in how many they differ, `control (a hidden copy of each baseline) DIFFERENT in 2 of 5 groups`.
    """
    if len(groups) == 1:
        (group,) = groups
        state, ratio = _name_state(group.control), group.control.ratio
        low, high = ratio.ends if ratio else (None, None)
        reach = f" (within {number(100 * (max(high, 1 / low) - 1), 2)} %)" if low and high else ""
        if ratio and state == CONTROL_BROKEN:
            reach = f", {tell_ratio(ratio)}: no verdict is given"
        copied = short(group.baseline) if group.baseline else "the baseline"
        return f"control (a hidden copy of {copied}) {state}{reach}"
    broken = sum(group.control.holds is False for group in groups)
    return f"control (a hidden copy of each baseline) {CONTROL_BROKEN} in {broken} of {len(groups)} groups"


def _name_state(control: Control) -> str:
    low, high = control.ratio.ends if control.ratio else (None, None)
    if control.ratio is None or (control.holds is None and not (low and high)):
        return NOT_COMPARED
    return {True: CONTROL_HELD, False: CONTROL_BROKEN, None: CONTROL_OPEN}[control.holds]


def tell_cpus(cpu: Mapping[str, Any]) -> str:
    """Write how many CPUs a process sees, and the quota if there is one: `2 CPUs, quota 1 CPU`."""
    seen = counted(len(cpu.get("cpuset") or cpu.get("allowed_cpus", ())), "CPU")
    quota = cpu.get("quota_cpus")
    return seen if quota is None else f"{seen}, quota {float(quota):.3g} {'CPU' if quota == 1 else 'CPUs'}"


def tell_threads(counts: Collection[int]) -> str:
    """Write thread counts: `1 thread`, `1/2 threads`; `default threads` if each library took its own number."""
    told = "/".join(str(count or "default") for count in sorted(counts))
    return f"{told} thread{'' if {*counts} == {1} else 's'}"


def name_metric(metric: Metric) -> str:
    """Return `iou`, or `mae of boxes` if each output has its own."""
    return f"{metric.name} of {metric.output}" if metric.output else metric.name


def tell_metric(metric: Metric) -> str:
    """Return `iou 0.940, +0.001 (0 to +0.002), limit -0.009`; without truth, the score against FP32's own outputs.

    The limit stands there only if the metric keeps it.
    """
    told = f"{name_metric(metric)} {metric.value:.4g}"
    if metric.against == "outputs":
        ends = bound_metric(metric)
        told += " against FP32's outputs" + (f" ({ends[0]:.4g} to {ends[1]:.4g})" if ends else "")
    elif metric.change:
        told += f", {_tell_metric_change(metric.change)}"
    elif not metric.value and metric.low is None and not metric.lower_is_better:
        told += f": {ALL_ZERO}"
    return f"{told}, limit {_tell_limit(metric)}" if metric.standing is Standing.MET else told


def bound_metric(metric: Metric) -> tuple[float, float] | None:
    """Return the interval of a score that decides, as far as the metric reaches; None if there is none.

    Against FP32's own outputs that is the score's interval if a limit is on the agreement or there is none. If a limit
    is on the drop, it is FP32's score with the interval of the change.
    """
    from shootout.models.metrics import find_range  # with NumPy, which most screens do without

    low, high = metric.low, metric.high
    if metric.limits == "drop" and metric.change:
        low, high = metric.before + metric.change.low, metric.before + metric.change.high
    if low is None or high is None:
        return None
    least, most = find_range(metric.name)
    return max(low, min(least, metric.value)), min(high, max(most, metric.value))


def tell_metric_change(metric: Metric) -> str:
    """Write how a score changed from FP32's, with the interval that decides; "" if that isn't known.

    Of an agreement with FP32's own outputs, FP32 has all: so the change is what the score's own interval says.
    """
    if metric.change is None:
        return ""
    change, ends = metric.change, bound_metric(metric)
    if metric.against == "outputs" and ends:
        low, high = (end - metric.before for end in ends)
        change = replace(change, low=low, high=high)
    return _tell_metric_change(change)


def _tell_limit(metric: Metric) -> str:
    sign = "" if metric.limits == "agreement" or not metric.change else "+" if metric.lower_is_better else "-"
    limit = metric.limit or 0.0
    return f"{sign}{limit:.{limit_digits(limit, 2)}g}"


def _tell_metric_change(change: MeanChange) -> str:
    return f"{change.value:+.2g} ({change.low:+.2g} to {change.high:+.2g})"


def tell_metric_limit(metric: Metric) -> str:
    """Tell what a metric says of a target that it doesn't admit, the limit, and what would tell.

    For example `iou -0.004 (-0.011 to +0.003), limit -0.009: needs about 900 more scored rows`.
    """
    told = tell_metric(metric)
    if metric.limits != "agreement" and metric.change:
        told = f"{name_metric(metric)} {tell_metric_change(metric)}"
    if metric.limit is None:
        option = "--max-drop" if metric.lower_is_better else "--min-agreement"
        why = f"no limit: give {option}" if metric.against == "outputs" else "no score of plain FP32 to compare with"
        return f"{told}, {why}"
    if doubt := tell_limit_doubt(metric, metric.limit):
        return f"{told}, limit {_tell_limit(metric)}: {doubt}"
    verdict = "broken" if metric.standing is Standing.BROKEN else tell_rows_needed(metric, metric.rows_needed)
    return f"{told}, limit {_tell_limit(metric)}: {verdict}"


def tell_rows_needed(metric: Metric, needed: int | None) -> str:
    """Tell how many more scored rows would settle how a metric stands to a limit.

    Args:
        needed: in all; None: more than anyone is asked for.
    """
    if needed is None or needed > MOST_ROWS:
        return f"more {metric.unit}s won't settle it"
    more = float(f"{max(needed - metric.rows, 1):.2g}")
    return f"needs about {more:,.0f} more scored {metric.unit}{'' if more == 1 else 's'}"


def tell_limit_doubt(metric: Metric, limit: float) -> str:
    """Tell why a limit on the drop proves nothing of a metric, because even a score of 0 would keep it; else ""."""
    if metric.against == "outputs" or metric.change is None:
        return ""
    if not admits_any_loss(limit, metric.before, metric.value, is_lower_better=metric.lower_is_better):
        return ""
    if not metric.before:
        return ALL_ZERO
    share = f"{limit:g}%" if metric.before < limit < 100 else "1%"
    return f"FP32's whole score is {metric.before:.3g}; give a lower limit, or did you mean --max-drop {share}?"


def tell_gain(why: Why) -> str:
    """Put the reason and what it is a reason of into a line: `slower: its products take 8 us, FP32's 7 us`."""
    return f"{'slower' if why.ratio.verdict is Verdict.SLOWER else 'no faster'}: {why.text}"
