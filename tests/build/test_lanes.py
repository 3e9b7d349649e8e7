"""Builds side by side: disjoint CPUs, as many as an arm has, and nothing left running after an interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.core.build.preparation import run_on_lanes
from shootout.core.host import devices
from shootout.core.host.placement import lanes, place


@pytest.mark.parametrize(
    ("threads", "allowed", "expected"),
    [
        (1, [0, 1], [{1}, {0}]),
        (None, [0, 1, 2, 3], [{1, 2, 3}]),
        (2, [0, 1, 2, 3, 4], [{1, 2}, {0, 3}]),
        ("all", [0, 1], [{0, 1}]),
        (None, [0], [{0}]),
    ],
)
def test_lanes_are_disjoint_and_each_as_big_as_an_arm_s(threads, allowed, expected):
    assert [set(lane) for lane in lanes(place(threads, allowed), allowed)] == expected


@pytest.mark.parametrize(
    ("free", "lanes", "expected"),
    [(None, "a", "a"), (0, "a", "a"), (19, "a", "a"), (20, "a", "aa"), (99, "a", "aaa"), (99, "ab", "aba")],
)
def test_on_a_gpu_lanes_are_shared_by_as_many_as_fit_its_memory(monkeypatch, free, lanes, expected):
    monkeypatch.setattr(devices, "accelerator", lambda device: SimpleNamespace(free_bytes=lambda: free))
    assert "".join(devices.lanes_on_gpu(lanes, 16, [10, 1, 10])) == expected
    assert devices.lanes_on_gpu(lanes, 1, [10, 1, 10]) == ["a"], "no more than there are CPUs"


class Job(SimpleNamespace):
    """One of the builds that are asked for, found in a set by itself alone."""

    __hash__ = object.__hash__


def run(count: int, sets: int, job: Callable[[int, frozenset[int]], Any], **how: Any) -> Any:
    """Run jobs that are numbered, on so many lanes of one CPU each."""
    jobs: Any = [Job(number=number, kept=number == how.get("spared")) for number in range(count)]
    cpus = [frozenset({cpu}) for cpu in range(sets)]
    call: Any = lambda one, lane: job(one.number, lane)  # noqa: E731
    return run_on_lanes(jobs, cpus, call, how.get("stop", lambda: None), how.get("look", lambda: True))


def test_every_job_has_a_lane_to_itself():
    both, seen = threading.Barrier(2, timeout=30), []

    def job(_: int, lane: frozenset[int]) -> frozenset[int]:
        seen.append(lane)
        both.wait()
        return lane

    ended = {job.number: future.result() for job, future, _ in run(4, 2, job)}
    assert set(ended) == {0, 1, 2, 3}
    assert set(seen[:2]) == {frozenset({0}), frozenset({1})}
    assert seen.count(frozenset({0})) == seen.count(frozenset({1})) == 2


def test_an_interrupt_stops_what_runs_and_starts_nothing_more():
    stopped, begun = threading.Event(), []

    def job(number: int, _: frozenset[int]) -> None:
        begun.append(number)
        assert number == 0 or stopped.wait(30), "the running job was never told"

    def interrupted() -> None:
        with closing(run(4, 1, job, stop=stopped.set)) as building:
            next(building)
            while len(begun) < 2:
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert begun == [0, 1]
