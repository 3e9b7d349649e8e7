"""Read a user's ONNX file: its header without the weights, the whole model, the precisions that it holds. Run a file as
it is written, and write models.

Nothing outside the model's own folder is ever opened: a file from elsewhere could name any path on this machine as its
external data. If the model is a link, as in Hugging Face's cache, the folder of its real file counts as well, which is
ONNX Runtime's rule too. So does the repository's own store of DVC or git-annex, whose files lie in a folder each.

The header takes half a millisecond however large the file is. `onnx.load` takes 0.15 s and 200 MB of memory for each
100 MB of weights inside the file, since Protobuf's own parser reads all of a message. Completion, a dry run and the
start of each run would pay that. So the file is mapped, and the contents of tensors are stepped over before anything is
parsed.
"""

from __future__ import annotations

import heapq
import json
import math
import mmap
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import category

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_model, uses_external_data

from shootout.core.contract import Array, Arrays, Precision
from shootout.core.errors import ModelError, UsageError, tell_refusal, tell_words
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import sha256
from shootout.models.onnx import CLASSICAL_DOMAIN, INLINE_BYTES
from shootout.models.onnx.effort import beside

WHOLE = "shootout.whole"
"""The property of a model without its weights that tells of them."""
KEPT_BYTES = 1 << 12
"""Shapes, thresholds and normalizations are smaller; weights that matter for time are larger."""
NAN_READERS = frozenset({"IsNaN", "Imputer"})
"""Operators for which NaN is a missing value."""
_MOST_COPIED = 1 << 30
"""Ask the kernel to copy so many bytes at a time."""
_DATA = frozenset("raw_data float_data int32_data int64_data double_data uint64_data string_data".split())  # noqa: SIM905
_COMMENTS = frozenset(
    "doc_string metadata_props external_data quantization_annotation producer_name producer_version".split()  # noqa: SIM905
)
"""Fields that nothing here shows or uses as a key, or whose text is checked when it is read."""
_SHOWN = frozenset(
    f"onnx.{name}"
    for name in (
        "NodeProto.op_type",
        "NodeProto.domain",
        "OperatorSetIdProto.domain",
        "ValueInfoProto.name",
        "TensorShapeProto.Dimension.dim_param",
    )
)
"""Names that people read."""
_STEERING = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode's categories of controls, halves of pairs, and ends of lines and paragraphs."""
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reverse the order in which a text is shown."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""Protobuf's wire types, https://protobuf.dev/programming-guides/encoding/."""
_FLOATS: Mapping[int, Precision] = {
    TensorProto.FLOAT16: Precision.FP16,
    TensorProto.BFLOAT16: Precision.BF16,
    TensorProto.FLOAT8E4M3FN: Precision.FP8,
    TensorProto.FLOAT8E4M3FNUZ: Precision.FP8,
    TensorProto.FLOAT8E5M2: Precision.FP8,
    TensorProto.FLOAT8E5M2FNUZ: Precision.FP8,
}
_NARROWEST = frozenset({TensorProto.INT4, TensorProto.UINT4})
_STORES = (".git/annex/objects", ".dvc/cache")
"""The folders of a repository in which programs that put links in place of large files keep the files."""
_QUANTIZED = re.compile("Quantize|Integer|^QLinear|^QGemm$|^QAttention$|^MatMulNBits$|^MatMulBnb4$|BlockQuantized$")
"""Operators that read or write numbers of a few bits, ONNX's own and those of ONNX Runtime's domain."""
_IN_BLOCKS = re.compile("^MatMulNBits$|^MatMulBnb4$|^GatherBlockQuantized$")
"""Operators whose weights are packed into bytes, so that no type shows their bits."""
_BITS = 4
"""The bits of such an operator if it doesn't say."""


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
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error


@lru_cache(maxsize=8)
def _read_header(path: Path, _mtime_ns: int, _size: int) -> ModelProto:
    model = ModelProto()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model.ParseFromString(bytes(_without_data(data, 0, len(data), ModelProto.DESCRIPTOR)))
    except (DecodeError, ValueError, RecursionError) as error:  # an empty file can't be mapped
        raise ModelError(f"{path} is not an ONNX model, or is cut short ({error}); export it again") from error
    if not all(
        isinstance(text, str) and not (is_shown and _is_misleading(text)) for text, is_shown in _names_in(model)
    ):
        raise ModelError(f"{path} is not an ONNX model: its names aren't valid text; export it again")
    if not model.graph.output:
        raise ModelError(f"{path} is not an ONNX model: it has no graph with an output; export it again")
    return model


def _is_misleading(text: str) -> bool:
    """Return whether a text would steer a terminal, or show something else than is written."""
    return not text.isprintable() and any(one in _DIRECTIONS or category(one) in _STEERING for one in text)


