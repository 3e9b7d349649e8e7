"""What modules bring into a process; in a file of its own, which brings in nothing itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence


def frameworks_after(frameworks: Sequence[str], modules: Sequence[str], adapters: Sequence[str]) -> dict[str, set[str]]:
    """Which frameworks each step brings in: to import a module, then to make a backend's adapter."""
    there = set(frameworks) & set(sys.modules)
    found = {"the start": set(there)}
    for name in (*modules, *adapters):
        if name in modules:
            importlib.import_module(name)
        else:
            importlib.import_module("shootout.backends").get(name)
        found[name] = (set(frameworks) & set(sys.modules)) - there
        there |= found[name]
    return found
