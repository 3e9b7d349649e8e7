"""The protocol of a backend: an adapter that builds an arm's artifact once, and loads it in every fresh process.

`Session` is a loaded model, as an adapter writes it and a worker drives it. All other words are in
`shootout.core.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from shootout.core.contract import (
    SCALED,
    Arm,
    Arrays,
    Availability,
    Capabilities,
    Device,
    Executed,
    NotRun,
    Option,
    Precision,
    Target,
    TensorSpec,
    is_among,
)
from shootout.core.exported.model import ExportedModel
from shootout.core.install import install, pip_install

Event = Mapping[str, Any]
"""An event of a profiler, as Chrome and Perfetto read it: `name`, `ph` ("X": something that began at `ts` and lasted
`dur`, both in microseconds), `pid` and `tid` (its process and thread).
"""
QUANTIZE_S, QUANTIZE_GB_S = 9.0, 60.0
"""The seconds that a quantizer adds to a build, and those of a GB of float32 weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSide:
    """Hold what only a device can tell of a session on it, and do for it; None if the library can't. Never timed.

    Attributes:
        copies: `pinned` or `pageable`: the host memory that `stage` and `fetch` copy from and to; `staged` where the
            library has page-locked memory of its own; "" where they don't copy.
        event_ns: (staged, calls) → nanoseconds of so many calls of `execute`, each by two events on its stream.
        allocator: bytes of device memory that the library's allocator holds now, and the most it held.
    """

    copies: str = ""
    event_ns: Callable[[Any, int], list[float]] | None = None
    allocator: Callable[[], tuple[int, int]] | None = None


class Session(Protocol):
    """Run a loaded model. Not thread-safe; lives in one worker process."""

    @property
    def gpu(self) -> GpuSide | None:
        """Return the device's side of a session on a GPU; None on a CPU."""

    @property
    def executed(self) -> Executed:
        """Return the runtime's own account. It may run the model once, so it is never read while timing."""

    def stage(self, inputs: Arrays, slot: int) -> Any:
        """Copy host → device. One handle (binding, addresses, CUDA graph) per `slot`, reused when it is staged again.

        A session may read the caller's arrays themselves, on a CPU in each `execute` of this handle. So they stay alive
        and as they are until the slot is staged again, and until the `synchronize` or `fetch` after its last `execute`.

        Raises:
            ValueError: an input is missing or has another shape or dtype than the model's; names both.
        """

    def execute(self, staged: Any) -> Any:
        """Run the model on a staged handle; may return before the device is done."""

    def synchronize(self) -> None:
        """Wait until the device is done (nothing to do on CPU)."""

    def fetch(self, raw: Any) -> Arrays:
        """Copy device → host, float32 for float outputs. Only what this returned survives the next `execute`.

        At most once for each `execute`: it may hand out the memory that was written, and take other for the next one.
        """

    def close(self) -> None:
        """Free everything. Calling it twice is harmless."""


TARGET, RATE, LOSS = "loss.target", "sgd.rate", "loss"
"""The own inputs of a training step and its output; no Python argument, so no input of a model, can be called so."""
MOMENTUM = 0.9
"""The momentum of its optimizer."""


