"""Write the first screen: what to ship in one group, how sure that is, what is faster, what was skipped, what next."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from shootout.backends import USUAL
from shootout.core.contract import Device, Precision, short
from shootout.core.errors import FAILURES
from shootout.core.scenario import find_scenario
from shootout.core.schemes import FULL
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, duration, seconds, size
from shootout.tell import registered
from shootout.tell.columns import error
from shootout.tell.document import (
    Answer,
    Chosen,
    Document,
    FidelityFigures,
    GroupSummary,
    Metric,
    NoGain,
    Passed,
    Rival,
    Row,
    Shipped,
    SmallerStep,
    WouldChange,
)
from shootout.tell.limits import Standing
from shootout.tell.over_time import tell_over_time
from shootout.tell.ratios import NEVER_TOGETHER, SPEED, Words, inverse, tell_lead, tell_ratio
from shootout.tell.report import Command, Line
from shootout.tell.screen import INDENT, bold, fold, labeled, typed, write_lines
from shootout.tell.wording import (
    BUSY_SHARE,
    NO_LABELS,
    RANDOM_INPUTS,
    name_metric,
    tell_controls,
    tell_cpus,
    tell_lost_part,
    tell_metric,
    tell_metric_limit,
    tell_threads,
)

SHOWN = 8
"""So many arms that don't share a reason are named; the table below has them all."""
_PRECISION = re.compile(r"[^:]+:\w+:(\w+)")
_OUTSIDE = re.compile(r", (?![^()]*\))")
"""The pattern between the parts of a group's name."""
SURE = "Sure"
"""Label of what an answer rests on."""
SO_FAR = ", fastest so far"
"""Follows the name of an arm that has no verdict yet."""
ALONE = ", nothing compared"
"""Follows the name of an arm that was measured alone."""
PROBABILITIES = "probabilities"
"""The output of a converted classifier; a regression's is another."""
FASTEST, UNPROVEN = "Fastest", ", not shipped: its accuracy is unknown"
"""Label of a lower precision that was raced beside no plain FP32, and what follows its name."""
CHOICES = {
    "smaller install": "smaller install",
    "smaller artifact": "smaller artifact",
    "shorter start": "faster start",
    "lower time": "lower time",
}
FASTER = "Faster, not shipped"
NO_GAIN = "No gain"


def render_answer(answer: Answer, rows: Sequence[Row], document: Document, width: int) -> Iterator[Text]:
    """Write one group's answer in so many columns; `rows` are the group's."""
    title = write_title(answer, rows, document.environment)
    yield from write_head(tell_ship(answer), title, width, choose_label(answer))
    yield from write_support(answer, rows, document, width)


def choose_label(answer: Answer) -> str:
    """Return what a group's answer begins with."""
    return FASTEST if is_unproven(answer) else "Ship"


def tell_ship(answer: Answer) -> str:
    """Tell what to ship, or why there is no answer."""
    return f"{answer.ship.arm}{qualify(answer)}" if answer.ship else f"no answer: {answer.reason}"


def write_support(answer: Answer, rows: Sequence[Row], document: Document, width: int) -> Iterator[Text]:
    """Write what supports one group's answer."""
    yield from labeled("", tell_figures(answer, rows), width)
    yield from labeled("Tied", tell_ties(answer), width)
    yield from labeled("Unsure", tell_unsettled(answer), width)
    for number, items in enumerate(filter(None, tell_trust(answer, rows, document, width - INDENT))):
        yield from labeled("" if number else "Sure", items, width)
    yield from _write_faster(answer, width)
    for number, line in enumerate(tell_no_gains(answer)):
        yield from labeled("" if number else NO_GAIN, [line], width)
    yield from write_lines([Line("", commands=[*list_ways_in(answer.no_gain)])], width)
    yield from labeled("Not", tell_unsound(answer), width)
    yield from labeled("Smaller", map(tell_step, answer.smaller), width)
    yield from labeled("Changes", tell_changes(answer.would_change), width)
    yield from write_lines([Line("", commands=[*list_ways_in_refused(answer)])], width)
    if answer.elsewhere:
        yield from write_lines([Line("", commands=[Command(label=ELSEWHERE, text=answer.elsewhere)])], width)
    told = tell_no_folder(answer)
    yield from labeled("Next", told, width)
    if answer.next:
        yield from write_lines([Line("" if told else "Next", commands=[Command(text=answer.next)])], width)


