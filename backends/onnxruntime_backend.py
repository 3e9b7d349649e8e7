"""ONNX Runtime: one optimised graph on disk, which is then what every session runs.

`build` optimises once and writes the result; `load` opens that file with optimisations off, so the graph that is
counted is the graph that is timed (on the toy model no slower than optimising inside the session). The counts come from
the runtime's own profile of one run: kernels, operand types and providers, as executed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout import schemes
from shootout.backends.common import check_inputs, check_options, require_device, trial, widen
from shootout.backends.onnxruntime_graph import OPTIONS, PROVIDERS, fallbacks, open_session, optimise
from shootout.backends.onnxruntime_profile import account, trace
from shootout.backends.onnxruntime_quantize import S8S8, SCHEMES, quantize
from shootout.backends.onnxruntime_shared import HARMFUL, recode
from shootout.chrome import Event
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
    Target,
)
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    from shootout.bundle import ModelBundle


class OnnxRuntimeAdapter:
    """ONNX Runtime's CPU and CUDA providers."""

    name = "onnxruntime"
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset(
            {(Device.CPU, precision) for precision in (Precision.FP32, *SCHEMES)}
            | {(Device.CUDA, Precision.FP32), (Device.CUDA, Precision.TF32)}
        ),
        needs_calibration=True,
        schemes=SCHEMES,
    )

    def probe(self, device: Device) -> Availability:
        """Run a product and a sum."""
        return trial("onnxruntime", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The optimised graph, quantized first where the arm asks for it, and what a few calls of it executed.

        Raises:
            ValueError: an option that is neither a thread count nor a session configuration entry; nothing can be
                quantized; or the calibration data can't be used.
        """
        check_options(arm.options, OPTIONS)
        source, precision = bundle.path(Artifact.ONNX), arm.target.precision
        scheme = schemes.parse(arm.target.scheme, own=[S8S8])
        with tempfile.TemporaryDirectory() as place:
            if scheme.is_quantized:
                path = optimise(recode(source, Path(place)), arm, folder, without=HARMFUL)
            elif precision in SCHEMES:
                path = optimise(quantize(source, bundle, precision, scheme, Path(place)), arm, folder)
            else:
                path = optimise(source, arm, folder)
        return Built(arm=arm, bundle=bundle, folder=folder, facts=account(path, arm, bundle.input_buffers()[0]))

    def load(self, built: Built) -> OnnxRuntimeSession:
        """A session on the optimised graph."""
        return OnnxRuntimeSession(built)


@dataclass(frozen=True, slots=True)
class Slot:
    """One binding with tensors of its own on the device, at fixed addresses.

    Attributes:
        updates: for each input name, what copies an array into its tensor.
        reads: for each output name, what gives its tensor as an array.
    """

    binding: Any
    updates: tuple[tuple[str, Callable[[Array], None]], ...]
    reads: tuple[tuple[str, Callable[[], Array]], ...]


class OnnxRuntimeSession:
    """Runs through IO binding, so that no call allocates a tensor."""

    def __init__(self, built: Built) -> None:
        self._built, self._device = built, built.arm.target.device
        self._inputs, self._outputs = built.bundle.inputs, built.bundle.outputs
        narrow = any(spec.dtype == "float16" for spec in self._outputs)
        own = np.copy if self._device is Device.CPU else np.asarray
        self._own: Callable[[Array], Array] = (lambda array: widen(own(array))) if narrow else own
        self._session: Any = open_session(built.folder / "model.onnx", built.arm)
        self._slots: dict[int, Slot] = {}
        self._run: Callable[[Any], None] = self._session.run_with_iobinding

    @cached_property
    def executed(self) -> Executed:
        """This session's own providers and threads; the kernels by precision as `build` saw them run."""
        import onnxruntime

        return Executed(
            library="onnxruntime",
            version=onnxruntime.__version__,
            device=self._session.get_providers()[0],
            threads=self._session.get_session_options().intra_op_num_threads,
            fallbacks=fallbacks(self._session, self._device),
            artifact_bytes=sum(path.stat().st_size for path in self._built.folder.glob("model.onnx*")),
            **self._built.facts,
        )

    def stage(self, inputs: Arrays, slot: int) -> Slot:
        """Copy the inputs into the slot's tensors."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        for name, update in handle.updates:
            array = inputs[name]
            update(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        return handle

    def execute(self, staged: Slot) -> Slot:
        """Run the graph; on CUDA, ONNX Runtime waits for its stream before it returns."""
        self._run(staged.binding)
        return staged

    def synchronize(self) -> None:
        """Nothing is pending when `execute` has returned."""

    def fetch(self, raw: Slot) -> Arrays:
        """Copies: on the CPU, `OrtValue.numpy` is a view of the slot's own tensor."""
        own = self._own
        return {name: own(read()) for name, read in raw.reads}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:  # noqa: ARG002 - its own profiler
        """Some calls of a session of its own that writes ONNX Runtime's profile."""
        return trace(self._built.folder / "model.onnx", self._built.arm, self._built.bundle.input_buffers()[0], calls)

    def close(self) -> None:
        """Drop the session and its tensors."""
        self._slots.clear()
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_session", None)

    def _new_slot(self, slot: int) -> Slot:
        from onnxruntime import OrtValue

        def empty(specs: tuple[Any, ...]) -> tuple[Any, ...]:
            shape_and_type = OrtValue.ortvalue_from_shape_and_type
            return tuple(shape_and_type(list(spec.shape), np.dtype(spec.dtype), self._device) for spec in specs)

        binding, inputs, outputs = self._session.io_binding(), empty(self._inputs), empty(self._outputs)
        for spec, value in zip(self._inputs, inputs, strict=True):
            binding.bind_ortvalue_input(spec.name, value)
        for spec, value in zip(self._outputs, outputs, strict=True):
            binding.bind_ortvalue_output(spec.name, value)
        updates = [(spec.name, value.update_inplace) for spec, value in zip(self._inputs, inputs, strict=True)]
        reads = [(spec.name, value.numpy) for spec, value in zip(self._outputs, outputs, strict=True)]
        self._slots[slot] = Slot(binding, tuple(updates), tuple(reads))
        return self._slots[slot]


def _try(device: Device) -> str:
    require_device(device, PROVIDERS)
    import onnxruntime
    from onnx import TensorProto, helper

    if PROVIDERS[device] not in onnxruntime.get_available_providers():
        fix = "pip uninstall -y onnxruntime && pip install onnxruntime-gpu"
        raise SkippedArm(f"onnxruntime {onnxruntime.__version__} is built without {PROVIDERS[device]}", fix)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    nodes = [helper.make_node("MatMul", ["x", "x"], ["z"]), helper.make_node("Add", ["z", "x"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "tiny", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    session = open_session(
        model.SerializeToString(), Arm(target=Target(backend="onnxruntime", device=device), model="")
    )
    session.run(None, {"x": np.eye(2, dtype=np.float32)})
    return str(onnxruntime.__version__)
