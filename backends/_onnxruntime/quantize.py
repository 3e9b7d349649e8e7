"""ONNX Runtime's own quantizers: static INT8 as Q/DQ pairs, dynamic INT8, and weights in blocks (MatMulNBits).

On x86 its INT8 kernels take U8 activations and S8 weights, so those are the default here. Without VNNI they clip, and
weights get 7 bits, as Microsoft advises. On ARM S8 is the fast form of both, and the default. ONNX Runtime has S8 as
its own default on x86 too (`s8s8`). There it turns a pair into U8 only if a single node reads it: in a residual net no
product runs in INT8, and every one gets conversions around it.

Biases stay float in the file (ONNX Runtime folds them into its INT8 kernels by itself). Histograms are collected one
set at a time, which bounds their memory. Without a second set to merge, ONNX Runtime's entropy search has one
candidate, the whole range.

MatMulNBits multiplies float activations by weights of 4 or 8 bits. Its `accuracy_level` lets it round activations to 8
bits, block by block, as they come. Only then has it kernels for 8-bit weights: otherwise it makes float ones of them in
each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends import common_onnx
from shootout.backends.common import calibration_of, prefers_signed
from shootout.core.contract import Arm, Arrays, Device, Option, Precision
from shootout.core.errors import SkippedArm
from shootout.core.host.environment import SEVEN_BITS, saturates
from shootout.core.schemes import Scheme, parse
from shootout.models.onnx.layers import is_product
from shootout.quantize import ort
from shootout.quantize.ort import CalibrationReader, quietly

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

    from shootout.core.exported.model import ExportedModel

S8S8, N_BITS = "s8s8", "matmul-nbits"
OWN = (S8S8, N_BITS)
"""ONNX Runtime's own words in a scheme: static INT8 with S8 activations, and dynamic INT8 by MatMulNBits."""
SCHEMES: Mapping[Precision, frozenset[str]] = {
    Precision.INT8: frozenset(
        {"per-channel", "per-tensor", "symmetric", "asymmetric", "minmax", "entropy", "percentile", "samples-*"}
        | {"weights-only", "rest-fp16", "rest-fp32", "float-*", "shared", S8S8}
    ),
    Precision.INT8_DYNAMIC: frozenset({"per-channel", "per-tensor", "float-*", N_BITS}),
    Precision.INT4: frozenset({"symmetric", "asymmetric", "activations-8", "float-*", "gptq", "hqq", "k-quant"}),
}
BLOCK_SIZE = "block_size"
QUANTIZED = "quantized.onnx"
"""The quantizer's file, in a build's folder: the graph before it is optimized."""
OPTIONS = (
    Option(
        name=BLOCK_SIZE,
        help="weights that share a scale in MatMulNBits (128)",
        values=("16", "32", "64", "128", "256"),
        devices=frozenset({Device.CPU}),
        modes=frozenset({""}),
        precisions=frozenset(SCHEMES),
    ),
)
"""Options of an arm that is quantized."""
BLOCK = 128
"""The quantizer's own default."""
HQQ, GPTQ, K_QUANT = "hqq", "gptq", "k-quant"
PACKED = (GPTQ, K_QUANT)
"""Methods whose blocks ONNX Runtime packs by code of their own, which doesn't fill up the last one."""
ROUNDING = 4
"""The `accuracy_level` at which MatMulNBits may round activations to 8 bits."""


@dataclass(frozen=True, slots=True)
class Method:
    """One of the quantizers.

    Attributes:
        products: compute nodes that it takes.
        mark: what a model that it quantized has at least one of.
    """

    products: tuple[str, ...]
    mark: str


STATIC = Method(("MatMul", "Gemm", "Conv"), "QuantizeLinear")
DYNAMIC = Method(("MatMul", "Gemm", "Conv"), "DynamicQuantizeLinear")
BLOCKS = Method(("MatMul", "Gemm"), "MatMulNBits")
KEPT_IN_INTEGERS = ("Gather", "Transpose", "EmbedLayerNormalization")
"""Operators whose outputs the dynamic quantizer leaves in integers."""
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze")
"""Operators that pass values on, which the optimizer takes pairs of Q/DQ across."""


