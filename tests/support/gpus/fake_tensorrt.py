"""TensorRT and TensorRT-RTX on a `FakeCuda`: sessions of a model that doubles its input, and a builder of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from support.gpus.fake_cuda import FakeCuda

WEIGHT_BYTES, ACTIVATION_BYTES = 1_000, 100


class FakeContext:
    """An execution context; it has no memory of its own."""

    def __init__(self, trt: FakeTensorRt, config: Any) -> None:
        self.trt, self.gpu, self.config = trt, trt.gpu, config
        self.addresses: dict[str, int] = {}
        self.lent: tuple[int, int] | None = None
        self.runs = 0
        self.is_stream_capturable = None if trt.capturable is None else self._is_capturable

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        return name == "x"

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert name not in self.addresses, "an address is set once"
        self.addresses[name] = address
        return address in self.gpu.memory

    def set_device_memory(self, address: int, size: int) -> None:
        assert len(self.gpu.memory[address]) >= size, "less than the engine needs"
        self.lent = address, size

    def execute_async_v3(self, stream: int) -> bool:
        assert self.lent or not self.trt.activation_bytes, "it has no memory to work in"
        self.runs += 1
        self.gpu.put(self._double, stream)
        return self.trt.works

    def _is_capturable(self, stream: int) -> bool | None:
        assert self.lent, "asked before it has memory"
        return self.trt.capturable

    def _double(self) -> None:
        x, y = (np.frombuffer(self.gpu.memory[self.addresses[name]], np.float32) for name in "xy")
        np.multiply(x, 2, out=y)


class FakeTensorRt:
    """The part of either module that is used.

    Attributes:
        asked: what its builder was told, by name.
        contexts: those made.
        kernels: TensorRT-RTX's compiled kernels that it was given.
        activation_bytes: what a context needs.
        capturable: whether an engine can be captured; None: this version doesn't tell.
        works: whether a run can be queued.
        takes: whether a timing cache fits.
        starts: whether CUDA can be started.
        engine: what the builder makes.
    """

    __version__ = "0.0"
    BuilderFlag = SimpleNamespace(TF32="tf32", REQUIRE_USER_ALLOCATION="lent")
    ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")
    DynamicShapesKernelSpecializationStrategy = SimpleNamespace(EAGER="eager")
    LayerInformationFormat = SimpleNamespace(JSON="json")
    ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="lent")
    CudaGraphStrategy = SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole")

    def __init__(self, gpu: FakeCuda, name: str = "tensorrt", layers: str = "{}", *, strong: int | None = 1) -> None:
        self.gpu, self.__name__, self.layers = gpu, name, layers
        self.ComputeCapability = SimpleNamespace(
            __members__={"CURRENT": 1} | ({"SM89": 89} if name == "tensorrt_rtx" else {})
        )
        self.NetworkDefinitionCreationFlag = SimpleNamespace(**({} if strong is None else {"STRONGLY_TYPED": strong}))
        self.EngineStat: Any = SimpleNamespace(TOTAL_WEIGHTS_SIZE=WEIGHT_BYTES)
        self.asked: dict[str, Any] = {}
        self.contexts: list[FakeContext] = []
        self.kernels: list[bytes] = []
        self.activation_bytes = ACTIVATION_BYTES
        self.capturable: bool | None = True
        self.dtype: type = np.float32
        self.works = self.takes = self.starts = True
        self.engine: bytes | None = b"engine"

    def nptype(self, dtype: type) -> type:
        return dtype

    def Runtime(self, log: Any) -> Any:  # noqa: N802 - TensorRT's own names, here and below
        self._start()
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: self._engine() if plan else None)

    def Builder(self, log: Any) -> Any:  # noqa: N802
        self._start()
        tensor = SimpleNamespace(name="x", shape=(-1, 4))
        network = SimpleNamespace(num_layers=0, num_inputs=1, get_input=lambda index: tensor)
        engine = None if self.engine is None else np.frombuffer(self.engine, np.uint8)
        return SimpleNamespace(
            create_network=lambda flags: self._noted("flags", flags, network),
            create_builder_config=lambda: FakeConfig(self),
            create_optimization_profile=lambda: SimpleNamespace(
                set_shape=lambda *shapes: self._noted("profile", shapes)
            ),
            build_serialized_network=lambda parsed, config: engine,
        )

    def OnnxParser(self, network: Any, log: Any) -> Any:  # noqa: N802
        return SimpleNamespace(parse_from_file=lambda path: True)

    def _start(self) -> None:
        if not self.starts:
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def _noted(self, name: str, told: Any, answer: Any = None) -> Any:
        self.asked[name] = told
        return answer

    def _engine(self) -> Any:
        return SimpleNamespace(
            num_io_tensors=2,
            device_memory_size_v2=self.activation_bytes,
            get_engine_stat=lambda stat: stat,
            get_tensor_name="xy".__getitem__,
            get_tensor_dtype=lambda name: self.dtype,
            create_runtime_config=self._runtime_config,
            create_execution_context=self._context,
            create_engine_inspector=lambda: SimpleNamespace(get_engine_information=lambda form: self.layers),
        )

    def _runtime_config(self) -> Any:
        config = SimpleNamespace(create_runtime_cache=self._runtime_cache, set_runtime_cache=lambda cache: True)
        config.set_execution_context_allocation_strategy = lambda strategy: setattr(config, "strategy", strategy)
        return config

    def _runtime_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: b"compiled", deserialize=self.kernels.append)

    def _context(self, strategy: str = "", runtime_config: Any = None) -> FakeContext:
        assert "lent" in (strategy, getattr(runtime_config, "strategy", "")), "each context would have its own memory"
        self.contexts.append(FakeContext(self, runtime_config))
        return self.contexts[-1]


class FakeConfig:
    """A builder's configuration."""

    builder_optimization_level = 3

    def __init__(self, owner: FakeTensorRt) -> None:
        self.owner, self.asked = owner, owner.asked
        self.cache = b""

    def set_flag(self, flag: str) -> None:
        self.asked[flag] = True

    def clear_flag(self, flag: str) -> None:
        self.asked[flag] = False

    def create_timing_cache(self, stored: bytes) -> bytes:
        return stored

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return self.owner.takes

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: self.cache + b"more")

    def set_compute_capability(self, capability: int, index: int) -> None:
        self.asked["capability"] = capability

    def get_compute_capability(self, index: int) -> Any:
        return SimpleNamespace(name="CURRENT")

    def add_optimization_profile(self, profile: Any) -> None:
        self.asked["profiles"] = self.asked.get("profiles", 0) + 1
