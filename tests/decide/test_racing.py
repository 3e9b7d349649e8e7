"""A race toward a decision: what a policy has measured, and which targets leave since no limit can save them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import made, planted

from shootout.apps.judge.analysis import analyse, list_open
from shootout.apps.judge.decide.limits import judge_limits
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.decide.question import read_question
from shootout.apps.judge.racing import AnswerPurpose, PolicyPurpose, fit_study, refuse_several
from shootout.commands import selection
from shootout.commands.run import choose_study_for
from shootout.core.contract import Fidelity, NotRun, NotRunKind, Precision
from shootout.core.errors import UsageError
from shootout.core.journal import journal, samples
from shootout.core.journal.records import Line, Played, not_run
from shootout.core.messages import LoadTestResult, Scores, TriedRate
from shootout.core.race.race import Purpose
from shootout.core.race.recording import Recorder
from shootout.core.results.group import group_of
from shootout.core.study.schema import Study, checked, study_options
from shootout.tell.limits import Standing
from shootout.tell.wording import tell_rows_needed

ARM = made.ARMS[0]


def policy(**keys: Any) -> Policy:
    return read_policy(None, {key.replace("_", "-"): value for key, value in keys.items()})


def study(**fields: Any) -> Study:
    return checked({"name": "s", "model": "digits", "targets": ["numpy"], **fields}, "a test")


@pytest.mark.parametrize(
    ("keys", "fitted"),
    [
        ({}, {"scenario": ("latency",), "least_restarts": 0, "goal": "best"}),
        ({"max_error": "1e-3"}, {"scenario": ("latency",), "least_restarts": 0}),
        ({"p99": "5ms"}, {"scenario": ("latency",), "least_restarts": 4}),
        ({"objective": "size"}, {"scenario": ("latency",), "least_restarts": 0, "max_restarts": 4}),
        ({"objective": "size", "rate": "50/s"}, {"scenario": ("throughput",), "max_restarts": 20}),
        ({"load": "200/s", "rate": "50/s"}, {"scenario": ("throughput", "serve"), "rate": 200.0}),
        ({"load": "200/s", "rate": "50/s", "p99": "5ms"}, {"scenario": ("serve",), "rate": 200.0}),
        ({"load": "200/s", "rate": "300/s", "p99": "5ms"}, {"scenario": ("serve",), "rate": 300.0}),
        ({"p99": "5ms", "load": "200/s"}, {"scenario": ("serve",), "rate": 200.0, "p99_limit_ms": 5.0}),
        ({"objective": "rate"}, {"scenario": ("throughput",), "least_restarts": 4}),
        ({"rate": "50/s"}, {"scenario": ("latency", "throughput"), "threads": (None,)}),
        (
            {"objective": "cost", "price": "1"},
            {"scenario": ("throughput",), "threads": ("all",), "rate": None},
        ),
        (
            {"objective": "cost", "p99": "5ms", "price": "1"},
            {"scenario": ("latency", "serve"), "rate": None, "p99_limit_ms": 5.0},
        ),
        (
            {"objective": "size", "cost": "0.5/million", "price": "0.36", "p99": "5ms"},
            {"threads": ("all",), "rate": None},
        ),
        (
            {"load": "20/s", "cost": "0.5/million", "price": "0.36", "p99": "5ms"},
            {"threads": ("all",), "rate": 200.0},
        ),
        ({"objective": "size", "load": "200/s", "p99": "5ms"}, {"rate": 200.0}),
        ({"objective": "size", "rate": "70/s", "p99": "5ms"}, {"rate": None}),
        ({"objective": "size", "load": "80/s", "rate": "70/s", "p99": "5ms"}, {"rate": 80.0}),
        ({"objective": "rate", "load": "200/s", "p99": "5ms"}, {"rate": None}),
    ],
)
def test_what_a_policy_needs_is_measured(keys: dict[str, Any], fitted: dict[str, Any]):
    found = fit_study(policy(**keys), study(), ())
    read = {name: found.value_of if name in study_options() else partial(getattr, found) for name in fitted}
    assert {name: read[name](name) for name in fitted} == fitted


def test_a_rate_that_is_asked_for_belongs_to_the_scenario_that_the_policy_brings(tmp_path: Path):
    """The policy stands above the study file, the option above both."""
    path = tmp_path / "mine.toml"
    path.write_text('model = "digits"\ntargets = ["numpy"]\nscenario = "throughput"\ngoal = "baseline"\n')
    wanted = policy(load="200/s")
    found = choose_study_for(wanted, str(path), {"rate": 300.0})
    assert (found.scenario, found.value_of("rate"), found.goal) == (("serve",), 300.0, "best")
    with pytest.raises(UsageError, match=r"rate .* is for requests that arrive by themselves"):
        choose_study_for(wanted, str(path), {"rate": 300.0, "scenario": ("latency",)})
    assert selection.choose(str(path), {}).scenario == ("throughput",)


def test_a_mix_has_times_of_calls_for_a_policy_and_no_load(tmp_path: Path):
    path = tmp_path / "own.toml"
    path.write_text('model = "residual_mlp"\ntargets = ["numpy"]\nmix = "batch=1:3,8:1"\n')
    for name, options in (str(path), {}), ("residual_mlp", {"mix": "batch=1:3,8:1"}):
        assert choose_study_for(policy(p99="5ms"), name, options).scenario == ("varying",)
    with pytest.raises(UsageError, match="is for scenario varying, got serve"):
        choose_study_for(policy(p99="5ms", load="200/s"), str(path), {})


def test_what_the_user_asked_for_stays():
    asked = study(scenario="serve", threads=[1], rate=50.0, p99_limit_ms=9.0, goal="baseline")
    given = {"scenario", "threads", "rate", "p99_limit_ms", "goal"}
    found = fit_study(policy(p99="5ms", load="200/s"), asked, given)
    assert found.goal == "baseline"
    assert (found.scenario, found.threads) == (("serve",), (1,))
    assert (found.value_of("rate"), found.value_of("p99_limit_ms")) == (50.0, 9.0)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"memory": "1MB"}, "memory 9 MB > 1 MB, the policy's limit"),
        ({"max_error": "1e-3"}, "max-error 5 % > 0.1 %, the policy's limit"),
        ({"install": "1MB"}, "install 2 MB > 1 MB, the policy's limit"),
        ({"min_agreement": "99%"}, "min-agreement 90 % < 99 %, the policy's limit"),
        ({"memory": "9MB", "max_error": "0.05", "install": "2MB", "p99": "1us"}, None),
    ],
)
def test_one_restart_proves_some_limits_broken(keys: dict[str, Any], reason: str | None):
    wrong = Fidelity(max_abs=0.1, relative_l2=0.05, sqnr_db=None, cosine=1.0, top1_agreement=0.9)
    line = made.played(ARM, 0, 1e3, peak_rss_bytes=9_000_000, fidelity=wrong)
    found = PolicyPurpose(policy(**keys), False).find_breach(line, 2_000_000)
    assert (found.reason if found else None) == reason
    with_metric = PolicyPurpose(policy(**keys), True).find_breach(line, 2_000_000)
    assert with_metric == (None if "min_agreement" in keys else found), "the metric's interval tells the agreement"


@dataclass
class Breaking(Purpose):
    """A purpose whose limit each arm breaks."""

    why: NotRun

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        return self.why


def test_who_breaks_a_limit_leaves_and_the_baseline_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    planted.on_stage(monkeypatch)
    asked = planted.study(1, least_restarts=4)
    why = NotRun(NotRunKind.OFF_LIMITS, "memory 9 MB > 1 MB, the policy's limit")
    planted.run(tmp_path / "run", asked, purpose=Breaking(why))
    document = analyse(tmp_path / "run")
    restarts = {row.arm: (row.end_to_end.restarts, row.cause) for row in document.rows if row.end_to_end}
    assert restarts.pop(document.baseline or "") == (4, None)
    assert list(restarts.values()) == [(1, NotRunKind.OFF_LIMITS)]


def test_who_left_by_limits_that_are_no_more_plays_again(tmp_path: Path):
    why = NotRun(NotRunKind.OFF_LIMITS, "memory 9 MB > 1 MB, the policy's limit")
    lines = [*(made.played(arm, 0, 1e3) for arm in (made.A, made.B)), not_run(made.GROUP, made.B, why)]
    nobody: Any = SimpleNamespace(lines=lines)
    for purpose, out in ((Breaking(why), [made.B.label]), (Purpose(), [])):
        found = Recorder(out=tmp_path, file=nobody, history=nobody, progress=nobody, purpose=purpose)
        assert list(found.of_group(made.GROUP)) == out


def test_an_arm_that_is_proven_to_break_a_limit_is_barred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    lines: list[Line] = []
    for restart in range(4):
        for arm, right in ((made.A, "1" * 400), (made.B, "1" * 200 + "0" * 200)):
            lines.append(made.played(arm, restart, 100.0))
            if not restart:
                lines.append(made.checked(arm, Scores(name="accuracy", rows=tuple(map(float, right)))))
        lines += [made.played(made.COPY, restart, 100.0), made.rounds(restart)]
    folder = made.write(tmp_path / "run", made.header(), *lines)
    for share, barred in ("0.9", {made.GROUP: {made.B.label}}), ("0.4", {}), ("0.5", {}):
        assert PolicyPurpose(policy(min_metric=share), True).find_broken(folder) == barred


@pytest.mark.parametrize(
    ("keys", "failed", "waits"),
    [
        ({"p99": "5ms"}, 3, {"a"}),
        ({"p99": "5ms"}, 0, set()),
        ({"p99": "0.5ms"}, 0, set()),
        ({"p99": "5ms", "min_metric": "0.9"}, 3, set()),
        ({"p99": "5ms", "size": "1B"}, 3, set()),
        ({}, 3, set()),
    ],
    ids=["disturbed", "known", "a known p99 gets no better", "no restart tells the accuracy", "broken", "no limit"],
)
def test_a_race_goes_on_for_who_may_yet_be_shown_to_meet_a_limit(
    keys: dict[str, Any], failed: int, waits: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`a` failed in so many of five restarts, all in disturbed rounds; `b` held, at half of its rate."""
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    arms = {name: replace(arm, scenario="serve") for name, arm in (("a", made.A), ("b", made.B))}
    copy = replace(made.COPY, scenario="serve")
    lines: list[Line] = []
    for restart in range(5):
        for arm, is_late, rate in ((arms["a"], restart < failed, 800.0), (arms["b"], False, 400.0), (copy, False, 800)):
            bound_ns = None if is_late else 1e6
            tried = TriedRate(rate_per_s=rate, requests=1_000, bound_ns=bound_ns, held=not is_late, counts=False)
            served = LoadTestResult(limit_ns=5e6, unloaded_ns=1e5, steps=(tried,))
            facts = {"executed": replace(made.EXECUTED, artifact_bytes=1_000), "served": served}
            lines.append(made.played(arm, restart, 1e9 / rate, block_median_ns={"end_to_end": (1e9 / rate,)}, **facts))
        lines.append(made.rounds(restart, voided=3))
    folder = made.write(tmp_path / "run", made.header((*arms.values(), copy)), *lines, made.ended())
    found = PolicyPurpose(policy(objective="rate", load="200/s", **keys), False).find_unsettled(folder)
    assert {name for name, arm in arms.items() if arm.label in found.get(made.GROUP, ())} == waits


