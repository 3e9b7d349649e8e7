"""Tell which targets have no time and why, and which backends were not tried."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from shootout.core import backends
from shootout.core.contract import Device, NotRunKind, Precision, short
from shootout.core.errors import FAILURES, shorten
from shootout.core.install import install
from shootout.core.scenario import find_scenario
from shootout.core.units import counted
from shootout.tell import registered
from shootout.tell.document import Answer, Document, NotRaced, Row
from shootout.tell.report import Line
from shootout.tell.screen import NAMED, fold, name_targets

SHOWN_REASONS = 4
LONGEST_REASON = 80
"""Letters; `--full` and the page have all of a longer reason."""
_IN_BRACKETS = re.compile(r" \([^()]*\)$")


def tell_missing(answers: Sequence[Answer], documents: Sequence[Document], among: str = "group") -> Iterator[Line]:
    """Name the targets without a time and the backends that were not tried, a line for each.

    Args:
        documents: the whole runs.
        among: what each answer is of: a group, or a run.
    """
    yield Line("Skipped", [*_tell_skipped(answers, documents, among)])
    never, absent = _find_untried(documents)
    names = fold((name for name in never if name not in absent), NAMED)
    yield Line("Untried", [f"{', '.join(names)} (add with --backends)"] if names else ())


def _tell_skipped(answers: Sequence[Answer], documents: Sequence[Document], among: str) -> Iterator[str]:
    """Name the targets without a time, by reason, failures and FP32 first; then what to install, in one command."""
    told = [(group, arm) for answer in answers for group in answer.not_raced for arm in group.arms]
    told.sort(key=lambda one: (one[0].cause not in FAILURES, not one[1].endswith(f":{Precision.FP32}")))
    everywhere = Counter(arm for group, arm in told if group.cause is NotRunKind.NOT_INSTALLED)
    extras = {arm: _find_extra(arm, group) for group, arm in told if everywhere[arm] == len(answers)}
    counts = Counter((_tell_cause(group), arm) for group, arm in told if not extras.get(arm))
    arms: dict[tuple[str, int], list[str]] = {}
    for (why, arm), count in counts.items():
        arms.setdefault((why, count), []).append(arm)
    some = {count: f" (in {count} of {counted(len(answers), among)})" for count in range(1, len(answers))}
    lines = (f"{name_targets(mine)}: {why}{some.get(count, '')}" for (why, count), mine in arms.items())
    yield from fold(lines, SHOWN_REASONS)
    rows = [row for document in documents for row in document.rows]
    timed = {row.backend.partition("+")[0] for row in rows if row.end_to_end}
    names = {arm: arm.partition(":")[0].partition("+")[0] for arm in extras}
    lacking = {short(arm) if names[arm] in timed else names[arm]: extra for arm, extra in extras.items() if extra}
    if wanted := lacking | {name: backends.entry(name).extra for name in _find_untried(documents)[1]}:
        yield f"not installed: {', '.join(wanted)} ({install(','.join(dict.fromkeys(wanted.values())))})"


def _find_extra(arm: str, group: NotRaced) -> str:
    """Return the extra that installs an arm's backend; "" if what would run it is another command."""
    name = arm.partition(":")[0].partition("+")[0]
    extra = backends.shipped()[name].extra if name in backends.shipped() else ""
    return extra if extra and group.fix == install(extra) else ""


def _tell_cause(group: NotRaced) -> str:
    if group.cause is NotRunKind.NOT_INSTALLED and group.fix:
        return f"not installed ({group.fix})"
    failed = "failed: " if group.cause in FAILURES else ""
    return failed + shorten(tell_why(group.reason), LONGEST_REASON)


def tell_why(reason: str) -> str:
    """Return a reason without the brackets at its end; `--full` has all of it."""
    return _IN_BRACKETS.sub("", reason)


def _find_untried(documents: Sequence[Document]) -> tuple[list[str], list[str]]:
    """Return the backends that weren't asked for, first those that could win; and those of these to install for it.

    The packages are those of the machines that measured, not those of the reading machine.
    """
    every = [row for document in documents for row in document.rows]
    packages: set[str] = set().union(*(document.environment.get("libraries") or {} for document in documents))
    asked = {row.backend.partition("+")[0] for row in every}
    never = [name for name in backends.names() if name not in asked and not backends.entry(name).own_files]
    never = [name for name in never if name in backends.shipped() or registered.is_installed(name, packages)]
    converted = {row.model for row in every if registered.reads_own_files(row.backend)}
    if converted and converted >= {row.model for row in every}:  # whose files few runtimes read
        never = [name for name in never if name in backends.shipped() and backends.capabilities(name).classical]
    fit = {name for name in never if _could_win(name, every)}
    absent = [name for name in never if name in fit and not registered.is_installed(name, packages)]
    return sorted(never, key=lambda name: name not in fit), absent


def _could_win(name: str, rows: Sequence[Row]) -> bool:
    """Return whether a shipped backend runs on a device that has a time, or on the CPU, and trains if all rows do."""
    if name not in backends.shipped():
        return False  # only a process of its own could say
    can = backends.capabilities(name)
    devices = {row.device for row in rows if row.device == Device.CPU or row.end_to_end}
    return not devices.isdisjoint(can.devices) and (can.trains or not any(map(_trains, rows)))


def _trains(row: Row) -> bool:
    return find_scenario(row.scenario).trains
