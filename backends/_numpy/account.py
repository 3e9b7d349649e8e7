"""Count what one run of an ONNX file in NumPy computes, and time each operation of a model.

An evaluated graph is counted by the dtypes of its nodes. NumPy has no profiler: arrays that time their operations stand
in for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from shootout.backends.common import precision_of
from shootout.backends.common_numpy import Product
from shootout.core.adapter import Event
from shootout.core.clock import now_ns
from shootout.core.contract import Array, Arrays
from shootout.models.onnx.operations import is_product


def nodes_of(evaluator: Any, inputs: Arrays) -> list[Product]:
    """Return the products, by the dtype of their result, of one run of an `onnx.reference.ReferenceEvaluator`."""
    results = evaluator.run(None, dict(inputs), intermediate=True)
    nodes = [node for node in evaluator.proto_.graph.node if is_product(node.op_type)]
    return [(precision_of(str(results[node.output[0]].dtype)), _node_flops(node, results)) for node in nodes]


class TimedArray(np.ndarray[Any, Any]):
    """An array that records the time of each of its operations; so do the arrays made from it."""

    events: ClassVar[list[Event]] = []

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            kwargs["out"] = tuple(_as_plain(array) for array in out)
        plain = [_as_plain(value) for value in inputs]
        return self._time_operation(ufunc.__name__, lambda: getattr(ufunc, method)(*plain, **kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        plain = [
            [_as_plain(one) for one in value] if isinstance(value, list | tuple) else _as_plain(value) for value in args
        ]
        return self._time_operation(func.__name__, lambda: func(*plain, **kwargs))

    def _time_operation(self, name: str, operation: Callable[[], Any]) -> Any:
        began = now_ns()
        result = operation()
        spent = {"ts": began / 1e3, "dur": (now_ns() - began) / 1e3}
        self.events.append({"name": name, "ph": "X", "pid": 0, "tid": 0, **spent})
        return _as_timed(result)


def profile_operations(run: Callable[[Arrays], Any], inputs: Arrays, calls: int) -> list[Event]:
    """Return the operations of `calls` calls of `run`, a function written with NumPy calls."""
    timed = {name: array.view(TimedArray) for name, array in inputs.items()}
    run(timed)
    TimedArray.events.clear()
    for _ in range(calls):
        run(timed)
    return list(TimedArray.events)


def corrected_operators() -> list[type]:
    """Return operators that `onnx.reference` gets wrong, for its `new_ops`. Imports onnx."""
    from onnx.reference.ops import op_conv_transpose

    class ConvTranspose(op_conv_transpose.ConvTranspose):
        """Compute a transposed convolution group by group.

        onnx 1.23 gives each group the whole bias and one output channel: most shapes fail, and the others are wrong.
        """

        op_domain = ""

        def _run(self, *operands: Any, **attributes: Any) -> tuple[Array]:
            count = attributes.pop("group", None) or 1
            image, kernels, bias = operands if len(operands) == 3 else (*operands, None)
            biases = [None] * count if bias is None else np.split(bias, count)
            parts = zip(np.split(image, count, axis=1), np.split(kernels, count), biases, strict=True)
            run: Any = super()._run
            found = [run(*part, group=1, **attributes)[0] for part in parts]
            return (np.concatenate(found, axis=1),)

    return [ConvTranspose]


def _node_flops(node: Any, results: Mapping[str, Array]) -> float | None:
    from shootout.models.onnx.onnx_graph import node_flops

    shapes = [np.shape(results[name]) if name else () for name in node.input]
    return node_flops(node, shapes, np.shape(results[node.output[0]]))


def _as_timed(value: Any) -> Any:
    if type(value) in (list, tuple):  # as np.split gives them
        return type(value)(map(_as_timed, value))
    return value.view(TimedArray) if isinstance(value, np.ndarray) else value


def _as_plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, TimedArray) else value
