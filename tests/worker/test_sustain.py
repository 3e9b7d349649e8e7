"""A long turn in the worker: calls without a pause, in bins, on a clock that only the calls move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shootout.core import clock
from shootout.scenarios.sustained import BIN_S, MOST_BINS, LongBlocks


class Paced:
    """A session whose calls take as long as they are told to, and slow down after some seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call_s: float, later_s: float, after_s: float = 1e9) -> None:
        self.ns, self.calls, self.began_ns = 0, 0, 0
        self._call_s, self._later_s, self._after_s = call_s, later_s, after_s
        monkeypatch.setattr(clock, "now_ns", lambda: self.ns)
        monkeypatch.setattr(clock, "quiet_collector", lambda: None)

    def blocks(self) -> LongBlocks:
        session: Any = SimpleNamespace(
            stage=lambda inputs, slot: slot, execute=self.execute, synchronize=lambda: None, fetch=lambda raw: raw
        )
        blocks = LongBlocks(session, [{}, {}])
        blocks.tune()
        self.calls, self.began_ns = 0, self.ns
        return blocks

    def execute(self, staged: object) -> object:
        self.calls += 1
        is_late = self.ns - self.began_ns >= self._after_s * 1e9
        self.ns += round(1e9 * (self._later_s if is_late else self._call_s))
        return staged


def test_bins_hold_every_call_of_the_turn_and_follow_each_other(monkeypatch: pytest.MonkeyPatch):
    paced = Paced(monkeypatch, 0.001, 0.001)
    bins = paced.blocks().sustain(10.0)
    assert sum(one.calls for one in bins) == paced.calls == 10_000
    assert [one.at_s for one in bins] == pytest.approx([BIN_S * index for index in range(10)])
    assert sum(one.seconds for one in bins) == pytest.approx(10.0)


def test_a_target_that_slows_down_shows_it_in_the_bins_behind(monkeypatch: pytest.MonkeyPatch):
    bins = Paced(monkeypatch, 0.001, 0.0013, after_s=6.0).blocks().sustain(10.0)
    per_call = [one.seconds / one.calls for one in bins]
    assert per_call[:6] == pytest.approx([0.001] * 6)
    assert per_call[7:] == pytest.approx([0.0013] * len(per_call[7:]))


def test_calls_that_stall_now_and_then_count_in_the_mean(monkeypatch: pytest.MonkeyPatch):
    paced = Paced(monkeypatch, 0.001, 0.001)
    blocks = paced.blocks()
    original = paced.execute

    def stalling(staged: object) -> object:
        paced.ns += 50_000_000 if paced.calls % 100 == 0 else 0
        return original(staged)

    session: Any = SimpleNamespace(stage=lambda i, s: s, execute=stalling, synchronize=int, fetch=int)
    blocks = LongBlocks(session, [{}])
    blocks.tune()
    bins = blocks.sustain(3.0)
    mean_s = sum(one.seconds for one in bins) / sum(one.calls for one in bins)
    assert mean_s == pytest.approx(0.0015, rel=0.05), "the median would show 1 ms"


def test_calls_longer_than_a_bin_make_a_bin_each(monkeypatch: pytest.MonkeyPatch):
    bins = Paced(monkeypatch, 4.0, 4.0).blocks().sustain(10.0)
    assert [one.calls for one in bins] == [1, 1, 1]


def test_short_calls_are_read_many_at_a_time_and_all_counted(monkeypatch: pytest.MonkeyPatch):
    paced = Paced(monkeypatch, 0.000_002, 0.000_002)
    blocks = paced.blocks()
    assert blocks.tune().per_reading["end_to_end"] > 1
    paced.calls = 0
    bins = blocks.sustain(2.0)
    assert sum(one.calls for one in bins) == paced.calls


def test_an_hour_has_no_more_bins_than_a_page_can_show(monkeypatch: pytest.MonkeyPatch):
    bins = Paced(monkeypatch, 0.5, 0.5).blocks().sustain(3_600.0)
    assert 0.9 * MOST_BINS <= len(bins) <= MOST_BINS
