"""Builds side by side: disjoint CPUs, as many as an arm has, and nothing left running after an interrupt."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from shootout.core.build import pool
from shootout.core.build.pool import MOST_LANES, BuildPool, lanes, lanes_near
from shootout.core.host.placement import place


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


def test_lanes_for_loading_stay_on_the_nodes_of_the_arms(monkeypatch):
    monkeypatch.setattr(pool, "node_of", lambda cpu: f"node{cpu // 4}")
    found = lanes_near(place(2, range(8)), range(8))
    assert [set(lane) for lane in found] == [{1, 2}, {0, 3}]
    monkeypatch.setattr(pool, "node_of", lambda cpu: "")
    assert len(lanes_near(place(2, range(8)), range(8))) == 4


def test_memory_limits_their_number():
    assert len(lanes(place(1, range(64)), range(64))) == MOST_LANES


@pytest.mark.parametrize(
    ("free", "lanes", "expected"),
    [(None, "a", "a"), (0, "a", "a"), (19, "a", "a"), (20, "a", "aa"), (99, "a", "aaa"), (99, "ab", "aba")],
)
def test_on_a_gpu_lanes_are_shared_by_as_many_as_fit_its_memory(monkeypatch, free, lanes, expected):
    monkeypatch.setattr(pool, "accelerator", lambda device: SimpleNamespace(free_bytes=lambda: free))
    assert "".join(pool.lanes_on_gpu(lanes, 16, [10, 1, 10])) == expected
    assert pool.lanes_on_gpu(lanes, 1, [10, 1, 10]) == ["a"], "no more than there are CPUs"


def test_every_job_has_a_lane_to_itself():
    both, seen = threading.Barrier(2, timeout=30), []

    def job(lane: frozenset[int]) -> frozenset[int]:
        seen.append(lane)
        both.wait()
        return lane

    with BuildPool[int, frozenset[int]]([frozenset({0}), frozenset({1})], stop=lambda: None) as building:
        for key in range(4):
            building.submit(key, job)
        ended = {key: future.result() for key, future in building.results()}
    assert set(ended) == {0, 1, 2, 3}
    assert set(seen[:2]) == {frozenset({0}), frozenset({1})}
    assert seen.count(frozenset({0})) == seen.count(frozenset({1})) == 2


def test_an_interrupt_stops_what_runs_and_starts_nothing_more():
    stopped, begun = threading.Event(), []

    def job(lane: frozenset[int]) -> None:
        begun.append(lane)
        assert stopped.wait(30), "the running job was never told"

    def interrupted() -> None:
        with BuildPool[int, None]([frozenset({0})], stop=stopped.set) as building:
            for key in range(3):
                building.submit(key, job)
            while not begun:
                pass
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(begun) == 1


def test_a_job_s_exception_is_its_own():
    def job(lane: frozenset[int]) -> int:
        raise ArithmeticError

    with BuildPool[str, int]([frozenset({0})], stop=lambda: None) as building:
        building.submit("bad", job)
        building.submit("good", len)
        ended = dict(building.results())
    assert isinstance(ended["bad"].exception(), ArithmeticError)
    assert ended["good"].result() == 1


def test_the_limit_holds_while_one_job_after_the_other_ends(monkeypatch):
    monkeypatch.setattr(pool, "LOOKING_S", 30.0)
    begun, stopped, ended = threading.Event(), threading.Event(), {}

    def job(lane: frozenset[int]) -> bool:
        begun.set()
        return stopped.wait(20)

    with BuildPool[int, bool]([frozenset({0})], stop=stopped.set) as building:
        building.submit(0, lambda _: True)
        for key in (1, 2, 3):
            building.submit(key, job, spared=key == 3)
        for key, future in building.results(lambda: not begun.wait(20)):
            ended[key] = None if future.cancelled() else future.result()
    assert ended == {0: True, 1: True, 2: None, 3: True}, "the last one was spared"
    assert building.stopped == {1, 2, 3}