INT8 = replace(made.B, target=replace(made.B.target, precision=Precision.INT8))


@pytest.mark.parametrize("given", [{"max_drop": "0.01"}, {"min_agreement": "79%"}], ids=["drop", "agreement"])
def test_run_and_decide_say_the_same_for_the_same_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
):
    """Though a limit of the policy's own shares the chance of an error with all others."""
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    ((name, limit),) = given.items()
    against: Any = "truth" if name == "max_drop" else "outputs"
    seen, rng = set(), np.random.default_rng(0)
    before, noise = rng.uniform(0.7, 0.9, 500), rng.normal(0, 0.03, 500)
    for number, lost in enumerate((0.0, 0.005, 0.006, 0.0065, 0.0095, 0.0135, 0.014, 0.03)):
        after = before - lost + noise - noise.mean()
        scores = [Scores(name="iou", rows=tuple(map(float, rows)), against=against) for rows in (before, after)]
        lines: list[Line] = [made.checked(arm, scores=one) for arm, one in zip((made.A, INT8), scores, strict=True)]
        lines += [made.played(arm, 0, 100.0) for arm in (made.A, INT8, made.COPY)]
        header = made.header((made.A, INT8, made.COPY)).model_copy(update={"given": given})
        folder = made.write(tmp_path / str(number), header, *lines, made.rounds(0))
        (fidelity,) = (row.fidelity for row in analyse(folder).rows if row.arm == INT8.label)
        assert fidelity
        assert fidelity.metric
        candidates = read_question([folder]).candidates
        (label,) = (one.label for one in candidates if one.row.arm == INT8.label)
        for wanted in (policy(), policy(**{name: limit}), policy(**{name: limit}, memory="1GB", size="1GB")):
            finding = judge_limits(wanted, candidates)[label][-1 if not wanted.limits else 0]
            assert finding.standing is fidelity.metric.standing, lost
            if finding.standing is Standing.UNKNOWN and fidelity.metric.rows_needed:
                assert tell_rows_needed(fidelity.metric, fidelity.metric.rows_needed) in (finding.reason or "")
        seen.add(fidelity.metric.standing)
    assert seen == {*Standing}


