"""Show where the time of a call goes: look at a session in the worker that has loaded it, and check what was seen."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Sequence
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
        session: loaded, warm or not; `profile(call, calls) -> list[Event]` is optional.
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
    def call() -> object:
        raw = session.execute(session.stage(inputs, 0))
        session.synchronize()
        return session.fetch(raw)

    try:
        return check_events(session.profile(call, PROFILED)), ""
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
