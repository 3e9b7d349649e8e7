"""Call each library as its careful user would: the adapter's artifact, threads, buffers and copies.

Written apart from the adapters, on purpose: what an adapter adds to a call, or leaves out of it, has to show. Imported
by `plain.py` alone, in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shootout import models
from shootout.core.adapter import Built

Call = Callable[[int], Any]
"""Runs the model on the input buffer with this index."""
Calls = dict[str, Call]
"""By scope, named as the harness names them."""


def numpy_calls(built: Built, _: Path) -> Calls:
    """Call the model's own array code."""
    import numpy as np

    exported = built.exported
    forward, buffers = models.get(exported.model).forward, exported.input_buffers()
    assert forward is not None
    # A NumPy user's own array is (in, out) in memory; torch's names for it are the exported model's.
    run = forward(
        np, {name: np.asfortranarray(array) for name, array in exported.weights().items()}, exported.parameters
    )

    def call(buffer: int) -> Any:
        return run(buffers[buffer])

    return {"compute": call, "end_to_end": call}


def eager_calls(built: Built, _: Path) -> Calls:
    """Call the module as it is."""
    return _torch_calls(built, _load_module(built))


def compile_calls(built: Built, scratch: Path) -> Calls:
    """Call the module under torch.compile, with a copy of the arm's kernels, so that no compiler has to run."""
    cache = scratch / "inductor"
    if not cache.exists():
        shutil.copytree(built.folder / "inductor", cache)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    import torch

    return _torch_calls(built, torch.compile(_load_module(built), fullgraph=True, dynamic=False))


def aoti_calls(built: Built, _: Path) -> Calls:
    """Call AOTInductor's package."""
    from torch._inductor import aoti_load_package

    return _torch_calls(built, aoti_load_package(str(built.folder / "model.pt2")))


def script_calls(built: Built, _: Path) -> Calls:
    """Call the saved script module, optimized for inference; its first calls specialize it."""
    import torch

    module = torch.jit.load(str(built.folder / "model.pt"))  # type: ignore[no-untyped-call]
    return _torch_calls(built, torch.jit.optimize_for_inference(module))


def _load_module(built: Built) -> Any:
    import torch

    module = models.get(built.exported.model).module(built.exported.parameters)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in built.exported.weights().items()})
    return module.eval().requires_grad_(False)


def _torch_calls(built: Built, run: Any) -> Calls:
    """Call in inference mode, entered once around all calls; end to end from and to NumPy."""
    import torch

    torch.inference_mode().__enter__()
    torch.set_num_threads(built.arm.threads)
    torch.set_num_interop_threads(1)
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    tensors = [torch.from_numpy(array) for array in arrays]

    def compute(buffer: int) -> Any:
        return run(tensors[buffer])

    def end_to_end(buffer: int) -> Any:
        return run(torch.from_numpy(arrays[buffer])).numpy()

    return {"compute": compute, "end_to_end": end_to_end}


def jax_calls(built: Built, _: Path) -> Calls:
    """Call the stored executable on the weights as they were laid out; end to end from and to NumPy."""
    import jax
    import numpy as np
    from jax.experimental.serialize_executable import deserialize_and_load
    from safetensors.numpy import load_file

    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call] # as the adapter has it: another call path otherwise
    device = jax.devices("cpu")[0]
    (code, ins, outs), _ = pickle.loads((built.folder / "executable.pickle").read_bytes())
    run = deserialize_and_load(code, ins, outs, backend=device.client, execution_devices=[device])
    stored = {**built.exported.weights(), **load_file(built.folder / "buffers.safetensors")}
    weights = jax.device_put(tuple(stored[name] for name in built.facts["weights"]), device)
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]

    def compute(buffer: int) -> Any:
        return run(weights, (arrays[buffer],))[0].block_until_ready()

    def end_to_end(buffer: int) -> Any:
        return np.asarray(run(weights, (arrays[buffer],))[0])

    return {"compute": compute, "end_to_end": end_to_end}


def onnxruntime_calls(built: Built, _: Path) -> Calls:
    """Call the optimized graph through IO binding; end to end with copies in and out."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = built.arm.threads, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # the file is optimized
    session = ort.InferenceSession(built.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    (given,), (wanted,) = built.exported.inputs, built.exported.outputs
    arrays = [one[given.name] for one in built.exported.input_buffers()]
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


def openvino_calls(built: Built, _: Path) -> Calls:
    """Call the arm's IR, one request per buffer with the tensors that OpenVINO gave it; copies in and out end to
    end.
    """
    import numpy as np

    from shootout.backends._openvino.graph import import_openvino  # which keeps its telemetry from starting

    core = import_openvino().Core()
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": built.arm.threads,
        "INFERENCE_PRECISION_HINT": {"bf16": "bf16"}.get(built.arm.target.precision, "f32"),
    }
    compiled = core.compile_model(core.read_model(built.folder / "model.xml"), "CPU", properties)
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    requests = [compiled.create_infer_request() for _ in arrays]
    inputs = [request.get_input_tensor().data for request in requests]
    for tensor, array in zip(inputs, arrays, strict=True):
        np.copyto(tensor, array)

    def compute(buffer: int) -> Any:
        requests[buffer].infer(share_outputs=True)

    def end_to_end(buffer: int) -> Any:
        request = requests[buffer]
        np.copyto(inputs[buffer], arrays[buffer])
        request.infer(share_outputs=True)
        return request.get_output_tensor().data.copy()

    return {"compute": compute, "end_to_end": end_to_end}


def litert_calls(built: Built, _: Path) -> Calls:
    """Call the arm's compiled .tflite file; each input set has buffers of its own, copied in and out end to end."""
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, Options

    options = Options(cpu_options=CpuOptions(num_threads=built.arm.threads))
    model = CompiledModel.from_file(str(built.folder / "model.tflite"), options=options)
    (wanted,) = built.exported.outputs
    count = int(np.prod(wanted.shape))
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    inputs, outputs = ([make(0) for _ in arrays] for make in (model.create_input_buffers, model.create_output_buffers))
    for (buffer,), array in zip(inputs, arrays, strict=True):
        buffer.write(array)

    def compute(buffer: int) -> Any:
        model.run_by_index(0, inputs[buffer], outputs[buffer])

    def end_to_end(buffer: int) -> Any:
        inputs[buffer][0].write(arrays[buffer])
        model.run_by_index(0, inputs[buffer], outputs[buffer])
        return outputs[buffer][0].read(count, np.float32).reshape(wanted.shape)

    return {"compute": compute, "end_to_end": end_to_end}


