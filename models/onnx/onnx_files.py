"""Read a user's ONNX file: its header without the weights, the whole model, the precisions that it holds. Run a file as
it is written, and write models.

Nothing outside the model's own folder is ever opened: a file from elsewhere could name any path on this machine as its
external data. If the model is a link, as in Hugging Face's cache, the folder of its real file counts as well, which is
ONNX Runtime's rule too.

Large tensors inside a file are dropped from its header once it is parsed, so that none stays in memory.

A copy of a file may be made one that more runtimes read: older versions, and no functions of its own. `onnx` stamps its
newest IR version and opset on what it writes, and runtimes refuse numbers that are newer than they. Most files hold
nothing that is new in these.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, defs, helper, inliner
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from shootout.core.contract import Array, Arrays, Precision
from shootout.core.errors import ModelError, UsageError, tell_refusal, tell_words
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import sha256
from shootout.models.onnx import CLASSICAL_DOMAIN, INLINE_BYTES
from shootout.models.onnx.effort import beside

WHOLE = "shootout.whole"
"""The property of a model without its weights that tells of them."""
FLOAT_BYTES = 4
KEPT_BYTES = 1 << 12
"""Shapes, thresholds and normalizations are smaller; weights that matter for time are larger."""
NAN_READERS = frozenset({"IsNaN", "Imputer"})
"""Operators for which NaN is a missing value."""
_DATA = frozenset("raw_data float_data int32_data int64_data double_data uint64_data string_data".split())  # noqa: SIM905
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, end lines, or reverse the order in which a text is shown."""
_FLOATS: Mapping[int, Precision] = {
    TensorProto.FLOAT16: Precision.FP16,
    TensorProto.BFLOAT16: Precision.BF16,
    TensorProto.FLOAT8E4M3FN: Precision.FP8,
    TensorProto.FLOAT8E4M3FNUZ: Precision.FP8,
    TensorProto.FLOAT8E5M2: Precision.FP8,
    TensorProto.FLOAT8E5M2FNUZ: Precision.FP8,
}
_NARROWEST = frozenset({TensorProto.INT4, TensorProto.UINT4})
_QUANTIZED = re.compile("Quantize|Integer|^QLinear|^QGemm$|^QAttention$|^MatMulNBits$|^MatMulBnb4$|BlockQuantized$")
"""Operators that read or write numbers of a few bits, ONNX's own and those of ONNX Runtime's domain."""
_IN_BLOCKS = re.compile("^MatMulNBits$|^MatMulBnb4$|^GatherBlockQuantized$")
"""Operators whose weights are packed into bytes, so that no type shows their bits."""
_BITS = 4
"""The bits of such an operator if it doesn't say."""


LEAST_IR = 10
"""The last IR version that brought more than types and notes for distributing a model."""
_STANDARD = {"": "", "ai.onnx": "", CLASSICAL_DOMAIN: CLASSICAL_DOMAIN}
"""The domains of operators that ONNX itself describes, under the names that files give them."""
ESTABLISHED_OPSET = 17
"""Every ONNX Runtime that this package runs with knows it."""
RUNTIME_DOMAIN = "com.microsoft"
_AHEAD = 9
"""A runtime knows at most so many versions that the installed `onnx` doesn't know."""

_UNKNOWN = re.compile(r"(\S+)\(-?\d+\) is not a registered function/op")
"""ONNX Runtime's words for an operator that it doesn't know."""


