"""What runs are put together: which label stands for which arm, which machine is whole, and what may not differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.races import candidates as fakes
from support.races import made
from support.races.candidates import analysed
from support.races.cells import GROUP, row

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.cell import Question
from shootout.apps.judge.decide import question as reading
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import read_question
from shootout.core.errors import UsageError
from shootout.tell.limits import Standing

EIGHT = "batch 8"


def ask(patch: pytest.MonkeyPatch, *runs: Analysed) -> Question:
    by_name = {Path(one.document.run): one for one in runs}
    patch.setattr(reading, "analyse_cells", lambda folder: by_name[folder])
    return read_question([*by_name])


def test_machines_of_one_name_are_told_apart_by_their_keys(monkeypatch: pytest.MonkeyPatch):
    """Else what is found of the one would be the other's too, and a broken limit be lost."""
    heavy, light = (row("a", 500, memory_bytes=count) for count in (300_000_000, 100_000_000))
    asked = ask(
        monkeypatch,
        analysed("one", light, machine="1111aaaa2222"),
        analysed("two", heavy, machine="3333bbbb4444"),
    )
    labels = [one.label for one in asked.candidates]
    assert labels == [f"a:cpu:fp32 on AMD EPYC, 2 CPUs ({key})" for key in ("1111aaaa", "3333bbbb")]
    found = decide(read_policy(None, {"memory": "200MB"}), asked)
    assert found.chosen == labels[0]
    assert [one.standing for one in found.candidates] == [Standing.MET, Standing.BROKEN]


def test_a_run_on_some_of_a_machines_cpus_is_of_a_part_of_it(monkeypatch: pytest.MonkeyPatch):
    """Whatever comes last, the run on all of them or that on a few."""
    whole, part = (fakes.throughput("a", 100, threads=threads) for threads in (8, 2))
    runs = analysed("whole", whole, cpus=8), analysed("part", part, cpus=2)
    for given in (runs, runs[::-1]):
        taken = {one.machine.name: one.takes_the_machine for one in ask(monkeypatch, *given).candidates}
        assert taken == {"AMD EPYC, 8 CPUs": True, "AMD EPYC, 2 CPUs": False}


def test_scores_by_two_metrics_are_not_held_against_one_limit(monkeypatch: pytest.MonkeyPatch):
    mine, none, another = (
        analysed(str(index), row("a", 500), given=given)
        for index, given in enumerate(({"metric": "m.py:f"}, {}, {"metric": "other.py:f"}))
    )
    assert len(ask(monkeypatch, mine, none).candidates) == 1
    with pytest.raises(UsageError, match=r"metric differs: m\.py:f and other\.py:f"):
        ask(monkeypatch, none, mine, another)


def test_a_run_that_asks_several_questions_is_told_the_command_that_takes_one(monkeypatch: pytest.MonkeyPatch):
    run = analysed("sweep", row("a", 500))
    group, larger = run.groups[GROUP], replace(made.A, batch=8)
    more = SimpleNamespace(**{**vars(group), "record": SimpleNamespace(name=EIGHT, arms=[larger])})
    cells = {**run.cells, EIGHT: replace(run.cells[GROUP], group=EIGHT)}
    several = replace(run, cells=cells, groups={**run.groups, EIGHT: cast(Any, more)})
    with pytest.raises(UsageError, match="sweep has several groups; name one with --group: '"):
        ask(monkeypatch, several)
