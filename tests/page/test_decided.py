"""A policy on the page: its answer first, each limit as a line, and which candidates meet it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from support.races.cells import comparison

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.decide import figure
from shootout.apps.judge.decide.candidates import read_question
from shootout.apps.judge.decide.decision import Decision, Judged, decide
from shootout.apps.judge.decide.page import PolicyAnswer
from shootout.apps.judge.decide.policy import read_policy
from shootout.commands.report import render, report
from shootout.tell.document import Finding, ratio_of
from shootout.tell.limits import Limit, Standing
from shootout.tell.page.contents import read
from shootout.tell.page.markdown import escape_text

RUN = Path(__file__).resolve().parents[2] / "results" / "reference" / "decide-digits"


def judged(arm: str, ns: float, size: Finding, ready: Finding) -> Judged:
    standing = max((size.standing, ready.standing), key=[Standing.MET, Standing.UNKNOWN, Standing.BROKEN].index)
    facts: dict[str, Any] = {"candidate": arm, "arm": arm, "machine": "m", "standing": standing, "objective": ns}
    ratio = None if arm == "best:cpu:fp32" else ratio_of(comparison(ns / 1e6, 0.02))
    return Judged(**facts, limits=(size, ready), ratio=ratio)


def of_size(value: float) -> Finding:
    standing = Standing.MET if value <= 9e6 else Standing.BROKEN
    return Finding(limit=Limit.SIZE, wanted=9e6, value=value, low=value, high=value, standing=standing)


READY = Finding(limit=Limit.READY, wanted=1e9, value=5e8, low=4e8, high=6e8, standing=Standing.MET)
UNKNOWN = Finding(limit=Limit.READY, wanted=1e9, value=5e8, standing=Standing.UNKNOWN, reason="2 of 4 starts")
DECISION = Decision(
    outcome="chosen",
    title=("toy",),
    runs=("run",),
    policy=read_policy(None, {"size": "9MB", "ready": "1s"}),
    chosen="best:cpu:fp32",
    candidates=(
        judged("best:cpu:fp32", 1e6, of_size(8e6), READY),
        judged("slow:cpu:fp32", 2e6, of_size(4e6), READY),
        judged("wide:cpu:fp32", 5e5, of_size(12e6), READY),
        judged("new:cpu:fp32", 7e5, of_size(8e6), UNKNOWN),
    ),
)


def test_without_a_chosen_one_all_stand_against_the_least():
    found = DECISION.model_copy(update={"chosen": None, "outcome": "undecided"})
    found = found.model_copy(
        update={"candidates": tuple(one.model_copy(update={"ratio": None}) for one in found.candidates)}
    )
    panel = next(figure.find_panels(found))
    assert (panel.title, panel.axis) == ("Objective: latency", "time relative to the least")
    places = {line.name.partition(":")[0]: line.value for line in panel.lines}
    assert places == {"wide": 1.0, "new": 1.4, "best": 2.0, "slow": 4.0}


def test_the_policys_answer_comes_first_and_is_the_only_one(tmp_path: Path):
    policy = tmp_path / "deploy.toml"
    policy.write_text('[limits]\nsize = "1GB"\nready = "3s"\n')
    question = read_question([RUN])
    found = PolicyAnswer(decide(read_policy(policy, {}), question), question)
    page = render([read(RUN, analyse(RUN))], ".html", found).decode()
    ship = f"Ship {found.decision.chosen}"
    assert [mark.replace("<wbr>", "") for mark in re.findall("<h1>(.*)</h1>", page)] == [
        ship,
        "The run digits (decide-digits)",
    ]
    assert page.count("<b>Next</b>") == 1, "not that of the run"
    assert report([RUN], tmp_path / "page.md", policy) == 0
    told = (tmp_path / "page.md").read_text()
    assert told.startswith(f"## {escape_text(ship)}\n")
    assert told.count("\nMet     ") == 1
