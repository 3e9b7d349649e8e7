"""A race toward a decision: what a policy needs measured, and which arms a broken limit makes needless."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.apps.judge.cell import Candidate
from shootout.apps.judge.decide.limits import SPREAD, Bounds, judge_figure, judge_limits, refuse_drop_of_all
from shootout.apps.judge.decide.objective import ObjectiveValue, compare, measure
from shootout.apps.judge.decide.policy import BY_RATE, EXACT, Objective, Policy
from shootout.apps.judge.decide.question import read_question
from shootout.apps.judge.racing import AnswerPurpose
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request
from shootout.core.journal.records import Played
from shootout.core.race.race import Race
from shootout.core.results.run import Run, is_from_here
from shootout.core.scenario import Scenario, find_scenario, scenario_names
from shootout.core.stats.group_evidence import Pair
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord
from shootout.core.study.points import metric_of
from shootout.core.study.schema import Study
from shootout.tell.document import Finding, tell_finding
from shootout.tell.limits import Limit, Standing
from shootout.tell.study_changes import change

BY_RATE_LIMITS = frozenset({Limit.RATE, Limit.COST})


def refuse_unshown(policy: Policy, study: Study, requests: Iterable[Request]) -> None:
    """Refuse a policy's limit on a loss that any loss keeps.

    Args:
        requests: one for each group.

    Raises:
        UsageError: it is such a limit.
    """
    is_scored = any(study.metric or one.source.may_be_scored(one) for one in requests)
    refuse_drop_of_all(policy, [metric_of(study).metric] * is_scored)


def fit_study(policy: Policy, study: Study, asked: Collection[str]) -> Study:
    """Return the study with what the policy needs measured.

    Args:
        asked: keywords of `tell.study_options` that the user gave, which stay as they are.

    Raises:
        UsageError: the two don't fit together.
    """
    by_rate = _is_by_rate(policy)
    changes: dict[str, Any] = {}
    brought = tuple(_choose_scenarios(policy))
    if "scenario" not in asked and not (study.value_of("mix") and _is_usual(brought)):  # a mix has times of calls, too
        changes["scenario"] = brought
    if "goal" not in asked:
        changes["goal"] = "best"  # a beaten arm needs no verdict against the baseline
    serves = any(_takes_requests(find_scenario(one)) for one in changes.get("scenario", study.scenario))
    if serves and "rate" not in asked and policy.objective not in BY_RATE and policy.load:
        changes["rate"] = _given_rate(policy, policy.load)
    if serves and "p99_limit_ms" not in asked and Limit.P99 in policy.limits:
        changes["p99_limit_ms"] = policy.limits[Limit.P99] / 1e6
    if "threads" not in asked and policy.asks_cost:
        changes["threads"] = ("all",)
    least = study.least_restarts
    if SPREAD & policy.limits.keys() or by_rate:
        least = changes["least_restarts"] = max(least, LEAST_TAILS)
    if policy.objective in EXACT and not by_rate and "goal" in changes:
        changes["max_restarts"] = min(max(least, LEAST_TAILS), study.most_restarts)  # which is faster doesn't matter
    return change(study, **changes)


def _is_by_rate(policy: Policy) -> bool:
    return policy.objective in BY_RATE or bool(BY_RATE_LIMITS & policy.limits.keys())


def _given_rate(policy: Policy, load: float) -> float:
    """Return the rate at which the p99 is measured: the load, or what shows that the limits by rate are met."""
    if Limit.P99 not in policy.limits:
        return load
    rate, cost = policy.limits.get(Limit.RATE), policy.limits.get(Limit.COST)
    by_rate = math.ceil(rate) if rate else 0
    return max(load, by_rate, math.ceil(policy.cost_at(cost)) if cost else 0)


def brings(policy: Policy) -> dict[str, Any]:
    """Return the options that a policy brings, beside those that a user gives: a rate is of the scenario it brings."""
    brought = tuple(_choose_scenarios(policy))
    return {} if _is_usual(brought) else {"scenario": brought}


def _choose_scenarios(policy: Policy) -> Iterator[str]:
    """Name the scenarios that a policy needs, each the first that measures what is asked."""
    limited, by_rate = Limit.P99 in policy.limits, _is_by_rate(policy)
    times = limited or policy.objective is Objective.LATENCY
    if (times and policy.load is None) or not (times or by_rate):
        yield _find_first(lambda one: one.objective == Objective.LATENCY)
    if by_rate and not limited:
        yield _find_first(lambda one: one.objective == Objective.RATE)
    if (times and policy.load is not None) or (by_rate and limited):
        yield _find_first(_takes_requests)


def _find_first(measures: Callable[[Scenario], bool]) -> str:
    return next(name for name in scenario_names() if measures(find_scenario(name)))


def _takes_requests(scenario: Scenario) -> bool:
    return "rate" in scenario.options


def _is_usual(brought: Iterable[str]) -> bool:
    """Tell whether a study measures these without being told."""
    return all(find_scenario(name).is_one_call for name in brought)


def refuse_several(records: Iterable[GroupRecord]) -> None:
    """Refuse a run that asks several questions, before it takes any time.

    Raises:
        UsageError: a policy decides on one model, and one batch of it.
    """
    asked = dict.fromkeys(
        (record.arms[0].model, min(arm.batch for arm in record.arms), tuple(record.arms[0].parameters.items()))
        for record in records
    )
    if len(asked) > 1:
        models = "; ".join(dict.fromkeys(f"{model}, batch {batch}" for model, batch, _ in asked))
        raise UsageError(
            f"--policy decides on one model and batch, and this run has {len(asked)} ({models}): run one, weigh the "
            "sizes by --mix, or decide on each afterwards, with `shootout decide RUN --group NAME`"
        )


@dataclass(slots=True)
class PolicyPurpose(AnswerPurpose):
    """A run that a policy decides on: arms that break a limit leave, and what may yet meet all of them plays on.

    Attributes:
        by_metric: a metric tells the agreement, whose interval `find_broken` judges, and not the first class.
    """

    policy: Policy
    by_metric: bool
    has_policy: bool = field(default=True, kw_only=True)

    def find_breach(self, line: Played, install_bytes: int | None) -> NotRun | None:
        """Return why an arm need play no more: one restart proves that it breaks a limit, and none can mend that."""
        known = {
            Limit.ERROR: line.fidelity.relative_l2,
            Limit.AGREEMENT: None if self.by_metric else line.fidelity.top1_agreement,
            Limit.MEMORY: line.peak_rss_bytes if line.gpu is None else None,
            Limit.SIZE: line.executed.artifact_bytes,
            Limit.INSTALL: install_bytes,
        }
        for limit, wanted in self.policy.limits.items():
            if (value := known.get(limit)) is not None:
                found = judge_figure(limit, wanted, Bounds(value=value, low=value, high=value))
                if found.standing is Standing.BROKEN:
                    return NotRun(NotRunKind.OFF_LIMITS, f"{tell_finding(found)}, the policy's limit")
        return None

    def find_broken(self, out: Path) -> Mapping[str, Collection[str]]:
        """Return by group the arms of a run in progress that are proven to break a limit.

        Raises:
            UsageError: the folder holds no run.
        """
        candidates = read_question([out]).candidates
        findings = judge_limits(self.policy, candidates)
        return _by_group(
            one for one in candidates if any(found.standing is Standing.BROKEN for found in findings[one.label])
        )

    def goes_on(self, run: Run) -> bool:
        """Tell whether a finished run is taken up again."""
        return AnswerPurpose.goes_on(self, run) or (is_from_here(run.history) and bool(self.find_unsettled(run.folder)))

    def call_wanted(self, race: Race, out: Path) -> Sequence[Pair]:
        """Call the arms that may yet be shown to meet the limits, beside the baseline."""
        baseline, control = race.rules.baseline, race.rules.control
        unsettled = self.find_unsettled(out).get(race.name, ())
        return [(label, other) for label in unsettled if (other := control if label == baseline else baseline)]

    def find_unsettled(self, out: Path) -> Mapping[str, Collection[str]]:
        """Return by group the arms that further restarts may show to meet the limits, and that may be chosen then.

        Raises:
            UsageError: the folder holds no run.
        """
        candidates = read_question([out]).candidates
        measures = {one.label: measure(self.policy, one) for one in candidates}
        findings = judge_limits(self.policy, candidates)
        standings = {label: {finding.standing for finding in found} for label, found in findings.items()}
        met = [label for label in measures if standings[label] <= {Standing.MET} and not _is_out(measures[label])]
        unsettled = []
        for one in candidates:
            mine, unknown = measures[one.label], [f for f in findings[one.label] if f.standing is Standing.UNKNOWN]
            is_beaten = any(compare(self.policy, mine, measures[other]).verdict is Verdict.SLOWER for other in met)
            may_meet = unknown and all(map(_may_settle, unknown)) and Standing.BROKEN not in standings[one.label]
            if may_meet and not mine.fault and not (is_beaten and not mine.reason):
                unsettled.append(one)
        return _by_group(unsettled)


def _by_group(candidates: Iterable[Candidate]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for play in (play for one in candidates for play in one.plays):
        found[play.cell.group].add(play.row.arm)
    return found


def _is_out(found: ObjectiveValue) -> bool:
    return bool(found.fault or found.reason)


def _may_settle(finding: Finding) -> bool:
    """Tell whether further restarts may show what isn't known.

    The worst of several restarts gets no better, so one that is known to lie beyond its limit stays there.
    """
    if finding.limit in (Limit.RATE, Limit.COST) and None not in (finding.low, finding.high):
        return True
    return finding.limit in SPREAD and bool(finding.needs) and (finding.limit in BY_RATE_LIMITS or finding.high is None)
