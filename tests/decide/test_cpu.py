"""CPU time as objective and limit: by the restarts that two arms shared, whatever their times say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import made

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import Decision, decide
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import read_question
from shootout.apps.judge.decide.racing import fit_study
from shootout.apps.judge.decide.screen import compare_objective, tell_objective
from shootout.core.contract import Arm, Target
from shootout.core.journal import samples
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.schema import Study
from shootout.tell.limits import Limit, Standing

MS = 1e6
ARMS = {"lean": (2.0, 2.0), "wide": (1.0, 3.9), "near": (2.1, 1.97)}
"""Milliseconds of a call and of its CPU time."""


@pytest.fixture(autouse=True)
def _without_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))


def run(folder: Path, restarts: int = 6, **untold: bool) -> Path:
    arms = {name: Arm(target=Target(backend=name), model="identity") for name in ARMS}
    copy = replace(arms["lean"], control=True)
    lines: list[Any] = []
    for restart in range(restarts):
        drift = 1 + 0.2 * (restart % 2)  # which all arms share
        for name, arm in (*arms.items(), ("lean", copy)):
            times = {"end_to_end": ARMS[name][0], "cpu": ARMS[name][1]}
            blocks = {scope: (ms * MS * drift,) * 3 for scope, ms in times.items() if scope != "cpu" or not untold}
            lines.append(made.played(arm, restart, 1.0, block_median_ns=blocks))
        lines.append(made.rounds(restart))
    return made.write(folder, made.header((*arms.values(), copy)), *lines, made.ended())


def asked(folder: Path, **how: Any) -> Question:
    return read_question([run(folder, **how)])


def made_of(question: Question, **keys: str) -> Decision:
    return decide(read_policy(None, keys), question)


def test_the_row_has_the_median_over_restarts(tmp_path: Path):
    found = {row.arm: row.cpu for row in analyse(run(tmp_path / "run")).rows}
    wide = found["wide:cpu:fp32"]
    assert wide is not None
    assert (wide.median_ns, wide.low_ns, wide.high_ns) == pytest.approx((4.29 * MS, 3.9 * MS, 4.68 * MS))
    assert wide.restarts == 6


def test_the_objective_goes_by_cpu_time_and_not_by_time(tmp_path: Path):
    question = asked(tmp_path / "run")
    assert made_of(question).chosen == "wide:cpu:fp32"
    found = made_of(question, objective="cpu")
    assert found.chosen in {"lean:cpu:fp32", "near:cpu:fp32"}
    assert [one.arm for one in found.tied] == [({"lean:cpu:fp32", "near:cpu:fp32"} - {found.chosen}).pop()]
    wide = found.of("wide:cpu:fp32")
    assert wide.ratio is not None
    assert wide.ratio.value == pytest.approx(3.9 / (ARMS[(found.chosen or "").partition(":")[0]][1]))
    assert wide.ratio.verdict == "slower", "the restarts' drift cancels in the ratio"
    assert tell_objective(found, wide) == "4.29 ms"
    assert compare_objective(found, wide.ratio).endswith(")")
    apart = replace(wide.ratio, restarts=0)
    assert compare_objective(found, apart).endswith(" *"), "which is told below the table"


def test_a_limit_is_met_or_broken_by_the_interval(tmp_path: Path):
    findings = made_of(asked(tmp_path / "run"), cpu="3ms")
    standings = {
        one.arm: next(of for of in one.limits if of.limit is Limit.CPU).standing for one in findings.candidates
    }
    assert standings["wide:cpu:fp32"] is Standing.BROKEN
    assert standings["lean:cpu:fp32"] is Standing.MET
    assert findings.chosen == "lean:cpu:fp32"


def test_what_is_not_told_is_unknown_with_its_reason(tmp_path: Path):
    old = made_of(asked(tmp_path / "old", untold=True), objective="cpu")
    assert old.outcome == "undecided"
    assert "CPU time isn't known" in (old.reason or "")
    few = made_of(asked(tmp_path / "few", restarts=LEAST_TAILS - 1), cpu="3ms")
    finding = next(of for of in few.of("lean:cpu:fp32").limits if of.limit is Limit.CPU)
    assert (finding.standing, finding.reason) == (Standing.UNKNOWN, "3 of 4 restarts")


@pytest.mark.parametrize("keys", [{"objective": "cpu"}, {"cpu": "2ms", "p99": "5ms", "load": "10/s"}])
def test_a_run_for_it_measures_single_calls_in_enough_restarts(keys: dict[str, str]):
    study = fit_study(read_policy(None, keys), Study(name="made", model=("identity",), targets=("numpy",)), ())
    assert "latency" in study.scenario
    assert study.least_restarts >= LEAST_TAILS
