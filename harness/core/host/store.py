"""Keep the cache folder, and beside its exported models small JSON files with facts about machines for later runs.

The folder is the user's own and closed to others, since an exported model's `model.pt2` may be unpickled. A command
that works with its content holds a shared lock (flock on a file in it), and nothing is removed before all have ended.
The lock is on a file because hosts share the locks of files on a network's disk, but not those of folders.

The JSON files are sealed: each holds a hash of its content. That guards against edits, torn writes and bad disks, not
against an attacker with the user's own rights.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.core.constants import BIAS_FLOOR
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host import environment
from shootout.core.host.regular_files import read_inside
from shootout.core.host.scratch import scratch

_BIAS_FLOOR = "bias-floor.json"
_LOCK = ".lock"
LIMIT, LIMIT_GB = "SHOOTOUT_CACHE_LIMIT", 20.0
"""The variable that sets another limit, in GB (10^9 bytes), and the limit where it isn't set."""
CONVERTER = "converter-"
"""The prefix of a folder that holds a converter; `KEY_DIGITS` hexadecimal digits follow."""
KEY_DIGITS = 12
RANGES = "ranges"
"""The folder of ranges that quantizers took on calibration sets."""
READ_ROWS = "rows-"
"""The prefix of a folder that holds the rows that a user's function has read."""
RUNTIME_FORMS = "converted"
"""The folder of models in the form that a runtime takes, made once for all precisions."""
KINDS = {
    "exported models": "exported/" + "[0-9a-f]" * 8 + "*",
    "builds": "exported/built/*",
    "modules given in Python": "exported/program-*",
    "rows read by functions of yours": f"exported/{READ_ROWS}*",
    "converted models": f"exported/{RUNTIME_FORMS}/*",
    "ranges of activations": f"exported/{RANGES}/*.json",
    "what tasks for other machines were sent": "fleet/" + "[0-9a-f]" * 32 + "*",
    "tasks with results to fetch": "fleet/task-*",
    "converters": CONVERTER + "[0-9a-f]" * KEY_DIGITS,
}
"""The things that the cache holds, as patterns below its folder; the small files of facts don't count, and stay."""
_SEAL = "sha256"
"""The key of the hash; the content may not have it."""


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


def cache_folder() -> Path:
    """Return the folder of all exported models: $SHOOTOUT_CACHE, else $XDG_CACHE_HOME/shootout, else ~/.cache/shootout.

    Raises:
        UsageError: it can't be made or written, or is another user's.
    """
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "shootout"
    folder = Path(os.environ.get("SHOOTOUT_CACHE") or xdg).expanduser().absolute() / "exported"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise unwritable(folder, error) from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UsageError(f"others can write the cache folder {folder}: chmod 700 it, or set SHOOTOUT_CACHE")
    return folder


def unwritable(folder: Path, error: OSError) -> UsageError:
    """Return the error of a cache folder that can't be made or written to."""
    return UsageError(f"can't write the cache folder {folder}: {tell_refusal(error, 'set SHOOTOUT_CACHE')}")


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


def mark_used(path: Path) -> None:
    """Note that this is used now."""
    with suppress(OSError):
        os.utime(path)


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
        with scratch(cache_folder()) as place:
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


def read_facts(name: str) -> dict[str, Any]:
    """Read the file called `name`; empty if it is missing or damaged, since its facts can be found out again."""
    try:
        return open_sealed(_facts_path(name))
    except (OSError, ValueError):
        return {}


def write_facts(name: str, facts: Mapping[str, Any]) -> Path:
    """Add `facts` to the file, key by key; it changes all at once or not at all.

    Raises:
        UsageError: the file can't be written.
    """
    return _replace_facts(name, {**read_facts(name), **facts})


def keep_facts(name: str, keep: Callable[[str], bool]) -> None:
    """Leave only the keys that `keep` accepts; a file that has no other isn't touched.

    Raises:
        UsageError: the file can't be written.
    """
    facts = read_facts(name)
    kept = {key: fact for key, fact in facts.items() if keep(key)}
    if len(kept) < len(facts):
        _replace_facts(name, kept)


def _replace_facts(name: str, facts: Mapping[str, Any]) -> Path:
    path = _facts_path(name)
    try:
        with scratch(cache_folder()) as folder:
            made = folder / name
            made.write_text(sealed(facts), encoding="utf-8")
            made.replace(path)
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {tell_refusal(error, 'set SHOOTOUT_CACHE')}") from None
    return path


def bias_floor() -> float:
    """Return this machine's bias floor as a share (0.005 = ±0.5 %): what `selftest` stored, else the default."""
    try:
        return max(0.0, float(read_facts(_BIAS_FLOOR)[environment.machine_key()]))
    except (KeyError, TypeError, ValueError):
        return BIAS_FLOOR


def write_bias_floor(floor: float) -> Path:
    """Store this machine's bias floor for later verdicts.

    Raises:
        UsageError: the file can't be written.
    """
    return write_facts(_BIAS_FLOOR, {environment.machine_key(): floor})


def _facts_path(name: str) -> Path:
    return cache_folder().parent / name


def sealed(facts: Mapping[str, Any]) -> str:
    """Return `facts` (JSON values) as the text of a file that `open_sealed` believes."""
    content = json.loads(json.dumps(facts))  # as it will be read: tuples are lists, and keys are text
    return json.dumps({**content, _SEAL: _hash_content(content)}, indent=1)


def open_sealed(path: Path) -> dict[str, Any]:
    """Read a sealed file.

    Raises:
        OSError: it can't be read.
        ValueError: it isn't as it was written; says so.
    """
    text = read_inside(path.parent, path.name)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is torn or was changed") from None
    if not isinstance(content, dict) or content.pop(_SEAL, None) != _hash_content(content):
        raise ValueError(f"{path.name} was changed after it was written")
    return content


def _hash_content(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_home(path: str) -> str:
    """Return a path as a record may hold it: the user's home as `~`."""
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if home != os.sep and path.startswith(home + os.sep) else path
