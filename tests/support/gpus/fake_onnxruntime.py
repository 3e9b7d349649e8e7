"""ONNX Runtime on a `FakeCuda`: its options and run options are its own, and a call doubles its input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shootout.backends._onnxruntime import providers
from shootout.backends._onnxruntime.providers import CPU, CUDA, TENSORRT, TF32
from support.gpus.fake_cuda import FakeCuda


@dataclass(frozen=True)
class Bound:
    """A tensor at somebody's own address."""

    device: str
    shape: Sequence[int]
    dtype: Any
    address: int

    def array(self, gpu: FakeCuda) -> Any:
        return np.ndarray(self.shape, self.dtype, gpu.memory[self.address])


class Binding:
    """An IO binding, by address alone."""

    def __init__(self) -> None:
        self.inputs: dict[str, Bound] = {}
        self.outputs: dict[str, Bound] = {}

    def bind_input(self, name: str, device: str, index: int, dtype: Any, shape: Sequence[int], address: int) -> None:
        assert name not in self.inputs, "an address is set once"
        self.inputs[name] = Bound(f"{device}:{index}", shape, dtype, address)

    def bind_output(self, name: str, device: str, index: int, dtype: Any, shape: Sequence[int], address: int) -> None:
        assert name not in self.outputs, "an address is set once"
        self.outputs[name] = Bound(f"{device}:{index}", shape, dtype, address)


@dataclass
class FakeOnnxRuntime:
    """A GPU machine on which ONNX Runtime opens sessions.

    Attributes:
        gpu: its memory and streams.
        available: the providers it is built with; `plugins` those that are registered once libraries are preloaded.
        loads: those whose libraries are there.
        elsewhere: nodes (operator, name) that the first provider leaves to the second, or to the CPU.
        tells_tf32: whether a session tells of its provider's options.
        fails_with: what opening a session raises.
        refuses: whether TensorRT takes no stored engine.
        sessions: all that were opened.
    """

    gpu: FakeCuda = field(default_factory=FakeCuda)
    available: Sequence[str] = (TENSORRT, CUDA, CPU)
    plugins: Sequence[str] = ()
    loads: Sequence[str] = (TENSORRT, CUDA, CPU)
    elsewhere: Sequence[tuple[str, str]] = ()
    fails_with: Exception | None = None
    refuses: bool = False
    tells_tf32: bool = True
    preloaded: bool = False
    sessions: list[OnnxSession] = field(default_factory=list)

    def session(self, source: Any, options: Any, providers: Any, enable_fallback: int) -> OnnxSession:
        """In place of `InferenceSession`."""
        assert not enable_fallback, "ONNX Runtime would go on with the CPU"
        if self.fails_with:
            raise self.fails_with
        self.sessions.append(OnnxSession(self, options, dict(providers)))
        return self.sessions[-1]

    def preload(self) -> None:
        self.preloaded = True

    def devices(self) -> list[Any]:
        return [SimpleNamespace(ep_name=name) for name in self.plugins if self.preloaded]


class OnnxSession:
    """An `InferenceSession` of a model that doubles `x` into `y`; `runs` are its bindings and graph numbers."""

    def __init__(self, machine: FakeOnnxRuntime, options: Any, given: dict[str, dict[str, str]]) -> None:
        self.machine, self.options, self.given = machine, options, given
        self.providers = [name for name in (*given, CPU) if name in machine.loads]
        self.runs: list[tuple[Binding, str]] = []
        if self.providers[0] == TENSORRT:
            switches = {name: on for name, on in given[TENSORRT].items() if name.endswith("_enable")}
            assert set(switches.values()) <= {"True", "False"}, "its binding takes no other words"
            self._keep_engine(Path(given[TENSORRT]["trt_engine_cache_path"]))

    def entry(self, name: str) -> str:
        """One of its configuration entries."""
        return str(self.options.get_session_config_entry(name))

    def get_providers(self) -> list[str]:
        return self.providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return self.given if self.machine.tells_tf32 else {}

    def get_session_options(self) -> Any:
        return self.options

    def get_provider_graph_assignment_info(self) -> list[Any]:
        nodes = [SimpleNamespace(op_type=operator, name=name) for operator, name in self.machine.elsewhere]
        first, second = SimpleNamespace(op_type="MatMul", name="product"), self.providers[1]
        parts = [(self.providers[0], [first]), (second, nodes)]
        return [SimpleNamespace(ep_name=name, get_nodes=_giving(found)) for name, found in parts if found]

    def io_binding(self) -> Binding:
        return Binding()

    def run_with_iobinding(self, binding: Binding, options: Any) -> None:
        gpu, x, y = self.machine.gpu, binding.inputs["x"], binding.outputs["y"]
        self.runs.append((binding, options.get_run_config_entry("gpu_graph_id") if self._captures else ""))
        assert {x.device, y.device} == {"cuda:0"}
        (stream,) = {int(given.get("user_compute_stream", 0)) for name, given in self.given.items() if name != CPU}
        gpu.put(lambda: np.multiply(x.array(gpu), 2, out=y.array(gpu)), stream)
        if options.get_run_config_entry("disable_synchronize_execution_providers") != "1":
            gpu.cudaStreamSynchronize(stream)

    @property
    def _captures(self) -> bool:
        return self.given.get(CUDA, {}).get("enable_cuda_graph") == "1"

    def _keep_engine(self, folder: Path) -> None:
        kept = folder / "graph_sm90.engine"
        if self.machine.refuses or not kept.exists():
            kept.write_bytes(b"engine" * (1 + len(self.machine.sessions)))


def install(patch: pytest.MonkeyPatch) -> FakeOnnxRuntime:
    """Put a GPU machine in place of this one; ONNX Runtime's session and run options stay its own."""
    import onnxruntime

    made = FakeOnnxRuntime()
    patch.setenv(TF32, "1")  # so that it is restored; a user's own wish
    opened = type("InferenceSession", (), {"__new__": lambda _, *args, **named: made.session(*args, **named)})
    opened.get_provider_graph_assignment_info = None  # type: ignore[attr-defined] # it is asked whether there is one
    patch.setattr(onnxruntime, "InferenceSession", opened)
    patch.setattr(onnxruntime, "get_available_providers", lambda: list(made.available))
    patch.setattr(onnxruntime, "get_ep_devices", made.devices)
    patch.setattr(onnxruntime, "preload_dlls", made.preload)
    patch.setitem(sys.modules, "cuda.bindings.runtime", made.gpu)  # type: ignore[arg-type]
    patch.setattr(providers, "has_bindings", lambda: True)
    patch.setattr(providers, "load_fault", lambda provider: "")
    patch.setattr(providers, "_require_tensorrt", lambda: None)
    return made


def _giving(found: list[Any]) -> Callable[[], list[Any]]:
    return lambda: found
