"""A policy on the page: its screen first, each limit as a line, and who meets it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from support.races.cells import comparison

from shootout.commands.report import render, report
from shootout.decide.candidates import read_question
from shootout.decide.decision import Decision, Judged, decide
from shootout.decide.limits import Finding
from shootout.decide.options import Limit
from shootout.decide.policy import read_policy
from shootout.page import intervals
from shootout.page.charts import BEHIND, CHOSEN, EVEN, SOFT
from shootout.page.intervals import Axis, DotLine
from shootout.page.sources import PolicyAnswer
from shootout.report import decision
from shootout.report.answer import WIDEST
from shootout.report.screen import as_plain
from shootout.results.document import ratio_of
from shootout.stats.verdicts import Standing

RUN = Path(__file__).resolve().parents[2] / "results" / "reference" / "gap-after"


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


def panels(found: Decision) -> dict[str, tuple[dict[str, DotLine], Axis]]:
    return {title: ({line.name: line for line in lines}, axis) for title, lines, axis in intervals.find_panels(found)}


def test_a_limit_is_a_line_with_who_meets_and_who_breaks_it():
    lines, axis = panels(DECISION)["Limit: size at most 9 MB"]
    assert (axis.at, axis.title, axis.is_limit) == (9.0, "MB", True)
    told = {name: (line.colour, line.value, line.told) for name, line in lines.items()}
    assert told == {
        "best": (CHOSEN, 8.0, "met: 8 MB ≤ 9 MB"),
        "slow": (EVEN, 4.0, "met: 4 MB ≤ 9 MB"),
        "wide": (BEHIND, 12.0, "broken: 12 MB > 9 MB"),
        "new": (EVEN, 8.0, "met: 8 MB ≤ 9 MB"),
    }


def test_the_objective_is_against_the_chosen_one_and_refused_arms_say_why():
    lines, axis = panels(DECISION)["Objective: latency"]
    assert axis.title == "time ÷ best's"
    assert {name: (line.colour, line.value, line.told) for name, line in lines.items()} == {
        "best": (CHOSEN, 1.0, "1 ms, to ship"),
        "slow": (BEHIND, 2.0, "2 [1.96, 2.04]"),
        "wide": (SOFT, 0.5, "500 us; size 12 MB > 9 MB"),
        "new": (SOFT, 0.7, "700 us; ready 500 ms: 2 of 4 starts"),
    }


def test_what_is_unknown_is_grey_and_goes_on_to_both_ends():
    lines, _ = panels(DECISION)["Limit: ready at most 1 s"]
    assert (lines["best"].low, lines["best"].high) == (400.0, 600.0)
    assert (lines["new"].colour, lines["new"].low, lines["new"].high) == (SOFT, None, None)
    assert lines["new"].told == "unknown: 500 ms: 2 of 4 starts"


def test_without_a_chosen_one_all_stand_against_the_least():
    found = DECISION.model_copy(update={"chosen": None, "outcome": "undecided"})
    found = found.model_copy(
        update={"candidates": tuple(one.model_copy(update={"ratio": None}) for one in found.candidates)}
    )
    lines, axis = panels(found)["Objective: latency"]
    assert axis.title == "time ÷ the least"
    assert {name: line.value for name, line in lines.items()} == {"wide": 1.0, "new": 1.4, "best": 2.0, "slow": 4.0}


def test_the_policys_screen_comes_first_in_every_form(tmp_path: Path):
    policy = tmp_path / "deploy.toml"
    policy.write_text('[limits]\nsize = "1GB"\n')
    question = read_question([RUN])
    found = PolicyAnswer(decide(read_policy(policy, {}), question, today=date(2026, 11, 22)), question)
    screen = as_plain(decision.render(found.decision, question, WIDEST), WIDEST)
    assert report([RUN], tmp_path / "page.md", policy) == 0
    told = (tmp_path / "page.md").read_text()
    assert screen in told
    assert told.index("What to ship, by the policy") < told.index(screen) < told.rindex("\n## ")
    page = render([], ".html", found).decode()
    assert page.index("What to ship, by the policy") < page.index("<pre>") < page.index("Objective and limits")
