"""The runs that ship with the project, each analyzed once in a process."""

from __future__ import annotations

from lab import claims_page
from shootout.apps.judge.analysis import Analysed


def read(name: str) -> Analysed:
    """Return a run that ships."""
    found = claims_page.read(name)
    assert found, f"no run {name} ships"
    return found