def _names_in(message: Any) -> Iterator[tuple[str | bytes, bool]]:
    """Yield every name in a message, and whether it is shown; bytes if it isn't Unicode, which protobuf permits.

    Comments are none.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name not in _COMMENTS:
            is_shown = field.full_name in _SHOWN
            yield from ((one, is_shown) for one in (value if _is_repeated(value) else [value]))
        elif field.message_type is not None and field.name not in _COMMENTS:
            for one in value if _is_repeated(value) else [value]:
                yield from _names_in(one)


def _is_repeated(value: Any) -> bool:
    return not isinstance(value, str | bytes) and hasattr(value, "__len__")


def _without_data(data: mmap.mmap, at: int, end: int, kind: Any) -> bytearray:
    """Copy a message of this kind (a protobuf descriptor) as written, but without the contents of large tensors."""
    slim = bytearray()
    while at < end:
        start = at
        tag, at = _read_varint(data, at)
        at, after = _contents_of_field(data, at, end, tag & 7)
        field = kind.fields_by_number.get(tag >> 3)
        if after - at <= KEPT_BYTES:
            slim += data[start:after]
        elif field is not None and field.message_type is not None:
            inner = _without_data(data, at, after, field.message_type)
            slim += _write_varint(tag) + _write_varint(len(inner)) + inner
        elif kind is not TensorProto.DESCRIPTOR or field is None or field.name not in _DATA:
            slim += data[start:after]
        at = after
    return slim


def _contents_of_field(data: mmap.mmap, at: int, end: int, wire: int) -> tuple[int, int]:
    """Find the start and the end of a field's contents, in a message that ends at `end`.

    Raises:
        ValueError: they reach beyond it, or are of a kind that ONNX doesn't have.
    """
    if wire == _BYTES:
        size, at = _read_varint(data, at)
        after = at + size
    elif wire == _VARINT:
        after = _read_varint(data, at)[1]
    elif wire in (_EIGHT, _FOUR):
        after = at + (8 if wire == _EIGHT else 4)
    else:
        raise ValueError(f"wire type {wire}")
    if after > end:
        raise ValueError("a field reaches beyond its end")
    return at, after


def _read_varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Read the number at this place; return it and its end.

    Raises:
        ValueError: it doesn't end.
    """
    value = 0
    for index, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number doesn't end")


def _write_varint(value: int) -> bytearray:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return out


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
    if not any(file.is_relative_to(one) for one in _folders_of(model)):
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


def _folders_of(model: Path) -> list[Path]:
    """Return the folders in which a model's weights may lie; a store that is a link leads anywhere, so it is none."""
    folder = model.parent.resolve()
    return [folder, model.resolve().parent, *(above / one for above in (folder, *folder.parents) for one in _STORES)]


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


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; file systems that can (XFS, Btrfs) have its content on the disk once.

    A link would save the space anywhere, but ONNX refuses linked weights, and what is written into the one file would
    change the other.
    """
    try:
        with source.open("rb") as read, target.open("wb") as write:
            while os.copy_file_range(read.fileno(), write.fileno(), _MOST_COPIED):
                pass
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _copy_weights(outside: Sequence[TensorProto], source: Path, path: Path) -> None:
    """Copy the files that hold these tensors to `path`'s folder, and give the tensors their new names."""
    names, files = dict.fromkeys(ExternalDataInfo(tensor).location for tensor in outside), external_files(source)
    copies = {name: f"{path.name}.data{f'-{number}' if number else ''}" for number, name in enumerate(names)}
    for name, copy in copies.items():
        path.with_name(copy).unlink(missing_ok=True)
        copy_file(files[name], path.with_name(copy))
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
            raise ModelError(f"no reference outputs: ONNX Runtime can't load {name}: {tell_words(error)}") from error
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
    """Put each node behind those whose values it or its branches read; what is in order stays so.

    Libraries that sort a graph look at a node's own inputs alone.
    """
    nodes = [*graph.node]
    makers = {name: at for at, node in enumerate(nodes) for name in node.output}
    waits = [{makers[name] for name in names_read(node) if name in makers} for node in nodes]
    readers: dict[int, list[int]] = {}
    for at, before in enumerate(waits):
        for maker in before:
            readers.setdefault(maker, []).append(at)
    ready = [at for at, before in enumerate(waits) if not before]  # ascending, so a heap
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for at in readers.get(order[-1], ()):
            waits[at].discard(order[-1])
            if not waits[at]:
                heapq.heappush(ready, at)
    if order != [*range(len(nodes))]:
        del graph.node[:]
        graph.node.extend(nodes[at] for at in order)


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
