"""Plant faults in quantized files, and count how often `shootout explain` and `why` name the layer.

Four nets with seeded weights are each written with Q/DQ pairs, and then ten times more with one fault: a broken layer,
a wrong scale, a layer that is left in float, a block that is slow. The pairs stand where the runtime fuses them: those
of ONNX Runtime's own quantizer, and around products alone for OpenVINO. All files of a net race each other in one run
of each runtime, as a user's own file and its quantized form do; then each planted one is held beside the float one.

A net that is done keeps its rows in the bench's folder: the same command goes on with a bench that was stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_static
from torch import Tensor, nn

from lab.common import Bench, Table, Tables, say
from lab.corpus_nets import Diffusion, Net, export_to_file
from lab.task_nets import UNet, conv_block
from shootout import run
from shootout.commands.output import show_progress
from shootout.core.clock import Stopwatch
from shootout.core.contract import Arrays
from shootout.models.onnx.layers import Layer, find_owners, layers_of
from shootout.quantize import ort
from shootout.quantize.qdq import Quantizer
from shootout.tell.document import Row

CALIBRATION_SETS, MAX_TIME_S = 8, 75.0
FAULTS = {"broken layer": 3, "wrong scale": 3, "left in float": 2, "slow block": 2}
"""By fault, the layers of each net that get it."""
SOUND = "sound.onnx"
SHRINK, SLOW_NODES, TINY = 16.0, 60, 1e-12
"""A wrong scale is so many times too small; a slow block has so many more nodes, whose result counts so little."""


class Mlp(nn.Module):
    """Six wide layers."""

    def __init__(self, width: int = 384, count: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) * 1.7
        return x


def _cnn() -> nn.Module:
    widths = (3, 24, 48, 48, 64, 64)
    steps = [conv_block(inside, outside) for inside, outside in pairwise(widths)]
    return nn.Sequential(*steps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


NETS: Mapping[str, Net] = {
    "mlp": Net(kind="MLP", make=export_to_file(lambda: (Mlp(), (torch.randn(16, 384),))), source="here"),
    "cnn": Net(kind="CNN", make=export_to_file(lambda: (_cnn(), (torch.rand(1, 3, 48, 48),))), source="here"),
    "transformer": Net(
        kind="transformer",
        make=export_to_file(lambda: (Diffusion(128, 3, 4), (torch.randn(1, 4, 16, 16), torch.randn(1, 256)))),
        source="lab, three blocks of a diffusion transformer",
    ),
    "unet": Net(kind="U-Net", make=export_to_file(lambda: (UNet(3, 16), (torch.rand(1, 3, 64, 64),))), source="lab"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Hold one fault: its kind, the layer that has it, and the file.

    Attributes:
        beside: the layer that makes what this one reads, and those that read it too: a scale there is any one's.
    """

    fault: str
    layer: Layer
    beside: Sequence[str]
    file: Path


def figures(bench: Bench) -> Tables:
    """Make a row for each fault in each net and backend, and the counts."""
    rows: Table = []
    for name, net in ((name, NETS[name]) for name in bench.targets or NETS):
        kept = bench.folder / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(_look_at_net(bench, name, net)))
        rows += json.loads(kept.read_text())
        bench.keep(_make_tables(rows))
    return _make_tables(rows)


def _make_tables(rows: Table) -> Tables:
    planted = [row for row in rows if row["fault"]]
    sound = [row for row in rows if not row["fault"]]
    counts: Table = []
    for fault in (*FAULTS, ""):
        some = [row for row in planted if fault in ("", row["fault"])]
        found = {one: [row["found"] for row in some if row["backend"] == one] for one in BACKENDS}
        counts.append(
            {"fault": fault or "all"} | {one: f"{sum(known)} of {len(known)}" for one, known in found.items()}
        )
    named = {one: sum(bool(row["named"]) for row in sound if row["backend"] == one) for one in BACKENDS}
    counts.append(
        {"fault": "none"}
        | {one: f"{count} of {len({row['net'] for row in rows})} named" for one, count in named.items()}
    )
    return {"found by name": counts, "plants": rows}


