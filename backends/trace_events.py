"""Make and sum up trace events as Chrome and Perfetto read them. Plain data; workers load it.

The format is Google's "Trace Event Format".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shootout.core.adapter import Event

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


def in_a_row(parts: Sequence[tuple[str, float]], began_us: float, *, track: str) -> list[Event]:
    """Turn durations (name, microseconds) into events one after the other, for a profiler without starting times."""
    events: list[Event] = []
    for name, us in parts:
        events.append({"name": name, "ph": "X", "ts": began_us, "dur": us, "pid": track, "tid": track})
        began_us += us
    return events


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
