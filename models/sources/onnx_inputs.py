"""Find out what an ONNX file's inputs are, from the first operations that read them and from their names.

They may be pictures, tokens, masks, sound, states or thresholds, so drawn inputs are of the kind that the model was
made for. A wrong guess does little harm: the output says how an input is drawn, and real ones can be given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper

from shootout.core.contract import Array, TensorSpec
from shootout.models import drawing
from shootout.models.drawing import InputWay
from shootout.models.onnx.onnx_axes import free_axes, true_inputs
from shootout.models.onnx.onnx_files import graphs_inside

MOVES = frozenset(
    (
        *("Identity", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Flatten", "Expand", "Pad"),
        *("Slice", "Concat", "Split", "Clip", "Tile", "Gather", "Resize", "SpaceToDepth", "QuantizeLinear"),
        *("DequantizeLinear", "DynamicQuantizeLinear"),
    )
)
"""Operators that pass on the values of their first input (Concat those of all)."""
SCALES = frozenset({"Sub", "Add", "Mul", "Div", "BatchNormalization"})
"""Operators with which files normalize their inputs."""
CONVS = frozenset({"Conv", "ConvInteger", "QLinearConv", "FusedConv", "NhwcConv", "QLinearAveragePool", "MaxPool"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"})
FIRST_STATE = 5
"""The first of their inputs that is a state."""
TABLE_OF = {"Gather": {1: 0}, "EmbedLayerNormalization": {0: 2, 1: 4}}
"""By operator: the input with the row numbers, and the input that is the table."""
ARITHMETIC: Mapping[str, np.ufunc] = {
    "Sub": np.subtract,
    "Add": np.add,
    "Mul": np.multiply,
    "Div": np.divide,
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}
"""Operators that make another number of a mask's 0 or 1 and of a stored one."""
HIDDEN = -1e3
"""A number that hides a score, in its place or added to it, is below this: -1e4, half's least number, or -infinity."""
WHOLE_MOVES = {"Where": (1, 2), "Max": (0, 1), "Min": (0, 1), **dict.fromkeys(("Mod", "Neg", "Abs", "Relu"), (0,))}
"""By operator that often stands before a table: from which inputs it passes values on, changed as `_before` knows."""
BOUNDING = frozenset({"Clip", *WHOLE_MOVES})
"""Operators after which a number that was beyond a table may lie in it."""
MOST_STEPS = 400
"""Follow so many values from an input: its kind shows early."""
BYTE = 255
FEW_PIXELS, FEW_SAMPLES = 8, 200
RATE = 16_000
"""The sample rate of sound in most models of speech."""

_PICTURE = frozenset({"image", "img", "picture", "pixel", "frame", "photo", "rgb"})
_SOUND = frozenset({"audio", "wav", "wave", "waveform", "speech", "sound", "pcm"})
_STATE = frozenset("h c h0 c0 hx cx hn cn hidden cell state mem memory cache past".split())  # noqa: SIM905
_LENGTH = frozenset({"length", "len"})
_RATE = frozenset({"sr", "rate", "samplerate"})
_NUMBER = {
    "iou": 0.45,
    "threshold": 0.25,
    "thresh": 0.25,
    "conf": 0.25,
    "score": 0.25,
    "speed": 1,
    "scale": 1,
    "temperature": 1,
    "fmin": 50,
    "fmax": 2_000,
}
"""Usual values of lone floats, by a word of their names; frequencies in hertz."""
_OLD_OR_NEW = frozenset({"in", "out", "prev", "next", "old", "new", "input", "output", "past", "present"})


