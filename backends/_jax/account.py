"""XLA's own account: the instructions of the compiled module by the types they compute in, and the CPU pool's threads.

What is read is the HLO after every pass, so a product that XLA widened shows as what it became: its CPU compiler
turns bfloat16 and float16 products into float32 ones.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.backends.common import count_named_tasks, precision_of
from shootout.core.adapter import Event
from shootout.core.contract import Device, Executed, Precision

INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$", re.MULTILINE)
"""Name, type, operation, and the rest of the line: operands and attributes."""
COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*?\) -> .*? \{$(.*?)^\}", re.MULTILINE | re.DOTALL)
"""Name and body."""
CALLEE = re.compile(r"calls=%([\w.-]+)")
TYPE = re.compile(r"([a-z]+)(\d+)\w*\[([\d,]*)\]")
ALGORITHM = re.compile(r'\balgorithm"?\s*[=:]\s*"?(?:ALG_)?dot_(\w+)', re.IGNORECASE)
"""Pattern of how a product is to be computed, as `dot_tf32_tf32_f32_x3`: the operands' types, the sum's, and how many
products stand for one.
"""
IEEE = re.compile(r"operand_precision[^}\]]*highest", re.IGNORECASE)
"""One operand that asks for it is enough, for cuBLAS and cuDNN alike."""
PRODUCTS = frozenset({"dot", "ragged-dot", "scaled-dot", "convolution"})
LIBRARY_PRODUCT = re.compile(r'custom_call_target="[^"]*(?:gemm|matmul|dot|conv(?!ert)|fmha|attention)', re.IGNORECASE)
"""A custom call into cuBLAS, cuDNN, oneDNN or the like that multiplies matrices or convolves."""
RUNS = frozenset({"fusion", "call", "async", "while", "conditional"})
"""Operations that only run a computation of their own."""
STRUCTURE = RUNS | {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
"""Operations that compute nothing themselves; a fusion's instructions are counted in a computation of their own."""
MOVES = frozenset({"parameter", "constant", "bitcast", "convert", "copy", "transpose", "reshape"})
SCALES = frozenset({"broadcast", "multiply", "divide", "round-nearest-even", "clamp", "pad", "slice"})
"""Operations beside the cast of a quantize or a dequantize."""
ALGORITHMS = {"f64": "fp64", "f32": "fp32", "tf32": "tf32", "bf16": "bf16", "f16": "fp16"}
"""Our names of the operands' types in an algorithm's name; any other leaves them as they are stored."""
START, DONE = "-start", "-done"
"""Ends of the two halves of an instruction that runs beside others."""
KINDS = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint"}
POOL = "tf_XLAEigen"
"""The name of every thread in the pool that XLA's CPU client computes with."""
MARK = "end: "
"""XLA marks where a kernel ended with an event of no length."""
COUNTED = "counted calls"
"""Our own event around the calls to tell of."""
FINEST = 3
"""The host tracer's level that also tells each kernel of the CPU's executor."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of an HLO module: its operation, the type of its result, its operands' names and the whole rest."""

    operation: str
    type: str
    operands: tuple[str, ...]
    rest: str

    @property
    def is_product(self) -> bool:
        """Return whether it multiplies matrices or convolves, by itself or in a library."""
        library = self.operation == "custom-call" and LIBRARY_PRODUCT.search(self.rest)
        return self.operation in PRODUCTS or bool(library)

    @property
    def fused(self) -> str:
        """Return the name of the computation that a fusion runs; "" for anything else."""
        callee = CALLEE.search(self.rest) if self.operation == "fusion" else None
        return callee[1] if callee else ""


def read_executed(run: Any, result: Any, device: Device, artifact_bytes: int) -> Executed:
    """Read an executable's own HLO, the device of its result, and the threads of XLA's CPU pool (None on CUDA)."""
    import jax

    hlo = run.as_text()
    products, others = count_nodes(hlo, device)
    return Executed(
        library="jax",
        version=jax.__version__,
        device=" ".join(map(str, result.devices())),
        threads=count_named_tasks(POOL) if device is Device.CPU else None,
        compute_nodes_by_precision=products,
        other_nodes_by_precision=others,
        artifact_bytes=artifact_bytes,
        conversion_nodes=count_conversions(hlo),
    )


