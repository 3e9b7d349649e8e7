"""Measure each layer's error in a target, and how much of it the layer's own precision explains. Runs in a worker.

The reference is the float ONNX graph, run as it is written. A layer's error is that of its tensor against the
reference's. It holds what the layers before it did wrong, too. So the same graph runs a second time, cut at every
tensor that the runtime showed: each layer reads what the target computed before it. What the target's tensor differs
from this is the layer's own error. What the precision explains of that is found as error bounds are: the cut graph
runs once more with weights and operands rounded as quantizers round them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from shootout.backends.optional import Inside
from shootout.core.adapter import Built
from shootout.core.constants import FIDELITY_MARGIN, FP32_BOUND_FLOOR
from shootout.core.contract import Array, Arrays, Artifact, Precision
from shootout.core.exported.fidelity import worst_error
from shootout.models.onnx import onnx_files
from shootout.models.onnx.layers import Layer, find_owners, innermost_module, is_product, layers_of
from shootout.models.onnx.onnx_graph import MOVES, read_graph
from shootout.quantize import INT8_LEVELS
from shootout.quantize import onnx_error_bounds as bounds

FARTHEST = 12
"""Nodes behind a layer that are followed at most."""
ROUND = "QuantizeLinear"
HARMLESS = MOVES | {"Clip", "Dropout", "IsNaN", "Relu", "Where", ROUND, "DequantizeLinear"}
"""The operators that a quantizer doesn't round anew: they choose among values, or are fused."""
SCALES = frozenset({"Add", "Div", "Mul"})
"""The operators that are fused, too, if they read a stored scale or bias."""
GIVEN = "shootout/given/"
"""The beginning of the name of an input that takes a target's tensor."""
MOST_AXES = 4
"""A tensor of more axes than this is taken in its own order."""
ALIKE = 0.5
"""A tensor without a name is taken for a layer's if its error is below this."""
SAMPLED = 4096
"""Elements that tell whether two tensors can be alike."""
Run = Callable[..., list[dict[str, Array]]]
"""Takes a model made of the reference's, and its further inputs; returns its outputs for each input set."""
Order = tuple[int, ...] | None
"""The axes of a tensor as another has them; None: as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Hold a graph's layers and the names around them.

    Attributes:
        values: of each layer, the value that it makes and those behind it that follow from it alone (or with a
            shortcut), up to the next layer; the nearest first. What only a Q/DQ pair reads is left out: the pair's
            result tells of it, as a runtime fuses the pair, and the range may be a Relu's.
        before: of each layer, the numbers of those before it with nodes in between that round anew and are no products.
        owners: the layer that a name belongs to, by its number: of values, nodes, stored tensors and torch modules.
            What is no layer belongs to the last layer that it follows from, or to the first of all.
        modules: of values that are a torch module's result, the last that its own nodes make, its name.
    """

    layers: tuple[Layer, ...]
    values: tuple[tuple[str, ...], ...]
    before: tuple[tuple[int, ...], ...]
    owners: Mapping[str, int]
    modules: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """Hold what a layer errs by in one target, relative L2 over the input sets; None if it isn't finite.

    Attributes:
        number: of the layer.
        value: of the reference graph, at which it was read.
        error: against the reference.
        own: against the layer in float on the target's own inputs.
        explained: the largest own error that the precision explains, margin included; None: nothing can be predicted.
    """

    number: int
    value: str
    error: float | None
    own: float | None
    explained: float | None


def describe_graph(graph: Path) -> dict[str, Any]:
    """Return the fields of the `Outline` of a file, whose weights needn't be there."""
    return asdict(read_outline(onnx_files.header(graph)))


