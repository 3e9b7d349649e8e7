"""The first screen: what to ship in one cell, how sure that is, what was not raced, and what would change it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from shootout import backends, models
from shootout.contract import Device, NotRunKind, Precision, Value
from shootout.errors import FAILURES, install
from shootout.report.columns import Cell, ends_of, error, fits, known, make_table, rate
from shootout.report.screen import INDENT, NAMED, bold, fold, labelled, name_targets, typed
from shootout.results.document import (
    AccuracyChange,
    Answer,
    Document,
    Metric,
    NotRaced,
    Passed,
    Ratio,
    Rival,
    Row,
    Shipped,
    SmallerStep,
    WouldChange,
)
from shootout.stats.verdicts import Standing, Verdict
from shootout.study.feasibility import FROM_FILE
from shootout.study.group import name_model, short
from shootout.units import counted, duration, points, seconds, size


def tell_untried(rows: Iterable[Row]) -> Iterator[str]:
    """Name the backends that weren't tried and why; first those that could win.

    For example `litert (not installed: pip install ...)` and `ncnn (not asked for)`.

    Args:
        rows: of the whole run.
    """
    every = list(rows)
    asked = {row.backend.partition("+")[0] for row in every}
    never = [name for name in backends.names() if name not in asked and not backends.entry(name).own_files]
    fit = {name for name in never if _could_win(name, every)}
    absent = [name for name in never if name in fit and not backends.is_installed(name)]
    if absent:
        extras = dict.fromkeys(backends.entry(name).extra for name in absent)
        yield f"{', '.join(absent)} (not installed: {install(','.join(extras))})"
    if others := sorted((name for name in never if name not in absent), key=lambda name: name not in fit):
        yield f"{', '.join(fold(others, NAMED))} (not asked for)"


def _could_win(name: str, rows: Iterable[Row]) -> bool:
    """Return whether a shipped backend runs anything of what was raced, on a device that has a time; the CPU counts."""
    if name not in backends.SHIPPED:
        return False  # only a process of its own could say
    can, known_models = backends.capabilities(name), models.names()
    return any(
        (row.device == Device.CPU or row.end_to_end is not None)
        and row.device in can.devices
        and row.scenario in can.scenarios
        and not set(can.consumes).isdisjoint(
            models.get(row.model).artifacts if row.model in known_models else FROM_FILE
        )
        for row in rows
    )


SHOWN = 8
"""So many arms that don't share a reason are named; the table below has them all."""
SHOWN_REASONS = 4
LONGEST_REASON = 60
"""Letters; a longer reason stands below the table only."""
_IN_BRACKETS = re.compile(r" \([^()]*\)$")
SO_FAR = ", fastest so far"
"""Follows the name of an arm that has no verdict yet."""
CHOICES = {
    "smaller install": "smaller install",
    "smaller artifact": "smaller artifact",
    "shorter start": "faster start",
    "lower time": "lower time",
}


def render_answer(answer: Answer, rows: Sequence[Row], document: Document, width: int) -> Iterator[Text]:
    """Write one cell's answer in so many columns; `rows` are the cell's."""
    baselines = {group.name: group.baseline for group in document.groups}
    measured = any(row.end_to_end for row in rows)
    words = answer.ship.arm if answer.ship else f"no answer: {answer.reason}"
    if answer.ship and answer.reason:
        words += SO_FAR
    yield from write_head(words, _write_title(answer, rows, document.environment), width)
    yield from labelled("     ", _tell_figures(answer, rows, baselines.get(answer.group)), width)
    yield from labelled("Tied ", _tell_ties(answer), width)
    yield from labelled(
        "Sure?", [_tell_trust(answer, width - INDENT, measured=measured, complete=document.complete)], width
    )
    yield from _write_passed(answer, width)
    yield from labelled("Smaller", map(tell_step, answer.smaller), width)
    yield from labelled("Not raced", tell_not_raced([answer], document.rows), width)
    yield from labelled("Would change it", tell_changes(answer.would_change), width)


