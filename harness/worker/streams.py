"""The timed loops of sessions that work at once, one thread each: as fast as they can, or on requests that arrive.

Each loop belongs to one thread and shares lists with the others; a list's item is set, and a counter is advanced, in
one step that no other thread can split. The clock is that of `measure`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from shootout import clock as measure
from shootout.clock import Call

_START_NS = 5_000_000
"""From here to the origin of a schedule, so that every server is waiting by then."""


@dataclass(slots=True, kw_only=True)
class Meeting:
    """Where streams wait for each other; one for each window, with a place for each stream."""

    ready: list[bool]
    done: list[bool]


def meeting(streams: int) -> Meeting:
    """A meeting that nobody has come to yet."""
    return Meeting(ready=[False] * streams, done=[False] * streams)


def read_stream(
    call: Call, buffers: int, meeting: Meeting, mine: int, *, per_look: int, lead_in: int, window_ns: int, calls: int
) -> tuple[int, int]:
    """Call as fast as possible, and say how fast that was while every other stream did the same.

    No stream is read while another one rests: each goes on calling until all are warm, then for the window, then until
    all have had theirs. A stream that raises lets the others end.

    Args:
        mine: this stream's place in the meeting.
        per_look: calls between two looks at the clock, more than 1 where a call is short.
        lead_in: calls before this stream is warm.
        window_ns: how long to read, and `calls` how many calls at least.

    Returns:
        How many calls the window held, and how many nanoseconds they took.
    """
    several = measure.repeated(call, buffers, per_look)
    clock = measure.now_ns
    looks = 0
    ready, done = meeting.ready, meeting.done
    try:
        for _ in range(-(-lead_in // per_look)):
            several(0)
        ready[mine] = True
        while not all(ready):
            several(0)
        began = ended = clock()
        while ended - began < window_ns or looks * per_look < calls:
            several(0)
            ended = clock()
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


def service(schedule_ns: Sequence[int], *, counted: int, limit_ns: float, most_late: float) -> Service:
    """A queue whose schedule begins in a moment."""
    origin, empty = measure.now_ns() + _START_NS, bytes(8 * len(schedule_ns))
    return Service(
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
    clock, wait = measure.now_ns, measure.wait_until
    while len(late) <= service.most_late and (ticket := next(service.tickets)) < len(due_ns):
        due = due_ns[ticket]
        wait(due)
        begun_ns[ticket] = clock()
        call(ticket % buffers)
        ended_ns[ticket] = ended = clock()
        if ended - due > service.limit_ns and ticket >= service.counted:
            late.append(ticket)
