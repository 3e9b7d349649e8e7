"""ExecuTorch on the CPU: a .pte file from the torch program, its products in XNNPACK. The file is what people ship."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._executorch.account import FORWARD, import_runtime, read_executed
from shootout.backends._executorch.quantize import BUILTIN, KERNELS, OPTIONS, SCHEMES, example_inputs, lower, quantize
from shootout.backends.common import require_device, require_own_threads, require_quantized, trial, widen
from shootout.backends.common_torch import float32_module
from shootout.backends.optional import ErrorHint, Fixture, Shipment
from shootout.core.adapter import Built, check_inputs, check_options
from shootout.core.contract import (
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    Precision,
)
from shootout.core.host.environment import version_of

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

PACKAGE = "executorch"
MODEL = "model.pte"
TINY = Path(__file__).with_name("tiny.pte")
"""A sum of its only input with itself, in XNNPACK."""
NOTE = "ready in Python: most of it is torch's import, which an application in C++ doesn't have"
LOCKED = "in Python its instances take turns: a call holds the interpreter's lock, which C++ doesn't have"
GRAPHS = "executorch.backends.xnnpack.partition.graphs"
WARM = f"executorch.exir,{GRAPHS}.sdpa:get_graphs,{GRAPHS}.bilinear_2d:get_graphs"
"""With the patterns that XNNPACK's passes look for: each process exports these before its first model."""
FIXTURE = Fixture(parameters={"d_model": 64, "n_layers": 1}, warm={"": (WARM, WARM)})


ERROR_HINTS = (
    ErrorHint(
        said=r"Operator torch\._ops\.(?P<operator>[\w.]+) is not in Core ATen opset",
        reason="ExecuTorch takes torch's core operators only, and {operator} isn't one",
    ),
    ErrorHint(
        said=r"Missing out variants: \{(?P<operators>[^}]*)\}",
        reason="ExecuTorch has no kernel for what XNNPACK leaves of this model: {operators}",
    ),
    ErrorHint(
        said=r"method->(?:init|load|execute)\(\) failed with error (?P<number>0x1[0-4])\b",
        reason="ExecuTorch's runtime refuses an operation of this model (error {number}; the worker's log names it)",
    ),
)


class ExecuTorchAdapter:
    """ExecuTorch's runtime: XNNPACK, and ExecuTorch's own kernels for what that doesn't take."""

    name = "executorch"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=frozenset((Device.CPU, precision) for precision in (Precision.FP32, *SCHEMES)),
        schemes=SCHEMES,
        options=OPTIONS,
        portable=True,
    )

    def probe(self, device: Device) -> Availability:
        """Run a sum."""
        return trial("executorch", lambda: _run_sum(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the model as a .pte file, quantized for an integer precision, and record a call of it.

        Raises:
            SkippedArm: several instances of several threads.
            ValueError: an unknown option, nothing to quantize, or unusable calibration data.
        """
        check_options(arm, self.capabilities.options)
        require_own_threads(arm, "ExecuTorch")
        module, target = float32_module(exported), arm.target
        if target.precision in SCHEMES:
            module = quantize(module, exported, arm)
        (folder / MODEL).write_bytes(lower(module, exported, arm))
        facts = read_executed(folder / MODEL, arm.threads, example_inputs(exported))
        if target.precision in SCHEMES:
            require_quantized(facts["compute_nodes_by_precision"], target, "XNNPACK's quantizer")
        notes = [NOTE, LOCKED] if arm.instances > 1 else [NOTE]
        return Built(arm=arm, exported=exported, folder=folder, facts={"account": facts, "notes": notes})

    def load(self, built: Built) -> ExecuTorchSession:
        """Read the file; XNNPACK packs the weights."""
        return ExecuTorchSession(built)


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


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the file."""
    shutil.copyfile(built.folder / MODEL, folder / MODEL)
    return Shipment(options={"method": FORWARD})


def _run_sum(device: Device) -> str:
    require_device(device, [Device.CPU])
    method = import_runtime(threads=1)._load_program(str(TINY)).load_method(FORWARD)
    import torch

    (output,) = method.call([torch.ones(1, 2)])
    if output.tolist() != [[2, 2]]:
        raise ArithmeticError("1 + 1 came out wrong")
    return version_of(PACKAGE)
