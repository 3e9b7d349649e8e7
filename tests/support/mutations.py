"""Journals that a stranger may have written: a known one with one value changed, and a checksum that fits it."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shootout.core.journal import journal

_GONE = object()
VALUES: tuple[Any, ...] = (
    _GONE,
    *(None, True, "", "x", "a" * 300, "\x1b[31mred", "../x", "NaN", "Infinity", "-5", [], {}, [[1]], {"x": {"y": 1}}),
    *(-1, 0, 7, 1 << 40, 1 << 62, 1 << 70, -0.5, 1e-320, 1e100, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
"""What takes a value's place; JSON as Python writes it has NaN and Infinity, too."""
Lines = list[dict[str, Any]]


def read_lines(folder: Path) -> Lines:
    """The lines of a packed run."""
    return _parse(gzip.decompress((folder / journal.PACKED).read_bytes()))


def read_plain(folder: Path) -> Lines:
    """The lines of a run that isn't packed."""
    return _parse((folder / journal.NAME).read_bytes())


def _parse(text: bytes) -> Lines:
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        line.pop("sum")
    return found


def write_lines(lines: Lines, folder: Path) -> None:
    """Write a journal whose checksums all fit."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
    (folder / journal.NAME).write_bytes(b"".join(text[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(text) for text in texts))


def _list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the places of all values below one, but for the kind of a line."""
    if path and path != ("kind",):
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _list_places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            yield from _list_places(inner, (*path, index))


def mutate(lines: Lines, kind: str, chance: random.Random) -> tuple[Lines, int, str]:
    """Change one value of one line of a kind: the lines, the line's number from 1, and what was done."""
    index = chance.choice([index for index, line in enumerate(lines) if line["kind"] == kind])
    line = json.loads(json.dumps(lines[index]))
    places = list(_list_places(line))
    by_name: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for place in places:  # a key of which there are many is no likelier than one that comes once
        by_name.setdefault(tuple(str(part) for part in place if isinstance(part, str)), []).append(place)
    *before, last = chance.choice(by_name[chance.choice(sorted(by_name))])
    value, parent = chance.choice(VALUES), line
    for part in before:
        parent = parent[part]
    if value is _GONE:
        del parent[last]
    else:
        parent[last] = value
    told = f"{kind} {'.'.join(map(str, (*before, last)))} = {'gone' if value is _GONE else repr(value)[:20]}"
    return [*lines[:index], line, *lines[index + 1 :]], index + 1, told
