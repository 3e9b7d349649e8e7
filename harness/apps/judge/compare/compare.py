"""Compare two runs: by ratios of ratios on one machine, by the verdicts that hold or flip on two. Pure.

A machine is never twice the same: clocks, neighbors and memory move all times from one session to the next. What moves
together cancels in the ratio to an arm that is the same in both sessions. What doesn't cancel is the session floor,
which is learned from earlier sessions or taken as ±10 % (docs/evidence/comparing.md). Restarts are the replicates.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.compare.document import ComparedDocument, Moved, RunChange, SessionComparison
from shootout.apps.judge.compare.matching import (
    EXPORT,
    THREADS,
    find_differing,
    is_same,
    key_of,
    tell_apart,
    tell_strange,
)
from shootout.apps.judge.compare.merge import (
    CellInPlace,
    find_sites,
    match_sites,
    merge_sites,
    name_places,
    place_of,
    warn_exports,
)
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.objective import SESSION_FLOOR, learn_floor, scale_floor
from shootout.apps.judge.eligible import find_fault
from shootout.core.constants import ALPHA, BIAS_FLOOR, INDIFFERENT
from shootout.core.contract import Array, short
from shootout.core.errors import UsageError
from shootout.core.journal.records import Header
from shootout.core.results.run import begun, read_run
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import GroupEvidence
from shootout.core.stats.verdicts import judge, ratio_at
from shootout.core.units import size
from shootout.tell import reproduce
from shootout.tell.document import Ratio, Row
from shootout.tell.machines import is_same_machine, list_facts, machine_of

MOVED = "one key, but two processors or GPUs: the machine moved or was changed, or these are two machines of one image"

CLONES = (
    "virtual machines and containers of one image on one kind of processor can't be distinguished: "
    "A and B are taken as one machine"
)

NO_CONTROL = "no arm is the same in both and known against it"

BESIDE = "the run beside these in"

LEAST_SESSIONS = 5
"""Fewer of them can't show how far sessions differ."""

MOST_SESSIONS = 10
"""So many of a folder's own earlier runs are read, the latest."""


def compare_folders(a: Path, b: Path, history: Iterable[Path] = ()) -> ComparedDocument:
    """Return what the run in `b` says of that in `a`.

    Args:
        history: earlier runs of the same on the same machine, from which the session floor is learned. Without any,
            runs of the same study that lie beside the two are taken.

    Raises:
        UsageError: no run is there, both are one race, or they ask different things; names the fields.
    """
    one, other = (analyse_cells(folder) for folder in (a, b))
    given = [analyse_cells(folder) for folder in expand_merged(history)]
    beside, unread = ((), ()) if given else read_beside(a, b)
    found = compare(one, other, given, beside)
    return found.model_copy(update={"warnings": (*found.warnings, *unread)})


def read_beside(a: Path, b: Path) -> tuple[Sequence[Analysed], Sequence[str]]:
    """Return the latest runs that lie beside two runs and are of the same study on the same machine.

    Returns:
        The runs, and a warning for each folder there whose run can't be read.
    """
    mine = [folder.resolve() for folder in (a, b)]
    asked = {_identify_session(read_run(folder).facts) for folder in mine}
    found: list[tuple[str, Path]] = []
    runs, unread = list[Analysed](), list[str]()
    for folder in (one for place in {folder.parent for folder in mine} for one in sorted(place.iterdir())):
        try:  # a folder that wasn't named may hold anything
            if folder not in mine and folder.is_dir() and begun(folder):
                facts = read_run(folder).facts
                found += [(facts.created, folder)] if _identify_session(facts) in asked else []
        except UsageError as error:
            unread.append(f"{BESIDE} {folder.name!r} is left out: {error}")
        except OSError:
            continue
    for _, folder in sorted(found, reverse=True)[:MOST_SESSIONS]:
        try:
            runs.append(analyse_cells(folder))
        except UsageError as error:
            unread.append(f"{BESIDE} {folder.name!r} is left out: {error}")
    return runs, unread


def _identify_session(facts: Header) -> tuple[str, str]:
    return facts.study, str(facts.environment.get("machine"))


