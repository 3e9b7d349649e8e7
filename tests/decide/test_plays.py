"""Whose figures are one candidate's, across the cells of a run; journals made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.races import made

from shootout.apps.judge.cell import Candidate
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import read_question
from shootout.core.contract import Arm
from shootout.core.journal import samples
from shootout.core.journal.records import Line
from shootout.core.study.group import GroupRecord, with_control

THROUGHPUT = "identity, batch 1, throughput"
ONE, TWO = (
    replace(made.A, scenario="throughput", instances=count, setting=f"batch=1, instances={count}") for count in (1, 2)
)


@pytest.fixture(autouse=True)
def _without_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))


def group(name: str, *arms: Arm, selects_for: str | None = None) -> GroupRecord:
    return GroupRecord(
        name=name,
        baseline=arms[0].label if selects_for is None else None,
        comparisons=1,
        arms=with_control(arms[0], arms) if selects_for is None else arms,
        selects_for=selects_for,
    )


def folder(path: Path, *groups: GroupRecord) -> Path:
    """A run of five restarts of these groups; each arm takes 1 us."""
    lines: list[Line] = []
    for one in groups:
        for restart in range(5):
            lines += [made.played(arm, restart, 1_000.0, group=one.name) for arm in one.arms]
            lines.append(made.rounds(restart).model_copy(update={"group": one.name}))
    return made.write(path, made.header(groups=groups), *lines, made.ended())


def test_what_latency_and_throughput_say_of_an_arm_is_one_candidate(tmp_path: Path):
    """A throughput run tells settings apart; the plain one is the arm of a latency run."""
    run = folder(tmp_path / "run", group(made.GROUP, made.A, made.B), group(THROUGHPUT, ONE, TWO))
    question = read_question([run])
    assert {one.label: _scenarios(one) for one in question.candidates} == {
        "a:cpu:fp32": ["latency", "throughput"],
        "b:cpu:fp32": ["latency"],
        "a:cpu:fp32{batch=1, instances=2}": ["throughput"],
    }
    found = decide(read_policy(None, {"rate": "500000/s"}), question)
    assert (found.outcome, found.chosen) == ("chosen", "a:cpu:fp32"), "it has both, the latency and the rate"


def _scenarios(one: Candidate) -> list[str]:
    return [str(play.row.scenario) for play in one.plays]


def test_a_run_cut_short_in_its_choice_of_settings_has_no_candidate_yet(tmp_path: Path):
    question = read_question([folder(tmp_path / "run", group(THROUGHPUT, ONE, TWO, selects_for=ONE.label))])
    assert (question.title, question.candidates) == (("identity", "batch 1"), ())
