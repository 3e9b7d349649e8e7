"""The one quantized model that all runtimes share, written so that ONNX Runtime's INT8 kernels for CPUs take it.

It has Q/DQ pairs on what products read and none behind them, its activations are S8 around 0, its biases float. These
rewrites make the kernels fuse:

- a pair goes behind each convolution, and behind each product that a Relu or Clip follows (behind that one): ONNX
  Runtime has no INT8 convolution with a float result, and would fuse the Relu into a float product. Their scales are
  those of the file's own calibration;
- a sum or product with such a result gets pairs on its other operand and behind it, or it would be float between two
  conversions;
- on x86 activations become U8 around 128 (ARM's kernels want them signed); behind a Relu all steps are above 0, so that
  the pair takes the Relu's place. Steps are as wide as before, and weights stay S8. Without VNNI an x86 CPU clips
  the sum of two products of U8 and S8; for it the file's weights have 7 bits from the start, and nothing is clipped;
- biases become INT32 at the scale of their products. That rounds them to less than 1/127 of an activation's step times
  a weight's. ONNX Runtime's optimizer does it too, but along with it rounds layers that were left in float.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.backends._onnxruntime.account import ROUNDS_FLOATS
from shootout.backends.common import prefers_signed
from shootout.core.contract import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

HARMFUL = f"MatMulAddFusion;{ROUNDS_FLOATS}"
"""Optimizations to leave out. The first makes a Gemm with a float bias, which stays float, of a product that would have
run in INT8, and fails on a file that it has already been applied to (ONNX Runtime 1.31: "replace the existing tensor").
"""
ADDED = "values rounded beside those of the shared file, since ONNX Runtime's INT8 kernels need it: {}"
"""The note of a row whose model isn't quite the one that other runtimes run."""
AROUND, FROM_0 = "activations_zero_point", "positive_activations_zero_point"
PRODUCTS, SUMS, CUTS = ("Conv", "Gemm", "MatMul"), ("Add", "Mul"), ("Relu", "Clip")
MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity")
"""Operators behind which a value is as positive as before."""
ROUND, WIDEN = "QuantizeLinear", "DequantizeLinear"
WIDEST = 2.0**31


def recode(source: Path, folder: Path) -> tuple[Path, int]:
    """Write the model at `source` into `folder` as described above.

    Returns:
        The file, and how many values it rounds that the one at `source` doesn't.

    Raises:
        ValueError: it is no symmetric S8 model: an activation has another zero point, or none is quantized.
    """
    import onnx

    from shootout.quantize.qdq import scales_of

    model, target = onnx.load(source), folder / "recoded.onnx"
    graph = Recoded(model, source.name, scales_of(model))
    graph.require_symmetry()
    graph.pair_behind_products()
    graph.pair_around_sums()
    graph.recode_activations()
    graph.quantize_biases()
    graph.write(target)
    return target, graph.added


