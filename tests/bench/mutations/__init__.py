"""Mutations of the harness: what reviews have found to survive once and more of the kind, and which tests notice."""

from __future__ import annotations

from pathlib import Path

from tests.bench.common import Tables

from . import judging, keeping, measuring
from .mutation import outcomes


def figures(folder: Path) -> Tables:
    """Every mutation and what became of it."""
    return {"mutations": outcomes(folder, (*measuring.MUTATIONS, *keeping.MUTATIONS, *judging.MUTATIONS))}