def header(path: Path) -> ModelProto:
    """Read the model without the contents of its larger tensors. The result is cached: don't change it.

    Raises:
        UsageError: `path` can't be read.
        ModelError: it is not an ONNX model.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device has no end
            raise UsageError(f"{path} is not a regular file: name an .onnx file")
        return _read_header(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error, 'name an .onnx file that is there')}") from error


@lru_cache(maxsize=8)
def _read_header(path: Path, _mtime_ns: int, _size: int) -> ModelProto:
    try:
        model = ModelProto()
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ModelError(f"{path.name} is not an ONNX model, or is cut short: export it again ({error})") from error
    if not model.graph.output:
        raise ModelError(f"{path.name} is not an ONNX model: it has no graph with an output; export it again")
    if any(not isinstance(text, str) or _STEERING.search(text) for text in _shown_names(model)):
        raise ModelError(f"{path.name} is not an ONNX model: its names aren't valid text; export it again")
    for tensor in tensors(model):
        for field, value in tensor.ListFields():
            if field.name in _DATA and len(value) * (1 if field.name == "raw_data" else FLOAT_BYTES) > KEPT_BYTES:
                tensor.ClearField(field.name)
    return model


def _shown_names(model: ModelProto) -> Iterator[str | bytes]:
    """Yield the names that people read; bytes if one isn't Unicode, which Protobuf permits."""
    for info in (*model.graph.input, *model.graph.output):
        yield from (info.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim))
    for node in every_node(model):
        yield from (node.op_type, node.domain)


def parse(path: Path) -> ModelProto:
    """Read the model without its external data; raise as `external_files` does for the file itself."""
    header(path)
    return onnx.load(path, load_external_data=False)


def load(path: Path) -> ModelProto:
    """Read the model with all its weights into memory; raise as `external_files` does."""
    files, model = external_files(path), parse(path)
    for tensor in filter(uses_external_data, tensors(model)):
        _bring_data(tensor, files)
    return model


def _bring_data(tensor: TensorProto, files: Mapping[str, Path]) -> None:
    """Read a tensor's data from the files that were checked; ONNX's own function refuses those that are links."""
    info = ExternalDataInfo(tensor)
    with files[info.location].open("rb") as file:
        file.seek(info.offset or 0)
        tensor.raw_data = file.read(-1 if info.length is None else info.length)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def without_weights(path: Path) -> bytes:
    """Return the file's header as a model, which names the contents of the whole: other weights make it another one.

    Raises:
        UsageError, ModelError: as `external_files` does.
    """
    files = [path, *external_files(path).values()]
    model = ModelProto()
    model.CopyFrom(header(path))
    for tensor in filter(uses_external_data, tensors(model)):
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
    whole = {"bytes": sum(file.stat().st_size for file in files), "sha256": [sha256(file) for file in files]}
    model.metadata_props.add(key=WHOLE, value=json.dumps(whole))
    return bytes(model.SerializeToString(deterministic=True))


def whole_bytes(path: Path) -> int | None:
    """Return the bytes of the file and its weights that `without_weights` left out; None if nothing was."""
    told = next((one.value for one in header(path).metadata_props if one.key == WHOLE), None)
    return None if told is None else int(json.loads(told)["bytes"])


def external_files(path: Path) -> dict[str, Path]:
    """Return the files beside `path` that hold its weights, by the names that the model gives them; links are followed.

    Raises:
        UsageError: `path` can't be read.
        ModelError: it is not an ONNX model, or names a file outside its folders or one that is missing or too short.
    """
    return {info.location: _checked_place(path, info) for info in _external_places(header(path))}


def _external_places(model: ModelProto) -> Iterator[ExternalDataInfo]:
    for tensor in filter(uses_external_data, tensors(model)):
        try:
            info = ExternalDataInfo(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"tensor {tensor.name!r} has an unreadable data location: {error}; export it again"
            ) from None
        if (info.offset or 0) < 0 or (info.length or 0) < 0 or not isinstance(info.location, str):
            raise ModelError(f"tensor {tensor.name!r} has an invalid data location; export it again")
        yield info


