"""OpenVINO's side of an arm: imported without telemetry, compiled with every default that matters set, read back.

Kept apart from the session, because "which precision ran" has traps of its own here. On CPUs with bfloat16 the default
inference precision is bf16, and a hint for f16 silently becomes bf16. And small layers are folded into "Subgraph"
nodes whose reported precision is that of their edges, not of the products inside them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from shootout.backends.common import COMPUTE_OPS
from shootout.contract import Arm, Precision
from shootout.errors import SkippedArm

DEVICE = "CPU"
HINTS = {Precision.FP32: "f32", Precision.INT8: "f32", Precision.BF16: "bf16", Precision.FP16: "f16"}
"""The precision of float nodes; those that INT8 leaves over run in IEEE float32 too."""
PROPERTIES = (
    "CPU_DENORMALS_OPTIMIZATION",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "ENABLE_CPU_PINNING",
    "ENABLE_HYPER_THREADING",
    "INFERENCE_NUM_THREADS",
    "INFERENCE_PRECISION_HINT",
    "NUM_STREAMS",
    "PERFORMANCE_HINT",
    "SCHEDULING_CORE_TYPE",
)
"""OpenVINO's own properties that an arm may set."""
LABELS: Mapping[str, str] = {
    "f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8",
    "FP64": "fp64", "FP32": "fp32", "BF16": "bf16", "FP16": "fp16", "I8": "int8", "U8": "int8",
}  # fmt: skip
"""Our names for OpenVINO's types; the upper-case ones are those of its files."""
PRODUCTS = COMPUTE_OPS + "|FullyConnected|QKVProjection|LLMMLP"
NOT_EXECUTED = ("Input", "Output", "Const")

Folded = Mapping[str, list[str]]
"""Products inside one runtime node: the node's name → for each product its label, "" where it is the float one."""


def import_openvino() -> Any:
    """The library, kept from reporting its use: merely importing it sends an event and writes into ~/intel.

    Both OpenVINO and NNCF go on without the telemetry package, so it is made to look as if it weren't installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes the import fail
    import openvino

    return openvino


def require_precision(precision: Precision) -> None:
    """Refuse a precision that this CPU lacks: OpenVINO would run its default instead, without a word.

    Raises:
        SkippedArm: with what it would run.
    """
    core = import_openvino().Core()
    known = core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
    if precision.upper() not in known:
        instead = core.get_property(DEVICE, "INFERENCE_PRECISION_HINT").get_type_name()
        labels = ", ".join(f"openvino:cpu:{one}" for one in HINTS if one.upper() in known)
        reason = f"OpenVINO has no {precision} arithmetic for this CPU; it would silently run {instead} instead"
        raise SkippedArm(reason, f"choose {labels}, or a CPU with {precision}")


def compile_model(path: Path, arm: Arm, **more: Any) -> Any:
    """The model as this arm runs it: one request at a time, the arm's threads and precision, then its own options.

    Args:
        more: properties beyond the arm's.

    Raises:
        RuntimeError: OpenVINO refuses an option's value, or runs with another one.
    """
    core = import_openvino().Core()
    own = {name: value for name, value in arm.options.items() if name in PROPERTIES}
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(arm.threads),
        "INFERENCE_PRECISION_HINT": HINTS[arm.target.precision],
        **own,
        **more,
    }
    compiled = core.compile_model(core.read_model(path), DEVICE, properties)
    for name, value in own.items():
        # What the precision hint did is not read from the hint: `count` and the probe see what ran.
        if name != "INFERENCE_PRECISION_HINT":
            _require_honoured(compiled, name, value)
    return compiled


def folded_products(path: Path, arm: Arm) -> Folded:
    """What the arm's compiled model computes inside its fused nodes, from the model as OpenVINO itself exports it.

    Exporting copies all the weights, so this belongs into `build`. Pass-through callbacks keep the export readable:
    OpenVINO scrambles it otherwise.
    """
    compiled = compile_model(path, arm, CACHE_ENCRYPTION_CALLBACKS=[_as_it_is, _as_it_is])
    whole = compiled.export_model().getvalue()
    text = whole[whole.rindex(b"<net ") : whole.rindex(b"</net>") + len(b"</net>")]
    layers = ElementTree.fromstring(text).iterfind("layers/layer")  # noqa: S314 - OpenVINO wrote it a moment ago
    found = {str(layer.get("name")): list(_products(layer)) for layer in layers}
    return {name: products for name, products in found.items() if products}


def count(compiled: Any, folded: Folded) -> tuple[dict[str, int], dict[str, int]]:
    """Executed nodes by precision, from the runtime's own graph: (compute nodes, all others).

    A fused node counts as the products that it holds. Float ones run in the precision that the compiled model gives as
    its own: the node itself says f32 even where its products are bf16 (their error shows it).
    """
    hint = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    compute, others = Counter[str](), Counter[str]()
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = {name: value.value for name, value in node.get_rt_info().items()}
        label = LABELS.get(facts["runtimePrecision"], facts["runtimePrecision"])
        if products := folded.get(node.get_friendly_name()):
            compute.update(product or LABELS.get(hint, label) for product in products)
        elif re.search(PRODUCTS, facts["layerType"]):
            compute[label] += 1
        elif facts["layerType"] not in NOT_EXECUTED:
            others[label] += 1
    return dict(compute), dict(others)


def _as_it_is(content: bytes) -> bytes:
    return content


def _products(layer: ElementTree.Element) -> Iterator[str]:
    """The products in a layer's body by their operands: "int8" if both are, else ""."""
    for one in layer.iterfind(".//body//layer"):
        if re.search(PRODUCTS, str(one.get("type"))):
            types = {LABELS.get(str(port.get("precision"))) for port in list(one.iterfind("input/port"))[:2]}
            yield Precision.INT8.value if types == {Precision.INT8.value} else ""


def _require_honoured(compiled: Any, name: str, value: str) -> None:
    asking = import_openvino().Core()  # one of its own, since a property set on a core changes what it compiles
    asking.set_property(DEVICE, {name: value})
    asked, got = (_text(owner) for owner in (asking.get_property(DEVICE, name), compiled.get_property(name)))
    if asked != got:
        raise RuntimeError(f"OpenVINO did not honour {name}={value}: it runs with {got}")


def _text(value: Any) -> str:
    """Without the enum's name, which only some getters give."""
    return str(value).rpartition(".")[2]
