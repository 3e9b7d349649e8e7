"""ExecuTorch's runtime in this process, its record of what ran (ETDump), and its files as they lie on disk.

The wheel holds the formats of a .pte file and of the graphs in it for XNNPACK, and the program that reads them. So
nothing of the compiler, which takes five seconds to import, is needed.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
WARM_UP = 3


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


def record_calls(path: Path, threads: int, inputs: Sequence[Any], calls: int) -> list[list[Mapping[str, Any]]]:
    """Record some warm calls with the runtime: by call, its parts with their times in nanoseconds.

    Args:
        inputs: tensors, in the file's order.
    """
    program = import_runtime(threads)._load_program(str(path), enable_etdump=True)
    method = program.load_method(FORWARD)
    for _ in range(WARM_UP + calls):
        method.call(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "calls.etdp"
        program.write_etdump_result_to_file(str(dump), str(Path(folder) / "debug"))
        runs = read_flatbuffer(dump.read_bytes(), ETDUMP, "--size-prefixed")["run_data"]
    recorded = [[one["profile_event"] for one in run["events"]] for run in runs if run["name"] == "Execute"]
    return recorded[WARM_UP:]


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
class Operand:
    """A tensor of a step.

    Attributes:
        kind: its type by the file's own name: `FLOAT` outside XNNPACK, `qcint8` inside.
    """

    kind: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStep:
    """One operation that each call runs.

    Attributes:
        name: `XNNFullyConnected` inside XNNPACK, `aten::mm` outside.
        operands: its tensors in the file's order, the one that it writes last; none where it works on numbers alone.
        is_delegated: whether XNNPACK runs it.
    """

    name: str
    operands: tuple[Operand, ...]
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
                        operands=tuple(
                            Operand(kind=str(one["scalar_type"]), shape=_shape_of(one["sizes"])) for one in tensors
                        ),
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
    values: dict[int, Operand] = {}
    for one in graph["xvalues"]:
        found = one["xvalue_union"]
        found = found.get("tensor_value", found)
        kind = found["datatype"].removeprefix("xnn_datatype_")
        values[found["id_out"]] = Operand(kind=kind, shape=_shape_of(found["dims"]))
    for one in graph["xnodes"]:
        node: Mapping[str, Any] = one["xnode_union"]
        found = tuple(values[node[end]] for end in (*INPUTS, *OUTPUTS) if end in node)
        yield MethodStep(name=one["xnode_union_type"], operands=found, is_delegated=True)


def _shape_of(sizes: list[int]) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)
