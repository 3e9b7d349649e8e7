"""Show where the time of a call goes: look at a session in the worker that has loaded it, and check what was seen.

Events are written as Chrome and Perfetto read them (Google's "Trace Event Format").
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shootout.core import clock
from shootout.core.adapter import Event, Session
from shootout.core.contract import Arrays
from shootout.core.errors import ArmFailed, explained
from shootout.core.worker import reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Hold what some calls of a session look like from inside.

    Attributes:
        steps: of each call without a profiler, (name, began, ended) of its steps, in nanoseconds.
        events: of a few more calls, by the backend's own profiler; empty where it has none, or it broke.
        fault: how it broke.
    """

    steps: tuple[tuple[tuple[str, int, int], ...], ...]
    events: tuple[Event, ...] = ()
    fault: str = ""


PROFILED = 5
"""So many calls go under a profiler: enough to see a pattern, few enough to read."""


def read_profile(session: Session, buffers: Sequence[Arrays], calls: int) -> Looked:
    """Run some calls step by step, then some under the session's profiler, if it has one.

    Args:
        session: loaded, warm or not; a `ProfiledSession` or any other.
        buffers: input sets to rotate through.
        calls: how many without a profiler.
    """
    turns = [index % len(buffers) for index in range(calls)]
    steps = tuple(clock.read_steps(_list_steps(session, turn), buffers[turn]) for turn in turns)
    events, fault = _run_profiler(session, buffers[0])
    return Looked(steps=steps, events=events, fault=fault)


def _list_steps(session: Session, slot: int) -> list[tuple[str, Callable[[Any], Any]]]:
    def synchronize(raw: Any) -> Any:
        session.synchronize()
        return raw

    return [
        ("stage", lambda inputs: session.stage(inputs, slot)),
        ("execute", session.execute),
        ("synchronize", synchronize),
        ("fetch", session.fetch),
    ]


def _run_profiler(session: Session, inputs: Arrays) -> tuple[tuple[Event, ...], str]:
    profile = getattr(session, "profile", None)
    if profile is None:
        return (), ""

    def call() -> object:
        raw = session.execute(session.stage(inputs, 0))
        session.synchronize()
        return session.fetch(raw)

    try:
        return check_events(profile(call, PROFILED)), ""
    except Exception as error:
        traceback.print_exc()
        return (), explained(error)


def check_events(given: Iterable[Event]) -> tuple[Event, ...]:
    """Return a profiler's events as plain JSON values.

    Raises:
        ArmFailed, TypeError, ValueError: nothing can be drawn of it.
    """
    plain: list[Event] = json.loads(json.dumps([dict(event) for event in given], allow_nan=False))
    if fault := reported.find_fault(plain):
        raise ArmFailed(fault)
    for event in plain:
        lasts = event.get("ph") == "X" and event.get("dur") is not None
        reported.check_type(str, event.get("name"), "an event's name: ")
        for name in ("ts", "dur") if lasts else ():
            reported.check_type(float, event.get(name), f"an event's {name}: ")
    return tuple(plain)


def check_profile(found: Any, calls: int) -> Looked:
    """Return what a worker saw of so many calls, if it can be drawn.

    Raises:
        ArmFailed: it can't.
    """
    looked: Looked = reported.check_type(Looked, found, "its profile: ")
    steps = {tuple(name for name, _, _ in one) for one in looked.steps}
    if len(looked.steps) != calls or len(steps) != 1 or not all(steps):
        raise ArmFailed("it reports other calls than it was to make")
    try:
        return replace(looked, events=check_events(looked.events))
    except (TypeError, ValueError) as error:
        raise ArmFailed(f"what its profiler tells: {explained(error)}") from None


_NUMBER = re.compile(r"\.\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationShare:
    """Hold the time that all events of one name took by themselves, without those nested in them."""

    name: str
    count: int
    us: float


def spans(events: Iterable[Event]) -> list[Event]:
    """Return the events with a duration, in the order of their starts; the outer one first."""
    lasting = [event for event in events if event.get("ph") == "X" and event.get("dur") is not None]
    return sorted(lasting, key=lambda event: (event["ts"], -event["dur"]))


def shares(events: Iterable[Event]) -> list[OperationShare]:
    """Sum up events by name (`fusion.7` is a `fusion`), the one with the most time of its own first.

    Nesting counts within a thread only.
    """
    counts: dict[str, int] = {}
    own_us: dict[str, float] = {}
    open_spans: dict[tuple[Any, Any], list[Event]] = {}
    for event in spans(events):
        name, outer = _kind_of(event), open_spans.setdefault((event.get("pid"), event.get("tid")), [])
        while outer and outer[-1]["ts"] + outer[-1]["dur"] <= event["ts"]:
            outer.pop()
        if outer:
            own_us[_kind_of(outer[-1])] -= event["dur"]
        counts[name] = counts.get(name, 0) + 1
        own_us[name] = own_us.get(name, 0.0) + event["dur"]
        outer.append(event)
    found = [OperationShare(name=name, count=count, us=max(0.0, own_us[name])) for name, count in counts.items()]
    return sorted(found, key=lambda share: -share.us)


def _kind_of(event: Event) -> str:
    return _NUMBER.sub("", str(event["name"]))


def document(label: str, tracks: Mapping[str, Sequence[Event]]) -> dict[str, Any]:
    """Write one file for a viewer: each track is a process of its own there, beginning at the end of the one before."""
    events: list[Event] = []
    began_us = 0.0
    for index, (track, found) in enumerate(tracks.items()):
        lasting = spans(found)
        first = min((event["ts"] for event in lasting), default=0.0)
        events.append({"name": "process_name", "ph": "M", "pid": index, "args": {"name": f"{label}: {track}"}})
        moved = [{**event, "ts": event["ts"] - first + began_us, "pid": index} for event in lasting]
        events += [{**event, "tid": thread} for event, thread in zip(moved, _number_threads(lasting), strict=True)]
        began_us = max((event["ts"] + event["dur"] for event in moved), default=began_us)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _number_threads(events: Sequence[Event]) -> list[int]:
    """Number the threads: viewers refuse names, and some profilers give them."""
    seen: dict[tuple[Any, Any], int] = {}
    return [seen.setdefault((event.get("pid"), event.get("tid")), len(seen)) for event in events]
