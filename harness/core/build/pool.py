"""Run builds side by side, each on CPUs of its own, as many as an arm will have.

A compiler sees the machine that its arm will see, and no two builds share a CPU. They still share caches and memory, so
`build_s` may be a little longer than alone; no latency is measured meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import cycle, islice
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from shootout.core.contract import Device
from shootout.core.host.devices import accelerator
from shootout.core.host.placement import Placement, allowed_cpus, node_of

LOOKING_S = 1.0
MOST_LANES = 4
"""The most builds at a time, because each may hold several copies of the weights."""

K = TypeVar("K")
T = TypeVar("T")


def lanes(placement: Placement, allowed: Sequence[int] | None = None) -> list[frozenset[int]]:
    """Divide the CPUs into disjoint sets, the arms' own first.

    Args:
        allowed: the CPUs to share out, in the order of use; `allowed_cpus()` when None.
    """
    rest = [cpu for cpu in (allowed_cpus() if allowed is None else allowed) if cpu not in placement.arms]
    size = len(placement.arms)
    more = [frozenset(rest[first : first + size]) for first in range(0, len(rest) - size + 1, size)]
    return [placement.arms, *more][:MOST_LANES]


def lanes_near(placement: Placement, allowed: Sequence[int] | None = None) -> list[frozenset[int]]:
    """Divide as `lanes` does, but only the arms' own NUMA nodes: what is loaded there stays there when its threads
    move.
    """
    cpus = allowed_cpus() if allowed is None else allowed
    nodes = {node_of(cpu) for cpu in placement.arms}
    return lanes(placement, [cpu for cpu in cpus if node_of(cpu) in nodes])


def lanes_on_gpu(lanes: Sequence[T], cpus: int, needs_bytes: Sequence[int]) -> list[T]:
    """Return a lane for each target on a GPU that is worked on at once: as many as fit its free memory.

    Such a target keeps few CPUs busy, so a lane may come more than once. Without a figure of it there is one.

    Args:
        lanes: those that targets on the CPU have.
        cpus: in all of them together.
        needs_bytes: what each target takes of the GPU's memory.
    """
    card = accelerator(Device.CUDA)
    free_bytes = card.free_bytes() if card else None
    fitting = 1 if free_bytes is None else free_bytes // max([1, *needs_bytes])
    return list(islice(cycle(lanes), max(1, min(MOST_LANES, cpus, fitting, len(needs_bytes)))))


class BuildPool(Generic[K, T]):
    """Run jobs, one per lane at a time. On an exception inside the `with` block nothing is left running.

    Args:
        cpus: the lanes; a job is called with the one it gets.
        stop: makes all running jobs end soon, with an exception of theirs.

    Attributes:
        stopped: the jobs that ran or waited when `look` was False.
    """

    def __init__(self, cpus: Sequence[frozenset[int]], stop: Callable[[], None]) -> None:
        self._pool, self._stop = ThreadPoolExecutor(len(cpus)), stop
        self._free: SimpleQueue[frozenset[int]] = SimpleQueue()
        self._jobs: dict[Future[T], K] = {}
        self._spared: set[Future[T]] = set()
        self.stopped: set[K] = set()
        for lane in cpus:
            self._free.put(lane)

    def submit(self, key: K, job: Callable[[frozenset[int]], T], *, spared: bool = False) -> None:
        """Run `job` when a lane is free; first come, first served; `spared`: even if it is late by then."""
        future = self._pool.submit(self._run_on_free_lane, job)
        self._jobs[future] = key
        if spared:
            self._spared.add(future)

    def keys(self) -> list[K]:
        """Return the keys of all jobs, first come first."""
        return list(self._jobs.values())

    def results(self, look: Callable[[], bool] = lambda: True) -> Iterator[tuple[K, Future[T]]]:
        """Yield every job as it ends.

        Args:
            look: called when some ended, and every LOOKING_S seconds; once it is False, jobs that wait are cancelled
                unless they are spared, and those that run are stopped.
        """
        left = set(self._jobs)
        goes_on = True
        while left:
            ended, left = wait(left, LOOKING_S, FIRST_COMPLETED)
            for future in ended:
                yield self._jobs[future], future
            if goes_on and left and not look():
                goes_on = False
                self.stopped = {self._jobs[future] for future in left if not future.done()}
                for future in left - self._spared:
                    future.cancel()
                self._stop()

    def __enter__(self) -> BuildPool[K, T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._stop()
        self._pool.shutdown()

    def _run_on_free_lane(self, job: Callable[[frozenset[int]], T]) -> T:
        lane = self._free.get()
        try:
            return job(lane)
        finally:
            self._free.put(lane)
