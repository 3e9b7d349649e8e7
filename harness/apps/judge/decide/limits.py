"""Limits against figures: `met` when the bad-side bound meets it, `broken` when the good one doesn't; else unknown.

What was never measured is unknown, and never counts as met. A bound over few restarts is the worst of them, of at least
four. Bounds that rest on a sample of rows share the chance of an error: see `judge_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.apps.judge.cell import ONE_BY_ONE, Candidate, is_plain, name_data, name_plain
from shootout.apps.judge.decide.objective import ALONE, NEVER_ALONE, find_rate, rate_needs, serve_at
from shootout.apps.judge.decide.policy import Policy, read_limit, write_words
from shootout.core.constants import TAIL_S, TOO_BUSY
from shootout.core.scenario import find_scenario
from shootout.core.stats.readings import LEAST_TAILS, least_calls, own_calls
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.units import counted, number
from shootout.models import metrics as named_metrics
from shootout.models.metrics import CONFIDENCE, bound_rare, count_rows_for_rare
from shootout.tell.document import Finding, Metric, Row, Timing
from shootout.tell.limits import FIDELITY, LIMITS, Limit, Standing, judge_limit, write_loose_limit
from shootout.tell.paired import count_rows_needed, quantile_of, reach_at
from shootout.tell.reproduce import MORE_RESTARTS, Options
from shootout.tell.wording import tell_limit_doubt, tell_rows_needed

ALPHA = 0.05
"""The chance that a limit of any candidate is called met or broken and isn't.

Except for limits that the run judged: each has 5 % of its own.
"""
SPREAD = frozenset({Limit.P99, Limit.READY, Limit.RATE, Limit.COST})
"""Limits whose bound is the worst of several restarts."""
NO_CLASSES = "its outputs are not classes"
UNRECORDED = "what its runtime takes on disk isn't known: a package has no record"
TRIES = 5
"""Limits of a sample share the chance of an error anew once one is looser, so that it may have to be looser yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Hold what is known of one figure: its bounds, and why not more."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    needs: Options = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One limit of one candidate, and how often the bounds of its figure may miss the truth."""

    policy: Policy
    candidate: Candidate
    limit: Limit
    wanted: float
    alpha: float

    @property
    def row(self) -> Row:
        return self.candidate.row


def wanted_limits(policy: Policy, candidate: Candidate) -> dict[Limit, float]:
    """Return the policy's limits and, if it has none on what outputs are worth, that they be as good as plain FP32's.

    A metric decides that, with the run's own limit.
    """
    if Limit.DROP in policy.shares:
        return {**policy.limits, Limit.DROP: _share_of_mean(policy, candidate)}
    if FIDELITY & policy.limits.keys():
        return dict(policy.limits)
    metric = _metric_of(candidate)
    if metric and metric.against == "outputs" and metric.limits != "drop":
        return {**policy.limits, Limit.AGREEMENT: 1.0 if metric.limit is None else metric.limit}
    return {**policy.limits, Limit.DROP: (metric.limit if metric else None) or 0.0}


def _share_of_mean(policy: Policy, candidate: Candidate) -> float:
    """Return the most drop that a policy names as a share of plain FP32's mean, in the metric's unit."""
    share, metric = policy.limits[Limit.DROP], _metric_of(candidate)
    if metric is None:
        return share
    most = share * abs(metric.before)
    is_own = metric.limits == "drop" and metric.limit is not None and math.isclose(most, metric.limit)
    return metric.limit if is_own and metric.limit is not None else most


def list_metrics(candidates: Iterable[Candidate]) -> set[str]:
    """Return the names of the metrics that score the candidates' outputs."""
    checked = [play.row.fidelity for one in candidates for play in one.plays]
    found = [one.metric for one in checked if one and one.metric]
    return {one.name for metric in found for one in (metric, *metric.other_outputs)}


