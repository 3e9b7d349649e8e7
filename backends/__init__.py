"""The registry: a backend's module is imported when it is first used, never before.

A name is known by a row in `SHIPPED`, or by an entry point in the group `shootout.backends` of any installed package.
A third party may add a name but not take one: a verdict must mean the same adapter everywhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from shootout.backends import description
from shootout.backends.description import Description
from shootout.core.adapter import Adapter, Fixture, Runner, Ship, explain_error
from shootout.core.constants import SHIPPED as SHIPPED_PLACE
from shootout.core.contract import (
    SCALED,
    Arm,
    Artifact,
    Capabilities,
    Device,
    Gemms,
    NotRun,
    Precision,
    Target,
    is_among,
)
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm, UsageError, explained, install, pip_install, unknown
from shootout.core.exported.model import ExportedModel
from shootout.core.worker import reported

GROUP = "shootout.backends"
"""The entry-point group of third-party adapters: name = the backend's name, value = `module:Class`."""
QUANTIZE_S, QUANTIZE_GB_S = 9.0, 60.0
"""The seconds that a quantizer adds to a build, and those of a GB of float32 weights."""
PROGRAM_SHARED = ("torch", "torch._dynamo")
"""Modules that a build begins with if it takes a torch program: `torch.export` imports Dynamo at the first one."""
_SHIPPED_RUNNER = "shootout.backends._shipped:ShippedRunner"
"""Runner of targets that are shipped folders (`shipped:DIR`)."""
Folders = tuple[tuple[str, int], ...]
"""The folders where packages are looked for, and the times when each last changed."""


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
        baseline: whether the others are compared with it unless the user names another.
        quick_baseline: whether they are if it can run a user's ONNX file, or if only the fastest is looked for.
        installs: requirements to run its artifacts: those of the target's mode ("" for a mode without its own; None:
            unknown), and those under the names of its device and precision. Of several with `|` in between one is
            enough. A third party's: the package of its adapter.
        makers: packages beside its own library that decide what is built: quantizers, exporters.
        loads: the frameworks that an arm's process may hold, by mode; those of "" in every mode.
        gemms: `module:function` of its library's fastest square products (see `Gemms`), "" if another row or none
            has them; the library's name is the first of `loads`.
        fixture: `module:NAME` of how the conformance suite drives it, "" for the plain way.
        error_hints: `module:NAME` of what its library's own errors mean (see `adapter.ErrorHint`), "" for none.
        ships: `module:function` of how its artifact is shipped (see `adapter.Ship`), beside whose module the template
            lies; "" where none of them can be.
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
    hidden: bool = False
    baseline: bool = False
    quick_baseline: bool = False
    installs: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    makers: tuple[str, ...] = ()
    loads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gemms: str = ""
    fixture: str = ""
    error_hints: str = ""
    ships: str = ""
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

    def why_unshippable(self, target: Target, model: str = "your model file") -> str:
        """Return why a target's artifact can't be shipped; "" if it can.

        Args:
            model: its name for people.
        """
        if target.folder:
            return f"it is a shipped folder already; copy {target.folder}"
        if target.device.is_gpu:
            return "what a GPU runs needs its drivers, memory and streams; ship an arm on the CPU"
        why = self.unshippable.get(target.mode, "")
        why = why or ("" if self.ships else self.unshippable.get("", "its adapter doesn't say how"))
        return why.format(model=model)

    def installed(self, target: Target) -> tuple[str, ...]:
        """Return what is to be installed to run what it builds for a target; () if that is unknown."""
        if self.package:
            return (self.package,)
        mode = next((mode for mode in self.installs if is_among(target.mode, (mode,))), "")
        needs = self.installs.get(mode)
        more = (self.installs.get(word) or () for word in (target.device, target.precision))
        return (*needs, *(one for some in more for one in some)) if needs else ()

    def distributions(self, target: Target) -> tuple[str, ...]:
        """Return the names of those packages, its library's first, and all of several that would do."""
        return tuple(one.partition("[")[0] for some in self.installed(target) for one in some.split("|"))


