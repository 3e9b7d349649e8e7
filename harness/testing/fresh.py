"""Run a function in a fresh process: thread pools, flags and imports of one framework can't reach another's test.

`python -m shootout.testing.fresh FOLDER` serves the call that lies there: the file `call` holds (module, function,
arguments), the pickled result goes to the file `result`, because frameworks print to stdout as they like. Its temporary
files lie there too and go with it: a process that ends at once tidies nothing up.

Importing torch costs more than most calls. So a caller whose function imports a module anyway may name it as `warm`:
`python -m shootout.testing.fresh --warm MODULE` imports it, and forks a process for each call.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from shootout.core.host.child import QUIET

_SET_BY_IMPORTS = {
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "ENABLE_RUNTIME_UPTIME_TELEMETRY": "1",
    "TORCHINDUCTOR_CACHE_DIR": ".*/torchinductor_[^/]*",
}
"""Patterns of variables that scikit-learn, JAX, torchax and Inductor set on import: kept from fresh processes."""


def run_fresh(
    function: Callable[..., Any],
    *arguments: Any,
    path: Sequence[Path] = (),
    threads: int = 1,
    timeout_s: float = 240,
    warm: str = "",
) -> Any:
    """Return what an importable `function` returns in a new process, with `path` before this one's module path.

    Args:
        function: what to call there.
        arguments: picklable.
        path: more folders to import from.
        threads: of OpenMP and the BLAS libraries.
        timeout_s: seconds until the call is stopped.
        warm: modules that the new process may hold already, with a comma between two; `module:function` calls the
            function, too. They may start no thread and no GPU. Not for calls that tell if one of these is imported,
            nor for loads that register something by importing.

    Raises:
        AssertionError: the process died or the function raised; with its last words.
        subprocess.TimeoutExpired: it took too long.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC")
    search = os.pathsep.join([*map(str, path), *sys.path])
    own = {name: text for name, text in os.environ.items() if not re.fullmatch(_SET_BY_IMPORTS.get(name, "(?!)"), text)}
    environment = {**own, **QUIET, **dict.fromkeys(names, str(threads)), "PYTHONPATH": search}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # what it started may write there yet
        Path(folder, "call").write_bytes(pickle.dumps((function.__module__, function.__qualname__, arguments)))
        if warm:
            code, words = WarmInterpreter.of(warm, environment).run(folder, timeout_s)
        else:
            command = [sys.executable, "-m", "shootout.testing.fresh", folder]
            done = subprocess.run(  # noqa: S603
                command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, timeout=timeout_s, check=False
            )
            code, words = done.returncode, done.stderr
        assert code == 0, f"fresh process ended with {code}:\n{words.decode(errors='replace')[-4000:]}"
        return pickle.loads(Path(folder, "result").read_bytes())  # noqa: S301


class WarmInterpreter:
    """Keep a process that has imported modules and forks a child per call; it ends with this process, whose pipe it
    reads.

    What a library reads from its environment as it is imported holds for all children: so a call with another
    environment or working folder gets a new interpreter, in place of the one before.
    """

    _running: dict[str, WarmInterpreter] = {}  # noqa: RUF012 - one for each list of modules

    @classmethod
    def of(cls, modules: str, environment: dict[str, str]) -> WarmInterpreter:
        """Return the process that has these modules; start it if there is none in this environment."""
        place = ({name: text for name, text in environment.items() if name != "PYTEST_CURRENT_TEST"}, Path.cwd())
        running = cls._running.get(modules)
        if running is None or running._place != place or running._process.poll() is not None:
            if running is not None:
                running.end()
            running = cls._running[modules] = cls(modules, place)
        return running

    def __init__(self, modules: str, place: tuple[dict[str, str], Path]) -> None:
        command = [sys.executable, "-m", "shootout.testing.fresh", "--warm", modules]
        pipe = subprocess.PIPE
        self._place = place
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=pipe, stdout=pipe, env=place[0], text=True, encoding="utf-8", errors="replace"
        )
        atexit.register(self.end)

    def run(self, folder: str, timeout_s: float) -> tuple[int, bytes]:
        """Return the exit code and last words of a child that served the call in the folder."""
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        try:
            print(timeout_s, folder, file=told, flush=True)
            code = int(answers.readline() or f"{self._process.wait()}")
        except BaseException:
            self._process.kill()  # an answer that comes later would be taken for the next call's
            raise
        if code == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(f"the call in {folder}", timeout_s)
        words = Path(folder, "words")
        return code, words.read_bytes() if words.exists() else b"(the warm interpreter itself)"

    def end(self) -> None:
        """Let it end, by the end of what it reads, and wait for that."""
        atexit.unregister(self.end)
        self._process.communicate()


def fork_calls(modules: str) -> NoReturn:
    """Import the modules, then fork a child for each line (seconds, folder) of stdin, and tell the exit codes."""
    answers = os.dup(1)
    os.dup2(2, 1)
    gc.disable()
    for place in modules.split(","):
        module, _, function = place.partition(":")
        with suppress(Exception):  # the call will tell, or do without
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
    gc.freeze()  # pages of what lives already stay shared
    for line in sys.stdin:
        timeout_s, _, folder = line.rstrip("\n").partition(" ")
        child = os.fork()
        if not child:
            os.close(answers)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            words = os.open(Path(folder, "words"), os.O_WRONLY | os.O_CREAT)
            os.dup2(words, 1)
            os.dup2(words, 2)
            signal.setitimer(signal.ITIMER_REAL, float(timeout_s))  # ends the process
            serve(folder)
        status = os.waitpid(child, 0)[1]
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def serve(folder: str) -> NoReturn:
    """Serve the one call of a folder, and end as a worker is ended: taking torch apart takes as long as many a call.

    Nearly all that is imported and made stays until then: to look through it for garbage takes a fifth of the time.
    """
    gc.disable()
    own = Path(folder, "temporary")
    own.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(own), None
    module, name, arguments = pickle.loads(Path(folder, "call").read_bytes())  # noqa: S301
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(folder, "result").write_bytes(pickle.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    fork_calls(sys.argv[2]) if sys.argv[1] == "--warm" else serve(sys.argv[1])
