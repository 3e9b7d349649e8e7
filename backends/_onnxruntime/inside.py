"""Read what ONNX Runtime computes between a model's layers, and what each node takes.

Tensors come from the graph as it was before ONNX Runtime optimized it, with outputs added and optimized again: the
graph that sessions run has layouts of its own and names that are made up. An added output is read where a fused kernel
hands on its result, behind a Relu and behind a Q/DQ pair, so that the kernels stay the same as far as can be. The times
are of the graph that sessions run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from shootout.backends._onnxruntime.account import MODEL, list_nodes, open_to_optimize
from shootout.backends._onnxruntime.quantize import is_own_static
from shootout.backends.common import lost_names
from shootout.backends.optional import Inside
from shootout.core.contract import Arrays

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from shootout.core.adapter import Built

READ = "/read"
"""The end of the name of an output that is added behind a pair."""
ROUND, WIDEN, CUTS = "QuantizeLinear", "DequantizeLinear", ("Relu", "Clip")


def look_inside(built: Built, source: Path, without: str, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
    """Run the input sets through the graph with outputs added, and profile the built one.

    Args:
        source: the graph before it is optimized.
        without: the optimizer that is left out.
    """
    from shootout.models.onnx import onnx_files

    model = onnx_files.load(source)
    outputs = [output.name for output in model.graph.output]
    shown = dict(_add_outputs(model, values))
    with TemporaryDirectory() as place:
        path = Path(place) / "shown.onnx"
        onnx_files.save(model, path)
        session = open_to_optimize(path, built.arm, without)
        wanted = [*outputs, *shown]
        calls = [dict(zip(wanted, session.run(wanted, dict(one)), strict=True)) for one in sets]
    return Inside(
        tensors={
            value: tuple(call[name] for call in calls)
            for name, value in shown.items()
            if getattr(calls[0][name], "dtype", np.dtype(bool)).kind == "f"  # a sequence has none
        },
        names="values",
        outputs=tuple({name: call[name] for name in outputs} for call in calls),
        nodes=tuple(list_nodes(built.folder / MODEL, built.arm, sets[0])),
        keeps_tails=is_own_static(built.arm),
    )


def _add_outputs(model: ModelProto, values: Collection[str]) -> Iterator[tuple[str, str]]:
    """Add an output for each value that the graph has, or for all if it lost their names; in the graph's order.

    Yields the output's name and the value's.

    A value that only a Relu reads is left out: the Relu's result tells of it, and the kernel keeps it.
    """
    import onnx
    from onnx import helper

    readers = defaultdict[str, list["NodeProto"]](list)
    for node in model.graph.node:
        for name in node.input:
            readers[name].append(node)
    given, added = {output.name for output in model.graph.output}, list["NodeProto"]()
    made = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name]
    for value in made if lost_names(values, made) else [name for name in made if name in values]:
        kinds = [reader.op_type for reader in readers[value]]
        if value in given:
            yield value, value
        elif len(kinds) == 1 and kinds[0] in CUTS:
            continue
        elif kinds == [ROUND]:
            rounding = readers[value][0]
            inputs = [rounding.output[0], *rounding.input[1:]]
            added.append(helper.make_node(WIDEN, inputs, [f"{value}{READ}"], f"{value}{READ}"))
            added[-1].attribute.extend(one for one in rounding.attribute if one.name in ("axis", "block_size"))
            yield f"{value}{READ}", value
        else:
            model.graph.output.append(onnx.ValueInfoProto(name=value))
            yield value, value
    model.graph.node.extend(added)
    model.graph.output.extend(onnx.ValueInfoProto(name=node.output[0]) for node in added)