_TORCH = ("torch", "numpy", "safetensors")
_TORCHAO: Mapping[str, tuple[str, ...]] = {str(one): ("torchao",) for one in SCALED}
"""Requirements by precision: what torchao quantized is loaded with its classes."""

OWN_FILE = "it runs {model} as it is, so copy that file"
JUST_IN_TIME = (
    "Inductor compiles the model's Python as it is loaded: ship torch-compile+aoti, its kernels in one package"
)

SHIPPED = {
    "numpy": Entry(
        path="shootout.backends._numpy.backend:NumpyAdapter",
        installs={"": ("numpy", "safetensors")},
        makers=("onnx",),
        movable=True,
        loads={"": ("numpy", "safetensors")},
        gemms="shootout.backends._numpy.backend:gemms",
        ships="shootout.backends._numpy.backend:ship",
        ready_s=0.3,
        build_s=0.3,
        copies=0.0,
    ),
    "torch-eager": Entry(
        path="shootout.backends._torch.eager:TorchEagerAdapter",
        extra="torch",
        needs="torch",
        baseline=True,
        installs={"": _TORCH, **_TORCHAO},
        makers=("torchao",),
        movable=True,
        shared=("torch",),
        build_shared=("torch",),
        loads={"": ("torch", "safetensors")},
        gemms="shootout.backends._torch.eager:gemms",
        fixture="shootout.backends._torch.eager:FIXTURE",
        unshippable={"": "it runs the Python of the model's own package: ship torch-compile+aoti or torchscript"},
        ready_s=1.7,
        build_s=0.5,
        copies=0.0,
        ready_gb_s=4.5,
        build_gb_s=0.0,
    ),
    "torch-compile": Entry(
        path="shootout.backends._torch.compile:TorchCompileAdapter",
        extra="torch",
        needs="torch, a C++ compiler, Python's headers",
        installs={"": _TORCH, "aoti": ("torch", "numpy"), **_TORCHAO},
        makers=("torchao",),
        movable=True,
        shared=("torch",),
        build_shared=(*PROGRAM_SHARED, "shootout.backends._torch.first_compile"),
        loads={"": ("torch", "safetensors")},
        fixture="shootout.backends._torch.compile:FIXTURE",
        ships="shootout.backends._torch.compile:ship_package",
        unshippable={"": JUST_IN_TIME, "cudagraphs": JUST_IN_TIME},
        ready_s=4.5,
        build_s=15.0,
        mode_build_s={"aoti": 25.0},
    ),
    "torchscript": Entry(
        path="shootout.backends._torch.script:TorchScriptAdapter",
        extra="torch",
        needs="torch",
        installs={"": ("torch", "numpy")},
        fixture="shootout.backends._torch.script:FIXTURE",
        ships="shootout.backends._torch.script:ship_script",
        movable=True,
        shared=("torch",),
        build_shared=("torch",),
        loads={"": ("torch", "safetensors")},
        ready_s=1.7,
    ),
    "jax-jit": Entry(
        path="shootout.backends._jax.backend:JaxJitAdapter",
        extra="jax",
        needs="jax; torchax for models without array code",
        installs={
            "": ("jax", "safetensors"),
            "torchax": ("jax", "torchax", "torch", "safetensors"),
            "cuda": ("jax-cuda13-plugin[with-cuda]|jax-cuda12-plugin[with-cuda]",),
        },
        makers=("torch", "torchax"),
        movable=True,
        loads={"": ("jax", "scipy", "safetensors"), "torchax": ("torch", "torchax")},
        error_hints="shootout.backends._jax.backend:ERROR_HINTS",
        fixture="shootout.backends._jax.backend:FIXTURE",
        ships="shootout.backends._jax.backend:ship",
        ready_s=1.0,
        copies=0.0,
    ),
    "onnxruntime": Entry(
        quick_baseline=True,
        path="shootout.backends._onnxruntime.backend:OnnxRuntimeAdapter",
        extra="onnxruntime",
        needs="onnxruntime; onnxruntime-gpu for cuda",
        installs={
            "": ("onnxruntime-gpu|onnxruntime",),
            "tensorrt": ("onnxruntime-gpu", "tensorrt"),
            "ep=*": None,
            "cuda": ("onnxruntime-gpu[cuda,cudnn]",),
        },
        makers=("onnx",),
        movable=True,
        loads={"": ("onnxruntime",)},
        gemms="shootout.backends._onnxruntime.backend:gemms",
        ships="shootout.backends._onnxruntime.backend:ship",
        fixture="shootout.backends._onnxruntime.backend:FIXTURE",
        error_hints="shootout.backends._onnxruntime.backend:ERROR_HINTS",
        ready_s=0.4,
        build_s=1.0,
        ready_gb_s=0.8,
        build_gb_s=4.0,
    ),
    "openvino": Entry(
        path="shootout.backends._openvino.backend:OpenVinoAdapter",
        extra="openvino",
        needs="openvino; nncf for int8; Intel's drivers for xpu and npu",
        installs={"": ("openvino",)},
        makers=("nncf",),
        loads={"": ("openvino",)},
        gemms="shootout.backends._openvino.backend:gemms",
        fixture="shootout.backends._openvino.backend:FIXTURE",
        ships="shootout.backends._openvino.backend:ship",
        error_hints="shootout.backends._openvino.backend:ERROR_HINTS",
        ready_s=0.7,
        build_s=2.0,
        ready_gb_s=1.5,
        build_gb_s=4.0,
    ),
    "litert": Entry(
        path="shootout.backends._litert.backend:LiteRtAdapter",
        extra="litert",
        needs="ai-edge-litert; its converter is installed into the cache once",
        installs={"": ("ai-edge-litert",)},
        makers=("torch", "litert-torch", "litert-converter", "ai-edge-quantizer"),
        movable=True,
        build_shared=(*PROGRAM_SHARED, "shootout.backends._litert.first_conversion"),
        loads={"": ("ai_edge_litert",)},
        fixture="shootout.backends._litert.backend:FIXTURE",
        ships="shootout.backends._litert.backend:ship",
        error_hints="shootout.backends._litert.backend:ERROR_HINTS",
        ready_s=0.4,
        build_s=5.0,
    ),
    "executorch": Entry(
        path="shootout.backends._executorch.backend:ExecuTorchAdapter",
        extra="executorch",
        needs="executorch",
        installs={"": ("executorch", "torch")},
        makers=("torch", "torchao"),
        movable=True,
        shared=("torch",),
        build_shared=PROGRAM_SHARED,
        loads={"": ("executorch", "torch")},
        fixture="shootout.backends._executorch.backend:FIXTURE",
        ships="shootout.backends._executorch.backend:ship",
        error_hints="shootout.backends._executorch.backend:ERROR_HINTS",
        ready_s=1.9,
        build_s=25.0,
    ),
    "ncnn": Entry(
        path="shootout.backends._ncnn.backend:NcnnAdapter",
        extra="ncnn",
        needs="ncnn; pnnx converts for it",
        installs={"": ("ncnn",)},
        makers=("pnnx",),
        movable=True,
        loads={"": ("ncnn",)},
        fixture="shootout.backends._ncnn.backend:FIXTURE",
        ships="shootout.backends._ncnn.backend:ship",
        ready_s=0.3,
        build_s=1.0,
    ),
    "iree": Entry(
        path="shootout.backends._iree.backend:IreeAdapter",
        extra="iree",
        needs="iree-base-compiler and iree-base-runtime",
        installs={"": ("iree-base-runtime",)},
        makers=("iree-base-compiler", "onnx", "onnxruntime"),
        movable=True,
        loads={"": ("iree",)},
        fixture="shootout.backends._iree.backend:FIXTURE",
        ships="shootout.backends._iree.backend:ship",
        error_hints="shootout.backends._iree.backend:ERROR_HINTS",
        ready_s=0.4,
        build_s=4.0,
    ),
    "tensorrt": Entry(
        path="shootout.backends._tensorrt.backend:TensorRtAdapter",
        extra="tensorrt-rtx",
        needs="tensorrt, or tensorrt-rtx (also builds without a GPU)",
        default=(Device.CUDA, Precision.FP16),
        installs={
            "": ("tensorrt|tensorrt-rtx-cu13-bindings", "tensorrt|tensorrt-rtx-cu13-libs", "cuda-bindings", "numpy")
        },
        makers=("onnx",),
        times_kernels=True,
        loads={"": ("tensorrt", "tensorrt_rtx")},
        fixture="shootout.backends._tensorrt.backend:FIXTURE",
        unshippable={"": "an engine needs its GPU, and memory and a stream that a folder can't bring"},
    ),
    "sklearn": Entry(
        path="shootout.backends._trees.backend:SklearnAdapter",
        extra="trees",
        needs="scikit-learn, and a model file of its own",
        installs={"": ("scikit-learn", "joblib")},
        movable=True,
        loads={"": ("sklearn", "scipy", "joblib", "pandas", "pyarrow")},
        fixture="shootout.backends._trees.fixture:SKLEARN",
        unshippable={"": OWN_FILE},
        own_files=True,
        ready_s=1.5,
        build_s=0.3,
        copies=0.0,
    ),
    "lightgbm": Entry(
        path="shootout.backends._trees.backend:LightGbmAdapter",
        extra="trees",
        needs="lightgbm, and a model file of its own",
        installs={"": ("lightgbm",)},
        movable=True,
        loads={"": ("lightgbm", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
        fixture="shootout.backends._trees.fixture:LIGHTGBM",
        unshippable={"": OWN_FILE},
        own_files=True,
        ready_s=1.5,
        build_s=0.3,
        copies=0.0,
    ),
    "xgboost": Entry(
        path="shootout.backends._trees.backend:XgboostAdapter",
        extra="trees",
        needs="xgboost or xgboost-cpu, and a model file of its own",
        installs={"": ("xgboost-cpu|xgboost",)},
        movable=True,
        loads={"": ("xgboost", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
        fixture="shootout.backends._trees.fixture:XGBOOST",
        unshippable={"": OWN_FILE},
        own_files=True,
        ready_s=1.5,
        build_s=0.3,
        copies=0.0,
    ),
    "spin": Entry(
        path="shootout.backends._spin:SpinAdapter",
        hidden=True,
        installs={"": ("numpy",)},
        fixture="shootout.backends._spin:FIXTURE",
        movable=True,
        ready_s=0.3,
        build_s=0.3,
        copies=0.0,
    ),
}


def names(*, hidden: bool = False) -> tuple[str, ...]:
    """Return the known backends, the shipped ones first; `hidden` adds the harness's own instruments."""
    shipped = [name for name, row in SHIPPED.items() if hidden or not row.hidden]
    return (*shipped, *sorted({point.name for point in _third_parties()} - set(SHIPPED)))


def entry(name: str) -> Entry:
    """Return the row of a backend, without importing it.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
    """
    claims = [point for point in _third_parties() if point.name == name]
    if len(claims) + (name in SHIPPED) > 1:
        owners = ", ".join(_package_of(point) for point in claims)
        others = "shootout itself" if name in SHIPPED else "each other"
        raise UsageError(f"backend {name!r} is claimed twice, by {owners} against {others}: uninstall or rename one")
    if name in SHIPPED:
        return SHIPPED[name]
    if not claims:
        raise unknown("backend", name, names())
    return Entry(path=claims[0].value, package=_package_of(claims[0]), makers=_requirements_of(claims[0]))


def get(name: str) -> Adapter:
    """Return the adapter of a backend, imported now; what a third party's prints meanwhile goes to standard error.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    row = entry(name)
    if name in SHIPPED:
        return cast("Adapter", _import_attribute(row.path)())
    try:
        with redirect_stdout(sys.stderr):
            return cast("Adapter", _import_attribute(row.path)())
    except (Exception, SystemExit) as error:
        raise SkippedArm(f"{row.path} can't be loaded: {explained(error)}", row.fix, NotRunKind.BROKEN) from error


def runner(target: Target) -> Runner:
    """Return what builds and loads a target: its backend's adapter, or a shipped folder by itself.

    Raises:
        UsageError: no such backend, or a third party claims a name that is taken.
        SkippedArm: it can't be imported.
    """
    if target.folder:
        return cast("Runner", _import_attribute(_SHIPPED_RUNNER)())
    return get(target.backend)


def capabilities(name: str) -> Capabilities:
    """Return what a backend can be asked.

    Raises:
        UsageError: no such backend.
    """
    return describe(name).capabilities


def describe(name: str) -> Description:
    """Return what a backend says of itself, or why it can't.

    Raises:
        UsageError: no such backend.
    """
    try:
        row = entry(name)
    except UsageError as error:
        if name not in names(hidden=True):
            raise
        return description.broken(str(error))
    if name in SHIPPED:
        adapter = get(name)
        return Description(capabilities=adapter.capabilities, shows_inside=hasattr(adapter, "look_inside"))
    return _describe_foreign(name, row.path, row.fix, _package_folders())


@lru_cache(maxsize=64)
def _describe_foreign(name: str, path: str, fix: str, _package_folders: Folders) -> Description:
    """Describe a third party's adapter: once, and again when a package was installed."""
    try:
        adapter = get(name)
        can = reported.check_capabilities(adapter.capabilities)
    except SkippedArm as error:
        return description.broken(error.reason, fix)
    except (ArmFailed, AttributeError) as error:
        return description.broken(f"{path} can't be loaded: {explained(error)}", fix)
    return Description(capabilities=can, shows_inside=hasattr(adapter, "look_inside"))


def shows_inside(name: str) -> bool:
    """Tell whether `shootout explain` can look into a backend; False of one that isn't known on this machine."""
    try:
        return describe(name).shows_inside
    except (UsageError, SkippedArm):
        return False


USUAL: Mapping[Device, tuple[str, ...]] = {
    Device.CPU: ("onnxruntime", "torch-compile+aoti"),
    Device.CUDA: ("tensorrt", "tensorrt-rtx", "onnxruntime"),
}
"""The backends that an expert would take without measuring, plain and in FP32, by the device of what is shipped."""


def reads_own_files(backend: str) -> bool:
    """Tell whether a row's backend runs only files that its own library wrote; False of one that isn't known here."""
    row = SHIPPED.get(backend.partition("+")[0])
    return row is not None and row.own_files


def why_unshippable(backend: str, device: str, model: str) -> str:
    """Return why what a row names can't be shipped; "" if it can, or if its backend isn't known on this machine.

    Args:
        backend: with its mode, as a row of a document has it.
        model: its name for people.
    """
    if backend.startswith(f"{SHIPPED_PLACE}:"):
        return "it is a shipped folder already, so copy that"
    name, _, mode = backend.partition("+")
    try:
        return entry(name).why_unshippable(Target(backend=name, mode=mode, device=Device(device)), model)
    except (UsageError, ValueError):
        return ""


def offers(name: str, precision: Precision, word: str) -> bool:
    """Tell whether a backend offers a word of a scheme; False of one that isn't known on this machine."""
    try:
        return is_among(word, capabilities(name).schemes.get(precision, ()))
    except (UsageError, SkippedArm):
        return False


def files_read(exported: ExportedModel, arms: Iterable[Arm]) -> list[str]:
    """List the files of an exported model that are read where these arms are built from it, and raced.

    Raises:
        UsageError: no such backend.
    """
    artifacts, quantizes = set[Artifact](), False
    for arm in arms:
        first = next((one for one in capabilities(arm.target.backend).consumes if one in exported.artifacts), None)
        artifacts |= {first} if first else set()
        quantizes |= arm.target.precision in SCALED
    return exported.files_read(artifacts, quantizes=quantizes)


def is_installed(name: str, packages: Collection[str]) -> bool:
    """Return whether a backend's library, or a third party's package, is among these packages.

    Args:
        packages: names, such as those of a run's environment; none: they weren't recorded, and nothing is missing.

    Raises:
        UsageError: no such backend.
    """
    row = entry(name)
    if not packages or not (row.extra or row.package):
        return True
    own = row.package or (row.installs[""] or ("",))[0]
    return not {*map(_normalize, own.split("|"))}.isdisjoint(map(_normalize, packages))


def _normalize(package: str) -> str:
    return re.sub("[-_.]+", "-", package).lower()


def baselines(*, loads_quickly: bool = False) -> list[str]:
    """Return the backends that the others are compared with unless the user names one, the first that can run.

    Args:
        loads_quickly: one first that reads ONNX files and loads in a fraction of a second.
    """
    usual = [name for name, row in SHIPPED.items() if row.baseline]
    return [name for name, row in SHIPPED.items() if row.quick_baseline and loads_quickly] + usual


def multipliers() -> dict[str, str]:
    """Return where each library's fastest square products are made, by the library's name as it is imported."""
    return {row.loads[""][0]: row.gemms for row in SHIPPED.values() if row.gemms}


def gemms(library: str, threads: int) -> Gemms:
    """Return a library's fastest square products on so many threads; imports it.

    Raises:
        KeyError: no row has any of this library.
    """
    return cast("Gemms", _import_attribute(multipliers()[library])(threads))


def explain(name: str, error: Exception) -> NotRun | None:
    """Return what an error of a backend's library means if that is known; None if it is a failure."""
    path = entry(name).error_hints
    return explain_error(error, _import_attribute(path) if path else ())


def explain_device(device: Device | None, error: Exception) -> str | None:
    """Return what an error says of the device, such as how much memory it lacks; None if it says nothing of that."""
    if device is not Device.CUDA:
        return None
    from shootout.backends.gpu_errors import explain_error

    return explain_error(error)


def shipping(target: Target) -> tuple[Ship, Path]:
    """Return what ships a target's artifacts, and the folder of its templates; imports its module.

    Raises:
        SkippedArm: they can't be.
    """
    row = entry(target.backend)
    if target.folder:
        raise SkippedArm(f"{target} is a shipped folder already", f"copy {target.folder}", NotRunKind.UNSUPPORTED)
    if why := row.why_unshippable(target):
        raise SkippedArm(f"{target} can't be shipped: {why}", kind=NotRunKind.UNSUPPORTED)
    module = import_module(row.ships.partition(":")[0])
    return cast("Ship", _import_attribute(row.ships)), Path(str(module.__file__)).parent


def fixture(name: str) -> Fixture:
    """Return what the conformance suite drives a backend with; imports its module if its row names a fixture.

    A third party's row is its entry point, which has no room for a name: its adapter holds the fixture.
    """
    row = entry(name)
    if row.fixture:
        return cast("Fixture", _import_attribute(row.fixture))
    return cast("Fixture", getattr(get(name), "fixture", Fixture())) if row.package else Fixture()


def _import_attribute(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)


def _third_parties() -> tuple[EntryPoint, ...]:
    return _read_entry_points(_package_folders())


def _package_folders() -> Folders:
    """Return where packages are looked for, and when each last changed."""
    return tuple((folder, _changed_ns(folder)) for folder in sys.path)


@lru_cache(maxsize=1)
def _read_entry_points(_package_folders: Folders) -> tuple[EntryPoint, ...]:
    """Read the entry points again when a folder changes: it reads every package's metadata, and planning asks often."""
    return tuple(entry_points(group=GROUP))


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116 - a Path costs more than the rest
    except OSError:
        return 0


def _requirements_of(point: EntryPoint) -> tuple[str, ...]:
    """Return the packages that a third party's own requires: any of them may decide what it builds."""
    lines = (point.dist.requires if point.dist else None) or ()
    return tuple(sorted({match[0] for line in lines if (match := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))}))


def _package_of(point: EntryPoint) -> str:
    return (point.dist.name if point.dist else "") or point.value
