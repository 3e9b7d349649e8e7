"""Programs of the package, each in a process forked from one that has imported what it needs: most of their work.

What the tests' own processes start runs so (tests/conftest.py): exports, conversions, users' scores and readers. A
command that a test starts does as it does for users.
"""

from __future__ import annotations

import functools
import importlib
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

EXPORTER = "support.export_process"
TREES = "pandas,sklearn.pipeline,skl2onnx,onnxmltools,lightgbm,xgboost"
"""ONNX Runtime isn't among them: it starts a thread, without which a fork can't end."""
SMALL = [f"shootout.models.{name}" for name in ("sources.yolo_pt", "metrics.scoring", "data.reading")]
PROGRAMS = {
    "shootout.models.sources": EXPORTER,
    "shootout.models.sources.trees": f"shootout.models.sources.trees,{TREES}",
    **dict.fromkeys(SMALL, ",".join(SMALL)),
}
"""The modules that `python -m` starts, each with all that is imported before its process is forked."""
RUN = child.run


def run(
    module: str,
    arguments: Iterable[str | Path],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    look: Callable[[], bool] = lambda: True,
) -> Ending:
    """`child.run`; of these programs, `look` is called once, at the end."""
    if module not in PROGRAMS:
        return RUN(module, arguments, timeout_s, variables, look)
    environment = {**os.environ, **(variables or {})}
    call = (__name__, "serve", (module, [*map(str, arguments)], environment, str(Path.cwd())))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "call").write_bytes(pickle.dumps(call))
        try:
            code, words = _process(PROGRAMS[module], frozenset((variables or {}).items())).run(folder, timeout_s)
        except subprocess.TimeoutExpired:
            return Ending(code=None, said="", how=child.too_long(timeout_s))
    look()
    said = " | ".join(words.decode(errors="replace").splitlines()[-3:])
    return Ending(code=code, said="", how=child.with_last_words(child.ending(code), said))


def serve(module: str, arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Do what `python -m MODULE` does, in the forked process."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [module, *arguments, str(os.getppid())]
    found = importlib.import_module(module)
    program = importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found
    program.main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking torch apart takes longer than many an export


def forked(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what an importable function returns in a process forked from the one that exports are forked from."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "call").write_bytes(pickle.dumps((function.__module__, function.__qualname__, arguments)))
        code, words = _process(EXPORTER, frozenset(child.ONE_THREAD.items())).run(folder, 240)
        assert not code, words.decode(errors="replace")
        return pickle.loads(Path(folder, "result").read_bytes())


@functools.cache
def _process(warm: str, variables: frozenset[tuple[str, str]]) -> WarmInterpreter:
    """One for all that set the same: a call gets its own environment and folder as it begins.

    Libraries read how many threads they may have as they are loaded, which is before the fork.
    """
    own = {**dict(variables), "PYTHONPATH": os.pathsep.join(sys.path)}
    own["OPENBLAS_NUM_THREADS"] = "1"  # not the caller's: its threads would not be there after the fork
    return WarmInterpreter(f"{__name__},{warm}", ({**os.environ, **own}, Path.cwd()))
