"""Two runs → what may be said of them: by ratios of ratios on one machine, by what holds and flips on two. Pure.

Of one race the run itself has the verdicts; runs that ask different things are refused.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from shootout.compare.asked import EXPORT, find_differing, is_same, tell_strange
from shootout.compare.changes import find_arm_changes, find_changes
from shootout.compare.document import Change, ComparedDocument, Moved, Session
from shootout.compare.machines import is_same_machine, machine_of
from shootout.compare.merge import (
    Site,
    find_sites,
    match_sites,
    merge_cell,
    name_places,
    place_of,
    shipped_of,
    tell_apart,
    tell_threads,
    warn_exports,
)
from shootout.compare.sessions import LEAST_SESSIONS, choose_control, decided, find_change
from shootout.contract import Scenario
from shootout.errors import UsageError
from shootout.journal.merged import expand_merged
from shootout.results.analysis import Analysed, analyse_cells
from shootout.results.choice import find_fault
from shootout.results.comparisons import Ratio, ratio_of
from shootout.results.document import Row
from shootout.study.group import short

MOVED = "one key, but two processors or GPUs: the machine moved or was changed, or these are two machines of one image"
CLONES = (
    "virtual machines and containers of one image on one kind of processor can't be distinguished: "
    "A and B are taken as one machine"
)
NO_CONTROL = "no arm is the same in both and known against it"


def compare_folders(a: Path, b: Path, history: Iterable[Path] = ()) -> ComparedDocument:
    """What the run in `b` says of that in `a`.

    Args:
        history: earlier runs of the same on the same machine, from which the session floor is learnt.

    Raises:
        UsageError: no run is there, both are one race, or they ask different things; names the fields.
    """
    one, other = (analyse_cells(folder) for folder in (a, b))
    earlier = [analyse_cells(folder) for folder in expand_merged(history)]
    return compare(one, other, earlier)


def compare(a: Analysed, b: Analysed, history: Sequence[Analysed] = ()) -> ComparedDocument:
    """What one run says of another; see `compare_folders`."""
    if is_same(a, b):
        run = a.document.run
        raise UsageError(f"{run} and {b.document.run} are one race, which has its verdicts: shootout show {run}")
    names = name_places([a, b])
    sites = [find_sites(name, run) for name, run in zip(names, (a, b), strict=True)]
    pairs = _match(sites[0], sites[1])
    machines = [machine_of(run.document.environment) for run in (a, b)]
    same = is_same_machine(*machines)
    facts: dict[str, Any] = {
        "level": 1 if same else 2,
        "a": place_of(names[0], a),
        "b": place_of(names[1], b),
        "changes": (*find_changes(a, b), *_exports(pairs)),
        "only_a": _only(sites[0], [one for one, _ in pairs]),
        "only_b": _only(sites[1], [other for _, other in pairs]),
    }
    if not same:
        warnings = ("--history is of one machine, and these are two",) if history else ()
        if machines[0].key == machines[1].key:
            warnings = (*warnings, MOVED)
        return ComparedDocument(**facts, cells=tuple(merge_cell(pair) for pair in pairs), warnings=warnings)
    found = [(pair, find_earlier(pair, history)) for pair in pairs]
    sessions = tuple(_session(*pair, earlier, len(pairs)) for pair, earlier in found)
    return ComparedDocument(
        **facts,
        sessions=sessions,
        settle=_settle([one for one, _ in pairs], sessions),
        warnings=(
            *([CLONES] if a.document.environment.get("virtualisation") else ()),
            *(warning for pair in pairs for warning in warn_exports(pair)),
            *_warn(history, [earlier for _, earlier in found]),
        ),
    )


def _match(mine: Sequence[Site], others: Sequence[Site]) -> list[tuple[Site, Site]]:
    """The sites of both that ask the same.

    Raises:
        UsageError: none do; names the fields in which the nearest two differ.
    """
    if not mine or not others:
        raise UsageError("one of the two runs has no cell whose figures count: nothing to compare")
    pairs = [(sites[0], sites[1]) for sites in match_sites([*mine, *others]) if len({one.place for one in sites}) == 2]
    alike = [pair for pair in pairs if not _strange(*pair)]
    if alike:
        return alike
    nearest = min(pairs or product(mine, others), key=lambda pair: len(_strange(*pair)))
    told = "; ".join(_strange(*nearest)) or tell_apart(*nearest)
    raise UsageError(f"{nearest[0].run.document.run} and {nearest[1].run.document.run} can't be compared: {told}")


def _strange(one: Site, other: Site) -> list[str]:
    """The fields that forbid to compare two, with their values."""
    told = tell_strange(one.asked, other.asked)
    return told if {*one.threads} & {*other.threads} else [*told, tell_threads(one, other)]


def _exports(pairs: Iterable[tuple[Site, Site]]) -> list[Change]:
    """A line where the exports differ: the weights, the data or the exporter are others."""
    for one, other in pairs:
        if EXPORT in find_differing(one.asked, other.asked):
            keys = (", ".join(sorted(key[:8] for key in site.asked[EXPORT])) for site in (one, other))
            return [Change(what="export (weights, data or exporter)", a=next(keys), b=next(keys))]
    return []


def _only(sites: Sequence[Site], paired: Sequence[Site]) -> tuple[str, ...]:
    return tuple(one.cell.group for one in sites if one not in paired)


def find_earlier(pair: tuple[Site, Site], history: Sequence[Analysed]) -> list[Site]:
    """The earlier sessions of a question on its machine: of other machines, and the two themselves, none counts."""
    mine = pair[0]
    machine = machine_of(mine.run.document.environment)
    found: list[Site] = []
    for run in history:
        known = any(is_same(run, one.run) for one in (*pair, *found))
        if known or not is_same_machine(machine_of(run.document.environment), machine):
            continue
        alike = [one for one in find_sites(run.document.run, run) if one.key == mine.key and not _strange(one, mine)]
        found += sorted(alike, key=lambda one: one.threads != mine.threads)[:1]
    return found


def _warn(history: Sequence[Analysed], found: Sequence[Sequence[Site]]) -> Iterable[str]:
    least = min(map(len, found), default=0)
    if history and least < LEAST_SESSIONS:
        yield f"{least} of --history are other sessions of the same here; a floor is learnt from {LEAST_SESSIONS}"


def _session(a: Site, b: Site, earlier: Sequence[Site], questions: int) -> Session:
    """One of so many questions, which share α."""
    rows = [{arm: row for arm, row in site.rows.items() if row.end_to_end} for site in (a, b)]
    both = [arm for arm in rows[0] if arm in rows[1]]
    changes = {arm: find_arm_changes(rows[0][arm], rows[1][arm]) for arm in both}
    faults = {arm: find_fault(a.cell, rows[0][arm]) or find_fault(b.cell, rows[1][arm]) for arm in both}
    steady = [arm for arm in both if not changes[arm] and not faults[arm]]
    tests = len(both) * questions
    moved = [
        _moved((a, b), arm, [one for one in steady if one != arm], changes[arm], faults[arm], earlier, tests)
        for arm in sorted(both, key=lambda one: _median_ns(rows[1][one]))
    ]
    return Session(
        group=a.cell.group,
        ships=(shipped_of(a), shipped_of(b)),
        moved=tuple(moved),
        only_a=tuple(arm for arm in rows[0] if arm not in rows[1]),
        only_b=tuple(arm for arm in rows[1] if arm not in rows[0]),
    )


def _moved(
    pair: tuple[Site, Site],
    arm: str,
    steady: Sequence[str],
    changes: tuple[Change, ...],
    fault: str | None,
    earlier: Sequence[Site],
    tests: int,
) -> Moved:
    a, b = pair
    facts: dict[str, Any] = {
        "arm": arm,
        "a_ns": _median_ns(a.rows[arm]),
        "b_ns": _median_ns(b.rows[arm]),
        "changes": changes,
    }
    unvouched = a.cell.unvouched or b.cell.unvouched or fault
    before, after = _against(a, arm, steady), _against(b, arm, steady)
    control = choose_control(before, after, _log_ratios(earlier, arm, steady), tests)
    if control is None or unvouched:
        return Moved(**facts, reason=unvouched or NO_CONTROL)
    ratio = find_change(before[control.arm], after[control.arm], control.floor)
    return Moved(**facts, control=control.arm, floor=control.floor, sessions=control.sessions, ratio=ratio)


def _against(site: Site, arm: str, others: Sequence[str]) -> dict[str, Ratio]:
    """Its time ÷ that of each other in one run, from the restarts that both played."""
    return {one: ratio_of(found) for one in others if (found := site.cell.compare(arm, one))}


def _log_ratios(earlier: Sequence[Site], arm: str, others: Sequence[str]) -> Mapping[str, list[float]]:
    """By other arm, the log ratio in each earlier session that timed both."""
    timed = [(site, {one for one, row in site.rows.items() if row.end_to_end}) for site in earlier]
    return {
        one: [
            math.log(found.value)
            for site, labels in timed
            if {arm, one} <= labels and not site.cell.unvouched and (found := site.cell.compare(arm, one))
        ]
        for one in others
    }


def _settle(sites: Sequence[Site], sessions: Sequence[Session]) -> str | None:
    """The race that tells what two sessions don't: of the first arm of another version that has no verdict."""
    told = [
        _race(site, one.arm)
        for site, session in zip(sites, sessions, strict=True)
        for one in session.moved
        if any(change.what == "version" for change in one.changes) and not (one.ratio and decided(one.ratio))
    ]
    return next((command for command in told if command), None)


def _race(site: Site, label: str) -> str | None:
    """The command that races an arm against itself under another interpreter; None where no gate can."""
    group = site.run.groups[site.cell.group].record
    arm = next((one for one in group.arms if one.label == label and not one.control), None)
    if arm is None or arm.scenario is not Scenario.LATENCY or arm.target.folder or arm.file:
        return None
    name = "other" if arm.target.python != "other" else "another"
    words = ["shootout", "gate", site.run.document.run, "--arm", short(label)]
    words += ["--group", group.name] if len(site.run.document.groups) > 1 else []
    return shlex.join([*words, "--candidate", short(str(replace(arm.target, python=name))), "--python", f"{name}=PATH"])


def _median_ns(row: Row) -> float:
    assert row.end_to_end is not None, "only rows with a time are compared"
    return row.end_to_end.median_ns
