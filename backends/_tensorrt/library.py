"""Which TensorRT is here: the full one, which needs a GPU to build an engine, or TensorRT-RTX, which doesn't.

They offer one API under several package names. The logger keeps what the library complains of, since its functions
answer None or False and leave the reason in the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from shootout.backends._tensorrt.account import HEADING, EngineLayer, read_log
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import NVIDIA_INDEX, install

FULL = ("tensorrt", "tensorrt_bindings")
RTX = ("tensorrt_rtx", "tensorrt_rtx_bindings")
WEIGHTS = re.compile(r"Total Weights Memory: (\d+) bytes")
NO_CUDA = "cudaError 35"
INSTALL_RTX = install("tensorrt-rtx")
INSTALL_FULL = install("tensorrt", options=NVIDIA_INDEX)


@dataclass(frozen=True, slots=True)
class Library:
    """An imported TensorRT, and the logger that collects its words."""

    module: ModuleType
    log: Any

    @property
    def name(self) -> str:
        """Return the name that it is imported by."""
        return self.module.__name__

    @property
    def version(self) -> str:
        """Return its own version."""
        return str(self.module.__version__)

    @property
    def is_rtx(self) -> bool:
        """Return whether this is TensorRT-RTX."""
        return self.name in RTX

    def runs_on(self, capability: str) -> bool:
        """Return whether it has code for a compute capability, e.g. `SM89`; the full TensorRT is not asked."""
        return not self.is_rtx or capability in self.module.ComputeCapability.__members__

    def start(self, kind: str) -> Any:
        """Start a `Builder` or `Runtime`, and CUDA with it.

        Raises:
            RuntimeError: it can't, for example because the driver is too old (CUDA's error 35); in its words.
        """
        try:
            return getattr(self.module, kind)(self.log)
        except TypeError as error:  # its bindings' word for a null pointer
            raise RuntimeError(f"{self.name} can't start here: {self.errors_text()}") from error

    def errors_text(self) -> str:
        """Return the errors it logged since it was opened, or the warnings: some versions only warn if CUDA doesn't
        start.
        """
        return join_errors(self.log.errors or self.log.warnings) or "it gave no reason"


def join_errors(lines: Iterable[str]) -> str:
    """Join the lines of an error, each once.

    If CUDA can't be started, each error comes with a line about that, which only matters if it is alone.
    """
    distinct = list(dict.fromkeys(lines))
    return "; ".join([line for line in distinct if NO_CUDA not in line] or distinct)


def open_library(*, gpu: bool) -> Library:
    """Import TensorRT: the full one first if there is a GPU, else TensorRT-RTX, which alone can build without one.

    Raises:
        SkippedArm: none is installed.
    """
    for name in (*FULL, *RTX) if gpu else (*RTX, *FULL):
        try:
            return reopen(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    reason, fix = "TensorRT is not installed (neither tensorrt nor tensorrt_rtx)", INSTALL_FULL if gpu else INSTALL_RTX
    raise SkippedArm(reason, fix, NotRunKind.NOT_INSTALLED)


def reopen(name: str) -> Library:
    """Import the TensorRT that is called `name`, one of FULL and RTX; each has a log of its own."""
    module = import_module(name)
    return Library(module, _make_logger(module))


def _make_logger(trt: Any) -> Any:
    serious = (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR)

    class Logger(trt.ILogger):  # type: ignore[misc] # its base is known at run time only
        """Keeps errors for the exception that follows, warnings for the record, and what it says of the last engine."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self._list = ""
            self.weight_bytes: int | None = None

        def log(self, severity: Any, message: str) -> None:
            """Keep a line; TensorRT calls this from any of its threads."""
            if severity in serious:
                self.errors.append(message)
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(message)
            elif message.startswith(HEADING):
                self._list = message
            elif match := WEIGHTS.fullmatch(message):
                self.weight_bytes = int(match[1])

        def layers(self) -> list[EngineLayer]:
            """Return the layers of the engine that was built last, as TensorRT lists them at the end of a build."""
            return read_log(self._list)

    return Logger()
