"""Mutations of the harness: what reviews have found to survive once and more of the kind, and which tests notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.common import Tables

from . import judging, keeping, measuring
from .mutation import outcomes

MUTATIONS = (*measuring.MUTATIONS, *keeping.MUTATIONS, *judging.MUTATIONS)


def figures(folder: Path, keep: Callable[[Tables], None]) -> Tables:
    """Every mutation and what became of it; `keep` gets what there is so far."""
    return {"mutations": outcomes(folder, MUTATIONS, lambda rows: keep({"mutations": rows}))}
