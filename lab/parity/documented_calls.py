"""Call each library as its own documentation writes it: from the exported model, nothing taken from the adapter.

Only those whose plain loop in `plain_calls.py` starts from the adapter's artifact; PyTorch's and NumPy's are written as
their documentation says already. Threads, precision and input buffers are the arm's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from plain_calls import Calls, set_wide  # type: ignore[import-not-found] # beside this file, which is imported by `plain.py` alone

from shootout import models
from shootout.core.adapter import Built
from shootout.core.contract import INTEGERS, Artifact


def jax_calls(built: Built, _: Path) -> Calls:
    """Call `jax.jit` of a function of a dict of kernels (in, out), dispatched as JAX does it by itself
    (docs.jax.dev: "Benchmarking JAX code").
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    exported = built.exported
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    forward, (given,), (wanted,) = models.get(exported.model).forward, exported.inputs, exported.outputs
    assert forward is not None
    run_on, matrix = forward, 2

    @jax.jit
    def predict(kernels: dict[str, Any], x: Any) -> Any:
        weights = {name: one.T if one.ndim == matrix else one for name, one in kernels.items()}
        return run_on(jnp, weights, exported.parameters)({given.name: x})[wanted.name]

    kernels = {name: jnp.asarray(one.T if one.ndim == matrix else one) for name, one in exported.weights().items()}
    arrays = [one[given.name] for one in exported.input_buffers()]
    on_device = [jnp.asarray(array) for array in arrays]

    def compute(buffer: int) -> Any:
        return predict(kernels, on_device[buffer]).block_until_ready()

    def end_to_end(buffer: int) -> Any:
        return np.asarray(predict(kernels, arrays[buffer]))

    return {"compute": compute, "end_to_end": end_to_end}


def onnxruntime_calls(built: Built, _: Path) -> Calls:
    """Call `InferenceSession.run` from and to NumPy; and what onnxruntime_perf_test times, from Python.

    That is tensors that are there, and outputs that ONNX Runtime allocates.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = built.arm.threads
    session = ort.InferenceSession(built.exported.path(Artifact.ONNX), options, providers=["CPUExecutionProvider"])
    (given,), (wanted,) = built.exported.inputs, built.exported.outputs
    arrays = [one[given.name] for one in built.exported.input_buffers()]
    values = [{given.name: ort.OrtValue.ortvalue_from_numpy(array)} for array in arrays]

    def compute(buffer: int) -> Any:
        return session.run_with_ort_values([wanted.name], values[buffer])

    def end_to_end(buffer: int) -> Any:
        return session.run(None, {given.name: arrays[buffer]})[0]

    return {"compute": compute, "end_to_end": end_to_end}


def openvino_calls(built: Built, _: Path) -> Calls:
    """Call a compiled model with the latency hint, one request, and the array.

    See docs.openvino.ai: "Optimizing for latency", "Python API: shared memory". For integers the arm's file is used,
    since only its quantizer makes one.
    """
    from shootout.backends._openvino.graph import import_openvino  # which keeps its telemetry from starting

    precision = built.arm.target.precision
    stored = built.folder / "model.xml" if precision in INTEGERS else built.exported.path(Artifact.ONNX)
    core = import_openvino().Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": built.arm.threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
    }
    request = core.compile_model(core.read_model(stored), "CPU", settings).create_infer_request()
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]

    request.get_input_tensor().data[:] = arrays[0]

    def compute(buffer: int) -> Any:
        """Call on the tensor that is there, as `benchmark_app -inference_only`."""
        return request.infer(share_outputs=True)

    def end_to_end(buffer: int) -> Any:
        return request.infer([arrays[buffer]], share_inputs=True)[0]

    return {"compute": compute, "end_to_end": end_to_end}


def litert_calls(built: Built, _: Path) -> Calls:
    """Use one set of buffers by the signature's names, as Google's own `litert-benchmark` runs a file (ai.google.dev:
    "LiteRT CompiledModel Python API"). The tool itself rounds to 10 us, a tenth of a call.
    """
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, Options

    options = Options(cpu_options=CpuOptions(num_threads=built.arm.threads))
    model = CompiledModel.from_file(str(built.folder / "model.tflite"), options=options)
    ((signature, names),) = model.get_signature_list().items()
    inputs = {name: model.create_input_buffer_by_name(signature, name) for name in names["inputs"]}
    outputs = {name: model.create_output_buffer_by_name(signature, name) for name in names["outputs"]}
    (given,), (made,), (wanted,) = inputs.values(), outputs.values(), built.exported.outputs
    arrays, count = [next(iter(one.values())) for one in built.exported.input_buffers()], int(np.prod(wanted.shape))
    given.write(arrays[0])

    def compute(buffer: int) -> Any:
        """Call on the inputs that are there, as `litert-benchmark`."""
        model.run_by_name(signature, inputs, outputs)

    def end_to_end(buffer: int) -> Any:
        given.write(arrays[buffer])
        model.run_by_name(signature, inputs, outputs)
        return made.read(count, np.float32)

    return {"compute": compute, "end_to_end": end_to_end}


def ncnn_calls(built: Built, _: Path) -> Calls:
    """Call as ncnn's own benchncnn does in its loop, pools of memory and all.

    End to end it is the example that pnnx writes beside its files. benchncnn itself is a C++ program, which no package
    brings.
    """
    import ncnn

    net = ncnn.Net()
    pools = ncnn.UnlockedPoolAllocator(), ncnn.PoolAllocator()
    net.opt.blob_allocator, net.opt.workspace_allocator = pools
    set_wide(net.opt)
    net.opt.num_threads = built.arm.threads
    net.load_param(str(built.folder / "model.param"))
    net.load_model(str(built.folder / "model.bin"))
    ((taken, name, axis),), ((given, _, out_axis),) = built.facts["takes"], built.facts["gives"]
    arrays = [one[name] for one in built.exported.input_buffers()]
    stored = ncnn.Mat(arrays[0], axis).clone()

    def compute(buffer: int) -> Any:
        extractor = net.create_extractor()
        extractor.input(taken, stored)
        return extractor.extract(given)[1], pools  # which live as long as the call does

    def end_to_end(buffer: int) -> Any:
        with net.create_extractor() as extractor:
            extractor.input(taken, ncnn.Mat(arrays[buffer], axis).clone())
            return extractor.extract(given)[1].numpy("f", out_axis).copy()

    return {"compute": compute, "end_to_end": end_to_end}


def executorch_calls(built: Built, _: Path) -> Calls:
    """Call `Runtime.get().load_program(…).load_method(…).execute(…)`.

    Source: docs.pytorch.org/executorch, "Runtime Python API". Its only way to set threads is the extension's.
    """
    import torch
    from executorch.extension.pybindings import _C
    from executorch.runtime import Runtime

    _C._unsafe_reset_threadpool(built.arm.threads)
    method = Runtime.get().load_program(built.folder / "model.pte").load_method("forward")
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    tensors = [[torch.from_numpy(array)] for array in arrays]

    def compute(buffer: int) -> Any:
        return method.execute(tensors[buffer])

    def end_to_end(buffer: int) -> Any:
        return method.execute([torch.from_numpy(arrays[buffer])])[0].numpy()

    return {"compute": compute, "end_to_end": end_to_end}


CALLS: dict[str, Callable[[Built, Path], Calls]] = {
    "jax-jit": jax_calls,
    "onnxruntime": onnxruntime_calls,
    "openvino": openvino_calls,
    "litert": litert_calls,
    "ncnn": ncnn_calls,
    "executorch": executorch_calls,
}
"""By backend."""
