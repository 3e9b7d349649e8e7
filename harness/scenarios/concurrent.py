"""Sessions of one arm that work at once, each on inputs of its own and in a thread of its own. Runs in the worker.

They call as fast as they can (throughput), or serve requests that arrive by themselves (serve). Each timed loop belongs
to one thread and shares lists with the others; a list's item is set, and a counter is advanced, in one step that no
other thread can split.

Requests make an open loop: its schedule is fixed before the first one and never waits for an answer. Times between
arrivals are exponential (a Poisson process), which is what many independent users make together.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import numpy as np

from shootout.core import clock
from shootout.core.adapter import Built, Session
from shootout.core.clock import Call
from shootout.core.constants import BLOCK_CALLS, GPU_LEAD_IN_NS, LEAD_IN_CALLS, LONG_CALL_NS, SHORT_CALL_NS
from shootout.core.contract import Arm, Array, Arrays
from shootout.core.exported.calls import Stream
from shootout.core.messages import Ask, Scope, Tuned, Turn
from shootout.core.scenario import StudyOption
from shootout.core.worker.blocks import Blocks

T = TypeVar("T")
_START_NS = 5_000_000
"""From here to the origin of a schedule, so that every server is waiting by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStep(Ask):
    """Requests that arrive by themselves, for one turn of an arm that serves.

    Attributes:
        rate_per_s: requests a second, on average; each is one call.
        requests: how many count, after `lead_in` more that only fill the queue.
        seed: of the arrivals, see `schedule_ns`.
        limit_ns: how long a request may take from its arrival.
        most_late: so many may take longer; at one more the turn ends early, its answer known. None: it never does.
    """

    rate_per_s: float
    requests: int
    lead_in: int
    seed: int
    limit_ns: float
    most_late: int | None = None

    def takes_s(self, call_s: float) -> float:
        """Return the seconds until the last answer: an arm that can't follow takes as long as its calls do."""
        return (self.requests + self.lead_in) * max(1 / self.rate_per_s, call_s)


SPIN_NS = 200_000
"""Spend the last part of a wait awake, since a sleeper wakes up too late by up to this much."""
WINDOW_NS = 50_000_000
"""Several instances at once are read for at least so long, and `BLOCK_CALLS` calls each."""
SERVE_REQUESTS = 1_000
"""A p99 rests on at least so many requests, and on those of `SERVE_STEP_S` seconds."""
SERVE_STEP_S = 1.0
SERVE_LEAD_IN = 0.1
"""Requests that come first and only fill the queue, as a share of those that count."""
SERVE_ROUNDS = 9
"""Steps of the search in a restart: two or three to have the rate between two others, the rest to halve that."""
GIVEN_ROUNDS = 3
"""Steps at a given rate: nothing is narrowed down, and more restarts tell more than a longer one."""
SERVE_LIMIT_FACTOR = 5.0
"""The limit on p99 where none is given, in calls of the baseline without load."""
INSTANCES = StudyOption(
    help="sessions that work at once; by default 1 for serving, for throughput 1, 2, 4 … as many as threads.",
    kind=int,
    default=(),
    least=1,
    most=2**20,
    flag="--instances",
    use="are sessions at work at once",
    is_told=False,
    is_always_hashed=True,
)


