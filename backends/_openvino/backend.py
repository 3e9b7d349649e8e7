"""OpenVINO on the CPU, on Intel's GPUs and NPUs: the model as IR on disk, compiled again in each session.

IR is the form that users ship, and what `load` reads. An exported blob opens faster (0.16 s against 0.3 on the toy
model), but only on the same kind of CPU with the same version.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._openvino.account import ROUNDED, look_inside, read_executed, survey
from shootout.backends._openvino.graph import (
    ACCELERATED,
    DEFAULT,
    DEVICE,
    HINTS,
    IR,
    LISTED,
    PLUGINS,
    PROPERTIES,
    SNIPPETS,
    chosen_plugin,
    compile_model,
    describe_devices,
    floats_of,
    full_name,
    import_openvino,
    import_operations,
    listed_precisions,
    properties_of,
    require_precision,
    rounding_products,
    rounds_activations,
    scheme_of,
    version,
)
from shootout.backends._openvino.quantize import OPTIONS, SCHEMES, notes_of, quantize, refuse_options
from shootout.backends.common import (
    HostSession,
    HostSlot,
    is_handed_out,
    is_shared,
    precision_of,
    require_device,
    trial,
    widen,
)
from shootout.backends.optional import ErrorHint, Fixture, Gemm, Gemms, Inside, Shipment
from shootout.core.adapter import Built, GpuSide, check_options
from shootout.core.contract import (
    INTEGERS,
    Arm,
    Array,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    Precision,
    Target,
    TensorSpec,
)
from shootout.core.errors import SkippedArm

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

STEP = 0.01
"""Step of the grid that a byte product's operands are rounded to; any will do."""
SMALL = 64
"""Rows and columns of a product that OpenVINO rounds the activations of, where it can."""
PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, *INTEGERS)
ERROR_HINTS = (
    ErrorHint(
        said=r"Conversion is failed for: (?P<operators>[^\n]+)",
        reason="OpenVINO can't read this file: it has no way to take {operators} (its names) as they stand there",
        fix="other backends take the file as it is; a model that branches by size may pass when exported for one size",
    ),
    ErrorHint(
        said="if_condition_rank",
        reason="OpenVINO takes a branch's condition with one axis at most, and one of this file has more",
        fix="give the condition one axis, or take another backend, which reads the file as it is",
    ),
    ErrorHint(
        said=r"snippets/.*assign_registers",
        reason="OpenVINO can't compile this graph at this batch and thread count: a fused kernel has too few registers",
        fix=f"--option openvino.{SNIPPETS}=DISABLE leaves those nodes apart; other backends take the file as it is",
    ),
    ErrorHint(
        said="Calibration dataset must not be empty|Could not find a node .* in NNCFGraph",
        reason="NNCF can't quantize this model: calibration must reach each branch, and nodes in branches are lost",
        fix="try onnxruntime:cpu:int8, which quantizes what stands outside the branches",
    ),
)


def _is_missing_here(target: Target) -> bool:
    """Return whether a precision needs what this CPU lacks: by OpenVINO's list, and by what a small product does."""
    if target.device is not Device.CPU:
        return False
    if target.precision is Precision.INT8_DYNAMIC:
        return not _rounds_here()
    return target.precision in LISTED and target.precision not in listed_precisions()


def _rounds_here() -> bool:
    """Return whether OpenVINO rounds activations beside compressed weights on this CPU: without VNNI it never does."""
    openvino = import_openvino()
    with TemporaryDirectory() as folder:
        path = Path(folder) / IR
        openvino.save_model(
            _product_model(openvino, SMALL, in_bytes=True, in_floats=True), path, compress_to_fp16=False
        )
        return bool(rounding_products(path, {}))


FIXTURE = Fixture(lacks=_is_missing_here, warm={"": ("", "torch")})
"""OpenVINO's import starts a thread; that of its quantizer imports torch."""


