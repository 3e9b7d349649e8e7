"""ONNX Runtime: one optimized graph on disk, which is then what every session runs.

`build` optimizes once and writes the result. `load` opens that file with optimizations off, so the graph that is
counted is the graph that is timed; on the toy model it is no slower than optimizing inside the session. The counts come
from the runtime's own profile of one run: kernels, operand types and providers, as executed.

CUDA's kernels take a graph's types as they are, so FP16 and BF16 are graphs in half precision with float32 inputs and
outputs. INT8 runs there in TensorRT alone (the mode `tensorrt`), from the shared Q/DQ model, narrowed to FP16 if it
isn't quantized.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._onnxruntime import providers, tensorrt
from shootout.backends._onnxruntime.account import (
    MODEL,
    ROUNDS_FLOATS,
    TEXTS,
    WITHOUT,
    count_kernels,
    look_inside,
    open_session,
    optimize,
    settings_of,
)
from shootout.backends._onnxruntime.quantize import (
    OPTIONS,
    OWN,
    QUANTIZED,
    SCHEMES,
    notes_of,
    quantize,
    refuse_options,
    refuse_words,
)
from shootout.backends._onnxruntime.session import OnnxRuntimeGpuSession, OnnxRuntimeSession, OnnxRuntimeTextSession
from shootout.backends._onnxruntime.shared import ADDED, HARMFUL, recode
from shootout.backends.common import is_handed_out, is_shared, require_device, trial
from shootout.backends.optional import ErrorHint, Fixture, Inside, Shipment
from shootout.core import schemes
from shootout.core.adapter import Built, check_options
from shootout.core.contract import (
    INTEGERS,
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Precision,
    Target,
)
from shootout.core.errors import SkippedArm
from shootout.core.host.environment import cpu_flags
from shootout.models.data import tables
from shootout.models.data.tables import Table
from shootout.models.onnx.lookups import cut_lookups

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

ON_CUDA = (Precision.FP32, Precision.TF32, *common_onnx.NARROWED, Precision.INT8)
ERROR_HINTS = (
    ErrorHint(
        said=r"two nodes with same node name \(\S*uantizeLinear",
        reason="the file is quantized already, and ONNX Runtime's quantizer doesn't take it a second time",
        fix="race the file as it is, in FP32's place, or quantize the float model that it was made from",
    ),
    ErrorHint(
        said=r"Quantization parameters are not specified for param (?P<tensor>\S+?)\.? ",
        reason="ONNX Runtime's quantizer saw no values of {tensor}, so it has no range for it",
        fix="it looks into no branch or loop: try int8-dynamic, or export the model without them",
    ),
    ErrorHint(
        said=r"\[ShapeInferenceError\]",
        reason="ONNX Runtime reads contradicting sizes in this file, in part made by its quantizer if one ran",
        fix="fix the model's sizes (--shape) and simplify it before, or take another backend or precision",
    ),
    ErrorHint(
        said=r"Could not find an implementation for (?P<operator>\w+)",
        reason="ONNX Runtime has no kernel for {operator} with the types that it has in this file",
    ),
)
BLOCKED = b"\x3a\x13com.microsoft.nchwc"
"""A node's domain, in a graph's bytes: a convolution whose filters are laid out for this CPU's widest vectors."""


def _is_missing_here(target: Target) -> bool:
    """Return whether static INT8 can't run here: on a GPU, only TensorRT runs it, and only the shared model's."""
    if target.device is Device.CPU:
        return False
    if target.mode != providers.MODE:
        return target.precision is Precision.INT8
    try:
        providers.require(providers.TENSORRT)
    except SkippedArm:
        return True
    return target.precision is Precision.INT8 and target.scheme != "shared"


FIXTURE = Fixture(options={"session.set_denormal_as_zero": "0"}, lacks=_is_missing_here)