def _checked_place(model: Path, info: ExternalDataInfo) -> Path:
    location, folder = info.location, model.parent
    try:
        if not os.path.lexists(folder / location):
            folder = model.resolve().parent
        file = (folder / location).resolve()  # an absolute location replaces the folder, and links are followed
        found = file.is_file()
    except (OSError, ValueError):  # too long, or with a letter that no name may have
        raise ModelError(
            f"{model.name} reads its weights from {location[:100]!r}, which is not a file name; export it again"
        ) from None
    named = Path(location)
    if named.is_absolute() or ".." in named.parts:
        raise ModelError(
            f"{model.name} reads its weights from {location!r}, outside its own folder, which is refused: "
            "copy them beside it"
        )
    if not any(file.is_relative_to(one.parent) for one in (model.parent.resolve() / model.name, model.resolve())):
        copy = shlex.quote(f"{model.parent.name}-copied")
        raise ModelError(
            f"{model.name} reads its weights from {location!r}, a link out of its own folder, which is refused; "
            f"copy what the links name, and race the copy: cp -rL {shlex.quote(str(model.parent))} {copy}"
        )
    if not found:
        missing = "a link to a file that is missing" if (folder / location).is_symlink() else "missing"
        raise ModelError(f"{model.name} needs {location!r} beside it, which is {missing}; copy it there")
    if (info.offset or 0) + (info.length or 0) > file.stat().st_size:
        raise ModelError(f"{file} is shorter than {model.name} says; copy it again")
    return file


def is_big(path: Path) -> bool:
    """Return whether a model's weights lie beside it, or are so many that they should; raise as `external_files` does.

    Files that are made from such a model have external weights too: runtimes leave untouched tensors in their files.
    """
    return path.stat().st_size > INLINE_BYTES or bool(external_files(path))


def load_graph(path: Path) -> ModelProto:
    """Read the model; many weights that lie beside it stay there but for small ones, such as shapes.

    An output that is listed twice is listed once. Raise as `external_files` does. What `save` writes of such a model is
    its graph alone.
    """
    files = external_files(path)
    is_small = sum(file.stat().st_size for file in files.values()) <= INLINE_BYTES
    model = load(path) if is_small else parse(path)
    once = {info.name: info for info in reversed(model.graph.output)}
    if len(once) < len(model.graph.output):
        kept = [*reversed(once.values())]
        del model.graph.output[:]
        model.graph.output.extend(kept)
    for tensor in filter(uses_external_data, tensors(model)):
        if (ExternalDataInfo(tensor).length or _size_of(tensor)) <= KEPT_BYTES:
            _bring_data(tensor, files)
    return model


def _size_of(tensor: TensorProto) -> int:
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return int(math.prod(tensor.dims) * kind.itemsize)


def save(model: ModelProto, path: Path, source: Path | None = None) -> None:
    """Write the model, big weights to one file beside it.

    Args:
        model: with all its weights in memory, so that a file of that name may give way to the new one.
        source: where it was read from, if weights of it still lie beside that file (see `load_graph`).
    """
    outside = [tensor for tensor in tensors(model) if source and uses_external_data(tensor)]
    if source and outside:
        if source.parent != path.parent:
            _copy_weights(outside, source, path)
        path.write_bytes(model.SerializeToString())
        return
    big = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > INLINE_BYTES
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)  # ONNX would write behind what is there
    onnx.save(model, path, save_as_external_data=big, location=beside.name)
    if big:  # saving moved the weights out of `model`
        load_external_data_for_model(model, str(path.parent))


def _copy_weights(outside: Sequence[TensorProto], source: Path, path: Path) -> None:
    """Copy the files that hold these tensors to `path`'s folder, and give the tensors their new names."""
    names, files = dict.fromkeys(ExternalDataInfo(tensor).location for tensor in outside), external_files(source)
    copies = {name: f"{path.name}.data{f'-{number}' if number else ''}" for number, name in enumerate(names)}
    for name, copy in copies.items():
        path.with_name(copy).unlink(missing_ok=True)
        shutil.copyfile(files[name], path.with_name(copy))
    for tensor in outside:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = copies[entry.value]


