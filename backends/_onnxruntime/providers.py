"""ONNX Runtime's execution providers: which one a target means, its settings, and why it couldn't be loaded.

ONNX Runtime leaves a provider whose libraries are missing out of a session with no more than a line in a log. So the
system's loader is asked for the reason.

The TensorRT provider has no switch for TF32, nor has the CUDA one for recurrent layers; NVIDIA's own variable turns it
off in all of its libraries. They read it once in a process, so it is set before the first session: each arm has a
process of its own.

A provider may be a plugin, a library of its own that ONNX Runtime registers by name: `onnxruntime+ep=NAME` runs on it.
The node-by-node account is ONNX Runtime's and the same for all. A plugin may compile what it is given, which can't be
stored; so the graph is kept as it is, and each load optimizes it.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends.cuda_memory import COPIES, INSTALL, has_bindings
from shootout.core.contract import Arm, Device, Option, Precision, Target
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import NVIDIA_INDEX, pip_install
from shootout.core.schemes import rest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
MODE = "tensorrt"
"""The mode whose nodes all run in TensorRT."""
GRAPH, OF_CUDA, OF_TENSORRT, TIMINGS = "cuda_graph", "cuda.", "trt_", "trt_timing_cache_path"
_CPU, _CUDA, _PLAIN, _MODE = frozenset({Device.CPU}), frozenset({Device.CUDA}), frozenset({""}), frozenset({MODE})
_SETTLED = (
    *("cuda.device_id", "cuda.use_tf32", "cuda.enable_cuda_graph", "cuda.user_compute_stream"),
    "trt_timing_cache_enable",
    *("trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix", "trt_cuda_graph_enable"),
    *("trt_fp16_enable", "trt_bf16_enable", "trt_int8_enable"),
)
"""Options that aren't the user's. TensorRT's CUDA graph is one of a session: all slots would get the first's data."""
PLUGIN_PREFIX = "ep="
PLUGIN_MODES = f"{PLUGIN_PREFIX}*"
"""The target's modes that name a provider."""
PLUGIN_LIBRARY = "ep_library"
PLUGIN_OPTIONS = (
    Option(
        name=PLUGIN_LIBRARY,
        help="the library of the provider: its path, or a package that has `get_library_path()`",
        modes=frozenset({PLUGIN_MODES}),
    ),
)
OPTIONS = (
    *(Option(name=name, help="", settled="the target, --gpu and how buffers are kept settle it") for name in _SETTLED),
    Option(
        name="session.intra_op.allow_spinning",
        help="whether idle threads wait busily (1)",
        devices=_CPU,
        tries=("0",),
        parallel=True,
    ),
    Option(
        name="cuda.prefer_nhwc",
        help="convolutions with the channels last",
        devices=_CUDA,
        modes=_PLAIN,
        tries=("1",),
    ),
    Option(name=f"{OF_CUDA}*", help="any other option of the CUDA provider", devices=_CUDA, modes=_PLAIN),
    Option(
        name="trt_builder_optimization_level",
        help="how long TensorRT looks for kernels, 0 to 5 (3)",
        devices=_CUDA,
        modes=_MODE,
        tries=("5",),
    ),
    Option(
        name=TIMINGS,
        help="a folder where TensorRT keeps what it times in a build, for the next one on the same GPU",
        devices=_CUDA,
        modes=_MODE,
    ),
    Option(name=f"{OF_TENSORRT}*", help="any other option of the TensorRT provider", devices=_CUDA, modes=_MODE),
    replace(COPIES, modes=frozenset({"", MODE})),
    *PLUGIN_OPTIONS,
    *(
        Option(name=f"{prefix}.*", help="any other configuration entry of ONNX Runtime's session")
        for prefix in ("session", "optimization", "ep", "mlas")
    ),
)
"""Options of an arm: CUDA's own options behind `cuda.`, TensorRT's by their names, and ONNX Runtime's entries."""
ALLOWS = {
    Precision.FP16: "trt_fp16_enable",
    Precision.BF16: "trt_bf16_enable",
    Precision.INT8: "trt_int8_enable",
}
"""Switches without which TensorRT's builder takes a graph's types for no more than a wish."""
ON = "True"
"""The only word that ONNX Runtime's Python binding takes for it in TensorRT's switches; "1" is an error there."""
TF32 = "NVIDIA_TF32_OVERRIDE"
LIBRARIES = {CUDA: "libonnxruntime_providers_cuda.so", TENSORRT: "libonnxruntime_providers_tensorrt.so"}
NEEDED = rb"libnvinfer\.so\.\d+"
"""Pattern of TensorRT's name among the libraries that its provider needs."""
GPU_BUILD = f"pip uninstall -y onnxruntime && {pip_install('onnxruntime-gpu[cuda,cudnn]>=1.27')}"
"""From 1.27 on, what the package index has is built for CUDA 13; before, it was for CUDA 12."""
FIXES = {
    CPU: pip_install("onnxruntime", options="--force-reinstall"),
    CUDA: f"{GPU_BUILD} (for CUDA 13)",
    TENSORRT: f"use the backend tensorrt itself, or {GPU_BUILD} (for CUDA 13)",
}
REGISTER = "name its library: --option onnxruntime+ep={name}.ep_library=PATH"
TELLS = "get_provider_graph_assignment_info"
"""Method by which a session tells its nodes' providers; new in 1.24."""
KINDS = {Device.CPU: "CPU", Device.CUDA: "GPU"}
"""ONNX Runtime's kinds of hardware, by ours."""
NVIDIA = 0x10DE
"""NVIDIA's number as a maker of PCI devices."""


