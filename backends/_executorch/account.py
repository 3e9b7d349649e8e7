"""Account of what a .pte file computes: by the runtime's own record of a call, and by the steps in the file.

The record names each operator that XNNPACK made, with the types that it computes in; the file has all steps.

ExecuTorch's runtime in this process, its record of what ran (ETDump), and its files as they lie on disk.

The wheel holds the formats of a .pte file and of the graphs in it for XNNPACK, and the program that reads them. So
nothing of the compiler, which takes five seconds to import, is needed.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.core.contract import Precision
from shootout.models.onnx.layers import is_product

PRODUCT = re.compile(
    r"(?:Dynamic )?(?:Fully Connected|Batch Matrix Multiply|Convolution|Deconvolution) \(\w+, (?P<types>[^)]*)\)"
)
"""An operator of XNNPACK that multiplies: the type of its inputs, where they differ also of its outputs and weights."""
IN_FILE = {
    "XNNFullyConnected",
    "XNNBatchMatrixMultiply",
    "XNNConv2d",
    "XNNDepthwiseConv2d",
    "XNNConvTranspose2d",
    "XNNScaledDotProductAttention",
}
CONVERSIONS = r"^XNNConvert$|quantize|choose_qparams|_to_(?:dim_order_)?copy"
FLOATS = {"F32": Precision.FP32.value, "F16": Precision.FP16.value, "BF16": Precision.BF16.value}
TYPES = {
    "float": Precision.FP32.value,
    "fp32": Precision.FP32.value,
    "double": "fp64",
    "half": Precision.FP16.value,
    "fp16": Precision.FP16.value,
    "bfloat16": Precision.BF16.value,
    "bf16": Precision.BF16.value,
    "char": Precision.INT8.value,
    "byte": Precision.INT8.value,
}
"""Our names for the types in a file."""


def read_executed(path: Path, threads: int, inputs: Sequence[Any]) -> dict[str, Any]:
    """Record a call and return what `Executed` says of it, and what XNNPACK doesn't run, as JSON values.

    Args:
        inputs: tensors, in the file's order.
    """
    steps = [*steps_of(path)]
    call = record_call(path, threads, inputs)
    outside = [step for step in steps if not step.is_delegated]
    labels = [*labels_of(call), *(_type_of(step.operands[0]) for step in outside if _is_product(step))]
    others = [step for step in steps if step.operands and not _is_product(step)]
    return {
        "compute_nodes_by_precision": dict(Counter(labels)),
        "other_nodes_by_precision": dict(Counter(_type_of(step.operands[-1]) for step in others)),
        "conversion_nodes": sum(re.search(CONVERSIONS, step.name) is not None for step in steps),
        "undelegated": dict(Counter(step.name.partition("::")[2] for step in outside)),
    }


def labels_of(call: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the precisions of the products that XNNPACK ran in a recorded call."""
    matches = (PRODUCT.match(part.get("delegate_debug_id_str") or "") for part in call)
    return [label_of(match["types"]) for match in matches if match]


def label_of(types: str) -> str:
    """Return a product's precision from XNNPACK's names of its types: `F32`, `QS8, QC8W`, `QD8, F32, QC4W`.

    The first is that of the inputs, Q if they are integers, `QD` if each call rounds them; the last that of the
    weights. P is only a way to pack. A single one is that of both.
    """
    names = [name.removeprefix("P") for name in re.split(r", |_", types)]
    left, right = names[0], names[-1]
    bits = re.match(r"Q[A-Z]*(\d)", right)
    if not bits:
        return FLOATS.get(left, left.lower())
    if left.startswith("Q"):
        return Precision.INT8.value if bits[1] == "8" else f"int{bits[1]}-activations-8"
    return "int8-weights" if bits[1] == "8" else f"int{bits[1]}"


def _is_product(step: MethodStep) -> bool:
    return step.name in IN_FILE if step.is_delegated else is_product(step.name) and len(step.operands) > 1


def _type_of(operand: str) -> str:
    kind = operand.lower()
    return Precision.INT8.value if re.match(r"q\D*int8", kind) else TYPES.get(kind, kind)


ETDUMP = "devtools/etdump/etdump_schema_flatcc.fbs"
PROGRAM = "schema/program.fbs"
XNN_GRAPH = "backends/xnnpack/serialization/schema.fbs"
"""The places of the formats in the wheel."""
HEADER = struct.Struct("<8x4sIQQ")
"""Header of a .pte file, behind its first 8 bytes: `eh00`, size, how long the program is, where the segments begin."""
XNN_HEADER = struct.Struct("<4x4sHIIIQ")
"""Header of a graph for XNNPACK: `XH00`, size, where the graph lies and how long it is, and the constants likewise."""
XNNPACK = "XnnpackBackend"
INPUTS = ("input_id", "input1_id", "input2_id", "filter_id", "query_id", "key_id", "value_id")
OUTPUTS = ("output_id", "output_value_id")
"""The tensors of XNNPACK's operators that we look at: no biases or masks, of a concatenation the first two."""