def write_head(words: str, title: str, width: int) -> Iterator[Text]:
    """Write the first line: what to ship, and at the right, or below if there is no room, its question."""
    free = width - INDENT - len(words) - len(title)
    if free >= 2:
        yield bold(f"Ship  {words}{' ' * free}{title}", INDENT + len(words))
        return
    yield from labelled("Ship ", [words], width)
    yield from labelled("     ", title.split(" · "), width)


def _write_title(answer: Answer, rows: Sequence[Row], environment: Mapping[str, Any]) -> str:
    """Write model, batch, threads and machine."""
    threads = sorted({row.threads for row in rows})
    count = f"{'/'.join(map(str, threads))} thread{'' if threads == [1] else 's'}"
    return " · ".join([*answer.group.split(", "), *([count] if threads else []), *tell_machine(environment)])


def tell_machine(environment: Mapping[str, Any]) -> Iterator[str]:
    """Name the processor, as far as it is known, and the GPUs."""
    cpu = environment.get("cpu", {})
    words = cpu.get("model", "").replace("(R)", "").replace("(TM)", "").partition("@")[0].split()
    if model := " ".join(word for word in words if word not in ("CPU", "Processor")):
        tiles = " with AMX" if any(flag.startswith("amx") for flag in cpu.get("flags", ())) else ""
        virtual = " (VM)" if "virtual machine" in environment.get("virtualisation", ()) else ""
        yield f"{model}{tiles}, {counted(len(cpu.get('allowed_cpus', ())), 'CPU')}{virtual}"
    yield from (gpu["name"] for gpu in environment.get("gpus", ()) if "name" in gpu)


def _tell_figures(answer: Answer, rows: Sequence[Row], baseline: str | None) -> Iterator[str]:
    """List how fast the shipped arm is, and what it takes."""
    ship = answer.ship
    if ship is None:
        if timed := [(row.end_to_end.median_ns, row.arm) for row in rows if row.end_to_end]:
            ns, arm = min(timed)
            yield f"the lowest median, which proves nothing, is {short(arm)}'s: {duration(ns)}"
        return
    row = next(row for row in rows if row.arm == ship.arm)
    if ship.ratio and baseline:
        yield tell_speed(ship.ratio, short(baseline), answer.reason)
    elif ship.arm == baseline and len(rows) > 1:
        yield "the baseline itself"
    yield _tell_time(row, ship)
    if sizes := [*tell_sizes(row)]:
        yield " + ".join(sizes)
    if ship.ready_s is not None:
        yield f"ready in {seconds(ship.ready_s)}"
    yield from _tell_fidelity(row, ship)


def tell_sizes(row: Row) -> Iterator[str]:
    """List the size of the artifact, and of what runs it."""
    if row.artifact_bytes:
        yield size(row.artifact_bytes)
    if row.install_bytes:
        yield f"{size(row.install_bytes)} installed"


def _tell_time(row: Row, ship: Shipped) -> str:
    if row.serve and row.serve.p99_ns is not None:
        return f"{rate(row.serve.rate_per_s)} requests/s with a p99 of {duration(row.serve.p99_ns)}"
    return f"{rate(row.items_per_s)} items/s" if row.items_per_s else duration(ship.median_ns)


def tell_speed(ratio: Ratio, other: str, told: str | None) -> str:
    """Compare a time with another arm's, in its direction: `3.65x faster than torch-eager [3.5, 3.8], surely 3.2x`.

    Args:
        told: a reason against a verdict in the whole cell, which is told elsewhere.
    """
    if ratio.verdict is Verdict.FASTER:
        low, high = ratio.reading
        ends = ends_of(1 / high if high else None, 1 / low if low else None)
        surely = f", surely over {1 / ratio.surely:.3g}x" if ratio.surely and ratio.reading_low else ""
        return f"{1 / ratio.value:.3g}x faster than {other}{ends}{surely}"
    if ratio.verdict is Verdict.SLOWER:
        return f"slower than {other}, {known(ratio)} of its time"
    if ratio.reason and ratio.reason != told:
        return f"{known(ratio)} of {other}'s time; no verdict: {ratio.reason}"
    told = "the same as" if ratio.verdict is Verdict.SAME else "not distinguished from"
    return f"{told} {other}, {known(ratio)} of its time"


