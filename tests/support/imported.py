"""What modules bring into a process; in a file of its own, which brings in nothing itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context


def frameworks_after(frameworks: Sequence[str], steps: Sequence[str]) -> dict[str, set[str]]:
    """Which frameworks each step brings into a process that is forked for it, or the error that it dies of.

    No step finds what another imported: a circular import may only fail for who comes first.

    Args:
        steps: modules of ours to import, and names of backends whose adapter to make.
    """
    importlib.import_module("numpy")  # what nearly all of them import, once
    with get_context("fork").Pool(1, maxtasksperchild=1) as forked:
        return dict(zip(steps, forked.map(partial(_brought_in, frameworks), steps, chunksize=1), strict=True))


def _brought_in(frameworks: Sequence[str], step: str) -> set[str]:
    try:
        if step.partition(".")[0] == "shootout":
            importlib.import_module(step)
        elif step:
            importlib.import_module("shootout.core.backends").get(step)
    except ImportError as error:
        return {str(error)}
    return set(frameworks) & set(sys.modules)
