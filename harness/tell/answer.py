"""Tell the answer of one group in at most ten lines: what to ship, how sure that is, what is held back, what next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shootout.backends import USUAL
from shootout.core.contract import Precision, family, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.core.schemes import FULL
from shootout.core.stats.verdicts import LEAST_RESTARTS, MAX_ESTIMATE, Verdict
from shootout.core.units import counted, duration, seconds, size, span
from shootout.tell import registered, reproduce
from shootout.tell.document import (
    Answer,
    Choice,
    Document,
    GroupSummary,
    Metric,
    Ranking,
    Ratio,
    Rival,
    Row,
    WouldChange,
)
from shootout.tell.limits import Standing
from shootout.tell.ratios import NEVER_TOGETHER, SPEED, WIDE, Words, inverse, tell_direction, tell_ratio
from shootout.tell.report import NAMED, Command, Line, fold, gather
from shootout.tell.wording import (
    BUSY,
    BUSY_SHARE,
    LEAST_ERROR,
    RANDOM_INPUTS,
    describe_noise,
    name_metric,
    tell_controls,
    tell_cpus,
    tell_error,
    tell_metric,
    tell_threads,
)

_PRECISION = re.compile(r"[^:]+:\w+:(\w+)")
OUTSIDE = re.compile(r", (?![^()]*\))")
"""The pattern between the parts of a group's name."""
SO_FAR = ", leads so far"
"""Follows the name of an arm that isn't known to be the fastest."""
ALONE = ", nothing compared"
"""Follows the name of an arm that was measured alone."""
TOO_FEW = "too few restarts yet"
NOT_NOISE = "that isn't why this is open"
UNPROVEN = "not shipped: no plain FP32 was raced beside it"
MEASURE_AGAIN = "measure again; `shootout doctor` tells what is noisy or missing here"
REPEAT = "repeat the command or call that began this run, with the same out and more time"
MEND = "why each target has no time stands below the table; `shootout doctor` tells what works here"
"""The advice if nothing has a time."""
TELLS_LOSS = "tells what a lower precision loses against FP32"
NEXT_BEST = "ships the fastest that a folder can be made of"
SHIPS, REFUSED = "▸", "×"
"""The marks before the target that ships or leads, and before those that may not be shipped."""
MARKS = {"Ship": "ships", "Leads": "leads", "Fastest": "fastest"}
"""The meaning of the first mark, by the word that the answer begins with."""


def tell_answer(answer: Answer, rows: Sequence[Row], document: Document) -> Iterator[Line]:
    """Tell one group's answer in at most ten lines; the second is what it is of.

    Args:
        rows: the group's.
    """
    groups = [group for group in document.groups if group.name == answer.group]
    yield tell_ship(answer, rows)
    yield tell_question(answer, rows, [document])
    yield from tell_support(answer, rows, groups)
    yield tell_next(answer, rows)


def tell_support(
    answer: Answer, rows: Sequence[Row], groups: Sequence[GroupSummary], words: Words = SPEED
) -> Iterator[Line]:
    """Tell what supports an answer: how it compares, what is open, how noisy the race was, what is held back.

    Args:
        groups: those that it rests on; none if it rests on no time.
        words: how the directions of what is compared are called.
    """
    yield Line("Tied", list(_tell_ties(answer, words)))
    yield Line("Sure", list(_tell_sure(answer, rows, words)))
    yield Line("Open", list(_tell_open(answer, words)))
    for ranking in (group.ranking for group in groups if any(row.over_time for row in rows)):
        yield Line("Drift", list(tell_ranking(ranking, rows)) if ranking else ())
    yield Line("Noise", list(_tell_noise(answer, groups)))
    yield from _tell_lower_precision(answer, rows, words)


def tell_ranking(ranking: Ranking, rows: Sequence[Row]) -> Iterator[str]:
    """Tell whether the ranking at the end of the turns is that of their beginning."""
    window = span(min(row.over_time.window_s for row in rows if row.over_time))
    for change in ranking.changes:
        first = tell_ratio(change.first, short(change.slower))
        yield f"the ranking changes: {short(change.faster)} is {first} in the first {window} of a turn"
        yield f"in the last {window} it is {tell_ratio(change.end)}"
    if ranking.changes:
        return
    early, late = short(ranking.first[0]), short(ranking.end[0])
    if early == late:
        yield f"no change of the ranking is significant, and {early} measured fastest in the first and last {window}"
    else:
        yield f"{early} measured fastest in the first {window} of a turn and {late} in the last, but not significantly"


