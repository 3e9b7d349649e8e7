"""Show where the time of a call goes (`--trace`): a Chrome/Perfetto file for each arm.

They are made after the race, in workers that have loaded the arms: there a session is looked at, and here what was seen
is checked. Events are written as Chrome and Perfetto read them (Google's "Trace Event Format").
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shootout.core import backends, clock
from shootout.core.adapter import Built, Event, Session
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.core.contract import Arrays
from shootout.core.errors import ArmFailed, SkippedArm, explained
from shootout.core.host.placement import Placement, child_environment, on_cpus
from shootout.core.journal.folder import LOGS, TRACES
from shootout.core.worker import reported
from shootout.core.worker.availability import PythonInterpreter
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.tell.progress import ProgressDisplay


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
"""Calls under a profiler: enough to see a pattern, few enough to read."""


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


def spans(events: Iterable[Event]) -> list[Event]:
    """Return the events with a duration, in the order of their starts; the outer one first."""
    lasting = [event for event in events if event.get("ph") == "X" and event.get("dur") is not None]
    return sorted(lasting, key=lambda event: (event["ts"], -event["dur"]))


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


CALLS, SHOWN = 50, 3
"""Calls without a profiler when the session is warm, and those of them that are drawn."""


def trace_arms(
    groups: Mapping[str, Mapping[str, Built]],
    placement: Placement,
    out: Path,
    others: Mapping[str, PythonInterpreter],
    progress: ProgressDisplay,
    limit: Deadline,
) -> None:
    """Trace every arm that was built, one after the other; controls and second copies are left out.

    Args:
        groups: by group name and label, as `Preparation.run` returns them.
        out: the run folder.
        others: the interpreters that targets name.
        progress: hears of each trace in a line.
        limit: when it ends: no arm is begun then, and one that is under way is given up.
    """
    folder = out / TRACES
    folder.mkdir(exist_ok=True)
    progress.stage("tracing")
    with on_cpus(placement.parent):
        for index, (group, arms) in enumerate(groups.items()):
            for built in [made for made in arms.values() if not made.arm.control and made.arm.ordinal == 1]:
                if not limit.allows(0.0):
                    progress.say(f"--max-time left no time to trace {built.arm.label} and those after it")
                    return
                path = folder / f"g{index}-{Path(log_name(built.arm.label)).stem}.json"
                progress.say(f"{group}, {_trace_arm(built, placement, path, out / LOGS, others, limit)}")


def _trace_arm(
    built: Built, placement: Placement, path: Path, logs: Path, others: Mapping[str, PythonInterpreter], limit: Deadline
) -> str:
    place, log = placement.narrowed(built.arm.threads), logs / log_name(f"trace-{path.stem}")
    other, more = others.get(built.arm.target.python), backends.capabilities(built.arm.target.backend).variables
    environment = child_environment(built.arm.threads, 0, more)
    try:
        with WorkerProcess(environment, place.arms, log, other) as process:
            process.ask("load", LOAD_TIMEOUT_S, limit.left_s, built=built)
            asked = {"function": f"{read_profile.__module__}:read_profile", "arguments": {"calls": CALLS}}
            found = process.ask("measure", BUILD_TIMEOUT_S, limit.left_s, **asked, is_loaded=True)
            looked = check_profile(found, CALLS)
    except (ArmFailed, SkippedArm) as error:
        if not limit.allows(0.0):
            return f"{built.arm.label}: no trace: --max-time was over"
        return f"{built.arm.label}: no trace: {error}"
    tracks = {"the harness's steps": _draw_calls(looked), "its own profiler": looked.events}
    path.write_text(json.dumps(document(built.arm.label, {k: v for k, v in tracks.items() if v})), encoding="utf-8")
    broke = f"; its profiler broke: {looked.fault}" if looked.fault else ""
    return f"{built.arm.label}: {TRACES}/{path.name}{broke}"


def _draw_calls(looked: Looked) -> list[Event]:
    """Draw the last calls, each a span around its steps."""
    return [
        {"name": name, "ph": "X", "ts": began_ns / 1e3, "dur": (ended_ns - began_ns) / 1e3, "pid": 0, "tid": 0}
        for steps in looked.steps[-SHOWN:]
        for name, began_ns, ended_ns in [("call", steps[0][1], steps[-1][2]), *steps]
    ]