def refuse_words(precision: Precision, scheme: Scheme) -> None:
    """Refuse words that the quantizer asked would not read beside each other.

    Raises:
        SkippedArm: says what to ask for.
    """
    if scheme.method == HQQ and (scheme.activations or scheme.symmetry == "symmetric"):
        reason = "HQQ's zero points are fractions: neither symmetric, nor for MatMulNBits' integer kernels"
        raise SkippedArm(reason, "use int4/hqq, or int4/gptq+activations-8")
    if scheme.method == K_QUANT and scheme.symmetry == "symmetric":
        reason = "ONNX Runtime's k-quant gives each block a zero point, whatever is asked"
        raise SkippedArm(reason, "use int4/k-quant, or int4/gptq+symmetric")
    if scheme.own == N_BITS and scheme.granularity:
        reason = f"MatMulNBits has a scale for each block of weights, never {scheme.granularity}"
        raise SkippedArm(reason, f"use {precision}/{N_BITS}, or {precision}/{scheme.granularity}")


def refuse_options(arm: Arm) -> None:
    """Refuse an option of a quantizer that isn't asked.

    Raises:
        ValueError: names the label.
    """
    target = arm.target
    in_blocks = target.precision in SCHEMES and _choose_method(target.precision, parse(target.scheme, OWN)) is BLOCKS
    if BLOCK_SIZE in arm.options and not in_blocks:
        what = str(target).rpartition(":")[2]
        raise ValueError(f"option {BLOCK_SIZE!r} is MatMulNBits' own, for int4 and int8/weights-only, not for {what}")


def quantize(source: Path, exported: ExportedModel, arm: Arm, scheme: Scheme, folder: Path) -> Path:
    """Write the float model at `source` into `folder` as ONNX Runtime's quantizer for the arm makes it.

    Raises:
        ValueError: nothing can be quantized, or the calibration data can't be used.
    """
    precision = arm.target.precision
    method = _choose_method(precision, scheme)
    sets = calibration_of(exported, scheme) if method is STATIC or scheme.method == GPTQ else []
    _require_operations(
        source,
        method.products,
        f"{precision} is for {', '.join(method.products)}, and none stands outside of branches and loops",
    )
    target = folder / QUANTIZED
    with quietly():
        prepared = ort.prepared(source, folder)
        passed = _take_passed_on(prepared)
        if method is STATIC:
            _flatten_biases(prepared)
            _quantize_static(prepared, target, sets, scheme, _name_floats(prepared, exported, scheme))
        else:
            _rewrite_gemm(prepared)
            floats = _name_floats(prepared, exported, scheme)
            if method is DYNAMIC:
                _quantize_dynamic(prepared, target, scheme, floats)
            else:
                _quantize_in_blocks(prepared, target, sets, scheme, arm, floats)
    _restore_order(target)
    _put_back(target, passed)
    _require_operations(target, [method.mark], f"ONNX Runtime's {precision} quantizer left every node as it was")
    return target


def notes_of(precision: Precision, scheme: Scheme) -> list[str]:
    """Return the notes of a quantized model's row: what this CPU cost its weights."""
    return [SEVEN_BITS.format("weights")] if saturates() and _choose_method(precision, scheme) is not BLOCKS else []


def is_own_static(arm: Arm) -> bool:
    """Tell whether ONNX Runtime's static quantizer makes an arm: the one that rounds all operators."""
    scheme = parse(arm.target.scheme, OWN)
    is_own = arm.target.precision in SCHEMES and not scheme.is_quantized
    return is_own and _choose_method(arm.target.precision, scheme) is STATIC


def _choose_method(precision: Precision, scheme: Scheme) -> Method:
    """Choose the quantizer that makes an integer precision."""
    if precision is Precision.INT4 or scheme.activations == "weights-only" or scheme.own == N_BITS:
        return BLOCKS
    return STATIC if precision is Precision.INT8 else DYNAMIC


def _name_floats(prepared: Path, exported: ExportedModel, scheme: Scheme) -> list[str]:
    """Return the names of the nodes that stay in float; one without a name gets it in the file.

    What follows a layer up to the next one stays with it: boxes and scores that a head puts into one tensor would share
    a scale.
    """
    if not scheme.floats:
        return []
    import onnx

    from shootout.models.onnx import onnx_files
    from shootout.models.onnx.layers import find_nodes, find_owners, layers_of

    model = onnx.load(prepared)
    layers = find_nodes(common_onnx.layers_in(exported), scheme.floats, model.graph.node)
    owners = find_owners(model, layers_of(model))
    numbers = {owners[node.output[0]] for node in layers}
    nodes = [node for node in model.graph.node if owners.get(node.output[0]) in numbers]
    nameless = [node for node in nodes if not node.name]
    for node in nameless:
        node.name = f"float_{node.output[0]}"
    if nameless:
        onnx_files.save(model, prepared)
    return [node.name for node in nodes]


