"""Tell which backend, device and precision to ship, and how sure that is.

Importing this loads no framework and nothing heavy: what `__all__` names comes in with its first use.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shootout.api import Compared, Decided, Merged, Run, find_settings, load, merge, plan, run
    from shootout.commands.pytest import RaceFixture

__all__ = [
    "Compared",
    "Decided",
    "Merged",
    "RaceFixture",
    "Run",
    "__version__",
    "find_settings",
    "load",
    "merge",
    "plan",
    "run",
]

try:
    __version__ = version("shootout")
except PackageNotFoundError:  # a bare checkout
    __version__ = "0"


def __getattr__(name: str) -> Any:
    if name == "RaceFixture":  # which needs pytest
        from shootout.commands import pytest

        return pytest.RaceFixture
    if name in __all__:
        from shootout import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