def provider_of(target: Target) -> str:
    """Return the provider that has to run every node of a target."""
    if names_plugin(target):
        return plugin_of(target)
    if target.device is Device.CPU:
        return CPU
    return TENSORRT if target.mode == MODE else CUDA


def require(provider: str) -> None:
    """Refuse a provider that this ONNX Runtime is built without, or an ONNX Runtime that hides where nodes run.

    Raises:
        SkippedArm: with what it has, and the fix; or TensorRT itself is missing.
    """
    import onnxruntime

    if provider != CPU:
        onnxruntime.preload_dlls()  # a provider that is a plugin is registered only once they are there
    available = _available_providers()
    if provider not in available:
        reason = f"onnxruntime {onnxruntime.__version__} is built without {provider} (it has {', '.join(available)})"
        raise SkippedArm(reason, FIXES.get(provider, REGISTER.format(name=provider)), NotRunKind.BROKEN)
    if provider != CPU and not hasattr(onnxruntime.InferenceSession, TELLS):
        reason = f"onnxruntime {onnxruntime.__version__} doesn't tell which provider runs a node: 1.24 is the first to"
        raise SkippedArm(reason, pip_install("onnxruntime-gpu>=1.24", options="--upgrade"), NotRunKind.BROKEN)
    if provider in LIBRARIES and not has_bindings():
        reason = "cuda-bindings is not installed, by which ONNX Runtime is given its memory and its stream"
        raise SkippedArm(reason, INSTALL, NotRunKind.NOT_INSTALLED)
    if provider == TENSORRT:
        _require_tensorrt()


def providers_of(
    arm: Arm, engines: Path, *, graph: bool, stream: int | None = None
) -> list[tuple[str, dict[str, str]]]:
    """Return the providers of a session in order, each with its options.

    CUDA comes behind TensorRT: alone, TensorRT would fail on a node that it can't take, without naming it. Such nodes
    are `fallbacks`.

    Args:
        arm: its target and options.
        engines: where TensorRT keeps what it built.
        graph: capture CUDA graphs.
        stream: the CUDA stream that they compute on; None: one of their own.
    """
    precision, wanted = arm.target.precision, provider_of(arm.target)
    if names_plugin(arm.target) or wanted == CPU:
        return [(wanted, {})]
    cuda = {"use_tf32": str(int(precision is Precision.TF32)), **_options_with_prefix(arm, OF_CUDA, cut=len(OF_CUDA))}
    if graph:
        cuda["enable_cuda_graph"] = "1"
    ours = {} if stream is None else {"user_compute_stream": str(stream)}
    if wanted == CUDA:
        return [(CUDA, {**cuda, **ours})]
    tensorrt = {
        "trt_engine_cache_enable": ON,
        "trt_engine_cache_path": str(engines),
        **_options_with_prefix(arm, OF_TENSORRT),
        **ours,
    }
    if TIMINGS in tensorrt:
        tensorrt["trt_timing_cache_enable"] = ON  # without it, the path alone does nothing
    asked = (precision, rest_of(arm.target)) if precision is Precision.INT8 else (precision,)
    tensorrt |= {ALLOWS[one]: ON for one in asked if one in ALLOWS}
    return [(TENSORRT, tensorrt), (CUDA, {**cuda, **ours})]


def is_provider_option(name: str) -> bool:
    """Return whether an arm's option is for a provider, and not for the session."""
    return name in (GRAPH, COPIES.name, PLUGIN_LIBRARY) or name.startswith((OF_CUDA, OF_TENSORRT))


def prepare(target: Target) -> None:
    """Settle TF32 for this process, and load NVIDIA's libraries from their wheels if the system has none."""
    import onnxruntime

    if target.device is Device.CPU:
        return
    if target.precision is Precision.TF32:
        os.environ.pop(TF32, None)
    else:
        os.environ[TF32] = "0"
    onnxruntime.preload_dlls()
    if provider_of(target) == TENSORRT:
        _load_wheel()


