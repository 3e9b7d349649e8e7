"""What can be done to something whole: to its bytes, to the values of a JSON document, to words."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

NASTY_TEXT = (
    *(
        "",
        " ",
        "\x1b]52;c;aGk=\x07",
        "\x1b[2J",
        "[red]x[/]",
        "[/]",
        "[link=http://x]y[/link]",
        "a\nb",
        "\0",
        "\u202e",
        "\ud800",
    ),
    *(
        "9" * 30,
        "1e999",
        "-1",
        "nan",
        "é",
        "..",
        "x" * 300,
        "a,b",
        "a=b",
        "a:b",
        "*",
        "%s",
        "{0}",
        "'",
        '"',
        "#",
        "@",
        "+",
    ),
)
NASTY_NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
NASTY: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": None}, *NASTY_TEXT, *NASTY_NUMBERS)

values: SearchStrategy[Any] = st.recursive(
    st.sampled_from(NASTY) | st.text(max_size=8) | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
places = st.integers(0, 2**32 - 1)
"""Which of the bytes or values there are, modulo their number."""


@st.composite
def edited_bytes(draw: st.DrawFn, wholes: Sequence[bytes]) -> bytes:
    """One of these with up to six bytes flipped, pieces cut out, put in, doubled, or the end lost."""
    data = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(places) % (len(data) + 1)
        match draw(st.integers(0, 5)):
            case 0:
                data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
            case 1:
                data = data[:at] + draw(st.binary(max_size=8)) + data[at:]
            case 2:
                data = data[:at] + data[at + draw(st.integers(1, 40)) :]
            case 3:
                data = data[:at] + data[at : at + draw(st.integers(1, 40))] * 2 + data[at:]
            case 4:
                data = (
                    data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :] if data[at:] else data
                )
            case _:
                data = data[:at]
    return data


@st.composite
def edited_text(draw: st.DrawFn, wholes: Sequence[str], words: Sequence[str]) -> str:
    """One of these texts with up to four pieces replaced by words that could stand there, or by others."""
    text = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(1, 4))):
        at, gone = draw(places) % (len(text) + 1), draw(st.sampled_from((0, 0, 1, 5, 20)))
        text = text[:at] + draw(st.sampled_from((*words, *NASTY_TEXT))) + text[at + gone :]
    return text


@st.composite
def edited_values(draw: st.DrawFn, wholes: Sequence[Any]) -> Any:
    """One of these JSON values with up to four of its parts replaced, removed or renamed."""
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
                where[draw(st.sampled_from(NASTY_TEXT))] = where.pop(key)
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
    """A value as bytes, whatever text is in it; `json.loads` gives it back."""
    return json.dumps(value).encode()
