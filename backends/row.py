"""The registry's rows: what the harness knows of each backend by name, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shootout.contract import SCALED, Device, Precision, Target, is_among
from shootout.errors import install, pip_install


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
        serves: `module:function` of what a server's own runtime is told (see `adapter.Serve`), by the server's name.
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
    serves: Mapping[str, str] = field(default_factory=dict)
    movable: bool = False
    shared: tuple[str, ...] = ()
    ready_s: float = 2.0
    build_s: float = 3.0
    mode_build_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def fix(self) -> str:
        """The command that makes it available."""
        return pip_install(self.package, options="--upgrade") if self.package else install(self.extra)

    def why_unshippable(self, target: Target) -> str:
        """Why a target's artifact can't be shipped; "" where it can."""
        if target.folder:
            return f"it is a shipped folder already; copy {target.folder}"
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

    def distributions(self, target: Target) -> tuple[str, ...]:
        """Names of those packages, its library's first; of several that would do all."""
        return tuple(one.partition("[")[0] for some in self.installed(target) for one in some.split("|"))


_TORCH = ("torch", "numpy", "safetensors")
_TORCHAO: Mapping[str, tuple[str, ...]] = {str(one): ("torchao",) for one in SCALED}
"""What torchao quantized is loaded with its classes."""

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
        loads={"": ("torch", "safetensors")},
        gemms="shootout.backends._torch.eager:gemms",
        fixture="shootout.backends._torch.eager:FIXTURE",
        unshippable={"": "it runs the Python of the model's own package: ship torch-compile+aoti or torchscript"},
        ready_s=1.7,
    ),
    "torch-compile": Entry(
        path="shootout.backends._torch.compile:TorchCompileAdapter",
        extra="torch",
        needs="torch, a C++ compiler, Python's headers",
        installs={"": _TORCH, "aoti": ("torch", "numpy"), **_TORCHAO},
        makers=("torchao",),
        movable=True,
        shared=("torch",),
        loads={"": ("torch", "safetensors")},
        get_ready="shootout.backends._torch.inductor:get_ready",
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
        words="shootout.backends._jax.backend:ERROR_HINTS",
        fixture="shootout.backends._jax.backend:FIXTURE",
        ships="shootout.backends._jax.backend:ship",
        ready_s=1.0,
    ),
    "onnxruntime": Entry(
        file_baseline=True,
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
        serves={"triton": "shootout.backends._onnxruntime.backend:triton"},
        fixture="shootout.backends._onnxruntime.backend:FIXTURE",
        words="shootout.backends._onnxruntime.backend:ERROR_HINTS",
        ready_s=0.4,
        build_s=1.0,
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
        words="shootout.backends._openvino.backend:ERROR_HINTS",
        serves={
            "triton": "shootout.backends._openvino.backend:triton",
            "ovms": "shootout.backends._openvino.backend:ovms",
        },
        ready_s=0.7,
        build_s=2.0,
    ),
    "litert": Entry(
        path="shootout.backends._litert.backend:LiteRtAdapter",
        extra="litert",
        needs="ai-edge-litert; its converter is installed into the cache once",
        installs={"": ("ai-edge-litert",)},
        makers=("torch", "litert-torch", "litert-converter", "ai-edge-quantizer"),
        movable=True,
        loads={"": ("ai_edge_litert",)},
        fixture="shootout.backends._litert.backend:FIXTURE",
        ships="shootout.backends._litert.backend:ship",
        words="shootout.backends._litert.backend:ERROR_HINTS",
        ready_s=0.4,
        build_s=11.0,
    ),
    "executorch": Entry(
        path="shootout.backends._executorch.backend:ExecuTorchAdapter",
        extra="executorch",
        needs="executorch",
        installs={"": ("executorch", "torch")},
        makers=("torch", "torchao"),
        movable=True,
        shared=("torch",),
        loads={"": ("executorch", "torch")},
        fixture="shootout.backends._executorch.backend:FIXTURE",
        ships="shootout.backends._executorch.backend:ship",
        words="shootout.backends._executorch.backend:ERROR_HINTS",
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
        words="shootout.backends._iree.backend:ERROR_HINTS",
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
        loads={"": ("tensorrt", "tensorrt_rtx")},
        fixture="shootout.backends._tensorrt.backend:FIXTURE",
        unshippable={"": "an engine needs its GPU, and memory and a stream that a folder can't bring"},
    ),
    "spin": Entry(
        path="shootout.backends._spin:SpinAdapter",
        hidden=True,
        installs={"": ("numpy",)},
        fixture="shootout.backends._spin:FIXTURE",
        movable=True,
        ready_s=0.3,
        build_s=0.3,
    ),
}