def _look_at_net(bench: Bench, name: str, net: Net) -> Table:
    found: Table = []
    for backend in BACKENDS:
        folder = bench.folder / name / backend
        source = net.write(folder, name)
        plants = list(plant_all(source, backend, quick=bench.quick))
        sound = source.with_name(SOUND)
        files = [source, sound, *(plant.file for plant in plants)]
        say(f"  {name}: racing {len(files)} files on {backend}")
        raced = run(
            ",".join(map(str, files)), backends=[backend], max_time_s=MAX_TIME_S, out=str(folder / "run"), fresh=True
        )
        rows = {row.file: row for row in raced.rows}
        for plant in (None, *plants):
            file = plant.file if plant else sound
            with Stopwatch() as watch:
                told = _look_at(folder / "run", rows[""], rows[file.name], plant)
            found.append({"net": name, "backend": backend, **told, "seconds": round(watch.seconds, 1)})
            say(f"  {found[-1]}")
    return found


def _look_at(folder: Path, plain: Row, row: Row, plant: Plant | None) -> dict[str, Any]:
    """Hold a row's file beside the float one, and return what was named and whether that is the plant."""
    from shootout.apps.explain.measure import explain, sum_block
    from shootout.commands.layers import find_sides

    with show_progress() as progress:
        found = explain(find_sides(folder, [plain.arm, row.arm]), progress)
    fault, layer = (plant.fault, plant.layer) if plant else ("", None)
    if fault == "left in float":
        named = ", ".join((row.executed or {}).get("layers_in_float") or ())
    elif fault == "slow block":
        sums = {name: [sum_block(some, side).ns or 0.0 for side in (0, 1)] for name, some in found.blocks.items()}
        grew = {name: after - before for name, (before, after) in sums.items()}
        named = max(grew, key=lambda name: grew[name])
    else:
        first = found.sides[1].first_beyond
        named = next((one.name for one in found.layers if one.number == first), "")
    right = [""] if plant is None or layer is None else [layer.block if fault == "slow block" else layer.name]
    right += plant.beside if plant and fault == "wrong scale" else []
    return {
        "fault": fault,
        "planted": " or ".join(dict.fromkeys(right)),
        "named": named,
        "found": named in right,
        "why": row.why.text if row.why else "",
        "error": row.fidelity.relative_l2 if row.fidelity else None,
    }


def plant_all(source: Path, backend: str, *, quick: bool) -> Iterator[Plant]:
    """Write the sound quantized file for a runtime, and one for each fault in several of its layers; yield these.

    Args:
        source: the float file, beside which the others are written.
        quick: one layer for each fault.
    """
    model = onnx.load(source)
    layers = layers_of(model)
    owners, made = find_owners(model, layers), {node.output[0]: node for node in model.graph.node}
    quantizable, write = BACKENDS[backend](source)
    weighted = [layer for layer in layers if layer.output in quantizable and layer.weight]
    sound = source.with_name(SOUND)
    write(sound, ())
    for shift, (fault, count) in enumerate(FAULTS.items()):
        for layer in spread(weighted, 1 if quick else count, shift):
            file = source.with_name(f"{fault.replace(' ', '-')}-{layer.number}.onnx")
            if fault == "left in float":
                write(file, {layer.output})
            else:
                broken = onnx.load(sound)
                PLANTS[fault](broken, quantizable[layer.output])
                onnx.save(broken, file)
            reads = made[layer.output].input[0]
            beside = [one.name for one in layers if made[one.output].input[0] == reads]
            beside += [layers[owners[reads]].name] if reads in owners else []
            yield Plant(fault=fault, layer=layer, beside=beside, file=file)


Write = Callable[[Path, Collection[str]], None]
"""Write a quantized file in which the layers that compute these values stay in float."""


