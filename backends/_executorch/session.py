"""A loaded .pte file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from shootout.backends._executorch.account import FORWARD, import_runtime
from shootout.backends._executorch.quantize import BUILTIN, KERNELS
from shootout.backends.common import widen
from shootout.core.adapter import Built, check_inputs
from shootout.core.contract import Arrays, Executed
from shootout.core.host.environment import version_of

PACKAGE = "executorch"
MODEL = "model.pte"


class ExecuTorchSession:
    """The file's only method. Its outputs lie in memory that the file plans, and are copied out."""

    gpu = None

    def __init__(self, built: Built) -> None:
        self._built, self._inputs, self._outputs = built, built.exported.inputs, built.exported.outputs
        self._path = built.folder / MODEL
        self._runtime = import_runtime(built.arm.threads)
        self._method: Any = self._runtime._load_program(str(self._path)).load_method(FORWARD)
        import torch

        self._from_numpy = torch.from_numpy

    @cached_property
    def executed(self) -> Executed:
        """Return the runtime's own record of a call, made by the build, beside its threads now."""
        facts = dict(self._built.facts["account"])
        undelegated: Mapping[str, int] = facts.pop("undelegated")
        builtin = self._built.arm.options.get(KERNELS) == BUILTIN
        outside = ", ".join(f"{count} {name}" for name, count in sorted(undelegated.items()))
        fallback = f"not in XNNPACK but in ExecuTorch's own kernels: {outside}" if outside and not builtin else ""
        return Executed(
            library="executorch",
            version=version_of(PACKAGE),
            device=f"cpu ({BUILTIN if builtin else 'xnnpack'})",
            threads=self._runtime._threadpool_get_thread_count(),
            fallbacks=tuple(filter(None, (fallback,))),
            artifact_bytes=self._path.stat().st_size,
            **facts,
        )

    def stage(self, inputs: Arrays, slot: int) -> list[Any]:  # noqa: ARG002 - each call has its own tensors
        """Return tensors on the caller's own memory."""
        check_inputs(self._inputs, inputs)
        return [self._from_numpy(np.ascontiguousarray(inputs[spec.name])) for spec in self._inputs]

    def execute(self, staged: list[Any]) -> list[Any]:
        """Run the method; return when done."""
        return self._method.call(staged, clone_outputs=False)  # type: ignore[no-any-return]

    def synchronize(self) -> None:
        """Do nothing: no work is pending when `execute` has returned."""

    def fetch(self, raw: list[Any]) -> Arrays:
        """Copy the outputs, since the next run overwrites what the file plans for them."""
        return {spec.name: widen(one.numpy().copy()) for spec, one in zip(self._outputs, raw, strict=True)}

    def close(self) -> None:
        """Drop the method."""
        self._method = None
