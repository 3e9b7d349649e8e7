"""Run the field's own tools in processes of their own: each gives one time a restart, with all our processes
suspended.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.common import Bench
from shootout.core.adapter import Built
from shootout.core.constants import LOAD_TIMEOUT_S
from shootout.core.errors import one_line
from shootout.core.host.child import ending, too_long, with_last_words
from shootout.core.host.placement import child_environment, on_cpus

from . import plain
from .sides import Medians

PYPERF_VALUES, PYPERF_WARM_UPS = 600, 100
TOOL_S = 2
NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
REPORT = re.compile(r"Count:\s+(\d+) iterations.*?Duration:\s+([\d.]+) ms.*?Median:\s+([\d.]+) (us|ms)", re.DOTALL)
Told = dict[str, Medians]
"""The figures that a tool reports, by the name that it gets in the table; one value stands for all rounds of the
restart.
"""


class Missing(Exception):
    """The tool isn't installed; says where it was looked for."""


def pyperf(bench: Bench, _: Built, job: Path, padding: int) -> Told:
    """Return pyperf's median: one process of its own, one call a value, since our median too is of single calls."""
    import pyperf

    environment, out = child_environment(bench.placement.threads, padding), job.with_suffix(".pyperf.json")
    out.unlink(missing_ok=True)
    changed = sorted(key for key, value in environment.items() if os.environ.get(key) != value)
    command = [sys.executable, "-P", plain.__file__, "--pyperf", str(job), "--quiet", "--processes=1", "--loops=1"]
    command += [f"--values={bench.size(PYPERF_VALUES, 50)}", f"--warmups={PYPERF_WARM_UPS}", f"--output={out}"]
    command += [
        f"--affinity={','.join(map(str, sorted(bench.placement.arms)))}",
        f"--inherit-environ={','.join(changed)}",
    ]
    _run_tool(command, environment)
    median = float(np.median(pyperf.Benchmark.load(str(out)).get_values())) * 1e9
    return {"pyperf": {"end_to_end": median}}


def benchmark_app(bench: Bench, built: Built, _: Path, padding: int) -> Told:
    """Run OpenVINO's own tool on the arm's IR, synchronous, from Python as we are.

    Its median is of times taken inside the runtime: the call from Python, some microseconds, is left out. Its duration
    over its count has all of it, and its own loop; but it is a mean.

    Raises:
        Missing: it doesn't lie beside this interpreter.
    """
    tool, count = Path(sys.executable).with_name("benchmark_app"), str(bench.placement.threads)
    if not tool.exists():
        raise Missing(f"{tool} is not there: pip install openvino")
    command = [str(tool), "-m", str(built.folder / "model.xml"), "-d", "CPU", "-api", "sync", "-hint", "none"]
    command += ["-nstreams", "1", "-nthreads", count, "-nireq", "1", "-infer_precision", "f32"]
    command += ["-t", str(TOOL_S), "-inference_only"]
    environment = child_environment(bench.placement.threads, padding)
    # CI keeps its telemetry quiet; what it would write into its user's home goes away with the folder.
    with tempfile.TemporaryDirectory(dir=bench.folder) as home, on_cpus(bench.placement.arms):
        environment |= {"CI": "true", "HOME": home}
        said = _run_tool(command, environment, home)
    if not (found := REPORT.search(said)):
        raise RuntimeError(f"benchmark_app told no median: {said[-500:]}")
    count, duration_ms, median, unit = found.groups()
    return {
        "benchmark_app, median inside the runtime": {"compute": float(median) * NS[unit]},
        "benchmark_app, duration / count": {"compute": float(duration_ms) * NS["ms"] / int(count)},
    }


def iree_benchmark(bench: Bench, built: Built, _: Path, padding: int) -> Told:
    """Run IREE's own tool on the arm's module: the mean of calls from C, with the input in a file.

    Raises:
        Missing: it doesn't lie beside this interpreter.
    """
    from shootout.backends._iree.compiler import MODULE, SCOPE, WEIGHTS

    tool = Path(sys.executable).with_name("iree-benchmark-module")
    if not tool.exists():
        raise Missing(f"{tool} is not there: pip install iree-base-runtime")
    (given,) = built.exported.input_buffers()[0].values()
    np.save(bench.folder / "input.npy", given)
    command = [str(tool), "--device=local-sync", f"--module={built.folder / MODULE}", "--function=main_graph"]
    command += [f"--parameters={SCOPE}={built.folder / WEIGHTS}", f"--input=@{bench.folder / 'input.npy'}"]
    command += [f"--benchmark_min_time={TOOL_S}s", "--benchmark_format=json"]
    with on_cpus(bench.placement.arms):
        said = _run_tool(command, child_environment(bench.placement.threads, padding))
    (found,) = json.loads(said)["benchmarks"]
    return {"iree-benchmark-module, mean": {"compute": found["real_time"] * NS[found["time_unit"]]}}


def _run_tool(command: Sequence[str], environment: Mapping[str, str], folder: str | None = None) -> str:
    """Return what a tool prints.

    Raises:
        RuntimeError: it failed, or took too long: that is its arm's row, and no end of the section.
    """
    name = Path(command[0]).name
    try:
        ended = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} {too_long(LOAD_TIMEOUT_S)}") from None
    if ended.returncode:
        words = one_line((ended.stderr or ended.stdout)[-500:])
        raise RuntimeError(with_last_words(f"{name} {ending(ended.returncode)}", words))
    return ended.stdout


Tool = Callable[[Bench, Built, Path, int], Told]
TOOLS: dict[str, tuple[str, Tool]] = {
    "numpy": ("pyperf", pyperf),
    "openvino": ("benchmark_app", benchmark_app),
    "iree": ("iree-benchmark-module", iree_benchmark),
}
"""By target: the tool's name, and what runs it with a built arm, its job file and environment padding."""