def measure_errors(graph: Path, sets: Sequence[Arrays], inside: Inside, precision: str) -> list[dict[str, Any]]:
    """Measure the error of each layer whose tensor the runtime showed.

    Args:
        graph: the reference's.
        sets: the inputs of the calls that `inside` shows.
        precision: a key of `ExportedModel.error_bounds`.

    Returns:
        The fields of a `LayerError` for each, in the graph's order.
    """
    model = onnx_files.load(graph)
    outline = read_outline(model)
    with TemporaryDirectory() as place:
        run = partial(_run_rewritten, Path(place), graph.name, sets)
        found = _match_by_name(outline, inside)
        wanted = {
            name: ValueInfoProto(name=name)
            for number, values in enumerate(outline.values)
            for name in ([found[number][0]] if number in found else values)
        }
        watched = bounds.copied(model)
        known = {output.name for output in model.graph.output}
        watched.graph.output.extend(info for name, info in wanted.items() if name not in known)
        reference = run(watched)
        found |= match_by_value(outline, inside, reference, found)
        read = {number: pair for number, pair in found.items() if _fits(inside.tensors[pair[1]], reference, pair[0])}
        if not read:
            return []
        given = {value: _aligned(inside.tensors[name], reference, value) for value, name in read.values()}
        cut, inputs = _cut(model, given)
        local = run(cut, inputs)
        own = {value: _worst_error(value, some, local) for value, some in given.items()}
        explained: dict[str, float | None] = dict.fromkeys(own, FP32_BOUND_FLOOR)
        if any(error is None or error > FP32_BOUND_FLOOR for error in own.values()):  # else it explains all
            explained = _explain(cut, run, inputs, local, precision)
    errors = {value: _worst_error(value, some, reference) for value, some in given.items()}
    return [
        asdict(LayerError(number=at, value=value, error=errors[value], own=own[value], explained=explained.get(value)))
        for at, (value, _) in sorted(read.items())
    ]


def name_precision(built: Built) -> str:
    """Return the key of `ExportedModel.error_bounds` that tells how a target rounds.

    A file in its own precisions goes by the one that rounds most.
    """
    if built.arm.target.precision is not Precision.NATIVE:
        return built.exported.bound_key(built.arm.target)
    own = onnx_files.own_precisions(onnx_files.header(built.exported.path(Artifact.ONNX)))
    order = (Precision.INT4, Precision.FP8, Precision.INT8, Precision.BF16, Precision.FP16)
    return next((str(one) for one in order if one in own), str(Precision.FP32))


def _worst_error(value: str, found: Iterable[Array], right: Sequence[Arrays]) -> float | None:
    return worst_error([{value: one} for one in found], [{value: one[value]} for one in right])


def _run_rewritten(
    place: Path, name: str, sets: Sequence[Arrays], model: ModelProto, more: Sequence[Arrays] = ()
) -> list[dict[str, Array]]:
    """Return all outputs of a model made of the reference's for each set; `more` are its further inputs."""
    onnx_files.save(model, place / "rewritten.onnx")
    whole = [{**one, **other} for one, other in zip(sets, more, strict=True)] if more else sets
    return onnx_files.run(place / "rewritten.onnx", whole, name)


def _match_by_name(outline: Outline, inside: Inside) -> dict[int, tuple[str, str]]:
    """Return for each layer the nearest value that the runtime shows, and the tensor's name there; none twice."""
    if inside.names == "lost":
        return {}
    found, taken = dict[int, tuple[str, str]](), set[str]()
    for layer in reversed(outline.layers):  # a sum of two layers' results tells of the later one
        values = [value for value in outline.values[layer.number] if value not in taken]
        pairs = ((value, outline.modules.get(value, "") if inside.names == "modules" else value) for value in values)
        if pair := next((pair for pair in pairs if pair[1] in inside.tensors), None):
            found[layer.number] = pair
            taken.add(pair[0])
    return found


def match_by_value(
    outline: Outline, inside: Inside, reference: Sequence[Arrays], found: Mapping[int, tuple[str, str]]
) -> dict[int, tuple[str, str]]:
    """Match the other layers to tensors by shape and closeness to the reference.

    Of all ways to do it the one that explains most is taken: the sum of what each pair has in common. A tensor that has
    the name of a value is that value, and no other layer's.
    """
    from scipy.optimize import linear_sum_assignment

    layers = [layer for layer in outline.layers if layer.number not in found]
    used = {name for _, name in found.values()}
    if inside.names == "values":
        used |= {value for some in outline.values for value in some}
    names = [name for name in inside.tensors if name not in used]
    common, values = np.zeros((len(layers), len(names))), dict[tuple[int, int], str]()
    for (i, layer), (j, name) in product(enumerate(layers), enumerate(names)):
        for value in outline.values[layer.number]:
            likeness = _find_likeness(inside.tensors[name], reference, value)
            if likeness > common[i, j]:
                common[i, j], values[i, j] = likeness, value
    pairs = zip(*linear_sum_assignment(common, maximize=True), strict=True)
    return {layers[i].number: (values[i, j], names[j]) for i, j in pairs if (i, j) in values}


