"""Programs that score or read rows, or convert trees, in a process forked from one that has imported what they need.

What the tests' own processes ask for runs so (tests/conftest.py): `python -m` imports for up to two seconds each time.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from shootout.core.host import child
from shootout.core.host.child import Ending
from support.exporting import run_forked

MODULES = {
    "shootout.models.metrics.scoring": "",
    "shootout.models.data.reading": "",
    "shootout.models.sources.yolo_pt": "",
    "shootout.models.sources.trees": ",pandas,sklearn.pipeline,skl2onnx,onnxmltools,lightgbm,xgboost,onnxruntime",
}
"""The programs, each with what else is imported before its process is forked."""
RUN = child.run


def run(
    module: str,
    arguments: Iterable[str | Path],
    timeout_s: float,
    variables: Mapping[str, str] | None = None,
    look: Callable[[], bool] = lambda: True,
) -> Ending:
    """`child.run`; of these modules, `look` isn't called."""
    if module not in MODULES:
        return RUN(module, arguments, timeout_s, variables, look)
    call = (__name__, "serve", (module, [*map(str, arguments)], {**os.environ, **(variables or {})}, str(Path.cwd())))
    return run_forked(f"{__name__},{module}{MODULES[module]}", call, timeout_s, variables or {})


def serve(module: str, arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Do what `python -m MODULE` does, in the forked process."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path += filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [module, *arguments, str(os.getppid())]
    importlib.import_module(module).main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
