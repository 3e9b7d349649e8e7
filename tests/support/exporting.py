"""Exports forked from a process that has imported torch, its exporter and scikit-learn: that takes most of a small one.

What the tests' own processes ask for is exported so (tests/conftest.py); a command that a test starts exports as it
does for users.
"""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from shootout.core.host import child
from shootout.core.host.child import Ending
from shootout.testing.fresh import WarmInterpreter

WARM = "support.export_process"


def run(
    module: str,
    arguments: Iterable[str | Path],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    look: Callable[[], bool] = lambda: True,
) -> Ending:
    """`child.run`, of an export; `look` is called once, at its end."""
    assert module == "shootout.models.sources"
    environment = {**os.environ, **(variables or {})}
    call = (WARM, "export", ([*map(str, arguments)], environment, str(Path.cwd())))
    ended = run_forked(WARM, call, timeout_s, variables or {})
    look()
    return ended


def run_forked(warm: str, call: tuple[object, ...], timeout_s: float, variables: Mapping[str, str]) -> Ending:
    """Make a call in a process forked from one that has imported these modules; end as `child.run` does.

    Args:
        warm: the modules, with commas between them.
        call: a module, a function of it, and its arguments.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "call").write_bytes(pickle.dumps(call))
        try:
            code, words = _process(warm, frozenset(variables.items())).run(folder, timeout_s)
        except subprocess.TimeoutExpired:
            return Ending(code=None, said="", how=child.too_long(timeout_s))
    said = " | ".join(words.decode(errors="replace").splitlines()[-3:])
    return Ending(code=code, said="", how=child.with_last_words(child.ending(code), said))


def forked(function: Callable[..., Any], *arguments: Any) -> Any:
    """What an importable function returns in a process forked from the one that exports are forked from."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "call").write_bytes(pickle.dumps((function.__module__, function.__qualname__, arguments)))
        code, words = _process(WARM, frozenset()).run(folder, 240)
        assert not code, words.decode(errors="replace")
        return pickle.loads(Path(folder, "result").read_bytes())


@functools.cache
def _process(warm: str, variables: frozenset[tuple[str, str]]) -> WarmInterpreter:
    """One for all that set the same: a call gets its own environment and folder as it begins.

    Libraries read how many threads they may have as they are loaded, which is before the fork.
    """
    own = {**dict(variables), "PYTHONPATH": os.pathsep.join(sys.path)}
    own["OPENBLAS_NUM_THREADS"] = "1"  # not the caller's: its threads would not be there after the fork
    return WarmInterpreter(warm, ({**os.environ, **own}, Path.cwd()))
