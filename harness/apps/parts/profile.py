"""Look at a user's program with its parts as usual: how long a page takes, and how much of that is inside each part."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.core.clock import Deadline
from shootout.core.errors import UsageError
from shootout.core.host.child import Child
from shootout.core.host.placement import Placement, child_environment
from shootout.core.stats.verdicts import make_pair

RECORD = "shootout.backends._joint.record"
"""The program that calls the user's function; its module says what it takes and gives."""
PROFILE, RESULTS = "profile.json", "results.pickle"
RESTARTS = 5
"""Processes that tell the share of inference: its interval is of these."""
RECORD_S = 20.0
"""The seconds for all pages that are looked at, each called twice, if no `--max-time` is given."""
LONGEST_S = 3600.0
WORTH = 1.02
"""A smaller gain than this is none: within 2 % a program is as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Hold what the user gives.

    Attributes:
        function: `file.py:read`, with the file's whole path; `short` is its name for people.
        parts: ONNX files by name.
        pages: the files that the function gets, in order.
        metric: the function that scores results, as `function`; "" if pages are compared.
    """

    function: str
    short: str
    parts: Mapping[str, Path]
    pages: Sequence[Path]
    metric: str = ""

    def as_task(self, pages: Sequence[str], threads: int, **more: Any) -> dict[str, Any]:
        """Return what a process is to do, for `RECORD`."""
        parts = {name: str(path) for name, path in self.parts.items()}
        return {"function": self.function, "parts": parts, "pages": [*pages], "threads": threads, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Hold which part of a call is inference, with its 95 % interval, and what the fastest runtime could gain by that.

    Attributes:
        most: call ÷ what would be left of it without any inference, at the high end of the interval.
    """

    share: float
    low: float
    high: float
    most: float

    def __str__(self) -> str:
        low, high = math.floor(100 * self.low), math.ceil(100 * self.high)
        most = f"{self.most:.2f}" if self.most < 2 else f"{self.most:.1f}"
        return f"inference is {100 * self.share:.0f} % of a call ({low} to {high}): at most {most}x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Hold a size with which a part is called: the shape of each input, and how often."""

    inputs: Mapping[str, Sequence[int]]
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Hold what was seen of a program.

    Attributes:
        folder: of the cache, with the inputs of each part (`NAME.npz`) and the results of the pages.
        pages: those that were looked at; `timed`: some of these, or all several times, as a call of the race has them.
        sizes: of each part, the one with the most time first.
        call_ns: nanoseconds of a page in each process; `inside_ns`: of these inside each part.
    """

    folder: Path
    pages: Sequence[str]
    timed: Sequence[str]
    sizes: Mapping[str, Sequence[Size]]
    call_ns: Sequence[float]
    inside_ns: Mapping[str, Sequence[float]]

    @classmethod
    def read(cls, folder: Path) -> Profile:
        """Read what `take_profile` wrote."""
        stored = json.loads((folder / PROFILE).read_text(encoding="utf-8"))
        restarts, sizes = stored["restarts"], stored["sizes"]
        return cls(
            folder=folder,
            pages=stored["pages"],
            timed=stored["timed"],
            sizes={
                name: [Size(inputs=one["inputs"], calls=one["calls"]) for one in some] for name, some in sizes.items()
            },
            call_ns=[one["call_ns"] for one in restarts],
            inside_ns={name: [one["inside_ns"][name] for one in restarts] for name in sizes},
        )

    def share_of(self, name: str) -> float:
        """Return which part of a call is inside a part."""
        return sum(self.inside_ns[name]) / sum(self.call_ns)

    @property
    def gain(self) -> Gain:
        """Return what can be gained, by one interval over the processes, of the log odds: shares end at 0 and 1."""
        inside = [math.fsum(some) for some in zip(*self.inside_ns.values(), strict=True)]
        shares = [min(max(one / call, 1e-6), 1 - 1e-6) for one, call in zip(inside, self.call_ns, strict=True)]
        pair = make_pair([math.log(share / (1 - share)) for share in shares])
        odds = (max(-700.0, min(pair.mean + sign * pair.reach(1), 700.0)) for sign in (0, -1, 1))
        middle, low, high = (1 / (1 + math.exp(-one)) for one in odds)
        return Gain(share=middle, low=low, high=high, most=1 / (1 - min(high, 1 - 1e-6)))


def take_profile(program: Program, folder: Path, placement: Placement, limit: Deadline, say: Any) -> int:
    """Call the function on its pages with parts as usual, in several processes; return how many pages that were.

    Args:
        folder: gets what was found, see `Profile`.
        limit: when the whole run ends, of which this takes a fifth at most.
        say: tells people what is done.

    Raises:
        UsageError: the function raises, gives another result the second time, or never calls a part.
    """
    most_s = RECORD_S if limit.seconds is None else min(RECORD_S, 0.1 * limit.left_s)
    pages = [str(page) for page in program.pages]
    say(f"calling {program.short} with ONNX Runtime in each part, to see what can be gained")
    task = program.as_task(pages, placement.threads, do="record", most_s=most_s, results=str(folder / RESULTS))
    found = call(task, folder, placement)
    part = limit.part(0.2) if limit.seconds is not None else Deadline(None)
    again = program.as_task(found["timed"], placement.threads, do="time")
    while len(found["restarts"]) < RESTARTS and (part.left_s > 0 or len(found["restarts"]) < 3):
        found["restarts"].append(call(again, folder, placement))
    (folder / PROFILE).write_text(json.dumps(found), encoding="utf-8")
    return len(found["pages"])


def call(task: Mapping[str, Any], folder: Path, placement: Placement) -> dict[str, Any]:
    """Have one task done in a process of its own, on the CPUs and with the threads of a race; return its answer.

    Raises:
        UsageError: in the user's function, or the process doesn't end well.
    """
    given, answered = folder / "task.json", folder / "answer.json"
    given.write_text(json.dumps(task), encoding="utf-8")
    answered.unlink(missing_ok=True)  # of the call before
    environment = child_environment(placement.threads, 0)
    with Child(RECORD, [given, answered], environment=environment, cpus=placement.arms) as child:
        ending = child.finish(LONGEST_S)
    if ending.code != 0 or not answered.exists():
        raise UsageError(f"{Path(task['function']).name}: the process that calls it {ending.how}")
    answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    if "fault" in answer:
        raise UsageError(answer["fault"])
    return answer
