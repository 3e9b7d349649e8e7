"""An arm that leaves the CPUs or thread counts it was given is noticed, from the kernel's own account."""

from __future__ import annotations

import os
import threading

import pytest

from shootout.host import bounds
from shootout.host.bounds import Bounds

GIVEN = Bounds(cpus=frozenset({1}), os_threads=1, variables={"OMP_NUM_THREADS": "1"})


def test_staying_inside_is_no_fault():
    assert GIVEN.left(Bounds(cpus=frozenset({1}), os_threads=9, variables={"OMP_NUM_THREADS": "1"})) is None


def test_a_thread_elsewhere_is_named():
    later = Bounds(cpus=frozenset({0, 1}), os_threads=2, variables={"OMP_NUM_THREADS": "1"})
    assert GIVEN.left(later) == "was given the CPUs [1], but has threads that may run on [0]"


@pytest.mark.parametrize(("now", "said"), [({"OMP_NUM_THREADS": "8"}, "is 8"), ({}, "is unset")])
def test_a_changed_thread_count_is_named(now: dict[str, str], said: str):
    assert said in str(GIVEN.left(Bounds(cpus=frozenset({1}), os_threads=1, variables=now)))


def test_every_thread_counts_not_only_the_first(monkeypatch: pytest.MonkeyPatch):
    cpus = sorted(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    done, moved = threading.Event(), threading.Event()

    def wander() -> None:
        os.sched_setaffinity(threading.get_native_id(), {cpus[-1]})
        moved.set()
        done.wait()

    other = threading.Thread(target=wander)
    try:
        os.sched_setaffinity(0, {cpus[0]})
        alone = bounds.current(("OMP_NUM_THREADS", "NO_SUCH_VARIABLE"))
        other.start()
        moved.wait()
        both = bounds.current(("OMP_NUM_THREADS",))
    finally:
        done.set()
        other.join()
        os.sched_setaffinity(0, cpus)
    assert alone.variables == {"OMP_NUM_THREADS": "3"}
    assert cpus[0] in alone.cpus
    assert cpus[-1] in both.cpus
    assert both.os_threads == alone.os_threads + 1
