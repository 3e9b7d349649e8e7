"""ONNX Runtime's run path: IO binding with memory at fixed addresses, so that no call allocates any.

On CUDA the memory and the stream are ours (see `cuda_memory`): bound by address, and given to the providers as their
compute stream. So copies and events are the same as TensorRT's, and a run is only queued: the stream is
waited for once, by `synchronize`, and not by ONNX Runtime at the end of each run too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._onnxruntime import providers, tensorrt
from shootout.backends._onnxruntime.account import ENGINES, MODEL, TEXTS, fallbacks, open_session, trace
from shootout.backends.common import count_tasks, is_handed_out, is_shared, widen
from shootout.backends.cuda_memory import COPIES, PINNED, Buffer, Cuda
from shootout.backends.devices.cuda_driver import DEVICE
from shootout.core.adapter import Built, Event, GpuSide, check_inputs
from shootout.core.contract import Array, Arrays, Executed, TensorSpec
from shootout.models.data.tables import Table

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

Update = tuple[str, tuple[int, ...], Any, Callable[[Array], None]]
"""An input's name, shape and NumPy dtype, and what takes an array of these."""
Read = tuple[str, Callable[[], Array]]


@dataclass(slots=True)
class OrtSlot:
    """One binding with tensors of its own, at fixed addresses.

    Attributes:
        binding: None once its session is closed: it keeps ONNX Runtime's session alive, and callers may keep the slot.
        options: of its runs, where they are unlike ONNX Runtime's own.
        updates: for each input what copies an array into its tensor, or binds the array itself.
        reads: for each output name, what gives it as an array of the caller's own.
        inputs, outputs: on CUDA, in place of the two.
    """

    binding: Any
    options: Any = None
    updates: tuple[Update, ...] = ()
    reads: tuple[Read, ...] = ()
    inputs: tuple[Buffer, ...] = ()
    outputs: tuple[Buffer, ...] = ()


