"""Find outside evidence that a round was disturbed. Such evidence alone flags a round, and then for all arms.

Looking at the latencies themselves would bias the verdict, so this module never sees one. A counter that the system
lacks (macOS has no steal time) is absent evidence, and `sources` records which evidence there is.

Granularity, for rounds of 0.1 to 1 s:

- Steal is kept in nanoseconds by the kernel but shown in jiffies (10 ms), rounded down. One jiffy more between two
  marks can be anything from a moment to 20 ms, so it proves nothing; at 1 % steal it would flag every tenth 100 ms
  round of one CPU. Two on one CPU prove more than 10 ms. A round that slips through costs little: the statistic is a
  median over rounds.
- Foreign CPU time is what remains of the CPUs' time: not idle, not stolen, not ours. Ours is known to the nanosecond,
  whichever thread spent it, so an arm whose threads wait for each other doesn't count as foreign. Idle time is kept to
  the nanosecond too if the kernel stops its tick, but the busy columns beside it count whole ticks: hence the
  remainder. A process that had a CPU to itself for 120 ms, thirty times, left at most 0.1 ms of it unexplained. The
  error is in the idle time, which is shown in jiffies and rounded down: less than two jiffies for one CPU (idle, and
  waiting for a disk), up or down. The errors of n CPUs add up like noise, so the floor grows with the root of n.
- Throttling is a count of events, so one is enough.
- A GPU's state is read at one moment, right after an arm's block; its processes are counted before and after the round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from shootout.core.clock import cpu_ns, now_ns
from shootout.core.constants import FOREIGN_SHARE, SM_CLOCK_SHARE, STEAL_SHARE
from shootout.core.host import placement
from shootout.core.host.placement import read_text

if TYPE_CHECKING:
    from shootout.core.host.devices import Accelerator
    from shootout.core.messages import GpuState

PROC = Path("/proc")
STEAL_JIFFIES = 2
"""Fewer stolen jiffies than this are rounding, not evidence."""
FOREIGN_JIFFIES = 2
"""Less foreign time than this on one CPU is rounding too."""
_JIFFY_NS = 10_000_000
DisturbanceKind = Literal[
    "steal", "foreign CPU time", "cgroup throttled", "SM clock", "GPU throttled", "foreign GPU process"
]
"""The kinds of outside evidence against a round."""
Gpus: TypeAlias = "Mapping[str, tuple[int | None, GpuState]]"
"""By label of each arm on the GPU: its highest SM clock in MHz, and the GPU's state right after its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseMark:
    """Hold the raw counters of one moment; None if the system doesn't tell.

    Attributes:
        now_ns: when, on the harness's clock.
        cpus: how many CPUs are watched.
        steal_jiffies: time the hypervisor took from them.
        total_jiffies: all time of them.
        idle_jiffies: time in which they had nothing to run.
        harness_ns: CPU time that this process used, where it shares the watched CPUs, else 0.
        throttled: how often the control groups held us back.
        gpu_processes: how many processes beside this one have a context on the GPU, our workers among them.
    """

    now_ns: int
    cpus: int = 1
    steal_jiffies: int | None = None
    total_jiffies: int | None = None
    idle_jiffies: int | None = None
    harness_ns: int | None = None
    throttled: int | None = None
    gpu_processes: int | None = None


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Hold why a round is flagged; `str` gives the words for people.

    Attributes:
        figure: the share, count or MHz that was seen; None if there is none, as of a GPU that was throttled.
        of: what the figure is compared with.
        arm: the label of the arm that it was seen at.
        causes: why the GPU was throttled, in its driver's words.
    """

    kind: DisturbanceKind
    figure: float | None = None
    of: float | None = None
    arm: str = ""
    causes: tuple[str, ...] = ()

    @property
    def category(self) -> str:
        """Return the kind, and what throttled the GPU: disturbances are counted by it."""
        return ": ".join([self.kind, *filter(None, [", ".join(self.causes)])])

    def __str__(self) -> str:
        words = self.category
        if self.figure is not None and self.kind in _WORDS:
            words = _WORDS[self.kind](self.figure, self.of or 0.0)
        return words.replace("%", " %") + (f" ({self.arm})" if self.arm else "")


_WORDS: dict[DisturbanceKind, Callable[[float, float], str]] = {
    "steal": lambda share, _: f"steal {share:.1%} of CPU time",
    "foreign CPU time": lambda share, _: f"other programs on {share:.0%} of the CPU time",
    "cgroup throttled": lambda times, _: (
        f"cgroup throttled {times:.0f} times" if times > 1 else "cgroup throttled once"
    ),
    "SM clock": lambda seen, usual: f"SM clock {seen:,.0f} MHz of {usual:,.0f}",
    "foreign GPU process": lambda count, _: f"{count:.0f} foreign GPU process{'es' if count > 1 else ''}",
}


class NoiseMeter:
    """Read the counters of some CPUs, and tell what disturbed a round, without ever seeing a latency.

    Args:
        cpus: the CPUs the arms run on.
        parent: the CPUs that this process runs on; where they are among those, its own time is no neighbor's.
        proc: where the process file system is mounted.
        groups: control-group folders to watch; our own when None.
        gpu: the GPU to watch too, where an arm runs on one.
    """

    def __init__(
        self,
        cpus: Collection[int],
        proc: Path = PROC,
        groups: Collection[Path] | None = None,
        gpu: Accelerator | None = None,
        parent: Collection[int] = (),
    ) -> None:
        self._cpus, self._proc, self._gpu = frozenset(cpus), proc, gpu
        self._shared = not self._cpus.isdisjoint(parent)
        self._groups = placement.control_groups("cpu") if groups is None else tuple(groups)
        self._begun: NoiseMark | None = None

    def begin(self) -> None:
        """Note the counters at a round's start."""
        self._begun = self.mark()

    def reasons(self, gpus: Gpus, own_ns: int | None, own_contexts: int) -> tuple[Disturbance, ...]:
        """Return why the round since `begin` is flagged; see `disturbances`."""
        assert self._begun is not None, "begin comes first"
        return disturbances(self._begun, self.mark(), gpus, own_ns, own_contexts)

    def mark(self) -> NoiseMark:
        """Read the counters now. This takes about 0.1 ms without a GPU, so it belongs between rounds."""
        steal, total, idle = parse_stat(read_text(self._proc / "stat") or "", self._cpus) or (None, None, None)
        return NoiseMark(
            now_ns=now_ns(),
            cpus=len(self._cpus),
            steal_jiffies=steal,
            total_jiffies=total,
            idle_jiffies=idle,
            harness_ns=cpu_ns(0) if self._shared else 0,
            throttled=placement.throttled(self._groups),
            gpu_processes=self._gpu.processes() if self._gpu else None,
        )

    def sources(self) -> tuple[str, ...]:
        """Return the kinds of evidence that this machine gives, for the record."""
        mark = self.mark()
        foreign = None if cpu_ns(0) is None or not mark.total_jiffies else mark.idle_jiffies
        named = {"steal": mark.steal_jiffies, "foreign CPU time": foreign, "cgroup throttling": mark.throttled}
        of_cpus = (name for name, counter in named.items() if counter is not None)
        return (*of_cpus, *(self._gpu.evidence() if self._gpu else ()))