def tell_ship(answer: Answer, rows: Sequence[Row], figures: Sequence[str] = (), words: Words = SPEED) -> Line:
    """Tell what to ship or what leads, how fast it is, and what it takes; or why there is no answer.

    Args:
        figures: what is told of it first; none: its time.
        words: see `tell_support`.
    """
    ship = answer.ship
    if ship is None:
        timed = [(row.end_to_end.median_ns, row.arm) for row in rows if row.end_to_end]
        lowest = [f"{short(arm)} has the lowest median, {duration(ns)}" for ns, arm in sorted(timed)[:1]]
        return Line("Ship", [answer.reason or "", *lowest, *_tell_untried(answer, rows)], subject="no answer")
    row = next(row for row in rows if row.arm == ship.arm)
    parts = [*figures] or [find_scenario(row.scenario).tell_time(row)]
    if reference := find_reference(rows):
        parts[:0] = [] if row.file else [f"runs {reference}"]
    if leads(answer):
        parts.append(f"not decided: {tell_undecided(answer, ship.arm)}")
    elif is_unproven(answer):
        parts.append(UNPROVEN)
    elif against := tell_against_usual(answer, words):
        parts += [] if answer.otherwise in answer.tied else [against]
    parts += _tell_untried(answer, rows)
    parts += _tell_fidelity(row, ship.admitted)
    if row.artifact_bytes and not leads(answer):
        parts.append(f"file {size(row.artifact_bytes)}")
    if row.ready_s is not None and not leads(answer):
        parts.append(f"starts in {seconds(row.ready_s)}")
    return Line(choose_label(answer), list(dict.fromkeys(parts)), subject=ship.arm)


def tell_undecided(choice: Choice, arm: str) -> str:
    """Name the rivals that may be better than the arm that leads."""
    names = (
        f"{short(rival.arm)}{' (the usual choice)' if is_usual(rival.arm, arm) else ''}" for rival in choice.unsettled
    )
    *others, last = fold(names, NAMED) or [""]
    if not last:
        return choice.reason or ""
    if not others:
        return f"{last} isn't ruled out"
    return f"{', '.join(others)} and {last} aren't ruled out"


def _tell_untried(answer: Answer, rows: Sequence[Row]) -> Iterator[str]:
    """Tell how many of the targets that could run an unfinished run didn't come to."""
    timed = {family(row.arm) for row in rows if row.end_to_end or row.serve}
    if rows and (late := {family(arm) for arm in answer.untried} - timed):
        yield f"{len(late)} of {counted(len(late | timed), 'target')} not tried"


def choose_label(answer: Answer) -> str:
    """Return the word that a group's answer begins with."""
    if leads(answer):
        return "Leads"
    return "Fastest" if is_unproven(answer) else "Ship"


def leads(answer: Answer) -> bool:
    """Return whether a target that may be shipped could still be faster than the fastest so far, beyond a tie."""
    return answer.ship is not None and bool(answer.reason or answer.unsettled)


def is_unproven(answer: Answer) -> bool:
    """Return whether the fastest is a lower precision, and nothing tells that any target is as good as plain FP32."""
    if answer.ship is None or answer.ship.admitted != "alone":
        return False
    named = _PRECISION.match(answer.ship.arm)
    return named is not None and named[1] not in FULL


def qualify(answer: Answer) -> str:
    """Return what follows the name of what is shipped if no comparison supports it; "" if one does."""
    if leads(answer):
        return SO_FAR
    return ", not shipped" if is_unproven(answer) else ALONE if answer.alone else ""


def tell_question(answer: Answer, rows: Sequence[Row], documents: Sequence[Document]) -> Line:
    """Tell what an answer is of, and where the runs are saved that it rests on."""
    environments = {document.environment.get("machine"): document.environment for document in documents}
    machines = [counted(len(environments), "machine")] if len(environments) > 1 else []
    parts = list_title_parts(answer, rows, {} if machines else documents[0].environment)
    runs = [reproduce.quote([document.run]) for document in documents]
    saved = " and ".join(runs) if len(runs) < 3 else counted(len(runs), "folder")
    return Line("", [*parts, *machines, f"saved in {saved}"])


def list_title_parts(answer: Answer, rows: Sequence[Row], environment: Mapping[str, Any]) -> list[str]:
    """List model, inputs, batch, threads and machine."""
    model, *more = OUTSIDE.split(answer.group)
    inputs = [answer.inputs] if answer.inputs else []
    return [mark_reference(model, rows), *inputs, *more, *tell_threads_beside(more, rows), *tell_machine(environment)]


def find_reference(rows: Sequence[Row]) -> str:
    """Return the name of the file that the others are held to, "" if there are no others."""
    others = any(row.file for row in rows)
    return next((name_model(row.model) for row in rows if others and not row.file), "")


