"""OpenVINO on the CPU: the model as IR on disk, compiled anew in each session, one request per input buffer.

IR is what people ship, and what `load` reads: an exported blob opens faster (0.16 s against 0.3 on the toy model), but
only on the same kind of CPU with the same version. Calls go to requests whose tensors were set beforehand: handing an
array over with each call costs three times as much as the call itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import check_inputs, check_options, require_device, trial, widen
from shootout.backends.openvino_graph import (
    DEVICE,
    PROPERTIES,
    compile_model,
    count,
    folded_products,
    import_openvino,
    require_precision,
)
from shootout.backends.openvino_int8 import OPTIONS, quantize
from shootout.contract import (
    Arm,
    Array,
    Arrays,
    Artifact,
    Availability,
    Built,
    Capabilities,
    Device,
    Executed,
    Precision,
)

if TYPE_CHECKING:
    from shootout.bundle import ModelBundle

IR = "model.xml"
PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.INT8)


class OpenVinoAdapter:
    """OpenVINO's CPU plugin; INT8 by NNCF."""

    name = "openvino"
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset((Device.CPU, precision) for precision in PRECISIONS),
        needs_calibration=True,
        schemes=frozenset({"", "nncf"}),
    )

    def probe(self, device: Device) -> Availability:
        """Run a product and a sum."""
        return trial("openvino", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The model as IR, quantized for INT8, and what its compiled form computes.

        Raises:
            SkippedArm: this CPU lacks the precision, or NNCF is missing.
            ValueError: an unknown option, one of NNCF's without INT8, or nothing to quantize.
        """
        quantized = arm.target.precision is Precision.INT8
        if arm.target.scheme and not quantized:
            raise ValueError(f"scheme {arm.target.scheme!r} is for int8, not for {arm.target.precision}")
        check_options(arm.options, (*PROPERTIES, *OPTIONS))
        if misplaced := sorted(set(OPTIONS) & set(arm.options)) if not quantized else []:
            raise ValueError(f"option {misplaced[0]!r} is for int8, not for {arm.target.precision}")
        require_precision(arm.target.precision)
        openvino = import_openvino()
        model = openvino.Core().read_model(bundle.path(Artifact.ONNX))
        model.reshape({spec.name: openvino.PartialShape(list(spec.shape)) for spec in bundle.inputs})
        if quantized:
            model = quantize(model, bundle.calibration(), arm.options)
        # Its default would store the weights in FP16: half the file, and no longer the model under test.
        openvino.save_model(model, folder / IR, compress_to_fp16=False)
        folded = folded_products(folder / IR, arm)
        return Built(arm=arm, bundle=bundle, folder=folder, facts={"folded_products": folded})

    def load(self, built: Built) -> OpenVinoSession:
        """Read the IR and compile it."""
        return OpenVinoSession(built)


@dataclass(frozen=True, slots=True)
class Slot:
    """One request with tensors of its own.

    Attributes:
        run: infers from the input tensors into the output tensors.
        inputs: for each input name, a view of its tensor.
        reads: for each output name, what gives its tensor.
    """

    run: Callable[[], Any]
    inputs: tuple[tuple[str, Array], ...]
    reads: tuple[tuple[str, Callable[[], Any]], ...]


class OpenVinoSession:
    """A compiled model and one request per slot."""

    def __init__(self, built: Built) -> None:
        self._built, self._inputs, self._outputs = built, built.bundle.inputs, built.bundle.outputs
        self._compiled: Any = compile_model(built.folder / IR, built.arm)
        self._slots: dict[int, Slot] = {}

    @cached_property
    def executed(self) -> Executed:
        """This session's own properties and graph; what its fused nodes hold as `build` found it."""
        compute, others = count(self._compiled, self._built.facts["folded_products"])
        return Executed(
            library="openvino",
            version=_version(),
            device=",".join(self._compiled.get_property("EXECUTION_DEVICES")),
            threads=self._compiled.get_property("INFERENCE_NUM_THREADS"),
            compute_nodes_by_precision=compute,
            other_nodes_by_precision=others,
            artifact_bytes=sum(path.stat().st_size for path in self._built.folder.glob("model.*")),
        )

    def stage(self, inputs: Arrays, slot: int) -> Slot:
        """Copy the inputs into the slot's tensors."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        for name, tensor in handle.inputs:
            np.copyto(tensor, inputs[name])
        return handle

    def execute(self, staged: Slot) -> Slot:
        """Infer in the calling thread (`start_async` would hand over to another one); returns when done."""
        staged.run()
        return staged

    def synchronize(self) -> None:
        """Nothing is pending when `execute` has returned."""

    def fetch(self, raw: Slot) -> Arrays:
        """Copies: the next run of the same slot overwrites its tensors."""
        return {name: widen(read().data.copy()) for name, read in raw.reads}

    def close(self) -> None:
        """Drop the model and its requests."""
        self._slots.clear()
        self.__dict__.pop("_compiled", None)

    def _new_slot(self, slot: int) -> Slot:
        request = self._compiled.create_infer_request()
        inputs = [(spec.name, request.get_tensor(self._compiled.input(spec.name)).data) for spec in self._inputs]
        # Looked up at each fetch: where a shape depends on data, OpenVINO puts another tensor in its place.
        reads = [(spec.name, partial(request.get_tensor, self._compiled.output(spec.name))) for spec in self._outputs]
        # Unshared, each call would also copy all outputs, which `fetch` does.
        run = partial(request.infer, share_outputs=True)
        self._slots[slot] = Slot(run, tuple(inputs), tuple(reads))
        return self._slots[slot]


def _version() -> str:
    return str(import_openvino().__version__).partition("-")[0]


def _try(device: Device) -> str:
    require_device(device, [Device.CPU])
    openvino = import_openvino()
    from openvino import opset13 as op

    x = op.parameter([2, 2], np.float32)
    model = openvino.Model([op.add(op.matmul(x, x, False, False), x)], [x], "tiny")
    openvino.Core().compile_model(model, DEVICE)([np.eye(2, dtype=np.float32)])
    return _version()
