"""What modules bring into a process; in a file of its own, which brings in nothing itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path


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


def modules_outside(hashed: set[Path]) -> list[str]:
    """The package's modules that an export process has loaded, but those of core and these files."""
    package = Path(str(importlib.import_module("shootout").__file__)).parent
    for file in (package / "models" / "sources").glob("*.py"):
        importlib.import_module(f"shootout.models.sources.{file.stem}")
    loaded = {Path(str(module.__file__)) for name, module in sys.modules.items() if name.startswith("shootout.")}
    names = {str(file.relative_to(package)) for file in loaded - hashed}
    return sorted(one for one in names if not one.startswith(("core/", "testing/")) and not one.endswith("__init__.py"))