def _release_reads(path: Path, floats: Collection[str]) -> None:
    """Let products of two activations in `floats` read values without Q/DQ pairs, past what only moves them.

    Such a product has no weight that the quantizer could leave alone, and what makes its operands gets pairs. With
    these ONNX Runtime multiplies integers whatever was excluded.
    """
    import onnx

    from shootout.models.onnx import onnx_files
    from shootout.quantize.qdq import ROUND, WIDEN

    model = onnx.load(path)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(info.name for info in graph.output)
    stored = {tensor.name for tensor in graph.initializer}

    def release(node: NodeProto, at: int) -> None:
        """Let a node read a value as it was before its pair, and likewise what only moved it for this node."""
        while (widen := makers.get(node.input[at])) and widen.op_type == WIDEN and widen.input[0] not in stored:
            readers[widen.output[0]] -= 1
            node.input[at] = makers[widen.input[0]].input[0]
            readers[node.input[at]] += 1
        maker = makers.get(node.input[at])
        if maker is not None and maker.op_type in MOVES:
            release(maker, 0)

    for node in graph.node:
        if node.name in floats and is_product(node.op_type) and not stored & {*node.input[:2]}:
            for at in range(len(node.input) if node.op_type == "Einsum" else 2):
                release(node, at)
    unread = set[str]()
    for node in reversed([*graph.node]):
        if node.op_type in (ROUND, WIDEN) and not any(readers[name] for name in node.output):
            readers.subtract(node.input)
            unread |= {name for name in node.input if not readers[name]}
            graph.node.remove(node)
    for tensor in [tensor for tensor in graph.initializer if tensor.name in unread]:
        graph.initializer.remove(tensor)
    onnx_files.save(model, path)


