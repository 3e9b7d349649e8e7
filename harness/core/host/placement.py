"""Place the parent and the arms on CPUs, make the arms' environment, and check that an arm stays within both.

The parent keeps off the arms' CPUs, and an arm gets as many CPUs as it has threads: with more, the same code's time
varies far more from one process to the next. Each physical core gives one CPU before any core's second thread is taken,
low numbers first, which stays on one NUMA node as long as possible.

Affinity and environment are set before a process starts. A library may move its threads, or rewrite the thread counts,
while it loads: `current_bounds` reads both back afterwards from the kernel and from the process, thread by thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from shootout.core.contract import is_among
from shootout.core.errors import UsageError
from shootout.core.plugins import BACKENDS

_PASSED = (
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|TZ|LANG|LANGUAGE|LC_\w+|TMPDIR|TEMP|TMP|XDG_\w+|SSL_CERT_\w+"
    r"|PYTHON\w*|VIRTUAL_ENV|CONDA_\w+|LD_\w+|CC|CXX|CPATH|LIBRARY_PATH|\w+_INCLUDE_PATH|C(XX|PP)?FLAGS|LDFLAGS"
    r"|SHOOTOUT_\w+"
)
"""Variables that any process, library or compiler may need to work at all."""
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.IGNORECASE)
"""In names of variables that are never passed on by themselves."""
MORE = "SHOOTOUT_ENV"
"""Names more variables to pass on, separated by commas."""
GROUPS = Path("/sys/fs/cgroup")
"""The mount of control groups, of versions 1 and 2: in a container they allow less than the machine has."""
MEMORY_LIMIT = "memory.max", "limit_in_bytes"
"""The file of a group's memory limit in version 2, and its last part in version 1."""
CPU_FOLDER = Path("/sys/devices/system/cpu")
TASKS = Path("/proc/self/task")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "PJRT_NPROC",
)

PADDING = "SHOOTOUT_PADDING"
"""A variable whose length shifts an arm's memory layout, drawn again in each restart."""

MOST_LANES = 4
"""The most builds at a time, because each may hold several copies of the weights."""