def count_nodes(hlo: str, device: Device) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Count products, and all other instructions that compute, by precision; a loop's body counts once.

    Args:
        hlo: `Compiled.as_text()`, the module as optimized for the device.
        device: on CUDA a float32 product is IEEE only where it asks for the highest precision.
    """
    instructions = dict(_parse_instructions(hlo))
    products, others = Counter[str](), Counter[str]()
    for instruction in instructions.values():
        if instruction.is_product:
            products[_product_precision(instruction, instructions, device)] += 1
        elif instruction.operation not in STRUCTURE and not instruction.operation.endswith(DONE):
            others[precision_of(_dtype_name(instruction.type))] += 1
    return dict(products), dict(others)


def count_conversions(hlo: str) -> int:
    """Count nodes that only change a tensor's type or layout: casts, transposing copies, quantize and dequantize.

    A conversion that XLA fused with anything else is no node.
    """
    computations = {name: [one for _, one in _parse_instructions(body)] for name, body in COMPUTATION.findall(hlo)}
    fused = {one.fused for body in computations.values() for one in body}
    nodes = [one for name, body in computations.items() if name not in fused for one in body]
    return sum(_only_converts({one.operation for one in computations.get(node.fused, [node])}) for node in nodes)


def _parse_instructions(hlo: str) -> Iterator[tuple[str, Instruction]]:
    for name, kind, operation, rest in INSTRUCTION.findall(hlo):
        operands = re.findall(r"%([\w.-]+)", rest.split(")", 1)[0])
        yield name, Instruction(operation.removesuffix(START), kind, tuple(operands), rest)


def _product_precision(product: Instruction, instructions: Mapping[str, Instruction], device: Device) -> str:
    """Return the wider one of the operands' types, in which XLA multiplies; on CUDA, what XLA makes of float32."""
    types = [instructions[name].type for name in product.operands[:2]]
    precision = precision_of(_dtype_name(max(types, key=_parse_bits)))
    if device is Device.CPU:
        return precision
    if algorithm := _read_algorithm(product):
        return algorithm
    return Precision.TF32.value if precision == Precision.FP32 and not IEEE.search(product.rest) else precision


def _read_algorithm(product: Instruction) -> str:
    """Return what a product's algorithm makes of its operands, `bf16x9` for nine bfloat16 products; or ""."""
    match = ALGORITHM.search(product.rest)
    if match is None:
        return ""
    first, *_, last = match[1].lower().split("_")
    return ALGORITHMS[first] + (last if last.startswith("x") else "") if first in ALGORITHMS else ""


def _only_converts(operations: Set[str]) -> bool:
    cast = "convert" in operations and operations <= MOVES | SCALES
    return cast or (operations <= MOVES and not operations.isdisjoint({"copy", "transpose"}))


def _parse_bits(kind: str) -> int:
    match = TYPE.search(kind)
    return int(match[2]) if match else 0


def _dtype_name(kind: str) -> str:
    """Return NumPy's name for an HLO type such as `f32[2,128]{1,0}`, a tuple's first; HLO's name if NumPy has none."""
    match = TYPE.search(kind)
    return f"{KINDS.get(match[1], match[1])}{match[2]}" if match else kind.split("[")[0].lstrip("(")


def profile_calls(call: Callable[[], object], calls: int) -> list[Event]:
    """Return the events of `calls` calls under the profiler, after one more, which the profiler's start slows."""
    import jax

    options: Any = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = 0, FINEST
    call()
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place, profiler_options=options):
            call()
            with jax.profiler.TraceAnnotation(COUNTED):
                for _ in range(calls):
                    call()
        (path,) = Path(place).rglob("*.trace.json.gz")
        events: list[Event] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (counted,) = [event for event in events if event.get("name") == COUNTED]
    return [event for event in events if event.get("ts", 0) > counted["ts"] and not event["name"].startswith(MARK)]
