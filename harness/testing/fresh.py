"""Runs a function in a fresh interpreter: thread pools, flags and imports of one framework can't reach another's test.

`python -m shootout.testing.fresh RESULT` reads (module, function, arguments) from stdin and writes the pickled result
to the file RESULT, because frameworks print to stdout as they like.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def run_fresh(
    function: Callable[..., Any], *arguments: Any, path: Sequence[Path] = (), threads: int = 1, timeout_s: float = 240
) -> Any:
    """Return what an importable `function` returns in a new process, with `path` before this one's module path.

    Raises:
        AssertionError: the process died or the function raised; with its last words.
    """
    call = pickle.dumps((function.__module__, function.__qualname__, arguments))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC")
    search = os.pathsep.join([*map(str, path), *sys.path])
    environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": search}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result")
        command = [sys.executable, "-m", "shootout.testing.fresh", str(result)]
        done = subprocess.run(  # noqa: S603
            command, input=call, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"fresh process ended with {done.returncode}:\n{done.stderr.decode()[-4000:]}"
        return pickle.loads(result.read_bytes())  # noqa: S301


def main() -> None:
    """Serve one call."""
    module, name, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(sys.argv[1]).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main()
