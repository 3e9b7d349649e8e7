"""The other side of the parity check: each library called as a user would call it, timed by a loop of its own.

Nothing of the harness's measuring is used here, on purpose. Run as a script by `parity.py` with a job file and the
parent's process id, it answers one JSON command a line; `--pyperf` hands the same call to pyperf instead.
"""

from __future__ import annotations

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

from shootout import models
from shootout.contract import Built
from shootout.lifeline import leave_with

Call = Callable[[int], Any]
WARM_UP_CALLS = 200
LEAD_IN_CALLS, LEAD_IN_NS = 3, 2_000_000
BLOCK_NS, BLOCK_CALLS = 10_000_000, 5
TIMER_S = 0.02


def numpy_calls(built: Built) -> dict[str, Call]:
    """The model's own array code."""
    import numpy as np

    bundle = built.bundle
    forward, weights, buffers = models.get(bundle.model).forward, bundle.weights(), bundle.input_buffers()
    assert forward is not None

    def call(buffer: int) -> Any:
        return forward(np, weights, buffers[buffer], bundle.parameters)

    return {"compute": call, "end_to_end": call}


def torch_calls(built: Built) -> dict[str, Call]:
    """The module in inference mode; end to end from and to NumPy."""
    import torch

    torch.set_num_threads(built.arm.threads)
    torch.set_num_interop_threads(1)
    module = models.get(built.bundle.model).module(built.bundle.parameters)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in built.bundle.weights().items()})
    module.eval()
    arrays = [next(iter(one.values())) for one in built.bundle.input_buffers()]
    tensors = [torch.from_numpy(array) for array in arrays]

    def compute(buffer: int) -> Any:
        with torch.inference_mode():
            return module(tensors[buffer])

    def end_to_end(buffer: int) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(arrays[buffer])).numpy()

    return {"compute": compute, "end_to_end": end_to_end}


def onnxruntime_calls(built: Built) -> dict[str, Call]:
    """The optimised graph through IO binding; end to end with copies in and out."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = built.arm.threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # the file is optimised
    session = ort.InferenceSession(built.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    (given,), (wanted,) = built.bundle.inputs, built.bundle.outputs
    arrays = [one[given.name] for one in built.bundle.input_buffers()]
    inputs = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    outputs = [ort.OrtValue.ortvalue_from_shape_and_type(list(wanted.shape), "float32") for _ in arrays]
    bindings = [session.io_binding() for _ in arrays]
    for binding, x, y in zip(bindings, inputs, outputs, strict=True):
        binding.bind_ortvalue_input(given.name, x)
        binding.bind_ortvalue_output(wanted.name, y)

    def compute(buffer: int) -> Any:
        session.run_with_iobinding(bindings[buffer])

    def end_to_end(buffer: int) -> Any:
        inputs[buffer].update_inplace(arrays[buffer])
        session.run_with_iobinding(bindings[buffer])
        return outputs[buffer].numpy().copy()

    return {"compute": compute, "end_to_end": end_to_end}


CALLS = {"numpy": numpy_calls, "torch-eager": torch_calls, "onnxruntime": onnxruntime_calls}


def loop(call: Call, buffers: int, calls: int) -> list[int]:
    """A lead-in, then `calls` calls: nanoseconds of each."""
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
    """`torch.utils.benchmark`'s median, in nanoseconds."""
    from torch.utils.benchmark import Timer

    loop(call, buffers, 0)
    tool = Timer(
        "call(next(buffer))", globals={"call": call, "buffer": itertools.cycle(range(buffers))}, num_threads=threads
    )
    return float(tool.blocked_autorange(min_run_time=TIMER_S).median * 1e9)


def serve(built: Built) -> None:
    """Warm up, then answer `["loop" | "timer", scope]` with the block's median in nanoseconds."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    calls, buffers = CALLS[built.arm.target.backend](built), len(built.bundle.input_buffers())
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
    """The end-to-end call under pyperf, whose own arguments are on the command line."""
    import pyperf

    runner = pyperf.Runner(add_cmdline_args=lambda command, options: command.extend(["--pyperf", options.pyperf]))
    runner.argparser.add_argument("--pyperf")
    built = _job(runner.parse_args().pyperf)
    calls, buffer = CALLS[built.arm.target.backend](built), itertools.cycle(range(len(built.bundle.input_buffers())))
    call = calls["end_to_end"]
    runner.bench_func(built.arm.label, lambda: call(next(buffer)))


def _job(path: str) -> Built:
    built: Built = pickle.loads(Path(path).read_bytes())
    return built


if __name__ == "__main__":
    if "--pyperf" in sys.argv:
        hand_to_pyperf()
    else:
        leave_with(int(sys.argv[2]))
        serve(_job(sys.argv[1]))
