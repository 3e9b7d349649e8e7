"""Sessions of one arm that work at once, each on inputs of its own and in a thread of its own. Runs in the worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from shootout import clock
from shootout.constants import BLOCK_CALLS, LEAD_IN_CALLS, LONG_CALL_NS, SHORT_CALL_NS, WINDOW_NS
from shootout.contract import Array, Arrays, Session
from shootout.messages import Offer, Scope, Tuned
from shootout.worker import arrivals, streams
from shootout.worker.blocks import Blocks

T = TypeVar("T")


class Instances:
    """What `Blocks` is for one session that calls alone.

    Args:
        sessions: all of one arm; no two share anything.
        inputs: each session's own input buffers.
        batch: items in one call.
    """

    def __init__(self, sessions: Sequence[Session], inputs: Sequence[Sequence[Arrays]], batch: int) -> None:
        self._sessions, self._inputs, self._batch = sessions, inputs, batch
        self._blocks = [Blocks(session, buffers) for session, buffers in zip(sessions, inputs, strict=True)]
        self._threads = [ThreadPoolExecutor(1) for _ in sessions[1:]]  # the first one runs in this thread
        self._tuned: Tuned | None = None

    def first_call_s(self) -> float:
        """Seconds of the first session's first call; the others have had theirs on return."""
        first_s, *_ = [blocks.first_call_s() for blocks in self._blocks]
        return first_s

    def outputs(self) -> list[list[Arrays]]:
        """What each session answers to each of its buffers while the others answer too."""
        return self._all(self._answers)

    def warm(self, calls: int, ns: int) -> Array:
        """Nanoseconds of up to `calls` calls of the first session while all others call too."""
        with self._company():
            return self._blocks[0].warm(calls, ns)

    def tune(self) -> Tuned:
        """How long a call takes while no other runs, and about how many make one reading: never 1, it is no call's."""
        call_ns = self._blocks[0].tune().call_ns
        per_reading = {scope: max(2, int(len(self._sessions) * WINDOW_NS / ns)) for scope, ns in call_ns.items()}
        self._tuned = Tuned(per_reading=per_reading, call_ns=call_ns)
        return self._tuned

    def play(self, scopes: Sequence[Scope]) -> dict[Scope, Array]:
        """By scope, the wall nanoseconds per item of one window in which all sessions call as fast as they can."""
        clock.quiet_collector()
        return {scope: np.array([self._window(scope)]) for scope in scopes}

    def serve(self, offer: Offer) -> tuple[Array, float]:
        """Serve requests as they arrive.

        Returns:
            Nanoseconds from each request's arrival to its result, those served that count; and how late the harness
            begins a request that finds a free session, see `Turn`.
        """
        clock.quiet_collector()
        due_ns = arrivals.schedule_ns(offer.rate_per_s, offer.lead_in + offer.requests, offer.seed)
        queue = streams.service(
            due_ns,
            counted=offer.lead_in,
            limit_ns=offer.limit_ns,
            most_late=math.inf if offer.most_late is None else offer.most_late,
        )
        self._all(lambda mine: streams.serve_stream(self._call(mine, Scope.END_TO_END), self._buffers, queue))
        due, begun, ended = np.array([queue.due_ns, queue.begun_ns, queue.ended_ns])[:, offer.lead_in :]
        served = ended > 0
        return (ended - due)[served], float(np.quantile((begun - due)[served], 0.1))

    @property
    def _buffers(self) -> int:
        return len(self._inputs[0])

    def _call(self, mine: int, scope: Scope) -> clock.Call:
        return self._blocks[mine].calls[scope]

    def _answers(self, mine: int) -> list[Arrays]:
        """The outputs of one session; fetched at once, since only they survive the next call."""
        call = self._call(mine, Scope.END_TO_END)
        return [call(buffer) for buffer in range(self._buffers)]  # type: ignore[misc]  # what `bracketed` returns

    def _window(self, scope: Scope) -> float:
        assert self._tuned is not None, "tune comes first"
        call_ns = self._tuned.call_ns[scope]
        window_ns, calls = (0, 1) if call_ns > LONG_CALL_NS else (WINDOW_NS, BLOCK_CALLS)
        meeting = streams.meeting(len(self._sessions))

        def stream(mine: int) -> tuple[int, int]:
            return streams.read_stream(
                self._call(mine, scope),
                self._buffers,
                meeting,
                mine,
                per_look=max(1, int(SHORT_CALL_NS / max(call_ns, 1.0))),
                lead_in=1 if call_ns > LONG_CALL_NS else LEAD_IN_CALLS,
                window_ns=window_ns,
                calls=calls,
            )

        calls_per_ns = sum(count / ns for count, ns in self._all(stream))
        return 1.0 / (calls_per_ns * self._batch)

    @contextmanager
    def _company(self) -> Iterator[None]:
        """Meanwhile all sessions but the first call and call."""
        over = [False]

        def keep_calling(mine: int) -> None:
            call = clock.repeated(self._call(mine, Scope.END_TO_END), self._buffers, 1)
            while not over[0]:
                call(0)

        jobs = [thread.submit(keep_calling, mine) for mine, thread in enumerate(self._threads, start=1)]
        try:
            yield
        finally:
            over[0] = True
        for job in jobs:
            job.result()

    def _all(self, job: Callable[[int], T]) -> list[T]:
        """Do a job for every session at once, the first one's in this thread; what each gave."""
        others = [thread.submit(job, mine) for mine, thread in enumerate(self._threads, start=1)]
        first = job(0)
        return [first, *(other.result() for other in others)]