def ncnn_calls(built: Built, _: Path) -> Calls:
    """Call the arm's two files with every narrow storage off; one extractor a call, inputs in ncnn's own memory."""
    import ncnn
    import numpy as np

    net = ncnn.Net()
    set_wide(net.opt)
    net.opt.num_threads = built.arm.threads
    net.load_param(str(built.folder / "model.param"))
    net.load_model(str(built.folder / "model.bin"))
    ((taken, name, axis),), ((given, _, out_axis),) = built.facts["takes"], built.facts["gives"]
    arrays = [one[name] for one in built.exported.input_buffers()]
    stored = [ncnn.Mat(array, axis).clone() for array in arrays]

    def run(mat: Any) -> Any:
        extractor = net.create_extractor()
        extractor.input(taken, mat)
        return extractor.extract(given)[1]

    def compute(buffer: int) -> Any:
        return run(stored[buffer])

    def end_to_end(buffer: int) -> Any:
        return np.array(run(ncnn.Mat(arrays[buffer], axis).clone()).numpy("f", out_axis))

    return {"compute": compute, "end_to_end": end_to_end}


def set_wide(options: Any) -> None:
    """Turn off what ncnn stores and computes in 16 bits by itself."""
    for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
        setattr(options, f"use_{name}", False)


def executorch_calls(built: Built, _: Path) -> Calls:
    """Call the arm's .pte file by the extension that ExecuTorch's own runtime package wraps; outputs copied end
    to end.
    """
    import torch
    from executorch.extension.pybindings import _C

    _C._unsafe_reset_threadpool(built.arm.threads)
    method = _C._load_program(str(built.folder / "model.pte")).load_method("forward")
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    tensors = [[torch.from_numpy(array)] for array in arrays]

    def compute(buffer: int) -> Any:
        return method.call(tensors[buffer], clone_outputs=False)

    def end_to_end(buffer: int) -> Any:
        return method.call([torch.from_numpy(arrays[buffer])], clone_outputs=False)[0].numpy().copy()

    return {"compute": compute, "end_to_end": end_to_end}


def iree_calls(built: Built, _: Path) -> Calls:
    """Call the function of the arm's module by the package's own invoker, with the weights in a context.

    Arrays are there already, or the invoker copies them.
    """
    import numpy as np
    from iree import runtime

    config = runtime.Config("local-sync")
    modules = []
    if (built.folder / "model.irpa").exists():
        index = runtime.ParameterIndex()
        index.load(str(built.folder / "model.irpa"))
        modules.append(runtime.create_io_parameters_module(config.vm_instance, index.create_provider(scope="model")))
    modules.append(runtime.VmModule.mmap(config.vm_instance, str(built.folder / "model.vmfb")))
    bound = runtime.load_vm_modules(*modules, config=config)[-1]
    own = [name for name in bound.vm_module.function_names if not name.startswith("__") and not name.endswith("$async")]
    function = bound[own[0]]
    arrays = [next(iter(one.values())) for one in built.exported.input_buffers()]
    on_device = [runtime.asdevicearray(config.device, array) for array in arrays]

    def compute(buffer: int) -> Any:
        return function(on_device[buffer])

    def end_to_end(buffer: int) -> Any:
        return np.array(function(arrays[buffer]).to_host())

    return {"compute": compute, "end_to_end": end_to_end}


CALLS: dict[str, Callable[[Built, Path], Calls]] = {
    "numpy": numpy_calls,
    "torch-eager": eager_calls,
    "torch-compile": compile_calls,
    "torch-compile+aoti": aoti_calls,
    "torchscript": script_calls,
    "jax-jit": jax_calls,
    "onnxruntime": onnxruntime_calls,
    "openvino": openvino_calls,
    "litert": litert_calls,
    "ncnn": ncnn_calls,
    "executorch": executorch_calls,
    "iree": iree_calls,
}
"""By backend and mode; each gets the built arm and a folder to write into."""


def calls_of(built: Built, scratch: Path) -> Calls:
    """Return the arm's calls; `scratch` may be kept from one process to the next."""
    target = built.arm.target
    return CALLS[f"{target.backend}+{target.mode}" if target.mode else target.backend](built, scratch)
