"""ONNX Runtime's run path: IO binding with tensors at fixed addresses, so that no call allocates one.

On CUDA a run has ended when it returns: ONNX Runtime waits for its stream at the end of each. So does a copy, which is
from or to pageable memory: its tensors take no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from shootout.backends._onnxruntime import providers, tensorrt
from shootout.backends._onnxruntime.account import ENGINES, MODEL, fallbacks, open_session
from shootout.backends._onnxruntime.profile import trace
from shootout.backends.adapter import Built
from shootout.backends.common import check_inputs, is_handed_out, is_shared, widen
from shootout.backends.cuda_memory import PAGEABLE, Cuda
from shootout.contract import Array, Arrays, Device, Executed, TensorSpec
from shootout.session import GpuSide
from shootout.trace_events import Event

Update = tuple[str, Callable[[Array], None]]
Read = tuple[str, Callable[[], Array]]


@dataclass(frozen=True, slots=True)
class Slot:
    """One binding with tensors of its own on the device, at fixed addresses.

    Attributes:
        options: of its runs, where they are unlike any other slot's.
        updates: for each input name, what copies an array into its tensor, or binds the array itself.
        reads: for each output name, what gives it as an array of the caller's own.
    """

    binding: Any
    options: Any
    updates: tuple[Update, ...]
    reads: tuple[Read, ...]


class OnnxRuntimeSession:
    """A graph as it was built."""

    gpu: GpuSide | None = None

    def __init__(self, built: Built) -> None:
        self._built, self._device = built, built.arm.target.device
        self._inputs, self._outputs = built.bundle.inputs, built.bundle.outputs
        self._graph = built.arm.options.get(providers.GRAPH) == "1"
        self._session: Any = open_session(built.folder / MODEL, built.arm, graph=self._graph)
        self._slots: dict[int, Slot] = {}
        self._run: Callable[[Any, Any], None] = self._session.run_with_iobinding

    @cached_property
    def executed(self) -> Executed:
        """This session's own providers and threads; the kernels by precision as `build` saw them run."""
        import onnxruntime

        folder, wanted = self._built.folder, providers.of(self._built.arm.target)
        files = (*folder.glob(f"{MODEL}*"), *(folder / ENGINES).glob("*"))
        return Executed(
            library="onnxruntime",
            version=onnxruntime.__version__,
            device=providers.on_device(self._session.get_providers()[0]),
            threads=self._session.get_session_options().intra_op_num_threads,
            fallbacks=fallbacks(self._session, wanted),
            artifact_bytes=sum(path.stat().st_size for path in files),
            **{name: value for name, value in self._built.facts.items() if name != "notes"},
        )

    def stage(self, inputs: Arrays, slot: int) -> Slot:
        """Copy the inputs into the slot's tensors; on the CPU, large ones are bound as they are."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        for name, update in handle.updates:
            array = inputs[name]
            update(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        return handle

    def execute(self, staged: Slot) -> Slot:
        """Run the graph; on CUDA, ONNX Runtime waits for its stream before it returns."""
        self._run(staged.binding, staged.options)
        return staged

    def synchronize(self) -> None:
        """Nothing is pending when `execute` has returned."""

    def fetch(self, raw: Slot) -> Arrays:
        """Copies; on the CPU, large outputs are handed out as they are."""
        return {name: read() for name, read in raw.reads}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:  # noqa: ARG002 - its own profiler
        """Some calls of a session of its own that writes ONNX Runtime's profile."""
        return trace(self._built.folder / MODEL, self._built.arm, self._built.bundle.input_buffers()[0], calls)

    def close(self) -> None:
        """Drop the session and its tensors."""
        self._slots.clear()
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_session", None)

    def _new_slot(self, slot: int) -> Slot:
        from onnxruntime import OrtValue

        def empty(spec: TensorSpec) -> Any:
            return OrtValue.ortvalue_from_shape_and_type(list(spec.shape), np.dtype(spec.dtype), self._device)

        binding, updates, reads = self._session.io_binding(), list[Update](), list[Read]()
        for spec in self._inputs:
            if self._device is Device.CPU and is_shared(spec):
                updates.append((spec.name, _sharing(binding, spec.name)))
                continue
            value = empty(spec)
            binding.bind_ortvalue_input(spec.name, value)
            updates.append((spec.name, value.update_inplace))
        for place, spec in enumerate(self._outputs):
            if self._device is Device.CPU and is_handed_out(spec):
                reads.append((spec.name, _handing_out(binding, spec.name, place)))
                continue
            value = empty(spec)
            binding.bind_ortvalue_output(spec.name, value)
            reads.append((spec.name, self._copying(value, spec)))
        options = _graph_options(slot) if self._graph else None
        self._slots[slot] = Slot(binding, options, tuple(updates), tuple(reads))
        return self._slots[slot]

    def _copying(self, value: Any, spec: TensorSpec) -> Callable[[], Array]:
        """What copies a tensor to the caller: from a device `numpy` does, on the CPU it is a view of the tensor."""
        read: Callable[[], Array] = value.numpy
        own = read if self._device is Device.CUDA else lambda: np.copy(read())
        return (lambda: widen(own())) if spec.dtype == "float16" else own


class OnnxRuntimeGpuSession(OnnxRuntimeSession):
    """The same on a GPU, without events and without a word of its arena: ONNX Runtime shows neither."""

    def __init__(self, built: Built) -> None:
        """Open the session.

        Raises:
            RuntimeError: TensorRT doesn't take the engine that was built, and made another one.
        """
        before = tensorrt.engines(built.folder)
        super().__init__(built)
        if tensorrt.engines(built.folder) != before:
            raise RuntimeError(
                f"TensorRT refused the engine in {built.folder} and built another in its place: it is another GPU's or "
                "version's; remove that folder"
            )
        self.gpu = GpuSide(copies=PAGEABLE, evict=self._evict if _has_bindings() else None)

    def close(self) -> None:
        """Also free what `evict` writes to."""
        super().close()
        self.gpu = None
        if cuda := self.__dict__.pop("_cuda", None):
            cuda.close()

    def _evict(self) -> None:
        """Done on return."""
        self._cuda.evict()
        self._cuda.synchronize()

    @cached_property
    def _cuda(self) -> Cuda:
        return Cuda()


def _sharing(binding: Any, name: str) -> Callable[[Array], None]:
    """What binds an array as an input, and keeps it until the next one: ONNX Runtime only knows where it lies."""
    kept: list[Array] = []

    def bind(array: Array) -> None:
        binding.bind_cpu_input(name, array)
        kept[:] = [array]

    return bind


def _handing_out(binding: Any, name: str, place: int) -> Callable[[], Array]:
    """What hands out an output as ONNX Runtime allocated it, and lets the next run allocate anew, as
    `InferenceSession.run` does. Until then runs write to the same memory.
    """
    binding.bind_output(name, "cpu")

    def hand_out() -> Array:
        found: Array = binding.get_outputs()[place].numpy()
        binding.bind_output(name, "cpu")
        return found

    return hand_out


def _graph_options(slot: int) -> Any:
    """Run options by which a slot's calls capture and replay a graph of its own: a graph holds its addresses."""
    from onnxruntime import RunOptions

    options = RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(slot + 1))  # 0 is ONNX Runtime's own
    return options


def _has_bindings() -> bool:
    try:
        return find_spec("cuda.bindings.runtime") is not None
    except ModuleNotFoundError:
        return False