def _tell_fidelity(row: Row, ship: Shipped) -> Iterator[str]:
    """List the accuracy or error of an arm that isn't plain FP32."""
    if ship.metric:
        yield tell_metric(ship.metric)
        if lost := tell_lost_part(ship.metric):
            yield lost
    elif ship.accuracy is not None:
        yield f"accuracy {ship.accuracy:.1%}{tell_accuracy_change(ship.accuracy_change)}"
    if text := tell_error_of_ship(ship, row):
        yield f"error {text}"
    if ship.admitted == "alone":
        yield "nothing here is known to be as good as plain FP32"


def tell_error_of_ship(ship: Shipped, row: Row) -> str:
    """Return the error of the row to ship unless it is plain FP32; a file in its own precisions has an error too."""
    is_exact = ship.admitted == "fp32" and row.precision == Precision.FP32
    return "" if is_exact or ship.relative_l2 is None else error(ship.relative_l2)


def tell_accuracy_change(change: AccuracyChange | None) -> str:
    """Return ` (-1.8 [-3.2, -0.3] points)`, or "" without a change."""
    return f" ({points(change.value)} [{points(change.low)}, {points(change.high)}] points)" if change else ""


def name_metric(metric: Metric) -> str:
    """Return `iou`, or `mae of boxes` if each output has its own."""
    return f"{metric.name} of {metric.output}" if metric.output else metric.name


def tell_metric(metric: Metric) -> str:
    """Return `iou 0.940 (+0.001, 95 %: 0 to +0.002)`; without truth, the score against FP32's own outputs."""
    told = f"{name_metric(metric)} {metric.value:.4g}"
    if metric.against == "outputs":
        bounds = "" if metric.low is None or metric.high is None else f" (95 %: {metric.low:.4g} to {metric.high:.4g})"
        return f"{told} against FP32's outputs{bounds}"
    if change := metric.change:
        return f"{told} ({change.value:+.2g}, 95 %: {change.low:+.2g} to {change.high:+.2g})"
    return told


def tell_lost_part(metric: Metric) -> str:
    """Return `loses most in class 7: 0.97 to 0.12 (31 rows)`, or "" if no part of the data lost more than others."""
    if not (part := metric.loses_most):
        return ""
    return f"loses most in {part.name}: {part.before:.2g} to {part.after:.2g} ({counted(part.rows, 'row')})"


def name_metric_verdict(metric: Metric) -> str:
    """Return `iou -0.004: can't tell`, where there is little room."""
    words = {Standing.MET: "", Standing.BROKEN: ": broken"}.get(metric.standing or Standing.UNKNOWN, ": can't tell")
    if metric.limits == "agreement" or metric.change is None:
        return f"{name_metric(metric)} {metric.value:.4g}{words}"
    return f"{name_metric(metric)} {metric.change.value:+.2g}{words}"


def _tell_metric_limit(metric: Metric) -> str:
    """Tell what a metric says of a target that it doesn't admit, the limit, and what would tell.

    For example `iou -0.004 (95 %: -0.011 to +0.003), limit -0.009: needs about 900 more scored rows`.
    """
    told, sign = tell_metric(metric), ""
    if metric.limits != "agreement" and (change := metric.change):
        told = f"{name_metric(metric)} {change.value:+.2g} (95 %: {change.low:+.2g} to {change.high:+.2g})"
        sign = "+" if metric.lower_is_better else "-"
    if metric.limit is None:
        option = "--max-drop" if metric.lower_is_better else "--min-agreement"
        why = f"no limit: give {option}" if metric.against == "outputs" else "no score of plain FP32 beside it"
        return f"{told}, {why}"
    verdict = "broken" if metric.standing is Standing.BROKEN else "can't tell"
    if metric.standing is Standing.UNKNOWN and metric.rows_needed and metric.rows_needed > metric.rows:
        more = float(f"{metric.rows_needed - metric.rows:.2g}")
        verdict = f"needs about {more:,.0f} more scored {metric.unit}s"
        if metric.unit != "row":
            verdict = f"{counted(metric.rows, metric.unit)}, too few; {verdict}"
    return f"{told}, limit {sign}{metric.limit:.2g}: {verdict}"


