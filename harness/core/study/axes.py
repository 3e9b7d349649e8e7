"""Axes of a grid as people write them: single values, lists, ranges; and the words that are axes beside parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from shootout.core.constants import BATCH, EMPTY
from shootout.core.errors import UsageError

WORDS = (BATCH, "threads", "scenario", "backend", "device", "precision")
"""The names that `--set` takes beside a model's parameters."""
MAX_CELLS = 100_000
"""More cells than this take weeks: such a grid is a mistake."""

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*([x+])\s*({_NUMBER})\s*")
_LOOKS_LIKE_ONE = re.compile(rf"\s*{_NUMBER}\s*\.\.")
SHAPE = re.compile(r"(?:N|0|[1-9]\d*)(?:x(?:N|0|[1-9]\d*))*")
_WHOLE = re.compile(r"[+-]?\d+")
_SLACK = Decimal("1e-9")
"""Logarithms are rounded, and the last value of a range must not be lost to that."""


def as_axis(given: Any) -> Any:
    """Make one word an axis of one value; return anything else as it is."""
    return (given,) if isinstance(given, str) else given


def read_axis(given: Any) -> tuple[Any, ...]:
    """Read an axis that a file or a caller gave: one value or several, with ranges written out.

    Raises:
        UsageError: a range that makes no sense.
    """
    parts = given if isinstance(given, list | tuple) else (given,)
    return tuple(value for part in parts for value in (expand_range(part) if isinstance(part, str) else (part,)))


def expand_range(text: str) -> tuple[int | float | str, ...]:
    """Write a range out: `1..2048 x2` → 1, 2, 4 … 2048; `128..3840 +128` → 128, 256 … 3840. Any other text is itself.

    Values are whole if both ends are, and the step of a `+`; whole ones of an `x` range are rounded.

    Raises:
        UsageError: a range of another form, one that leads nowhere, or one that is longer than a grid may be.
    """
    if not _LOOKS_LIKE_ONE.match(text):
        return (text,)
    match = _RANGE.fullmatch(text)
    if not match:
        raise UsageError(f"range {text!r} is not of the form 1..2048 x2 or 128..3840 +128")
    first, last, step = (Decimal(match[part]) for part in (1, 2, 4))
    times = match[3] == "x"
    _check_range(text, first, last, step, times=times)
    steps = (last / first).ln() / step.ln() + _SLACK if times else (last - first) / step
    if steps >= MAX_CELLS:
        raise UsageError(
            f"range {text!r} has {int(steps) + 1:,} values; a grid has {MAX_CELLS:,} cells at most: take larger steps"
        )
    count = int(steps) + 1
    values = [first * step**index if times else first + step * index for index in range(count)]
    if all(_WHOLE.fullmatch(match[part]) for part in ((1, 2) if times else (1, 2, 4))):
        return tuple(dict.fromkeys(round(value) for value in values))
    return tuple(float(value) for value in values)


def _check_range(text: str, first: Decimal, last: Decimal, step: Decimal, *, times: bool) -> None:
    if last < first:
        raise UsageError(f"range {text!r} must go up: write {last}..{first}")
    if times and (first <= 0 or step <= 1):
        raise UsageError(f"range {text!r} leads nowhere: x multiplies, from above 0 and by more than 1")
    if not times and step <= 0:
        raise UsageError(f"range {text!r} leads nowhere: + adds more than 0")


def read_shape(given: Any) -> Any:
    """Read `1x3x320x320` as sizes; `N` leaves an axis as it is, which is size 0. What is no text stays.

    Raises:
        UsageError: it is of another form, or a size is 0.
    """
    if not isinstance(given, str):
        return given
    if not SHAPE.fullmatch(given):
        raise UsageError(f"shape {given!r} is not of the form 1x3x320x320 (N for a batch given by --batch)")
    if any(size != "N" and not int(size) for size in given.split("x")):
        raise UsageError(f"shape {given!r}: {EMPTY}")
    return tuple(0 if size == "N" else int(size) for size in given.split("x"))


def make_grid_error(cells: int, lengths: Mapping[str, int]) -> UsageError:
    """Make the error that refuses a grid; `lengths` is how many values each axis has."""
    largest = sorted(lengths.items(), key=lambda axis: -axis[1])[:3]
    named = ", ".join(f"{name} has {length:,} values" for name, length in largest if length > 1)
    return UsageError(
        f"the grid has {cells:,} cells, {MAX_CELLS:,} at most: {named}; "
        "give fewer values (a range such as 1..2048 x2 spans much with few), or split the study"
    )