def compare(
    a: Analysed, b: Analysed, history: Sequence[Analysed] = (), beside: Sequence[Analysed] = ()
) -> ComparedDocument:
    """Return what one run says of another; see `compare_folders`.

    Args:
        beside: further earlier runs, found beside the two and not named.
    """
    if is_same(a, b):
        run = a.document.run
        raise UsageError(f"{run} and {b.document.run} are the same run: `shootout show {run}` has its verdicts")
    names = name_places([a, b])
    sites = [find_sites(name, run) for name, run in zip(names, (a, b), strict=True)]
    if empty := [run.document.run for run, mine in zip((a, b), sites, strict=True) if not mine]:
        raise UsageError(f"{empty[0]} has no group whose figures count, so nothing can be compared: name another run")
    pairs = _match_sites(sites[0], sites[1])
    machines = [machine_of(run.document.environment) for run in (a, b)]
    same = is_same_machine(*machines)
    facts: dict[str, Any] = {
        "level": 1 if same else 2,
        "a": place_of(names[0], a),
        "b": place_of(names[1], b),
        "changes": (*find_changes(a, b), *_find_export_changes(pairs)),
        "only_a": _list_unpaired(sites[0], [one for one, _ in pairs]),
        "only_b": _list_unpaired(sites[1], [other for _, other in pairs]),
    }
    if not same:
        warnings = ("--history is of one machine, and these are two",) if history else ()
        if machines[0].key == machines[1].key:
            warnings = (*warnings, MOVED)
        return ComparedDocument(**facts, merged=merge_sites(names, (a, b), pairs), warnings=warnings)
    found = [(pair, find_earlier(pair, [*history, *beside])) for pair in pairs]
    sessions = tuple(_compare_sessions(*pair, earlier, len(pairs)) for pair, earlier in found)
    return ComparedDocument(
        **facts,
        sessions=sessions,
        settle=_command_to_settle([one for one, _ in pairs], sessions),
        warnings=(
            *([CLONES] if a.document.environment.get("virtualisation") else ()),
            *(warning for pair in pairs for warning in warn_exports(pair)),
            *_warn_few_sessions(history, [earlier for _, earlier in found]),
        ),
    )


def _match_sites(mine: Sequence[CellInPlace], others: Sequence[CellInPlace]) -> list[tuple[CellInPlace, CellInPlace]]:
    """Return the sites of both that ask the same.

    Raises:
        UsageError: none do; names the fields in which the nearest two differ.
    """
    pairs = [(sites[0], sites[1]) for sites in match_sites([*mine, *others]) if len({one.place for one in sites}) == 2]
    alike = [(one, other) for one, other in pairs if not tell_strange(one.asked, other.asked)]
    if alike:
        return alike
    one, other = min(pairs or product(mine, others), key=lambda pair: len(tell_strange(pair[0].asked, pair[1].asked)))
    told = tell_apart(one.asked, other.asked)
    raise UsageError(f"{one.run.document.run} and {other.run.document.run} can't be compared: {told}")


def find_earlier(pair: tuple[CellInPlace, CellInPlace], history: Sequence[Analysed]) -> list[CellInPlace]:
    """Return the earlier sessions of a question on its own machine, without the two that are compared."""
    mine = pair[0]
    machine = machine_of(mine.run.document.environment)
    found: list[CellInPlace] = []
    for run in history:
        known = any(is_same(run, one.run) for one in (*pair, *found))
        if known or not is_same_machine(machine_of(run.document.environment), machine):
            continue
        alike = [
            one
            for one in find_sites(run.document.run, run)
            if key_of(one.asked) == key_of(mine.asked) and not tell_strange(one.asked, mine.asked)
        ]
        found += sorted(alike, key=lambda one: one.asked[THREADS] != mine.asked[THREADS])[:1]
    return found


def _list_unpaired(sites: Sequence[CellInPlace], paired: Sequence[CellInPlace]) -> tuple[str, ...]:
    return tuple(one.cell.group for one in sites if one not in paired)


def _find_export_changes(pairs: Iterable[tuple[CellInPlace, CellInPlace]]) -> list[RunChange]:
    """Return a line where the exports differ: in weights, data, exporter, or what they were made for."""
    for one, other in pairs:
        if EXPORT in find_differing(one.asked, other.asked):
            keys = (", ".join(sorted(key[:8] for key in site.asked[EXPORT])) for site in (one, other))
            return [RunChange(what="export (weights, data or exporter)", a=next(keys), b=next(keys))]
    return []


def _warn_few_sessions(history: Sequence[Analysed], found: Sequence[Sequence[CellInPlace]]) -> Iterable[str]:
    least = min(map(len, found), default=0)
    if history and least < LEAST_SESSIONS:
        yield f"{least} of --history are other sessions of the same here; a floor is learned from {LEAST_SESSIONS}"


