"""Where the time of a call goes, seen in the worker: the harness's own steps, and the backend's own profiler."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from shootout import clock
from shootout.backends import reported
from shootout.contract import Arrays
from shootout.messages import Looked
from shootout.session import Session
from shootout.trace_events import Event

PROFILED = 5
"""So many calls go under a profiler: enough to see a pattern, few enough to read."""


def read_profile(session: Session, buffers: Sequence[Arrays], calls: int) -> Looked:
    """Run some calls step by step, then some under the session's profiler, where it has one.

    Args:
        session: loaded, warm or not; `profile(call, calls) -> list[Event]` is optional.
        buffers: input sets to rotate through.
        calls: how many without a profiler.
    """
    turns = [index % len(buffers) for index in range(calls)]
    steps = tuple(clock.read_steps(_steps(session, turn), buffers[turn]) for turn in turns)
    events, fault = _profiled(session, buffers[0])
    return Looked(steps=steps, events=events, fault=fault)


def _steps(session: Session, slot: int) -> list[tuple[str, Callable[[Any], Any]]]:
    def synchronize(raw: Any) -> Any:
        session.synchronize()
        return raw

    return [
        ("stage", lambda inputs: session.stage(inputs, slot)),
        ("execute", session.execute),
        ("synchronize", synchronize),
        ("fetch", session.fetch),
    ]


def _profiled(session: Session, inputs: Arrays) -> tuple[tuple[Event, ...], str]:
    def call() -> object:
        raw = session.execute(session.stage(inputs, 0))
        session.synchronize()
        return session.fetch(raw)

    try:
        return reported.events(session.profile(call, PROFILED)), ""
    except Exception as error:
        traceback.print_exc()
        return (), f"{type(error).__name__}: {error}"
