"""OpenVINO itself, imported without telemetry, its devices, and a model compiled with every default that matters set.

"Which precision ran" has traps of its own here. On CPUs with bfloat16 the default inference precision is bf16, and a
hint for f16 silently becomes bf16. And where weights are compressed, the CPU plugin rounds activations to 8 bits as
well unless it is told not to.

The plugins for CPUs, Intel's GPUs and Intel's NPUs come with the package, the drivers don't. What is said here of GPUs
and NPUs is as OpenVINO documents it: no such device has run it yet.

Products that round their activations while they run, found in oneDNN's log, the only place that names them.

OpenVINO's graph shows a layer with compressed weights the same way, whether its activations stay float or are rounded
to 8 bits on the fly. So a second process compiles the same file with the log on. Only its creation part is on: with the
whole log some kernels fail ("could not execute a primitive", OpenVINO 2026.4).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout.backends import chosen_gpu
from shootout.core.contract import INTEGERS, Arm, Device, Option, Precision
from shootout.core.errors import SkippedArm
from shootout.core.host.child import leave_with, run
from shootout.core.schemes import Scheme, parse, rest_of

PLUGINS: Mapping[Device, str] = {Device.CPU: "CPU", Device.XPU: "GPU", Device.NPU: "NPU"}
"""OpenVINO's names for the kinds of devices."""
KINDS = {name: device for device, name in PLUGINS.items()}
MISSING = {
    Device.XPU: (
        "OpenVINO finds no Intel GPU with a driver that works",
        "install its driver (apt-get install intel-opencl-icd) and join the group render, which may use it",
    ),
    Device.NPU: (
        "OpenVINO finds no Intel NPU with a driver that works",
        "install its driver (https://github.com/intel/linux-npu-driver) and join the group render, which may use it",
    ),
}
"""The reason that a device isn't there, and the fix."""
DEVICE = PLUGINS[Device.CPU]
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
"""Precisions that OpenVINO lists by name where a device has them."""
ACCELERATED = {Device.XPU: (Precision.FP32, Precision.FP16), Device.NPU: (Precision.FP16,)}
"""Precisions beside the CPU, where only floats run; an NPU computes floats in FP16 whatever the file holds."""
ON_CPU, HINTED = frozenset({Device.CPU}), frozenset({Device.CPU, Device.XPU})
DYNAMIC_GROUP_SIZE = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
SNIPPETS = "SNIPPETS_MODE"
PROPERTIES = (
    Option(name="NUM_STREAMS", help="requests that run at once (1)", devices=ON_CPU, tries=("2",), parallel=True),
    Option(name="PERFORMANCE_HINT", help="what OpenVINO optimizes for (LATENCY)", tries=("THROUGHPUT",)),
    Option(name="ENABLE_CPU_PINNING", help="whether its threads stay on a core", devices=ON_CPU, tries=("NO",)),
    Option(name="CPU_DENORMALS_OPTIMIZATION", help="whether denormals count as zero", devices=ON_CPU, tries=("YES",)),
    Option(
        name=DYNAMIC_GROUP_SIZE,
        help="how many activations share a scale where weights are compressed; 0: they stay float",
        devices=ON_CPU,
        precisions=frozenset(INTEGERS),
    ),
    Option(
        name=SNIPPETS,
        help="whether it fuses nodes into kernels that it generates (ENABLE); DISABLE mends some Q/DQ files",
        devices=ON_CPU,
    ),
    Option(name="INFERENCE_PRECISION_HINT", help="the precision of float nodes (the target's)", devices=HINTED),
)
"""OpenVINO's own properties that an arm may set; OpenVINO checks their values itself."""


def import_openvino() -> Any:
    """Import the library, kept from reporting its use: merely importing it sends an event and writes into ~/intel.

    Both OpenVINO and NNCF go on without the telemetry package, so it is made to look as if it weren't installed.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes the import fail
    import openvino

    return openvino


def import_operations() -> Any:
    """Import the functions that make nodes; before 2025 they lay elsewhere."""
    import_openvino()
    try:
        from openvino import opset13
    except ImportError:
        from openvino.runtime import opset13
    return opset13


def version() -> str:
    """Return the library's version without its build number."""
    return str(import_openvino().__version__).partition("-")[0]


def chosen_plugin(device: Device) -> str:
    """Return OpenVINO's name of the device that is used: the GPU that `--gpu` names, or OpenVINO's own choice.

    Raises:
        SkippedArm: there is none, or no such one.
    """
    kind = PLUGINS[device]
    if device is Device.CPU:
        return kind
    here = [name for name in import_openvino().Core().available_devices if name.partition(".")[0] == kind]
    if not here:
        raise SkippedArm(*MISSING[device])
    asked = chosen_gpu.chosen() if device is Device.XPU else None
    if asked is None:
        return kind
    if asked >= len(here):
        reason = f"gpu {asked}: OpenVINO has only {len(here)} here"
        raise SkippedArm(reason, f"choose one below {len(here)}, or leave --gpu out")
    return str(here[asked])


def full_name(plugin: str) -> str:
    """Return a device's name as its vendor calls it."""
    return str(import_openvino().Core().get_property(plugin, "FULL_DEVICE_NAME"))


def devices_of(compiled: Any) -> list[str]:
    """Return where a compiled model runs, by OpenVINO's names; the NPU's plugin tells one name, the others a list."""
    devices = compiled.get_property("EXECUTION_DEVICES")
    return [devices] if isinstance(devices, str) else list(devices)


def describe_devices(compiled: Any) -> str:
    """Describe where a compiled model runs, for `Executed`: off the CPU with our name of the kind, and the vendor's
    name.
    """
    names = devices_of(compiled)
    if names == [PLUGINS[Device.CPU]]:
        return names[0]
    return ", ".join(f"{KINDS.get(name.partition('.')[0], 'another')}: {full_name(name)} ({name})" for name in names)