def tell_no_folder(answer: Answer) -> list[str]:
    """Tell why what is shipped can't be put into a folder and what to do, and what else the next command ships."""
    if answer.ship is None or answer.no_folder is None:
        return []
    told = [f"{short(answer.ship.arm)}: {answer.no_folder}"]
    if answer.instead:
        compared = f", {tell_ratio(answer.instead.ratio)}" if answer.instead.ratio else ""
        told.append(f"or ship {short(answer.instead.arm)}{compared}:")
    return told


def qualify(answer: Answer) -> str:
    """Return what follows the name of what is shipped if no comparison supports it; "" if one does."""
    if is_unproven(answer):
        return UNPROVEN
    return SO_FAR if answer.reason else ALONE if answer.alone else ""


def is_unproven(answer: Answer) -> bool:
    """Return whether the fastest is a lower precision, and nothing tells that any target is as good as plain FP32."""
    if answer.ship is None or answer.ship.admitted != "alone":
        return False
    named = _PRECISION.match(answer.ship.arm)
    return named is not None and named[1] not in FULL


def write_head(words: str, title: str, width: int, label: str = "Ship") -> Iterator[Text]:
    """Write the first line: what to ship, and at the right, or below if there is no room, its question."""
    free = width - INDENT - len(words) - len(title)
    if free >= 2:
        yield bold(f"{label.ljust(INDENT)}{words}{' ' * free}{title}", INDENT + len(words))
        return
    yield from labeled(label, [words], width)
    yield from labeled("", title.split(" · "), width)


