"""Functions that every adapter shares: checked inputs, host outputs, an explained probe.

Kept apart from the adapters so that a shape error, a dtype's name or a missing GPU reads the same whichever backend
meets it. Imports NumPy only.
"""

from __future__ import annotations

import math
import platform
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.adapter import GpuSide, check_inputs
from shootout.core.contract import (
    Arm,
    Array,
    Arrays,
    Availability,
    Device,
    NotRun,
    NotRunKind,
    Precision,
    Target,
    TensorSpec,
)
from shootout.core.errors import SkippedArm, explained
from shootout.core.host.environment import cpu_flags
from shootout.core.install import install
from shootout.core.schemes import Scheme, is_scaled, shown_as

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

TASKS = Path("/proc/self/task")
"""The folder of a process's own threads, on Linux."""
DTYPES = {Precision.FP32: "float32", Precision.TF32: "float32", Precision.BF16: "bfloat16", Precision.FP16: "float16"}
"""The dtype in which an arm of a float precision holds its weights; TF32 is a way to multiply, not to store."""

PRECISION_BY_DTYPE: Mapping[str, str] = {
    "float64": "fp64",
    "float32": Precision.FP32.value,
    "float16": Precision.FP16.value,
    "bfloat16": Precision.BF16.value,
    "float8_e4m3fn": Precision.FP8.value,
    "int8": Precision.INT8.value,
    "uint8": Precision.INT8.value,
    "int4": Precision.INT4.value,
    "uint4": Precision.INT4.value,
}
"""A compute node's precision by its operands' dtype; fp64 is no target's label, so it always shows."""


SHARED_BYTES = 1 << 17
"""A runtime that can read the caller's own array is handed inputs from this size on, and copies smaller ones: below it
setting up what is shared takes longer than the copy (ONNX Runtime 1.31: equal at 48 kB; OpenVINO 2026.4: at 128 kB).
"""


HANDED_BYTES = 1 << 18
"""A runtime that can write anywhere hands out the memory that it wrote an output to from this size on, and goes on with
other memory; smaller ones it writes to one place, and `fetch` copies them (ONNX Runtime 1.31: equal at 128 kB; OpenVINO
2026.4: at 256 kB).
"""
_GENERATED = re.compile(r"sse4_[12]|avx\w*|fma|f16c|bmi[12]|abm|movbe|popcnt|gfni|vaes|vpclmulqdq|amx_\w+")
"""Instruction sets that a compiler uses for the x86 CPU that it runs on; on ARM it uses all of the CPU's."""


def is_shared(spec: TensorSpec) -> bool:
    """Return whether an input is large enough to be handed over as it lies in memory."""
    return _bytes_of(spec) >= SHARED_BYTES


def is_handed_out(spec: TensorSpec) -> bool:
    """Return whether an output is large enough to be handed out as it was written; a converted one is copied anyway."""
    return _bytes_of(spec) >= HANDED_BYTES and np.dtype(spec.dtype) != np.float16


def _bytes_of(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def precision_of(dtype: str) -> str:
    """Return the precision that a node on operands of `dtype` computes in; the dtype's own name if it has none."""
    return PRECISION_BY_DTYPE.get(dtype, dtype)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The nodes that one call runs, noted as they are seen.

    Attributes:
        products: nodes that multiply matrices or convolve, by precision.
        others: all other nodes by precision.
        conversions: those of the others that only change a tensor's type or layout.
        layers: precision and the layer's name of each product, where the names are known.
    """

    products: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    conversions: int = 0
    layers: list[tuple[str, str]] = field(default_factory=list)

    def add_other(self, label: str, *, converts: bool) -> None:
        """Note a node without a product."""
        self.others[label] += 1
        self.conversions += converts

    def facts(self) -> dict[str, Any]:
        """Return the counts by their names in `Executed`, as JSON values."""
        return {
            "compute_nodes_by_precision": dict(self.products),
            "other_nodes_by_precision": dict(self.others),
            "conversion_nodes": self.conversions,
            **({"layers_in_float": name_floats(self.layers)} if self.layers else {}),
        }


def name_floats(products: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the names of those products that run in float, each once, if others run in integers.

    Args:
        products: the precision and the layer's name of each.
    """
    known = list(products)
    if not any(is_scaled(label) for label, _ in known):
        return ()
    return tuple(dict.fromkeys(name for label, name in known if not is_scaled(label)))


def calibration_of(exported: ExportedModel, scheme: Scheme) -> list[dict[str, Array]]:
    """Return the input sets that give static quantization its ranges.

    Raises:
        ValueError: the calibration data can't be used: it isn't finite, or has fewer sets than the scheme asks for
            (two, where it doesn't say).
    """
    sets = exported.calibration()
    if len(sets) < (scheme.samples or 2):
        asked = f"samples-{scheme.samples}" if scheme.samples else "static quantization needs at least 2 sets"
        raise ValueError(f"{asked}: the calibration split has only {len(sets)}; give more with --calibration data.npz")
    for index, one in enumerate(sets[: scheme.samples]):
        for name, array in one.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"calibration set {index}: input {name!r} has NaN or infinity")
    return sets[: scheme.samples]