class OpenVinoAdapter:
    """OpenVINO's CPU plugin, its integer precisions by NNCF; and the floats of its GPU and NPU plugins."""

    name = "openvino"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset(
            [(Device.CPU, precision) for precision in PRECISIONS]
            + [(device, precision) for device, floats in ACCELERATED.items() for precision in floats]
        ),
        native=frozenset({Device.CPU}),
        opens=frozenset({Precision.FP32}),
        schemes={
            **SCHEMES,
            Precision.FP32: frozenset({DEFAULT}),
            Precision.INT8: SCHEMES[Precision.INT8] | {"shared", "rest-fp32", "rest-bf16"},
        },
        options=(*PROPERTIES, *OPTIONS),
    )

    def probe(self, device: Device) -> Availability:
        """Run a product and a sum."""
        return trial("openvino", lambda: _try_device(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the model as IR, quantized for an integer precision, and survey what its compiled form computes.

        Raises:
            SkippedArm: the device isn't here, it lacks the precision or doesn't honor it, NNCF is missing, or there
                are no labels.
            ValueError: an unknown option, one of NNCF's where it isn't asked, nothing to quantize, or unusable
                calibration data.
        """
        precision, scheme = arm.target.precision, scheme_of(arm)
        check_options(arm, self.capabilities.options)
        refuse_options(arm, scheme)
        require_precision(precision, arm.target.device)
        require_precision(floats_of(arm), arm.target.device)
        openvino = import_openvino()
        core = openvino.Core()
        if scheme.is_dynamic:
            model = core.read_model(exported.path(Artifact.OPEN))
        else:
            model = core.read_model(exported.path(Artifact.ONNX))
            model.reshape({spec.name: openvino.PartialShape(list(spec.shape)) for spec in exported.inputs})
        notes = [*notes_of(arm, scheme), *common_onnx.notes_on_floats(exported, scheme)]
        if precision in INTEGERS and not scheme.is_quantized:
            model, undone = quantize(model, exported, arm, scheme)
            notes += undone
        # Its default would store the weights in FP16: half the file, and no longer the model under test.
        openvino.save_model(model, folder / IR, compress_to_fp16=False)
        facts = survey(folder / IR, arm, exported.input_buffers()[0], common_onnx.name_owners(exported, precision))
        if rounds_activations(arm):
            _require_rounded(facts)
        return Built(arm=arm, exported=exported, folder=folder, facts={**facts, "notes": notes})

    def load(self, built: Built) -> OpenVinoSession:
        """Read the IR and compile it."""
        return OpenVinoSession(built)

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
        """Run the model with outputs added, and time the nodes of the built one.

        Raises:
            SkippedArm: it ran on a GPU or an NPU, whose counters and compiled form differ.
        """
        if built.arm.target.device is not Device.CPU:
            raise SkippedArm("only OpenVINO's plugin for CPUs is read", "explain an arm on the CPU")
        return look_inside(built, sets, values)


class OpenVinoSession(HostSession):
    """A compiled model and one request per slot.

    Calls go to requests whose tensors were set beforehand: handing a small array over with each call costs three times
    as much as the call itself. On a GPU and an NPU these tensors lie in memory that the device reads, as a caller's
    arrays don't, so that all are copied; what a call then moves to a discrete GPU and back is inside the call.
    """

    def __init__(self, built: Built, compiled: Any = None) -> None:
        """Compile the model, or take one with open axes that was compiled for another size."""
        super().__init__(built.exported.inputs)
        self._on_cpu = built.arm.target.device is Device.CPU
        self.gpu = None if self._on_cpu else GpuSide(copies="staged")
        self._built, self._outputs = built, built.exported.outputs
        self._compiled: Any = compiled or compile_model(built.folder / IR, built.arm)

    @cached_property
    def executed(self) -> Executed:
        """Return this session's own properties and graph, with what `build` found of its nodes' products and times."""
        return Executed(
            library="openvino",
            version=version(),
            device=describe_devices(self._compiled),
            threads=self._compiled.get_property("INFERENCE_NUM_THREADS") if self._on_cpu else None,
            artifact_bytes=sum(path.stat().st_size for path in self._built.folder.glob("model.*")),
            staged=next((precision_of(spec.dtype) for spec in self._inputs if "float" in spec.dtype), ""),
            **read_executed(self._compiled, self._built.facts),
        )

    def sized(self, exported: ExportedModel) -> OpenVinoSession:
        """Return a session of the same compiled model for the inputs of another size."""
        return OpenVinoSession(replace(self._built, exported=exported), self._compiled)

    def close(self) -> None:
        """Drop the model and its requests."""
        self._slots.clear()
        self.__dict__.pop("_compiled", None)

    def _new_slot(self) -> HostSlot:
        request = self._compiled.create_infer_request()
        takes, gives = (_share_input, _hand_out_output) if self._on_cpu else (_copy_input, _copy_output)
        inputs = [(spec.name, takes(request, self._compiled.input(spec.name), spec)) for spec in self._inputs]
        reads = [(spec.name, gives(request, self._compiled.output(spec.name), spec)) for spec in self._outputs]
        # Unshared, each call would also copy all outputs, which `fetch` does.
        return HostSlot(partial(request.infer, share_outputs=True), tuple(inputs), tuple(reads))


def _copy_input(request: Any, port: Any, spec: TensorSpec) -> Callable[[Array], object]:
    """Return what copies an array into a request's own input; of an open shape it has none before the first call."""
    if not port.partial_shape.is_dynamic:
        return partial(np.copyto, request.get_tensor(port).data)
    from openvino import Tensor

    memory = np.empty(spec.shape, spec.dtype)
    request.set_tensor(port, Tensor(memory, shared_memory=True))
    return partial(np.copyto, memory)


def _copy_output(request: Any, port: Any, _: TensorSpec) -> Callable[[], Array]:
    """Return what copies an output, looked up each time: if a shape depends on data, another tensor takes its place."""
    return lambda: widen(request.get_tensor(port).data.copy())


def _share_input(request: Any, port: Any, spec: TensorSpec) -> Callable[[Array], object]:
    """Return what makes an array a request's input: a copy of it, or if it is large the array itself.

    The array is kept until the next one: OpenVINO keeps only its address.
    """
    if not is_shared(spec):
        return _copy_input(request, port, spec)
    from openvino import Tensor

    kept: list[Array] = []

    def put(array: Array) -> None:
        given = np.ascontiguousarray(array)
        request.set_tensor(port, Tensor(given, shared_memory=True))
        kept[:] = [given]

    return put


def _hand_out_output(request: Any, port: Any, spec: TensorSpec) -> Callable[[], Array]:
    """Return what makes an output the caller's: a copy of it, or if it is large the memory itself.

    The next run then writes to other memory; until then all write to the same.
    """
    if not is_handed_out(spec) or port.partial_shape.is_dynamic or port.get_element_type().to_dtype() != spec.dtype:
        return _copy_output(request, port, spec)
    from openvino import Tensor

    def renewed() -> Array:
        memory = np.empty(spec.shape, spec.dtype)
        request.set_tensor(port, Tensor(memory, shared_memory=True))
        return memory

    kept = [renewed()]

    def hand_out() -> Array:
        output, kept[0] = kept[0], renewed()
        return output

    return hand_out


def _require_rounded(facts: Mapping[str, Any]) -> None:
    """Refuse a model of which no product rounds its activations: it would be weights-only under this label."""
    labels = [label for products in facts["products"].values() for label in products]
    if labels and not set(ROUNDED) & set(labels):
        reason = (
            f"OpenVINO keeps activations float here: oneDNN's log of this model names none of its {len(labels)} "
            "products as dynamically quantized"
        )
        fix = "a model with matrix products of at least 32 inputs (convolutions don't count), a CPU with VNNI"
        raise SkippedArm(reason, fix)


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the .xml and the .bin; OpenVINO compiles them for whatever CPU loads them."""
    for path in built.folder.glob("model.*"):
        shutil.copyfile(path, folder / path.name)
    options = {
        "device": PLUGINS[built.arm.target.device],
        "properties": properties_of(built.arm),
        "shared": [spec.name for spec in built.exported.inputs if is_shared(spec)],
    }
    return Shipment(options=options)


def gemms(threads: int) -> Gemms:
    """Make OpenVINO's products.

    Operands come and go in float32, as they do in models, so a narrow precision includes rounding them. One that this
    CPU lacks, or that OpenVINO would replace by another one, is left out.
    """
    products: dict[Precision, Callable[[int], Gemm]] = {}
    for precision in (Precision.FP32, Precision.BF16, Precision.INT8):
        try:
            require_precision(precision)
        except SkippedArm:
            continue
        products[precision] = _make_product(precision, threads)
    return products


def _make_product(precision: Precision, threads: int) -> Callable[[int], Gemm]:
    def make(size: int) -> Gemm:
        openvino = import_openvino()
        properties = {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "NUM_STREAMS": 1,
        }
        model = _product_model(openvino, size, in_bytes=precision is Precision.INT8)
        request = openvino.Core().compile_model(model, DEVICE, properties).create_infer_request()
        request.get_input_tensor().data[:] = 1
        return lambda: request.infer(share_outputs=True)

    return make


def _product_model(openvino: Any, size: int, *, in_bytes: bool, in_floats: bool = False) -> Any:
    """Make a product of float operands, of operands in bytes, or of weights in bytes and activations in floats."""
    op = import_operations()
    x = op.parameter([size, size], np.float32)
    weight = op.constant(np.ones((size, size), np.int8 if in_bytes else np.float32))
    if not in_bytes:
        return openvino.Model([op.matmul(x, weight, False, True)], [x], "product")
    low, high = (op.constant(np.float32(STEP * end)) for end in (-128, 127))
    rounded = x if in_floats else op.fake_quantize(x, low, high, low, high, 256)
    scaled = op.multiply(op.convert(weight, "f32"), op.constant(np.float32(STEP)))
    return openvino.Model([op.matmul(rounded, scaled, False, True)], [x], "product")


def _try_device(device: Device) -> str:
    require_device(device, PLUGINS)
    openvino, plugin = import_openvino(), chosen_plugin(device)
    op = import_operations()
    x = op.parameter([2, 2], np.float32)
    model = openvino.Model([op.add(op.matmul(x, x, False, False), x)], [x], "tiny")
    openvino.Core().compile_model(model, plugin)([np.eye(2, dtype=np.float32)])
    return version() if device is Device.CPU else f"{version()} on {full_name(plugin)}"
