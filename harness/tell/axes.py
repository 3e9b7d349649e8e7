"""Axes of a grid as people write them: single values, lists, ranges; and shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from shootout.core.constants import EMPTY, MAX_CELLS
from shootout.core.errors import UsageError

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*([x+])\s*({_NUMBER})\s*")
_LOOKS_LIKE_ONE = re.compile(rf"\s*{_NUMBER}\s*\.\.")
SHAPE = re.compile(r"(?:N|0|[1-9]\d*)(?:x(?:N|0|[1-9]\d*))*")
_WHOLE = re.compile(r"[+-]?\d+")
_SLACK = Decimal("1e-9")
"""Logarithms are rounded, and the last value of a range must not be lost to that."""


def read_axes(fields: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return the values of a study with its axes and shapes read: one value or several, with ranges written out.

    Args:
        place: the file or study that they come from, for messages.

    Raises:
        UsageError: a range or a shape makes no sense; names the place and the key.
    """
    from shootout.core.study.schema import study_options  # which `--help` doesn't load

    found = dict(fields)
    several = {name for name, option in study_options().items() if isinstance(option.default, tuple)}
    for name in ("batch", "threads", *several):
        if name in found:
            found[name] = _read(read_axis, found[name], f"{place}{name}")
    for name, read in (("parameters", read_axis), ("shapes", read_shape)):
        if isinstance(given := found.get(name), Mapping):
            found[name] = {key: _read(read, value, f"{place}{name}.{key}") for key, value in given.items()}
    return found


def _read(read: Callable[[Any], Any], given: Any, key: str) -> Any:
    try:
        return read(given)
    except UsageError as error:
        raise UsageError(f"{key} is {given!r}: {error}") from None


def read_axis(given: Any) -> Any:
    """Read an axis: one value or several, with ranges written out; what holds no text stays as it is.

    Raises:
        UsageError: a range that makes no sense.
    """
    parts = given if isinstance(given, list | tuple) else (given,)
    if not any(isinstance(part, str) for part in parts):
        return given
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
    if last < first or (first <= 0 or step <= 1 if times else step <= 0):
        raise UsageError(f"range {text!r} leads nowhere: up by x above 1, from above 0, or by + above 0")
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