@pytest.mark.parametrize(("fp32", "drop"), [(0.8, "2"), (0.8, "100%"), (0.0, "1%")], ids=["2", "all", "all zero"])
def test_a_limit_that_any_loss_keeps_admits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fp32: float, drop: str
):
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    before = np.random.default_rng(0).uniform(0.9, 1.1, 500) * fp32
    scores = [Scores(name="m.py:f1", rows=tuple(map(float, rows))) for rows in (before, before * 0.99)]
    lines: list[Line] = [made.checked(arm, scores=one) for arm, one in zip((made.A, INT8), scores, strict=True)]
    lines += [made.played(arm, 0, 100.0) for arm in (made.A, INT8, made.COPY)]
    header = made.header((made.A, INT8, made.COPY)).model_copy(update={"given": {"max_drop": drop}})
    folder = made.write(tmp_path / "run", header, *lines, made.rounds(0))
    (fidelity,) = (row.fidelity for row in analyse(folder).rows if row.arm == INT8.label)
    assert fidelity
    assert fidelity.metric
    assert fidelity.metric.standing is Standing.UNKNOWN
    candidates = read_question([folder]).candidates
    (label,) = (one.label for one in candidates if one.row.arm == INT8.label)
    finding = judge_limits(policy(), candidates)[label][-1]
    assert finding.standing is Standing.UNKNOWN
    assert ("FP32's whole score is 0.8" if fp32 else "FP32 itself scores 0 on every row") in (finding.reason or "")


