"""The cache folder, and beside its bundles small JSON files with what was found out about machines, for later runs.

The folder is the user's own and closed to others, since a bundle's `model.pt2` may be unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shootout.constants import BIAS_FLOOR
from shootout.errors import UsageError
from shootout.host import environment
from shootout.host.scratch import scratch
from shootout.sealed import open_sealed, sealed

_BIAS_FLOOR = "bias-floor.json"


def cache_folder() -> Path:
    """The folder of all bundles: $SHOOTOUT_CACHE, else $XDG_CACHE_HOME/shootout, else ~/.cache/shootout.

    Raises:
        UsageError: it can't be made or written, or is another user's.
    """
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "shootout"
    folder = Path(os.environ.get("SHOOTOUT_CACHE") or xdg).expanduser().absolute() / "bundles"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"can't make the cache folder {folder}: {error.strerror}; set SHOOTOUT_CACHE") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(f"others can write the cache folder {folder}: chmod 700 it, or set SHOOTOUT_CACHE")
    return folder


def read_facts(name: str) -> dict[str, Any]:
    """The file called `name`; empty where there is none, or not as it was written: what was known is found out anew."""
    try:
        return open_sealed(_path(name))
    except (OSError, ValueError):
        return {}


def write_facts(name: str, facts: Mapping[str, Any]) -> Path:
    """Add `facts` to the file, key by key; it changes all at once or not at all.

    Raises:
        UsageError: the file can't be written.
    """
    return _write(name, {**read_facts(name), **facts})


def keep_facts(name: str, keep: Callable[[str], bool]) -> None:
    """Leave in the file only the keys that `keep` says; a file that has no other isn't touched.

    Raises:
        UsageError: the file can't be written.
    """
    facts = read_facts(name)
    kept = {key: fact for key, fact in facts.items() if keep(key)}
    if len(kept) < len(facts):
        _write(name, kept)


def _write(name: str, facts: Mapping[str, Any]) -> Path:
    path = _path(name)
    try:
        with scratch(cache_folder()) as folder:
            made = folder / name
            made.write_text(sealed(facts))
            made.replace(path)
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {error.strerror}; set SHOOTOUT_CACHE") from None
    return path


def bias_floor() -> float:
    """This machine's bias floor as a share (0.005 = ±0.5 %): what `selftest` stored, else the default."""
    try:
        return max(0.0, float(read_facts(_BIAS_FLOOR)[environment.machine_key()]))
    except (KeyError, TypeError, ValueError):
        return BIAS_FLOOR


def write_bias_floor(floor: float) -> Path:
    """Remember this machine's bias floor, for later verdicts.

    Raises:
        UsageError: the file can't be written.
    """
    return write_facts(_BIAS_FLOOR, {environment.machine_key(): floor})


def _path(name: str) -> Path:
    return cache_folder().parent / name