def refuse_drop_of_all(policy: Policy, metrics: Iterable[str]) -> None:
    """Refuse a limit on a loss that any loss of one of these metrics keeps.

    Raises:
        UsageError: it is such a limit.
    """
    drop = policy.limits.get(Limit.DROP)
    if drop is not None and Limit.DROP not in policy.shares:
        for metric in metrics:
            named_metrics.refuse_drop_of_all(Limit.DROP, drop, metric)


def judge_limits(
    policy: Policy, candidates: Sequence[Candidate], alpha: float = ALPHA
) -> dict[str, tuple[Finding, ...]]:
    """Return by label how each candidate stands to each limit.

    Limits whose bounds rest on a sample of rows, and that the run has not answered, share the chance of an error alike.

    Args:
        alpha: the chance of an error that these candidates share.
    """
    asked = [
        _Asked(policy=policy, candidate=one, limit=limit, wanted=wanted, alpha=alpha)
        for one in candidates
        for limit, wanted in wanted_limits(policy, one).items()
    ]
    is_sharing = [not _is_told_by_run(one) and _judge(one) != _judge(replace(one, alpha=alpha / 2)) for one in asked]
    level = alpha / max(sum(is_sharing), 1)
    found: dict[str, list[Finding]] = {one.label: [] for one in candidates}
    for one, shares in zip(asked, is_sharing, strict=True):
        found[one.candidate.label].append(_judge(replace(one, alpha=level) if shares else one))
    return {label: tuple(findings) for label, findings in found.items()}


def _judge(asked: _Asked) -> Finding:
    figure = FIGURES[asked.limit](asked)
    return judge_figure(asked.limit, asked.wanted, figure, implied=asked.limit not in asked.policy.limits)


def _is_told_by_run(asked: _Asked) -> bool:
    """Tell whether the run's own judgment answers it.

    The run holds each target to a limit of its own by a 95 % interval. `decide` says the same of that limit; and what
    keeps it keeps a looser one, what breaks it breaks a tighter one.
    """
    kind, metric = {Limit.DROP: "drop", Limit.AGREEMENT: "agreement"}.get(asked.limit), _metric_of(asked.candidate)
    if metric is None or metric.limit is None or metric.limits != kind:
        return False
    is_looser = asked.wanted > metric.limit if asked.limit is Limit.DROP else asked.wanted < metric.limit
    needed = Standing.MET if is_looser else Standing.BROKEN
    return asked.wanted == metric.limit or _judge(replace(asked, wanted=metric.limit)).standing is needed


def judge_figure(limit: Limit, wanted: float, figure: Bounds, *, implied: bool = False) -> Finding:
    """Return a figure's bounds against a limit."""
    is_most = LIMITS[limit].side == "most"
    standing = judge_limit((figure.low, figure.high), wanted, at_most=is_most)
    best = figure.low if is_most else figure.high
    excess = abs(best - wanted) / wanted if standing is Standing.BROKEN and best is not None and wanted else None
    unknown = standing is Standing.UNKNOWN
    return Finding(
        limit=limit,
        wanted=wanted,
        implied=implied,
        value=figure.value,
        low=figure.low,
        high=figure.high,
        standing=standing,
        reason=(figure.reason or _explain_between(limit, figure)) if unknown else None,
        needs=figure.needs if unknown else (),
        excess=excess,
    )


def _explain_between(limit: Limit, figure: Bounds) -> str:
    """Return why bounds that are known don't tell."""
    if figure.low is None or figure.high is None:
        return "the value isn't known closely enough to compare it with the limit"
    low, high = map(LIMITS[limit].unit.tell, (figure.low, figure.high))
    return f"the limit lies between its bounds, {low} and {high}"


