"""Race for an answer, or toward a decision: what a policy needs measured, and what a broken limit makes needless."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.cell import Candidate
from shootout.apps.judge.decide.limits import SPREAD, Bounds, judge_figure, judge_limits, refuse_drop_of_all
from shootout.apps.judge.decide.objective import compare, measure
from shootout.apps.judge.decide.policy import BY_RATE, EXACT, Objective, Policy
from shootout.apps.judge.decide.question import read_question
from shootout.core import units
from shootout.core.adapter import Built
from shootout.core.constants import CONTENDING
from shootout.core.contract import Arm, NotRun, NotRunKind, short
from shootout.core.errors import UsageError
from shootout.core.exported.request import Request
from shootout.core.journal.records import Played
from shootout.core.messages import Progress
from shootout.core.race.pace import RaceTime
from shootout.core.race.race import Purpose, Race
from shootout.core.results.run import Run, is_from_here
from shootout.core.scenario import Scenario, find_scenario, scenario_names
from shootout.core.stats.group_evidence import Pair
from shootout.core.stats.leaders import copy_strays, is_unopposed, time_ns
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord
from shootout.core.study.points import metric_of
from shootout.core.study.schema import Study
from shootout.tell.document import Finding, tell_finding
from shootout.tell.limits import Limit, Standing
from shootout.tell.report import NAMED, fold
from shootout.tell.study_changes import change

Trace = Callable[[Mapping[str, Mapping[str, Built]]], None]
CONTENDERS_SHARE = 0.4
"""If a larger share of the arms is that near, all play on: standing back would put the end off and bring little."""
CONTENDERS_RESTARTS = 6
"""After so many restarts the others go on in any case: contenders that aren't distinguished by then are nearly tied."""
FIRST_ANSWER_RESTARTS = 3
"""Targets that take long to build are built after so many restarts of the others, though these aren't settled."""
FORESEEING = 3
"""From so many restarts of a run on, how many more a verdict takes can be foreseen, roughly."""
HOPELESS = 2.0
"""A race that would take so many times what is left of a default budget ends: an answer soon is worth more."""


@dataclass(slots=True)
class AnswerPurpose(Purpose):
    """A run that ends with an answer: which target is fastest, and how each row compares with it.

    Attributes:
        answered: the groups whose first answer was told, in an earlier process of the run, too.
        looked_at: by group, how many restarts had been played when arms to bar were last looked for.
        trace: looks, when all is measured, where the time of the calls of what was built goes; None: nothing does.
        has_policy: whether a policy decides on the run.
    """

    trace: Trace | None = field(default=None, kw_only=True)
    has_policy: bool = field(default=False, kw_only=True)

    answered: dict[str, bool] = field(default_factory=dict, init=False)
    looked_at: dict[str, int] = field(default_factory=dict, init=False)

    def goes_on(self, run: Run) -> bool:  # noqa: ARG002
        """Tell whether a finished run is taken up again; for a trace it always is."""
        return self.trace is not None

    def greet(self, run: Run, progress: Progress, *, goes_on: bool) -> None:
        """Say what is open of a run that goes on, or what a finished one leaves open."""
        if not goes_on:
            progress.say(f"{run.folder} already holds this run, finished; --fresh measures again")
            if still := "; ".join(fold(analyse(run.folder).open_questions, NAMED)):  # such as an arm that failed
                progress.say(f"still open, and the same command won't settle it: {still}")
        elif run.groups:
            progress.say(f"going on with {run.folder}")

    def finish(self, built: Mapping[str, Mapping[str, Built]]) -> None:
        """Trace what was built, if that is asked."""
        if self.trace:
            self.trace(built)

    def find_barred(self, race: Race, out: Path) -> Collection[str]:
        """Look for arms to bar before the first verdict and then ever more rarely: it takes a while."""
        if race.played >= max(self.bars_from(race), 2 * self.looked_at.get(race.name, 0)):
            self.looked_at[race.name] = race.played
            return self.find_broken(out).get(race.name, ())
        return race.barred

    def bars_from(self, race: Race) -> int:
        """Return after how many restarts arms may be barred: as many as a verdict takes."""
        return race.fewest

    def find_broken(self, out: Path) -> Mapping[str, Collection[str]]:  # noqa: ARG002
        """Return by group the arms that need no verdict, by all that a run folder holds so far: none without limits."""
        return {}

    def find_parked(self, race: Race) -> Collection[str]:
        """Return the far arms that stand back while the contenders play; the baseline stays with its copy.

        None if many are near: then the contenders' restarts cost nearly as much as those of all. None if the baseline
        is near alone: then it would play against its copy.
        """
        if race.rules.goal.aim != "best" or is_unopposed(race.labels, race.rules):
            return set()
        far, arms = find_far(race), {*race.labels} - {race.rules.control}
        near, own = arms - far, {race.rules.baseline}
        return far - own if near != own and len(near) <= CONTENDERS_SHARE * len(arms) else set()

    def find_contenders(self, race: Race) -> list[str]:
        """Return the arms that don't stand back."""
        parked = self.find_parked(race)
        return [label for label in race.labels if label not in parked]

    def find_focus(self, race: Race) -> list[str]:
        """Return the arms whose question comes first: the contenders until it is settled, then all."""
        is_time = 0 < race.played < CONTENDERS_RESTARTS and race.played + race.fewest - 1 < race.rules.max_restarts
        contenders = self.find_contenders(race)
        if race.contenders_first and is_time and contenders != race.labels and not is_settled(race, contenders):
            return contenders
        return race.labels

    def lacks_answer(self, race: Race) -> bool:
        """Tell whether it isn't known yet which of the targets that could race at once are fastest."""
        return race.played < FIRST_ANSWER_RESTARTS and not is_settled(race, self.find_contenders(race))

    def choose_races(self, playing: Sequence[Race], time: RaceTime) -> list[Race]:
        """Return the races that may play next, after arms have come in or left for want of time.

        A race that its budget can't settle by far is left out, but for arms that stood back.
        """
        for race in playing:
            self.call_all(race, 0.0 if is_hopeless(race, time.racing.left_s) else time.left_s)
        if len(playing) == 1:  # a budget ends no race before a verdict
            race = playing[0]
            race.players = find_players_in_time(race, time.run.left_s if race.played < race.fewest else time.left_s)
        return [race for race in playing if race.find_late(race.labels) or not is_hopeless(race, time.racing.left_s)]

    def call_all(self, race: Race, left_s: float) -> None:
        """Let the arms play now that stand back for the contenders, if they would have no time behind them."""
        if not (race.contenders_first and race.find_late(race.labels)):
            return
        before_s, count = race.next_s, len(race.players)
        race.contenders_first = False
        later = [race.arms[label] for label in race.find_players()]
        race.contenders_first = len(later) <= count or before_s + race.seconds_of(later) <= left_s
        if not race.contenders_first:
            race.look()

    def tell_standing(self, race: Race) -> str:
        """Return which arm leads so far, and how many are still in the race; "" before the first restart."""
        waiting = units.counted(sum(not arm.control for arm in race.players), "target")
        leaders = race.find_leaders(race.labels)
        return f"{short(leaders[0])} leads, {waiting} open" if leaders else ""

    def tell(self, race: Race, coming: int) -> str:
        """Return once what is settled among the contenders, while others have yet to play; "" if that isn't so."""
        if race.name not in self.answered:
            self.answered[race.name] = race.recalled > 0 and not self.lacks_answer(race)
        if self.answered[race.name] or race.rules.goal.aim != "best" or is_unopposed(race.labels, race.rules):
            return ""
        open_, contenders = len(race.find_late(race.labels)) + coming, self.find_contenders(race)
        leaders = race.find_leaders(contenders)
        if not open_ or not leaders or not is_settled(race, contenders) or copy_strays(race.evidence):
            return ""
        self.answered[race.name] = True
        return f"first answer: {short(leaders[-1])}; {units.counted(open_, 'other target')} without a verdict yet"


