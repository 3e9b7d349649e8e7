"""TensorRT: an engine built from the ONNX file, run on an NVIDIA GPU.

TensorRT takes a graph's types as they are, so each precision builds from another graph:

- FP16 from a half graph;
- INT8 from the shared Q/DQ one; what that leaves in float is narrowed too, unless the scheme says `rest-fp32`;
- FP8 from a half graph with Q/DQ pairs in FP8;
- INT4 from a half graph with 4-bit weights.

With TensorRT-RTX, a machine without a GPU still builds: what would ship, its size and its layers' types are then known,
only not its speed.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.backends import common_onnx, cuda_memory
from shootout.backends._tensorrt.account import load_network
from shootout.backends._tensorrt.engine import (
    GRAPH,
    INSTALL_FULL,
    INSTALL_RTX,
    OPTIONS,
    EnginePlan,
    Library,
    compile_engine,
    open_library,
    reopen,
)
from shootout.backends._tensorrt.quantize import write_half_float8, write_int4
from shootout.backends._tensorrt.session import Setup, TensorRtSession
from shootout.backends.common import calibration_of, require_device, trial
from shootout.backends.optional import Fixture
from shootout.core import schemes
from shootout.core.adapter import Built, check_options
from shootout.core.contract import (
    Arm,
    Artifact,
    Availability,
    Capabilities,
    Device,
    NotRunKind,
    Precision,
    Target,
    TensorSpec,
)
from shootout.core.errors import SkippedArm

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

PRECISIONS = (
    *(Precision.FP16, Precision.FP32, Precision.TF32, Precision.BF16),
    *(Precision.FP8, Precision.INT8, Precision.INT4),
)
ENGINE, KERNELS = "engine.plan", "runtime.cache"
TINY = TensorSpec(name="x", shape=(2, 2), dtype="float32")


def _is_missing_here(target: Target) -> bool:
    """Return whether the target can't run here: INT8 comes from the shared model only, and FP8 needs a newer GPU."""
    if target.precision is Precision.FP8:
        return cuda_memory.lacks_float8(cuda_memory.capability() or "")
    return target.precision is Precision.INT8 and target.scheme != "shared"


FIXTURE = Fixture(lacks=_is_missing_here, tells_rest=False)


class TensorRtAdapter:
    """TensorRT and TensorRT-RTX on CUDA."""

    name = "tensorrt"
    fixture = FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset((Device.CUDA, precision) for precision in PRECISIONS),
        native=frozenset({Device.CUDA}),
        schemes={
            Precision.INT8: frozenset({"shared", f"{schemes.SHARED}float-*", "rest-fp16", "rest-fp32"}),
            Precision.FP8: frozenset({"samples-*"}),
        },
        options=OPTIONS,
        rest={(Device.CUDA, one): Precision.FP16 for one in (Precision.FP8, Precision.INT4)},
    )

    def probe(self, device: Device) -> Availability:
        """Run a tiny engine; if that fails, tell whether one can at least be built.

        If only a GPU is missing, and a build fails all the same, the library is broken: a GPU wouldn't mend it.
        """
        tried = trial("tensorrt-rtx", lambda: _run_tiny(device))
        if tried.why is None or device is not Device.CUDA:
            return tried
        built, why = trial("tensorrt-rtx", _build_tiny), tried.why
        if built.why is None:
            why = replace(why, kind=NotRunKind.BUILT_ONLY)
        elif why.kind is NotRunKind.UNAVAILABLE and built.why.kind is NotRunKind.BROKEN:
            why = replace(built.why, reason=f"{why.reason}, and without a GPU {built.why.reason}")
        return Availability(version=built.version, why=why)

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Build the engine; on a GPU that TensorRT-RTX knows, also its kernels for that GPU.

        Raises:
            ValueError: an unknown option, or a value it can't have; or there is nothing to quantize.
            RuntimeError: TensorRT can't parse or build the model, or a product isn't in the arm's precision.
            ModelError: there is nothing to quantize to FP8.
            SkippedArm: TensorRT is not installed, or can't quantize by itself; or this GPU multiplies no FP8.
        """
        check_options(arm, self.capabilities.options)
        capability = cuda_memory.capability()
        if arm.target.precision is Precision.FP8:
            cuda_memory.require_float8(capability, "fp16 or int8/shared")
        library = open_library(gpu=capability is not None)
        here = capability is not None and library.runs_on(capability)
        precision = arm.target.precision
        rest = schemes.rest_of(arm.target)
        plan = EnginePlan(precision=precision, rest=rest, inputs=exported.inputs, current=here, options=arm.options)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            source = _graph_in_precision(exported, arm, Path(scratch))
            facts = compile_engine(library, source, plan, folder)
        if capability is not None:
            facts["gpu"] = f"{cuda_memory.device_name()} ({capability})"
        built = Built(arm=arm, exported=exported, folder=folder, facts=facts)
        if here and library.is_rtx:
            (folder / KERNELS).write_bytes(_compile_kernels(self.load(built), exported))
        return built

    def load(self, built: Built) -> TensorRtSession:
        """Load the engine onto this machine's GPU.

        Raises:
            RuntimeError: there is no GPU, or the engine was built for another; in TensorRT's words.
        """
        kernels = built.folder / KERNELS
        setup = Setup(
            plan=(built.folder / ENGINE).read_bytes(),
            inputs=built.exported.inputs,
            outputs=built.exported.outputs,
            network=load_network(built.folder),
            kernels=kernels.read_bytes() if kernels.exists() else b"",
            graph=built.arm.options.get(GRAPH) == "1",
            copies=built.arm.options.get(cuda_memory.COPIES.name, cuda_memory.PINNED),
        )
        return TensorRtSession(reopen(str(built.facts["library"])), setup)


def _graph_in_precision(exported: ExportedModel, arm: Arm, folder: Path) -> Path:
    """Write the graph in the arm's precision."""
    source, precision = exported.path(Artifact.ONNX), arm.target.precision
    if precision in common_onnx.NARROWED:
        return common_onnx.write_half(source, precision, folder)
    if precision is Precision.INT4:
        return write_int4(source, folder)
    if precision is Precision.FP8:
        return write_half_float8(source, calibration_of(exported, schemes.parse(arm.target.scheme)), folder)
    if precision is not Precision.INT8:
        return source
    if not schemes.parse(arm.target.scheme).is_quantized:
        fix = f"{replace(arm.target, scheme='shared')} runs the one Q/DQ model that is made for all backends"
        raise SkippedArm("TensorRT has no quantizer of its own: it takes INT8 only as Q/DQ in the graph", fix)
    rest = schemes.rest_of(arm.target)
    return common_onnx.write_half(source, rest, folder) if rest in common_onnx.NARROWED else source


