"""Keep the cache folder, and beside its exported models small JSON files with facts about machines for later runs.

The folder is the user's own and closed to others, since an exported model's `model.pt2` may be unpickled.

The JSON files are sealed: each holds a hash of its content. That guards against edits, torn writes and bad disks, not
against an attacker with the user's own rights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host.folders import Scratch
from shootout.core.host.untrusted import read_inside

READ_ROWS = "rows-"
"""The prefix of a folder that holds the rows that a user's function has read."""
_SEAL = "sha256"
"""The key of the hash; the content may not have it."""


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


def mark_used(path: Path) -> None:
    """Note that this is used now."""
    with suppress(OSError):
        os.utime(path)


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
        with Scratch(cache_folder()) as folder:
            made = folder / name
            made.write_text(sealed(facts), encoding="utf-8")
            made.replace(path)
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {tell_refusal(error, 'set SHOOTOUT_CACHE')}") from None
    return path


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
