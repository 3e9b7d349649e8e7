"""Compare two runs: by ratios of ratios on one machine, by the verdicts that hold or flip on two. Pure.

A machine is never twice the same: clocks, neighbors and memory move all times from one session to the next. What moves
together cancels in the ratio to an arm that is the same in both sessions. What doesn't cancel is the session floor,
which is learned from earlier sessions or taken as ±10 % (docs/evidence/comparing.md). Restarts are the replicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.compare.merge import (
    THREADS,
    CellInPlace,
    MergedDocument,
    Place,
    find_sites,
    is_same,
    key_of,
    match_sites,
    merge_sites,
    name_places,
    place_of,
    tell_apart,
    tell_strange,
    warn_exports,
)
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.objective import SESSION_FLOOR, learn_floor, scale_floor
from shootout.apps.judge.leader import find_fault
from shootout.core.constants import ALPHA, BIAS_FLOOR, INDIFFERENT
from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.stats.group_evidence import GroupEvidence
from shootout.core.stats.verdicts import judge, ratio_at
from shootout.core.units import size
from shootout.tell.document import Part, Ratio, Row
from shootout.tell.machines import is_same_machine, list_facts, machine_of
from shootout.tell.reproduce import TARGETS, add_options, write_given

SCHEMA = "shootout.compared/4"


class RunChange(Part):
    """One thing that is another in the second run; `-` where a run had none."""

    what: str
    a: str
    b: str


class Moved(Part):
    """An arm that both sessions timed.

    Attributes:
        changes: of the arm itself; without any it is unchanged.
        control: the unchanged arm that it is held against; null where there is none.
        floor: how far the two move apart though nothing changed, in 95 of 100 cases; `sessions` that it was learned
            from, 0: assumed.
        ratio: its time ÷ the control's in the second run, ÷ the same in the first, with a 95 % interval for all arms
            together, the floor in it.
        reason: why there is no ratio, or no verdict.
    """

    arm: str
    a_ns: float
    b_ns: float
    changes: tuple[RunChange, ...]
    control: str | None = None
    floor: float | None = None
    sessions: int = 0
    ratio: Ratio | None = None
    reason: str | None = None


class SessionComparison(Part):
    """One question in two sessions on one machine, by arm that has a time in both."""

    group: str
    moved: tuple[Moved, ...]


class ComparedDocument(Part):
    """Hold what may be said of two runs.

    Attributes:
        level: 1: one machine, two sessions; 2: two machines, of which no time is called slower.
        sessions: at level 1, a question each.
        merged: at level 2, both runs as one document.
        settle: what would tell, where something isn't told at level 1; its PATH is an interpreter's.
        only_a, only_b: groups that the other run doesn't have.
    """

    format: str = Field(default=SCHEMA, serialization_alias="schema")
    level: Literal[1, 2]
    a: Place
    b: Place
    changes: tuple[RunChange, ...]
    sessions: tuple[SessionComparison, ...] = ()
    merged: MergedDocument | None = None
    settle: str | None = None
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return which runs, and on what level."""
        return f"<ComparedDocument {self.a.run!r}, {self.b.run!r}: level {self.level}>"


MOVED = "one key, but two processors or GPUs: the machine moved or was changed, or these are two machines of one image"

CLONES = (
    "virtual machines and containers of one image on one kind of processor can't be distinguished: "
    "A and B are taken as one machine"
)

NO_CONTROL = "no arm is the same in both and known against it"

LEAST_SESSIONS = 5
"""Fewer of them can't show how far sessions differ."""


def compare_folders(a: Path, b: Path, history: Iterable[Path] = ()) -> ComparedDocument:
    """Return what the run in `b` says of that in `a`.

    Args:
        history: earlier runs of the same on the same machine, from which the session floor is learned.

    Raises:
        UsageError: no run is there, both are one race, or they ask different things; names the fields.
    """
    return compare(analyse_cells(a), analyse_cells(b), [analyse_cells(folder) for folder in expand_merged(history)])