def _tell_ties(answer: Answer) -> Iterator[str]:
    told = []
    if answer.tied:
        told.append(
            f"{', '.join(fold((short(rival.arm) for rival in answer.tied), SHOWN))}: {tell_within(answer.tied)}."
        )
    if answer.chosen_by:
        told.append(f"Chosen by: {', then '.join(CHOICES[criterion] for criterion in answer.chosen_by)}.")
    if answer.unsettled:
        some = fold((f"{short(rival.arm)} {_tell_ratio(rival.ratio)}" for rival in answer.unsettled), SHOWN)
        told.append(f"Not proven to be slower: {', '.join(some)}.")
    if told:
        yield " ".join(told)


def tell_within(rivals: Iterable[Rival]) -> str:
    """Tell how far apart rivals can be."""
    ratios = [rival.ratio for rival in rivals]
    bounds = [(low, high) for ratio in ratios if ratio for low, high in [ratio.reading] if low and high]
    if len(bounds) < len(ratios):
        return "not distinguished"
    percent = 100 * max(max(high, 1 / low) - 1 for low, high in bounds)
    known_same = all(ratio and ratio.verdict is Verdict.SAME for ratio in ratios)
    return f"{'as fast' if known_same else 'not distinguished'} (within ±{percent:.{int(percent < 10)}f} %)"


def _tell_trust(answer: Answer, room: int, *, measured: bool, complete: bool) -> str:
    """Tell how well founded the answer is, and what would found it better.

    Args:
        room: letters in a line.
        measured: an arm of the cell has a time.
        complete: the run has measured all that it was to measure; otherwise the last line says so.
    """
    sure = answer.sure
    held = {True: ", control passed", False: ", control FAILED", None: ""}[sure.control_holds]
    told = f"{counted(sure.restarts, 'restart')}{held}."
    if answer.ship and answer.reason:
        told = f"Not yet: {answer.reason}."
    if answer.reason:
        goes_on = not complete and sure.control_holds is not False
        return told if goes_on else f"{told} {_suggest_way_out(measured=measured)}."
    if sure.nearest and sure.restarts_needed:
        takes = f"About {sure.restarts_needed} restarts would settle it with {short(sure.nearest)}"
        if not (command := sure.command):
            return f"{told} {takes}."
        return f"{told} {takes}:  {typed(command, room)}"
    if sure.nearest and sure.restarts > 1:
        return f"{told} It would take over 1,000 to settle it with {short(sure.nearest)}."
    if sure.nearest:
        return f"{told} One restart can't distinguish anything."
    if answer.tied:
        return f"{told} Either may be shipped."
    if sure.told_apart:
        return f"{told} Significantly faster than all others that may be shipped."
    return f"{told} Nothing else may be shipped." if answer.passed else told


def _suggest_way_out(*, measured: bool) -> str:
    """Suggest what to do if there is no verdict and the run is over; more time doesn't mend a control that differs."""
    if measured:
        return "Measure again, with --fresh; `shootout doctor` says what is noisy or missing here"
    return "What was skipped or failed, and the fix, is below; `shootout doctor` says what works here"


def _write_passed(answer: Answer, width: int) -> Iterator[Text]:
    """Write why the others aren't shipped; each target that a metric doesn't admit has a line of its own."""
    refused = [passed for passed in answer.passed if passed.because == "accuracy" and passed.metric]
    by_metric = [[text] for text in fold(_tell_passed(answer, refused), SHOWN)]
    others = fold(_tell_passed(answer, [passed for passed in answer.passed if passed not in refused]), SHOWN)
    for number, items in enumerate(filter(None, [*by_metric, others])):
        yield from labelled("     " if number else "Not  ", items, width)