def _compare_sessions(
    a: CellInPlace, b: CellInPlace, earlier: Sequence[CellInPlace], questions: int
) -> SessionComparison:
    """Return one of so many questions, which share α."""
    timed = [{arm: row.end_to_end.median_ns for arm, row in site.rows.items() if row.end_to_end} for site in (a, b)]
    both = [arm for arm in timed[0] if arm in timed[1]]
    changes = {arm: find_arm_changes(a.rows[arm], b.rows[arm]) for arm in both}
    unvouched = a.cell.unvouched or b.cell.unvouched
    faults = {arm: find_fault(a.cell, a.rows[arm]) or find_fault(b.cell, b.rows[arm]) for arm in both}
    steady = [arm for arm in both if not changes[arm] and not faults[arm]]
    pair, moved = (evidence_of(a), evidence_of(b)), []
    for arm in sorted(both, key=lambda one: timed[1][one]):
        times: dict[str, Any] = {"a_ns": timed[0][arm], "b_ns": timed[1][arm], "changes": changes[arm]}
        control = choose_control(pair, arm, [one for one in steady if one != arm])
        if control is None or unvouched or faults[arm]:
            moved.append(Moved(arm=arm, **times, reason=unvouched or faults[arm] or NO_CONTROL))
            continue
        means = _earlier_means(a, earlier, arm, control)
        ratio = find_change(pair, arm, control, means, len(both) * questions)
        floor = math.expm1(find_floor(means, ALPHA))
        moved.append(Moved(arm=arm, **times, control=control, floor=floor, sessions=means.size, ratio=ratio))
    return SessionComparison(
        group=a.cell.group,
        answers={"A": a.answer, "B": b.answer},
        moved=tuple(moved),
        only_a=tuple(arm for arm in timed[0] if arm not in timed[1]),
        only_b=tuple(arm for arm in timed[1] if arm not in timed[0]),
    )


def evidence_of(site: CellInPlace) -> GroupEvidence:
    """Return how a site's arms compare, end to end."""
    return site.run.groups[site.cell.group].evidence("end_to_end")


def choose_control(pair: tuple[GroupEvidence, GroupEvidence], arm: str, others: Sequence[str]) -> str | None:
    """Return the arm that an arm is held against: the one whose ratio is known best in the two runs.

    By how much the ratio differs between the two has no say.

    Args:
        others: arms that are the same in both runs.

    Returns:
        None where there is none that both have an interval against.
    """
    met = [one for one in others if all(known.have_met(arm, one) for known in pair)]
    widths = {one: math.hypot(*(known.pair(arm, one).reach(1) for known in pair)) for one in met}
    return min((one for one in met if math.isfinite(widths[one])), key=lambda one: widths[one], default=None)


def _earlier_means(first: CellInPlace, earlier: Sequence[CellInPlace], arm: str, control: str) -> Array:
    """Return the mean log ratio of each earlier session in which both arms are as in the first run; none of too few."""
    found = [
        known.pair(arm, control).mean
        for site in earlier
        if not site.cell.unvouched
        and all(one in site.rows and not find_arm_changes(first.rows[one], site.rows[one]) for one in (arm, control))
        and (known := evidence_of(site)).have_met(arm, control)
    ]
    return np.array(found if len(found) >= LEAST_SESSIONS else [])


def find_floor(means: Array, alpha: float) -> float:
    """Return how far a log ratio may move between two sessions though nothing changed, but for the share alpha.

    Args:
        means: of earlier sessions; without any, `SESSION_FLOOR` is what holds in 95 of 100 cases.
    """
    if means.size:
        return max(learn_floor(means, alpha), math.log1p(BIAS_FLOOR))
    return scale_floor(math.log1p(SESSION_FLOOR), alpha, ALPHA)


def find_change(pair: tuple[GroupEvidence, GroupEvidence], arm: str, control: str, means: Array, tests: int) -> Ratio:
    """Return the ratio now ÷ the ratio then, with the interval that decides.

    It is that of a difference of two means: what each session is known to, and the floor, in quadrature. All arms'
    intervals together err with the chance α at most.

    Args:
        means: of earlier sessions, see `find_floor`.
        tests: how many arms share α.
    """
    before, after = (known.pair(arm, control) for known in pair)
    middle = after.mean - before.mean
    reach = math.hypot(before.reach(tests), after.reach(tests), find_floor(means, ALPHA / tests))
    low, high = middle - reach, middle + reach
    return Ratio(
        value=math.exp(middle),
        low=ratio_at(low),
        high=ratio_at(high),
        verdict=judge(low, high, bias_floor=0.0, same_within=INDIFFERENT),
        restarts_needed=None,
        sd=None,
        restarts=min(before.n, after.n),
    )


