"""Read JSON that lies beside a user's model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shootout.core.errors import UsageError
from shootout.models.source import read


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        UsageError: it can't be read, or isn't JSON.
    """
    try:
        return json.loads(read(path))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}): mend it, or leave it out") from None


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        UsageError: as `read_json`, or it holds something else.
    """
    found = read_json(path)
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds a {type(found).__name__} in JSON: expected an object")
    return found


def find_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, an empty one if there is no file; a UsageError as of `read_object`."""
    return read_object(path) if path.is_file() else {}
