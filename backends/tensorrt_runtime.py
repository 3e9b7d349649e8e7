"""A TensorRT engine in this process: how it is loaded, what its contexts are given, what its inspector says it runs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from shootout.backends.tensorrt_library import Library
from shootout.contract import Precision

COMPUTE_LAYER = re.compile(r"(?i)gemm|conv(?!ert)|mat_?r?i?x?_?mul|einsum|attention|mha|linear|(?<![a-z])fc(?![a-z])")
"""Matches an engine layer that multiplies matrices, by its type, name, tactic or the ONNX nodes it came from."""
NAMING = ("LayerType", "Name", "TacticName", "Metadata")
TYPING = ("Format/Datatype", "DataType", "Datatype", "Type")
TYPES = (
    (Precision.INT8.value, re.compile(r"(?i)int8")),
    (Precision.BF16.value, re.compile(r"(?i)bfloat16|bf16")),
    (Precision.FP16.value, re.compile(r"(?i)half|fp16|float16")),
    (Precision.FP32.value, re.compile(r"(?i)float|fp32")),
)
"""How the inspector writes a tensor's type, the narrowest first."""


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
        self._runtime = self._trt.Runtime(library.log)
        self._engine: Any = self._runtime.deserialize_cuda_engine(plan) if self._runtime else None
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

    def compute_layers(self) -> dict[str, int]:
        """The engine's matrix products by precision, from its inspector; several of the model's may be one of these."""
        form = self._trt.LayerInformationFormat.JSON
        told = self._engine.create_engine_inspector().get_engine_information(form)
        return count_layers(json.loads(told))

    def _rtx_context(self) -> Any:
        config = self._engine.create_runtime_config()
        config.dynamic_shapes_kernel_specialization_strategy = self._trt.DynamicShapesKernelSpecializationStrategy.EAGER
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._stored:
                self._cache.deserialize(self._stored)
        config.set_runtime_cache(self._cache)
        return self._engine.create_execution_context(runtime_config=config)


def count_layers(told: Mapping[str, Any]) -> dict[str, int]:
    """Count compute layers by precision in the inspector's JSON, in the form of TensorRT 10, 11 or RTX."""
    layers = [layer for layer in told.get("Layers", ()) if isinstance(layer, Mapping)]
    found = (_precision(layer) for layer in layers if COMPUTE_LAYER.search(_names(layer)))
    return dict(Counter(found))


def _names(layer: Mapping[str, Any]) -> str:
    return " ".join(str(layer.get(key, "")) for key in NAMING)


def _precision(layer: Mapping[str, Any]) -> str:
    """The narrowest type among its tensors: a cast that is fused into it widens one side, but narrows none.

    TF32 shows in no type, at best in the name of the kernel that was chosen.
    """
    types = list(_types(layer))
    found = next((name for name, pattern in TYPES if any(pattern.search(text) for text in types)), "unknown")
    rounds = "tf32" in str(layer.get("TacticName", "")).lower()
    return Precision.TF32.value if rounds and found == Precision.FP32 else found


def _types(layer: Mapping[str, Any]) -> Iterator[str]:
    tensors = [*layer.get("Inputs", ()), *layer.get("Outputs", ()), layer.get("Weights", {})]
    return (str(tensor[key]) for tensor in tensors for key in TYPING if isinstance(tensor, Mapping) and key in tensor)