def check_inputs(specs: Sequence[TensorSpec], inputs: Arrays) -> None:
    """Refuse inputs that are not the model's.

    Raises:
        ValueError: an input is missing, unknown, or has another shape or dtype; names the expected and the received.
    """
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None or not spec.matches(array):  # the hot path of every call: no more than this
            got = f"{array.dtype}{list(array.shape)}" if array is not None else f"only {sorted(inputs)}"
            raise ValueError(f"input {spec.name!r}: expected {spec.dtype}{list(spec.shape)}, got {got}")
    if len(inputs) != len(specs):
        raise ValueError(f"inputs: expected {sorted(spec.name for spec in specs)}, got {sorted(inputs)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An arm's artifact on disk: all that `load` needs, in any later process; and, for the record, what it took.

    Attributes:
        exported: the model it was built from.
        folder: where `build` put its files; read-only from then on.
        facts: what `build` wants to tell `load` or the record (JSON values). `compute_nodes_by_precision` and
            `artifact_bytes`, where they are among them, go into the row of an arm that is built here but can't run.
        build_s: seconds of the first, uncached build; like all below it is filled in by what calls `build`.
        cached: whether it came from the cache.
        probe: the permutation probe's finding, or for integers the grid probe's; None if neither applies (spin).
        install_bytes: of its runtime; None if not known.
    """

    arm: Arm
    exported: ExportedModel
    folder: Path
    facts: Mapping[str, Any] = field(default_factory=dict)
    build_s: float = 0.0
    cached: bool = False
    probe: str | None = None
    install_bytes: int | None = None


class Runner(Protocol):
    """A builder and loader of arms: an adapter, or the runner of shipped folders."""

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Quantize, compile, write the engine into `folder` (empty): once per arm, cached by content."""

    def load(self, built: Built) -> Session:
        """Load a ready session, in each restart's fresh process; affinity and thread variables are already set."""


class Shipped(Protocol):
    """A shipped folder whose files were all found as they were written."""

    @property
    def target(self) -> Target:
        """Return the target that runs it."""

    @property
    def model(self) -> Mapping[str, str]:
        """Return the `name` of its model, and the `sha256` of the weights."""

    @property
    def manifest(self) -> Path:
        """Return the file that holds the hashes of all others."""

    def find_obstacle(self, arm: Arm) -> NotRun | None:
        """Return why the arm that races it can't run here; None if it can."""

    def find_other_shapes(self, arm: Arm, exported: ExportedModel) -> NotRun | None:
        """Return why it doesn't take the inputs of an exported model; None if it does."""

    def misfit(self, exported: ExportedModel) -> str:
        """Return why this isn't a folder of the model in an exported model; "" if it is."""


class Adapter(Runner, Protocol):
    """One backend. Its module imports no framework at the top; the framework comes in with the first call.

    It may have more, which `shootout.backends.optional` defines: `fixture` for the conformance suite, `error_hints`
    for what its library's own errors mean, and `look_inside`.
    """

    name: str
    capabilities: Capabilities

    def probe(self, device: Device) -> Availability:
        """Build and run a tiny real session on `device`. Never raises; always explains."""


def check_options(arm: Arm, options: Sequence[Option]) -> None:
    """Refuse a knob that the backend doesn't have, or a value it can't have: silently ignored, both would be a lie.

    Args:
        arm: its options are checked, for its device and mode.
        options: the adapter's own, as its capabilities declare them.

    Raises:
        ValueError: names the option, the value and what is known.
    """
    for name, value in arm.options.items():
        option = _declared_option(name, arm.target, options)
        if option.settled:
            raise ValueError(f"option {name!r} can't be set: {option.settled}")
        if not option.allows(value):
            raise ValueError(f"option {name!r}: expected {option.expects}, got {value!r}")


def _declared_option(name: str, target: Target, options: Sequence[Option]) -> Option:
    """Return the option that is declared under a name.

    Raises:
        ValueError: nothing is, for this target.
    """
    covering = [option for option in options if option.covers(name)]
    if declared := next((option for option in covering if option.is_for(target)), None):
        return declared
    here = sorted({option.name for option in options if option.is_for(target) and not option.settled})
    if covering:
        raise ValueError(f"option {name!r} {_describe_place(covering[0], target)}: {covering[0].help}")
    near = get_close_matches(name, here, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown option {name!r}: {hint}this backend takes {', '.join(here) or 'no options'}")


def _describe_place(option: Option, target: Target) -> str:
    """Describe where an option belongs that isn't for this target."""
    if target.device not in option.devices:
        return f"is for {_join_names(option.devices)}, not for {target.device}"
    if option.modes is not None and target.mode not in option.modes:
        modes = [f"+{mode}" if mode else "the plain mode" for mode in option.modes]
        return f"is for {_join_names(modes)}, not for {f'+{target.mode}' if target.mode else 'the plain mode'}"
    return f"is for {_join_names(option.precisions or ())}, not for {target.precision}"


def _join_names(names: Iterable[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the registry: all that the harness knows of a backend by name, without importing anything.

    What its functions give or take beside the contract is in `shootout.backends.optional`.

    Attributes:
        path: `module:Class` of the adapter.
        extra: the package extra that installs its library, "" where none is needed.
        package: the third party's, "" for a backend that ships.
        needs: what has to be there beside shootout itself, for people.
        default: the device and precision that the bare backend name means.
        installs: requirements to run its artifacts: those of the target's mode ("" for a mode without its own; None:
            unknown), and those under the names of its device and precision. Of several with `|` in between one is
            enough. A third party's: the package of its adapter.
        makers: packages beside its own library that decide what is built: quantizers, exporters.
        loads: the frameworks that an arm's process may hold, by mode; those of "" in every mode.
        gemms: `module:function` of its library's fastest square products (see `Gemms`), "" if another row or none
            has them; the library's name is the first of `loads`.
        ships: `module:function` of how its artifact is shipped (see `Ship`), beside whose module the template
            lies; "" where none of them can be.
        ships_anywhere: the same of an artifact for any CPU, if the one that is built may be bound to this kind.
        unshippable: by mode, why an arm's can't be, and what to ship instead; `{model}` is the model's name.
        own_files: whether it runs only files that its own library wrote.
        movable: whether a loaded arm's threads stay where they are moved to. A library that pins them while it loads
            takes them back. An arm of such a backend, or of one that wasn't tried, is loaded on its own CPUs.
        times_kernels: whether its build keeps what it timed fastest of thousands of kernels: on a GPU it builds alone.
        shared: modules that an arm's process on the CPU begins with, if importing them takes long and leaves no
            threads. Arms with the same ones (with none, too) may be forked from one process that has imported them.
        build_shared: the same of a build's process on the CPU; those of other backends may go on from the first ones.
        ready_s: seconds until a fresh process is loaded, checked and warm; two cores of 2020, calls of about 1 ms.
        build_s: seconds that `build` takes there, quantization apart; `mode_build_s` of modes that take otherwise.
        ready_gb_s, build_gb_s: seconds more of a GB of float32 weights.
        copies: how often its build has the weights on the disk.
    """

    path: str
    extra: str = ""
    package: str = ""
    needs: str = ""
    default: tuple[Device, Precision] = (Device.CPU, Precision.FP32)
    installs: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    makers: tuple[str, ...] = ()
    loads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gemms: str = ""
    ships: str = ""
    ships_anywhere: str = ""
    unshippable: Mapping[str, str] = field(default_factory=dict)
    own_files: bool = False
    movable: bool = False
    times_kernels: bool = False
    shared: tuple[str, ...] = ()
    build_shared: tuple[str, ...] = ()
    ready_s: float = 2.0
    build_s: float = 3.0
    mode_build_s: Mapping[str, float] = field(default_factory=dict)
    ready_gb_s: float = 2.0
    build_gb_s: float = 5.0
    copies: float = 1.0

    def expect_build_s(self, mode: str, precision: str, weight_bytes: int) -> float:
        """Return the seconds that a build takes by rule of thumb, with the quantization; of float32 weights."""
        gb = weight_bytes / 1e9
        quantize_s = QUANTIZE_S + gb * QUANTIZE_GB_S if precision in SCALED else 0.0
        return self.mode_build_s.get(mode, self.build_s) + gb * self.build_gb_s + quantize_s

    @property
    def fix(self) -> str:
        """Return the command that makes it available."""
        return pip_install(self.package, options="--upgrade") if self.package else install(self.extra)

    def installed(self, target: Target) -> tuple[str, ...]:
        """Return what is to be installed to run what it builds for a target; () if that is unknown."""
        if self.package:
            return (self.package,)
        needs = self.installs.get(next((mode for mode in self.installs if is_among(target.mode, (mode,))), ""))
        more = (self.installs.get(word) or () for word in (target.device, target.precision))
        return (*needs, *(one for some in more for one in some)) if needs else ()

    def distributions(self, target: Target) -> tuple[str, ...]:
        """Return the names of those packages, its library's first, and all of several that would do."""
        return tuple(one.partition("[")[0] for some in self.installed(target) for one in some.split("|"))