def save_apart(model: ModelProto, path: Path, weights: str) -> None:
    """Write the model's graph, and its weights to a file of the name `weights` beside it."""
    onnx.save(model, path, save_as_external_data=True, location=weights, size_threshold=KEPT_BYTES)


class LoadedFile:
    """Load the file at `path` as it is written, without optimization, to run it any number of times.

    Args:
        is_drawn: its inputs are drawn, which may be why it can't be run.

    Raises:
        ModelError: it can't be loaded; calls it `name`.
    """

    def __init__(self, path: Path, name: str, *, is_drawn: bool = False) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._name, self._is_drawn = name, is_drawn
        try:
            self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            lacks = _UNKNOWN.search(str(error))
            why = f"can't load {name}: {tell_words(error)}"
            told = f"has no operator {lacks[1]}, which {name} needs" if lacks else why
            raise ModelError(f"no reference outputs: ONNX Runtime {told}") from error
        self._outputs = [output.name for output in self._session.get_outputs()]

    def call(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs for one input set.

        Each call takes one thread, so that its sums have one order.

        Args:
            inputs: by name; stored tensors that the file lists as inputs may be among them, and are replaced then.

        Raises:
            ModelError: the file can't be run.
        """
        try:
            return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs)), strict=True))
        except Exception as error:
            hint = "; if drawn inputs don't fit, give real ones with --inputs data.npz" if self._is_drawn else ""
            told = f"ONNX Runtime can't run {self._name}: {tell_words(error)}"
            raise ModelError(f"no reference outputs: {told}{hint}") from error


def run_all(
    call: Callable[[Arrays], dict[str, Array]], inputs: Sequence[Arrays], stream: Stream | None = None
) -> list[dict[str, Array]]:
    """Return the outputs for each input set. Sets run side by side, those of a stream one after the other.

    Args:
        stream: what calls hand on to each other; None: nothing.
    """
    if stream:
        return list(map(stream.carry(call), inputs))
    with ThreadPoolExecutor(beside()) as pool:
        return list(pool.map(call, inputs))


def run(path: Path, inputs: Sequence[Arrays], name: str, stream: Stream | None = None) -> list[dict[str, Array]]:
    """Run the file at `path` as it is written; return its outputs. See `LoadedFile` and `run_all`.

    Raises:
        ModelError: it can't be loaded or run; calls it `name`.
    """
    return run_all(LoadedFile(path, name).call, inputs, stream)


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor that the file holds, weights or others: some exporters write theirs as constant nodes."""
    inside = [graph for nodes in _main_nodes(model) for graph in graphs_inside(nodes)]
    for graph in (model.graph, *inside):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in every_node(model) for attribute in node.attribute):
        yield from (*([attribute.t] * attribute.HasField("t")), *attribute.tensors)


def every_node(model: ModelProto) -> Iterator[NodeProto]:
    """Yield all nodes, those inside branches, loops and the model's own functions too."""
    for nodes in _main_nodes(model):
        yield from nodes
        for graph in graphs_inside(nodes):
            yield from graph.node


