"""Requests that arrive by themselves, at a given rate or at the highest whose p99 holds a limit (see `load_search`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from shootout.core.adapter import Built, Session
from shootout.core.contract import Arm
from shootout.core.messages import Turn
from shootout.core.scenario import LimitedTail, Scenario, StudyOption
from shootout.core.units import measured, number
from shootout.core.worker.blocks import Caller
from shootout.scenarios.concurrent import (
    INSTANCES,
    open_instances,
    spread_instances,
)

if TYPE_CHECKING:
    from shootout.core.messages import LoadTestResult
    from shootout.scenarios.load_search import LoadTest


REQUESTS = "is for requests that arrive by themselves"
RATE = StudyOption(
    help="requests a second; by default the highest that keeps the limit on p99 is found.",
    above=0.0,
    most=1e6,
    flag="--rate",
    use=REQUESTS,
    is_told=False,
    is_always_hashed=True,
)
P99_LIMIT = StudyOption(
    help="limit on the 99th percentile of latency; by default five times the baseline's median call without load.",
    above=0.0,
    most=1e9,
    unit="ms",
    flag="--p99",
    use=REQUESTS,
    is_told=False,
    is_always_hashed=True,
)


class Serve(Scenario):
    """Requests that arrive by themselves and wait for a free session. A worker loads this, but not `load_search`."""

    name = "serve"
    measures = "the latencies of requests that arrive by themselves"
    options: ClassVar = {
        "instances": INSTANCES,
        "rate": RATE,
        "p99_limit_ms": P99_LIMIT,
    }
    divides_threads = True
    scopes = ("end_to_end",)
    fills_turns = is_by_call = is_one_call = False
    objective = ""

    def tell_time(self, row: Any) -> str:
        """Write the rate and the p99 of requests, where that is known."""
        if row.serve is None or row.serve.p99_ns is None:
            return super().tell_time(row)
        return f"{number(row.serve.rate_per_s.value)} requests/s with a p99 of {measured(row.serve.p99_ns)}"

    def explain_times(self, rows: Sequence[Any]) -> str:
        """Explain what the time of requests is."""
        served = [row.serve for row in rows if row.serve]
        if not served:
            return ""
        what = "the time per request at the highest rate that held the limit" if served[0].searched else "p99"
        if any(one.searched and one.may_do_more for one in served):
            what += ", above which none was tried, or some failed in disturbed rounds alone"
        return f"time is {what}; latencies count from a request's arrival, p99 is its 99 % upper bound."

    def items(self, arm: Arm) -> int:
        """Return the items of a request, since its time is of one; a given rate is told as it is."""
        return arm.batch

    def spread(self, arm: Arm, _batches: Sequence[int], options: Mapping[str, Any]) -> list[Arm]:
        """Return the arm with each number of sessions."""
        counts = options["instances"] or (1,)
        return spread_instances(arm, [(arm.batch, count) for count in counts], "instances={instances}")

    def tail(self, done: Sequence[LoadTestResult], time_ns: float, disturbed_share: float = 0.0) -> LimitedTail:
        """Return how an arm's restarts stand to the limit on their p99."""
        from shootout.scenarios.load_search import hold  # which no worker needs

        return hold(done, time_ns, disturbed_share)

    def terms(
        self, _record: object, options: Mapping[str, Any], served: Sequence[LoadTestResult], _restart_s: float
    ) -> LoadTest:
        """Return the rate that requests come at, or the limit under which the highest is searched.

        Args:
            served: by earlier restarts: their limit stays, so that all have the same.
        """
        from shootout.scenarios.load_search import LoadTest

        limit_ms = options["p99_limit_ms"]
        limit_ns = limit_ms * 1e6 if limit_ms else next((one.limit_ns for one in served), 0.0)
        return LoadTest(rate_per_s=options["rate"], limit_ns=limit_ns)

    def open(self, built: Built, sessions: Sequence[Session], _seed: int) -> Caller:
        """Return what serves requests with all sessions."""
        return open_instances(built, sessions)

    def values_ns(self, turns: Sequence[Turn]) -> tuple[float, ...]:
        """Return the time a request at the highest rate that held; at a given rate, each turn's p99."""
        from shootout.scenarios.load_search import outcome_ns

        return outcome_ns(turns)

    def counts_rounds(self, turns: Sequence[Turn]) -> bool:
        """Tell whether a rate was given: a search has one figure for all rounds."""
        from shootout.scenarios.load_search import given

        return given(turns)