def _quantize_all(source: Path) -> tuple[Mapping[str, str], Write]:
    """Return the products that ONNX Runtime quantizes, by what they compute, and a function that writes its pairs.

    These are around every node. What follows a layer up to the next one stays in float with it: the runtime itself
    rounds the weights of a layer that stands between two pairs.
    """
    prepared = ort.prepared(source, source.parent)
    model = onnx.load(prepared)
    layers = layers_of(model)
    owners = find_owners(model, layers)
    nodes = {node.output[0]: node.name for node in model.graph.node}

    def write(target: Path, floats: Collection[str]) -> None:
        kept = [name for value, name in nodes.items() if value in owners and layers[owners[value]].output in floats]
        with ort.quietly():
            quantize_static(
                prepared,
                target,
                ort.CalibrationReader(_draw_inputs(source)),
                weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8,
                per_channel=True,
                nodes_to_exclude=kept,
            )

    return {layer.output: nodes[layer.output] for layer in layers if layer.is_quantizable}, write


def _quantize_products(source: Path) -> tuple[Mapping[str, str], Write]:
    """Return the products that the shared file quantizes, likewise; its pairs are around these alone."""
    quantizer = Quantizer(source, _draw_inputs(source))
    nodes = {node.output[0]: name for name, node in quantizer.layers.items()}

    def write(target: Path, floats: Collection[str]) -> None:
        quantizer.write(target, [name for value, name in nodes.items() if value not in floats])

    return nodes, write


BACKENDS = {"onnxruntime": _quantize_all, "openvino": _quantize_products}
"""By runtime, what writes the pairs that it fuses."""


def spread(layers: Sequence[Layer], count: int, shift: int) -> list[Layer]:
    """Choose so many layers, evenly; `shift` begins elsewhere."""
    step = len(layers) / count
    return [layers[int(index * step + shift) % len(layers)] for index in range(count)]


def _draw_inputs(source: Path) -> list[Arrays]:
    rng, infos = np.random.default_rng(0), onnx.load(source).graph.input
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}
    return [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(CALIBRATION_SETS)
    ]


def _find_node(model: ModelProto, output: str) -> NodeProto:
    nodes: Iterable[NodeProto] = model.graph.node
    return next(node for node in nodes if output in node.output)


def _find_named(model: ModelProto, name: str) -> NodeProto:
    nodes: Iterable[NodeProto] = model.graph.node
    return next(node for node in nodes if node.name == name)


def _break_weight(model: ModelProto, name: str) -> None:
    """Turn every second stored weight of the layer's over, as a wrong layout would."""
    widen = _find_node(model, _find_named(model, name).input[1])
    tensor = next(one for one in model.graph.initializer if one.name == widen.input[0])
    weight = numpy_helper.to_array(tensor).copy()
    weight.reshape(-1)[::2] *= -1
    tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))


def _shrink_scale(model: ModelProto, name: str) -> None:
    """Give the pair before the layer a scale that cuts most of what it rounds."""
    widen = _find_node(model, _find_named(model, name).input[0])
    narrow = _find_node(model, widen.input[0])
    tensor = next(one for one in model.graph.initializer if one.name == widen.input[1])
    small = numpy_helper.from_array((numpy_helper.to_array(tensor) / SHRINK).astype(np.float32), f"{tensor.name}/small")
    model.graph.initializer.append(small)
    narrow.input[1] = widen.input[1] = small.name


def _slow_down(model: ModelProto, name: str) -> None:
    """Add what nodes behind the layer compute, made so small that it changes nothing."""
    graph, value = model.graph, _find_named(model, name).output[0]
    for node in graph.node:
        node.input[:] = [f"{value}/slow" if one == value else one for one in node.input]
    graph.initializer.append(numpy_helper.from_array(np.array(TINY, np.float32), f"{value}/tiny"))
    names = [value, *(f"{value}/slow_{index}" for index in range(SLOW_NODES))]
    added = [helper.make_node("Sin", [one], [two]) for one, two in pairwise(names)]
    added.append(helper.make_node("Mul", [names[-1], f"{value}/tiny"], [f"{value}/nothing"]))
    added.append(helper.make_node("Add", [value, f"{value}/nothing"], [f"{value}/slow"]))
    at = next(index for index, node in enumerate(graph.node) if value in node.output) + 1
    nodes = [*graph.node[:at], *added, *graph.node[at:]]
    del graph.node[:]
    graph.node.extend(nodes)


PLANTS: Mapping[str, Callable[[ModelProto, str], None]] = {
    "broken layer": _break_weight,
    "wrong scale": _shrink_scale,
    "slow block": _slow_down,
}
