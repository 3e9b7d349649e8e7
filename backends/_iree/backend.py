"""IREE: the ONNX file, compiled ahead of time to a module and a file of weights, for the CPU or any Vulkan GPU.

The compiler takes a graph's types as they are, so FP16 and BF16 are built from a half graph. INT8 is built from the
shared Q/DQ graph, whose products become integer products. The compiler writes code for the CPU that it runs on.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends import common_onnx
from shootout.backends._iree import account
from shootout.backends._iree.compiler import (
    CPU,
    GENERIC,
    MODULE,
    OPTIONS,
    SCOPE,
    WEIGHTS,
    compile_graph,
    import_onnx,
)
from shootout.backends._iree.session import (
    ELEMENTS,
    PACKAGE,
    IreeSession,
    IreeVulkanSession,
    find_card,
    flags_of,
    list_of,
    load_module,
    name_of,
    new_list,
    open_card,
    open_device,
)
from shootout.backends._iree.session import OPTIONS as RUNTIME_OPTIONS
from shootout.backends.common import native_flags, require_device, require_own_threads, trial
from shootout.backends.optional import ErrorHint, Fixture, Shipment
from shootout.core import schemes
from shootout.core.adapter import Built, check_options
from shootout.core.contract import Arm, Artifact, Availability, Capabilities, Device, NotRunKind, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.host.environment import version_of

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

FLOATS = (Precision.FP32, Precision.FP16, Precision.BF16)
TINY = """
util.global private @ones = dense<1> : tensor<2xi32>
func.func @tiny() -> i32 {
  %x = util.global.load @ones : tensor<2xi32>
  %known = util.optimization_barrier %x : tensor<2xi32>
  %y = arith.addi %known, %known : tensor<2xi32>
  %first = arith.constant 0 : index
  %one = tensor.extract %y[%first] : tensor<2xi32>
  return %one : i32
}
"""
"""A sum on the device, which the compiler can't work out."""


ON_VULKAN = (Precision.FP32, Precision.FP16)


ERROR_HINTS = (
    ErrorHint(
        said=r"ValidationError: No Op registered for (?P<operator>\w+)",
        reason="IREE's importer can't take this model: {operator} isn't one of ONNX's own operators",
    ),
    ErrorHint(
        said=r"/version_converter/\S+:\d+: |^ConvertError: |exceeds maximum protobuf size",
        reason="IREE's importer can't take this model: ONNX's own converter can't lift it to a newer opset",
    ),
    ErrorHint(
        said=r"OnnxImportError: (?P<why>.{1,200})",
        reason="IREE's importer can't take this model: {why}",
    ),
)


def _is_missing_here(target: Target) -> bool:
    """Return whether the target is INT8 without the shared model, the only one that IREE takes."""
    return target.precision is Precision.INT8 and target.scheme != "shared"


FIXTURE = Fixture(
    lacks=_is_missing_here,
    # FP16 is asked of the CPU, and BF16's convolutions are counted there.
    slow=frozenset({*((Device.VULKAN.value, precision) for precision in ON_VULKAN), ("", Precision.BF16)}),
)