def _bound_p99(asked: _Asked) -> Bounds:
    """Return the p99 of one call after another; with a load that of requests."""
    if asked.policy.load is not None:
        return _bound_p99_served(asked.candidate, asked.policy.load)
    play = asked.candidate.alone
    timing = play.row.end_to_end if play else None
    if timing is None:
        return Bounds(reason=NEVER_ALONE, needs=ALONE)
    low, high = timing.p99_low_ns, timing.p99_highest_ns
    reason, needs = _explain_missing_p99(timing, asked.policy) if high is None else ("", ())
    least = _least_p99(timing)
    for other in asked.candidate.plays:  # the worst run counts, as of all other figures
        more = other.row.end_to_end if other.answers(ONE_BY_ONE) else None
        least = min(least, _least_p99(more)) if more else least
        if more and low and high and more.p99_low_ns and more.p99_highest_ns:
            low, high = min(low, more.p99_low_ns), max(high, more.p99_highest_ns)
    figure = Bounds(value=timing.p99_ns, low=low, high=high, reason=reason, needs=needs)
    share = play.group.void_share if play else 0.0
    if share > TOO_BUSY and low is not None and low > asked.wanted:  # a neighbor makes calls late
        doubt = f"{100 * share:.0f} % of its rounds were disturbed"
        figure = replace(figure, low=None, reason=doubt, needs=(*MORE_RESTARTS, _by(asked.policy)))
    return replace(figure, low=max(figure.low or 0.0, least)) if least > asked.wanted else figure


def _least_p99(timing: Timing) -> float:
    """Return what a p99 is at least, however noisy the tail is: the time's own low end, in ns; 0 of one restart."""
    return timing.low_ns if timing.restarts >= LEAST_RESTARTS else 0.0


def _explain_missing_p99(timing: Timing, policy: Policy) -> tuple[str, Options]:
    """Return why there is no p99 of calls, and what would tell it: a run by the policy reads more calls."""
    more = (*MORE_RESTARTS, _by(policy))
    if timing.restarts < LEAST_TAILS:
        return f"{counted(timing.restarts, 'restart')}, and a p99 takes {LEAST_TAILS}", more
    wanted, own = least_calls(0.99), own_calls(0.99)
    if timing.samples >= own * timing.restarts:
        is_enough = timing.samples >= wanted
        why = "its short calls were not read one by one" if is_enough else f"{timing.samples} of {wanted} calls"
        return why, more
    played = timing.samples / timing.restarts
    if (own - played) * timing.median_ns > 1e9 * TAIL_S:
        return f"its calls are long: a p99 takes {own} in each restart, and {wanted} in all", ()
    return f"{math.floor(played)} of {own} calls in each restart", more[::-1]


def _by(policy: Policy) -> tuple[str, str]:
    """Return the option by which a run measures what a policy asks."""
    return "--policy", write_words(policy)


def _bound_p99_served(candidate: Candidate, load: float) -> Bounds:
    """Return the p99 under requests that arrive by themselves, at that rate or more: fewer are answered no later."""
    play, needs = candidate.under(load), serve_at(math.ceil(load) if load > 1 else load)
    served = play.row.serve if play else None
    if served is None:
        return Bounds(reason=_explain_unserved(candidate), needs=needs)
    low, broken = None, math.nextafter(served.limit_ns, math.inf)
    if play and not served.may_do_more and served.rate_per_s.high <= load and play.restarts >= LEAST_TAILS:
        return Bounds(low=broken, needs=needs)  # at the load its p99 was beyond the limit in every restart
    if served.rate_per_s.low < load:
        return Bounds(reason=f"served {served.rate_per_s.low:.3g}/s, less than the load", needs=needs)
    if served.holds is False and not served.searched and served.rate_per_s.value <= load:
        low = broken
    if served.p99_highest_ns is None and low is None:
        return Bounds(value=served.p99_ns, reason=_explain_unserved(candidate), needs=needs)
    return Bounds(value=served.p99_ns, low=low, high=served.p99_highest_ns, needs=needs)