def _command_to_settle(sites: Sequence[CellInPlace], sessions: Sequence[SessionComparison]) -> str | None:
    """Return the race that tells what two sessions don't: of the first arm of another version that has no verdict."""
    told = [
        _race_command(site, one.arm)
        for site, session in zip(sites, sessions, strict=True)
        for one in session.moved
        if any(change.what == "version" for change in one.changes) and not (one.ratio and one.ratio.decided)
    ]
    return next((command for command in told if command), None)


def _race_command(site: CellInPlace, label: str) -> str | None:
    """Return the command that races an arm against itself under another interpreter; None where no gate can."""
    group = site.run.groups[site.cell.group].record
    arm = next((one for one in group.arms if one.label == label and not one.control), None)
    if arm is None or not scenario_of(arm).is_one_call or arm.target.folder or arm.file:
        return None
    name = "other" if arm.target.python != "other" else "another"
    words = ["shootout", "gate", site.run.document.run, "--target", short(label)]
    words += ["--group", group.name] if len(site.run.document.groups) > 1 else []
    return shlex.join([*words, "--candidate", short(str(replace(arm.target, python=name))), "--python", f"{name}=PATH"])


NONE = "-"

_FIRST = ("libraries", "gpus", "cuda_driver", "os", "cpu", "variables", "python", "option")
"""The facts that people look for first; all others follow, and last those that one of the two doesn't tell of."""

_APART = frozenset({"date_utc", "machine", "ceilings", "interpreters"})
"""Another at each run, or told elsewhere."""

_MEASURED = frozenset({"artifact_bytes", "kernel_ns"})
"""The parts of a runtime's account that differ between restarts."""

_GREW = 0.01
"""An artifact that is larger or smaller by more than this share was made of another export, or otherwise."""

_COMMIT = 10
"""So many letters of it tell commits apart."""


def find_changes(one: Analysed, other: Analysed) -> tuple[RunChange, ...]:
    """Return what differs in where and how two runs were made, what matters most first."""
    before, after = map(_list_facts, (one, other))
    found = [
        RunChange(what=name, a=before.get(name, NONE), b=after.get(name, NONE))
        for name in dict.fromkeys([*before, *after])
        if before.get(name, NONE) != after.get(name, NONE)
    ]
    ordered = sorted(found, key=lambda one: (NONE in (one.a, one.b), _rank_change(one.what), one.what))
    return tuple(one.model_copy(update={"what": one.what.removeprefix("libraries.")}) for one in ordered)


def _list_facts(run: Analysed) -> dict[str, str]:
    """Return the facts of a run's machine and software, flags one by one, and the options that no arm tells."""
    facts = dict(list_facts({key: part for key, part in run.document.environment.items() if key not in _APART}))
    flags = facts.pop("cpu.flags", "").split(", ")
    options = reproduce.write_given(run.facts.given)
    return (
        {name: value[:_COMMIT] if name == "shootout.commit" else value for name, value in facts.items()}
        | {f"cpu.{flag}": "yes" for flag in flags if flag}
        | {f"option {name}": value or "given" for name, value in options}
    )


def find_arm_changes(one: Row, other: Row) -> tuple[RunChange, ...]:
    """Return what differs in one arm of both, by its own words and by the runtime's account of what it ran.

    What only one account tells is no change. A fallback is; and so is an artifact of another
    size, whatever the versions are: it was made of another export.
    """
    names = ("settings", "python", "threads", "instances")
    own = [(name, getattr(one, name), getattr(other, name)) for name in names]
    own += [(name, one.options.get(name), other.options.get(name)) for name in {**one.options, **other.options}]
    first, second = (row.executed or {} for row in (one, other))
    shared = [(name, first[name], second[name]) for name in first if name in second and name not in _MEASURED]
    own += [
        each for each in shared if each[0] == "fallbacks" or NONE not in (_show_value(each[1]), _show_value(each[2]))
    ]
    sizes = one.artifact_bytes or 0, other.artifact_bytes or 0
    if min(sizes) and max(sizes) > min(sizes) * (1 + _GREW):
        own.append(("artifact", size(sizes[0]), size(sizes[1])))
    return tuple(RunChange(what=name, a=_show_value(a), b=_show_value(b)) for name, a, b in own if a != b)


def _rank_change(name: str) -> int:
    part = name.replace(" ", ".").partition(".")[0]
    return _FIRST.index(part) if part in _FIRST else len(_FIRST)


def _show_value(value: Any) -> str:
    if value in (None, "", [], (), {}):
        return NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