def graphs_inside(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """Yield the graphs inside nodes, such as branches and a loop's body, and those inside these."""
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        for graph in (*([attribute.g] * attribute.HasField("g")), *attribute.graphs):
            yield graph
            yield from graphs_inside(graph.node)


def names_read(node: NodeProto) -> list[str]:
    """Return the names that a node reads, those that its branches or body take from around it too."""
    graphs = [*graphs_inside([node])]
    own = {name for graph in graphs for one in graph.node for name in one.output}
    own |= {info.name for graph in graphs for info in (*graph.input, *graph.initializer)}
    inside = (name for graph in graphs for one in graph.node for name in one.input)
    inside_out = (info.name for graph in graphs for info in graph.output)
    names = [*node.input, *(name for name in (*inside, *inside_out) if name not in own)]
    return [name for name in dict.fromkeys(names) if name]


def sort_nodes(graph: GraphProto) -> None:
    """Put each node behind those whose values it or its branches read; a graph in order stays as it is.

    Libraries that sort a graph look at a node's own inputs alone.
    """
    nodes = [*graph.node]
    makers = {name: at for at, node in enumerate(nodes) for name in node.output}
    waits = {at: {makers[name] for name in names_read(node) if name in makers} for at, node in enumerate(nodes)}
    if any(max(before, default=-1) > at for at, before in waits.items()):
        del graph.node[:]
        graph.node.extend(nodes[at] for at in TopologicalSorter(waits).static_order())


def _main_nodes(model: ModelProto) -> Iterator[Iterable[NodeProto]]:
    """Yield the nodes of the main graph, and those of each of the model's own functions."""
    yield model.graph.node
    for function in model.functions:
        yield function.node


def name_classical(model: ModelProto) -> str:
    """Name what of ONNX's classical models a file holds (`ai.onnx.ml`: trees, scalers, encoders); "" if nothing."""
    operators = dict.fromkeys(node.op_type for node in every_node(model) if node.domain == CLASSICAL_DOMAIN)
    trees = any(name.startswith("TreeEnsemble") for name in operators)
    what = "tree models" if trees else f"the operators {', '.join(operators)}"
    return f"{what} ({CLASSICAL_DOMAIN})" if operators else ""


def takes_nan(model: ModelProto) -> bool:
    """Return whether NaN may be a value of its inputs: the graph looks for it, or trees send it to one side."""
    found = {node.op_type for node in every_node(model)}
    return bool(found & NAN_READERS) or any(one.startswith("TreeEnsemble") for one in found)


def parameter_count(model: ModelProto) -> int:
    """Count the elements of all that the file stores."""
    return sum(math.prod(tensor.dims) for tensor in tensors(model))


def own_precisions(model: ModelProto) -> tuple[Precision, ...]:
    """Return the precisions, besides FP32, in which the file's values are stored or computed, in alphabetical order.

    Args:
        model: parsed; its weights are not looked at, only their types.
    """
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    kinds = {info.name: info.type.tensor_type.elem_type for info in infos}
    kinds |= {tensor.name: tensor.data_type for tensor in tensors(model)}
    nodes = list(every_node(model))
    casts = {attribute.i for node in nodes if node.op_type == "Cast" for attribute in node.attribute}
    found = {_FLOATS[kind] for kind in (*kinds.values(), *casts) if kind in _FLOATS}
    for node in nodes:
        if node.op_type == "Constant":
            kinds |= dict.fromkeys(node.output, max((one.t.data_type for one in node.attribute), default=0))
        if node.op_type == "QuantizeLinear":
            kinds |= dict.fromkeys(node.output, _quantized_type(node, kinds))
    quantized = [node for node in nodes if _QUANTIZED.search(node.op_type)]
    found |= {_precision_of(node, [kinds.get(name, 0) for name in (*node.input, *node.output)]) for node in quantized}
    return tuple(sorted(found))


def _quantized_type(node: NodeProto, kinds: Mapping[str, int]) -> int:
    """Return the type that QuantizeLinear makes: its zero point's, or else the one that it names."""
    zero = node.input[2] if len(node.input) > 2 else ""
    named = (attribute.i for attribute in node.attribute if attribute.name == "output_dtype")
    return kinds.get(zero, 0) or next(named, 0) or TensorProto.UINT8


def _precision_of(node: NodeProto, types: list[int]) -> Precision:
    """Return a quantized operator's precision, from the types that it reads and makes."""
    if _IN_BLOCKS.search(node.op_type):
        bits = next((attribute.i for attribute in node.attribute if attribute.name == "bits"), _BITS)
        return Precision.INT4 if bits <= _BITS else Precision.INT8
    if any(_FLOATS.get(kind) is Precision.FP8 for kind in types):
        return Precision.FP8
    return Precision.INT4 if _NARROWEST & set(types) else Precision.INT8


def lower_versions(model: ModelProto, called: str) -> None:
    """Lower a model's IR version, and the opsets that ONNX Runtime doesn't know, if its operators stay the same.

    Args:
        model: a copy, which is changed; weights or not.
        called: the file, as the user does.

    Raises:
        ModelError: ONNX Runtime doesn't know a version that the contents need; says which one it knows.
    """
    model.ir_version = min(model.ir_version, LEAST_IR)
    for domain in (CLASSICAL_DOMAIN, ""):
        opsets = [one for one in _every_opset(model) if _STANDARD.get(one.domain) == domain]
        newest = max((one.version for one in opsets), default=0)
        if newest <= (known := _find_known(domain, newest)):
            continue
        if (new := _find_new_operator(model, domain, newest, known)) is not None:
            name = f"opset {newest}{f' of {domain}' if domain else ''}{new}"
            fix = f"target_opset={ {domain: known} }" if domain else f"opset_version={known}"
            raise ModelError(f"{called} has {name}; {_tell_known(known)}: export it again with {fix}")
        for one in opsets:
            one.version = min(one.version, known)


def inline_functions(model: ModelProto) -> None:
    """Put the nodes of a model's own functions where they are called: OpenVINO and quantizers look into none.

    Operators of ONNX Runtime's domain stay, since it may have a faster kernel than the function.
    """
    own = [(one.domain, one.name) for one in model.functions if one.domain != RUNTIME_DOMAIN]
    if own:
        with contextlib.suppress(Exception):  # functions that contradict each other: ONNX Runtime says how
            model.CopyFrom(inliner.inline_selected_functions(model, own))


def _tell_known(known: int) -> str:
    import onnxruntime

    return f"the newest that ONNX Runtime {onnxruntime.__version__} knows is {known}"


def _every_opset(model: ModelProto) -> Iterator[OperatorSetIdProto]:
    yield from model.opset_import
    for function in model.functions:
        yield from function.opset_import


@lru_cache(maxsize=32)
def _find_known(domain: str, opset: int) -> int:
    """Return the newest opset of a domain that ONNX Runtime loads, at most this one."""
    if opset <= ESTABLISHED_OPSET:
        return opset
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "version", ends[:1], ends[1:])
    most = _AHEAD + int(helper.VERSION_TABLE[-1][2 + bool(domain)])
    for version in range(min(opset, most), 0, -1):
        opsets = {"": ESTABLISHED_OPSET, domain: version}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()])
        model.ir_version = LEAST_IR
        with contextlib.suppress(Exception):  # of the library's own kinds
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return version
    return opset


def _find_new_operator(model: ModelProto, domain: str, newest: int, known: int) -> str | None:
    """Say which operator of an opset isn't that of an older one; None if there is none, "" if nothing is known."""
    described = int(helper.VERSION_TABLE[-1][2 + bool(domain)])
    if newest > described:
        return ""
    used = {node.op_type for node in every_node(model) if _STANDARD.get(node.domain) == domain}
    new = next((one for one in sorted(used) if not _is_same(one, domain, newest, known)), None)
    return None if new is None else f", and its {new} changed since opset {known}"


def _is_same(operator: str, domain: str, newest: int, known: int) -> bool:
    """Return whether an operator means the same in two opsets, types apart: a runtime refuses types that it lacks."""
    try:
        schemas = [defs.get_schema(operator, version, domain) for version in (newest, known)]
    except defs.SchemaError:  # unknown in one of them, or a function of the model's own
        return False
    later, earlier = (
        (
            one.doc,
            [(parameter.name, parameter.option) for parameter in (*one.inputs, *one.outputs)],
            {name: (own.type, own.required, str(own.default_value)) for name, own in one.attributes.items()},
        )
        for one in schemas
    )
    return schemas[0].since_version == schemas[1].since_version or later == earlier