class Recoded:
    """A Q/DQ model that is being rewritten.

    Args:
        model: changed in place.
        name: for messages.
        scales: of activations that have no pair yet.

    Attributes:
        added: pairs that the model didn't have.
    """

    def __init__(self, model: ModelProto, name: str, scales: Mapping[str, float]) -> None:
        self._model, self._name, self._scales = model, name, scales
        self.added = 0
        self._nodes = list(model.graph.node)
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._outputs = {info.name for info in model.graph.output}
        self._maker = {output: node for node in self._nodes for output in node.output}
        self._readers: dict[str, list[NodeProto]] = defaultdict(list)
        for node in self._nodes:
            for name in node.input:
                self._readers[name].append(node)

    def require_symmetry(self) -> None:
        """Refuse what isn't S8 around 0."""
        pairs = self._activation_pairs()
        if not pairs:
            raise ValueError(f"{self._name} is not a quantized model: none of its activations has a Q/DQ pair")
        for node in pairs:
            zero = self._stored_value(node.input[2]) if len(node.input) > 2 else None
            if zero is None or zero.dtype != np.int8 or zero.any():
                raise ValueError(f"{self._name}: {node.op_type} {node.name!r} is not symmetric S8")

    def pair_behind_products(self) -> None:
        """Put a pair behind each quantized convolution, and behind the Relu or Clip of a quantized product."""
        for node in [node for node in self._nodes if node.op_type in PRODUCTS and self._is_quantized(node)]:
            value = self._skip_activation(node.output[0])
            if node.op_type == "Conv" or value != node.output[0]:
                self._round_value(value)

    def pair_around_sums(self) -> None:
        """Put pairs on and behind each sum of two activations of which one is a rounded result."""
        for node in [node for node in self._nodes if node.op_type in SUMS]:
            values = [self._value_before_pair(name) for name in node.input]
            if any(map(self._is_result, values)) and all(value in self._scales for value in values):
                for value in (*values, self._skip_activation(node.output[0])):
                    self._round_value(value)

    def recode_activations(self) -> None:
        """Turn S8 around 0 into U8 around 128, except on ARM; if nothing is below 0, all steps go above it."""
        for node in self._activation_pairs():
            narrow = node if node.op_type == ROUND else self._maker[node.input[0]]
            node.input[2] = FROM_0 if self._is_positive(narrow.input[0]) else AROUND
        middle, least = (np.int8(0), np.int8(-128)) if prefers_signed() else (np.uint8(128), np.uint8(0))
        self._store_array(AROUND, np.array(middle))
        self._store_array(FROM_0, np.array(least))

    def quantize_biases(self) -> None:
        """Quantize the biases of products with quantized operands; one that INT32 can't hold stays float, and its
        product with it.
        """
        from onnx import helper

        for node in [node for node in self._nodes if node.op_type in PRODUCTS and len(node.input) > 2]:
            scales = [self._scale_of(name) for name in node.input[:2]]
            bias = self._stored_value(node.input[2])
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
                self._store_array(f"{name}_{part}", array)
            inputs = [f"{name}_{part}" for part in parts]
            self._nodes.insert(0, helper.make_node("DequantizeLinear", inputs, [name], name, axis=0))

    def write(self, target: Path) -> None:
        """Write the rewritten model; stated types of what is U8 now are left to be inferred."""
        from onnxruntime.transformers.onnx_model import OnnxModel

        from shootout.models.onnx import onnx_files

        graph = self._model.graph
        del graph.node[:], graph.value_info[:]
        graph.node.extend(self._nodes)
        OnnxModel.graph_topological_sort(graph)
        onnx_files.save(self._model, target)

    def _activation_pairs(self) -> list[NodeProto]:
        """List both halves of the activations' pairs, without the DequantizeLinear of stored weights."""
        kinds = (ROUND, WIDEN)
        return [node for node in self._nodes if node.op_type in kinds and node.input[0] not in self._stored]

    def _round_value(self, value: str) -> None:
        """Let all that read a value read it rounded, unless it is an output of the graph or has no known scale."""
        from onnx import helper

        readers = self._readers[value]
        narrow = next((node for node in readers if node.op_type == ROUND), None)
        if value in self._outputs or (narrow is None and value not in self._scales):
            return
        if narrow is None:
            scale, zero = f"{value}_own_scale", f"{value}_own_zero"
            self._store_array(scale, np.array(self._scales[value], np.float32))
            self._store_array(zero, np.array(0, np.int8))
            names = [f"{value}_own_q", f"{value}_own_dq"]
            narrow = helper.make_node(ROUND, [value, scale, zero], names[:1], names[0])
            widen = helper.make_node(WIDEN, [names[0], scale, zero], names[1:], names[1])
            self._nodes += [narrow, widen]
            self._maker |= {names[0]: narrow, names[1]: widen}
            self._readers[names[0]] = [widen]
            self.added += 1
        rounded = self._readers[narrow.output[0]][0].output[0]
        others = [node for node in readers if node is not narrow]
        for node in others:
            node.input[:] = [rounded if name == value else name for name in node.input]
        self._readers[value] = [narrow]
        self._readers[rounded] += others

    def _value_before_pair(self, name: str) -> str:
        """Return the value that was rounded into this one."""
        maker = self._maker.get(name)
        if maker is None or maker.op_type != WIDEN or maker.input[0] in self._stored:
            return name
        return str(self._maker[maker.input[0]].input[0])

    def _is_result(self, value: str) -> bool:
        """Return whether a value is a product's, past its Relu or Clip, and has a pair behind it."""
        if all(node.op_type != ROUND for node in self._readers[value]):
            return False
        maker = self._maker.get(value)
        while maker is not None and maker.op_type in CUTS:
            maker = self._maker.get(maker.input[0])
        return maker is not None and maker.op_type in PRODUCTS

    def _is_quantized(self, product: NodeProto) -> bool:
        makers = [self._maker.get(name) for name in product.input[:2]]
        return all(maker is not None and maker.op_type == WIDEN for maker in makers)

    def _skip_activation(self, value: str) -> str:
        """Return what the Relu or Clip makes of a value if nothing else reads the value."""
        readers = self._readers[value]
        alone = len(readers) == 1 and readers[0].op_type in CUTS and value not in self._outputs
        return str(readers[0].output[0]) if alone else value

    def _is_positive(self, value: str) -> bool:
        maker = self._maker.get(value)
        while maker is not None and maker.op_type in MOVES:
            source = maker.input[0]
            maker = self._maker.get(self._value_before_pair(source))
        return maker is not None and maker.op_type == "Relu"

    def _scale_of(self, name: str) -> Array | None:
        """Return the scale of the DequantizeLinear that makes a value."""
        maker = self._maker.get(name)
        return self._stored_value(maker.input[1]) if maker is not None and maker.op_type == WIDEN else None

    def _stored_value(self, name: str) -> Array | None:
        from onnx import numpy_helper

        tensor = self._stored.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def _store_array(self, name: str, array: Array) -> None:
        from onnx import numpy_helper

        self._stored[name] = numpy_helper.from_array(array, name)
        self._model.graph.initializer.append(self._stored[name])
