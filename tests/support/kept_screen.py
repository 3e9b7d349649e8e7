"""Screens that are kept: `SCREENS=write` writes them again."""

from __future__ import annotations

import os
from pathlib import Path

KEPT = Path(__file__).parents[1] / "report" / "screens"


def hold(name: str, text: str) -> None:
    """Hold a text against the kept one of that name, or write it."""
    kept = KEPT / f"{name}.txt"
    if os.environ.get("SCREENS") == "write":
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "read the difference, then write it by `make screens`"