Threads = int | Literal["all", "default"] | None
"""The threads that the user asked for: a number, every CPU, each library's own default, or (None) the usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Hold the CPUs of the harness and of the arms.

    Attributes:
        parent: the CPUs of the harness itself.
        arms: the CPUs of every arm; as many as `threads`.
        threads: compute threads per arm.
        note: what to know about it, "" when parent and arms are apart.
    """

    parent: frozenset[int]
    arms: frozenset[int]
    threads: int
    note: str = ""

    def narrowed(self, threads: int) -> Placement:
        """Return the placement of an arm of fewer threads: as few of the arms' CPUs, the parent's last; 0: all."""
        if threads == 0 or threads >= self.threads:
            return self
        cpus = sorted(self.arms, key=lambda cpu: (cpu in self.parent, cpu))
        return replace(self, arms=frozenset(cpus[:threads]), threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBounds:
    """Hold what a process may use: its CPUs, its threads (alive now), and the variables that limit thread pools."""

    cpus: frozenset[int]
    os_threads: int
    variables: Mapping[str, str]

    def left(self, later: ProcessBounds) -> str | None:
        """Say in which way `later` bounds leave these, those that the process began with; None if they don't."""
        if stray := sorted(later.cpus - self.cpus):
            return f"was given the CPUs {sorted(self.cpus)}, but has threads that may run on {stray}"
        for name, value in self.variables.items():
            if later.variables.get(name) != value:
                return f"was started with {name}={value}, which is {later.variables.get(name, 'unset')} after loading"
        return None


def allowed_cpus() -> tuple[int, ...]:
    """Return the CPUs we may use, in the order to use them: the affinity mask, cut to the control group's quota."""
    ordered = cpuset()
    quota = cpu_quota(control_groups("cpu"))
    return ordered if quota is None else ordered[: max(1, int(quota))]


def cpuset() -> tuple[int, ...]:
    """Return the CPUs that a library sees: the affinity mask, whatever the quota, in the order to use them."""
    mask = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return one_per_core_first(mask, core_of)


def facts() -> dict[str, Any]:
    """Return the CPUs that we may use, as the environment tells them."""
    quota = cpu_quota(control_groups("cpu"))
    return {"cpuset": list(cpuset()), "allowed_cpus": list(allowed_cpus()), "quota_cpus": quota}


def core_of(cpu: int) -> str:
    """Name the physical core that holds `cpu`; the CPU's own number if the system doesn't tell."""
    text = read_text(CPU_FOLDER / f"cpu{cpu}" / "topology" / "thread_siblings_list")
    return text.strip() if text and text.strip() else str(cpu)


def one_per_core_first(cpus: Iterable[int], core: Callable[[int], str]) -> tuple[int, ...]:
    """Sort `cpus` upward, but put the second thread of a core behind the first thread of every core."""
    seen: dict[str, int] = {}
    ranked = []
    for cpu in sorted(cpus):
        rank = seen.get(core(cpu), 0)
        seen[core(cpu)] = rank + 1
        ranked.append((rank, cpu))
    return tuple(cpu for _, cpu in sorted(ranked))


def place(threads: Threads, allowed: Sequence[int] | None = None) -> Placement:
    """Divide the CPUs: the first one to the parent, and one per thread of the rest to the arms.

    Args:
        threads: per arm; None means all CPUs but one (at least 1), "all" every CPU, the parent's too; "default" every
            CPU that a library sees, whatever the quota, since it starts a thread for each of them.
        allowed: the CPUs to share, in the order of use; `allowed_cpus()` when None.

    Raises:
        UsageError: `threads` is below 1 or above the number of CPUs.
    """
    if allowed is None:
        allowed = cpuset() if threads == "default" else allowed_cpus()
    cpus = tuple(allowed)
    count = max(1, len(cpus) - 1) if threads is None else threads if isinstance(threads, int) else len(cpus)
    if not 1 <= count <= len(cpus):
        raise UsageError(f"invalid threads {threads}: this process may use {len(cpus)} CPUs; use 1 to {len(cpus)}")
    rest = cpus[1:]
    if count <= len(rest):
        return Placement(parent=frozenset(cpus[:1]), arms=frozenset(rest[:count]), threads=count)
    note = "only one CPU is allowed" if not rest else f"{count} threads use every allowed CPU"
    return Placement(
        parent=frozenset(cpus[:1]),
        arms=frozenset(cpus),
        threads=count,
        note=f"{note}: the harness shares it with what it measures, so expect more noise",
    )


def widest(asked: Sequence[Threads], allowed: Sequence[int] | None = None) -> Placement:
    """Return the placement of the most threads that fit, which `narrowed` gives to arms of fewer.

    Args:
        asked: thread counts; those above the number of CPUs are left out, unless all are.
        allowed: as in `place`.

    Raises:
        UsageError: a count is below 1, or all of them are above the number of CPUs.
    """
    most = len(allowed if allowed is not None else allowed_cpus())
    fitting = [count for count in asked if not isinstance(count, int) or count <= most]
    return max((place(count, allowed) for count in fitting or asked), key=lambda placement: placement.threads)


def lanes(placement: Placement, allowed: Sequence[int] | None = None) -> list[frozenset[int]]:
    """Divide the CPUs into disjoint sets, the arms' own first.

    Args:
        allowed: the CPUs to share out, in the order of use; `allowed_cpus()` when None.
    """
    rest = [cpu for cpu in (allowed_cpus() if allowed is None else allowed) if cpu not in placement.arms]
    size = len(placement.arms)
    more = [frozenset(rest[first : first + size]) for first in range(0, len(rest) - size + 1, size)]
    return [placement.arms, *more][:MOST_LANES]


def lanes_near(placement: Placement) -> list[frozenset[int]]:
    """Divide as `lanes` does, but only the arms' own NUMA nodes: what is loaded there stays there when its threads
    move.
    """
    nodes = {node_of(cpu) for cpu in placement.arms}
    return lanes(placement, [cpu for cpu in allowed_cpus() if node_of(cpu) in nodes])


def passed_on(own: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that a process with other people's code gets: those that it works by, and no secrets.

    Args:
        more: names of others that it needs; one that ends in `*` means all that begin so, secrets apart.
    """
    named = {*more, *own.get(MORE, "").split(",")}
    return {name: value for name, value in own.items() if name in named or _is_passed_on(name, named)}


def _is_passed_on(name: str, named: Collection[str]) -> bool:
    needed = _variables("CHANGING").fullmatch(name) or _variables("NEEDED", _PASSED).fullmatch(name)
    return bool(needed or is_among(name, named)) and not SECRET.search(name)


def is_changing(name: str) -> bool:
    """Return whether a variable changes how libraries run, or which GPU they find; a secret never counts."""
    return bool(_variables("CHANGING").fullmatch(name)) and not SECRET.search(name)


@cache
def _variables(table: str, also: str = "") -> re.Pattern[str]:
    """Return what matches the names of variables in a table of the backends."""
    return re.compile("|".join(filter(None, [getattr(import_module(BACKENDS), table), also])))


def hint(name: str) -> str:
    """Return how to pass on a variable that other people's code missed; "" if we don't have it, or pass it on."""
    withheld = name in os.environ and name not in passed_on(os.environ)
    return f" (a variable that isn't passed on: {MORE}={name})" if withheld else ""


def child_environment(threads: int, padding: int, more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of an arm's process: the variables passed on, and the thread counts.

    What else the user set for a library stays (XLA_FLAGS, wait policies, the vendor's own knobs): the arms run as they
    would for the user.

    Args:
        threads: compute threads, for every threading library that reads a variable; 0 sets none of these.
        more: names of other variables that the arm's backend needs.
        padding: bytes added to the environment. They shift the stack, whose alignment alone can decide a comparison
            (Mytkowicz et al., "Producing wrong data without doing anything obviously wrong!", 2009), and the worker
            shifts its heap by as many (`worker.fork_server`). A hash seed does the like, hence a new one in each
            process that is started. A forked process has stack and seed from the process that it is forked from, which
            is a new one in each restart.
    """
    counts = dict.fromkeys(THREAD_VARIABLES, str(threads)) if threads else {}
    return {**passed_on(os.environ, more), **counts, "PYTHONHASHSEED": "random", PADDING: "x" * padding}


@contextmanager
def on_cpus(cpus: frozenset[int]) -> Iterator[None]:
    """Keep this thread on `cpus`; children started inside inherit them before any code of theirs runs."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def move_threads(process: int, cpus: frozenset[int]) -> None:
    """Let every thread of a process run on these CPUs only; one that ends meanwhile needs no move.

    A thread that begins meanwhile has its maker's CPUs, so the list is read again until none is left to move.
    """
    moved: set[str] = set()
    while threads := {task.name for task in _list_tasks(process)} - moved:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cpus)
        moved |= threads


def _list_tasks(process: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []


def node_of(cpu: int) -> str:
    """Return the name of the NUMA node that holds `cpu`; "" if the system doesn't tell."""
    return next((node.name for node in (CPU_FOLDER / f"cpu{cpu}").glob("node*")), "")


def current_bounds(names: Sequence[str] = THREAD_VARIABLES) -> ProcessBounds:
    """Return this process's bounds now; `names` are the variables to look at."""
    threads = [int(task.name) for task in TASKS.iterdir()] if TASKS.is_dir() else []
    cpus = [_affinity_of(thread) for thread in threads] or [_affinity_of(0)]
    variables = {name: os.environ[name] for name in names if name in os.environ}
    return ProcessBounds(cpus=frozenset[int]().union(*cpus), os_threads=len(threads), variables=variables)


def _affinity_of(thread: int) -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(thread))
    except (OSError, AttributeError):  # the thread has ended, or this system has no affinities
        return frozenset()


def read_text(path: Path) -> str | None:
    """Return the file's text; None if it can't be read (missing, forbidden)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def control_groups(controller: str, membership: str | None = None, root: Path = GROUPS) -> tuple[Path, ...]:
    """Return the folders of our own group and of all groups above it that hold `controller` ("cpu" or "memory").

    Args:
        controller: the controller's name.
        membership: the text of /proc/self/cgroup; read from there when None.
        root: where the group file systems are mounted.
    """
    text = membership if membership is not None else read_text(Path("/proc/self/cgroup")) or ""
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
    quotas = []
    for group in groups:
        if (text := read_text(group / "cpu.max")) is None:
            text = f"{read_text(group / 'cpu.cfs_quota_us') or ''} {read_text(group / 'cpu.cfs_period_us') or ''}"
        quotas.append(parse_cpu_max(text))
    return min((quota for quota in quotas if quota is not None), default=None)


def parse_cpu_max(text: str) -> float | None:
    """Read CPUs from "quota period" in microseconds: "200000 100000" is 2.0. "max …", -1 or anything else is None."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1]) or None


def throttled(groups: Iterable[Path]) -> int | None:
    """Return how often the groups throttled this process so far; None if none of them counts it."""
    tables = (_parse_counters(read_text(group / "cpu.stat") or "") for group in groups)
    counts = [table["nr_throttled"] for table in tables if "nr_throttled" in table]
    return sum(counts) if counts else None


def memory_free_bytes(groups: Iterable[Path]) -> int | None:
    """Return the bytes left below the tightest limit, file pages that can be dropped included; None without a limit."""
    free = []
    for group in groups:
        limit = read_bytes(group, *MEMORY_LIMIT)
        used = read_bytes(group, "memory.current", "usage_in_bytes")
        if limit is not None and used is not None:
            stat = _parse_counters(read_text(group / "memory.stat") or "")
            droppable = stat.get("total_inactive_file", stat.get("inactive_file", 0))
            free.append(max(0, limit - max(0, used - droppable)))
    return min(free, default=None)


def read_bytes(group: Path, new: str, old: str) -> int | None:
    """Read a figure of a group's memory by its names in version 2 and 1; None without one, or without a limit."""
    text = (read_text(group / new) or read_text(group / f"memory.{old}") or "").strip()
    value = int(text) if text.isdecimal() else None
    # Version 1 writes "no limit" as the largest page-aligned 63-bit number.
    return None if value is None or value > 2**62 else value


def _parse_counters(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