def _find_likeness(tensor: Sequence[Array], reference: Sequence[Arrays], value: str) -> float:
    """Return what a tensor and a value have in common, from 0 to 1.

    Nearly all are unlike, so some elements are compared first, and all only of what is near enough by these.
    """
    if not _fits(tensor, reference, value):
        return 0.0
    left, right = tensor[0], reference[0][value]
    some = np.linspace(0, right.size - 1, min(right.size, SAMPLED)).astype(int)
    turned = (_turn(left, order, right) for order in _list_orders(left, right))
    near = (one for one in turned if _distance(one.ravel()[some], right.ravel()[some]) < 1.5 * ALIKE)
    error = min((_distance(one, right) for one in near), default=np.inf)
    return max(0.0, 1.0 - error / ALIKE)


def _fits(tensor: Sequence[Array], reference: Sequence[Arrays], value: str) -> bool:
    right = reference[0].get(value)
    return right is not None and right.dtype.kind == "f" and right.size == tensor[0].size and right.size > 0


def _aligned(tensor: Sequence[Array], reference: Sequence[Arrays], value: str) -> list[Array]:
    """Return a tensor in the reference's order of axes, with its dtype."""
    right = reference[0][value]
    best = min(_list_orders(tensor[0], right), key=lambda order: _distance(_turn(tensor[0], order, right), right))
    return [np.ascontiguousarray(_turn(one, best, right), dtype=right.dtype) for one in tensor]


def _list_orders(tensor: Array, right: Array) -> list[Order]:
    """List the orders of axes in which a tensor has another's shape; axes of one element don't count."""
    kept, whole = (tuple(size for size in one.shape if size > 1) for one in (tensor, right))
    if tensor.shape == right.shape or len(kept) > MOST_AXES:
        return [None]
    axes = permutations(range(len(kept)))
    return [None, *(order for order in axes if tuple(kept[axis] for axis in order) == whole)]


def _turn(one: Array, order: Order, right: Array) -> Array:
    kept = tuple(size for size in one.shape if size > 1)
    return (one if order is None else one.reshape(kept).transpose(order)).reshape(right.shape)


def _distance(tensor: Array, right: Array) -> float:
    error = _norm(tensor.astype(np.float64).ravel() - right.ravel()) / (_norm(right) or 1.0)
    return error if np.isfinite(error) else np.inf


def _norm(array: Array) -> float:
    """Return the L2 norm; BLAS would wake its threads for each of thousands of short ones."""
    return float(np.sqrt(np.square(array, dtype=np.float64).sum()))


def _cut(model: ModelProto, given: Mapping[str, Sequence[Array]]) -> tuple[ModelProto, list[dict[str, Array]]]:
    """Let every node read a target's tensors in place of the values that they stand for; these become outputs.

    Returns:
        The model, and its further inputs for each set.
    """
    outputs = {output.name: output for output in model.graph.output}
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name in given:
                node.input[at] = f"{GIVEN}{name}"
    for name, arrays in given.items():
        kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
        model.graph.input.append(helper.make_tensor_value_info(f"{GIVEN}{name}", kind, arrays[0].shape))
        if name not in outputs:
            model.graph.output.append(helper.make_tensor_value_info(name, kind, arrays[0].shape))
    for name in outputs.keys() - given.keys():
        model.graph.output.remove(outputs[name])
    sets = len(next(iter(given.values()), ()))
    return model, [{f"{GIVEN}{name}": arrays[at] for name, arrays in given.items()} for at in range(sets)]


def _explain(
    cut: ModelProto, run: Run, inputs: Sequence[Arrays], local: Sequence[Arrays], precision: str
) -> dict[str, float | None]:
    """Return the largest own error that the precision explains, by value; empty if the graph can't be rounded."""
    worst, finish = dict[str, float | None](), _rounding_of_results(precision)
    try:
        for rounded in _round(cut, run, inputs, precision):
            outputs = run(rounded, inputs)
            for value in local[0]:
                error = _worst_error(value, (finish(one[value]) for one in outputs), local)
                before = worst.get(value, 0.0)
                worst[value] = None if error is None or before is None else max(error, before)
    except Exception:  # a stranger's graph may break anything, and the errors are known without this
        return {}
    return {
        value: None if error is None else max(error * FIDELITY_MARGIN, FP32_BOUND_FLOOR)
        for value, error in worst.items()
    }


