"""How an ONNX Runtime arm is shipped: the optimised graph, and the settings of the sessions that it was timed in."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from shootout.backends._onnxruntime import providers
from shootout.backends._onnxruntime.account import MODEL, settings_of
from shootout.backends.adapter import Built, Shipment
from shootout.backends.common import is_handed_out, is_shared
from shootout.contract import Device
from shootout.errors import SkippedArm
from shootout.host.environment import cpu_flags

BLOCKED = b"\x3a\x13com.microsoft.nchwc"
"""A node's domain, in a graph's bytes: a convolution whose filters are laid out for this CPU's widest vectors."""


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the graph, with the weights beside it.

    Raises:
        SkippedArm: it ran on a GPU, or in a plugin.
    """
    target = built.arm.target
    if target.device is not Device.CPU or providers.names_plugin(target):
        reason = f"{providers.of(target)} needs memory, a stream and libraries that a folder can't bring"
        raise SkippedArm(reason, "ship an arm on the CPU, or TensorRT's own engine by hand")
    for path in built.folder.glob(f"{MODEL}*"):
        shutil.copyfile(path, folder / path.name)
    exported = built.exported
    options = {
        "provider": providers.CPU,
        "session": settings_of(built.arm, optimised=True),
        "large": any(map(is_shared, exported.inputs)) or any(map(is_handed_out, exported.outputs)),
    }
    return Shipment(options=options, isa=_isa_of(folder / MODEL))


def _isa_of(graph: Path) -> tuple[str, ...]:
    """Filters lie in blocks of 16 channels where there is AVX-512, of 8 on other x86 CPUs; neither runs the other's.

    Newer versions block on ARM too, by that one's own width.
    """
    if BLOCKED not in graph.read_bytes():
        return ()
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return ("asimd",)
    return ("avx512f",) if "avx512f" in cpu_flags() else ("sse2", "!avx512f")