def parse_stat(text: str, cpus: Collection[int]) -> tuple[int, int, int] | None:
    """Read the (steal, total, idle) jiffies of `cpus` from the text of /proc/stat; None if one of them isn't there."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = [words[1:9] for line in text.splitlines() if (words := line.split()) and words[0] in wanted]
    if not rows or len(rows) != len(wanted) or any(len(row) < 8 or not all(map(str.isdecimal, row)) for row in rows):
        return None
    # Columns: user nice system idle iowait irq softirq steal. Guest time, behind them, is part of user.
    numbers = [[int(word) for word in row] for row in rows]
    return sum(row[7] for row in numbers), sum(map(sum, numbers)), sum(row[3] + row[4] for row in numbers)


def steal_share(before: NoiseMark, after: NoiseMark) -> float | None:
    """Return the stolen share of the CPUs' time between two marks; None if steal isn't counted."""
    stolen, total = (
        _count_growth(before.steal_jiffies, after.steal_jiffies),
        _count_growth(before.total_jiffies, after.total_jiffies),
    )
    return None if stolen is None or not total else stolen / total


def foreign_share(before: NoiseMark, after: NoiseMark, own_ns: int | None) -> float | None:
    """Return the share of the watched CPUs' time that other programs took between two marks; None if it isn't known.

    Args:
        own_ns: what our own processes took of them, apart from this one.
    """
    idle, all_ns = _count_growth(before.idle_jiffies, after.idle_jiffies), _cpu_time_ns(before, after)
    if idle is None or own_ns is None or before.harness_ns is None or after.harness_ns is None or all_ns <= 0:
        return None
    if 2 * (_count_growth(before.total_jiffies, after.total_jiffies) or 0) * _JIFFY_NS < all_ns:
        return None  # a sandbox that shows the file but doesn't keep it
    stolen = _count_growth(before.steal_jiffies, after.steal_jiffies) or 0
    ours_ns = own_ns + after.harness_ns - before.harness_ns
    return max(0, all_ns - (idle + stolen) * _JIFFY_NS - ours_ns) / all_ns


def _cpu_time_ns(before: NoiseMark, after: NoiseMark) -> int:
    return after.cpus * (after.now_ns - before.now_ns)


def throttle_count(before: NoiseMark, after: NoiseMark) -> int | None:
    """Return how often this process was throttled between two marks; None if that isn't counted."""
    return _count_growth(before.throttled, after.throttled)