def mark_reference(model: str, rows: Sequence[Row]) -> str:
    """Mark the reference among a group's files, whose name begins with it."""
    reference = find_reference(rows)
    return f"{reference} (the reference){model.removeprefix(reference)}" if reference else model


def _tell_sure(answer: Answer, rows: Sequence[Row], words: Words) -> Iterator[str]:
    """Tell how many of the others are slower, and which is second."""
    if answer.ship is None:
        return
    others, slower = max(len(answer.eligible) - 1, 0), answer.sure.slower
    every = _name_others(answer, rows, others)
    if not others:
        is_known = "may be shipped" if answer.ship.admitted != "policy" else "is known to meet every limit"
        alone = "no other target was measured, so nothing was compared"
        yield alone if answer.alone else f"no other target that was measured {is_known}"
    elif not slower:
        known = "" if words.is_exact else "significantly "
        yield f"not {known}{words.less} than {'' if others == 1 else 'any of '}{every}"
    else:
        told = "" if others == 1 else "each of " if slower == others else f"{slower} of "
        sure = "" if words.is_exact else f", 95 %{' for all together' if others > 1 else ''}"
        yield f"{words.less} than {told}{every}{sure}"
    open_ = len(answer.tied) + len(answer.unsettled)
    if beaten := others - slower - open_:  # known from comparisons with others alone
        not_out = f"{open_} not ruled out, " if open_ else ""
        yield f"{not_out}{beaten} {words.more} than another of them"
    if not leads(answer) and answer.sure.closest and answer.sure.closest.ratio:
        place = "next" if answer.tied else "second"
        yield f"{place} is {short(answer.sure.closest.arm)}, {tell_ratio(answer.sure.closest.ratio, words=words)}"


def _name_others(answer: Answer, rows: Sequence[Row], count: int) -> str:
    """Name so many targets that may be shipped beside the one that is: `the 8 other FP32 targets`."""
    ship = answer.ship
    judged = any(row.fidelity and row.fidelity.metric for row in rows)
    if ship and ship.admitted == "fp32" and not judged and ship.arm.endswith(f":{Precision.FP32}"):
        kind, which = "FP32 target", ""
    elif ship and ship.admitted == "policy":
        kind, which = "target", f" that {'meets' if count == 1 else 'meet'} every limit"
    else:
        kind, which = "target", "" if is_unproven(answer) else " that may be shipped"
    if answer.untried:
        kind = f"timed {kind}"
    return f"the only other {kind}{which}" if count == 1 else f"the {count} other {kind}s{which}"


def _tell_open(answer: Answer, words: Words) -> Iterator[str]:
    """Tell which rivals of what leads are open and why, the nearest ones first; a reason that some share once."""
    if not leads(answer):
        return
    for why, rivals in gather((_tell_why_open(rival.ratio), rival) for rival in answer.unsettled).items():
        few = [rival.ratio.restarts for rival in rivals if rival.ratio]
        many = f" ({min(few)} to {max(few)})" if len({*few}) > 1 else f" ({few[0]})" if few else ""
        names = fold((_tell_about(rival, words) for rival in rivals), NAMED)
        yield f"{', '.join(names)}{f': {why}' if why else ''}{many if why == TOO_FEW else ''}"


def _tell_why_open(ratio: Ratio | None) -> str:
    if ratio is None or not ratio.restarts:
        return NEVER_TOGETHER
    return ratio.reason or (TOO_FEW if ratio.restarts <= LEAST_RESTARTS else "")


def _tell_about(rival: Rival, words: Words) -> str:
    """Write `onnxruntime about 2.0x slower`."""
    name = short(rival.arm)
    return f"{name} about {tell_direction(rival.ratio.value, words, 2 * WIDE)}" if rival.ratio else name


def _tell_noise(answer: Answer, groups: Sequence[GroupSummary]) -> Iterator[str]:
    """Tell how noisy the races were, and whether that is too much for this answer."""
    if groups and answer.sure.control_holds is False:
        yield tell_controls(groups)
    elif groups and answer.ship and len(answer.eligible) > 1:
        yield f"{describe_noise(groups)}: {_tell_what_noise_allows(answer)}"
    if answer.sure.control_holds is not False and any(group.void_share > BUSY_SHARE for group in groups):
        yield BUSY