def compare(a: Analysed, b: Analysed, history: Sequence[Analysed] = ()) -> ComparedDocument:
    """Return what one run says of another; see `compare_folders`."""
    if is_same(a, b):
        run = a.document.run
        raise UsageError(f"{run} and {b.document.run} are the same run: `shootout show {run}` has its verdicts")
    names = name_places([a, b])
    sites = [find_sites(name, run) for name, run in zip(names, (a, b), strict=True)]
    if empty := [run.document.run for run, mine in zip((a, b), sites, strict=True) if not mine]:
        raise UsageError(f"{empty[0]} has no group whose figures count, so nothing can be compared: name another run")
    pairs = _match_sites(*sites)
    machines = [machine_of(run.document.environment) for run in (a, b)]
    same = is_same_machine(*machines)
    facts: dict[str, Any] = {
        "level": 1 if same else 2,
        "a": place_of(names[0], a),
        "b": place_of(names[1], b),
        "changes": find_changes(a, b),
        "only_a": tuple(one.cell.group for one in sites[0] if one not in [pair[0] for pair in pairs]),
        "only_b": tuple(one.cell.group for one in sites[1] if one not in [pair[1] for pair in pairs]),
    }
    if not same:
        moved = (MOVED,) if machines[0].key == machines[1].key else ()
        return ComparedDocument(**facts, merged=merge_sites(names, (a, b), pairs), warnings=moved)
    earlier = [find_earlier(pair, history) for pair in pairs]
    sessions = tuple(_compare_sessions(*pair, found, len(pairs)) for pair, found in zip(pairs, earlier, strict=True))
    warnings = tuple(warning for pair in pairs for warning in warn_exports(pair))
    least = min(map(len, earlier), default=0)
    if history and least < LEAST_SESSIONS:
        told = f"{least} of --history are other sessions of the same here; a floor is learned from {LEAST_SESSIONS}"
        warnings = (*warnings, told)
    if a.document.environment.get("virtualisation"):
        warnings = (CLONES, *warnings)
    settle = _write_race(pairs, sessions)
    return ComparedDocument(**facts, sessions=sessions, settle=settle, warnings=warnings)


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
    found = list[CellInPlace]()
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
    return SessionComparison(group=a.cell.group, moved=tuple(moved))


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


def _write_race(pairs: Sequence[tuple[CellInPlace, CellInPlace]], sessions: Sequence[SessionComparison]) -> str | None:
    """Return the race that tells what two sessions don't: of the first arm of another version that has no verdict.

    One run races the arm as it is installed, and under an interpreter that has the other version.
    """
    for (site, _), session in zip(pairs, sessions, strict=True):
        group = site.run.groups[site.cell.group].record
        arms = {one.label: one for one in group.arms if not one.control}
        for one in session.moved:
            arm = arms.get(one.arm)
            is_open = any(change.what == "version" for change in one.changes) and not (one.ratio and one.ratio.decided)
            if arm is None or arm.target.folder or arm.file or not is_open:
                continue
            name = "other" if arm.target.python != "other" else "another"
            other = (TARGETS, str(replace(arm.target, python=name)))
            options = add_options(site.cell.again([one.arm]), [other])
            return site.cell.begun.race([*options, ("--python", f"{name}=PATH")])
    return None


NONE = "-"

_APART = frozenset({"date_utc", "machine", "ceilings", "interpreters"})
"""Another at each run, or told elsewhere."""

_MEASURED = frozenset({"artifact_bytes", "kernel_ns"})
"""The parts of a runtime's account that differ between restarts."""

_GREW = 0.01
"""An artifact that is larger or smaller by more than this share was made of another export, or otherwise."""

_COMMIT = 10
"""Letters that tell commits apart."""


def find_changes(one: Analysed, other: Analysed) -> tuple[RunChange, ...]:
    """Return what differs in where and how two runs were made, what matters most first."""
    before, after = map(_list_facts, (one, other))
    found = [
        RunChange(what=name, a=before.get(name, NONE), b=after.get(name, NONE))
        for name in dict.fromkeys([*before, *after])
        if before.get(name, NONE) != after.get(name, NONE)
    ]
    ordered = sorted(found, key=lambda one: (NONE in (one.a, one.b), not one.what.startswith("libraries."), one.what))
    return tuple(one.model_copy(update={"what": one.what.removeprefix("libraries.")}) for one in ordered)


def _list_facts(run: Analysed) -> dict[str, str]:
    """Return the facts of a run's machine and software, flags one by one, and the options that no arm tells."""
    facts = dict(list_facts({key: part for key, part in run.document.environment.items() if key not in _APART}))
    flags = {f"cpu.{flag}": "yes" for flag in facts.pop("cpu.flags", "").split(", ") if flag}
    facts |= {name: facts[name][:_COMMIT] for name in ("shootout.commit",) if name in facts}
    return facts | flags | {f"option {name}": value or "given" for name, value in write_given(run.facts.given)}


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


def _show_value(value: Any) -> str:
    if value in (None, "", [], (), {}):
        return NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
