"""ONNX Runtime and OpenVINO: inputs that are copied or shared, outputs likewise, and INT4 with 8-bit activations."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case  # type: ignore[import-not-found] # beside this file, which `cases.py` alone imports

from shootout import backends

INPUTS = {"512 B": 128, "600 kB": 150_528, "19 MB": 4_816_896}
OUTPUTS = {"600 kB": 150_528, "4 MB": 1_048_576}
ALIGNMENT = 64
INT4_APART = 0.3
JOBS = "int4.built"
"""Where the parent wrote what it built: by row of the table, arms by their precision."""


def aligned(count: int) -> Any:
    """Float32 zeros that begin where the package's own input buffers do."""
    room = np.zeros(count + ALIGNMENT // 4, np.float32)
    return room[(-room.ctypes.data // 4) % (ALIGNMENT // 4) :][:count].reshape(1, count)


def _model(op: str, count: int, folder: Path) -> str:
    """An ONNX file that picks one number, or one whose output is as large as its input."""
    from onnx import TensorProto, helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, count])
    if op == "Sin":
        nodes, wide = [helper.make_node("Sin", ["x"], ["y"])], count
        constants = []
    else:
        ends = {"starts": 0, "ends": 1, "axes": 1}
        constants = [helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in ends.items()]
        nodes, wide = [helper.make_node("Slice", ["x", *ends], ["y"])], 1
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, wide])
    graph = helper.make_graph(nodes, "one", [x], [y], constants)
    path = folder / f"{op}-{count}.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return str(path)


def onnxruntime_cases(folder: Path) -> Iterator[Case]:
    """Tensors of ONNX Runtime's own that arrays are copied into, or the caller's arrays bound where they lie."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def opened(op: str, count: int) -> Any:
        return ort.InferenceSession(_model(op, count, folder), options, providers=["CPUExecutionProvider"])

    def fixed(wide: int) -> Any:
        return ort.OrtValue.ortvalue_from_shape_and_type([1, wide], np.float32, "cpu")

    for size, count in INPUTS.items():
        session, array, held, out = opened("Slice", count), aligned(count), fixed(count), fixed(1)
        copying, sharing = session.io_binding(), session.io_binding()
        copying.bind_ortvalue_input("x", held)
        for binding in (copying, sharing):
            binding.bind_ortvalue_output("y", out)

        def copied(_: int, a: Any = array, s: Any = session, b: Any = copying, v: Any = held, o: Any = out) -> Any:
            v.update_inplace(a)
            s.run_with_iobinding(b)
            return o.numpy().copy()

        def bound(_: int, a: Any = array, s: Any = session, b: Any = sharing, o: Any = out) -> Any:
            b.bind_cpu_input("x", a)
            s.run_with_iobinding(b)
            return o.numpy().copy()

        def plain(_: int, a: Any = array, s: Any = session) -> Any:
            return s.run(None, {"x": a})[0]

        yield Case(
            name=f"ONNX Runtime, input of {size}", ways={"copied": copied, "bound as it is": bound, "run()": plain}
        )
    for size, count in OUTPUTS.items():
        session, array, out = opened("Sin", count), aligned(count), fixed(count)
        to_fixed, to_new = session.io_binding(), session.io_binding()
        to_fixed.bind_ortvalue_output("y", out)
        to_new.bind_output("y", "cpu")
        for binding in (to_fixed, to_new):
            binding.bind_cpu_input("x", array)

        def from_fixed(_: int, s: Any = session, b: Any = to_fixed, o: Any = out) -> Any:
            s.run_with_iobinding(b)
            return o.numpy().copy()

        def handed(_: int, s: Any = session, b: Any = to_new) -> Any:
            b.bind_output("y", "cpu")
            s.run_with_iobinding(b)
            return b.get_outputs()[0].numpy()

        yield Case(name=f"ONNX Runtime, output of {size}", ways={"copied": from_fixed, "handed out": handed})


def openvino_cases(folder: Path) -> Iterator[Case]:
    """A request's own tensors that arrays are copied into, or tensors that are the caller's arrays."""
    from shootout.backends._openvino.library import import_openvino  # which keeps its telemetry from starting

    openvino = import_openvino()
    core = openvino.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1}

    def opened(op: str, count: int) -> Any:
        return core.compile_model(core.read_model(_model(op, count, folder)), "CPU", settings)

    for size, count in INPUTS.items():
        model, array = opened("Slice", count), aligned(count)
        own, shared = model.create_infer_request(), model.create_infer_request()
        inside = own.get_input_tensor().data

        def copied(_: int, a: Any = array, r: Any = own, t: Any = inside) -> Any:
            np.copyto(t, a)
            r.infer(share_outputs=True)
            return r.get_output_tensor().data.copy()

        def given(_: int, a: Any = array, r: Any = shared) -> Any:
            r.set_input_tensor(openvino.Tensor(a, shared_memory=True))
            r.infer(share_outputs=True)
            return r.get_output_tensor().data.copy()

        yield Case(name=f"OpenVINO, input of {size}", ways={"copied": copied, "set as the tensor": given})
    for size, count in OUTPUTS.items():
        model, array = opened("Sin", count), aligned(count)
        own, anew = model.create_infer_request(), model.create_infer_request()
        for request in (own, anew):
            request.set_input_tensor(openvino.Tensor(array, shared_memory=True))

        def from_own(_: int, r: Any = own) -> Any:
            r.infer(share_outputs=True)
            return r.get_output_tensor().data.copy()

        def handed(_: int, r: Any = anew, shape: Any = array.shape) -> Any:
            out = np.empty(shape, np.float32)
            r.set_output_tensor(openvino.Tensor(out, shared_memory=True))
            r.infer(share_outputs=True)
            return out

        yield Case(name=f"OpenVINO, output of {size}", ways={"copied": from_own, "handed out": handed})


def int4_cases(folder: Path) -> Iterator[Case]:
    """One product in FP32 and in each form of few bits, through the adapters, end to end."""
    jobs = pickle.loads((folder / JOBS).read_bytes())
    for name, arms in jobs.items():
        sessions = {way: backends.get(built.arm.target.backend).load(built) for way, built in arms.items()}
        buffers = {way: built.exported.input_buffers()[0] for way, built in arms.items()}
        yield Case(
            name=name,
            ways={way: _end_to_end(session, buffers[way]) for way, session in sessions.items()},
            apart=INT4_APART,
        )


def _end_to_end(session: Any, given: Any) -> Callable[[int], Any]:
    def call(_: int) -> Any:
        raw = session.execute(session.stage(given, 0))
        session.synchronize()
        return next(iter(session.fetch(raw).values()))

    return call


def cases(folder: Path) -> Iterator[Case]:
    """Copies first: the products' weights would lie in the caches."""
    yield from onnxruntime_cases(folder)
    yield from openvino_cases(folder)
    yield from int4_cases(folder)
