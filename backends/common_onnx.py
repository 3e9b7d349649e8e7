"""A float32 ONNX model in half precision, for runtimes that take a graph's types as they are.

Which nodes can be narrowed, and where a cast is needed, is ONNX Runtime's converter's to say: it knows the operators
whose inputs must stay float32, and people ship what it makes. It only speaks float16; for bfloat16 its graph is
retyped, with the weights taken from the float32 file again so that they are rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.contract import SCALED, Array, Artifact, Precision
from shootout.core.errors import SkippedArm
from shootout.core.schemes import Scheme

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

    from shootout.core.exported.model import ExportedModel
    from shootout.models.onnx.layers import Layer

NARROWED = (Precision.FP16, Precision.BF16)
"""The precisions this module can make."""
HALF_SCALES_OPSET = 21
"""ONNX has quantizers of half floats from 19 on; from 21 on also blocks and 4 bits."""


def write_half(source: Path, precision: Precision, folder: Path) -> Path:
    """Write `source` with every operator that allows it in `precision`; inputs and outputs keep their types.

    Args:
        source: a float32 ONNX file, also one with Q/DQ pairs, whose scales are narrowed too; a weight beyond float16's
            range becomes its largest number, as the converter does.
        precision: one of NARROWED.
        folder: where the new file and its weights go; must be empty.

    Returns:
        The new file.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    from shootout.models.onnx.onnx_files import save

    whole = onnx.load(source)
    if any(node.op_type == "DequantizeLinear" for node in whole.graph.node):
        whole = at_newer_opset(whole)
    _lift_constants(whole.graph)
    passed = take_passed_on(whole.graph)
    wide = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in _float_initializers(whole.graph)}
    save(whole, folder / "wide.onnx")
    # By its path, so that types can be inferred in models of any size; the converter writes beside the file.
    half = convert_float_to_float16(str(folder / "wide.onnx"), keep_io_types=True)
    if precision is Precision.BF16:
        _retype_to_bfloat16(half, wide)
    _drop_repeated_casts(half.graph)
    OnnxModel.graph_topological_sort(half.graph)  # the converter leaves its casts at the end
    put_back(half.graph, passed)
    save(half, folder / "half.onnx")
    return folder / "half.onnx"


def take_passed_on(graph: GraphProto) -> list[tuple[int, ValueInfoProto]]:
    """Take the outputs that are inputs out of a graph, since converters rename one of the two; return their places.

    A graph that returns nothing else keeps them.
    """
    given = {info.name for info in graph.input}
    passed = [(at, info) for at, info in enumerate(graph.output) if info.name in given]
    if len(passed) == len(graph.output):
        return []
    for at, _ in reversed(passed):
        del graph.output[at]
    return passed


def put_back(graph: GraphProto, passed: Sequence[tuple[int, ValueInfoProto]]) -> None:
    """Return to a graph the outputs that `take_passed_on` took."""
    outputs = [*graph.output]
    for at, info in passed:
        outputs.insert(at, info)
    if passed:
        del graph.output[:]
        graph.output.extend(outputs)


def _drop_repeated_casts(graph: GraphProto) -> None:
    """Keep one of the casts that the converter adds for each operator which reads the same scales in float32."""
    seen: set[str] = set()
    for node in list(graph.node):
        if node.op_type == "Cast" and node.output[0] in seen:
            graph.node.remove(node)
        seen |= set(node.output)


def layers_in(exported: ExportedModel) -> tuple[Layer, ...]:
    """Return a model's layers, which a scheme names by their numbers.

    Raises:
        SkippedArm: it has no ONNX file here, whose order gives the numbers; such as the torch module of a user's file.
    """
    import onnx

    from shootout.models.onnx.layers import layers_of

    if Artifact.ONNX not in exported.artifacts and not exported.unmade:
        reason = "float-… numbers the layers of the ONNX file, and this backend runs a torch program made from the file"
        raise SkippedArm(reason, "name onnxruntime or openvino for that, or leave the word float-… out")
    if Artifact.ONNX not in exported.artifacts or not exported.path(Artifact.ONNX).exists():
        reason = f"layers have the numbers of the ONNX file's, and there is none here: {exported.unmade or 'not sent'}"
        raise SkippedArm(reason, "leave the word float-… out, or change the module so that torch can export it")
    return layers_of(onnx.load(exported.path(Artifact.ONNX), load_external_data=False))


