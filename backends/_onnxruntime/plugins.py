"""Execution providers that are plugins: libraries of their own, which ONNX Runtime registers by name.

`onnxruntime+ep=NAME` runs on whichever of them is asked for: what a vendor ships apart from ONNX Runtime, and those
that are built in and tell of their devices. The node-by-node account is ONNX Runtime's and the same for all. A plugin
may compile what it is given, which can't be stored; so the graph is kept as it is, and each load optimises it.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.contract import Device, Option, Target
from shootout.errors import NotRunKind, SkippedArm

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "ep="
MODES = f"{PREFIX}*"
"""The target's modes that name a provider."""
LIBRARY = "ep_library"
OPTIONS = (
    Option(
        name=LIBRARY,
        help="the library of the provider: its path, or a package that has `get_library_path()`",
        modes=frozenset({MODES}),
    ),
)
KINDS = {Device.CPU: "CPU", Device.CUDA: "GPU"}
"""ONNX Runtime's kinds of hardware, by ours."""
NVIDIA = 0x10DE
"""Its number as a maker of PCI devices."""


def is_asked(target: Target) -> bool:
    """Whether a target names its provider itself."""
    return target.mode.startswith(PREFIX)


def named(target: Target) -> str:
    """The provider that such a target names."""
    return target.mode.removeprefix(PREFIX)


def register(target: Target, options: Mapping[str, str]) -> None:
    """Have ONNX Runtime load the provider's library, where the arm names one; a second time is harmless.

    Raises:
        SkippedArm: it can't be loaded; in ONNX Runtime's words.
    """
    import onnxruntime

    library, name = options.get(LIBRARY), named(target)
    if not library or name in {device.ep_name for device in onnxruntime.get_ep_devices()}:
        return
    try:
        onnxruntime.register_execution_provider_library(name, _path(library))
    except Exception as error:
        reason = f"ONNX Runtime can't register {name} from {library!r}: {error}"
        raise SkippedArm(reason, f"see that {LIBRARY} is a provider's library for this ONNX Runtime") from error


def attach(options: Any, name: str, device: Device, settings: Mapping[str, str]) -> None:
    """Have a session run on a provider's devices of this kind, with these settings of the provider's own.

    Raises:
        SkippedArm: it has none here.
    """
    import onnxruntime

    own = [one for one in onnxruntime.get_ep_devices() if one.ep_name == name]
    fitting = [one for one in own if _fits(one.device, device)]
    if not fitting:
        kinds = ", ".join(sorted({one.device.type.name for one in own})) or "none at all"
        reason = f"{name} has no device of the kind {device} here (it has {kinds})"
        fix = f"register its library: {LIBRARY}=/path/to/it.so; or ask for its other device"
        raise SkippedArm(reason, fix, NotRunKind.BROKEN)
    options.add_provider_for_devices(fitting, dict(settings))


def _fits(hardware: Any, device: Device) -> bool:
    return hardware.type.name == KINDS[device] and (device is Device.CPU or hardware.vendor_id == NVIDIA)


def _path(library: str) -> str:
    """Of a library that is named by its path, or by the package that brings it."""
    if not Path(library).exists():
        with suppress(ImportError):
            return str(import_module(library).get_library_path())
    return library
