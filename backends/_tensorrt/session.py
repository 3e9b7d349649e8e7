"""TensorRT's run path: an engine, its own stream, a context and a set of addresses per slot, an optional CUDA graph.

A context keeps the addresses it was given, so each slot has one: a call then only enqueues. All share the engine's
weights, and one block of memory for what lies between the layers, since they never overlap on one stream. With a block
each, calls that rotate through slots would find none of it in the L2 cache, and other libraries' calls do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from shootout.backends._tensorrt.account import EngineLayer, Network, count_layers
from shootout.backends._tensorrt.engine import Library
from shootout.backends.common import widen
from shootout.backends.cuda_memory import PINNED, Buffer, Cuda, device_name
from shootout.backends.devices.cuda_driver import DEVICE
from shootout.core.adapter import GpuSide, check_inputs
from shootout.core.contract import Arrays, Executed, TensorSpec
from shootout.core.errors import NotRunKind, SkippedArm


class Engine:
    """A deserialized engine and the contexts made of it."""

    def __init__(self, library: Library, plan: bytes, kernels: bytes = b"") -> None:
        """Load an engine.

        Args:
            library: the one that built it.
            plan: its bytes.
            kernels: TensorRT-RTX's kernels for this GPU as `kernels()` gave them; others than this GPU's are ignored.

        Raises:
            RuntimeError: TensorRT refuses it; in its words.
        """
        self._library, self._trt, self._stored = library, library.module, kernels
        self._runtime = library.start("Runtime")
        self._engine: Any = self._runtime.deserialize_cuda_engine(plan)
        self._cache: Any = None
        if self._engine is None:
            raise RuntimeError(f"{library.name} can't load the engine here: {library.errors_text()}")

    def context(self, *, graph: bool = False) -> Any:
        """Make an execution context, without memory for activations: `set_device_memory` gives it some.

        TensorRT-RTX compiles its kernels now, for the shapes that are run, not later.

        Args:
            graph: TensorRT-RTX captures and replays a CUDA graph of its own; nothing to the full TensorRT.

        Raises:
            RuntimeError: TensorRT can't make one; in its words.
        """
        lent = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        is_rtx = self._library.is_rtx
        context = self._rtx_context(lent, graph) if is_rtx else self._engine.create_execution_context(lent)
        if context is None:
            raise RuntimeError(f"{self._library.name} makes no execution context: {self._library.errors_text()}")
        return context

    def dtypes(self) -> dict[str, str]:
        """Return NumPy names of the types of inputs and outputs, by tensor."""
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        return {name: self._trt.nptype(self._engine.get_tensor_dtype(name)).__name__ for name in names}

    def kernels(self) -> bytes:
        """Return what TensorRT-RTX compiled for this GPU; empty for the full TensorRT, which did so while building."""
        return bytes(self._cache.serialize()) if self._cache is not None else b""

    def activation_bytes(self) -> int:
        """Return the device memory that a context needs for what lies between the layers."""
        return int(self._engine.device_memory_size_v2)

    def weight_bytes(self) -> int:
        """Return the device memory of the weights, which the contexts share; 0 if this TensorRT doesn't tell (10.8)."""
        stat = getattr(self._trt, "EngineStat", None)
        return int(self._engine.get_engine_stat(stat.TOTAL_WEIGHTS_SIZE)) if stat else 0

    def layers(self) -> list[EngineLayer]:
        """Return the engine's layers, from its inspector."""
        form = self._trt.LayerInformationFormat.JSON
        information = json.loads(self._engine.create_engine_inspector().get_engine_information(form))
        return [layer for layer in information.get("Layers", ()) if isinstance(layer, Mapping)]

    def _rtx_context(self, lent: Any, graph: bool) -> Any:
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(lent)
        if graph:
            config.cuda_graph_strategy = self._trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        config.dynamic_shapes_kernel_specialization_strategy = self._trt.DynamicShapesKernelSpecializationStrategy.EAGER
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._stored:
                self._cache.deserialize(self._stored)
        config.set_runtime_cache(self._cache)
        return self._engine.create_execution_context(runtime_config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Hold what a session is made from.

    Attributes:
        plan: the engine's bytes.
        network: what it was built from.
        kernels: TensorRT-RTX's compiled kernels, empty where there are none.
        graph: replay a CUDA graph instead of enqueueing.
        copies: `pinned` or `pageable`, the host memory that is copied from and to.
    """

    plan: bytes
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    network: Network
    kernels: bytes = b""
    graph: bool = False
    copies: str = PINNED


@dataclass(slots=True)
class TensorRtSlot:
    """One context with buffers at fixed addresses; `launch` is set when it was first staged."""

    context: Any
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    launch: Callable[[], Any] | None = None


class TensorRtSession:
    """An engine on the GPU."""

    def __init__(self, library: Library, setup: Setup) -> None:
        """Load the engine and open a stream.

        Raises:
            RuntimeError: TensorRT or CUDA refuses; or the engine's tensors aren't the model's.
        """
        self._library, self._setup = library, setup
        self._engine: Engine | None = Engine(library, setup.plan, setup.kernels)
        _require_tensors(self._engine, (*setup.inputs, *setup.outputs))
        self._cuda = Cuda(setup.copies)
        events = partial(self._cuda.event_ns, self.execute)
        self.gpu: GpuSide | None = GpuSide(copies=setup.copies, event_ns=events, allocator=self._allocated_bytes)
        self._slots: dict[int, TensorRtSlot] = {}
        self._activations = 0

    @cached_property
    def executed(self) -> Executed:
        """Return the engine's layers from its own inspector, and the GPU as CUDA names it."""
        assert self._engine, "read before close"
        return Executed(
            library=self._library.name,
            version=self._library.version,
            device=f"cuda:{DEVICE} ({device_name()})",
            threads=None,
            **count_layers(self._engine.layers(), self._setup.network),
            artifact_bytes=len(self._setup.plan),
        )

    def stage(self, inputs: Arrays, slot: int) -> TensorRtSlot:
        """Queue the copies to the slot's buffers; the first time, also its context and CUDA graph."""
        check_inputs(self._setup.inputs, inputs)
        handle = self._slots.get(slot) or self._new_slot(slot)
        self._cuda.upload(handle.inputs, inputs)
        if handle.launch is None:
            handle.launch = self._make_launch(handle.context)
        return handle

    def execute(self, staged: TensorRtSlot) -> TensorRtSlot:
        """Queue the model on the stream."""
        staged.launch()  # type: ignore[misc] # staged, so it is set
        return staged

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._cuda.synchronize()

    def fetch(self, raw: TensorRtSlot) -> Arrays:
        """Copy the slot's outputs; the copy is queued behind the run and waited for."""
        return {name: widen(array) for name, array in self._cuda.download(raw.outputs).items()}

    def _allocated_bytes(self) -> tuple[int, int]:
        """Return the bytes of device memory of inputs and outputs, weights, and the contexts' activations.

        CUDA graphs, code and what TensorRT keeps for itself are not among them: only NVML's figure has them. Nothing is
        given back before `close`, so the most it held is what it holds.
        """
        assert self._engine, "read before close"
        held = self._cuda.held_bytes + self._engine.weight_bytes()
        return held, held

    def kernels(self) -> bytes:
        """Return what TensorRT-RTX compiled for this GPU so far; empty for the full TensorRT."""
        assert self._engine, "read before close"
        return self._engine.kernels()

    def close(self) -> None:
        """Free graphs, buffers and the stream, then the contexts and the engine."""
        if self._engine is None:
            return
        self._cuda.synchronize()
        self._cuda.close()
        for slot in self._slots.values():
            slot.context = slot.launch = None
        self._slots.clear()
        self._engine = self.gpu = None

    def _new_slot(self, number: int) -> TensorRtSlot:
        assert self._engine, "staged after close"
        context = self._engine.context(graph=self._setup.graph)
        inputs, outputs = self._cuda.buffers(self._setup.inputs, self._setup.outputs)
        done = [context.set_input_shape(spec.name, spec.shape) for spec in self._setup.inputs]
        done += [context.set_tensor_address(one.name, one.device_address) for one in (*inputs, *outputs)]
        if not all(done):
            raise RuntimeError(
                f"{self._library.name} refuses a tensor's shape or address: {self._library.errors_text()}"
            )
        if size := self._engine.activation_bytes():
            self._activations = self._activations or self._cuda.block(size)
            context.set_device_memory(self._activations, size)
        if self._setup.graph:
            self._require_capturable(context)
        self._slots[number] = TensorRtSlot(context, inputs, outputs)
        return self._slots[number]

    def _require_capturable(self, context: Any) -> None:
        """Skip if TensorRT itself says that no CUDA graph can be made of this engine; not every version tells."""
        ask = getattr(context, "is_stream_capturable", None)
        if ask is not None and not ask(self._cuda.stream):
            reason = f"{self._library.name} can't capture this engine as a CUDA graph"
            raise SkippedArm(reason, "leave out cuda_graph=1", NotRunKind.UNSUPPORTED)

    def _make_launch(self, context: Any) -> Callable[[], Any]:
        """Return what `execute` calls.

        A graph is captured after one plain run, in which TensorRT settles its set-up. TensorRT-RTX captures by itself.
        """
        run, stream, library = context.execute_async_v3, self._cuda.stream, self._library

        def enqueue() -> None:
            if not run(stream):
                raise RuntimeError(f"{library.name} could not run: {library.errors_text()}")

        if not self._setup.graph or library.is_rtx:
            return enqueue
        enqueue()
        self.synchronize()
        return self._cuda.capture(enqueue)


def _require_tensors(engine: Engine, specs: tuple[TensorSpec, ...]) -> None:
    dtypes, wanted = engine.dtypes(), {spec.name: spec.dtype for spec in specs}
    if dtypes != wanted:
        raise RuntimeError(f"the engine's inputs and outputs are {dtypes}, the model's {wanted}")