def _round(cut: ModelProto, run: Run, inputs: Sequence[Arrays], precision: str) -> Iterator[ModelProto]:
    """Yield the cut graph as float32 runtimes compute it, and in each way that the precision may round."""
    yield bounds.coarsened(cut)
    if precision == Precision.FP32:
        return

    def find_extremes(observed: ModelProto, spots: set[bounds.Spot]) -> dict[str, list[float]]:
        names = bounds.observe(observed, spots)
        seen = run(observed, inputs)
        return {value: [float(one[output]) for one in seen] for value, output in names.items()}

    model = bounds.prepared(bounds.copied(cut))
    graph = read_graph(model)
    ways = {**bounds.list_float_ways(model, graph), **bounds.list_scaled_ways(model, graph, find_extremes)}
    for way in ways[precision]:  # none if nothing is known of it
        yield bounds.round_model(bounds.prepared(bounds.copied(cut)), graph, way)


def _rounding_of_results(precision: str) -> Callable[[Array], Array]:
    """Return what a precision does to a layer's result: static INT8 and half floats round it, others don't."""
    if precision in bounds.HALF_FLOATS:
        return bounds.HALF_FLOATS[precision][1]
    if precision.split("/")[0] != Precision.INT8 or precision.endswith("weights-only"):
        return lambda result: result

    def finish(result: Array) -> Array:
        step = float(np.abs(result).max(initial=0.0)) / INT8_LEVELS or 1.0
        return np.asarray(np.rint(result / step) * step, dtype=result.dtype)

    return finish


def read_outline(model: ModelProto) -> Outline:
    """Read the main graph; weights needn't be loaded."""
    layers = layers_of(model)
    nodes = list(model.graph.node)
    readers = defaultdict[str, list[int]](list)
    for index, node in enumerate(nodes):
        for name in dict.fromkeys(node.input):
            readers[name].append(index)
    outputs = {output.name for output in model.graph.output}
    owners = find_owners(model, layers)
    rounded = {name for name, some in readers.items() if {nodes[index].op_type for index in some} == {ROUND}}
    rounded |= {node.output[0] for node in nodes if node.op_type == ROUND}
    last = {module: node.output[0] for node in nodes if (module := innermost_module(node))}
    values = ((layer.output, *_follow(layer.output, nodes, readers, outputs)) for layer in layers)
    return Outline(
        layers=layers,
        values=tuple(tuple(value for value in some if value not in rounded - outputs) for some in values),
        before=tuple(_find_before(model, layers, owners)),
        owners=owners,
        modules={value: module for module, value in last.items()},
    )


def _find_before(model: ModelProto, layers: Sequence[Layer], owners: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield the layers before each layer between which and it something rounds anew that belongs to the nearest one."""
    nodes = list(model.graph.node)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output}
    axes = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    axes |= {node.output[0]: len(node.attribute[0].t.dims) for node in nodes if node.op_type == "Constant"}

    def rounds_anew(value: str, owner: int) -> bool:
        """Tell whether a node rounds anew on the way to a value, of those that belong to a layer."""
        found, todo = set[int](), [value]
        while todo:
            name = todo.pop()
            index = makers.get(name, -1)
            if index in {-1, *found} or owners.get(name) != owner or is_product(nodes[index].op_type):
                continue
            found.add(index)
            node = nodes[index]
            todo += node.input[:1] if node.op_type in MOVES - {"Concat"} else node.input
        kept = [nodes[index] for index in sorted(found) if nodes[index].op_type not in HARMLESS]
        # a scale and a bias have no more than one axis; a mask, which is stored as well, has more
        return any(one.op_type not in SCALES or all(axes.get(name, 2) > 1 for name in one.input) for one in kept)

    for layer in layers:
        reads = [(value, owners.get(value, layer.number)) for value in nodes[makers[layer.output]].input]
        yield tuple(sorted({owner for value, owner in reads if owner < layer.number and rounds_anew(value, owner)}))


def _follow(
    value: str, nodes: Sequence[NodeProto], readers: Mapping[str, Sequence[int]], outputs: set[str]
) -> Iterator[str]:
    """Yield each value behind this one through which all that follows from it passes, before the next layer."""
    if value in outputs:
        return
    pending, todo, done = {value}, set(readers.get(value, ())), set[int]()
    while todo and len(done) < FARTHEST:
        index = min(todo)
        node = nodes[index]
        if is_product(node.op_type):
            return
        todo.remove(index)
        done.add(index)
        pending = {one for one in pending if not done.issuperset(readers.get(one, ()))} | {*node.output} - {""}
        todo |= {one for name in node.output for one in readers.get(name, ())} - done
        if len(pending) == 1:
            yield from pending
        if pending & outputs:
            return
