"""Who runs on which CPU, what an arm's process finds in its environment, and how one that strays is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shootout.core.errors import UsageError
from shootout.core.host import placement
from shootout.core.host.placement import (
    Placement,
    ProcessBounds,
    allowed_cpus,
    child_environment,
    current_bounds,
    one_per_core_first,
    place,
    widest,
)


def test_by_default_the_parent_has_one_cpu_and_the_arms_the_rest():
    expected = Placement(parent=frozenset({2}), arms=frozenset({3, 5, 6}), threads=3)
    assert place(None, (2, 3, 5, 6)) == expected


def test_one_cpu_is_shared_and_said():
    shared = place(None, (4,))
    assert (shared.parent, shared.arms, shared.threads) == (frozenset({4}), frozenset({4}), 1)
    assert shared.note.startswith("only one CPU is allowed: ")
    assert place("all", (4,)) == shared == place(1, (4,))


def test_all_gives_the_arms_every_cpu_and_says_that_the_parent_shares():
    shared = place("all", (0, 1, 2))
    assert (shared.parent, shared.arms, shared.threads) == (frozenset({0}), frozenset({0, 1, 2}), 3)
    assert shared.note.startswith("3 threads use every allowed CPU: ")
    assert place(3, (0, 1, 2)) == shared


@pytest.mark.parametrize("threads", [0, -1, 5, 10**9])
def test_impossible_thread_counts_are_refused_with_the_range(threads: int):
    with pytest.raises(UsageError, match=rf"invalid threads {threads}: .*4 CPUs; use 1 to 4"):
        place(threads, (0, 1, 2, 3))


@given(st.sets(st.integers(0, 300), min_size=1, max_size=64), st.data())
def test_whatever_the_machine_the_arms_have_as_many_cpus_as_threads(cpus: set[int], data: st.DataObject):
    threads = data.draw(st.one_of(st.none(), st.just("all"), st.integers(1, len(cpus))))
    placed = place(threads, sorted(cpus))
    assert len(placed.arms) == placed.threads
    assert len(placed.parent) == 1
    assert placed.parent | placed.arms <= cpus
    assert bool(placed.note) == bool(placed.parent & placed.arms)


def test_second_threads_of_a_core_come_last():
    adjacent = one_per_core_first(range(8), lambda cpu: str(cpu // 2))
    halves = one_per_core_first(range(8), lambda cpu: str(cpu % 4))
    assert adjacent == (0, 2, 4, 6, 1, 3, 5, 7)
    assert halves == tuple(range(8))
    assert one_per_core_first([7, 3, 1], str) == (1, 3, 7)


@pytest.mark.parametrize(("quota", "count"), [(None, 8), (2.0, 2), (2.9, 2), (0.5, 1), (64.0, 8)])
def test_a_quota_cuts_the_cpus_down(monkeypatch: pytest.MonkeyPatch, quota: float | None, count: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(placement, "core_of", str)
    monkeypatch.setattr(placement, "cpu_quota", lambda _: quota)
    assert allowed_cpus() == tuple(range(count))


def test_a_librarys_own_threads_see_every_cpu_whatever_the_quota(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(placement, "core_of", str)
    monkeypatch.setattr(placement, "cpu_quota", lambda _: 1.0)
    assert place("all").arms == {0}
    own = place("default")
    assert (own.arms, own.parent) == ({0, 1, 2, 3}, {0})
    both = widest(["default", "all", 1])
    assert both == own
    assert both.narrowed(0) == own
    assert both.narrowed(1).arms == {1}, "off the harness's CPU"


def test_the_environment_sets_the_threads_and_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("OMP_NUM_THREADS", "99")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    before = dict(os.environ)
    child = child_environment(3, 17)
    assert {name: child[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PJRT_NPROC")} == {
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
        "PJRT_NPROC": "3",
    }
    assert (child["XLA_FLAGS"], child["OMP_WAIT_POLICY"]) == ("--xla_dump_to=/x", "passive")
    assert (child["PYTHONHASHSEED"], child["SHOOTOUT_PADDING"]) == ("random", "x" * 17)
    assert dict(os.environ) == before


def test_numpy_in_a_child_really_has_that_many_threads():
    code = "import numpy, threadpoolctl; print([pool['num_threads'] for pool in threadpoolctl.threadpool_info()])"
    for threads in (1, 2):
        environment = child_environment(threads, 0)
        words = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert words.stdout.strip() == f"[{threads}]"


def test_the_widest_of_several_counts_that_can_be_holds_all_others():
    cpus = (0, 1, 2, 3)
    assert widest((1, 3, 2), cpus) == place(3, cpus)
    assert widest((1, 64), cpus) == place(1, cpus)
    assert widest((1, "all"), cpus) == place(4, cpus)
    assert widest((None,), cpus) == place(None, cpus)
    for wrong in ((64,), (1, 0), (64, 65)):
        with pytest.raises(UsageError, match="use 1 to 4"):
            widest(wrong, cpus)


GIVEN = ProcessBounds(cpus=frozenset({1}), os_threads=1, variables={"OMP_NUM_THREADS": "1"})


def test_a_thread_elsewhere_is_named():
    later = ProcessBounds(cpus=frozenset({0, 1}), os_threads=2, variables={"OMP_NUM_THREADS": "1"})
    assert GIVEN.left(later) == "was given the CPUs [1], but has threads that may run on [0]"


@pytest.mark.parametrize(("now", "said"), [({"OMP_NUM_THREADS": "8"}, "is 8"), ({}, "is unset")])
def test_a_changed_thread_count_is_named(now: dict[str, str], said: str):
    assert said in str(GIVEN.left(ProcessBounds(cpus=frozenset({1}), os_threads=1, variables=now)))


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
        alone = current_bounds(("OMP_NUM_THREADS", "NO_SUCH_VARIABLE"))
        other.start()
        moved.wait()
        both = current_bounds(("OMP_NUM_THREADS",))
    finally:
        done.set()
        other.join()
        os.sched_setaffinity(0, cpus)
    assert alone.variables == {"OMP_NUM_THREADS": "3"}
    assert cpus[0] in alone.cpus
    assert cpus[-1] in both.cpus
    assert both.os_threads == alone.os_threads + 1
