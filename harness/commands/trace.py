"""`--trace`: one Chrome/Perfetto file for each arm and a short text, made after the race in workers of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shootout.apps.trace import Looked, check_profile, document, read_profile, shares
from shootout.core import backends
from shootout.core.adapter import Built, Event
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.core.errors import ArmFailed, SkippedArm
from shootout.core.host.placement import Placement, child_environment, on_cpus
from shootout.core.journal.folder import LOGS, TRACES
from shootout.core.units import duration
from shootout.core.worker.availability import PythonInterpreter
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.tell.progress import ProgressDisplay

SUMMARY = "summary.txt"
CALLS = 50
SHOWN = 3
"""So many calls without a profiler are drawn; the text rests on all of them."""
TELLING = 0.01
MOST_LINES = 8
"""The text names at most so many operations, each at least `TELLING` of the time under the profiler."""


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
        progress: hears what each trace says, a few lines each; all of it is in `traces/summary.txt` too.
        limit: when it ends: no arm is begun then, and one that is under way is given up.
    """
    folder = out / TRACES
    folder.mkdir(exist_ok=True)
    progress.stage("tracing")
    texts = []
    with on_cpus(placement.parent):
        for index, (group, arms) in enumerate(groups.items()):
            for built in [made for made in arms.values() if not made.arm.control and made.arm.ordinal == 1]:
                if not limit.allows(0.0):
                    progress.say(f"--max-time left no time to trace {built.arm.label} and those after it")
                    return
                path = folder / f"g{index}-{Path(log_name(built.arm.label)).stem}.json"
                texts.append(f"{group}, {_trace_arm(built, placement, path, out / LOGS, others, limit)}")
                (folder / SUMMARY).write_text("\n\n".join(texts) + "\n", encoding="utf-8")
                progress.say(texts[-1])


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
    return "\n".join([f"{built.arm.label}: {_steps_text(looked)}", *_profile_text(looked), f"  {TRACES}/{path.name}"])


def _draw_calls(looked: Looked) -> list[Event]:
    """Draw the last calls, each a span around its steps."""
    events: list[Event] = []
    for steps in looked.steps[-SHOWN:]:
        spans = [("call", steps[0][1], steps[-1][2]), *steps]
        events += [_make_event(name, began, ended) for name, began, ended in spans]
    return events


def _make_event(name: str, began_ns: int, ended_ns: int) -> Event:
    return {"name": name, "ph": "X", "ts": began_ns / 1e3, "dur": (ended_ns - began_ns) / 1e3, "pid": 0, "tid": 0}


def _steps_text(looked: Looked) -> str:
    """Return `one call takes 190 us: stage 3 us (2%), execute …`: medians of all calls but the first."""
    calls = looked.steps[1:] or looked.steps
    took = np.array([[ended - began for _, began, ended in steps] for steps in calls], dtype=np.float64)
    medians, whole = np.median(took, axis=0), float(np.median(took.sum(axis=1)))
    names = [name for name, _, _ in calls[0]]
    parts = [f"{name} {duration(ns)} ({ns / whole:.0%})" for name, ns in zip(names, medians, strict=True) if ns]
    return f"a call takes {duration(whole)}: {', '.join(parts)}"


def _profile_text(looked: Looked) -> list[str]:
    """Return what the backend's own profiler adds, by name."""
    if looked.fault:
        return [f"  its profiler broke: {looked.fault}"]
    operations = shares(looked.events)
    if not (total := sum(share.us for share in operations)):
        return ["  it has no profiler of its own that tells more"]
    worth = [share for share in operations if share.us >= TELLING * total][:MOST_LINES]
    rest = total - sum(share.us for share in worth)
    lines = [f"    {share.us / total:4.0%} {share.name} ({share.count} times)" for share in worth]
    other = [f"    {rest / total:4.0%} all else"] if rest > TELLING * total else []
    return ["  by its own profiler, which slows it down:", *lines, *other]
