"""System calls as strace writes them, a file for each process (`-ff -y`): the sockets, and the paths that changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOCKETS = ("socket", "socketpair", "connect", "bind")
_OPENS = ("open", "openat", "openat2", "creat")
_CHANGES = (
    *("mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "symlink", "symlinkat"),
    *("link", "linkat", "truncate", "mknod", "mknodat", "chmod", "fchmodat", "utimensat", "setxattr", "lsetxattr"),
)
TRACED = (*SOCKETS, *_OPENS, *_CHANGES)
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+)(?:<(.*)>)?")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE|^creat")
_FAMILY = re.compile(r"\b[AP]F_(\w+)")
KERNEL = ("/proc/", "/dev/", "/sys/")
"""What is written there is no file on a disk."""


@dataclass(slots=True)
class Traced:
    """What all processes did.

    Attributes:
        sockets: made, by family.
        addresses: by family, where one was connected or bound to, in strace's words.
        changed: paths that were written, made, renamed, or removed, with how often.
    """

    sockets: Counter[str] = field(default_factory=Counter)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    changed: Counter[Path] = field(default_factory=Counter)


def read_calls(lines: Iterable[str], into: Traced) -> None:
    """Add what one process did; calls that failed changed nothing, but an attempt to connect counts."""
    for line in lines:
        if not (found := _CALL.match(line)):
            continue
        call, words, result, opened = found.groups()
        if call in SOCKETS:
            _add_socket(call, words, int(result), into)
        elif int(result) >= 0 and (call in _CHANGES or _WRITES.search(f"{call} {_flags(words)}")):
            into.changed.update([Path(opened)] if call in _OPENS and opened else _paths(words))


def _flags(words: str) -> str:
    """All but the names, which may be spelled like anything."""
    return _PATH.sub("", words)


def _paths(words: str) -> Iterator[Path]:
    for folder, name in _PATH.findall(words):
        yield Path(folder, name)


def _add_socket(call: str, words: str, result: int, into: Traced) -> None:
    family = next(iter(_FAMILY.findall(words)), "unknown")
    if call in ("socket", "socketpair"):
        into.sockets[family] += result >= 0
    else:
        into.addresses.setdefault(family, set()).add(words.partition(", ")[2])


def places_of(changed: Mapping[Path, int], places: Mapping[str, Path]) -> tuple[Counter[str], dict[Path, int]]:
    """How many different paths lie in each of these places, or are the kernel's; and those that lie elsewhere.

    Args:
        places: folders by what they are for; one inside another comes first.
    """
    inside, outside = Counter[str](), dict[Path, int]()
    for path, count in changed.items():
        where = next((name for name, folder in places.items() if path.is_relative_to(folder)), None)
        if where is None and str(path).startswith(KERNEL):
            where = "the kernel's own (/proc, /dev, /sys)"
        if where is None:
            outside[path] = count
        else:
            inside[where] += 1
    return inside, outside
