"""Read what OpenVINO computes between a model's layers, and what each node takes.

Tensors come from the IR with outputs added, compiled as the arm's own. An output is added behind a Relu and behind a
FakeQuantize, where a fused node hands on its result. The times are of the model as sessions compile it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._openvino.account import (
    list_executed_nodes,
    list_products,
    node_ns,
    only_converts,
)
from shootout.backends._openvino.graph import IR, SNIPPETS, compile_model, import_openvino
from shootout.backends.common import lost_names
from shootout.backends.optional import Inside, RanNode
from shootout.core.contract import Arrays

if TYPE_CHECKING:
    from shootout.core.adapter import Built

ROUND, CUTS = "FakeQuantize", ("Relu", "Clamp")
UNSHOWN = ("Constant", "Parameter", "Result")
UNSCALING, SCALING = ("Convert", "Subtract"), "Multiply"
"""The nodes of a Q/DQ file's integers up to its scale, and that one."""
TOO_SHORT = "OpenVINO's counters tell whole microseconds, too coarse for nodes as short as these"


def look_inside(built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
    """Run the input sets through the model with outputs added, and time the nodes of the built one."""
    openvino = import_openvino()
    model = openvino.Core().read_model(built.folder / IR)
    names = [spec.name for spec in built.exported.outputs]
    shown = dict(_find_ports(model, set(values) - {*names}))  # no port twice: a model has one output for each
    model.add_outputs(list(shown.values()))
    with TemporaryDirectory() as place:
        path = Path(place) / IR
        openvino.save_model(model, path, compress_to_fp16=False)
        compiled = compile_model(path, built.arm)
    wanted = dict(zip([*names, *shown], compiled.outputs, strict=True))
    calls = []
    for one in sets:
        answers = compiled(dict(one))
        calls.append({name: np.array(answers[port]) for name, port in wanted.items()})
    nodes = tuple(_list_nodes(built, sets[0]))
    return Inside(
        tensors={name: tuple(call[name] for call in calls) for name in (*shown, *({*values} & {*names}))},
        names="values",
        outputs=tuple({name: call[name] for name in names} for call in calls),
        nodes=nodes,
        notes=() if any(node.ns is not None for node in nodes) else (TOO_SHORT,),
        fuses_less="" if SNIPPETS in built.arm.options else f"--option openvino.{SNIPPETS}=DISABLE",
    )


def _find_ports(model: Any, values: Set[str]) -> Iterator[tuple[str, Any]]:
    """Yield where each value can be read, in the graph's order; of a graph that lost their names, all floats.

    A value that only a Relu reads is left out: the Relu's result tells of it, and the node keeps it.
    """
    taken, operations = set[tuple[str, int]](), model.get_ordered_ops()
    is_lost = lost_names(values, {name for one in operations for port in one.outputs() for name in port.get_names()})
    for operation in operations:
        for port in operation.outputs():
            readers = [one.get_node() for one in port.get_target_inputs()]
            kinds = {one.get_type_name() for one in readers} - {"Result"}
            if kinds <= set(CUTS) and len(readers) == 1 and kinds:
                continue
            read = _find_rounded(readers[0]) if kinds == {ROUND} and len(readers) == 1 else port
            place = read.get_node().get_friendly_name(), read.get_index()
            is_output = any(one.get_node().get_type_name() == "Result" for one in read.get_target_inputs())
            known = sorted(values & port.get_names())
            if is_lost and operation.get_type_name() not in UNSHOWN and read.get_element_type().is_real():
                known = known or [":".join(map(str, place))]
            if known and not is_output and place not in taken:
                taken.add(place)
                yield known[0], read


def _find_rounded(rounding: Any) -> Any:
    """Return where a rounded value can be read: of a Q/DQ file behind the scale, which is a node of its own there."""
    node, kinds = rounding, list[str]()
    while not kinds or kinds[-1] in UNSCALING:
        readers = [one.get_node() for one in node.output(0).get_target_inputs()]
        if len(readers) != 1 or readers[0].get_type_name() not in (*UNSCALING, SCALING):
            break
        node = readers[0]
        kinds.append(node.get_type_name())
    return (node if kinds[:1] == ["Convert"] and kinds[-1] == SCALING else rounding).output(0)


def _list_nodes(built: Built, inputs: Arrays) -> Iterator[RanNode]:
    """Yield the nodes that one call executes, each with its mean time unless the counters are too coarse."""
    compiled = compile_model(built.folder / IR, built.arm, PERF_COUNT="YES")
    times = node_ns(compiled, inputs)
    runtime = {node.get_friendly_name(): node for node in compiled.get_runtime_model().get_ordered_ops()}
    for key, node in list_executed_nodes(compiled):
        name, operation = node["name"], runtime[node["name"]]
        labels = [label for label, _ in list_products(compiled, built.facts, key, node)]
        yield RanNode(
            kind=f"{node['layerType']}{_tell_fused(node)}",
            ns=times.get(name, 0.0) if times else None,
            names=(*node["originalLayersNames"].split(","), name),
            reads=tuple(one.get_source_output().get_node().get_friendly_name() for one in operation.inputs()),
            makes=(name,),
            precision=Counter(labels).most_common(1)[0][0] if labels else "",
            converts=not labels and only_converts(node, built.facts["conversions"]),
        )


def _tell_fused(node: dict[str, str]) -> str:
    """Count what a node holds beside its first operation, roundings aside."""
    parts = [one for one in node["originalLayersNames"].split(",") if one and "/fq_" not in one]
    return f"+{len(parts) - 1}" if len(parts) > 1 else ""
