"""A TensorRT engine in this process: how it is loaded, what its contexts are given, what its inspector says it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shootout.backends._tensorrt.account import Layer
from shootout.backends._tensorrt.library import Library


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
            raise RuntimeError(f"{library.name} can't load the engine here: {library.words()}")

    def context(self) -> Any:
        """A new execution context. TensorRT-RTX compiles its kernels now, for the shapes that are run, not later.

        Raises:
            RuntimeError: TensorRT can't make one; in its words.
        """
        context = self._rtx_context() if self._library.is_rtx else self._engine.create_execution_context()
        if context is None:
            raise RuntimeError(f"{self._library.name} makes no execution context: {self._library.words()}")
        return context

    def dtypes(self) -> dict[str, str]:
        """NumPy names of the types of inputs and outputs, by tensor."""
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        return {name: self._trt.nptype(self._engine.get_tensor_dtype(name)).__name__ for name in names}

    def kernels(self) -> bytes:
        """What TensorRT-RTX compiled for this GPU; empty for the full TensorRT, which did so while building."""
        return bytes(self._cache.serialize()) if self._cache is not None else b""

    def activation_bytes(self) -> int:
        """Device memory that each context takes for what lies between the layers."""
        return int(self._engine.device_memory_size_v2)

    def weight_bytes(self) -> int:
        """Device memory of the weights, which the contexts share; 0 where this TensorRT doesn't tell (10.8 doesn't)."""
        stat = getattr(self._trt, "EngineStat", None)
        return int(self._engine.get_engine_stat(stat.TOTAL_WEIGHTS_SIZE)) if stat else 0

    def layers(self) -> list[Layer]:
        """The engine's layers, from its inspector."""
        form = self._trt.LayerInformationFormat.JSON
        told = json.loads(self._engine.create_engine_inspector().get_engine_information(form))
        return [layer for layer in told.get("Layers", ()) if isinstance(layer, Mapping)]

    def _rtx_context(self) -> Any:
        config = self._engine.create_runtime_config()
        config.dynamic_shapes_kernel_specialization_strategy = self._trt.DynamicShapesKernelSpecializationStrategy.EAGER
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._stored:
                self._cache.deserialize(self._stored)
        config.set_runtime_cache(self._cache)
        return self._engine.create_execution_context(runtime_config=config)