def _tell_passed(answer: Answer, some: Sequence[Passed]) -> Iterator[str]:
    for passed in some:
        if passed.because == "unsound":
            yield f"{short(passed.arm)}: {(passed.reason or '').removeprefix(passed.arm).strip()}"
        elif passed.because == "slower":
            than = (
                f" than {short(passed.against)}"
                if passed.against and answer.ship and passed.against != answer.ship.arm
                else ""
            )
            yield f"{short(passed.arm)} slower{than} {_tell_ratio(passed.ratio)}"
        else:
            yield ", ".join(filter(None, [f"{short(passed.arm)} {tell_cost(passed)}", passed.reason]))


def tell_cost(change: Passed | WouldChange | SmallerStep) -> str:
    """Tell what it does to the outputs."""
    if change.metric:
        metric = change.metric
        told = tell_metric(metric) if metric.standing is Standing.MET else _tell_metric_limit(metric)
        return ", ".join(filter(None, [told, tell_lost_part(metric)]))
    if change.accuracy_change:
        return f"accuracy{tell_accuracy_change(change.accuracy_change)}"
    return f"error {error(change.relative_l2)}" if change.relative_l2 is not None else "error unknown"


def tell_step(step: SmallerStep) -> str:
    """Describe a smaller artifact than that of the arm to ship, and what it costs."""
    time = f"{known(step.ratio)} of the shipped one's time" if step.ratio else "never side by side"
    return f"{short(step.arm)} {size(step.artifact_bytes)}, {time}, {tell_cost(step)}"


def _tell_ratio(ratio: Ratio | None) -> str:
    return known(ratio) if ratio else "(never side by side)"


def tell_not_raced(answers: Sequence[Answer], rows: Iterable[Row]) -> Iterator[str]:
    """Name the targets without a time, by reason, failures first; then the backends that were never asked for.

    Args:
        rows: of the whole run.
    """
    told = [group for answer in answers for group in answer.not_raced]
    arms: dict[tuple[str, str], dict[str, None]] = {}
    for group in sorted(told, key=lambda group: group.cause not in FAILURES):
        count = told.count(group)
        cells = f" in {count} of {len(answers)} cells" if count < len(answers) else ""
        arms.setdefault((_tell_why(group), cells), {}).update(dict.fromkeys(group.arms))
    yield from fold((f"{name_targets(some)} ({why}){cells}" for (why, cells), some in arms.items()), SHOWN_REASONS)
    yield from tell_untried(rows)


def _tell_why(group: NotRaced) -> str:
    if group.cause is NotRunKind.NOT_INSTALLED and group.fix:
        return f"not installed: {group.fix}"
    failed = "failed: " if group.cause in FAILURES else ""
    reason = _IN_BRACKETS.sub("", group.reason)  # it stands in brackets itself, and whole below the table
    return failed + (reason if len(reason) <= LONGEST_REASON else "why is below")


def tell_changes(changes: Iterable[WouldChange]) -> Iterator[str]:
    """Tell what would be shipped at another size, or under another limit."""
    limits: dict[str, list[str]] = {}
    for change in changes:
        arm = f"{short(change.arm)} {_tell_ratio(change.ratio)}"
        if change.when == "size":
            where = f"≥ {change.at_least}" if change.at_least is not None else f"≤ {change.at_most}"
            limits.setdefault(f"{change.axis} {where}", []).append(short(change.arm))
        elif change.when == "tighter":
            limits.setdefault("no loss allowed, FP32 alone", []).append(arm)
        else:
            what = change.metric.name if change.metric else "accuracy" if change.accuracy_change else "error"
            cost = "" if change.metric else f", {tell_cost(change)}"  # the line Not has the metric's
            limits.setdefault(f"a looser {what} limit", []).append(arm + cost)
    for limit, arms in limits.items():
        yield f"{limit} ({'; '.join(fold(arms, NAMED))})"


WIDEST = 100
"""Columns; longer lines are harder to read than more of them."""
NARROWEST = 40
SHOWN_CELLS = 24
SHIP = ("ship", "time", "ratio", "size", "accuracy", "error", "not distinguished")
NAMES = {"ratio": "ratio ", "accuracy": "accuracy ", "error": "error ", "not distinguished": "not distinguished from "}
"""Prefixes of the figures if there are no columns."""
Place = Mapping[str, Value]
"""The place of a cell: axis → value."""


