"""Hold the cache below its limit: what was used longest ago goes, once no command works with the cache.

A command that works with its content holds a shared lock (flock on a file in it), and nothing is removed before all
have ended. The lock is on a file because hosts share the locks of files on a network's disk, but not those of folders.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from shootout.backends import CONVERTER, KEY_DIGITS, RUNTIME_FORMS
from shootout.core.errors import UsageError
from shootout.core.host.folders import Scratch
from shootout.core.host.store import READ_ROWS, cache_folder, unwritable

_LOCK = ".lock"
LIMIT, LIMIT_GB = "SHOOTOUT_CACHE_LIMIT", 20.0
"""The variable that sets another limit, in GB (10^9 bytes), and the limit where it isn't set."""
ENVIRONMENT = "release-"
"""The prefix of a folder that holds an environment with one release of a package; `KEY_DIGITS` digits follow."""
KINDS = {
    "exported models": "exported/" + "[0-9a-f]" * 8 + "*",
    "builds": "exported/built/*",
    "modules given in Python": "exported/program-*",
    "rows read by functions of yours": f"exported/{READ_ROWS}*",
    "converted models": f"exported/{RUNTIME_FORMS}/*",
    "what tasks for other machines were sent": "fleet/" + "[0-9a-f]" * 32 + "*",
    "tasks with results to fetch": "fleet/task-*",
    "converters": CONVERTER + "[0-9a-f]" * KEY_DIGITS,
    "environments of releases": ENVIRONMENT + "[0-9a-f]" * KEY_DIGITS,
}
"""The things that the cache holds, as patterns below its folder; the small files of facts don't count, and stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """Describe one thing in the cache.

    Attributes:
        kind: one of `KINDS`.
        used_s: when it was last used, in seconds since 1970.
    """

    kind: str
    path: Path
    size_bytes: int
    used_s: float


@contextmanager
def in_use() -> Iterator[None]:
    """Keep what the cache holds; at the end, if no other command needs it, `evict` what is above the limit.

    Raises:
        UsageError: the limit can't be read, or the folder can't be used.
    """
    most_bytes = limit_bytes()
    try:
        descriptor = _open_lock()
    except OSError as error:
        raise unwritable(cache_folder(), error) from None
    try:
        with suppress(OSError):  # a disk without locks, where nothing is taken out either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):  # the next one may be able to
            evict(most_bytes)


def limit_bytes() -> int:
    """Return how much the cache may hold.

    Raises:
        UsageError: the variable is no number of GB.
    """
    text = os.environ.get(LIMIT) or str(LIMIT_GB)
    try:
        return max(0, int(float(text) * 1e9))
    except (ValueError, OverflowError):
        raise UsageError(f"{LIMIT}={text!r} is not a number of GB, such as {LIMIT_GB:g}") from None


def kept() -> list[CacheEntry]:
    """Return what the cache holds, the longest unused first."""
    home, entries = cache_folder().parent, []
    for kind, pattern in KINDS.items():
        for path in home.glob(pattern):
            if path.suffix == ".lock":
                continue
            with suppress(OSError):  # gone meanwhile
                used_s = path.stat().st_mtime
                entries.append(CacheEntry(kind=kind, path=path, size_bytes=_size_of(path), used_s=used_s))
    return sorted(entries, key=lambda entry: entry.used_s)


def evict(most_bytes: int) -> list[CacheEntry] | None:
    """Remove what was used longest ago until the rest fits. Return what went; None if another command uses the cache.

    Raises:
        OSError: it can't be locked, or something in it can't be removed.
    """
    descriptor = _open_lock()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        entries = kept()
        left_bytes, gone = sum(entry.size_bytes for entry in entries), []
        with Scratch(cache_folder()) as place:
            for number, entry in enumerate(entries):
                if left_bytes <= most_bytes:
                    break
                entry.path.rename(place / str(number))  # at once, or not at all
                left_bytes -= entry.size_bytes
                gone.append(entry)
    except BlockingIOError:
        return None
    finally:
        os.close(descriptor)
    return gone


def _open_lock() -> int:
    return os.open(cache_folder() / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _size_of(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.lstat().st_size for file in files if file.is_symlink() or file.is_file())
