"""Read the values of options as they are typed: counts, times, names, shapes, axes of parameters and their ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from shootout.core.constants import EMPTY, MAX_CELLS
from shootout.core.errors import UsageError
from shootout.tell.limits import NANOSECONDS

if TYPE_CHECKING:
    from shootout.core.contract import Value


_NEXT_AXIS = re.compile(r",(?=(?:[^,=()]|\((?:[^=()]|\([^=()]*\))*\))*=)")
"""A comma before the next `key=`; a key may be arithmetic with commas in parentheses, such as `Max(1, s0)`."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_TIMES = re.compile(rf"(?:{_TIME.pattern}\s*)+")
_UNIT_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_value(text: str) -> Value:
    """Parse a value as written on the command line: whole number, number, true/false, else text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_state(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Read `input=output` texts as outputs by input; one text may hold several, with commas.

    Raises:
        UsageError: a text of another form, or an input that is given twice.
    """
    parts = [part.strip() for text in texts for part in text.split(",")]
    state: dict[str, str] = {}
    for part in parts:
        name, _, made = part.partition("=")
        if not (name and made):
            raise UsageError(f"{flag} {part!r} is not of the form input=output, such as h=hn")
        if name in state:
            raise UsageError(f"{flag} {name} is given twice: its next value is one output")
        state[name] = made
    return state


def read_shapes(flag: str, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Read `input=1x3x320x320` texts as shapes by input, "" for a shape alone; one text may hold several, with commas.

    Raises:
        UsageError: a text of another form, or an input that is given twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    parts = [part.strip() for text_given in texts for part in text_given.split(",")]
    for text in parts:
        name, sign, shape = text.rpartition("=") if "=" in text else text.rpartition(":")
        if bool(name) is not bool(sign) or not SHAPE.fullmatch(shape) or not (name or len(parts) == 1):
            raise UsageError(f"{flag} {','.join(parts)!r} is not of the form x=1x3x320x320")
        if name in shapes:
            raise UsageError(f"{flag} {name} is given twice: an input has one shape")
        shapes[name] = read_shape(shape)
    return shapes


def read_steps(flag: str, text: str) -> int:
    """Read how many calls make a clip.

    Raises:
        UsageError: it is no whole number from 1 on.
    """
    if (steps := read_whole(flag, text)) < 1:
        raise UsageError(f"{flag} {steps}: a clip has one call at least: write {flag} 100, or leave it out")
    return steps


def read_names(_: str, text: str) -> tuple[str, ...]:
    """Read `a, b` as names."""
    return tuple(part.strip() for part in text.split(","))


def read_counts(flag: str, text: str) -> tuple[int, ...]:
    """Read `1,8` or `1..64 x2` as whole numbers.

    Raises:
        UsageError: there is something else in it.
    """
    return tuple(read_whole(flag, part) for part in _split_words(text))


def read_threads(flag: str, text: str) -> tuple[int | str, ...]:
    """Read counts as `read_counts` does; `all` and `default` may be among them."""
    return tuple(part if part in ("all", "default") else read_whole(flag, part) for part in _split_words(text))


def _split_words(text: str) -> list[int | float | str]:
    return [word for part in text.split(",") for word in expand_range(part)]


def read_whole(flag: str, value: float | str) -> int:
    """Read one whole number.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, float):
        raise UsageError(f"{flag} takes whole numbers, got {value}")
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{flag} takes whole numbers, got {value!r}") from None


def read_positive(flag: str, text: str) -> tuple[int, ...]:
    """Read `1,2` as whole numbers from 1 on.

    Raises:
        UsageError: there is something else in it.
    """
    parts = read_names(flag, text)
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"{flag} {text!r} is not of the form 1,2: whole numbers from 1 on")
    return tuple(map(int, parts))


def read_sets(flag: str, texts: Iterable[str]) -> dict[str, tuple[Value, ...]]:
    """Read `key=v1,v2` texts as axes; a value may be a range, and `a=1,b=2` are two axes.

    Raises:
        UsageError: a text without `=`, an empty value, a range that makes no sense, or an axis that is given twice.
    """
    axes: dict[str, tuple[Value, ...]] = {}
    for text in (axis for text_given in texts for axis in _NEXT_AXIS.split(text_given)):
        key, equals, values = text.partition("=")
        name, parts = key.strip(), [part.strip() for part in values.split(",")]
        if not equals or not name or not all(parts):
            raise UsageError(f"{flag} {text!r} is not of the form key=value or key=v1,v2")
        if name in axes:
            raise UsageError(f"{flag} {name} is given twice: write {name}=v1,v2")
        axes[name] = tuple(
            parse_value(value) if isinstance(value, str) else value for part in parts for value in expand_range(part)
        )
    return axes


def read_options(flag: str, texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read `backend.KEY=value` texts as options by backend.

    Raises:
        UsageError: a text of another form.
    """
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        backend, dot, setting = text.partition(".")  # a mode may hold an equals sign, but no dot
        key, equals, value = setting.partition("=")
        if not (equals and dot and backend and key):
            raise UsageError(f"{flag} {text!r} is not of the form backend.KEY=value")
        options.setdefault(backend, {})[key] = value
    return options


def read_seconds(flag: str, text: str) -> float:
    """Read `90s`, `2m`, `1h`, `2m30s` or plain seconds → seconds.

    Raises:
        UsageError: it is none of these, or no time at all.
    """
    parts = re.findall(rf"{_TIME.pattern}\s*", text.strip())
    if not _TIMES.fullmatch(text.strip()) or any(not unit for _, unit in parts[1:]):
        raise UsageError(f"{flag} {text!r} is not a time: write 90s, 2m30s or 1h")
    seconds = sum(float(number) * _UNIT_S[unit or "s"] for number, unit in parts)
    if not seconds:
        raise UsageError(f"{flag} {text!r} leaves no time to measure anything: write 90s, 2m30s or 1h")
    return seconds


def read_milliseconds(flag: str, text: str) -> float:
    """Read `5ms`, `800us` or `1s` → milliseconds.

    Raises:
        UsageError: it is none of these.
    """
    return NANOSECONDS.read(flag, text) / 1e6


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