def _tell_what_noise_allows(answer: Answer) -> str:
    """Tell whether the answer stands, or what would decide it."""
    open_ = [rival.ratio for rival in (answer.unsettled or answer.tied)]
    if leads(answer):
        if answer.sure.seconds_needed is not None:
            takes = f"about {span(answer.sure.seconds_needed)}"
            needed = f"{takes} more" if answer.goes_on else f"a race of the open ones for {takes}"
            return f"{needed} would decide it"
        if answer.untried and answer.goes_on:
            return "the targets not tried come first"
        raced = [ratio for ratio in open_ if ratio]
        if any(ratio.reason for ratio in raced):
            return NOT_NOISE
        if all(ratio.sd is None for ratio in raced) or any(ratio.restarts <= LEAST_RESTARTS for ratio in raced):
            return "too few restarts to decide"
        if answer.sure.nearest is None:
            return "more restarts would decide it"
        most = answer.sure.restarts_needed
        many = f"about {most:,}" if most else f"over {MAX_ESTIMATE:,}"
        return f"{many} restarts would be needed: use a quieter machine, or accept a tie"
    if any(ratio is None or ratio.verdict is Verdict.CANT_TELL for ratio in open_):
        return "enough for this choice, not to distinguish what is tied"
    low, high = answer.sure.closest.ratio.ends if answer.sure.closest and answer.sure.closest.ratio else (None, None)
    is_exact = low is not None and high is not None and high / low <= WIDE
    margins = f"; with {counted(answer.sure.restarts, 'restart')} or fewer the intervals are wide"
    return f"enough for this winner{'' if is_exact or not answer.sure.closest else margins}"


def _tell_lower_precision(answer: Answer, rows: Sequence[Row], words: Words) -> Iterator[Line]:
    """Tell the fastest of those that are held back, and what would let it be shipped; else why none gains."""
    held, ship = answer.would_change, answer.ship
    if ship and held:
        first = held[0]
        told = tell_ratio(first.ratio, ship.arm, words) if first.ratio else NEVER_TOGETHER
        parts = [f"{first.arm} is {told}", f"held back: {first.why}"]
        if len(held) > 1:
            parts.append(f"{len(held) - 1} more in the table")
        mine = next(row for row in rows if row.arm == first.arm)
        yield Line(name_precision(first.arm), parts, list(_list_ways_out(first, mine)))
    elif answer.no_gain:
        mine = next(row for row in rows if row.arm == answer.no_gain[0])
        parts = [f"no gain: {_tell_no_gain(mine)}"]
        if len(answer.no_gain) > 1:
            parts.append(f"{len(answer.no_gain) - 1} more in the table")
        yield Line(name_precision(mine.arm), parts)


def name_precision(arm: str) -> str:
    """Return the label of a target's precision: `INT8` of `litert:cpu:int8-dynamic`."""
    named = _PRECISION.match(arm)
    return named[1].upper() if named else ""


def tell_next(answer: Answer, rows: Sequence[Row]) -> Line:
    """Tell the one command that comes next; without one what to do."""
    told = tell_no_folder(answer)
    if answer.next:
        return Line("Next", told, [Command(text=answer.next, remark=remark_next(answer, rows))])
    if is_unproven(answer):
        return Line("Next", ["race plain FP32 beside it: without it, nothing tells what a lower precision loses"])
    if answer.goes_on:
        return Line("Next", [REPEAT])
    if leads(answer) or answer.sure.control_holds is False:
        return Line("Next", [MEASURE_AGAIN])
    return Line("Next", told if any(row.end_to_end for row in rows) else [MEND])


def next_ships(answer: Answer, rows: Sequence[Row]) -> bool:
    """Return whether the next command writes a folder of what is shipped.

    Args:
        rows: the group's.
    """
    return choose_label(answer) == "Ship" and answer.no_folder is None and _sets_threads(answer, rows)


def _sets_threads(answer: Answer, rows: Sequence[Row]) -> bool:
    return any(row.threads for row in rows if answer.ship and row.arm == answer.ship.arm)


def remark_next(answer: Answer, rows: Sequence[Row]) -> str:
    """Tell what the next command does; "" if the line or the command says that.

    Args:
        rows: the group's.
    """
    if answer.goes_on:
        return "goes on where this stopped"
    if answer.sure.control_holds is False:
        return "measures it again; `shootout doctor` tells what is noisy here"
    if answer.ship is None:
        return "measures what isn't known"
    if leads(answer):
        return "races what is open" if answer.next == answer.sure.command else "measures it again"
    if next_ships(answer, rows):
        return "writes a folder to deploy"
    if is_unproven(answer):
        return TELLS_LOSS if answer.next and answer.next.startswith("shootout run") else ""
    if any(find_scenario(row.scenario).varies for row in rows):
        return ""
    if not _sets_threads(answer, rows):
        return "measures it with a set number of threads, which a folder needs"
    return NEXT_BEST if answer.no_folder else ""