def _quantize_static(
    prepared: Path, target: Path, sets: Sequence[Arrays], scheme: Scheme, floats: Sequence[str]
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_static

    from shootout.models.onnx import onnx_files

    methods = {
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    options: dict[str, Any] = {"ActivationSymmetric": scheme.symmetry == "symmetric", "QuantizeBias": bool(floats)}
    if scheme.ranges in methods:
        options["CalibStridedMinMax"] = 1  # in spite of its name, for every method
    quantize_static(
        prepared,
        target,
        CalibrationReader(sets),
        activation_type=QuantType.QInt8 if scheme.own == S8S8 or prefers_signed() else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=saturates(),
        per_channel=scheme.granularity != "per-tensor",
        use_external_data_format=onnx_files.is_big(prepared),
        nodes_to_exclude=[*floats],
        calibrate_method=methods.get(scheme.ranges, CalibrationMethod.MinMax),
        extra_options=options,
    )
    if floats:
        _release_reads(target, floats)


def _quantize_dynamic(prepared: Path, target: Path, scheme: Scheme, floats: Sequence[str]) -> None:
    from onnxruntime.quantization import quantize_dynamic

    from shootout.models.onnx import onnx_files

    per_channel, big = scheme.granularity != "per-tensor", onnx_files.is_big(prepared)
    quantize_dynamic(
        prepared,
        target,
        per_channel=per_channel,
        reduce_range=saturates(),
        use_external_data_format=big,
        nodes_to_exclude=[*floats, *_name_read_inside(prepared)],
    )


def _name_read_inside(prepared: Path) -> list[str]:
    """Return the names of nodes that stay in float because branches and loops read their outputs, also moved.

    The quantizer would leave only an output in integers, and widens it for readers in the same graph alone. ONNX
    Runtime 1.31 aborts where it takes such a widening across what moves a value for a branch.
    """
    import onnx

    from shootout.models.onnx import onnx_files

    head = onnx_files.header(prepared).graph
    read = {name for node in head.node for name in {*onnx_files.names_read(node)} - {*node.input}}
    if not read:
        return []
    model = onnx.load(prepared)
    found = []
    for node in reversed(model.graph.node):
        if read & {*node.output} and node.op_type in (*KEPT_IN_INTEGERS, *MOVES):
            read |= {*node.input}
            node.name = node.name or f"float_{node.output[0]}"
            found.append(node.name)
    onnx_files.save(model, prepared)
    return found


def _quantize_in_blocks(
    prepared: Path, target: Path, sets: Sequence[Arrays], scheme: Scheme, arm: Arm, floats: Sequence[str]
) -> None:
    """Quantize weights in blocks, asymmetric by default; without an accuracy level, activations stay float.

    Raises:
        ValueError: GPTQ and k-quant can't pack this model's blocks.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    from shootout.models.onnx import onnx_files

    precision, block = arm.target.precision, int(arm.options.get(BLOCK_SIZE, BLOCK))
    rounds = precision is Precision.INT8_DYNAMIC or scheme.activations == "activations-8"
    quantizer = MatMulNBitsQuantizer(
        str(prepared),
        bits=4 if precision is Precision.INT4 else 8,
        block_size=block,
        is_symmetric=scheme.symmetry == "symmetric",
        accuracy_level=ROUNDING if rounds else None,
        nodes_to_exclude=[*floats],
        algo_config=_algorithm_config(scheme, sets, block),
    )
    try:
        quantizer.process()
    except ValueError as error:
        if scheme.method not in PACKED:
            raise
        rule = f"ONNX Runtime's {scheme.method} packs only layers whose inputs divide into blocks of {block}"
        raise ValueError(f"{rule}, and whose outputs and blocks are even in number: {error}") from error
    quantizer.model.topological_sort()
    onnx_files.save(quantizer.model.model, target)


def _algorithm_config(scheme: Scheme, sets: Sequence[Arrays], block: int) -> Any:
    """Return the quantizer's configuration of a method; None rounds each weight to the nearest."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    if scheme.method == HQQ:
        return nbits.HQQWeightOnlyQuantConfig(block_size=block, bits=4)
    if scheme.method == GPTQ:
        return nbits.GPTQWeightOnlyQuantConfig([dict(one) for one in sets], block_size=block)
    return nbits.KQuantWeightOnlyQuantConfig() if scheme.method == K_QUANT else None


def _flatten_biases(path: Path) -> None:
    """Give Gemm's biases one axis: ONNX Runtime makes Gemm of MatMul and Add, and its quantizer can't take `[1, n]`."""
    import onnx

    from shootout.models.onnx import onnx_files

    model = onnx.load(path)
    readers = Counter(name for node in model.graph.node for name in node.input)
    biases = {node.input[2] for node in model.graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    wide = [one for one in model.graph.initializer if one.name in biases and len(one.dims) == 2 and one.dims[0] == 1]
    own = [one for one in wide if readers[one.name] == 1]
    for tensor in own:
        del tensor.dims[0]
    if own:
        onnx_files.save(model, path)


def _rewrite_gemm(path: Path) -> None:
    """Make MatMul and Add of each Gemm in the file: dynamic quantization and MatMulNBits know MatMul only."""
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel

    from shootout.models.onnx import onnx_files

    model = ONNXModel(onnx.load(path))
    model.replace_gemm_with_matmul()
    # It transposes weights, and leaves what is known of their shapes as it was.
    graph = model.model.graph
    weights = {tensor.name for tensor in graph.initializer}
    for info in [info for info in graph.value_info if info.name in weights]:
        graph.value_info.remove(info)
    onnx_files.save(model.model, path)


def _take_passed_on(path: Path) -> list[tuple[int, ValueInfoProto]]:
    """Take from a file the outputs that are its inputs, which the quantizers can't sort, and return them."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    if passed := common_onnx.take_passed_on(model.graph):
        onnx.save(model, path)
    return passed


def _put_back(path: Path, passed: Sequence[tuple[int, ValueInfoProto]]) -> None:
    import onnx

    if passed:
        model = onnx.load(path, load_external_data=False)
        common_onnx.put_back(model.graph, passed)
        onnx.save(model, path)


def _restore_order(path: Path) -> None:
    """Put nodes in order again: the quantizers sort by a node's own inputs, without what its branches read."""
    import onnx

    from shootout.models.onnx import onnx_files

    if any(onnx_files.graphs_inside(onnx_files.header(path).graph.node)):
        model = onnx.load(path)
        onnx_files.sort_nodes(model.graph)
        onnx_files.save(model, path)


def _operations_in(path: Path) -> list[str]:
    import onnx

    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


def _require_operations(path: Path, operations: Sequence[str], fault: str) -> None:
    if not set(operations) & set(_operations_in(path)):
        raise ValueError(f"nothing to quantize: {fault}")