class OnnxRuntimeSession:
    """A graph as it was built, its inputs and outputs in the host's memory.

    Args:
        built: what to load.
        stream: the CUDA stream to compute on.
        opened: a session on the same graph with open axes, whose loaded model this one shares.
    """

    gpu: GpuSide | None = None
    file = MODEL

    def __init__(self, built: Built, stream: int | None = None, opened: OnnxRuntimeSession | None = None) -> None:
        self._built = built
        self._inputs, self._outputs = built.exported.inputs, built.exported.outputs
        self._graph = built.arm.options.get(providers.GRAPH) == "1"
        before = count_tasks()
        self._session: Any
        if opened:
            self._session = opened._session
        else:
            self._session = open_session(built.folder / self.file, built.arm, graph=self._graph, stream=stream)
        self._own_threads = None if before is None else 1 + (count_tasks() or before) - before
        self._slots: dict[int, OrtSlot] = {}
        self._run: Callable[[Any, Any], None] = self._session.run_with_iobinding

    @cached_property
    def executed(self) -> Executed:
        """Return this session's own providers and threads, and the kernels by precision as `build` saw them run."""
        import onnxruntime

        folder, wanted = self._built.folder, providers.provider_of(self._built.arm.target)
        files = (*folder.glob(f"{self.file}*"), *(folder / ENGINES).glob("*"))
        return Executed(
            library="onnxruntime",
            version=onnxruntime.__version__,
            device=providers.on_device(self._session.get_providers()[0], self._built.arm.target.device),
            threads=self._session.get_session_options().intra_op_num_threads
            or self._own_threads,  # it tells 0 of its own
            fallbacks=fallbacks(self._session, wanted),
            artifact_bytes=sum(path.stat().st_size for path in files),
            **{name: value for name, value in self._built.facts.items() if name != "notes"},
        )

    def sized(self, exported: ExportedModel) -> OnnxRuntimeSession:
        """Return a session of the same loaded graph for the inputs of another size."""
        return OnnxRuntimeSession(replace(self._built, exported=exported), opened=self)

    def stage(self, inputs: Arrays, slot: int) -> OrtSlot:
        """Copy the inputs into the slot's tensors; large ones are bound as they are.

        The checks of `check_inputs` are made in the same pass: after a model that has emptied the caches, each line of
        Python shows.
        """
        handle = self._slots.get(slot) or self._new_slot(slot)
        for name, shape, dtype, update in handle.updates:
            array = inputs.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                check_inputs(self._inputs, inputs)
            else:
                update(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        if len(inputs) != len(handle.updates):
            check_inputs(self._inputs, inputs)
        return handle

    def execute(self, staged: OrtSlot) -> OrtSlot:
        """Run the graph; on CUDA this only queues it."""
        self._run(staged.binding, staged.options)
        return staged

    def synchronize(self) -> None:
        """Do nothing: no work is pending when `execute` has returned."""

    def fetch(self, raw: OrtSlot) -> Arrays:
        """Copy the outputs; large ones are handed out as they are."""
        return {name: read() for name, read in raw.reads}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:  # noqa: ARG002 - its own profiler
        """Run some calls in a session of its own that writes ONNX Runtime's profile."""
        return trace(self._built.folder / MODEL, self._built.arm, self._built.exported.input_buffers()[0], calls)

    def close(self) -> None:
        """Drop the session and its tensors, even if a caller has kept a slot."""
        for slot in self._slots.values():
            slot.binding, slot.updates, slot.reads = None, (), ()
        self._slots.clear()
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_session", None)

    def _new_slot(self, slot: int) -> OrtSlot:
        from onnxruntime import OrtValue

        def empty(spec: TensorSpec) -> Any:
            return OrtValue.ortvalue_from_shape_and_type(list(spec.shape), np.dtype(spec.dtype), "cpu")

        binding, updates, reads = self._session.io_binding(), list[Update](), list[Read]()
        for spec in self._inputs:
            if is_shared(spec):
                update = _bind_shared(binding, spec.name)
            else:
                value = empty(spec)
                binding.bind_ortvalue_input(spec.name, value)
                update = value.update_inplace
            updates.append((spec.name, spec.shape, np.dtype(spec.dtype), update))
        for place, spec in enumerate(self._outputs):
            if any(spec.name == given.name for given in self._inputs):
                reads.append((spec.name, _copy_passed_on(binding, spec.name, place)))
                continue
            if is_handed_out(spec):
                reads.append((spec.name, _hand_out_output(binding, spec.name, place)))
                continue
            value = empty(spec)
            binding.bind_ortvalue_output(spec.name, value)
            reads.append((spec.name, _copy_output(value, spec)))
        self._slots[slot] = OrtSlot(binding, updates=tuple(updates), reads=tuple(reads))
        return self._slots[slot]


class OnnxRuntimeTextSession(OnnxRuntimeSession):
    """Run a graph whose inputs are a table's columns: ONNX Runtime binds no memory of texts."""

    file = TEXTS

    def __init__(self, built: Built, table: Table) -> None:
        super().__init__(built)
        self._table, self._names = table, [spec.name for spec in self._outputs]

    def stage(self, inputs: Arrays, slot: int) -> Any:  # noqa: ARG002 - nothing is bound to a slot
        """Give each column its texts."""
        check_inputs(self._inputs, inputs)
        return self._table.arrays(inputs)

    def execute(self, staged: Any) -> Any:
        """Run the graph."""
        return self._session.run(self._names, staged)

    def fetch(self, raw: Any) -> Arrays:
        """Hand out the outputs, which each call allocates."""
        return dict(zip(self._names, raw, strict=True))


class OnnxRuntimeGpuSession(OnnxRuntimeSession):
    """Run it on a GPU, without a word of its arena: ONNX Runtime shows none."""

    def __init__(self, built: Built) -> None:
        """Open a stream, and the session on it.

        Raises:
            RuntimeError: TensorRT doesn't take the engine that was built, and made another one.
        """
        before = tensorrt.engine_files(built.folder)
        self._narrow = any(spec.dtype == "float16" for spec in built.exported.outputs)
        self._cuda = Cuda(built.arm.options.get(COPIES.name, PINNED))
        super().__init__(built, self._cuda.stream)
        if tensorrt.engine_files(built.folder) != before:
            raise RuntimeError(
                f"TensorRT refused the engine in {built.folder} and built another in its place: it is another GPU's or "
                "version's; remove that folder"
            )
        self.gpu = GpuSide(copies=self._cuda.copies, event_ns=partial(self._cuda.event_ns, self.execute))
        self.synchronize = self._cuda.synchronize  # type: ignore[method-assign] # a method of ours would be timed too

    def stage(self, inputs: Arrays, slot: int) -> OrtSlot:
        """Queue the copies to the slot's buffers."""
        check_inputs(self._inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        self._cuda.upload(handle.inputs, inputs)
        return handle

    def fetch(self, raw: OrtSlot) -> Arrays:
        """Wait for the run and copy the slot's outputs."""
        outputs = self._cuda.download(raw.outputs)
        return {name: widen(array) for name, array in outputs.items()} if self._narrow else outputs

    def close(self) -> None:
        """Drop the session, then what it was bound to and its stream."""
        if self.gpu is not None:
            self._cuda.synchronize()
            super().close()
            self._cuda.close()
            self.gpu = None

    def _new_slot(self, slot: int) -> OrtSlot:
        binding = self._session.io_binding()
        inputs, outputs = self._cuda.buffers(self._inputs, self._outputs)
        for bind, buffers in ((binding.bind_input, inputs), (binding.bind_output, outputs)):
            for one in buffers:
                bind(one.name, "cuda", DEVICE, np.dtype(one.spec.dtype).type, list(one.spec.shape), one.device_address)
        options = _run_options(slot if self._graph else None)
        self._slots[slot] = OrtSlot(binding, options, inputs=inputs, outputs=outputs)
        return self._slots[slot]


def _bind_shared(binding: Any, name: str) -> Callable[[Array], None]:
    """Return what binds an array as an input and keeps it until the next one: ONNX Runtime keeps only its address."""
    kept: list[Array] = []

    def bind(array: Array) -> None:
        binding.bind_cpu_input(name, array)
        kept[:] = [array]

    return bind


def _copy_output(value: Any, spec: TensorSpec) -> Callable[[], Array]:
    """Return what copies a tensor for the caller: `numpy` is a view of it."""
    read: Callable[[], Array] = value.numpy
    return (lambda: widen(read().copy())) if spec.dtype == "float16" else lambda: read().copy()


def _copy_passed_on(binding: Any, name: str, place: int) -> Callable[[], Array]:
    """Return what copies an output that is an input: ONNX Runtime gives the input's tensor and writes to no other."""
    binding.bind_output(name, "cpu")
    return lambda: widen(binding.get_outputs()[place].numpy().copy())


def _hand_out_output(binding: Any, name: str, place: int) -> Callable[[], Array]:
    """Return what hands out an output as ONNX Runtime allocated it.

    The next run allocates again, as `InferenceSession.run` does; until then runs write to the same memory.
    """
    binding.bind_output(name, "cpu")

    def hand_out() -> Array:
        output: Array = binding.get_outputs()[place].numpy()
        binding.bind_output(name, "cpu")
        return output

    return hand_out


def _run_options(graph: int | None) -> Any:
    """Make run options by which a call doesn't wait for its stream, and replays this slot's own CUDA graph.

    Args:
        graph: the slot's number, None where nothing is captured.
    """
    from onnxruntime import RunOptions

    options = RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph is not None:
        options.add_run_config_entry("gpu_graph_id", str(graph + 1))  # 0 is ONNX Runtime's own
    return options
