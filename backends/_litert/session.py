"""A compiled .tflite file with buffers of its own for each slot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import HostSession, HostSlot, count_tasks
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Array, Executed, TensorSpec
from shootout.core.host.environment import version_of

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

PACKAGE = "ai-edge-litert"
MODEL = "model.tflite"
KERNELS, BUILTIN = "kernels", "builtin"


class LiteRtSession(HostSession):
    """LiteRT's compiled model, of one signature."""

    def __init__(self, built: Built, opened: LiteRtSession | None = None) -> None:
        """Compile the model, or share that of another size's session, with open axes."""
        super().__init__(built.exported.inputs)
        self._built, self._outputs = built, built.exported.outputs
        before = count_tasks()
        self._model: Any = opened._model if opened else compile_model(built.folder / MODEL, built.arm)
        # what the model is laid out for, which all its sessions share: the shapes of its inputs, none before a call
        self._laid_out: list[tuple[tuple[int, ...], ...]] = opened._laid_out if opened else []
        self._shapes = tuple(spec.shape for spec in self._inputs)
        begins_later = KERNELS in built.arm.options  # LiteRT's own kernels begin their threads in calls
        self._threads = None if before is None or begins_later else 1 + (count_tasks() or before) - before

    @cached_property
    def executed(self) -> Executed:
        """Return the file's own nodes, and whether the compiled model runs all of them in its delegate."""
        facts = dict(self._built.facts["account"])
        undelegated, branching = facts.pop("undelegated"), facts.pop("branching")
        whole = KERNELS in self._built.arm.options or self._model.is_fully_accelerated()
        outside = _list_counts(undelegated) or "some nodes"
        told_outside = "" if whole else f"not in XNNPACK but in LiteRT's own kernels: {outside}"
        told_uncounted = f"not counted: the products inside {_list_counts(branching)}" if branching else ""
        return Executed(
            library="litert",
            version=version_of(PACKAGE),
            device=f"cpu ({self._built.arm.options.get(KERNELS, 'xnnpack')})",
            threads=self._threads,
            fallbacks=tuple(filter(None, (told_outside, told_uncounted))),
            artifact_bytes=(self._built.folder / MODEL).stat().st_size,
            **facts,
        )

    def sized(self, exported: ExportedModel) -> LiteRtSession:
        """Return a session of the same compiled model for the inputs of another size."""
        model = replace(exported, varying=self._built.exported.varying)
        return LiteRtSession(replace(self._built, exported=model), opened=self)

    def _lay_out(self) -> None:
        """Lay the model out for this session's size if it isn't."""
        if self._laid_out != [self._shapes]:
            (signature,) = self._model.get_signature_list().values()
            for place, shape in enumerate(self._shapes):
                if (name := f"args_{place}") in signature["inputs"]:
                    # The converter fails on open axes, so the file is of one size, and `strict` would hold it to that.
                    self._model.resize_input_tensor(signature["inputs"].index(name), shape, strict=False)
            self._laid_out[:] = [self._shapes]

    def close(self) -> None:
        """Drop the buffers, then the model that made them."""
        self._slots.clear()
        if self._model is not None:
            self._model.close()
        self._model = None

    def _new_slot(self) -> HostSlot:
        """Make buffers by the converter's own names: its inputs and outputs are numbered in the module's order."""
        if self._built.exported.varying:
            self._lay_out()  # buffers are made for what the model is laid out for
        (key, signature), *_ = self._model.get_signature_list().items()
        wants, gives = self._model.get_input_tensor_details(key), self._model.get_output_tensor_details(key)
        given = {name: self._model.create_input_buffer_by_name(key, name) for name in signature["inputs"]}
        memory = {wants[name]["index"]: buffer for name, buffer in given.items()}
        for name in signature["outputs"]:  # in the module's order: a tensor that is returned twice has its last name
            if gives[name]["index"] not in memory:  # an input that is returned keeps its buffer
                memory[gives[name]["index"]] = self._model.create_output_buffer_by_name(key, name)
        made = [memory[gives[name]["index"]] for name in signature["outputs"]]
        writes = [
            (spec.name, _writer_of(given[name], wants[name]["dtype"], spec))
            for place, spec in enumerate(self._inputs)
            if (name := f"args_{place}") in given
        ]
        reads = list[tuple[str, Callable[[], Array]]]()
        for place, spec in enumerate(self._outputs):
            name = own if (own := f"output_{place}") in gives else signature["outputs"][place]
            reads.append((spec.name, _reader_of(memory[gives[name]["index"]], gives[name]["dtype"], spec)))
        run = partial(self._model.run_by_index, 0, list(given.values()), made)

        def run_open() -> None:
            self._lay_out()
            run()

        return HostSlot(run_open if self._built.exported.varying else run, tuple(writes), tuple(reads))


def _writer_of(buffer: Any, dtype: str, spec: TensorSpec) -> Callable[[Array], object]:
    """Return what copies an array into a buffer, as the file's type if that is another one."""
    return buffer.write if dtype == spec.dtype else lambda array: buffer.write(array.astype(dtype))


def _reader_of(buffer: Any, dtype: str, spec: TensorSpec) -> Callable[[], Array]:
    """Return what copies a buffer into an array of the model's shape and type."""
    count, kind, shape = math.prod(spec.shape), np.dtype(dtype), spec.shape
    if dtype == spec.dtype:
        return lambda: buffer.read(count, kind).reshape(shape)
    return lambda: buffer.read(count, kind).reshape(shape).astype(spec.dtype)


def compile_model(path: Path, arm: Arm) -> Any:
    """Compile the file as this arm runs it."""
    import ai_edge_litert  # noqa: F401 - named by itself where it is missing
    from ai_edge_litert.compiled_model import CompiledModel, CpuKernelMode, CpuOptions, Options

    cpu = CpuOptions(num_threads=arm.threads)
    if arm.options.get(KERNELS) == BUILTIN:
        cpu.kernel_mode = CpuKernelMode.BUILTIN
    return CompiledModel.from_file(str(path), options=Options(cpu_options=cpu))


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
