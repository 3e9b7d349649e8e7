"""Where a key or a list's item stands in a TOML text: the parser tells no lines, so it is asked about beginnings."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

Path = Sequence[str | int]
"""Keys from the top, list indices among them: `("parameters", "d_model", 0)`."""


def line_of(text: str, path: Path) -> int | None:
    """The line, from 1, on which the entry at `path` begins, or the nearest one above it; None where there is none.

    Args:
        text: valid TOML.
    """
    lines = text.splitlines()
    keys = [part for part in path if isinstance(part, str)]
    while keys and not _holds(tomllib.loads(text), keys):
        keys.pop()
    if not keys:
        return None
    whole = _first(lines, keys)  # the statement ends here …
    begin = _begin(lines, whole)
    if len(path) > len(keys) and isinstance(item := path[len(keys)], int):
        cut = ("\n".join([*lines[:last], "]"]) for last in range(begin + 1, whole))
        open_lines = [_items(text, keys) for text in cut]  # … and the item on the first line that, closed there, has it
        counts = [*open_lines, _items("\n".join(lines[:whole]), keys)]
        return next((begin + 1 + index for index, count in enumerate(counts) if count > item), begin + 1)
    return begin + 1


def _first(lines: Sequence[str], keys: Sequence[str]) -> int:
    """How many lines it takes until the text has these keys, by bisection."""
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _holds(_longest(lines, middle), keys):
            high = middle
        else:
            low = middle + 1
    return low


def _begin(lines: Sequence[str], end: int) -> int:
    """The index of the line on which the statement begins that ends with line `end` (counted from 1)."""
    begin = end - 1
    while begin > 0 and _parsed("\n".join(lines[:begin])) is None:
        begin -= 1
    return begin


def _longest(lines: Sequence[str], count: int) -> dict[str, Any]:
    """What the longest beginning of at most `count` lines holds that is whole."""
    while (found := _parsed("\n".join(lines[:count]))) is None:
        count -= 1
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _holds(found: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return True


def _items(text: str, keys: Sequence[str]) -> int:
    found: Any = _parsed(text)
    if not _holds(found, keys):
        return 0
    for key in keys:
        found = found[key]
    return len(found) if isinstance(found, list) else 0