def render_answers(document: Document, width: int) -> list[RenderableType]:
    """Render what to ship, in so many columns; a run without a cell shows nothing."""
    narrow = max(min(width, WIDEST), NARROWEST)
    rows = {answer.group: [row for row in document.rows if row.group == answer.group] for answer in document.answer}
    if len(document.answer) == 1:
        (answer,) = document.answer
        return [*render_answer(answer, rows[answer.group], document, narrow), Text()]
    return [*_render_grid(document, rows, width, narrow), Text()] if document.answer else []


def _render_grid(
    document: Document, rows: Mapping[str, Sequence[Row]], width: int, narrow: int
) -> Iterator[RenderableType]:
    """Render a line a cell: what to ship, and what isn't distinguished from it; then what holds for all cells."""
    places = {answer.group: _place_row(rows[answer.group][0]) for answer in document.answer}
    axes = varied(list(places.values()))
    where = _locate_cells(places, axes)
    yield Text(f"What to ship, in {len(places)} cells{_name_baseline(document)}", style="bold")
    yield from _render_cells(document.answer[:SHOWN_CELLS], rows, where, width)
    if len(document.answer) > SHOWN_CELLS:
        yield Text(f"and {counted(len(document.answer) - SHOWN_CELLS, 'cell')} more, which --json has")
    without = [answer for answer in document.answer if not answer.ship]
    yield from labelled("No answer", _tell_reasons(without, where), narrow)
    yield from labelled("So far", _tell_reasons([answer for answer in document.answer if answer.ship], where), narrow)
    for axis in axes:
        yield from labelled(f"Changes by {axis}", _tell_axis_changes(axis, document.answer, places), narrow)
    for answer in document.answer:
        yield from labelled(f"Smaller, {_name_cell(where[answer.group])}:", map(tell_step, answer.smaller), narrow)
    yield from labelled("Sure?", [_tell_trust_of_all(document)], narrow)
    yield from labelled("Not raced", tell_not_raced(document.answer, document.rows), narrow)
    yield from labelled("Would change it", _tell_looser_limits(document.answer), narrow)


def _name_baseline(document: Document) -> str:
    """Name the arm that the ratios refer to, if it is the same in all cells."""
    cells = {answer.group for answer in document.answer}
    found = {group.baseline for group in document.groups if group.name in cells}
    baseline = found.pop() if len(found) == 1 else None
    return f"; ratios are to {short(baseline)}" if baseline else ""


