"""Inductor: what it needs on this machine, its start, the configuration and cache of one compilation, its own counters.

What it needs (a C++ compiler that works, Python's headers, on a GPU Triton) is tested without Inductor
itself: importing it takes 2 s and compiling one ReLU 8 s, too long before every run.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakSet

from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import pip_install

SOURCE = '#include <Python.h>\n#include <cmath>\nextern "C" double probe(double x) { return std::sqrt(x); }\n'
TIMEOUT_S = 60
SETTINGS: dict[str, Any] = {
    "cpp_cache_precompile_headers": False,
    "aot_inductor.precompile_headers": False,
    "compile_threads": 1,
    "cpp.vec_isa_ok": True,
}
"""Precompiled headers lie outside the cache that we keep: each load would compile them again, 6 s, and each of
AOTInductor's builds 16 s, to save 3 s. More than one thread would mean helper processes that live on beside the timed
calls. AVX2 and AVX-512 are taken without compiling a test for each, 4 s, since every compiler that builds torch's
headers has them. What an older one may lack (BF16, VNNI and AMX beside AVX-512) Inductor still tests, and leaves out.
"""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_IN_USE = WeakSet[Any]()
"""Compiled models that sessions hold."""


def require_toolchain() -> str:
    """Compile and link a few lines, as Inductor will; once in a process.

    Returns:
        The compiler and its version: other kernels may come of another one.

    Raises:
        SkippedArm: what is missing, and the command that installs it.
    """
    return _working_toolchain(os.environ.get("CXX", "g++"))


@cache
def _working_toolchain(compiler: str) -> str:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        raise SkippedArm(f"torch.compile needs Python's headers, and {headers} is missing", "apt install python3-dev")
    fix = "apt install g++, or set CXX to a compiler"
    with tempfile.TemporaryDirectory() as folder:
        command = [
            compiler,
            *["-shared", "-fPIC", "-x", "c++", "-"],
            "-I",
            str(headers.parent),
            "-o",
            f"{folder}/probe.so",
        ]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own compiler
                command,
                input=SOURCE,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                encoding="utf-8",
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired):
            raise SkippedArm(f"torch.compile needs a C++ compiler, and {compiler} doesn't run", fix) from None
    if done.returncode:
        words = " | ".join(done.stderr.split("\n")[:2])
        raise SkippedArm(f"torch.compile needs a C++ compiler, and {compiler} failed: {words}", fix)
    answer = subprocess.run(  # noqa: S603
        [compiler, "--version"], capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
    )
    return answer.stdout.partition("\n")[0]


def require_triton() -> None:
    """Require Triton, in which Inductor writes its GPU kernels; torch's CUDA builds bring it along.

    Raises:
        SkippedArm: it isn't installed.
    """
    if find_spec("triton") is None:
        reason = "torch.compile needs Triton on cuda, and it is not installed"
        raise SkippedArm(reason, pip_install("triton"), NotRunKind.NOT_INSTALLED)


def require_cuda_headers() -> None:
    """Require CUDA's headers, which AOTInductor's C++ includes; no wheel that torch looks into has them.

    Raises:
        SkippedArm: torch finds no CUDA toolkit.
    """
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        reason = "AOTInductor compiles against CUDA's headers, and torch finds no CUDA toolkit"
        raise SkippedArm(reason, "install the toolkit of torch's CUDA version, or set CUDA_HOME to it")


@contextmanager
def inductor_with(cache: Path, config: dict[str, Any]) -> Iterator[None]:
    """Configure Inductor, with its cache in `cache` and nothing left from an earlier compilation.

    Only what sessions of this process still run stays. Otherwise their next call would compile it again, under the
    configuration of that moment.
    """
    import torch._dynamo.utils
    import torch._inductor.config as config_of

    if not _IN_USE:
        torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(cache)
    try:
        with config_of.patch({**SETTINGS, **config}):
            yield
    finally:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before


def keep(compiled: Any) -> None:
    """Let no later compilation of this process forget this compiled model, as long as it is referenced."""
    _IN_USE.add(compiled)


def breaks(of: str = "model", graphs: int = 1) -> tuple[str, ...]:
    """List graph breaks, and graphs beyond `graphs` (recompilations), since this process last compiled again.

    Args:
        of: what was compiled, for people.
        graphs: how many it has of its own.
    """
    from torch._dynamo.utils import counters

    compiled = counters["stats"]["unique_graphs"]
    again = (f"Dynamo compiled {compiled} graphs for one {of}",) if compiled > graphs else ()
    reasons = (reason.partition("\n")[0] for reason in counters["graph_break"])
    return (*(f"graph break: {reason}" for reason in reasons), *again)


def graph_bypassed() -> bool:
    """Return whether Inductor kept its graph out of the cache since it was last reset.

    It does so with weights in oneDNN's own layout, which it can't write. Each load then makes the kernels' list again,
    and only the compiled code is in the cache.
    """
    from torch._dynamo.utils import counters

    return bool(counters["inductor"]["fxgraph_cache_bypass"])


def graph_parts() -> int:
    """Count the parts into which Inductor cut the last model: not all of it can be in a CUDA graph."""
    from torch._dynamo.utils import counters

    return counters["inductor"]["cudagraph_partitions"] or 1


def captured_graphs() -> int:
    """Count the CUDA graphs that Inductor has recorded in this process and still holds."""
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    return _count_recorded(manager.roots) if manager else 0


def _count_recorded(nodes: Mapping[Any, Sequence[Any]]) -> int:
    every = [node for recordings in nodes.values() for node in recordings]
    return sum((node.graph is not None) + _count_recorded(node.children) for node in every)


def outside_graphs(captured: int, since: int, parts: int) -> tuple[str, ...]:
    """List what keeps a model from being one CUDA graph that is only replayed.

    Counted graphs are the proof, not Inductor's own count of what it skipped: that one misses cases (pytorch pull
    request 193044).

    Args:
        captured: CUDA graphs of this model when it was loaded.
        since: those that were captured later.
        parts: `graph_parts()` while it was built.
    """
    from torch._dynamo.utils import counters

    skipped = counters["inductor"]["cudagraph_skips"]
    cut = (f"Inductor cut the model into {parts} parts and captured {captured} CUDA graphs",)
    left_out = (f"Inductor skipped {skipped} CUDA graphs: TORCH_LOGS=cudagraphs says why",)
    again = (f"Inductor captured {since} more CUDA graphs after it was loaded",)
    return (*(cut if (parts, captured) != (1, 1) else ()), *(left_out if skipped else ()), *(again if since else ()))
