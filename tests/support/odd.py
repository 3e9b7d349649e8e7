"""Strategies of odd input: something whole whose bytes, text or values were changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

ODD_TEXT = (
    *("", " ", "\x1b]52;c;aGk=\x07", "\x1b[2J", "[red]x[/]", "[/]", "[link=http://x]y[/link]", "a\nb", "\0", "\u202e"),
    *("\ud800", "9" * 30, "1e999", "-1", "nan", "é", "..", "x" * 300, "a,b", "a=b", "a:b", "*", "%s", "{0}", "'", '"'),
    *("#", "@", "+"),
)
ODD_NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"))
ODD_VALUES = (None, True, False, [], {}, [[]], {"": None}, *ODD_TEXT, *ODD_NUMBERS)

values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(ODD_VALUES) | st.text(max_size=8) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
places = st.integers(0, 2**32 - 1)
"""Which of the bytes or values there are, modulo their number."""


@st.composite
def edited_bytes(draw: st.DrawFn, wholes: Sequence[bytes]) -> bytes:
    """Draw one of these with up to six bytes flipped, pieces cut out, put in, doubled, or the end lost."""
    data = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(1, 6))):
        at, length = draw(places) % (len(data) + 1), draw(st.integers(1, 40))
        match draw(st.integers(0, 4)):
            case 0:
                data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
            case 1:
                data = data[:at] + draw(st.binary(max_size=8)) + data[at:]
            case 2:
                data = data[:at] + data[at + length :]
            case 3:
                data = data[:at] + data[at : at + length] * 2 + data[at:]
            case _:
                data = data[:at]
    return data


@st.composite
def edited_text(draw: st.DrawFn, wholes: Sequence[str], words: Sequence[str]) -> str:
    """Draw one of these texts with up to four pieces replaced by words that could stand there, or by odd ones."""
    text = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(1, 4))):
        at, gone = draw(places) % (len(text) + 1), draw(st.sampled_from((0, 0, 1, 5, 20)))
        text = text[:at] + draw(st.sampled_from((*words, *ODD_TEXT))) + text[at + gone :]
    return text


@st.composite
def edited_values(draw: st.DrawFn, wholes: Sequence[Any]) -> Any:
    """Draw one of these JSON values with up to four of its parts replaced, removed or renamed."""
    whole = copy.deepcopy(draw(st.sampled_from(wholes)))
    for _ in range(draw(st.integers(1, 4))):
        inner = [one for one in _containers(whole) if one]
        if not inner:
            break
        where = inner[draw(places) % len(inner)]
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = keys[draw(places) % len(keys)]
        match draw(st.integers(0, 4)):
            case 0:
                del where[key]
            case 1 if isinstance(where, dict):
                where[draw(st.sampled_from(ODD_TEXT))] = where.pop(key)
            case 2:
                other = inner[draw(places) % len(inner)]
                where[key] = copy.deepcopy(next(iter(other.values() if isinstance(other, dict) else other)))
            case _:
                where[key] = copy.deepcopy(draw(values))  # those to choose from stay as they are
    return whole


def _containers(whole: Any) -> list[Any]:
    if not isinstance(whole, dict | list):
        return []
    parts = whole.values() if isinstance(whole, dict) else whole
    return [whole, *(one for part in parts for one in _containers(part))]


def as_json(value: Any) -> bytes:
    """Return a value as bytes, whatever text is in it; `json.loads` gives it back."""
    return json.dumps(value).encode()
