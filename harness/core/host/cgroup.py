"""Read what the control groups allow (versions 1 and 2).

In a container the machine has more CPUs and memory than this process may use, and the group throttles. A limit may sit
on any level above our own group, so every visible level counts. Without groups every answer is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def read(path: Path) -> str | None:
    """Return the file's text; None if it can't be read (missing, forbidden)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def folders(controller: str, membership: str | None = None, root: Path = ROOT) -> tuple[Path, ...]:
    """Return the folders of our own group and of all groups above it that hold `controller` ("cpu" or "memory").

    Args:
        controller: the controller's name.
        membership: the text of /proc/self/cgroup; read from there when None.
        root: where the group file systems are mounted.
    """
    text = membership if membership is not None else read(Path("/proc/self/cgroup")) or ""
    levels: dict[Path, None] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for mount in _mount_points(names, controller, root):
            levels |= dict.fromkeys(_visible_levels(mount, path))
    return tuple(levels)


def _mount_points(names: str, controller: str, root: Path) -> tuple[Path, ...]:
    if not names:  # version 2 has one tree for all controllers
        return (root, root / "unified")
    if controller not in names.split(","):
        return ()
    # "cpu" is often a link to "cpu,cpuacct": one of the two, or its counters would count twice.
    return (root / names,) if (root / names).is_dir() else (root / controller,)


def _visible_levels(mount: Path, path: str) -> Iterable[Path]:
    own = mount / path.strip("/")
    levels = [own, *own.parents]
    # Without a cgroup namespace `path` is the host's name for a folder that can't be seen here: the mount remains.
    return [level for level in levels[: levels.index(mount) + 1] if level.is_dir()]


def cpu_quota(groups: Iterable[Path]) -> float | None:
    """Return how many CPUs' worth of time the groups allow (2.0 = two CPUs); None without a limit."""
    quotas = [quota for group in groups if (quota := _read_quota(group)) is not None]
    return min(quotas, default=None)


def _read_quota(group: Path) -> float | None:
    text = read(group / "cpu.max")
    if text is None:
        text = f"{read(group / 'cpu.cfs_quota_us') or ''} {read(group / 'cpu.cfs_period_us') or ''}"
    return parse_cpu_max(text)


def parse_cpu_max(text: str) -> float | None:
    """Read CPUs from "quota period" in microseconds: "200000 100000" is 2.0. "max …", -1 or anything else is None."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1]) or None


def throttled(groups: Iterable[Path]) -> int | None:
    """Return how often the groups throttled this process so far; None if none of them counts it."""
    counts = [count for group in groups if (count := parse_cpu_stat(read(group / "cpu.stat") or "")) is not None]
    return sum(counts) if counts else None


def parse_cpu_stat(text: str) -> int | None:
    """Return the times throttled from the text of a cpu.stat file of either version."""
    return _parse_counters(text).get("nr_throttled")


def memory_limit_bytes(groups: Iterable[Path]) -> int | None:
    """Return the smallest memory limit on any level; None without one."""
    limits = [_read_bytes(group, "memory.max", "limit_in_bytes") for group in groups]
    return min(filter(None, limits), default=None)


def memory_free_bytes(groups: Iterable[Path]) -> int | None:
    """Return the bytes left below the tightest limit, file pages that can be dropped included; None without a limit."""
    free = []
    for group in groups:
        limit = _read_bytes(group, "memory.max", "limit_in_bytes")
        used = _read_bytes(group, "memory.current", "usage_in_bytes")
        if limit is not None and used is not None:
            stat = _parse_counters(read(group / "memory.stat") or "")
            droppable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            free.append(max(0, limit - max(0, used - droppable)))
    return min(free, default=None)


def _read_bytes(group: Path, new: str, old: str) -> int | None:
    text = (read(group / new) or read(group / f"memory.{old}") or "").strip()
    value = int(text) if text.isdecimal() else None
    # Version 1 writes "no limit" as the largest page-aligned 63-bit number.
    return None if value is None or value > 2**62 else value


def _parse_counters(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
