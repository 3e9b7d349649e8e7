"""Square matrix products as each installed library makes them best: whoever is fastest sets a precision's peak rate.

Imported in the measuring process; each library comes in with its own function. A product of size n is 2·n³ operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.contract import Precision
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    import torch

Run = Callable[[], object]
"""One product; its result is there on return."""
Make = Callable[[int], Run]
"""A product of the size given, its operands ready."""
STEP = 0.01
"""Of the grid that OpenVINO's operands are rounded to; any will do."""


def numpy_products(threads: int) -> Mapping[Precision, Make]:  # noqa: ARG001 - its BLAS reads a variable
    """NumPy's BLAS; it has no other precision that is worth asking."""

    def make(size: int) -> Run:
        left, right = (np.ones((size, size), np.float32) for _ in range(2))
        result = np.empty_like(left)
        return lambda: np.matmul(left, right, out=result)

    return {Precision.FP32: make}


def torch_products(threads: int) -> Mapping[Precision, Make]:
    """PyTorch's, so MKL's and oneDNN's; without hardware for it a narrow precision is slow, but true."""
    import torch

    torch.set_num_threads(threads)

    def floating(dtype: torch.dtype) -> Make:
        def make(size: int) -> Run:
            left, right = (torch.ones((size, size), dtype=dtype) for _ in range(2))
            result = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=result)

        return make

    def eight_bit(size: int) -> Run:
        left, right = (torch.ones((size, size), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right.t())

    floats = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
    return {**{name: floating(dtype) for name, dtype in floats.items()}, Precision.INT8: eight_bit}


def onnxruntime_products(threads: int) -> Mapping[Precision, Make]:
    """ONNX Runtime's own kernels (MLAS), operands of unsigned by signed bytes among them."""
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    def product(operator: str, left: type[np.generic], right: type[np.generic], result: int) -> Make:
        def make(size: int) -> Run:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(left))
            x = helper.make_tensor_value_info("x", kind, [size, size])
            y = helper.make_tensor_value_info("y", result, [size, size])
            weight = numpy_helper.from_array(np.ones((size, size), right), "w")
            graph = helper.make_graph([helper.make_node(operator, ["x", "w"], ["y"])], "product", [x], [y], [weight])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            fed = {"x": np.ones((size, size), left)}
            return lambda: session.run(None, fed)

        return make

    return {
        Precision.FP32: product("MatMul", np.float32, np.float32, TensorProto.FLOAT),
        Precision.INT8: product("MatMulInteger", np.uint8, np.int8, TensorProto.INT32),
    }


def openvino_products(threads: int) -> Mapping[Precision, Make]:
    """OpenVINO's; operands come and go in float32, as they do in models, so a narrow precision includes rounding them.

    One that this CPU lacks, or that OpenVINO would replace by another one, is left out.
    """
    from shootout.backends._openvino.graph import require_precision

    found: dict[Precision, Make] = {}
    for precision in (Precision.FP32, Precision.BF16, Precision.INT8):
        try:
            require_precision(precision)
        except SkippedArm:
            continue
        found[precision] = _openvino_product(precision, threads)
    return found


def _openvino_product(precision: Precision, threads: int) -> Make:
    def make(size: int) -> Run:
        from shootout.backends._openvino.graph import DEVICE, HINTS, import_openvino

        openvino = import_openvino()
        properties = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "NUM_STREAMS": 1,
        }
        model = _openvino_model(openvino, size, in_bytes=precision is Precision.INT8)
        request = openvino.Core().compile_model(model, DEVICE, properties).create_infer_request()
        request.get_input_tensor().data[:] = 1
        return lambda: request.infer(share_outputs=True)

    return make


def _openvino_model(openvino: Any, size: int, *, in_bytes: bool) -> Any:
    from openvino import opset13 as op

    x = op.parameter([size, size], np.float32)
    weight = op.constant(np.ones((size, size), np.int8 if in_bytes else np.float32))
    if not in_bytes:
        return openvino.Model([op.matmul(x, weight, False, True)], [x], "product")
    low, high = (op.constant(np.float32(STEP * end)) for end in (-128, 127))
    rounded = op.fake_quantize(x, low, high, low, high, 256)
    scaled = op.multiply(op.convert(weight, "f32"), op.constant(np.float32(STEP)))
    return openvino.Model([op.matmul(rounded, scaled, False, True)], [x], "product")


SOURCES: Mapping[str, Callable[[int], Mapping[Precision, Make]]] = {
    "numpy": numpy_products,
    "torch": torch_products,
    "onnxruntime": onnxruntime_products,
    "openvino": openvino_products,
}
"""By the name of the package that must be there."""