def _count_growth(before: int | None, after: int | None) -> int | None:
    # A counter can step back when a CPU goes offline and returns: that is no evidence.
    return None if before is None or after is None else max(0, after - before)


def disturbances(
    before: NoiseMark,
    after: NoiseMark,
    gpus: Gpus = MappingProxyType({}),
    own_ns: int | None = None,
    own_contexts: int = 0,
) -> tuple[Disturbance, ...]:
    """Return what disturbed the round between two marks; empty if there is no evidence.

    Args:
        before: the mark before the round.
        after: the mark after it.
        gpus: how the GPU was at each arm on it.
        own_ns: CPU time that all arms used in the round; None where that isn't known.
        own_contexts: how many processes with a context on the GPU are arms.
    """
    reasons: list[Disturbance] = []
    stolen = _count_growth(before.steal_jiffies, after.steal_jiffies) or 0
    if stolen >= STEAL_JIFFIES and (taken := steal_share(before, after) or 0.0) > STEAL_SHARE:
        reasons.append(Disturbance("steal", taken))
    rounding_ns = FOREIGN_JIFFIES * _JIFFY_NS * math.sqrt(after.cpus)
    share = foreign_share(before, after, own_ns) or 0.0
    if share > FOREIGN_SHARE and round(share * _cpu_time_ns(before, after)) >= rounding_ns:
        reasons.append(Disturbance("foreign CPU time", share))
    if times := throttle_count(before, after):
        reasons.append(Disturbance("cgroup throttled", times))
    reasons += [reason for label, (usual, seen) in gpus.items() for reason in _gpu_reasons(label, usual, seen)]
    # processes on the GPU that aren't ours; a container may hide some
    foreign = max(before.gpu_processes or 0, after.gpu_processes or 0) - own_contexts
    if foreign > 0:
        reasons.append(Disturbance("foreign GPU process", foreign))
    return tuple(reasons)


def _gpu_reasons(label: str, usual_mhz: float | None, seen: GpuState) -> Iterator[Disturbance]:
    # What the power limit does to the clock is the arm's own work, and more of it in one scope than in the other.
    clock_mhz = None if seen.power_capped else seen.sm_clock_mhz
    if usual_mhz and clock_mhz is not None and clock_mhz < SM_CLOCK_SHARE * usual_mhz:
        yield Disturbance("SM clock", clock_mhz, of=usual_mhz, arm=label)
    if seen.throttled:
        yield Disturbance("GPU throttled", arm=label, causes=tuple(seen.throttled))