def notes_on_floats(exported: ExportedModel, scheme: Scheme) -> list[str]:
    """Return the row's line on the layers that a vendor's quantizer left in float; none if the scheme names none."""
    if not scheme.floats or scheme.is_quantized:
        return []
    from shootout.models.onnx.layers import note_floats, pick_layers

    return [note_floats(pick_layers(layers_in(exported), scheme.floats))]


def rest_note(rest: Precision) -> str:
    """Return the row's line on what an INT8 model computes in if something isn't quantized."""
    return f"what isn't quantized computes in {rest} (the scheme's words rest-fp16 and rest-fp32 settle it)"


def at_newer_opset(model: ModelProto) -> ModelProto:
    """Return the model at HALF_SCALES_OPSET at least."""
    from onnx import version_converter

    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    return version_converter.convert_version(model, HALF_SCALES_OPSET) if opset < HALF_SCALES_OPSET else model


def _lift_constants(graph: GraphProto) -> None:
    """Make initializers of the float constants, which then are rounded like every other weight."""
    from onnx import TensorProto

    for node in list(graph.node):
        tensor = next((part.t for part in node.attribute if part.name == "value"), None)
        if node.op_type == "Constant" and tensor is not None and tensor.data_type == TensorProto.FLOAT:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = node.output[0]
            graph.node.remove(node)


def _float_initializers(graph: GraphProto) -> Iterator[Any]:
    from onnx import TensorProto

    return (tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT)


def _retype_to_bfloat16(model: ModelProto, wide: Mapping[str, Array]) -> None:
    """Turn the converter's float16 into bfloat16, wherever a type is written down."""
    from ml_dtypes import bfloat16
    from onnx import TensorProto, numpy_helper

    from shootout.models.onnx.onnx_files import graphs_inside

    for graph in (model.graph, *graphs_inside(model.graph.node)):
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == TensorProto.FLOAT16:
                info.type.tensor_type.elem_type = TensorProto.BFLOAT16
        for tensor in (*graph.initializer, *_constants_in(graph)):
            if tensor.data_type == TensorProto.FLOAT16:
                values = wide.get(tensor.name, numpy_helper.to_array(tensor))
                tensor.ClearField("int32_data")
                tensor.data_type, tensor.raw_data = TensorProto.BFLOAT16, values.astype(bfloat16).tobytes()
        for node in graph.node:
            _retype_attributes(node)


def _retype_attributes(node: NodeProto) -> None:
    from onnx import TensorProto

    for part in node.attribute:
        if part.name in ("to", "dtype") and part.i == TensorProto.FLOAT16:
            part.i = TensorProto.BFLOAT16


def _constants_in(graph: GraphProto) -> Iterator[Any]:
    return (part.t for node in graph.node for part in node.attribute if part.HasField("t"))


def name_owners(exported: ExportedModel, precision: Precision) -> dict[str, str]:
    """Return the layers' names by those of the values, nodes and weights of the model's graph that belong to them.

    In a precision that leaves nothing in float beside integers, no name is needed.
    """
    import onnx

    from shootout.models.onnx.layers import find_owners, layers_of

    if precision not in (*SCALED, Precision.NATIVE) or Artifact.ONNX not in exported.artifacts:
        return {}
    model = onnx.load(exported.path(Artifact.ONNX), load_external_data=False)
    layers = layers_of(model)
    return {name: layers[number].name for name, number in find_owners(model, layers).items()} if layers else {}
