"""Time the calls of `plain_calls.py` with a loop of its own: the other side of the parity check.

Nothing of the harness's measuring is used here, on purpose. Run as a script by `parity.py` with a job file and the
parent's process id, it answers one JSON command a line; `--pyperf` hands the same call to pyperf instead.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from shootout.core.adapter import Built
from shootout.core.host.child import leave_with

Call = Callable[[int], Any]
WARM_UP_CALLS = 200
LEAD_IN_CALLS, LEAD_IN_NS = 3, 2_000_000
BLOCK_NS, BLOCK_CALLS = 10_000_000, 5
TIMER_S = 0.02


def loop(call: Call, buffers: int, calls: int) -> list[int]:
    """Make some lead-in calls, then `calls` calls; return the nanoseconds of each."""
    began = perf_counter_ns()
    for index in range(LEAD_IN_CALLS):
        call(index % buffers)
        if perf_counter_ns() - began >= LEAD_IN_NS:
            break
    taken = []
    for index in range(calls):
        start = perf_counter_ns()
        call(index % buffers)
        taken.append(perf_counter_ns() - start)
    return taken


def timer(call: Call, buffers: int, threads: int) -> float:
    """Return `torch.utils.benchmark`'s median, in nanoseconds."""
    from torch.utils.benchmark import Timer

    loop(call, buffers, 0)
    tool = Timer(
        "call(next(buffer))", globals={"call": call, "buffer": itertools.cycle(range(buffers))}, num_threads=threads
    )
    return float(tool.blocked_autorange(min_run_time=TIMER_S).median * 1e9)


def serve(built: Built, scratch: Path, *, documented: bool) -> None:
    """Warm up, then answer `["loop" | "timer", scope]` with the block's median in nanoseconds."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    calls, buffers = _load_calls(built, scratch, documented=documented), len(built.exported.input_buffers())
    warm = {scope: statistics.median(loop(call, buffers, WARM_UP_CALLS)) for scope, call in calls.items()}
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        how, scope = json.loads(line)
        if how == "timer":
            found = timer(calls[scope], buffers, built.arm.threads)
        else:
            found = statistics.median(loop(calls[scope], buffers, max(BLOCK_CALLS, int(BLOCK_NS / warm[scope]) + 1)))
        print(json.dumps(found), file=answers, flush=True)


def hand_to_pyperf() -> None:
    """Run the end-to-end call under pyperf, whose own arguments are on the command line."""
    import pyperf

    runner = pyperf.Runner(add_cmdline_args=lambda command, options: command.extend(["--pyperf", options.pyperf]))
    runner.argparser.add_argument("--pyperf")
    built, scratch = _read_job(runner.parse_args().pyperf)
    call, buffer = (
        _load_calls(built, scratch)["end_to_end"],
        itertools.cycle(range(len(built.exported.input_buffers()))),
    )
    runner.bench_func(built.arm.label, lambda: call(next(buffer)))


def _load_calls(built: Built, scratch: Path, *, documented: bool = False) -> dict[str, Call]:
    sys.path.append(str(Path(__file__).parent))  # last, so that no file here takes a library's name
    if documented:
        calls = importlib.import_module("documented_calls").CALLS[built.arm.target.backend]
    else:
        calls = importlib.import_module("plain_calls").calls_of
    found: dict[str, Call] = calls(built, scratch)
    return found


def _read_job(path: str) -> tuple[Built, Path]:
    """Read the built arm, and return it with a folder to write into: beside the job, kept between processes."""
    built: Built = pickle.loads(Path(path).read_bytes())
    return built, Path(path).with_suffix(".scratch")


if __name__ == "__main__":
    if "--pyperf" in sys.argv:
        hand_to_pyperf()
    else:
        leave_with(int(sys.argv[3]))
        serve(*_read_job(sys.argv[1]), documented=sys.argv[2] == "documented")
