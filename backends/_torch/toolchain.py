"""What Inductor needs beside torch: a C++ compiler that works, and Python's headers; on a GPU Triton as well.

Asked without Inductor itself: importing it takes 2 s and compiling one ReLU 8 s, too long for a question that comes
before every run.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

from shootout.errors import SkippedArm

SOURCE = '#include <Python.h>\n#include <cmath>\nextern "C" double probe(double x) { return std::sqrt(x); }\n'
TIMEOUT_S = 60


def require_toolchain() -> str:
    """Compile and link a few lines, as Inductor will.

    Returns:
        The compiler and its version: other kernels may come of another one.

    Raises:
        SkippedArm: what is missing, and the command that installs it.
    """
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        raise SkippedArm(f"torch.compile needs Python's headers, and {headers} is missing", "apt install python3-dev")
    compiler = os.environ.get("CXX", "g++")
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
                command, input=SOURCE, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            raise SkippedArm(f"torch.compile needs a C++ compiler, and {compiler} doesn't run", fix) from None
    if done.returncode:
        words = " | ".join(done.stderr.split("\n")[:2])
        raise SkippedArm(f"torch.compile needs a C++ compiler, and {compiler} failed: {words}", fix)
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    return told.stdout.partition("\n")[0]


def require_triton() -> None:
    """Inductor writes its GPU kernels in Triton, which torch's CUDA builds bring along.

    Raises:
        SkippedArm: it isn't installed.
    """
    if find_spec("triton") is None:
        raise SkippedArm("torch.compile needs Triton on cuda, and it is not installed", "pip install triton")


def require_cuda_headers() -> None:
    """AOTInductor's C++ includes CUDA's headers, which come with no wheel that torch looks into.

    Raises:
        SkippedArm: torch finds no CUDA toolkit.
    """
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        reason = "AOTInductor compiles against CUDA's headers, and torch finds no CUDA toolkit"
        raise SkippedArm(reason, "install the toolkit of torch's CUDA version, or set CUDA_HOME to it")
