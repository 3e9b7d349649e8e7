"""Outside evidence that a round was disturbed; it alone may void a round, and then for all arms.

Looking at the latencies themselves would bias the verdict, so this module never sees one. What the system doesn't tell
(macOS has no steal time, many containers hide the pressure file) is absent evidence, and `sources` puts on record what
there is.

Granularity, for rounds of 0.1 to 1 s:

- Steal is kept in nanoseconds by the kernel but shown in jiffies (10 ms), rounded down. One jiffy more between two
  marks can be anything from a moment to 20 ms, so it proves nothing; at 1 % steal it would void every tenth 100 ms
  round of one CPU. Two on one CPU prove more than 10 ms. A round that slips through costs little: the statistic is a
  median over rounds.
- Pressure is a running total in microseconds, brought up to date when it is read; its 10 s average is too slow for us.
- Throttling is a count of events, so one is enough.
- A GPU says how it is at one moment, right after an arm's block; who uses it is counted before and after the round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.clock import now_ns
from shootout.constants import CANARY_SLOWDOWN, PSI_SHARE, SM_CLOCK_SHARE, STEAL_SHARE
from shootout.host import cgroup

if TYPE_CHECKING:
    from shootout.host.gpu import Gpu
    from shootout.messages import GpuState

PROC = Path("/proc")
STEAL_JIFFIES = 2
"""Fewer stolen jiffies than this are rounding, not evidence."""
_CANARY_STEPS = 2_500
_CANARY_REPEATS = 3
_NO_GPUS: Mapping[str, tuple[float | None, GpuState]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Raw counters at one moment; None where the system doesn't tell.

    Attributes:
        now_ns: when, on the harness's clock.
        steal_jiffies: time the hypervisor took from the watched CPUs.
        total_jiffies: all time of the watched CPUs.
        pressure_us: time in which some task waited for a CPU.
        throttled: how often the control groups held us back.
        gpu_processes: how many processes beside this one have a context on the GPU, our workers among them.
    """

    now_ns: int
    steal_jiffies: int | None = None
    total_jiffies: int | None = None
    pressure_us: int | None = None
    throttled: int | None = None
    gpu_processes: int | None = None


class VoidKind(StrEnum):
    """What outside evidence speaks against a round."""

    STEAL = "steal"
    PRESSURE = "cpu pressure"
    THROTTLED = "cgroup throttled"
    CANARY = "canary"
    SM_CLOCK = "SM clock"
    GPU_THROTTLED = "GPU throttled"
    FOREIGN = "foreign GPU process"


@dataclass(frozen=True, slots=True)
class VoidReason:
    """Why a round must not count; `str` gives the words for people.

    Attributes:
        figure: the share, slowdown, count or MHz that was seen; None where only words were kept.
        of: what the figure is compared with.
        arm: the label of the arm that it was seen at.
        causes: why the GPU was throttled, in NVML's words.
    """

    kind: VoidKind
    figure: float | None = None
    of: float | None = None
    arm: str = ""
    causes: tuple[str, ...] = ()

    @property
    def category(self) -> str:
        """What is counted together: the kind, and what throttled the GPU."""
        return ": ".join([self.kind, *filter(None, [", ".join(self.causes)])])

    def __str__(self) -> str:
        words = self.category
        if self.figure is not None:
            words = _WORDS[self.kind](self.figure, self.of or 0.0)
        return words.replace("%", " %") + (f" ({self.arm})" if self.arm else "")


_WORDS: dict[VoidKind, Callable[[float, float], str]] = {
    VoidKind.STEAL: lambda share, _: f"steal {share:.1%} of CPU time",
    VoidKind.PRESSURE: lambda share, _: f"cpu pressure {share:.0%}",
    VoidKind.THROTTLED: lambda times, _: (
        f"cgroup throttled {times:.0f} times" if times > 1 else "cgroup throttled once"
    ),
    VoidKind.CANARY: lambda slower, _: f"canary {slower:.0%} slow",
    VoidKind.SM_CLOCK: lambda seen, usual: f"SM clock {seen:,.0f} MHz of {usual:,.0f}",
    VoidKind.FOREIGN: lambda count, _: f"{count:.0f} foreign GPU process{'es' if count > 1 else ''}",
}