def tell_no_folder(answer: Answer) -> list[str]:
    """Tell why what is shipped can't be put into a folder and what to do."""
    if answer.ship is None or answer.no_folder is None or answer.goes_on or leads(answer):
        return []
    return [f"{short(answer.ship.arm)}: {answer.no_folder}"]


def _list_ways_out(held: WouldChange, row: Row) -> Iterator[Command]:
    """List what to type so that a faster target may be shipped: measure its accuracy, or accept what it loses."""
    if held.measure:
        remark = CHOSEN_IF_BY_METRIC if "--metric" in held.measure else CHOSEN_IF
        yield Command(label=MEASURE, text=held.measure, remark=remark)
    elif held.why == RANDOM_INPUTS:
        yield Command(label=MEASURE_OWN, text=OWN_MODEL)
    if held.accept:
        found = row.fidelity
        error = found.relative_l2 or 0.0 if found and not found.metric else 0.0
        told = f"(its outputs differ by {tell_error(error)})" if error >= LEAST_ERROR else ""
        yield Command(label=ACCEPT, text=held.accept, remark=told)


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


def name_reference(rows: Iterable[Row]) -> str:
    """Name the library whose outputs are the reference, since the model is its own file; "" for other models."""
    return next((row.backend for row in rows if registered.reads_own_files(row.backend)), "")


def tell_against_usual(answer: Answer, words: Words = SPEED) -> str:
    """Compare what is shipped with what an expert would take otherwise: `2.0x faster than onnxruntime (1.3 to 3.2)`.

    Args:
        words: see `tell_support`.

    Returns:
        "" if there is nothing else to compare it with.
    """
    usual = answer.otherwise
    if usual is None or usual.ratio is None or answer.ship is None:
        return ""
    known = "" if not is_usual(usual.arm, answer.ship.arm) else ", the usual choice"
    than = f"{short(usual.arm)}{known}"
    return tell_ratio(inverse(usual.ratio), than, words)


def is_usual(arm: str, ship: str) -> bool:
    """Return whether most would take a target without measuring, in place of another backend that is shipped."""
    (usual, _), (backend, device) = (re.split(r"[:/@#]", one)[:2] for one in (arm, ship))
    names = USUAL.get(device, ())
    return usual in names and backend not in names


def _tell_fidelity(row: Row, admitted: str) -> Iterator[str]:
    """List the metric of an arm, and the error of one that isn't plain FP32."""
    if (found := row.fidelity) is None:
        return
    if found.metric:
        yield tell_metric(found.metric)
    elif found.relative_l2 is not None and not (admitted in ("fp32", "policy") and row.precision == Precision.FP32):
        yield f"its outputs differ by {tell_error(found.relative_l2)}"


def name_metric_verdict(metric: Metric) -> str:
    """Return `iou -0.004: can't tell`, where there is little room."""
    words = {Standing.MET: "", Standing.BROKEN: ": broken"}.get(metric.standing or Standing.UNKNOWN, ": can't tell")
    if metric.limits == "agreement" or metric.change is None:
        return f"{name_metric(metric)} {metric.value:.4g}{words}"
    return f"{name_metric(metric)} {metric.change.value:+.2g}{words}"


def _tell_ties(answer: Answer, words: Words) -> Iterator[str]:
    """Name the targets that may be equally good, and what chose among them."""
    ratios = {one.arm: tell_ratio(one.ratio, words=words) if one.ratio else NEVER_TOGETHER for one in answer.tied}
    yield from fold((f"{short(arm)}: {told}" for arm, told in ratios.items()), NAMED)
    if answer.ship and answer.chosen_by:
        yield f"{short(answer.ship.arm)} is chosen for its {', then '.join(answer.chosen_by)}"


MEASURE, MEASURE_OWN, ACCEPT = "measure it:", "measure your own:", "accept it:"
OWN_MODEL = "shootout run MODEL.onnx --inputs X.npz --labels Y.npz"
CHOSEN_IF = "(chosen if it loses under 1 point of accuracy against FP32)"
CHOSEN_IF_BY_METRIC = "(chosen if it loses under 1 % of FP32's score)"


def _tell_no_gain(row: Row) -> str:
    """Tell why a lower precision isn't faster than the FP32 of its own backend."""
    assert row.why, "the answer lists rows that have a cause"
    own = "its own FP32" if row.why.against.endswith(f":{Precision.FP32}") else short(row.why.against)
    return f"{short(row.arm)} is {tell_ratio(row.why.ratio, own)}: {row.why.text}"