def _explain_unserved(candidate: Candidate) -> str:
    """Return why no p99 under requests is known."""
    done = [(found, play.row) for play in candidate.plays if (found := play.group.served.get(play.row.arm))]
    served, row = max(done, key=lambda one: len(one[0]), default=((), candidate.row))
    tail = find_scenario(row.scenario).tail(served, math.inf) if served else None
    return tail.unknown if tail else "never served requests"


def _tell_rows(metric: Metric, needed: int | None) -> str:
    return f"{counted(metric.rows, metric.unit)} scored, {tell_rows_needed(metric, needed)}"


def _bound_exact(asked: _Asked) -> Bounds:
    """Return a figure that has no interval: the worst of all runs of the candidate."""
    figures: dict[Limit, tuple[Callable[[Row], float | None], str]] = {
        Limit.ERROR: (lambda row: row.fidelity.relative_l2 if row.fidelity else None, "its error isn't known"),
        Limit.MEMORY: (lambda row: row.memory_bytes, "its memory isn't known"),
        Limit.SIZE: (lambda row: row.artifact_bytes, "its size isn't known"),
        Limit.INSTALL: (lambda row: row.install_bytes, UNRECORDED),
    }
    read, reason = figures[asked.limit]
    values = [read(play.row) for play in asked.candidate.plays]
    known = [value for value in values if value is not None]
    return Bounds(value=max(known), low=max(known), high=max(known)) if known == values else Bounds(reason=reason)


def _bound_agreement(asked: _Asked) -> Bounds:
    """Return the agreement with FP32's own outputs; plain FP32 has all of it, and without a limit nothing else has."""
    metric = _metric_of(asked.candidate)
    if metric is None or metric.against != "outputs":
        shares = [play.row.fidelity.top1_agreement for play in asked.candidate.plays if play.row.fidelity]
        known = [share for share in shares if share is not None]
        is_known = known and known == shares
        return Bounds(value=min(known), low=min(known), high=min(known)) if is_known else Bounds(reason=NO_CLASSES)
    if is_plain(asked.row) and not metric.change:
        return Bounds(value=1.0, low=1.0, high=1.0)
    if metric.lower_is_better:
        reason = f"lower is better in {metric.name}: limit it with {Limit.DROP}"
        return Bounds(reason=reason, needs=(("--max-drop", "0.01"),))
    if Limit.AGREEMENT not in asked.policy.limits and metric.limit is None:
        needs: Options = (("--min-agreement", "99%"),)
        return Bounds(value=metric.value, reason="how much agreement is enough isn't said", needs=needs)
    return _bound_mean_score(metric, asked)


def _metric_of(candidate: Candidate) -> Metric | None:
    """Return the metric of the output that stands worst in the run."""
    plays = (play.row.fidelity.metric for play in candidate.plays if play.row.fidelity)
    return next((one for one in plays if one), None)


def _bound_metric(asked: _Asked) -> Bounds:
    """Return the mean score, of which the limit says in which direction it is better."""
    metric = _metric_of(asked.candidate)
    if metric is None:
        return _without_metric(asked)
    if metric.lower_is_better is not (asked.limit is Limit.MOST_METRIC):
        better, other = ("lower", Limit.MOST_METRIC) if metric.lower_is_better else ("higher", Limit.METRIC)
        return Bounds(value=metric.value, reason=f"{better} is better in {metric.name}: limit it with {other}")
    return _bound_mean_score(metric, asked)


def _without_metric(asked: _Asked) -> Bounds:
    """Return that there is none, and what would tell; a metric that failed says so itself."""
    is_scored, play = any(play.cell.is_scored for play in asked.candidate.plays), asked.candidate.play
    return Bounds(reason="no metric is measured", needs=() if is_scored else name_data(play.cell, play.row))


def _bound_mean_score(metric: Metric, asked: _Asked) -> Bounds:
    """Return the mean score of the worst output, with the interval that the shared chance of an error leaves it."""
    found = [_bound_output(one, asked) for one in (metric, *metric.other_outputs)]
    if metric.lower_is_better:
        return max(found, key=lambda one: math.inf if one.high is None else one.high)
    return min(found, key=lambda one: -math.inf if one.low is None else one.low)