def _locate_cells(places: Mapping[str, Place], axes: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return each cell's place on the axes; if places aren't unique, its name."""
    found = {group: {axis: _name_value(place, axis) for axis in axes} for group, place in places.items()}
    unique = len({tuple(where.values()) for where in found.values()}) == len(found)
    return found if unique else {group: {"cell": group} for group in places}


def _name_value(place: Place, axis: str) -> str:
    value = str(place.get(axis, ""))
    return name_model(value) if axis == "model" else value


def _name_cell(where: Mapping[str, str]) -> str:
    return where.get("cell") or ", ".join(f"{axis}={value}" for axis, value in where.items() if value)


def _render_cells(
    answers: Sequence[Answer], rows: Mapping[str, Sequence[Row]], where: Mapping[str, Mapping[str, str]], width: int
) -> Iterator[RenderableType]:
    """Render a table if it fits, else a paragraph each."""
    lines: list[dict[str, Cell]] = [
        {**where[answer.group], **_fill_cells(answer, rows[answer.group])} for answer in answers
    ]
    headers = [name for name in lines[0] if any(str(line[name]) for line in lines)]
    table = make_table(headers, lines, left=set(headers) - {"time", "size"})
    if fits(table, width):
        yield table
        return
    for answer, line in zip(answers, lines, strict=True):
        told = [(name, str(line[name])) for name in SHIP if str(line[name])]
        items = (f"{NAMES.get(name, '')}{text}" for name, text in told)
        yield from labelled(f"{_name_cell(where[answer.group])}:", items, width)


def _fill_cells(answer: Answer, rows: Sequence[Row]) -> dict[str, Cell]:
    ship = answer.ship
    if ship is None:
        return dict.fromkeys(SHIP, "") | {"ship": Text("no answer", style="yellow")}
    figures = (
        f"{short(ship.arm)}{SO_FAR if answer.reason else ''}",
        duration(ship.median_ns),
        known(ship.ratio) if ship.ratio else "1",
        size(ship.artifact_bytes) if answer.smaller and ship.artifact_bytes else "",
        tell_metric(ship.metric)
        if ship.admitted == "metric" and ship.metric
        else tell_accuracy_change(ship.accuracy_change).strip(" ()")
        if ship.admitted == "accuracy"
        else "",
        tell_error_of_ship(ship, next(row for row in rows if row.arm == ship.arm)),
        ", ".join(fold((short(rival.arm) for rival in (*answer.tied, *answer.unsettled)), NAMED)),
    )
    return dict(zip(SHIP, figures, strict=True))


def _tell_reasons(answers: Sequence[Answer], where: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tell why there is no answer, or no verdict for it, and in which cells."""
    cells: dict[str, list[str]] = {}
    for answer in answers:
        if answer.reason:
            cells.setdefault(answer.reason, []).append(_name_cell(where[answer.group]))
    for reason, groups in cells.items():
        yield f"{'; '.join(fold(groups, NAMED))}: {reason}"


def _place_row(row: Row) -> Place:
    cell: dict[str, Value] = {"batch": row.batch, "threads": row.threads, "scenario": row.scenario}
    return {"model": row.model, **row.parameters, **cell}


def varied(places: Sequence[Place]) -> list[str]:
    """Return the axes along which some places differ, in their order."""
    axes = dict.fromkeys(axis for place in places for axis in place)
    return [axis for axis in axes if len({place[axis] for place in places if axis in place}) > 1]


def _tell_axis_changes(axis: str, answers: Sequence[Answer], places: Mapping[str, Place]) -> Iterator[str]:
    """Tell what to ship from which size on along one axis, all else the same; keep an arm while it may be best."""
    along: dict[tuple[tuple[str, Value], ...], list[tuple[int, Answer]]] = {}
    for answer in answers:
        place = dict(places[answer.group])
        at = place.pop(axis, None)
        if isinstance(at, int) and not isinstance(at, bool):
            along.setdefault(tuple(place.items()), []).append((at, answer))
    for cells in along.values():
        stretches: list[tuple[str, int]] = []
        for at, answer in sorted(cells, key=lambda cell: cell[0]):
            may_be_best = {rival.arm for rival in (answer.ship, *answer.tied, *answer.unsettled) if rival}
            if answer.ship and not (stretches and stretches[-1][0] in may_be_best):
                stretches.append((answer.ship.arm, at))
        if len(stretches) > 1:
            yield ", ".join(f"{short(arm)} from {at} on" for arm, at in stretches)


def _tell_trust_of_all(document: Document) -> str:
    counts = sorted({answer.sure.restarts for answer in document.answer})
    controls = [answer.sure.control_holds for answer in document.answer]
    broken, held = controls.count(False), controls.count(True)
    told = f", the control passed in {counted(held, 'cell')}" if held else ""
    if broken:
        told = f", the control FAILED in {counted(broken, 'cell')}"
    elif held == len(controls):
        told = ", controls passed"
    many = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"{many} restart{'' if counts == [1] else 's'}{told}."


def _tell_looser_limits(answers: Sequence[Answer]) -> Iterator[str]:
    """Name the arms that would be faster under a looser error limit, and in how many cells."""
    cells: dict[str, int] = {}
    for answer in answers:
        if arm := next((change.arm for change in answer.would_change if change.when == "looser"), None):
            cells[arm] = cells.get(arm, 0) + 1
    if cells:
        arms = (f"{short(arm)} in {counted(count, 'cell')}" for arm, count in cells.items())
        yield f"a looser error limit ({', '.join(fold(arms, NAMED))})"