def ways(model: ModelProto, specs: Sequence[TensorSpec], states: Collection[str] = ()) -> dict[str, InputWay]:
    """Decide how to draw each input.

    Args:
        model: with or without its weights.
        specs: its inputs at the sizes that they will have.
        states: those that calls of a stream hand on, which begin as zeros.
    """
    reader = _GraphReader.of(model)
    begun = drawing.constant(0, "zeros, a state at its start")
    found = {spec.name: begun if spec.name in states else _choose_way(reader, spec, specs) for spec in specs}
    if any(way.varies for way in found.values()) or len(states) == len(specs):
        return found
    others = [spec for spec in specs if spec.name not in states]
    first = next((spec for spec in others if np.dtype(spec.dtype).kind == "f"), others[0])
    return {**found, first.name: drawing.usual(first)}  # a call must not be the same each time


def row_numbers(model: ModelProto) -> dict[str, range]:
    """Return which values the inputs that are row numbers of stored tables may have, as far as the graph shows it.

    Numbers below zero count from a table's end. What the graph itself bounds, such as by Mod, has no range.
    """
    reader, found = _GraphReader.of(model), dict[str, range]()
    for info in true_inputs(model):
        ends = [use for use in reader.ends(info.name) if use.node.op_type in TABLE_OF]
        plain = (use for use in ends if all(node.op_type not in BOUNDING for node, _ in use.passed))
        if rows := _table_rows(reader, list(plain)):
            found[info.name] = rows if rows.start else range(-rows.stop, rows.stop)
    return found