def scheme_of(arm: Arm) -> Scheme:
    """Return the arm's scheme, this backend's own word included.

    Raises:
        UsageError: an unknown word.
    """
    return parse(arm.target.scheme, own=(DEFAULT,))


def rounds_activations(arm: Arm) -> bool:
    """Return whether products of compressed weights are to round activations at run time, OpenVINO's default."""
    return arm.target.precision is Precision.INT8_DYNAMIC or scheme_of(arm).activations == "activations-8"


def listed_precisions(device: Device = Device.CPU) -> frozenset[Precision]:
    """Return the precisions that OpenVINO lists for the device, which depend on the CPU's or GPU's model.

    Raises:
        SkippedArm: there is no such device.
    """
    known = import_openvino().Core().get_property(chosen_plugin(device), "OPTIMIZATION_CAPABILITIES")
    return frozenset(one for one in LISTED if one.upper() in known)


def require_precision(precision: Precision, device: Device = Device.CPU) -> None:
    """Refuse a precision that the device lacks: OpenVINO would run its default instead, without a word.

    Raises:
        SkippedArm: with what it would run; or there is no such device.
    """
    known = listed_precisions(device)
    if precision in LISTED and precision not in known:
        core, name = import_openvino().Core(), chosen_plugin(device)
        instead = core.get_property(name, "INFERENCE_PRECISION_HINT").get_type_name()
        labels = ", ".join(f"openvino:{device}:{one}" for one in ACCELERATED.get(device, LISTED) if one in known)
        kind = PLUGINS[device]
        reason = f"OpenVINO has no {precision} arithmetic for this {kind}; it would silently run {instead} instead"
        raise SkippedArm(reason, f"choose {labels}, or a {kind} with {precision}")


def floats_of(arm: Arm) -> Precision:
    """Return the precision that the arm's float nodes are asked for: of static INT8 the rest's."""
    return rest_of(arm.target) if arm.target.precision is Precision.INT8 else arm.target.precision


def properties_of(arm: Arm) -> dict[str, str]:
    """Return the properties to compile with: one request at a time, threads and precision, then the arm's options.

    A GPU takes no number of threads, and an NPU, which knows one precision of floats, no hint of it either.
    """
    device, properties = arm.target.device, {"PERFORMANCE_HINT": "LATENCY"}
    if device is Device.CPU:
        properties |= {"NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": str(arm.threads)}  # 0 is its own number
    if arm.target.precision is Precision.NATIVE:
        properties["EXECUTION_MODE_HINT"] = "ACCURACY"  # what the file says of each value, and no default of the CPU's
    elif device in HINTED and scheme_of(arm).own != DEFAULT:
        properties["INFERENCE_PRECISION_HINT"] = HINTS[floats_of(arm)]
    if device is Device.CPU and not rounds_activations(arm):
        properties[DYNAMIC_GROUP_SIZE] = "0"
    return {**properties, **_own_properties(arm)}


def compile_model(path: Path, arm: Arm, **more: Any) -> Any:
    """Compile the model as this arm runs it.

    Args:
        more: properties beyond the arm's.

    Raises:
        SkippedArm: the device isn't here.
        RuntimeError: OpenVINO refuses an option's value, or runs with another one.
    """
    core, plugin = import_openvino().Core(), chosen_plugin(arm.target.device)
    compiled = core.compile_model(core.read_model(path), plugin, {**properties_of(arm), **more})
    for name, value in _own_properties(arm).items():
        # What the precision hint did is not read from the hint: the node counts and the probe see what ran. The mode of
        # snippets has no getter.
        if name not in ("INFERENCE_PRECISION_HINT", SNIPPETS):
            _require_honored(compiled, plugin, name, value)
    return compiled


def _own_properties(arm: Arm) -> dict[str, str]:
    names = {option.name for option in PROPERTIES}
    return {name: value for name, value in arm.options.items() if name in names}


def _require_honored(compiled: Any, plugin: str, name: str, value: str) -> None:
    asking = import_openvino().Core()  # one of its own, since a property set on a core changes what it compiles
    asking.set_property(plugin, {name: value})
    # Only some getters give the enum's name in front.
    asked, got = (
        str(answer).rpartition(".")[2] for answer in (asking.get_property(plugin, name), compiled.get_property(name))
    )
    if asked != got:
        raise RuntimeError(f"OpenVINO did not honor {name}={value}: it runs with {got}")


LOG = {"ONEDNN_VERBOSE": "profile_create"}
ROUNDED = re.compile(r"inner_product,.*src_dyn_quant_group_size:[1-9].*ic(\d+)oc(\d+)")
TIMEOUT_S = 600


def rounding_products(path: Path, properties: Mapping[str, str]) -> set[tuple[int, int]]:
    """Return the sizes (inputs, outputs) of products whose activations are rounded to 8 bits at run time.

    OpenVINO decides by size, and creates layers of one size once, so a size stands for all layers that have it.

    Raises:
        RuntimeError: the model can't be compiled; with the process's last words.
    """
    ended = run("shootout.backends._openvino.graph", [path, json.dumps(dict(properties))], TIMEOUT_S, LOG)
    if ended.code != 0:
        raise RuntimeError(f"OpenVINO could not compile the model a second time: {ended.how}")
    return {(int(inputs), int(outputs)) for inputs, outputs in ROUNDED.findall(ended.said)}


def main() -> None:
    """Compile the file in the first argument with the properties in the second; the third is the parent."""
    leave_with(int(sys.argv[3]))
    core = import_openvino().Core()
    core.compile_model(core.read_model(sys.argv[1]), DEVICE, json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
