"""The user's function and its parts: models that it calls as sessions of ONNX Runtime, whatever runs them."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.adapter import Built, Session
from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.core.errors import UsageError
from shootout.models import source

Key = tuple[tuple[str, tuple[int, ...], str], ...]
"""The name, shape and dtype of each input of a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Say what to call.

    Attributes:
        function: of the user's, `file.py:read`.
        parts: ONNX files by the parameters that get them.
        pages: paths of the files that the function gets.
        threads: of each part.
        chosen: files that hold what was chosen for a part (`ChosenBuild`); a part that isn't named is as usual.
    """

    function: str
    parts: Mapping[str, str]
    pages: tuple[str, ...]
    threads: int
    chosen: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Task:
        """Read a task from JSON, with the fields of this class."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        known = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        return cls(**{**known, "pages": tuple(known["pages"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBuild:
    """Hold what was chosen for a part, as the part's own run has built it.

    Attributes:
        adapter: `module:Class` of the backend's.
        is_open: it takes any size.
    """

    adapter: str
    built: Built
    is_open: bool


class Part:
    """Run a model as a session of ONNX Runtime does: `part.run(None, {"x": x})`, or `part(x)`, gives a list of outputs.

    All else that a session has is ONNX Runtime's own.
    """

    def __init__(self, file: str, threads: int) -> None:
        self._file, self._threads = file, threads

    @cached_property
    def usual(self) -> Any:
        """Return the session of ONNX Runtime that the user would open, on so many threads."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        return onnxruntime.InferenceSession(self._file, options, providers=["CPUExecutionProvider"])

    @cached_property
    def _inputs(self) -> list[str]:
        return [one.name for one in self.usual.get_inputs()]

    def __call__(self, *arrays: Array, **named: Array) -> list[Array]:
        """Run it on inputs in the model's order, or by name."""
        return self.run(None, {**dict(zip(self._inputs, arrays, strict=False)), **named})

    def run(self, outputs: Sequence[str] | None, feed: Arrays, options: Any = None) -> list[Array]:
        """Return these outputs, all if none are named, in order."""
        found: list[Array] = self.usual.run(outputs or None, feed, options)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)


class ChosenPart(Part):
    """Run a part by the session of another runtime.

    Inputs of a size that it wasn't built for go to ONNX Runtime once, which tells the sizes of the outputs. From then
    on a session that takes any size runs these, too. A session's steps belong together, so calls from several threads
    wait for each other.

    Attributes:
        calls, usual_calls: how many were made, and of a size that only ONNX Runtime takes here.
    """

    def __init__(self, file: str, threads: int, chosen: ChosenBuild) -> None:
        super().__init__(file, threads)
        module, _, name = chosen.adapter.partition(":")
        self._built, self._is_open = chosen.built, chosen.is_open
        self._loaded: Session = getattr(import_module(module), name)().load(chosen.built)
        exported = chosen.built.exported
        self._sized: dict[Key, Session] = {_key_of_specs(exported.inputs): self._loaded}
        self._dtypes = {spec.name: spec.dtype for spec in exported.outputs}
        self.calls = self.usual_calls = 0
        self._lock = threading.Lock()

    @cached_property
    def _inputs(self) -> list[str]:
        return [spec.name for spec in self._built.exported.inputs]

    def run(self, outputs: Sequence[str] | None, feed: Arrays, options: Any = None) -> list[Array]:
        """Return these outputs, all if none are named, in order."""
        arrays = {name: np.asarray(feed[name]) for name in self._inputs if name in feed}
        key = tuple((name, array.shape, array.dtype.name) for name, array in arrays.items())
        with self._lock:
            self.calls += 1
            if (session := self._sized.get(key)) is None:
                self.usual_calls += not self._is_open
                return self._run_usual(key, outputs, feed, options)
            raw = session.execute(session.stage(arrays, 0))
            session.synchronize()
            found = session.fetch(raw)
        return [found[name].astype(self._dtypes[name], copy=False) for name in outputs or self._dtypes]

    def _run_usual(self, key: Key, outputs: Sequence[str] | None, feed: Arrays, options: Any) -> list[Array]:
        """Let ONNX Runtime run it, and open a session for this size if there can be one."""
        every = dict(zip(self._dtypes, super().run([*self._dtypes], feed, options), strict=True))
        if self._is_open:
            inputs = tuple(TensorSpec(name=name, shape=shape, dtype=dtype) for name, shape, dtype in key)
            specs = tuple(TensorSpec(name=name, shape=one.shape, dtype=one.dtype.name) for name, one in every.items())
            opened: Any = self._loaded
            self._sized[key] = opened.sized(replace(self._built.exported, inputs=inputs, outputs=specs))
        return [every[name] for name in outputs or every]


class Program:
    """The user's function with its parts.

    Args:
        make: makes a part by its name; None: as the task says.
    """

    def __init__(self, task: Task, make: Callable[[str], Part] | None = None) -> None:
        self._place = source.find(task.function)
        self.parts = {name: (make or _make_part(task))(name) for name in task.parts}
        self._function = source.find_function(self._place, "takes a page and the parts")

    def read(self, page: str) -> Any:
        """Return what the function gives for a page.

        Raises:
            UsageError: it raises; names the page, and the line of the user's file.
        """
        try:
            return source.call(self._place, lambda: self._function(page, **self.parts))
        except UsageError as error:
            raise UsageError(f"{Path(page).name}: {error}") from error


def _make_part(task: Task) -> Callable[[str], Part]:
    def make(name: str) -> Part:
        file = task.parts[name]
        if name not in task.chosen:
            return Part(file, task.threads)
        chosen = pickle.loads(Path(task.chosen[name]).read_bytes())  # noqa: S301 - of our own cache
        return ChosenPart(file, task.threads, chosen)

    return make


def _key_of_specs(specs: Sequence[TensorSpec]) -> Key:
    return tuple((spec.name, spec.shape, spec.dtype) for spec in specs)