def _bound_output(metric: Metric, asked: _Asked) -> Bounds:
    if metric.low is None or metric.high is None:
        return Bounds(value=metric.value, reason=f"all {counted(metric.rows, metric.unit)} have the same score")
    # An interval of 95 % grows for the share of the chance of an error that this limit has.
    widening = quantile_of(1 - asked.alpha) / quantile_of(CONFIDENCE)
    middle, reach = (metric.low + metric.high) / 2, (metric.high - metric.low) / 2 * widening
    needed = count_rows_needed(metric.rows, reach, middle - asked.wanted)
    return Bounds(value=metric.value, low=middle - reach, high=middle + reach, reason=_tell_rows(metric, needed))


def _bound_drop(asked: _Asked) -> Bounds:
    """Return what the mean score lost against plain FP32, in pairs of rows; of plain FP32 itself it is none.

    Of several outputs it is what the worst lost: by the policy's limit, or else by their own limits in the run.
    """
    metric = _metric_of(asked.candidate)
    if is_plain(asked.row) and not (metric and metric.change):  # a gate compares plain FP32 with what is shipped
        return Bounds(value=0.0, low=0.0, high=0.0)
    if metric is None:
        return _without_metric(asked)
    others = metric.other_outputs if Limit.DROP in asked.policy.limits else ()
    found = [_bound_drop_of_output(one, asked) for one in (metric, *others)]
    if Limit.DROP in asked.policy.shares:  # each output's loss is a share of its own mean
        means = [abs(one.before) for one in (metric, *others)]
        found = [_scale(one, means[0] / mean) if mean else one for one, mean in zip(found, means, strict=True)]
    return max(found, key=lambda one: math.inf if one.high is None else one.high)


def _scale(figure: Bounds, by: float) -> Bounds:
    value, low, high = (None if one is None else one * by for one in (figure.value, figure.low, figure.high))
    return replace(figure, value=value, low=low, high=high)


def _bound_drop_of_output(metric: Metric, asked: _Asked) -> Bounds:
    if (change := metric.change) is None:
        needs = name_plain(asked.candidate.play.cell, asked.row)
        return Bounds(reason=f"{metric.name} has no score of plain FP32 to compare with", needs=needs)
    sign = 1.0 if metric.lower_is_better else -1.0
    loss = sign * change.value + 0.0  # not -0
    if doubt := tell_limit_doubt(metric, asked.wanted):
        return Bounds(value=loss, reason=doubt)
    middle, reach = sign * (change.low + change.high) / 2, reach_at(change, 1 - asked.alpha)
    needed, rare = count_rows_needed(metric.rows, reach, asked.wanted - middle), 0
    if not change.sd:  # no row changed, and the interval is the exact one
        needed = count_rows_for_rare(change.high / bound_rare(metric.rows), asked.wanted)
    if (metric.limits, metric.limit) == ("drop", asked.wanted):
        needed = metric.rows_needed  # as the run has told
    if metric.worst is not None and loss < asked.wanted:
        rare = count_rows_for_rare(metric.worst, asked.wanted, loss)
    high = middle + reach
    if metric.rows < rare:  # so few rows say nothing of a failure that is rare
        may_be = max(loss, 0.0) + (metric.worst or 0.0) * bound_rare(metric.rows)
        high, needed = max(high, may_be, math.nextafter(asked.wanted, math.inf)), needed and max(needed, rare)
    return Bounds(value=loss, low=middle - reach, high=high, reason=_tell_rows(metric, needed))


