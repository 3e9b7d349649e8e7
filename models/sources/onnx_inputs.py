"""Decide how each input of an ONNX file is drawn: a picture, tokens, a mask, rows for trees, or plain numbers.

The graph decides only where other numbers would be invalid: rows of a stored table, thresholds of trees. All else goes
by shape, type and name; real inputs can be given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from onnx import ModelProto

from shootout.core.contract import Array, TensorSpec
from shootout.models import drawing
from shootout.models.drawing import InputWay
from shootout.models.onnx.onnx_files import every_node, inline_functions

MOVES = frozenset(("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Slice", "Concat"))
"""Operators that may stand between an input and the table that it is an index of."""
STORED = frozenset(("Cast", "DequantizeLinear", "Identity", "Mul"))
"""Operators that may stand between a table as it is stored and as it is read."""
TABLE_OF = {"Gather": {1: 0}, "EmbedLayerNormalization": {0: 2, 1: 4}}
"""By operator: the input with the row numbers, and the input that is the table."""
BYTE, FEW_PIXELS = 255, 8


def ways(model: ModelProto, specs: Sequence[TensorSpec], states: Collection[str] = ()) -> dict[str, InputWay]:
    """Decide how to draw each input.

    Args:
        model: with or without its weights.
        specs: its inputs at the sizes that they will have.
        states: those that calls of a stream hand on, which begin as zeros.
    """
    flat = ModelProto()
    flat.CopyFrom(model)
    inline_functions(flat)
    tables, thresholds = _count_rows(flat), _find_thresholds(flat)
    begun = drawing.constant(0, "zeros, a state at its start")
    found = {
        spec.name: begun if spec.name in states else _choose_way(spec, tables.get(spec.name), thresholds.get(spec.name))
        for spec in specs
    }
    if any(way.varies for way in found.values()) or len(states) == len(specs):
        return found
    others = [spec for spec in specs if spec.name not in states]
    first = next((spec for spec in others if spec.dtype.startswith("float")), others[0])
    return {**found, first.name: drawing.usual(first)}  # a call must not be the same each time


def notes(found: Mapping[str, InputWay]) -> tuple[str, ...]:
    """Return the notes on a row's drawn inputs."""
    return (f"inputs are drawn: {'; '.join(f'{name}: {way.told}' for name, way in found.items())}",)


def _choose_way(spec: TensorSpec, rows: int | None, thresholds: Mapping[int, Array] | None) -> InputWay:
    kind, is_lone = np.dtype(spec.dtype).kind, spec.shape in ((), (1,))
    if rows:
        return drawing.below(rows)
    if thresholds and len(spec.shape) == 2:
        return drawing.between_thresholds(thresholds)
    if (channels := _channel_axis(spec)) is not None:
        return drawing.picture(BYTE if spec.dtype == "uint8" else 1, channels)
    if "mask" in spec.name.lower() or (kind == "b" and not is_lone):
        return drawing.mask()
    if kind == "b":
        return drawing.constant(0, "false")
    if kind in "iu" and len(spec.shape) < 2:  # such as a length, a count or a rate
        return drawing.constant(1)
    return drawing.usual(spec)


def _channel_axis(spec: TensorSpec) -> int | None:
    """Return the axis of the colors of pictures and films, if there are one or three and both sides are long enough."""
    rank = len(spec.shape)
    if np.dtype(spec.dtype).kind not in "fu" or (rank not in (4, 5) and not (rank == 3 and spec.dtype == "uint8")):
        return None
    for at in (int(rank > 3), rank - 1):
        sides = [size for axis, size in enumerate(spec.shape) if axis != at][-2:]
        if spec.shape[at] in (1, 3) and min(sides) >= FEW_PIXELS:
            return at
    return None


def _count_rows(model: ModelProto) -> dict[str, int]:
    """Return the rows of the smallest stored table that each input is an index of."""
    origins = {info.name: info.name for info in model.graph.input}
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    found: dict[str, int] = {}
    for node in every_node(model):
        for at, table in TABLE_OF.get(node.op_type, {}).items():
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            names = [*node.input, "", "", "", "", ""]
            origin, shape = origins.get(names[at]), dims.get(names[table])
            if origin and shape:
                found[origin] = min(found.get(origin, shape[axis]), shape[axis])
        first = next(iter(node.input), "")
        if node.op_type in MOVES and first in origins:
            origins |= dict.fromkeys(node.output, origins[first])
        if node.op_type in STORED and first in dims:
            dims |= dict.fromkeys(node.output, dims[first])
    return found


def _find_thresholds(model: ModelProto) -> dict[str, dict[int, Array]]:
    """Return the thresholds of each feature, by the input that ensembles of trees read as it is."""
    found: dict[str, dict[int, list[float]]] = {}
    for node in model.graph.node:
        told = {one.name: one for one in node.attribute}
        if not node.op_type.startswith("TreeEnsemble") or not {"nodes_modes", "nodes_values"} <= told.keys():
            continue
        nodes = (told["nodes_featureids"].ints, told["nodes_values"].floats, told["nodes_modes"].strings)
        for feature, value, mode in zip(*nodes, strict=True):
            if mode != b"LEAF":
                found.setdefault(node.input[0], {}).setdefault(feature, []).append(value)
    return {name: {at: np.unique(np.asarray(some)) for at, some in one.items()} for name, one in found.items()}