class OnnxRuntimeAdapter:
    """ONNX Runtime's CPU, CUDA and TensorRT providers."""

    name = "onnxruntime"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset(
            {(Device.CPU, precision) for precision in (Precision.FP32, *SCHEMES)}
            | {(Device.CUDA, precision) for precision in ON_CUDA}
        ),
        native=frozenset({Device.CPU, Device.CUDA}),
        classical=True,
        opens=frozenset({Precision.FP32}),
        modes=frozenset({"", providers.MODE, providers.PLUGIN_MODES}),
        cuda_modes=frozenset({providers.MODE}),
        schemes=SCHEMES,
        options=(*providers.OPTIONS, *OPTIONS),
    )

    def probe(self, device: Device) -> Availability:
        """Run a product and a sum."""
        return trial("onnxruntime", lambda: _try_device(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the graph that sessions run, and count what it executes; in the mode `tensorrt` also build TensorRT's
        engine.

        Raises:
            ValueError: an option that the arm's provider doesn't have; nothing can be quantized; or the calibration
                data can't be used.
            SkippedArm: the provider isn't in this ONNX Runtime, or can't have this precision or scheme.
            RuntimeError: the provider couldn't be loaded, or can't take the graph; in ONNX Runtime's words.
        """
        check_options(arm, self.capabilities.options)
        refuse_options(arm)
        _refuse_target(arm.target)
        if providers.names_plugin(arm.target):
            providers.register_plugin(arm.target, arm.options)
        providers.require(providers.provider_of(arm.target))
        with tempfile.TemporaryDirectory() as place:
            facts = _write_graph(exported, arm, folder, Path(place))
        return Built(arm=arm, exported=exported, folder=folder, facts=facts)

    def load(self, built: Built) -> OnnxRuntimeSession:
        """Open a session on the graph."""
        target = built.arm.target
        if (built.folder / TEXTS).exists() and (table := tables.read_beside(built.exported.folder / MODEL)):
            return OnnxRuntimeTextSession(built, table)
        in_host_memory = target.device is Device.CPU or providers.names_plugin(target)
        return OnnxRuntimeSession(built) if in_host_memory else OnnxRuntimeGpuSession(built)

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
        """Run the graph with outputs added, and profile the built one.

        Raises:
            SkippedArm: it ran on a GPU, or in a plugin.
        """
        target = built.arm.target
        if target.device is not Device.CPU or providers.names_plugin(target):
            raise SkippedArm(
                f"the graph that {providers.provider_of(target)} runs is closed", "explain an arm on the CPU"
            )
        with tempfile.TemporaryDirectory() as place:
            source, without, _ = _write_source(built.exported, built.arm, built.folder, Path(place))
            return look_inside(built, source, without, sets, values)


def _write_graph(exported: ExportedModel, arm: Arm, folder: Path, place: Path) -> dict[str, Any]:
    """Write the graph into `folder`; return what `Executed` says of it."""
    if arm.target.mode == providers.MODE:
        return tensorrt.build(_half_precision_model(exported, arm, place), arm, folder)
    if providers.names_plugin(arm.target):
        return tensorrt.build_plugin(
            _half_precision_model(exported, arm, place), arm, folder, exported.input_buffers()[0]
        )
    source, without, notes = _write_source(exported, arm, folder, place)
    path = optimize(source, arm, folder, without)
    owners = common_onnx.name_owners(exported, arm.target.precision)
    if arm.target.device is Device.CPU and (table := tables.read_beside(exported.folder / MODEL)):
        shutil.move(_optimize_texts(source, arm, place, without, table), folder / TEXTS)
    return {**count_kernels(path, arm, exported.input_buffers()[0], owners), "notes": notes}


def _optimize_texts(source: Path, arm: Arm, place: Path, without: str, table: Table) -> Path:
    """Write the graph that takes a table's columns as an application has them."""
    import onnx

    model = onnx.load(source)
    cut_lookups(model, table)
    onnx.save(model, place / TEXTS)
    return optimize(place / TEXTS, arm, place, without)


def _write_source(exported: ExportedModel, arm: Arm, folder: Path, place: Path) -> tuple[Path, str, list[str]]:
    """Write the graph that is then optimized; return its path, the optimizer to leave out, and notes.

    Args:
        folder: of the build, which keeps what a quantizer wrote.
        place: for all other files.
    """
    precision, scheme = arm.target.precision, schemes.parse(arm.target.scheme, own=OWN)
    without = ROUNDS_FLOATS if scheme.floats else ""
    notes = [*notes_of(precision, scheme), *common_onnx.notes_on_floats(exported, scheme)]
    if (folder / QUANTIZED).exists():
        return folder / QUANTIZED, without, notes
    source = exported.path(Artifact.OPEN) if scheme.is_dynamic else _half_precision_model(exported, arm, place)
    if scheme.is_quantized:
        recoded, added = recode(source, place)
        return recoded, HARMFUL, [ADDED.format(added)] * bool(added)
    if precision not in SCHEMES:
        return source, "", []
    written = quantize(source, exported, arm, scheme, place)
    for path in place.glob(f"{written.name}*"):
        shutil.move(path, folder / path.name)
    return folder / written.name, without, notes


def _half_precision_model(exported: ExportedModel, arm: Arm, place: Path) -> Path:
    """Write the model in half precision if that is the arm's, or that of its INT8's rest."""
    source, target = exported.path(Artifact.ONNX), arm.target
    precision = schemes.rest_of(target) if target.precision is Precision.INT8 else target.precision
    return common_onnx.write_half(source, precision, place) if precision in common_onnx.NARROWED else source


def _refuse_target(target: Target) -> None:
    """Skip what no machine can do; each reason names the target that can."""
    in_tensorrt, scheme = target.mode == providers.MODE, schemes.parse(target.scheme, own=OWN)
    refuse_words(target.precision, scheme)
    if providers.names_plugin(target) and target.precision in INTEGERS:
        if providers.provider_of(target) != providers.CPU:
            reason = (
                f"{providers.plugin_of(target)} doesn't tell what its kernels compute in, and no check would see "
                "products of floats between Q/DQ pairs: they round as INT8's do"
            )
            raise SkippedArm(reason, f"use a float, such as {replace(target, precision=Precision.FP32, scheme='')}")
        if not scheme.is_quantized:
            fix = f"use {replace(target, precision=Precision.INT8, scheme='shared')}"
            reason = "a plugin is given the graph as it is: ONNX Runtime's quantizer writes for its own kernels"
            raise SkippedArm(reason, fix)
    if target.device is Device.CPU and schemes.rest_of(target) is not Precision.FP32:
        raise SkippedArm("ONNX Runtime's CPU kernels compute in FP32 beside INT8", "leave rest-fp16 out")
    if target.device is Device.CUDA and target.precision is Precision.INT8:
        shared = replace(target, mode=providers.MODE, scheme="shared")
        if not in_tensorrt:
            raise SkippedArm("ONNX Runtime's CUDA provider multiplies a Q/DQ model in float", f"use {shared}")
        if not scheme.is_quantized:
            reason = "what ONNX Runtime's quantizer writes is for its CPU kernels: TensorRT takes symmetric Q/DQ only"
            raise SkippedArm(reason, f"use {shared}")


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the graph, with the weights beside it.

    Raises:
        SkippedArm: it ran on a GPU, or in a plugin.
    """
    target = built.arm.target
    if target.device is not Device.CPU or providers.names_plugin(target):
        reason = f"{providers.provider_of(target)} needs memory, a stream and libraries that a folder can't bring"
        raise SkippedArm(reason, "ship a target on the CPU, or TensorRT's own engine by hand")
    exported = built.exported
    table = tables.read_beside(exported.folder / MODEL) if (built.folder / TEXTS).exists() else None
    graph = TEXTS if table else MODEL
    for path in built.folder.glob(f"{graph}*"):
        shutil.copyfile(path, folder / path.name.replace(graph, MODEL, 1))
    options: dict[str, Any] = {
        "provider": providers.CPU,
        "session": settings_of(built.arm, optimized=True),
        "large": any(map(is_shared, exported.inputs)) or any(map(is_handed_out, exported.outputs)),
    }
    if table:
        options["columns"] = _describe_columns(table, exported.input_buffers())
    template = "load_table.txt" if table else "load.txt"
    return Shipment(template=template, options=options, isa=_required_isa(folder / MODEL))


def ship_anywhere(built: Built, folder: Path) -> Shipment:
    """Copy the graph as it was before its convolutions were fitted to this CPU; ONNX Runtime fits it as it opens it.

    A graph without such convolutions is shipped as it was built, which opens sooner.

    Raises:
        SkippedArm: as `ship`.
    """
    from shootout.models.onnx import onnx_files

    shipment = ship(built, folder)
    if not shipment.isa or (built.folder / TEXTS).exists():
        return shipment
    for path in folder.glob(f"{MODEL}*"):
        path.unlink()
    settings = settings_of(built.arm)
    with tempfile.TemporaryDirectory() as place:
        source, without, _ = _write_source(built.exported, built.arm, built.folder, Path(place))
        for name, path in {**onnx_files.external_files(source), MODEL: source}.items():
            shutil.copyfile(path, folder / name)
    if without:
        settings["entries"] |= {WITHOUT: without}
    return replace(shipment, options={**shipment.options, "session": settings}, isa=())


def _describe_columns(table: Table, sets: Sequence[Arrays]) -> dict[str, tuple[str, dict[str, str | None]]]:
    """Return each column's name in a graph by its input, with the texts that `check.py` gives: no others leave."""
    given = {
        one.input: {int(code) for inputs in sets for code in inputs[one.input].flat}
        for one in table.columns
        if one.texts
    }
    return {
        one.input: (one.graph, {str(code): one.texts[code] for code in sorted(given.get(one.input, ()))})
        for one in table.columns
    }


def _required_isa(graph: Path) -> tuple[str, ...]:
    """Return the instruction sets that the graph's convolutions need.

    Filters lie in blocks of 16 channels with AVX-512 and of 8 on other x86 CPUs; neither kind runs the other's. Newer
    versions block on ARM too, by ARM's own width.
    """
    if BLOCKED not in graph.read_bytes():
        return ()
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return ("asimd",)
    return ("avx512f",) if "avx512f" in cpu_flags() else ("sse2", "!avx512f")


def _try_device(device: Device) -> str:
    target = Target(backend="onnxruntime", device=device)
    require_device(device, (Device.CPU, Device.CUDA))
    import onnxruntime
    from onnx import TensorProto, helper

    providers.require(providers.provider_of(target))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    nodes = [helper.make_node("MatMul", ["x", "x"], ["z"]), helper.make_node("Add", ["z", "x"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "tiny", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = open_session(model.SerializeToString(), Arm(target=target, model=""))
    session.run(None, {"x": np.eye(2, dtype=np.float32)})
    return str(onnxruntime.__version__)
