"""The document as JSON text, as `--json` prints it."""

from __future__ import annotations

import json
import math
from typing import Any

from shootout.results.document import Part


def document_text(document: Part) -> str:
    """A whole document, of a run or of several."""
    return json_text(document.model_dump(mode="json", by_alias=True))


def json_text(data: Any) -> str:
    """JSON values as lines of text."""
    return json.dumps(_finite(data), indent=1, allow_nan=False) + "\n"


def _finite(data: Any) -> Any:
    """The same for JSON, which has no infinity and no NaN: null, as for all that isn't known."""
    if isinstance(data, dict):
        return {name: _finite(one) for name, one in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(one) for one in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
