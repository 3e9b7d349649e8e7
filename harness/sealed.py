"""JSON files that tell whether they were changed since they were written: a hash of the content stands among it.

It guards against edits, torn writes and bad disks; who wants to can write another hash, so what lies beside the cache
is as safe as the user's own account.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SEAL = "sha256"
"""The key of the hash; the content may not have it."""


def sealed(facts: Mapping[str, Any]) -> str:
    """`facts` (JSON values) as the text of a file that `open_sealed` believes."""
    content = json.loads(json.dumps(facts))  # as it will be read: tuples are lists, and keys are text
    return json.dumps({**content, _SEAL: _digest(content)}, indent=1)


def open_sealed(path: Path) -> dict[str, Any]:
    """What was written into a file.

    Raises:
        OSError: it can't be read.
        ValueError: it isn't as it was written; says so.
    """
    if not path.is_file() and path.exists():
        raise ValueError(f"{path.name} is no ordinary file")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is torn or was changed") from None
    if not isinstance(content, dict) or content.pop(_SEAL, None) != _digest(content):
        raise ValueError(f"{path.name} was changed after it was written")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