def _compile_kernels(session: TensorRtSession, exported: ExportedModel) -> bytes:
    """Run once, so that TensorRT-RTX compiles its kernels for this GPU in the build and not in each load."""
    session.execute(session.stage(exported.input_buffers()[0], 0))
    session.synchronize()
    kernels = session.kernels()
    session.close()
    return kernels


def _run_tiny(device: Device) -> str:
    if device is not Device.CUDA:
        require_device(device, (Device.CUDA,))
    capability = cuda_memory.capability()
    library = open_library(gpu=capability is not None)
    require_device(device, (Device.CUDA,))
    if capability is None:
        reason = "cuda-bindings is not installed, or doesn't fit the NVIDIA driver"
        raise SkippedArm(reason, INSTALL_RTX, NotRunKind.BROKEN)
    if not library.runs_on(capability):
        known = ", ".join(name for name in library.module.ComputeCapability.__members__ if name.startswith("SM"))
        reason = f"TensorRT-RTX {library.version} has no code for this GPU ({capability}; it knows {known})"
        raise SkippedArm(reason, INSTALL_FULL, NotRunKind.BROKEN)
    with tempfile.TemporaryDirectory() as folder:
        session = TensorRtSession(library, _make_tiny(library, Path(folder), current=True))
        raw = session.execute(session.stage({TINY.name: np.eye(2, dtype=np.float32)}, 0))
        session.synchronize()
        session.fetch(raw)
        session.close()
    return library.version


def _build_tiny() -> str:
    """Build an engine, on no GPU or on one that can't run it, and return TensorRT's version."""
    library = open_library(gpu=cuda_memory.capability() is not None)
    with tempfile.TemporaryDirectory() as folder:
        _make_tiny(library, Path(folder), current=False)
    return library.version


def _make_tiny(library: Library, folder: Path, *, current: bool) -> Setup:
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, TINY.shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "tiny", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "tiny.onnx")
    plan = EnginePlan(precision=Precision.FP32, inputs=(TINY,), current=current, options={})
    compile_engine(library, folder / "tiny.onnx", plan, folder)
    network = load_network(folder)
    return Setup(
        plan=(folder / ENGINE).read_bytes(), inputs=(TINY,), outputs=(replace(TINY, name="y"),), network=network
    )
