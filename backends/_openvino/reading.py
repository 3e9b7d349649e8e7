"""An ONNX file as OpenVINO reads it, less one refusal that says nothing about the model.

ONNX asks of a branch's condition that it has one element, OpenVINO that it has one axis at most: PyTorch exports
`if probability > 0.5` with as many axes as the probability has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._openvino.library import import_openvino

if TYPE_CHECKING:
    from onnx import GraphProto

_RANK = "if_condition_rank"
"""Part of the check that refuses such a condition, as its error quotes it."""


def read_file(path: Path, place: Path) -> Any:
    """OpenVINO's model of an ONNX file.

    Args:
        place: for a file that is rewritten, while it is read.

    Raises:
        RuntimeError: OpenVINO can't read the file; in its words.
    """
    core = import_openvino().Core()
    try:
        return core.read_model(path)
    except RuntimeError as error:
        if _RANK not in str(error):
            raise
    from shootout.exported import onnx_files

    model = onnx_files.load(path)
    _flatten_conditions(model.graph)
    rewritten = place / "flattened.onnx"
    onnx_files.save(model, rewritten)
    try:
        return core.read_model(rewritten)
    finally:
        for file in place.glob(f"{rewritten.name}*"):
            file.unlink()


def _flatten_conditions(graph: GraphProto) -> None:
    """Give the condition of each branch, in branches too, one axis."""
    from onnx import helper, numpy_helper

    nodes = []
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _flatten_conditions(attribute.g)
        if node.op_type == "If":
            shape, flat = (f"{node.input[0]}_{index}_{what}" for what in ("shape", "flat"))
            graph.initializer.append(numpy_helper.from_array(np.array([1]), shape))
            nodes.append(helper.make_node("Reshape", [node.input[0], shape], [flat]))
            node.input[0] = flat
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