FORWARD = "forward"


def import_runtime(threads: int) -> Any:
    """Import the extension, with so many threads in this process, for all files; the caller's is one of them.

    0 leaves the number to the runtime.

    It is imported by itself: the package's own `executorch.runtime` brings the whole compiler with it, five seconds.
    """
    import executorch  # noqa: F401 - named by itself where it is missing
    import torch  # noqa: F401 - whose libraries the extension needs loaded
    from executorch.extension.pybindings import _C

    if threads:
        _C._unsafe_reset_threadpool(threads)
    return _C


def record_call(path: Path, threads: int, inputs: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Record a call with the runtime: its parts, as ETDump has them.

    Args:
        inputs: tensors, in the file's order.
    """
    program = import_runtime(threads)._load_program(str(path), enable_etdump=True)
    program.load_method(FORWARD).call(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "calls.etdp"
        program.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug"))
        runs = read_flatbuffer(dump.read_bytes(), ETDUMP, "--size-prefixed")["run_data"]
    (run,) = (one for one in runs if one["name"] == "Execute")
    return [one["profile_event"] for one in run["events"]]


def read_flatbuffer(content: bytes, schema: str, *options: str) -> Any:
    """Read bytes in one of the package's own formats."""
    import executorch

    place = Path(executorch.__path__[0])
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "content.bin"
        source.write_bytes(content)
        arguments = ("--json", "--strict-json", "--defaults-json", "--raw-binary", *options)
        subprocess.run([place / "data/bin/flatc", *arguments, "-o", folder, place / schema, "--", source], check=True)  # noqa: S603
        return json.loads(
            re.sub(r"(?<=: )(-?)inf\b", r"\1Infinity", source.with_suffix(".json").read_text(encoding="utf-8"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStep:
    """One operation that each call runs.

    Attributes:
        name: `XNNFullyConnected` inside XNNPACK, `aten::mm` outside.
        operands: its tensors' types by the file's own names (`FLOAT` outside XNNPACK, `qcint8` inside), in the file's
            order, the one that it writes last; none where it works on numbers alone.
        is_delegated: whether XNNPACK runs it.
    """

    name: str
    operands: tuple[str, ...]
    is_delegated: bool


def steps_of(path: Path) -> Iterator[MethodStep]:
    """Yield what a .pte file's method runs, in order.

    Raises:
        ValueError: a part of it is for another backend.
    """
    content = path.read_bytes()
    magic, _, length, base = HEADER.unpack_from(content)
    program = read_flatbuffer(content[:length] if magic == b"eh00" else content, PROGRAM)
    (plan,) = program["execution_plan"]
    for chain in plan["chains"]:
        for instruction in chain["instructions"]:
            arguments = instruction["instr_args"]
            match instruction["instr_args_type"]:
                case "KernelCall":
                    values = (plan["values"][place] for place in arguments["args"])
                    tensors = [one["val"] for one in values if one["val_type"] == "Tensor"]
                    yield MethodStep(
                        name=plan["operators"][arguments["op_index"]]["name"],
                        operands=tuple(str(one["scalar_type"]) for one in tensors),
                        is_delegated=False,
                    )
                case "DelegateCall":
                    delegate = plan["delegates"][arguments["delegate_index"]]
                    if delegate["id"] != XNNPACK:
                        raise ValueError(f"a part of the file is for {delegate['id']}")
                    segment = program["segments"][delegate["processed"]["index"]]
                    begin = base + segment["offset"]
                    yield from _xnn_steps(content[begin : begin + segment["size"]])


def _xnn_steps(content: bytes) -> Iterator[MethodStep]:
    _, _, begin, size, _, _ = XNN_HEADER.unpack_from(content)
    graph = read_flatbuffer(content[begin : begin + size], XNN_GRAPH)
    values: dict[int, str] = {}
    for one in graph["xvalues"]:
        found = one["xvalue_union"]
        found = found.get("tensor_value", found)
        values[found["id_out"]] = found["datatype"].removeprefix("xnn_datatype_")
    for one in graph["xnodes"]:
        node: Mapping[str, Any] = one["xnode_union"]
        found = tuple(values[node[end]] for end in (*INPUTS, *OUTPUTS) if end in node)
        yield MethodStep(name=one["xnode_union_type"], operands=found, is_delegated=True)