def recalled(words: str) -> VoidReason:
    """A reason out of a journal of an older version, which holds words alone: of them only the category is used.

    Raises:
        ValueError: no version wrote these.
    """
    kind = next((kind for kind in VoidKind if words.lstrip("0123456789 ").startswith(kind)), None)
    if kind is None:
        raise ValueError(f"{words!r} is no reason that voids a round")
    causes = words.partition(": ")[2].rpartition(" (")[0] if kind is VoidKind.GPU_THROTTLED else ""
    return VoidReason(kind, causes=tuple(filter(None, causes.split(", "))))


class NoiseMeter:
    """Reads the counters that concern some CPUs.

    Args:
        cpus: the CPUs the arms run on.
        proc: where the process file system is mounted.
        groups: control-group folders to watch; our own when None.
        gpu: the GPU to watch too, where an arm runs on one.
    """

    def __init__(
        self,
        cpus: Collection[int],
        proc: Path = PROC,
        groups: Collection[Path] | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        self._cpus, self._proc, self._gpu = frozenset(cpus), proc, gpu
        self._groups = cgroup.folders("cpu") if groups is None else tuple(groups)

    def mark(self) -> Mark:
        """The counters now. Takes about 0.1 ms without a GPU, so it belongs between rounds."""
        steal, total = parse_stat(cgroup.read(self._proc / "stat") or "", self._cpus) or (None, None)
        return Mark(
            now_ns=now_ns(),
            steal_jiffies=steal,
            total_jiffies=total,
            pressure_us=parse_pressure(cgroup.read(self._proc / "pressure" / "cpu") or ""),
            throttled=cgroup.throttled(self._groups),
            gpu_processes=self._gpu.processes() if self._gpu else None,
        )

    def sources(self) -> tuple[str, ...]:
        """The kinds of evidence there are on this machine, for the record; the canary is always one."""
        mark = self.mark()
        named = {"steal": mark.steal_jiffies, "cpu pressure": mark.pressure_us, "cgroup throttling": mark.throttled}
        of_cpus = (name for name, counter in named.items() if counter is not None)
        return (*of_cpus, *(self._gpu.evidence() if self._gpu else ()), "canary")


def parse_stat(text: str, cpus: Collection[int]) -> tuple[int, int] | None:
    """(steal, total) jiffies of `cpus` from the text of /proc/stat; None when one of them isn't there."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = [words[1:9] for line in text.splitlines() if (words := line.split()) and words[0] in wanted]
    if not rows or len(rows) != len(wanted) or any(len(row) < 8 or not all(map(str.isdecimal, row)) for row in rows):
        return None
    # Columns: user nice system idle iowait irq softirq steal. Guest time, behind them, is part of user.
    numbers = [[int(word) for word in row] for row in rows]
    return sum(row[7] for row in numbers), sum(map(sum, numbers))


def parse_pressure(text: str) -> int | None:
    """Microseconds from the `total` of the "some" line of /proc/pressure/cpu; None when there is none."""
    for line in text.splitlines():
        if line.startswith("some "):
            total = line.rpartition("total=")[2]
            return int(total) if total.isdecimal() else None
    return None


def steal_share(before: Mark, after: Mark) -> float | None:
    """Stolen share of the CPUs' time between two marks, None where steal isn't told."""
    stolen, total = _grown(before.steal_jiffies, after.steal_jiffies), _grown(before.total_jiffies, after.total_jiffies)
    return None if stolen is None or not total else stolen / total


def pressure_share(before: Mark, after: Mark) -> float | None:
    """Share of the wall time in which some task waited for a CPU, None where pressure isn't told."""
    waited_us = _grown(before.pressure_us, after.pressure_us)
    elapsed_ns = after.now_ns - before.now_ns
    return None if waited_us is None or elapsed_ns <= 0 else 1_000 * waited_us / elapsed_ns


def throttle_count(before: Mark, after: Mark) -> int | None:
    """How often we were throttled between two marks, None where it isn't told."""
    return _grown(before.throttled, after.throttled)


def _grown(before: int | None, after: int | None) -> int | None:
    # A counter can step back when a CPU goes offline and returns: that is no evidence.
    return None if before is None or after is None else max(0, after - before)


def void_reasons(
    before: Mark,
    after: Mark,
    canaries: Mapping[str, tuple[float, float]],
    gpus: Mapping[str, tuple[float | None, GpuState]] = _NO_GPUS,
    own_processes: int = 0,
) -> tuple[VoidReason, ...]:
    """Why the round between two marks must not count; empty when nothing speaks against it.

    Args:
        before: the mark before the round.
        after: the mark after it.
        canaries: each arm's label → (reference, observed) time of its canary loop, in ns.
        gpus: each GPU arm's label → (the highest SM clock it had, in MHz, and how the GPU was after its turn).
        own_processes: how many processes with a CUDA context are ours.
    """
    reasons: list[VoidReason] = []
    stolen = _grown(before.steal_jiffies, after.steal_jiffies) or 0
    if stolen >= STEAL_JIFFIES and (share := steal_share(before, after) or 0.0) > STEAL_SHARE:
        reasons.append(VoidReason(VoidKind.STEAL, share))
    if (share := pressure_share(before, after) or 0.0) > PSI_SHARE:
        reasons.append(VoidReason(VoidKind.PRESSURE, share))
    if times := throttle_count(before, after):
        reasons.append(VoidReason(VoidKind.THROTTLED, times))
    slow = {label: seen / usual for label, (usual, seen) in canaries.items() if seen > CANARY_SLOWDOWN * usual}
    reasons += [VoidReason(VoidKind.CANARY, ratio - 1, arm=label) for label, ratio in slow.items()]
    reasons += [reason for label, (usual, seen) in gpus.items() for reason in _gpu_reasons(label, usual, seen)]
    reasons += _foreign(before, after, own_processes)
    return tuple(reasons)


def _gpu_reasons(label: str, usual_mhz: float | None, seen: GpuState) -> Iterator[VoidReason]:
    # What the power limit does to the clock is the arm's own work, and more of it in one scope than in the other.
    clock_mhz = None if seen.power_capped else seen.sm_clock_mhz
    if usual_mhz and clock_mhz is not None and clock_mhz < SM_CLOCK_SHARE * usual_mhz:
        yield VoidReason(VoidKind.SM_CLOCK, clock_mhz, of=usual_mhz, arm=label)
    if seen.throttled:
        yield VoidReason(VoidKind.GPU_THROTTLED, arm=label, causes=tuple(seen.throttled))


def _foreign(before: Mark, after: Mark, own: int) -> list[VoidReason]:
    """How many of the processes on the GPU aren't ours; a container may hide some, so it can be less than there are."""
    foreign = max(before.gpu_processes or 0, after.gpu_processes or 0) - own
    return [VoidReason(VoidKind.FOREIGN, foreign)] if foreign > 0 else []


def canary() -> int:
    """Nanoseconds that a fixed integer loop takes: about 100 us, the best of 3.

    It runs in the worker, on the arm's own CPU. It touches no memory beyond the interpreter's hottest lines (small
    integers, and the first of the three runs brings those back), so it feels the CPU's speed and company, not what the
    arm before left in the caches.
    """
    return min(_canary_once() for _ in range(_CANARY_REPEATS))


def _canary_once() -> int:
    start_ns = now_ns()
    value = 1
    for _ in range(_CANARY_STEPS):
        value = (value * 5 + 1) & 0xFFFFF
    return now_ns() - start_ns