def write_title(answer: Answer, rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """Write model, batch, threads and machine."""
    parts = _OUTSIDE.split(answer.group)
    return " · ".join([*parts, *tell_threads_beside(parts, rows), *tell_machine(environment)])


def tell_threads_beside(parts: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Tell the rows' threads, unless a part of their group's name does, such as `threads 2` or `threads default`."""
    threads = {row.threads for row in rows}
    is_told = any(part.startswith("threads ") for part in parts)
    return [tell_threads(threads)] if threads - {0} and not is_told else []


def tell_machine(environment: Mapping[str, Any]) -> Iterator[str]:
    """Name the processor, as far as it is known, and the GPUs."""
    cpu = environment.get("cpu", {})
    words = cpu.get("model", "").replace("(R)", "").replace("(TM)", "").partition("@")[0].split()
    if model := " ".join(word for word in words if word not in ("CPU", "Processor")):
        tiles = " with AMX" if any(flag.startswith("amx") for flag in cpu.get("flags", ())) else ""
        virtual = " (VM)" if "virtual machine" in environment.get("virtualisation", ()) else ""
        yield f"{model}{tiles}, {tell_cpus(cpu)}{virtual}"
    yield from (gpu["name"] for gpu in environment.get("gpus", ()) if "name" in gpu)


def tell_figures(answer: Answer, rows: Sequence[Row]) -> Iterator[str]:
    """List how fast the shipped arm is, and what it takes."""
    ship = answer.ship
    if ship is None:
        if timed := [(row.end_to_end.median_ns, row.arm) for row in rows if row.end_to_end]:
            ns, arm = min(timed)
            yield f"the lowest median, which proves nothing, is {short(arm)}'s: {duration(ns)}"
        return
    row = next(row for row in rows if row.arm == ship.arm)
    yield find_scenario(row.scenario).tell_time(row)
    if row.real_time_factor is not None:
        yield f"real-time factor {row.real_time_factor:.2g}"
    if against := tell_against_usual(answer):
        yield against
    if row.artifact_bytes:
        yield f"model {size(row.artifact_bytes)}"
    if ship.ready_s is not None:
        yield f"ready in {seconds(ship.ready_s)}"
    yield from _tell_fidelity(row, ship)
    if told := tell_same_classes(row, rows):
        yield told


def tell_same_classes(row: Row, rows: Sequence[Row]) -> str:
    """Tell how often a classifier's largest score is that of the original: of labeled rows, and of a file of trees.

    For example `same class as sklearn on all timed rows`; "" if it is no classifier, or the original itself.
    """
    figures, library = row.fidelity, name_reference(rows)
    if figures is None or figures.top1_agreement is None or row.backend == library:
        return ""
    if figures.metric is None and not (library and figures.by_output[0].name == PROBABILITIES):
        return ""
    share = figures.top1_agreement
    often = "all timed rows" if share == 1 else f"{math.floor(1000 * share) / 10:g}% of the timed rows"
    return f"same class as {library or 'the original'} on {often}"


def name_reference(rows: Iterable[Row]) -> str:
    """Name the library whose outputs are the reference, since the model is its own file; "" for other models."""
    return next((row.backend for row in rows if registered.reads_own_files(row.backend)), "")


def tell_against_usual(answer: Answer, *, briefly: bool = False) -> str:
    """Compare what is shipped with what an expert would take otherwise: `2.0x faster than onnxruntime (1.3 to 3.2)`.

    Args:
        briefly: don't say that it is what an expert would take.

    Returns:
        "" if there is nothing else to compare it with.
    """
    usual = answer.otherwise
    if usual is None or usual.ratio is None or answer.ship is None:
        return ""
    return tell_ratio(inverse(usual.ratio), short(usual.arm) if briefly else name_usual(usual.arm, answer.ship.arm))


def name_usual(arm: str, ship: str) -> str:
    """Name a target that what is shipped is compared with, and say so if most would take it without measuring."""
    (usual, _), (backend, device) = (re.split(r"[:/@#]", one)[:2] for one in (arm, ship))
    names = USUAL.get(device, ())
    where = f", the usual choice on {'a CPU' if device == Device.CPU else 'NVIDIA GPUs'}"
    return f"{short(arm)}{where if usual in names and backend not in names else ''}"


def _tell_fidelity(row: Row, ship: Shipped) -> Iterator[str]:
    """List the metric or error of an arm that isn't plain FP32."""
    if ship.metric:
        yield tell_metric(ship.metric)
        if lost := tell_lost_part(ship.metric):
            yield lost
    if text := tell_error_of_ship(ship, row):
        yield f"error {text}"
    if ship.admitted == "alone":
        yield "nothing here is known to be as good as plain FP32"


def tell_error_of_ship(ship: Shipped, row: Row) -> str:
    """Return the error of the row to ship unless it is plain FP32; a file in its own precisions has an error too."""
    is_exact = ship.admitted == "fp32" and row.precision == Precision.FP32
    return "" if is_exact or ship.relative_l2 is None else error(ship.relative_l2)


def name_metric_verdict(metric: Metric) -> str:
    """Return `iou -0.004: can't tell`, where there is little room."""
    words = {Standing.MET: "", Standing.BROKEN: ": broken"}.get(metric.standing or Standing.UNKNOWN, ": can't tell")
    if metric.limits == "agreement" or metric.change is None:
        return f"{name_metric(metric)} {metric.value:.4g}{words}"
    return f"{name_metric(metric)} {metric.change.value:+.2g}{words}"


def tell_ties(answer: Answer) -> Iterator[str]:
    """Name the targets that may be equally fast, and what chose among them."""
    yield from fold((compare_rival(rival) for rival in answer.tied), SHOWN)
    if answer.chosen_by:
        yield f"chosen by {tell_choice(answer.chosen_by)}"


def tell_choice(criteria: Iterable[Chosen]) -> str:
    """Write what chose among those that may be equally good: `smaller install, then faster start`."""
    return ", then ".join(CHOICES[criterion] for criterion in criteria)


def tell_unsettled(answer: Answer) -> Iterator[str]:
    """Name the targets that measured slower, but aren't significantly slower."""
    yield from fold((compare_rival(rival) for rival in answer.unsettled), SHOWN)


def compare_rival(rival: Rival, words: Words = SPEED) -> str:
    """Compare a rival with what is shipped: `jax-jit: same (within 2 %)`."""
    return f"{short(rival.arm)}: {tell_ratio(rival.ratio, words=words) if rival.ratio else NEVER_TOGETHER}"


def tell_trust(answer: Answer, rows: Sequence[Row], document: Document, room: int) -> Iterator[list[str]]:
    """Tell how well founded the answer is, and what would settle what is open; a list is a paragraph.

    Args:
        room: letters in a line.
    """
    sure = answer.sure
    groups = [group for group in document.groups if group.name == answer.group]
    for group in groups:
        yield list(tell_over_time(group.ranking, rows, answer.ship.arm if answer.ship else None))
    yield list(_tell_comparisons(answer, rows))
    if answer.reason:
        goes_on = not document.complete and sure.control_holds is not False
        if not goes_on:
            yield [_suggest_way_out(measured=any(row.end_to_end for row in rows))]
    elif sure.nearest:
        ratios = [one.ratio for one in (*answer.tied, *answer.unsettled)]
        nearest_ratio = next((one.ratio for one in (*answer.tied, *answer.unsettled) if one.arm == sure.nearest), None)
        open_ = sum(ratio is not None and ratio.verdict is Verdict.CANT_TELL for ratio in ratios)
        nearest = short(sure.nearest) + (f", the closest of {open_} that are open" if open_ > 1 else "")
        if sure.restarts_needed:
            settle = f"about {sure.restarts_needed} restarts would settle it with {nearest}"
            yield [f"{settle}:  {typed(sure.command, room)}" if sure.command else settle]
        elif nearest_ratio and nearest_ratio.sd is not None:
            yield [f"over 1,000 restarts would be needed to settle it with {nearest}"]
        else:
            yield [f"one restart can't distinguish {short(sure.nearest)}"]
    yield list(tell_race(groups))


def tell_race(groups: Sequence[GroupSummary], among: str = "group") -> Iterator[str]:
    """List what answers on these groups rest on: restarts, the share of disturbed rounds, how the control came out.

    Args:
        among: what each of the controls is of: a group, or a run.
    """
    most = max(group.restarts for group in groups)
    many = f"up to {most} restarts" if most > 1 else counted(most, "restart")  # a settled target plays no more
    sd = max((group.sd for group in groups if group.sd is not None), default=None)
    up_to = "up to " if len(groups) > 1 else ""
    share = None if sd is None else f"{up_to}{float(f'{100 * sd:.2g}'):g} %"
    vary = f"; times vary by {share} between them (counted in the intervals)" if share else ""
    yield f"{many} of each process{vary}"
    disturbed = max(group.void_share for group in groups)
    told = f"{'at most ' if len(groups) > 1 and disturbed else ''}{disturbed:.0%} of the rounds disturbed"
    yield f"{told}{', the times are of a busy machine' if disturbed > BUSY_SHARE else ''}".replace("%", " %")
    yield tell_controls(groups, among)


def _tell_comparisons(answer: Answer, rows: Sequence[Row]) -> Iterator[str]:
    """Tell how many of the other eligible targets are slower, and by how much the closest of these is."""
    sure = answer.sure
    if answer.reason:
        if answer.ship:
            yield f"not yet: {answer.reason}"
        return
    figures = [row.fidelity for row in rows if row.fidelity]
    judged = any(figure.metric for figure in figures)
    plain = answer.ship and answer.ship.admitted == "fp32" and not judged
    kind = "FP32" if plain and answer.ship and answer.ship.arm.endswith(f":{Precision.FP32}") else "eligible"
    others = max(len(answer.eligible) - 1, 0)
    if not others:
        alone = "no other target was measured, so nothing was compared"
        yield alone if answer.alone else "no other target is eligible"
    else:
        closest = (short(sure.closest.arm), sure.closest.ratio) if sure.closest and sure.closest.ratio else None
        name = short(answer.ship.arm) if answer.ship else "it"
        yield tell_lead(name, sure.slower, others, f"{kind} target{'' if others == 1 else 's'}", closest)


def _suggest_way_out(*, measured: bool) -> str:
    """Suggest what to do if there is no verdict and the run is over; more time doesn't mend a control that differs."""
    if measured:
        return "measure again; `shootout doctor` says what is noisy or missing here"
    return "what was skipped or failed, and the fix, is below; `shootout doctor` says what works here"


EXPLAIN = "layer by layer:"
MIX = "leave some in float:"
ELSEWHERE = "on other runtimes:"
MEASURE = "measure it:"
YOURS = "try your own model:"
MEASURE_YOURS = "shootout run MODEL.onnx --inputs X.npz --labels Y.npz"
SHIPS_IT = "(ships it if it loses under a point)"
SHIPS_IT_BY_METRIC = "(ships it if it loses under 1 % of its score)"
MOST_FASTER = 4
"""So many targets that are faster than the shipped one are named."""


def _write_faster(answer: Answer, width: int) -> Iterator[Text]:
    """Write what is faster and may not be shipped: how much, the reason, and what to type."""
    faster = find_faster(answer)
    if not faster:
        return
    yield bold(FASTER, len(FASTER))
    for line in tell_faster(answer):
        yield from labeled("", [line], width)
    yield from write_lines([Line("", commands=[*list_ways_out(faster)])], width)


def find_faster(answer: Answer) -> list[WouldChange]:
    """Return what is faster than the shipped one and may not be shipped."""
    return [change for change in answer.would_change if change.when == "looser"]


def tell_faster(answer: Answer) -> Iterator[str]:
    """Tell how much faster each one is, and why it may not be shipped; a reason that all share is told once."""
    faster, than = find_faster(answer), short(answer.ship.arm) if answer.ship else ""
    reasons = {change.why or "" for change in faster}
    is_shared = len(reasons) == 1 < len(faster)
    for change in faster[:MOST_FASTER]:
        told = tell_ratio(change.ratio, than) if change.ratio else NEVER_TOGETHER
        told += f", {tell_cost(change)}" if change.accept and change.why in (NO_LABELS, RANDOM_INPUTS) else ""
        why = "" if is_shared else f": {change.why}"
        yield f"{short(change.arm)}  {told}{why}"
    if len(faster) > MOST_FASTER:
        yield f"{len(faster) - MOST_FASTER} more, which the table has"
    if is_shared:
        yield f"each: {reasons.pop()}"


def find_measure(faster: Sequence[WouldChange]) -> Command | None:
    """Return what to type to know the accuracy; None if labels are there already."""
    if measure := next((change.measure for change in faster if change.measure), None):
        return Command(label=MEASURE, text=measure, remark=SHIPS_IT_BY_METRIC if "--metric" in measure else SHIPS_IT)
    is_random = any(change.why == RANDOM_INPUTS for change in faster)
    return Command(label=YOURS, text=MEASURE_YOURS) if is_random else None


def list_ways_out(faster: Sequence[WouldChange]) -> Iterator[Command]:
    """List what to type: to measure the accuracy, accept the error, or find the layers behind a loss and spare them."""
    measure = find_measure(faster)
    if measure:
        yield measure
    if accept := min((change for change in faster if change.accept), key=measure_loss, default=None):
        name = short(accept.arm) if len(faster) > 1 else ""
        what = "loss" if accept.metric else "error"
        yield Command(
            label=label_accept(what, beside=measure is not None),
            text=accept.accept or "",
            remark=remark_accept(what, name),
        )
    yield from list_ways_in(faster)
    if mixed := next((change for change in faster if change.mix), None):
        yield Command(label=MIX, text=mixed.mix or "")


def measure_loss(known: WouldChange | FidelityFigures) -> float:
    """Return how much a target loses, by what the run knows best of it: a metric or the error."""
    if metric := known.metric:
        value = metric.change.value if metric.change else metric.value
        return value if metric.lower_is_better else -value
    return math.inf if known.relative_l2 is None else known.relative_l2


def list_ways_in(some: Sequence[NoGain | WouldChange]) -> Iterator[Command]:
    """List what to type to see the first of these that can be looked into, layer by layer."""
    if first := next((one for one in some if one.explain), None):
        yield Command(label=EXPLAIN, text=first.explain or "")


def list_ways_in_refused(answer: Answer) -> Iterator[Command]:
    """List what to type to find the layer of the first target whose outputs were refused, and to spare such layers."""
    failed = [group for group in answer.not_raced if group.cause in FAILURES]
    if fix := next((group.fix for group in failed if group.fix), None):
        yield Command(label=EXPLAIN, text=fix)
    if mix := next((group.mix for group in failed if group.mix), None):
        yield Command(label=MIX, text=mix)


def label_accept(what: str, *, beside: bool) -> str:
    """Write the label of a command that accepts an error or a loss; `beside`: it stands below another way out."""
    return f"{'or ' if beside else ''}accept its {what}:"


def remark_accept(what: str, name: str) -> str:
    """Write what stands behind that command: the target's name, if there are several, and that no less would do."""
    parts = [name, "the smallest drop that accepts it, rounded up to two digits" if what == "loss" else ""]
    told = ": ".join(filter(None, parts))
    return f"({told})" if told else ""


def tell_no_gains(answer: Answer) -> Iterator[str]:
    """Tell why lower precisions aren't faster than the FP32 of their own backend."""
    told = (
        f"{short(one.arm)}  {tell_ratio(one.why.ratio, _name_own(one.why.against))}: {one.why.text}"
        for one in answer.no_gain
    )
    yield from fold(told, MOST_FASTER)


def _name_own(against: str) -> str:
    return "its FP32" if against.endswith(f":{Precision.FP32}") else short(against)


def tell_unsound(answer: Answer) -> Iterator[str]:
    """Name the targets that have no sound time, and why."""
    unsound = [passed for passed in answer.passed if passed.because == "unsound"]
    told = (f"{short(passed.arm)}: {(passed.reason or '').removeprefix(passed.arm).strip()}" for passed in unsound)
    yield from fold(told, SHOWN)


def tell_cost(change: Passed | WouldChange | SmallerStep) -> str:
    """Tell what it does to the outputs."""
    if change.metric:
        metric = change.metric
        told = tell_metric(metric) if metric.standing is Standing.MET else tell_metric_limit(metric)
        return ", ".join(filter(None, [told, tell_lost_part(metric)]))
    return f"error {error(change.relative_l2)}" if change.relative_l2 is not None else "error unknown"


def tell_step(step: SmallerStep) -> str:
    """Describe a smaller artifact than that of the arm to ship, and what it costs."""
    time = tell_ratio(step.ratio) if step.ratio else NEVER_TOGETHER
    return f"{short(step.arm)}: model {size(step.artifact_bytes)}, {time}, {tell_cost(step)}"


def tell_changes(changes: Iterable[WouldChange]) -> Iterator[str]:
    """Tell what would be shipped if nothing but plain FP32 counted."""
    for change in changes:
        name = short(change.arm)
        if change.when == "tighter":
            yield f"if only plain FP32 may ship: {name}{f', {tell_ratio(change.ratio)}' if change.ratio else ''}"
