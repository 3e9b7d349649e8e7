"""The spin backend's work on a GPU: one kernel that looks at the chip's own clock for a set number of cycles.

Nothing is copied: inputs stay on the host, so that a call is the work and the way there, as on a CPU.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from shootout.backends.common import check_inputs
from shootout.contract import Arrays, Device, Executed

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle

STEP_CYCLES = 2_000
"""A step: about 1 us at the 1.5 to 2 GHz of today's GPUs, and the same number of cycles at any clock."""


class SpinGpuSession:
    """Spins on the GPU, then returns the inputs under the outputs' names."""

    def __init__(self, bundle: ModelBundle, steps: int) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._sleep, self._cycles = self._cuda._sleep, steps * STEP_CYCLES
        self._specs, self._names = bundle.inputs, [spec.name for spec in bundle.outputs]

    @property
    def executed(self) -> Executed:
        """No node of any model."""
        return Executed(
            library="shootout",
            version=version("shootout"),
            device=f"{Device.CUDA}:{self._cuda.current_device()}",
            threads=None,
            compute_nodes_by_precision={},
        )

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs and hand them on."""
        check_inputs(self._specs, inputs)
        return inputs

    def execute(self, staged: Arrays) -> Arrays:
        """Queue the kernel."""
        self._sleep(self._cycles)
        return staged

    def synchronize(self) -> None:
        """Wait for it."""
        self._cuda.synchronize()

    def fetch(self, raw: Arrays) -> Arrays:
        """Copies of the inputs."""
        return {name: array.copy() for name, array in zip(self._names, raw.values(), strict=True)}

    def close(self) -> None:
        """Nothing to free."""
