"""Take the first minute and the last of a long turn, and the time per call in each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shootout.core.messages import TimeBin
from shootout.scenarios.constants import FIRST_S


def find_window_s(bins: Sequence[TimeBin]) -> float:
    """Return the seconds that count as a turn's beginning, and as its end."""
    return min(FIRST_S, length_s(bins) / 3)


def length_s(bins: Sequence[TimeBin]) -> float:
    """Return how many seconds a turn took."""
    return bins[-1].at_s + bins[-1].seconds


def take_first(bins: Sequence[TimeBin]) -> Sequence[TimeBin]:
    """Return the bins of a turn's beginning, one at least."""
    return [one for one in bins if one.at_s + one.seconds <= find_window_s(bins)] or bins[:1]


def take_end(bins: Sequence[TimeBin]) -> Sequence[TimeBin]:
    """Return the bins of a turn's end, one at least."""
    begins_s = length_s(bins) - find_window_s(bins)
    return [one for one in bins if one.at_s >= begins_s] or bins[-1:]


def end_ns(bins: Sequence[TimeBin]) -> float:
    """Return the nanoseconds per call at the end of a turn."""
    return call_ns(take_end(bins))


def call_ns(bins: Sequence[TimeBin]) -> float:
    """Return the nanoseconds per call in a part of a turn."""
    return 1e9 * sum(one.seconds for one in bins) / max(sum(one.calls for one in bins), 1)