def _bound_ready(asked: _Asked) -> Bounds:
    """Return the slowest of at least four starts."""
    rows = [play.row for play in asked.candidate.plays if play.row.ready_s is not None]
    if not rows:
        return Bounds(reason="its start isn't known")
    slowest = max(row.ready_s for row in rows if row.ready_s is not None) * 1e9
    usual = [row.load_s + (row.first_call_s or 0.0) for row in rows if row.load_s is not None]
    starts = sum(row.starts or 0 for row in rows)
    if starts < LEAST_TAILS:
        return Bounds(value=slowest, reason=f"{starts} of {LEAST_TAILS} starts", needs=MORE_RESTARTS)
    return Bounds(value=slowest, low=min(usual, default=0.0) * 1e9, high=slowest)


def _bound_rate(asked: _Asked) -> Bounds:
    """Return the bounds of a rate, which has no upper one if it was given, or of the cost of a million items by it."""
    is_cost, needs = asked.limit is Limit.COST, rate_needs(asked.policy)
    rate = find_rate(asked.policy, asked.candidate, is_cost=is_cost)
    if isinstance(rate, str):
        return Bounds(reason=rate, needs=needs)
    found = Bounds(value=rate.value, low=rate.low, high=rate.high)
    if math.isinf(rate.high):
        found = replace(found, high=None, reason=f"held {number(rate.low)}/s, and may do more", needs=needs)
    if not is_cost:
        return found
    cost_at = asked.policy.cost_at  # the less, the higher the rate
    value, low, high = (cost_at(one) if one else None for one in (found.value, found.high, found.low))
    return replace(found, value=value, low=low, high=high)


FIGURES: Mapping[Limit, Callable[[_Asked], Bounds]] = {
    Limit.P99: _bound_p99,
    Limit.METRIC: _bound_metric,
    Limit.MOST_METRIC: _bound_metric,
    Limit.DROP: _bound_drop,
    Limit.ERROR: _bound_exact,
    Limit.AGREEMENT: _bound_agreement,
    Limit.MEMORY: _bound_exact,
    Limit.SIZE: _bound_exact,
    Limit.INSTALL: _bound_exact,
    Limit.READY: _bound_ready,
    Limit.RATE: _bound_rate,
    Limit.COST: _bound_rate,
}


def loosen(policy: Policy, candidates: Sequence[Candidate], candidate: Candidate) -> Policy | None:
    """Return a policy with the tightest limits of two digits that one of the candidates meets.

    Returns:
        None if a figure isn't known well enough.
    """
    for _ in range(TRIES):
        findings = judge_limits(policy, candidates)[candidate.label]
        open_ = [finding for finding in findings if finding.standing is not Standing.MET]
        if not open_:
            return policy
        given = dict[Limit, float]()
        for limit, bound in (_find_bound(finding, candidate.row) for finding in open_):
            if bound is None or bound <= 0:
                return None
            given[limit] = read_limit(limit, write_loose_limit(limit, bound))
        limits, shares = {**policy.limits, **given}, policy.shares - given.keys()
        policy = policy.model_copy(update={"limits": limits, "shares": shares})
    return None


def _find_bound(finding: Finding, row: Row) -> tuple[Limit, float | None]:
    """Return the limit to give, and the figure that it must let in; None if that isn't known well enough.

    If nothing is limited and no accuracy is known, it is the error; of an agreement without a limit its lower end.
    """
    bound = finding.high if LIMITS[finding.limit].side == "most" else finding.low
    if bound is not None or not finding.implied:
        return finding.limit, bound
    fidelity = row.fidelity
    if fidelity is None or fidelity.metric is None:
        return Limit.ERROR, fidelity.relative_l2 if fidelity and row.is_judged else None
    metric = fidelity.metric
    if metric.against == "outputs" and not metric.lower_is_better:
        return Limit.AGREEMENT, metric.low
    if metric.change is None:
        return Limit.DROP, None
    return Limit.DROP, metric.change.high if metric.lower_is_better else -metric.change.low


def lacks_figure(finding: Finding) -> bool:
    """Return whether a limit that the policy doesn't give, that of accuracy, has no figure to go by."""
    return finding.implied and finding.standing is Standing.UNKNOWN and finding.value is None