def spread_instances(arm: Arm, settings: Sequence[tuple[int, int]], words: str) -> list[Arm]:
    """Return an arm for each batch and number of sessions; its threads are shared among these.

    Args:
        words: the setting for people, of which one alone is not told: `instances={instances}`.
    """
    return [
        replace(
            arm,
            batch=batch,
            instances=count,
            threads=max(1, arm.threads // count),
            setting=words.format(batch=batch, instances=count) if len(settings) > 1 else "",
        )
        for batch, count in settings
    ]


def open_instances(built: Built, sessions: Sequence[Session]) -> Instances:
    """Return what makes the calls of all of an arm's sessions, each on inputs of its own."""
    exported, on_gpu = built.exported, built.arm.target.device.is_gpu
    sets = exported.input_buffers()
    inputs = [exported.pick(sets), *(exported.pick(exported.input_buffers()) for _ in sessions[1:])]
    return Instances(sessions, inputs, built.arm.batch, on_gpu=on_gpu, stream=exported.stream, sets=sets)


class Instances:
    """Do what `Blocks` does for one session that calls alone.

    Args:
        sessions: all of one arm; no two share anything.
        inputs: each session's own input buffers.
        batch: items in one call.
        on_gpu: a window begins with calls until a GPU's clock has risen again.
        stream, sets: see `Blocks`; each session makes the calls of a stream of its own.
    """

    calls_alone = False

    def __init__(
        self,
        sessions: Sequence[Session],
        inputs: Sequence[Sequence[Arrays]],
        batch: int,
        *,
        on_gpu: bool = False,
        stream: Stream | None = None,
        sets: Sequence[Arrays] = (),
    ) -> None:
        self._sessions, self._inputs, self._batch = sessions, inputs, batch
        self._lead_in_ns = GPU_LEAD_IN_NS if on_gpu else 0
        self._blocks = [
            Blocks(session, buffers, stream=stream, sets=sets)
            for session, buffers in zip(sessions, inputs, strict=True)
        ]
        self._threads = [ThreadPoolExecutor(1) for _ in sessions[1:]]  # the first one runs in this thread
        self._tuned: Tuned | None = None

    @property
    def sets(self) -> Sequence[Arrays]:
        """Return the first session's input sets."""
        return self._blocks[0].sets

    @property
    def buffers(self) -> Sequence[Arrays]:
        """Return those of the first session that calls outside of a stream rotate through."""
        return self._blocks[0].buffers

    @property
    def together(self) -> Callable[[], list[list[Arrays]]] | None:
        """Return what gives each session's outputs while the others compute; None for one."""
        return self.outputs if len(self._sessions) > 1 else None

    def first_call_s(self) -> float:
        """Return the seconds of the first session's first call; the other sessions have had theirs by then."""
        first_s, *_ = [blocks.first_call_s() for blocks in self._blocks]
        return first_s

    def outputs(self) -> list[list[Arrays]]:
        """Return each session's outputs for each of its buffers, computed while the others compute too."""
        return self._run_on_all(self._fetch_outputs)

    def at_once(self, job: Callable[[Blocks], T]) -> list[T]:
        """Return what a job gives for every session, all at once."""
        return self._run_on_all(lambda mine: job(self._blocks[mine]))

    def warm(self, calls: int, ns: int) -> Array:
        """Return the nanoseconds of up to `calls` calls of the first session while all others call too."""
        with self._keep_others_calling():
            return self._blocks[0].warm(calls, ns)

    def tune(self) -> Tuned:
        """Find how long a call takes while no other session runs, and about how many calls make one reading.

        That is never 1, since no reading is of a single call.
        """
        call_ns = self._blocks[0].tune().call_ns
        per_reading = {scope: max(2, int(len(self._sessions) * WINDOW_NS / ns)) for scope, ns in call_ns.items()}
        self._tuned = Tuned(per_reading=per_reading, call_ns=call_ns)
        return self._tuned

    def play(self, scopes: Sequence[Scope]) -> dict[Scope, Array]:
        """Play one window per scope, with all sessions calling as fast as they can; return nanoseconds per item."""
        clock.quiet_collector()
        return {scope: np.array([self._play_window(scope)]) for scope in scopes}

    def turn(self, ask: Ask) -> Turn:
        """Play what is asked in one turn: windows, or requests."""
        if not isinstance(ask, RateStep):
            return Turn(latency_ns=self.play(ask.scopes))
        return Turn(latency_ns={"end_to_end": self.serve(ask)})

    def serve(self, offer: RateStep) -> Array:
        """Serve requests as they arrive; return nanoseconds from the arrival of each that counts to its result."""
        clock.quiet_collector()
        due_ns = schedule_ns(offer.rate_per_s, offer.lead_in + offer.requests, offer.seed)
        queue = Service.beginning(
            due_ns,
            counted=offer.lead_in,
            limit_ns=offer.limit_ns,
            most_late=math.inf if offer.most_late is None else offer.most_late,
        )
        self._run_on_all(lambda mine: serve_stream(self._get_call(mine, "end_to_end"), self._buffer_count, queue))
        due, ended = np.array([queue.due_ns, queue.ended_ns])[:, offer.lead_in :]
        latency_ns: Array = (ended - due)[ended > 0]
        return latency_ns

    @property
    def _buffer_count(self) -> int:
        return len(self._inputs[0])

    def _get_call(self, mine: int, scope: Scope) -> Call:
        return self._blocks[mine].calls[scope]

    def _fetch_outputs(self, mine: int) -> list[Arrays]:
        """Return the outputs of one session, each fetched before the next call overwrites it."""
        return [self._blocks[mine].answered(buffer) for buffer in range(self._buffer_count)]

    def _play_window(self, scope: Scope) -> float:
        assert self._tuned is not None, "tune comes first"
        call_ns = self._tuned.call_ns[scope]
        window_ns, calls = (0, 1) if call_ns > LONG_CALL_NS else (WINDOW_NS, BLOCK_CALLS)
        meeting = Meeting(len(self._sessions))

        def stream(mine: int) -> tuple[int, int]:
            return read_stream(
                self._get_call(mine, scope),
                self._buffer_count,
                meeting,
                mine,
                per_look=max(1, int(SHORT_CALL_NS / max(call_ns, 1.0))),
                lead_in=1 if call_ns > LONG_CALL_NS else max(LEAD_IN_CALLS, int(self._lead_in_ns / max(call_ns, 1.0))),
                window_ns=window_ns,
                calls=calls,
            )

        calls_per_ns = sum(count / ns for count, ns in self._run_on_all(stream))
        return 1.0 / (calls_per_ns * self._batch)

    @contextmanager
    def _keep_others_calling(self) -> Iterator[None]:
        """Let all sessions but the first one call without a pause inside."""
        over = [False]

        def keep_calling(mine: int) -> None:
            call = clock.repeated(self._get_call(mine, "end_to_end"), self._buffer_count, 1)
            while not over[0]:
                call(0)

        jobs = [thread.submit(keep_calling, mine) for mine, thread in enumerate(self._threads, start=1)]
        try:
            yield
        finally:
            over[0] = True
        for job in jobs:
            job.result()

    def _run_on_all(self, job: Callable[[int], T]) -> list[T]:
        """Do a job for every session at once, the first one's in this thread; return what each gave."""
        others = [thread.submit(job, mine) for mine, thread in enumerate(self._threads, start=1)]
        first = job(0)
        return [first, *(other.result() for other in others)]


def schedule_ns(rate_per_s: float, requests: int, seed: int) -> list[int]:
    """Draw the nanoseconds from the start to each request's arrival, ascending.

    The same seed gives the same times in units of the mean gap, at any rate. So arms that are offered different rates
    meet the same luck, and at a higher rate no request waits less.

    Args:
        rate_per_s: requests a second, on average.
        requests: how many.
        seed: of the gaps.
    """
    gaps = np.random.default_rng(seed).exponential(size=requests)
    due: list[int] = np.rint(np.cumsum(gaps) * (1e9 / rate_per_s)).astype(np.int64).tolist()
    return due


class Meeting:
    """Let streams wait for each other; one for each window, with a place for each stream."""

    def __init__(self, streams: int) -> None:
        self.ready, self.done = [False] * streams, [False] * streams


def read_stream(
    call: Call,
    buffers: int,
    meeting: Meeting,
    mine: int,
    *,
    per_look: int,
    lead_in: int,
    window_ns: int,
    calls: int,
) -> tuple[int, int]:
    """Call as fast as possible, and return how fast that was while every other stream did the same.

    No stream is read while another one rests. Each calls until all are warm, then for the window, then until all
    windows are over. A stream that raises lets the others end.

    Args:
        mine: this stream's place in the meeting.
        per_look: calls between two looks at the clock, more than 1 where a call is short.
        lead_in: calls before this stream is warm.
        window_ns: how long to read, and `calls` how many calls at least.

    Returns:
        How many calls the window held, and how many nanoseconds they took.
    """
    several = clock.repeated(call, buffers, per_look)
    now_ns = clock.now_ns
    looks = 0
    ready, done = meeting.ready, meeting.done
    try:
        for _ in range(-(-lead_in // per_look)):
            several(0)
        ready[mine] = True
        while not all(ready):
            several(0)
        began = ended = now_ns()
        while ended - began < window_ns or looks * per_look < calls:
            several(0)
            ended = now_ns()
            looks += 1
        done[mine] = True
        while not all(done):
            several(0)
    finally:
        ready[mine] = done[mine] = True
    return looks * per_look, ended - began


@dataclass(slots=True, kw_only=True)
class Service:
    """One queue of requests and what became of them; all servers share it.

    Attributes:
        due_ns: when each request arrives, ascending, on the harness's clock; fixed before the first one.
        limit_ns: how long a request may take from its arrival.
        most_late: so many requests may take longer; one more ends the service, as there is nothing left to learn.
        counted: the first request that counts; those before it fill the queue.
        begun_ns: when each was begun, 0 for those that weren't.
        ended_ns: when its result was there.
        late: the requests that took longer.
    """

    due_ns: Sequence[int]
    limit_ns: float
    most_late: float
    counted: int
    begun_ns: array[int]
    ended_ns: array[int]
    late: list[int] = field(default_factory=list)
    tickets: Iterator[int] = field(default_factory=count)

    @classmethod
    def beginning(cls, schedule_ns: Sequence[int], *, counted: int, limit_ns: float, most_late: float) -> Service:
        """Make a queue whose schedule begins in a moment."""
        origin, empty = clock.now_ns() + _START_NS, bytes(8 * len(schedule_ns))
        return cls(
            due_ns=[origin + due for due in schedule_ns],
            limit_ns=limit_ns,
            most_late=most_late,
            counted=counted,
            begun_ns=array("q", empty),
            ended_ns=array("q", empty),
        )


def serve_stream(call: Call, buffers: int, service: Service) -> None:
    """Serve a queue, first come, first served, until it is empty or too many requests were late.

    A server that is free takes the next ticket and waits for that request to arrive. So requests are begun in the order
    of their arrival, each by the server that was free first, and no thread in between costs time.
    """
    due_ns, begun_ns, ended_ns, late = service.due_ns, service.begun_ns, service.ended_ns, service.late
    now_ns, wait = clock.now_ns, wait_until
    while len(late) <= service.most_late and (ticket := next(service.tickets)) < len(due_ns):
        due = due_ns[ticket]
        wait(due)
        begun_ns[ticket] = now_ns()
        call(ticket % buffers)
        ended_ns[ticket] = ended = now_ns()
        if ended - due > service.limit_ns and ticket >= service.counted:
            late.append(ticket)


def wait_until(due_ns: int) -> None:
    """Sleep while there is time, then look at the clock until it is `due_ns`; other threads may run all along."""
    while (left := due_ns - clock.now_ns()) > 0:
        clock.sleep((left - SPIN_NS) / 1e9 if left > SPIN_NS else 0)
