"""The one quantized model that all runtimes share, written so that ONNX Runtime's INT8 kernels on x86 take it.

Its activations are S8 around 0, its biases float, and matrix products have no Q/DQ pair behind them. Three rewrites
make the kernels fuse, and keep every activation's real value:

- activations become U8 around 128; weights stay S8;
- where a Relu or Clip and then a pair follow a product, the same pair goes before it as well: both are monotone, so
  rounding before is rounding after, while ONNX Runtime leaves the product in float;
- a Gemm's bias becomes INT32 at the scale of its products. That rounds it, as ONNX Runtime does by itself to the bias
  of every convolution that it fuses, to less than 1/127 of an activation's step times a weight's.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.contract import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

HARMFUL = "MatMulAddFusion"
"""An optimisation to leave out: it makes a Gemm with a float bias, which stays float, of a product that would have run
in INT8, and fails on a file that it has already been applied to (ONNX Runtime 1.31: "replace the existing tensor").
"""
MIDDLE = 128
ZERO_POINT = "activations_zero_point"
PRODUCTS, CUTS = ("Gemm", "MatMul"), ("Relu", "Clip")
WIDEST = 2.0**31


def recode(source: Path, folder: Path) -> Path:
    """Write the model at `source` into `folder` as described above.

    Raises:
        ValueError: it is no symmetric S8 model: an activation has another zero point, or none is quantized.
    """
    import onnx

    model, target = onnx.load(source), folder / "recoded.onnx"
    graph = Recoded(model, source.name)
    graph.recode_activations()
    graph.pair_before_cuts()
    graph.quantize_biases()
    graph.write(target)
    return target


class Recoded:
    """A Q/DQ model that is being rewritten.

    Args:
        model: changed in place.
        name: for messages.
    """

    def __init__(self, model: ModelProto, name: str) -> None:
        self._model, self._name = model, name
        self._nodes = list(model.graph.node)
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._maker = {output: node for node in self._nodes for output in node.output}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self._nodes:
            for name in node.input:
                self._readers[name].append(node)

    def recode_activations(self) -> None:
        """S8 around 0 becomes U8 around 128."""
        pairs = [node for node in self._nodes if self._is_half_of_pair(node)]
        if not pairs:
            raise ValueError(f"{self._name} is no quantized model: none of its activations has a Q/DQ pair")
        for node in pairs:
            zero = self._value(node.input[2]) if len(node.input) > 2 else None
            if zero is None or zero.dtype != np.int8 or zero.any():
                raise ValueError(f"{self._name}: {node.op_type} {node.name!r} is not symmetric S8")
            node.input[2] = ZERO_POINT
        self._store(ZERO_POINT, np.array(MIDDLE, np.uint8))

    def pair_before_cuts(self) -> None:
        """The pair behind a product's Relu or Clip goes before it too."""
        from onnx import helper

        for node in [node for node in self._nodes if node.op_type in PRODUCTS]:
            quantize = self._pair_behind_cut(node)
            if quantize is not None:
                cut, name = node.output[0], f"{node.output[0]}_uncut"
                node.output[0] = name
                before = [
                    helper.make_node("QuantizeLinear", [name, *quantize.input[1:]], [f"{name}_q"], f"{name}_q"),
                    helper.make_node("DequantizeLinear", [f"{name}_q", *quantize.input[1:]], [cut], f"{name}_dq"),
                ]
                place = self._nodes.index(node) + 1
                self._nodes[place:place] = before

    def quantize_biases(self) -> None:
        """Those of Gemms between quantized operands; one that INT32 can't hold stays float, and its Gemm with it."""
        from onnx import helper

        for node in [node for node in self._nodes if node.op_type == "Gemm" and len(node.input) > 2]:
            scales = [self._scale(name) for name in node.input[:2]]
            bias = self._value(node.input[2])
            if bias is None or scales[0] is None or scales[1] is None:
                continue
            scale = np.broadcast_to(scales[0] * scales[1], bias.shape).astype(np.float32)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                steps = np.rint(bias / scale)
            if not (np.abs(steps) < WIDEST).all():
                continue
            name = node.input[2] = f"{node.output[0]}_bias"
            parts = {"steps": steps.astype(np.int32), "scale": scale, "zero": np.zeros(bias.shape, np.int32)}
            for part, array in parts.items():
                self._store(f"{name}_{part}", array)
            inputs = [f"{name}_{part}" for part in parts]
            self._nodes.insert(0, helper.make_node("DequantizeLinear", inputs, [name], name, axis=0))

    def write(self, target: Path) -> None:
        """The rewritten model; types that it states of what is U8 now are left to be inferred."""
        from shootout.bundle import onnx_files

        graph = self._model.graph
        del graph.node[:], graph.value_info[:]
        graph.node.extend(self._nodes)
        onnx_files.save(self._model, target)

    def _is_half_of_pair(self, node: NodeProto) -> bool:
        """The DequantizeLinear of a stored weight is none."""
        return node.op_type == "QuantizeLinear" or (
            node.op_type == "DequantizeLinear" and node.input[0] not in self._stored
        )

    def _pair_behind_cut(self, node: NodeProto) -> NodeProto | None:
        cuts = self._readers[node.output[0]]
        if len(cuts) != 1 or cuts[0].op_type not in CUTS:
            return None
        behind = self._readers[cuts[0].output[0]]
        return behind[0] if len(behind) == 1 and behind[0].op_type == "QuantizeLinear" else None

    def _scale(self, name: str) -> Array | None:
        """Of the DequantizeLinear that makes a value."""
        maker = self._maker.get(name)
        return self._value(maker.input[1]) if maker is not None and maker.op_type == "DequantizeLinear" else None

    def _value(self, name: str) -> Array | None:
        from onnx import numpy_helper

        tensor = self._stored.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def _store(self, name: str, array: Array) -> None:
        from onnx import numpy_helper

        self._model.graph.initializer.append(numpy_helper.from_array(array, name))