def require_quantized(counts: Mapping[str, int], target: Target, quantizer: str) -> None:
    """Refuse a build in which no product runs in the target's integers.

    Args:
        counts: its products by precision.

    Raises:
        ValueError: the vendor's quantizer took none.
    """
    if shown_as(target.precision, target.scheme) not in counts:
        ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items())) or "there is none"
        raise ValueError(f"nothing to quantize: {quantizer} takes none of the model's products ({ran})")


def widen(array: Array) -> Array:
    """Return a reduced-precision float array as float32; every other array unchanged."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def trial(extra: str, run: Callable[[], str], fix: str = "") -> Availability:
    """Turn a tiny real session into an answer that always explains itself.

    Args:
        extra: the package extra that installs the backend, for the fix; "" is the bare package.
        run: runs the session and returns the library's version; `SkippedArm` carries a reason and a fix of its own.
        fix: the command that installs the library, where no extra of this package does.
    """
    own = "" if fix or extra else install("", options="--force-reinstall")
    fix = fix or own or install(extra)
    try:
        return Availability(version=run())
    except SkippedArm as skipped:
        return Availability(why=replace(skipped.why, fix=skipped.fix or fix))
    except ModuleNotFoundError as error:
        return Availability(why=NotRun(NotRunKind.NOT_INSTALLED, f"{error.name} is not installed", fix))
    except Exception as error:
        from shootout.backends.devices.cuda import find_old_driver

        if old := find_old_driver(error):
            return Availability(why=old.why)
        reason = f"a tiny session failed: {explained(error)}"
        fix = own or f"{fix} --force-reinstall"
        return Availability(why=NotRun(NotRunKind.BROKEN, reason, fix))


@dataclass(frozen=True, slots=True)
class HostSlot:
    """One call's memory on the host.

    Attributes:
        run: computes from the inputs into the outputs.
        writes: for each input name, what copies an array into its memory, or puts the array itself in its place.
        reads: for each output name, what gives it as an array of the caller's own.
    """

    run: Callable[[], object]
    writes: tuple[tuple[str, Callable[[Array], object]], ...]
    reads: tuple[tuple[str, Callable[[], Array]], ...]


class HostSession:
    """A session whose slots lie in the host's memory, and whose calls are done on return."""

    gpu: GpuSide | None = None

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self._inputs = inputs
        self._slots: dict[int, HostSlot] = {}

    def stage(self, inputs: Arrays, slot: int) -> HostSlot:
        """Copy the inputs into the slot's memory; large ones may be used as they are."""
        check_inputs(self._inputs, inputs)
        if slot not in self._slots:
            self._slots[slot] = self._new_slot()
        handle = self._slots[slot]
        for name, write in handle.writes:
            write(inputs[name])
        return handle

    def execute(self, staged: HostSlot) -> HostSlot:
        """Run the model in the calling thread; return when done."""
        staged.run()
        return staged

    def synchronize(self) -> None:
        """Do nothing: no work is pending when `execute` has returned."""

    def fetch(self, raw: HostSlot) -> Arrays:
        """Copy the outputs, since the slot's next run overwrites its memory; large ones may be handed out."""
        return {name: read() for name, read in raw.reads}

    def _new_slot(self) -> HostSlot:
        raise NotImplementedError


def count_tasks() -> int | None:
    """Count this process's threads; None if the system doesn't list them."""
    return sum(1 for _ in TASKS.iterdir()) if TASKS.is_dir() else None


def count_named_tasks(beginning: str) -> int | None:
    """Count this process's threads whose names begin so; None if the system doesn't list them."""
    if not TASKS.is_dir():
        return None
    count = 0
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has ended since it was listed
            count += (task / "comm").read_text(encoding="utf-8", errors="replace").startswith(beginning)
    return count


def require_own_threads(arm: Arm, library: str) -> None:
    """Refuse several instances of several threads each, where a library has one pool for all models of a process.

    Raises:
        SkippedArm: the instances would wait for each other.
    """
    if arm.instances > 1 and arm.threads > 1:
        reason = f"in {library}'s Python package all models of a process share one pool of threads"
        raise SkippedArm(reason, "use one thread each, or one instance")


def require_device(device: Device, known: Iterable[Device]) -> None:
    """Refuse a device that the backend has no code for, or CUDA on a machine without an NVIDIA GPU.

    Raises:
        SkippedArm: with the reason and the fix.
    """
    if device not in set(known):
        names = ", ".join(sorted(known))
        raise SkippedArm(f"this backend has no code for {device}", f"choose {names}, or another backend for {device}")
    if device is Device.CUDA:
        from shootout.backends import chosen_gpu

        chosen_gpu.require_gpu()


def lost_names(values: Collection[str], made: Collection[str]) -> bool:
    """Tell whether a graph names fewer than half of these values as the model does: its names tell little, then.

    Args:
        made: the names of the values that it makes.
    """
    return 2 * len({*values} & {*made}) < len(values)


def native_flags() -> tuple[str, ...]:
    """Return the instruction sets that code compiled for the compiling CPU itself may use."""
    is_x86 = platform.machine().lower() in {"x86_64", "amd64"}
    return tuple(sorted(flag for flag in cpu_flags() if not is_x86 or _GENERATED.fullmatch(flag)))


def prefers_signed() -> bool:
    """Return whether INT8 kernels here take signed activations: ARM's do, x86's want them unsigned."""
    return platform.machine().lower() in {"aarch64", "arm64"}