class IreeAdapter:
    """IREE's compiler and runtime."""

    name = "iree"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset(
            {(Device.CPU, precision) for precision in (*FLOATS, Precision.INT8)}
            | {(Device.VULKAN, precision) for precision in ON_VULKAN}
        ),
        native=frozenset({Device.CPU}),
        schemes={Precision.INT8: frozenset({"shared", f"{schemes.SHARED}float-*"})},
        options=(*OPTIONS, *RUNTIME_OPTIONS),
    )

    def probe(self, device: Device) -> Availability:
        """Compile a sum and run it; without a Vulkan driver, modules for Vulkan can be built all the same."""
        tried = trial("iree", lambda: _run_tiny(device))
        if tried.why is None or device is not Device.VULKAN or tried.why.kind is not NotRunKind.UNAVAILABLE:
            return tried
        built = trial("iree", lambda: _build_tiny(device))
        return built if built.why else replace(built, why=replace(tried.why, kind=NotRunKind.BUILT_ONLY))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Compile the module with its weights, and count what its code computes.

        Raises:
            SkippedArm: the compiler isn't installed, or can't take the model; there is nothing to make INT8 of; or the
                device has no FP16.
            ValueError: an unknown option.
        """
        check_options(arm, self.capabilities.options)
        if arm.target.device is Device.VULKAN:
            _require_half(arm)
        require_own_threads(arm, "IREE")
        with tempfile.TemporaryDirectory() as place:
            scratch = Path(place)
            graph = import_onnx(_graph_in_precision(exported, arm, scratch), folder)
            compile_graph(graph, folder / MODULE, arm, account.dumps(scratch))
            graph.unlink()
            facts = account.survey(scratch)
        size = sum((folder / name).stat().st_size for name in (MODULE, WEIGHTS) if (folder / name).exists())
        return Built(arm=arm, exported=exported, folder=folder, facts={**facts, "artifact_bytes": size})

    def load(self, built: Built) -> IreeSession | IreeVulkanSession:
        """Map the module and its weights."""
        return IreeVulkanSession(built) if built.arm.target.device is Device.VULKAN else IreeSession(built)


def _require_half(arm: Arm) -> None:
    """Refuse FP16 if the device here has none; without a device, a module is built for others."""
    if arm.target.precision is not Precision.FP16:
        return
    try:
        card = find_card()
    except SkippedArm:
        return
    if not card.has_half:
        raise SkippedArm(f"{card} has no FP16 in Vulkan", "choose iree:vulkan:fp32")


def _graph_in_precision(exported: ExportedModel, arm: Arm, folder: Path) -> Path:
    """Return the graph in the arm's precision."""
    source, target = exported.path(Artifact.ONNX), arm.target
    if target.precision in common_onnx.NARROWED:
        return common_onnx.write_half(source, target.precision, folder)
    if target.precision is Precision.INT8 and not schemes.parse(target.scheme).is_quantized:
        fix = "iree:cpu:int8/shared runs the one Q/DQ model that is made for all backends"
        raise SkippedArm("IREE has no quantizer of its own: it takes INT8 only as Q/DQ in the graph", fix)
    return source


def ship(built: Built, folder: Path) -> Shipment:
    """Copy both files."""
    for name in (MODULE, WEIGHTS):
        if (built.folder / name).exists():
            shutil.copyfile(built.folder / name, folder / name)
    arm = built.arm
    options = {
        "files": [MODULE, WEIGHTS],
        "scope": SCOPE,
        "driver": name_of(arm),
        "flags": flags_of(arm),
        "elements": [ELEMENTS[spec.dtype] for spec in built.exported.inputs],
    }
    return Shipment(options=options, isa=() if arm.options.get(CPU) == GENERIC else native_flags())


def _run_tiny(device: Device) -> str:
    require_device(device, (Device.CPU, Device.VULKAN))
    import iree  # noqa: F401 - named by itself where it is missing

    card = find_card() if device is Device.VULKAN else None
    with tempfile.TemporaryDirectory() as place:
        arm = _compile_tiny(device, Path(place))
        context, function = load_module(open_card(card) if card else open_device(arm), Path(place))
    results = new_list()(1)
    context.invoke(function, list_of([]), results)
    if results.get_variant(0) != 2:
        raise ArithmeticError("1 + 1 came out wrong")
    return f"{version_of(PACKAGE)} on {card}" if card else version_of(PACKAGE)


def _build_tiny(device: Device) -> str:
    with tempfile.TemporaryDirectory() as place:
        _compile_tiny(device, Path(place))
    return version_of(PACKAGE)


def _compile_tiny(device: Device, folder: Path) -> Arm:
    arm = Arm(target=Target(backend=IreeAdapter.name, device=device), model="tiny")
    (folder / "tiny.mlir").write_text(TINY, encoding="utf-8")
    try:
        compile_graph(folder / "tiny.mlir", folder / MODULE, arm)
    except SkippedArm as error:
        if error.why.kind is NotRunKind.UNFIT:  # a sum fits any compiler that works
            raise RuntimeError(error.reason) from error
        raise
    return arm