def on_device(provider: str, device: Device) -> str:
    """Name a provider and where it ran; only CUDA's own name says that it is on CUDA."""
    return f"{provider} on CUDA" if device is Device.CUDA and provider not in (CUDA, CPU) else provider


def uses_tf32(session: Any, target: Target) -> bool:
    """Return whether a session's CUDA provider rounds float32 products to TF32: by its account, else by the target."""
    setting = session.get_provider_options().get(CUDA, {}).get("use_tf32")
    return target.precision is Precision.TF32 if setting is None else bool(setting == "1")


def load_fault(provider: str) -> str:
    """Return the system loader's reason why a provider's library can't be loaded; "" if it can.

    Only for after ONNX Runtime has tried: a provider that is loaded by another program first finds no host.
    """
    try:
        if provider in LIBRARIES:
            ctypes.CDLL(str(_library_path(provider)))
    except OSError as error:
        return str(error)
    return ""


def _available_providers() -> list[str]:
    """List the providers that this ONNX Runtime is built with, and those that were registered as plugins."""
    import onnxruntime

    plugins = [device.ep_name for device in getattr(onnxruntime, "get_ep_devices", list)()]
    return list(dict.fromkeys([*onnxruntime.get_available_providers(), *plugins]))


def _require_tensorrt() -> None:
    """Skip if TensorRT itself, which ONNX Runtime doesn't bring, can't be loaded."""
    _load_wheel()
    for name in sorted(set(re.findall(NEEDED, _library_path(TENSORRT).read_bytes()))):
        try:
            ctypes.CDLL(name.decode())
        except OSError as error:
            major = name.decode().rpartition(".")[2]
            fix = pip_install(f"tensorrt-cu13=={major}.*", options=NVIDIA_INDEX)
            raise SkippedArm(f"ONNX Runtime needs TensorRT {major}: {error}", fix) from None


def _load_wheel() -> None:
    with suppress(ImportError):
        import_module("tensorrt_libs")  # it loads all that it holds


def _library_path(provider: str) -> Path:
    import onnxruntime

    return Path(str(onnxruntime.__file__)).parent / "capi" / LIBRARIES[provider]


def _options_with_prefix(arm: Arm, prefix: str, cut: int = 0) -> dict[str, str]:
    return {name[cut:]: value for name, value in arm.options.items() if name.startswith(prefix)}


def names_plugin(target: Target) -> bool:
    """Return whether a target names its provider itself."""
    return target.mode.startswith(PLUGIN_PREFIX)


def plugin_of(target: Target) -> str:
    """Return the provider that such a target names."""
    return target.mode.removeprefix(PLUGIN_PREFIX)


def register_plugin(target: Target, options: Mapping[str, str]) -> None:
    """Load the provider's library into ONNX Runtime if the arm names one; a second time is harmless.

    Raises:
        SkippedArm: it can't be loaded; in ONNX Runtime's words.
    """
    import onnxruntime

    library, name = options.get(PLUGIN_LIBRARY), plugin_of(target)
    if not library or name in {device.ep_name for device in onnxruntime.get_ep_devices()}:
        return
    try:
        onnxruntime.register_execution_provider_library(name, _plugin_path(library))
    except Exception as error:
        reason = f"ONNX Runtime can't register {name} from {library!r}: {error}"
        raise SkippedArm(reason, f"see that {PLUGIN_LIBRARY} is a provider's library for this ONNX Runtime") from error


def attach_plugin(options: Any, name: str, device: Device, settings: Mapping[str, str]) -> None:
    """Add a provider's devices of this kind to a session, with these settings of the provider's own.

    Raises:
        SkippedArm: it has none here.
    """
    import onnxruntime

    devices = [one for one in onnxruntime.get_ep_devices() if one.ep_name == name]
    fitting = [one for one in devices if _fits_device(one.device, device)]
    if not fitting:
        kinds = ", ".join(sorted({one.device.type.name for one in devices})) or "none at all"
        reason = f"{name} has no device of the kind {device} here (it has {kinds})"
        fix = f"register its library: {PLUGIN_LIBRARY}=/path/to/it.so; or use its other device"
        raise SkippedArm(reason, fix, NotRunKind.BROKEN)
    options.add_provider_for_devices(fitting, dict(settings))


def _fits_device(hardware: Any, device: Device) -> bool:
    return hardware.type.name == KINDS[device] and (device is Device.CPU or hardware.vendor_id == NVIDIA)


def _plugin_path(library: str) -> str:
    """Return the path of a library that is named by its path, or by the package that brings it."""
    if not Path(library).exists():
        with suppress(ImportError):
            return str(import_module(library).get_library_path())
    return library
