"""OpenVINO's side of an arm: imported without telemetry, compiled with every default that matters set.

Kept apart from the session, because "which precision ran" has traps of its own here. On CPUs with bfloat16 the default
inference precision is bf16, and a hint for f16 silently becomes bf16. And where weights are compressed, the CPU plugin
rounds activations to 8 bits as well unless it is told not to.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from shootout.contract import INTEGERS, Arm, Option, Precision
from shootout.errors import SkippedArm
from shootout.schemes import Scheme, parse, rest_of

DEVICE = "CPU"
IR = "model.xml"
DEFAULT = "default"
"""This backend's own word in a scheme: OpenVINO's inference precision is left as it comes."""
HINTS = {
    Precision.FP32: "f32",
    Precision.BF16: "bf16",
    Precision.FP16: "f16",
    Precision.INT8: "f32",
    Precision.INT8_DYNAMIC: "f32",
    Precision.INT4: "f32",
}
"""The precision of float nodes; those that a quantizer leaves over run in IEEE float32 too, unless the scheme of static
INT8 says otherwise."""
LISTED = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.INT8)
"""Precisions that OpenVINO lists by name where a CPU has them."""
DYNAMIC_GROUP_SIZE = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
PROPERTIES = (
    Option(name="NUM_STREAMS", help="requests that run at once (1)", tries=("2",), parallel=True),
    Option(name="PERFORMANCE_HINT", help="what OpenVINO optimises for (LATENCY)", tries=("THROUGHPUT",)),
    Option(name="ENABLE_CPU_PINNING", help="whether its threads stay on a core", tries=("NO",)),
    Option(
        name="SCHEDULING_CORE_TYPE", help="which cores of a hybrid CPU it uses", tries=("PCORE_ONLY",), parallel=True
    ),
    Option(name="CPU_DENORMALS_OPTIMIZATION", help="whether denormals count as zero", tries=("YES",)),
    Option(
        name=DYNAMIC_GROUP_SIZE,
        help="how many activations share a scale where weights are compressed; 0: they stay float",
        precisions=frozenset(INTEGERS),
    ),
    Option(name="ENABLE_HYPER_THREADING", help="whether it uses both threads of a core"),
    Option(name="INFERENCE_NUM_THREADS", help="compute threads (the target's)"),
    Option(name="INFERENCE_PRECISION_HINT", help="the precision of float nodes (the target's)"),
)
"""OpenVINO's own properties that an arm may set; OpenVINO checks their values itself."""


def import_openvino() -> Any:
    """The library, kept from reporting its use: merely importing it sends an event and writes into ~/intel.

    Both OpenVINO and NNCF go on without the telemetry package, so it is made to look as if it weren't installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes the import fail
    import openvino

    return openvino


def version() -> str:
    """The library's version without its build number."""
    return str(import_openvino().__version__).partition("-")[0]


def scheme_of(arm: Arm) -> Scheme:
    """The arm's scheme, this backend's own word included.

    Raises:
        UsageError: an unknown word.
    """
    return parse(arm.target.scheme, own=(DEFAULT,))


def rounds_activations(arm: Arm) -> bool:
    """Whether products of compressed weights are to round activations at run time, as is OpenVINO's default."""
    return arm.target.precision is Precision.INT8_DYNAMIC or scheme_of(arm).activations == "activations-8"


def require_precision(precision: Precision) -> None:
    """Refuse a precision that this CPU lacks: OpenVINO would run its default instead, without a word.

    Raises:
        SkippedArm: with what it would run.
    """
    core = import_openvino().Core()
    known = core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
    if precision in LISTED and precision.upper() not in known:
        instead = core.get_property(DEVICE, "INFERENCE_PRECISION_HINT").get_type_name()
        labels = ", ".join(f"openvino:cpu:{one}" for one in LISTED if one.upper() in known)
        reason = f"OpenVINO has no {precision} arithmetic for this CPU; it would silently run {instead} instead"
        raise SkippedArm(reason, f"choose {labels}, or a CPU with {precision}")


def floats_of(arm: Arm) -> Precision:
    """The precision that the arm's float nodes are asked for: of static INT8 the rest's."""
    return rest_of(arm.target) if arm.target.precision is Precision.INT8 else arm.target.precision


def properties_of(arm: Arm) -> dict[str, str]:
    """What the arm is compiled with: one request at a time, its threads and precision, then its own options."""
    properties = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(arm.threads)}
    if arm.target.precision is Precision.NATIVE:
        properties["EXECUTION_MODE_HINT"] = "ACCURACY"  # what the file says of each value, and no default of the CPU's
    elif scheme_of(arm).own != DEFAULT:
        properties["INFERENCE_PRECISION_HINT"] = HINTS[floats_of(arm)]
    if not rounds_activations(arm):
        properties[DYNAMIC_GROUP_SIZE] = "0"
    return {**properties, **_own(arm)}


def compile_model(path: Path, arm: Arm, **more: Any) -> Any:
    """The model as this arm runs it.

    Args:
        more: properties beyond the arm's.

    Raises:
        RuntimeError: OpenVINO refuses an option's value, or runs with another one.
    """
    core = import_openvino().Core()
    compiled = core.compile_model(core.read_model(path), DEVICE, {**properties_of(arm), **more})
    for name, value in _own(arm).items():
        # What the precision hint did is not read from the hint: the node counts and the probe see what ran.
        if name != "INFERENCE_PRECISION_HINT":
            _require_honoured(compiled, name, value)
    return compiled


def _own(arm: Arm) -> dict[str, str]:
    names = {option.name for option in PROPERTIES}
    return {name: value for name, value in arm.options.items() if name in names}


def _require_honoured(compiled: Any, name: str, value: str) -> None:
    asking = import_openvino().Core()  # one of its own, since a property set on a core changes what it compiles
    asking.set_property(DEVICE, {name: value})
    asked, got = (_text(owner) for owner in (asking.get_property(DEVICE, name), compiled.get_property(name)))
    if asked != got:
        raise RuntimeError(f"OpenVINO did not honour {name}={value}: it runs with {got}")


def _text(value: Any) -> str:
    """Without the enum's name, which only some getters give."""
    return str(value).rpartition(".")[2]
