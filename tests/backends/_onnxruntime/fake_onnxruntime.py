"""ONNX Runtime on a GPU that isn't there: its options and run options are its own, and a call doubles its input.

What a session is given, and in which order its bindings run, can be seen here. Whether ONNX Runtime and TensorRT then
do as they are told needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from shootout.backends._onnxruntime.providers import CPU, CUDA, TENSORRT


class Value:
    """An `OrtValue`: a tensor at one address for good."""

    def __init__(self, shape: Sequence[int], dtype: Any, device: str) -> None:
        self.array, self.device = np.zeros(shape, dtype), device

    def update_inplace(self, array: Any) -> None:
        self.array[...] = array

    def numpy(self) -> Any:
        return self.array.copy() if self.device == "cuda" else self.array


class Binding:
    """An IO binding."""

    def __init__(self) -> None:
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}

    def bind_ortvalue_input(self, name: str, value: Value) -> None:
        assert name not in self.inputs, "an address is set once"
        self.inputs[name] = value

    def bind_ortvalue_output(self, name: str, value: Value) -> None:
        assert name not in self.outputs, "an address is set once"
        self.outputs[name] = value


@dataclass
class Machine:
    """What the fake is told to be, and what was asked of it.

    Attributes:
        available: the providers it is built with.
        loads: those whose libraries are there.
        elsewhere: nodes (operator, name) that the first provider leaves to the second, or to the CPU.
        fails_with: what opening a session raises.
        refuses: whether TensorRT takes no stored engine.
        sessions: all that were opened.
    """

    available: Sequence[str] = (TENSORRT, CUDA, CPU)
    loads: Sequence[str] = (TENSORRT, CUDA, CPU)
    elsewhere: Sequence[tuple[str, str]] = ()
    fails_with: Exception | None = None
    refuses: bool = False
    sessions: list[Session] = field(default_factory=list)

    def session(self, source: Any, options: Any, providers: Any, enable_fallback: int) -> Session:
        """In place of `InferenceSession`."""
        assert not enable_fallback, "ONNX Runtime would go on with the CPU"
        if self.fails_with:
            raise self.fails_with
        self.sessions.append(Session(self, options, dict(providers)))
        return self.sessions[-1]


class Session:
    """An `InferenceSession` of a model that doubles `x` into `y`."""

    def __init__(self, machine: Machine, options: Any, given: dict[str, dict[str, str]]) -> None:
        self.machine, self.options, self.given = machine, options, given
        self.providers = [name for name in (*given, CPU) if name in machine.loads]
        self.runs: list[tuple[Binding, Any]] = []
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
        return self.given

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
        self.runs.append((binding, options))
        np.multiply(binding.inputs["x"].array, 2, out=binding.outputs["y"].array)

    def _keep_engine(self, folder: Path) -> None:
        kept = folder / "graph_sm90.engine"
        if self.machine.refuses or not kept.exists():
            kept.write_bytes(b"engine" * (1 + len(self.machine.sessions)))


def _giving(found: list[Any]) -> Callable[[], list[Any]]:
    return lambda: found