@pytest.mark.parametrize("is_barred", [True, False])
def test_nobody_waits_for_who_is_faster_than_a_barred_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_barred: bool
):
    stage, asked = planted.on_stage(monkeypatch)[0], planted.study(1, max_restarts=9)
    stage.restart_sd = 0.08
    monkeypatch.setattr(planted, "LINES", dict.fromkeys(planted.LINES, (2e4, 0.0)))
    out, seen = tmp_path / "run", list[int]()

    class Barring(AnswerPurpose):
        def find_broken(self, out: Path) -> dict[str, set[str]]:
            history = journal.read(out)
            (group,) = (group_of(history, record) for record in history.groups)
            seen.append(group.next_restart)
            return {group.record.name: {"onnxruntime:cpu:fp32"}} if is_barred else {}

    assert planted.run(out, asked, purpose=Barring())
    history = journal.read(out)
    (group,) = (group_of(history, record) for record in history.groups)
    fewest = seen[0]
    assert group.next_restart == (fewest if is_barred else 9)
    assert seen == ([fewest] if is_barred else [one for one in (fewest, 2 * fewest, 4 * fewest) if one <= 9])
    assert not group.restarts_left(["onnxruntime:cpu:fp32"])
    assert list_open(group), "without the policy they are not distinguished"


def test_each_plays_as_many_restarts_as_its_limits_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    planted.on_stage(monkeypatch)
    for least in (0, 6):
        out = tmp_path / f"run{least}"
        planted.run(out, planted.study(1, least_restarts=least))
        timings = [row.end_to_end for row in analyse(out).rows if row.end_to_end]
        assert {one.restarts for one in timings} == {least or 2}
        assert {one.p99_highest_ns is not None for one in timings} == {least > 0}, "the rounds are too few for one"


def test_a_run_of_several_questions_is_refused_before_it_takes_time():
    with pytest.raises(UsageError, match=r"decides on one model and batch, and this run has 2 \(digits, batch 1"):
        refuse_several(planted.header(planted.study(1, 8)).groups)
    refuse_several(planted.header(planted.study(1)).groups)
