"""What was found out about machines and holds for later runs: small JSON files beside the cache's bundles."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout.errors import UsageError


def read(name: str) -> dict[str, Any]:
    """The file called `name`; empty where there is none or it can't be read (torn, or not one object)."""
    try:
        found = json.loads(_path(name).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def store(name: str, facts: Mapping[str, Any]) -> Path:
    """Add `facts` to the file, key by key; it changes all at once or not at all.

    Raises:
        UsageError: the file can't be written.
    """
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({**read(name), **facts}))
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {error.strerror}; set SHOOTOUT_CACHE") from None
    return path


def _path(name: str) -> Path:
    from shootout.export import cache

    return cache.root().parent / name
