"""What a group's part of the journal says of it: which rounds count, and why no verdict is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.races.made import COPY, GROUP, A, B, header, played, rounds, write

from shootout.core.contract import Arm, NotRun, NotRunKind, Target
from shootout.core.journal import journal
from shootout.core.journal.records import Line, not_run
from shootout.core.race.race import Race
from shootout.core.results.group import Group, group_of, withheld
from shootout.core.stats.goals import Goal
from shootout.core.study.group import GroupRecord

WHY = ("killed", "failed")


def group(folder: Path, *lines: Line) -> Group:
    history = journal.read(write(folder / "run", header(), *lines))
    return group_of(history, history.groups[0])


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        (COPY, "the control (a hidden copy of the baseline) had no time yet: too long"),
        (A, "the baseline had no time yet, so no control checks this group"),
        (B, f"{B.label} had no time yet: too long"),
    ],
)
def test_who_had_no_time_yet_is_not_said_to_have_failed(tmp_path: Path, arm: Arm, told: str) -> None:
    late = NotRun(NotRunKind.NOT_REACHED, "too long", "more time")
    found = group(tmp_path, *(played(one, 0, 1_000.0) for one in (A, COPY, B) if one != arm), rounds(0))
    found.setbacks[arm.label] = late
    assert withheld(found, B.label, A.label) == told
    found = group(tmp_path, *(played(one, 0, 1_000.0) for one in (A, COPY, B)), rounds(0))
    found.setbacks[arm.label] = late
    assert withheld(found, B.label, A.label) is None, "what it measured before counts"


def test_who_is_never_timed_is_not_said_to_have_failed(tmp_path: Path) -> None:
    found = group(tmp_path, *(played(one, 0, 1_000.0) for one in (COPY, B)), rounds(0))
    found.setbacks[A.label] = NotRun(NotRunKind.SOFTWARE, "software device: not timed")
    assert withheld(found, B.label, A.label) == "the baseline is never timed, so no control checks this group"


def test_who_was_killed_is_out_until_it_has_played_again(tmp_path: Path) -> None:
    lost, broke = (not_run(GROUP, B, NotRun(NotRunKind(one), "r", during="a round")) for one in WHY)
    first, second = (played(B, 0, 1.0), rounds(0)), (played(B, 1, 1.0), rounds(1))
    assert group(tmp_path, *first, lost).setbacks[B.label].kind is NotRunKind.KILLED
    assert group(tmp_path, *first, lost, *second).setbacks == {}
    assert group(tmp_path, *first, lost, broke, *second).setbacks[B.label].kind is NotRunKind.FAILED


def test_who_left_by_a_limit_that_was_loosened_since_is_in_again(tmp_path: Path) -> None:
    left = not_run(GROUP, B, NotRun(NotRunKind.OFF_LIMITS, "memory"))
    first, second = (played(B, 0, 1.0), rounds(0)), (played(B, 1, 1.0), rounds(1))
    assert group(tmp_path, *first, left).setbacks[B.label].kind is NotRunKind.OFF_LIMITS
    assert group(tmp_path, *first, left, *second).setbacks == {}


@pytest.mark.parametrize(
    ("kind", "during", "open_questions"),
    [
        (NotRunKind.NOT_REACHED, "a round", 7),  # it hung within its part of the time
        (NotRunKind.KILLED, "a round", 7),
        (NotRunKind.OFF_LIMITS, "", 7),
        (NotRunKind.FAILED, "a round", 8),
    ],
)
def test_a_race_and_its_journal_share_alpha_among_the_same_arms(
    tmp_path: Path, kind: NotRunKind, during: str, open_questions: int
) -> None:
    """Else a race ends with verdicts that the screen then doesn't give."""
    left = Arm(target=Target(backend="c"), model="identity")
    arms = [A, B, left, COPY]
    record = GroupRecord(name=GROUP, baseline=A.label, comparisons=9, arms=tuple(arms), goal=Goal(aim="best"))
    lines: list[Line] = []
    for g in range(8):  # `b` beats `c`, which has no verdict against the baseline
        times = (1_000.0, 100.0, (900.0, 1_100.0)[g % 2], 1_000.0)
        lines += [*(played(arm, g, ns) for arm, ns in zip(arms, times, strict=True)), rounds(g)]
    setback = not_run(GROUP, left, NotRun(kind, "r", during=during))
    history = journal.read(write(tmp_path / "run", header(arms, groups=(record,)), *lines, setback))
    read = group_of(history, record)
    alone = group_of(journal.read(write(tmp_path / "before", header(arms, groups=(record,)), *lines)), record)
    race = Race(arms={arm.label: arm for arm in arms}, group=alone, seed="0")
    if kind is NotRunKind.KILLED:
        race.killed.add(left.label)  # once: it plays the next restart again
    else:
        alone.setbacks[left.label] = NotRun(kind, "r", during=during)
    assert race.evidence.open_questions == read.evidence("end_to_end").open_questions == open_questions