def notes(found: Mapping[str, InputWay]) -> tuple[str, ...]:
    """Return the notes on a row's drawn inputs."""
    return (f"inputs are drawn: {'; '.join(f'{name}: {way.told}' for name, way in found.items())}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """Hold one operation that an input reaches, at which of its inputs, and the operations on the way."""

    node: NodeProto
    at: int
    passed: tuple[tuple[NodeProto, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _GraphReader:
    """Look up the readers of each value, inside branches and loops too, and what is stored."""

    model: ModelProto
    uses: Mapping[str, list[tuple[NodeProto, int]]]
    stored: Mapping[str, TensorProto]
    made: Mapping[str, NodeProto] = field(default_factory=dict)
    returned: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: ModelProto) -> _GraphReader:
        try:
            flat = inliner.inline_local_functions(model) if model.functions else model
        except Exception:  # a stranger's functions may contradict each other: what they do isn't looked into then
            flat = model
        uses: dict[str, list[tuple[NodeProto, int]]] = {}
        stored: dict[str, TensorProto] = {}
        made: dict[str, NodeProto] = {}
        returned: dict[str, str] = {}
        for graph in (flat.graph, *graphs_inside(flat.graph.node)):
            stored |= {tensor.name: tensor for tensor in graph.initializer}
            for node in graph.node:
                made |= dict.fromkeys(node.output, node)
                for branch in (one.g for one in node.attribute if node.op_type == "If"):
                    returned |= dict(zip((out.name for out in branch.output), node.output, strict=False))
                stored |= dict(zip(node.output, _constant_tensors(node), strict=False))
                for at, name in enumerate(node.input):
                    uses.setdefault(name, []).append((node, at))
        return cls(model=flat, uses=uses, stored=stored, made=made, returned=returned)

    def ends(self, name: str, also: Mapping[str, Collection[int]] = MappingProxyType({})) -> Iterator[_Use]:
        """Yield the operations that do something with an input's values, the nearest first.

        Args:
            also: further operators that pass values on, and from which of their inputs.
        """
        waiting, seen = [(name, tuple[tuple[NodeProto, int], ...]())], {name}
        for value, passed in waiting:  # which grows
            if (outside := self.returned.get(value)) and outside not in seen:  # a branch gives it to its If
                seen.add(outside)
                waiting.append((outside, passed))
            for node, at in self.uses.get(value, ()):
                yield _Use(node=node, at=at, passed=passed)
                after = list(node.output) if at in also.get(node.op_type, ()) else self._next_values(node, at)
                more = [one for one in after if one and one not in seen]
                seen |= {*more}
                waiting += [(one, (*passed, (node, at))) for one in more]
            if len(seen) > MOST_STEPS:
                return

    def _next_values(self, node: NodeProto, at: int) -> list[str]:
        """Return the values that hold an input's own after this operation."""
        if node.op_type in ("Loop", "Scan"):
            inside = next(one.g for one in node.attribute if one.name == "body").input
            return [str(inside[at].name)] if at < len(inside) else []
        if node.op_type in MOVES and (at == 0 or node.op_type == "Concat"):
            return list(node.output[:1] if node.op_type == "DynamicQuantizeLinear" else node.output)
        if node.op_type in SCALES and any(self.values(name) is not None for name in node.input if name):
            return list(node.output[:1])
        return []

    def values(self, name: str) -> Array | None:
        """Return what is stored under this name; None if nothing is, or the weights aren't at hand."""
        try:
            return np.asarray(numpy_helper.to_array(self.stored[name]))
        except Exception:  # not stored, left out of the header, or beside the file
            return None

    def lone_value(self, name: str) -> float | None:
        """Return the number that a stored tensor holds everywhere, also one that is only then spread out."""
        while name not in self.stored and name in self.made and self.made[name].op_type in MOVES:
            name = self.made[name].input[0]
        values = self.values(name)
        same = values is not None and values.size and values.dtype.kind in "bfiu" and (values == values.flat[0]).all()
        return float(values.flat[0]) if values is not None and same else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a stored tensor, also one that is stored quantized."""
        turned: list[Sequence[int]] = []
        while name not in self.stored and name in self.made and self.made[name].op_type in MOVES | SCALES:
            maker = self.made[name]
            if maker.op_type == "Transpose":
                turned.append(next((one.ints for one in maker.attribute if one.name == "perm"), (1, 0)))
            name = maker.input[0]
        if name not in self.stored:
            return None
        dims = tuple(self.stored[name].dims)
        for axes in reversed(turned):
            dims = tuple(dims[at] for at in axes) if len(axes) == len(dims) else dims
        return dims


def _choose_way(reader: _GraphReader, spec: TensorSpec, specs: Sequence[TensorSpec]) -> InputWay:
    if len(spec.shape) == 2 and (thresholds := _find_thresholds(reader, spec)):
        return drawing.between_thresholds(thresholds)
    words, kind = _words_of(spec.name), np.dtype(spec.dtype).kind
    ends = list(reader.ends(spec.name))
    if (channels := _channel_axis(spec)) is not None and _is_picture(spec, words, ends):
        low, high = _pixel_range(reader, spec, words, ends)
        return drawing.picture(low, high, channels)
    hides = _find_hidden(reader, spec.name) if "mask" in spec.name.lower() or kind == "b" else None
    if "mask" in spec.name.lower() or (hides is not None and len(spec.shape) > 1):
        return drawing.mask(hides=hides)
    if kind == "b":
        return drawing.constant(0, "false") if spec.shape in ((), (1,)) else drawing.usual(spec)
    if kind == "f":
        return _float_way(reader, spec, specs, ends)
    return _integer_way(reader, spec, specs, ends)


def _find_hidden(reader: _GraphReader, name: str) -> bool | None:
    """Return whether a mask's ones hide what they stand at, or its zeros do; None if the graph doesn't show it.

    It shows what 0 and 1 become on the way to the scores: one of them a number that no score reaches.
    """
    waiting, seen = [(name, (0.0, 1.0))], {name}
    for value, ends in waiting:  # which grows
        for node, at in reader.uses.get(value, ()):
            zero, one = _follow_mask(reader, node, at, ends)
            is_hidden = [end is not None and end <= HIDDEN for end in (zero, one)]
            if is_hidden[0] != is_hidden[1]:
                return is_hidden[1]
            if zero is not None and one is not None:
                more = [each for each in node.output if each and each not in seen]
                seen |= {*more}
                waiting += [(each, (zero, one)) for each in more]
        if len(seen) > MOST_STEPS:
            return None
    return None


def _follow_mask(
    reader: _GraphReader, node: NodeProto, at: int, ends: tuple[float, float]
) -> tuple[float | None, float | None]:
    """Return what an operation makes of a mask's 0 and 1, which are `ends` before it; None for what isn't stored."""
    kind, (zero, one) = node.op_type, ends
    if (kind in MOVES and at == 0) or kind in ("Concat", "And", "Or"):
        return ends
    if kind == "Not":
        return float(not zero), float(not one)
    if kind == "Where" and at == 0:
        kept, other = map(reader.lone_value, node.input[1:])
        return (kept if zero else other), (kept if one else other)
    if kind in ARITHMETIC and (number := reader.lone_value(node.input[1 - at])) is not None:
        both = (ends, number) if at == 0 else (number, ends)
        with np.errstate(all="ignore"):
            zero, one = np.asarray(ARITHMETIC[kind](*both), float).tolist()
        return zero, one
    return None, None


def _float_way(reader: _GraphReader, spec: TensorSpec, specs: Sequence[TensorSpec], ends: Sequence[_Use]) -> InputWay:
    words = _words_of(spec.name)
    casts = [use for use in ends if all(node.op_type not in SCALES for node, _ in use.passed)]
    if rows := _table_rows(reader, casts):  # whole numbers, as a float
        return drawing.below(rows.stop, rows.start)
    if len(specs) > 1 and (words & _STATE or _is_state(reader, spec, ends)):
        return drawing.constant(0, "zeros, a state at its start")
    if spec.shape in ((), (1,)):
        limits = [use.at for use in ends if use.node.op_type == "NonMaxSuppression"]
        asked = {*words, *(["iou"] if 3 in limits else []), *(["score"] if 4 in limits else [])}
        if word := next((one for one in _NUMBER if one in asked), ""):
            return drawing.constant(_NUMBER[word])
        return InputWay(told="a number in [0, 1]", draw=lambda rng, shape: np.asarray(rng.random(shape)))
    return drawing.sound(_longest_axis(spec)) if _is_sound(reader, spec, words, ends) else drawing.usual(spec)


def _integer_way(reader: _GraphReader, spec: TensorSpec, specs: Sequence[TensorSpec], ends: Sequence[_Use]) -> InputWay:
    words, is_one = _words_of(spec.name), spec.shape in ((), (1,))
    rows = _table_rows(reader, list(reader.ends(spec.name, WHOLE_MOVES)))
    if "position" in words and not (rows and rows.start):
        return drawing.positions(rows.stop if rows else None)
    if words & {"type", "segment"} and rows:
        return drawing.token_types(rows.stop)
    if rows:
        return drawing.below(rows.stop, rows.start)
    if (compared := _compared_values(reader, ends)) is not None:
        return drawing.constant(float(compared[0])) if is_one else drawing.among(compared.tolist())
    if words & _LENGTH:
        size = _longest_sequence(reader, spec, specs)
        return drawing.constant(size, f"{size}, the whole length")
    if words & _RATE:
        return drawing.constant(RATE)
    if _comes_to(ends, {"NonMaxSuppression"}, 2):
        return drawing.constant(100)
    return drawing.constant(1) if is_one else drawing.usual(spec)


def _find_thresholds(reader: _GraphReader, spec: TensorSpec) -> dict[int, Array]:
    """Return the thresholds of each feature of an input that ensembles of trees read as it is; none of others."""
    found: dict[int, list[float]] = {}
    for node, _ in reader.uses.get(spec.name, ()):
        told = {one.name: one for one in node.attribute}
        if not node.op_type.startswith("TreeEnsemble") or not {"nodes_modes", "nodes_values"} <= told.keys():
            continue
        nodes = (told[name] for name in ("nodes_featureids", "nodes_values", "nodes_modes"))
        features, values, modes = (one.ints if one.ints else one.floats if one.floats else one.strings for one in nodes)
        for feature, value, mode in zip(features, values, modes, strict=True):
            if mode != b"LEAF":
                found.setdefault(feature, []).append(value)
    return {feature: np.unique(np.asarray(values)) for feature, values in found.items()}


def _words_of(name: str) -> frozenset[str]:
    """Split a name into its words, in lower case, one of each kind: `pixelValues.1` → pixel, value."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " "))
    return frozenset(re.sub(r"(?<=[a-z]{3})s$", "", word) for word in re.findall(r"[a-z]+\d*", apart.lower()))


def _channel_axis(spec: TensorSpec) -> int | None:
    """Return the axis of the colors of pictures and films, if there are one or three and both sides are long enough."""
    rank = len(spec.shape)
    if rank not in (4, 5) and not (rank == 3 and spec.dtype == "uint8"):
        return None
    batch = rank > 3
    for at in (batch, rank - 1):
        sides = [size for axis, size in enumerate(spec.shape) if axis != at][-2:]
        if spec.shape[at] in (1, 3) and min(sides) >= FEW_PIXELS:
            return at
    return None


def _is_picture(spec: TensorSpec, words: frozenset[str], ends: Sequence[_Use]) -> bool:
    if np.dtype(spec.dtype).kind not in "fu":
        return False
    return (
        spec.dtype == "uint8"
        or bool(words & _PICTURE)
        or any(use.node.op_type in CONVS and use.at == 0 for use in ends)
    )


def _pixel_range(
    reader: _GraphReader, spec: TensorSpec, words: frozenset[str], ends: Sequence[_Use]
) -> tuple[float, float]:
    """Return black and white: a byte's, if the graph itself scales bytes; transformers' own, if the name is theirs."""
    if spec.dtype == "uint8" or any(_scales_bytes(reader, use.node, use.at) for use in ends):
        return 0, BYTE
    return (-2, 2) if {"pixel", "value"} <= words else (0, 1)


def _scales_bytes(reader: _GraphReader, node: NodeProto, at: int) -> bool:
    if node.op_type not in SCALES or (node.op_type == "BatchNormalization" and at):
        return False
    other = 3 if node.op_type == "BatchNormalization" else 1 - at
    values = reader.values(node.input[other]) if other < len(node.input) else None
    if values is None or not values.size or values.dtype.kind != "f":
        return False
    size = float(np.abs(values.astype(np.float64)).mean())
    return size < 1 / 30 if node.op_type == "Mul" else size > 10


def _is_sound(reader: _GraphReader, spec: TensorSpec, words: frozenset[str], ends: Sequence[_Use]) -> bool:
    """Return whether it is one long row of samples that a filter goes over."""
    along = _longest_axis(spec)
    if spec.shape[along] < FEW_SAMPLES or any(size > 2 for at, size in enumerate(spec.shape) if at not in (0, along)):
        return False
    filters = [reader.shape(use.node.input[1]) for use in ends if use.node.op_type in CONVS and len(use.node.input) > 1]
    over_time = any(shape and len(shape) > 2 and sum(size > 1 for size in shape[2:]) <= 1 for shape in filters)
    return over_time or bool(words & _SOUND) or _comes_to(ends, {"STFT"}, 0)


def _longest_axis(spec: TensorSpec) -> int:
    """Return the longest axis behind the first."""
    return max(range(1, len(spec.shape)), key=lambda at: spec.shape[at], default=0)


def _is_state(reader: _GraphReader, spec: TensorSpec, ends: Sequence[_Use]) -> bool:
    """Return whether a recurrent operator starts from it, or an output of its rank and name is its next value."""
    if any(use.node.op_type in RECURRENT and use.at >= FIRST_STATE for use in ends):
        return True
    name = _state_stem(spec.name)
    given = {one.name for one in reader.model.graph.input}  # handed through, so no next value
    later = {_state_stem(one.name) for one in reader.model.graph.output if one.name not in given}
    return bool(name) and bool(later & {name, f"{name}n"}) and len(spec.shape) > 1


def _state_stem(name: str) -> str:
    """Return a state's name without the word for old or new: `in_cache1`, `cache_out1` → cache."""
    return "".join(word for word in re.findall(r"[a-z]+", name.lower()) if word not in _OLD_OR_NEW)


def _comes_to(ends: Sequence[_Use], operators: Set[str], at: int) -> bool:
    return any(use.node.op_type in operators and use.at == at for use in ends)


def _table_rows(reader: _GraphReader, ends: Sequence[_Use]) -> range | None:
    """Return the values of an input that are rows of all tables that it is an index of; None if it is none."""
    found: tuple[float, float] | None = None
    for use in ends:
        table = TABLE_OF.get(use.node.op_type, {}).get(use.at)
        shape = None if table is None else reader.shape(use.node.input[table])
        count = None
        if shape:
            count = shape[next((one.i for one in use.node.attribute if one.name == "axis"), 0)]
        if use.node.op_type == "OneHot" and use.at == 0 and (depth := reader.values(use.node.input[1])) is not None:
            count = int(depth.reshape(-1)[0])
        if not count:
            continue
        low, high = 0.0, count - 1.0
        for node, at in reversed(use.passed):
            low, high = _before(reader, node, at, low, high)
        low, high = np.ceil(max(low, 0.0) if high >= 0 else low), np.floor(high)
        both = (max(low, found[0]), min(high, found[1])) if found else (low, high)
        found = both if both[0] <= both[1] else found
    return range(int(found[0]), int(found[1]) + 1) if found else None


def _before(reader: _GraphReader, node: NodeProto, at: int, low: float, high: float) -> tuple[float, float]:
    """Return between which values an operation's input may lie, if its output shall lie between these."""
    if node.op_type == "Neg":
        return -high, -low
    values = reader.values(node.input[1 - at]) if len(node.input) == 2 and at < 2 else None
    if values is None or not values.size or values.dtype.kind not in "iuf":
        return low, high
    least, most = float(values.min()), float(values.max())
    match node.op_type, at:
        case "Add", _:
            return low - least, high - most
        case "Sub", 0:
            return low + most, high + least
        case "Sub", _:
            return most - high, least - low
        case "Mul", _ if least > 0:
            return low / least, high / most
        case "Div", 0 if least > 0:
            return low * most, high * least + (least - 1 if values.dtype.kind in "iu" else 0)
        case "Mod", 0 if least > 0:
            return max(low, 0), min(high, least - 1)
    return low, high


def _compared_values(reader: _GraphReader, ends: Sequence[_Use]) -> Array | None:
    """Return what the graph itself compares an input with, such as the sample rates that it knows."""
    for use in ends:
        if use.node.op_type == "Equal" and (values := reader.values(use.node.input[1 - use.at])) is not None:
            return np.unique(values) if values.size > 1 else values.reshape(-1)
    return None


def _longest_sequence(reader: _GraphReader, spec: TensorSpec, specs: Sequence[TensorSpec]) -> int:
    """Return the length of the sequence that an input counts: the longest free axis behind the first of any other."""
    free = free_axes(reader.model)
    others = [(one, free.get(one.name, ())) for one in specs if one.name != spec.name and len(one.shape) > 1]
    sizes = [one.shape[at] for one, axes in others for at in axes if at]
    return max(sizes, default=max((one.shape[1] for one, _ in others), default=1))


def _constant_tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Yield the tensor of a constant node, however it is written."""
    if node.op_type != "Constant":
        return
    for one in node.attribute:
        if one.name == "value":
            yield one.t
        elif one.name in ("value_int", "value_ints"):
            whole = [one.i] if one.name == "value_int" else list(one.ints)
            yield helper.make_tensor("", TensorProto.INT64, [len(whole)], whole)
        elif one.name in ("value_float", "value_floats"):
            floats = [one.f] if one.name == "value_float" else list(one.floats)
            yield helper.make_tensor("", TensorProto.FLOAT, [len(floats)], floats)
