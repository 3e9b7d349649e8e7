"""One row of the registry: what the harness knows of a backend by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shootout.contract import Device, Precision, Target, is_among
from shootout.errors import install


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the registry: all that the harness knows of a backend by name, without importing anything.

    Attributes:
        path: `module:Class` of the adapter.
        extra: the package extra that installs its library, "" where none is needed.
        package: the third party's, "" for a backend that ships.
        needs: what has to be there beside shootout itself, for people.
        default: the device and precision that the bare backend name means.
        hidden: whether `list` and `*` leave it out (the harness's own instruments).
        baseline: whether the others are compared with it where nobody says with what.
        file_baseline: likewise, of a user's ONNX file.
        installs: requirements of whoever runs its artifacts: those of the target's mode (of "" where it has none of
            its own; None: nobody knows them), and those under the names of its device and precision; of several with
            `|` in between one is enough. A third party's: the package of its adapter.
        makers: packages beside its own library that decide what is built: quantizers, exporters.
        loads: the frameworks that an arm's process may hold, by mode; those of "" in every mode.
        gemms: `module:function` of its library's fastest square products (see `Gemms`), "" where another row or nobody
            has them; the library's name is the first of `loads`.
        get_ready: `module:function` of what a build does before it needs the model, done while that is being exported;
            "" where that takes no time worth it.
        fixture: `module:NAME` of how the conformance suite drives it, "" for the plain way.
        words: `module:NAME` of what its library's own errors mean (see `backends.words`), "" for none.
        ships: `module:function` of how its artifact is shipped (see `adapter.Ship`), beside whose module the template
            lies; "" where none of them can be.
        unshippable: by mode, why an arm's can't be, and what to ship instead.
        movable: whether a loaded arm's threads stay where they are moved to. A library that pins them while it loads
            takes them back, so an arm of such a one, or of one that nobody has tried, is loaded on its own CPUs.
        shared: modules that an arm's process on the CPU begins with, where importing them takes long and leaves no
            threads. Arms with the same ones (with none, too) may be forked from one process that has imported them.
        ready_s: seconds until a fresh process is loaded, checked and warm; two cores of 2020, calls of about 1 ms.
        build_s: seconds that `build` takes there, quantization apart; `mode_build_s` of modes that take otherwise.
    """

    path: str
    extra: str = ""
    package: str = ""
    needs: str = ""
    default: tuple[Device, Precision] = (Device.CPU, Precision.FP32)
    hidden: bool = False
    baseline: bool = False
    file_baseline: bool = False
    installs: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    makers: tuple[str, ...] = ()
    loads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gemms: str = ""
    get_ready: str = ""
    fixture: str = ""
    words: str = ""
    ships: str = ""
    unshippable: Mapping[str, str] = field(default_factory=dict)
    movable: bool = False
    shared: tuple[str, ...] = ()
    ready_s: float = 2.0
    build_s: float = 3.0
    mode_build_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def fix(self) -> str:
        """The command that makes it available."""
        return f"pip install --upgrade {self.package}" if self.package else install(self.extra)

    def why_unshippable(self, target: Target) -> str:
        """Why a target's artifact can't be shipped; "" where it can."""
        if target.device.is_gpu:
            return "what a GPU runs needs its drivers, memory and streams; ship an arm on the CPU"
        why = self.unshippable.get(target.mode, "")
        return why or ("" if self.ships else self.unshippable.get("", "its adapter doesn't say how"))

    def installed(self, target: Target) -> tuple[str, ...]:
        """What is to be installed to run what it builds for a target; () where nobody knows."""
        if self.package:
            return (self.package,)
        mode = next((mode for mode in self.installs if is_among(target.mode, (mode,))), "")
        needs = self.installs.get(mode)
        more = (self.installs.get(word) or () for word in (target.device, target.precision))
        return (*needs, *(one for some in more for one in some)) if needs else ()
