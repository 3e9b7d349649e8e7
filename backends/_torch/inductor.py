"""Inductor: what it needs on this machine, its configuration and cache for one compilation, what it says of the graph.

What it needs (a C++ compiler that works, Python's headers, on a GPU Triton) is asked without Inductor itself: importing
it takes 2 s and compiling one ReLU 8 s, too long for a question that comes before every run.
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

from shootout.backends._torch.vector_units import fewest_tests
from shootout.errors import NotRunKind, SkippedArm, pip_install

SOURCE = '#include <Python.h>\n#include <cmath>\nextern "C" double probe(double x) { return std::sqrt(x); }\n'
TIMEOUT_S = 60
SETTINGS: dict[str, Any] = {
    "cpp_cache_precompile_headers": False,
    "aot_inductor.precompile_headers": False,
    "compile_threads": 1,
}
"""Precompiled headers lie outside the cache that we keep: each load would compile them again, 6 s, and each of
AOTInductor's builds 16 s, to save 3 s. More than one thread would mean helper processes that live on beside the timed
calls.
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
            "-shared",
            "-fPIC",
            "-x",
            "c++",
            "-",
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
    told = subprocess.run(  # noqa: S603
        [compiler, "--version"], capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
    )
    return told.stdout.partition("\n")[0]


def require_triton() -> None:
    """Inductor writes its GPU kernels in Triton, which torch's CUDA builds bring along.

    Raises:
        SkippedArm: it isn't installed.
    """
    if find_spec("triton") is None:
        reason = "torch.compile needs Triton on cuda, and it is not installed"
        raise SkippedArm(reason, pip_install("triton"), NotRunKind.NOT_INSTALLED)


def require_cuda_headers() -> None:
    """AOTInductor's C++ includes CUDA's headers, which come with no wheel that torch looks into.

    Raises:
        SkippedArm: torch finds no CUDA toolkit.
    """
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        reason = "AOTInductor compiles against CUDA's headers, and torch finds no CUDA toolkit"
        raise SkippedArm(reason, "install the toolkit of torch's CUDA version, or set CUDA_HOME to it")


def get_ready() -> None:
    """Do what any compilation on a CPU begins with: import Inductor, and test the compiler and the vector units.

    Raises:
        SkippedArm: a compiler or headers are missing.
    """
    require_toolchain()
    with tempfile.TemporaryDirectory() as cache, inductor_with(Path(cache), {}):
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        pick_vec_isa()


@contextmanager
def inductor_with(cache: Path, config: dict[str, Any]) -> Iterator[None]:
    """Inductor with this configuration, its cache in `cache`, and nothing left from an earlier compilation.

    Only what sessions of this process still run stays: forgotten, it would be compiled again in their next call, under
    the configuration of that moment.
    """
    import torch._dynamo.utils
    import torch._inductor.config as config_of

    if not _IN_USE:
        torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(cache)
    try:
        with config_of.patch({**SETTINGS, **config}), fewest_tests():
            yield
    finally:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before


def keep(compiled: Any) -> None:
    """Let no later compilation of this process forget this compiled model, as long as somebody holds it."""
    _IN_USE.add(compiled)


def graph_bypassed() -> bool:
    """Whether Inductor kept its graph out of the cache since it was last reset.

    It does so with weights in oneDNN's own layout, which it can't write: each load then makes the kernels' list anew,
    and only the compiled code is in the cache.
    """
    from torch._dynamo.utils import counters

    return bool(counters["inductor"]["fxgraph_cache_bypass"])


def breaks(of: str = "model", graphs: int = 1) -> tuple[str, ...]:
    """Graph breaks, and graphs beyond so many (recompilations), since this process last compiled anew; one line each.

    Args:
        of: what was compiled, for people.
        graphs: that it has of its own.
    """
    from torch._dynamo.utils import counters

    found = counters["stats"]["unique_graphs"]
    again = (f"Dynamo compiled {found} graphs for one {of}",) if found > graphs else ()
    reasons = (reason.partition("\n")[0] for reason in counters["graph_break"])
    return (*(f"graph break: {reason}" for reason in reasons), *again)


def captured_graphs() -> int:
    """How many CUDA graphs Inductor has recorded in this process and still holds."""
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(0, create_if_none_exists=False)
    return _recorded(manager.roots) if manager else 0


def _recorded(nodes: Mapping[Any, Sequence[Any]]) -> int:
    """Of recordings by function, and of those that follow each: how many hold a graph."""
    every = [node for recordings in nodes.values() for node in recordings]
    return sum((node.graph is not None) + _recorded(node.children) for node in every)


def graph_parts() -> int:
    """Into how many parts Inductor cut the model that was compiled last, since not all of it can be in a CUDA graph."""
    from torch._dynamo.utils import counters

    return counters["inductor"]["cudagraph_partitions"] or 1


def outside_graphs(captured: int, since: int, parts: int) -> tuple[str, ...]:
    """What keeps a model from being one CUDA graph that is only replayed, one line each.

    Counted graphs are the proof, not Inductor's own count of what it skipped: that one misses cases (pytorch pull
    request 193044).

    Args:
        captured: CUDA graphs of this model when it was loaded.
        since: those that were captured later.
        parts: what `graph_parts` said while it was built.
    """
    from torch._dynamo.utils import counters

    skipped = counters["inductor"]["cudagraph_skips"]
    cut = (f"Inductor cut the model into {parts} parts and captured {captured} CUDA graphs",)
    left_out = (f"Inductor skipped {skipped} CUDA graphs: TORCH_LOGS=cudagraphs says why",)
    again = (f"Inductor captured {since} more CUDA graphs after it was loaded",)
    return (*(cut if (parts, captured) != (1, 1) else ()), *(left_out if skipped else ()), *(again if since else ()))