def is_settled(race: Race, labels: Collection[str]) -> bool:
    """Tell whether nothing is open between these arms of a race."""
    return race.played >= race.fewest and not race.find_waiting(labels)


def is_hopeless(race: Race, left_s: float) -> bool:
    """Tell whether a race's nearest verdict would take far longer than the seconds left of a default budget."""
    here = race.played - race.recalled  # the same command given again wants more of it
    if left_s == math.inf or here < FORESEEING or race.played < race.fewest:
        return False
    return math.inf > race.nearest * race.next_s > HOPELESS * left_s


def find_far(race: Race) -> set[str]:
    """Return the arms far behind in a race for the best, by the first restart that each has played.

    They took over 1.6 times as long as the best arm of all and, if they compute in full precision, as the best one
    of those.
    """
    first = {label: time_ns({0: mine[min(mine)]}) for label, mine in race.blocks.items() if mine}
    gone = race.evidence.out_of_question
    far = {label for label in race.labels if label in first and label != race.rules.control}
    for some in (far, far & {*race.rules.exact}):
        best_ns = min((first[label] for label in some if label not in gone), default=math.inf)
        far = far - {label for label in some if first[label] <= CONTENDING * best_ns}
    return far


def find_players_in_time(race: Race, left_s: float) -> list[Arm]:
    """Return the arms that have time for their next restart: the baseline, its copy and the fastest so far.

    The fastest one in full precision is the last to go, whatever is faster. All play where a restart isn't as long as
    the calls of its arms, and where it isn't known of all what they take.
    """
    rules, needs_s, players = race.rules, race.parts_s, race.players
    is_by_calls = rules.goal.aim == "best" and not race.terms.rule and race.terms.is_by_calls
    if not is_by_calls or not all(arm.label in needs_s for arm in players):
        return players
    share_s = left_s / max(1, race.fewest - race.played)
    rivals = [arm for arm in players if not arm.control and arm.label != rules.baseline]
    rivals.sort(key=lambda arm: time_ns(race.blocks.get(arm.label, {})))
    first = next((arm for arm in rivals if arm.label in rules.exact), None)
    rivals.sort(key=lambda arm: arm is not first)
    out = list[str]()
    while len(rivals) > 1 and sum(needs_s[arm.label] for arm in players if arm.label not in out) > share_s:
        out.append(rivals.pop().label)
    return [arm for arm in players if arm.label not in out]


BY_RATE_LIMITS = frozenset({Limit.RATE, Limit.COST})
"""Limits that a race of single calls says nothing on."""


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
        broken = {label for label, some in findings.items() if any(one.standing is Standing.BROKEN for one in some)}
        return _by_group(one for one in candidates if one.label in broken)

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
        met = [
            label
            for label in measures
            if standings[label] <= {Standing.MET} and not (measures[label].fault or measures[label].reason)
        ]
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


def _may_settle(finding: Finding) -> bool:
    """Tell whether further restarts may show what isn't known.

    The worst of several restarts gets no better, so one that is known to lie beyond its limit stays there.
    """
    if finding.limit in (Limit.RATE, Limit.COST) and None not in (finding.low, finding.high):
        return True
    return finding.limit in SPREAD and bool(finding.needs) and (finding.limit in BY_RATE_LIMITS or finding.high is None)
