"""PyTorch as most people run it: the module, call by call, in inference mode; quantized by torchao where asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._torch import inside, quantize, training
from shootout.backends._torch.account import count_operations
from shootout.backends._torch.session import (
    FLOATS,
    LAYOUT,
    MEMORY_FORMAT,
    NATIVE,
    RESTS,
    TARGETS,
    Facts,
    TorchSession,
    configure,
    example_of,
    held_bytes,
    module_of,
    require_torch,
    session_on,
)
from shootout.backends.common import trial
from shootout.backends.cuda_memory import COPIES
from shootout.core.adapter import Built, Fixture, check_options
from shootout.core.contract import (
    SCALED,
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Gemm,
    Gemms,
    Inside,
    Precision,
)
from shootout.core.errors import SkippedArm

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

__all__ = ["FIXTURE", "TorchEagerAdapter", "TorchSession"]

FIXTURE = Fixture(
    elsewhere={Precision.INT8_DYNAMIC: Fixture(batch=32)},  # cuBLAS' integer product takes more than 16 rows
    lacks=quantize.is_missing_here,
    warm={"": ("torch", quantize.IMPORTED)},
)


class TorchEagerAdapter:
    """Eager PyTorch on CPU and CUDA."""

    name = "torch-eager"
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=TARGETS | quantize.TARGETS,
        native=NATIVE,
        opens=FLOATS,
        schemes=quantize.SCHEMES,
        trains=True,
        options=(LAYOUT, COPIES),
        rest=RESTS,
    )

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer."""
        return trial("torch", lambda: _run_small_layer(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the quantized weights; for float precisions nothing: eager mode has no artifact of its own.

        Raises:
            ValueError: an option that eager mode doesn't have here, or nothing can be quantized.
            SkippedArm: this GPU can't multiply so, or not what this model multiplies.
        """
        check_options(arm, self.capabilities.options)
        if MEMORY_FORMAT in arm.options and exported.trained:
            raise ValueError(f"option {MEMORY_FORMAT!r} is for inference, not for a training step")
        if arm.target.precision in SCALED:
            module = quantize.quantize_module(exported, arm)
            if arm.target.device is Device.CUDA:
                counts = count_operations(module, list(example_of(exported, arm)), Device.CUDA).products
                quantize.require_integers(counts, arm)
            quantize.save_module(module, folder)
        return Built(
            arm=arm,
            exported=exported,
            folder=folder,
            facts={"notes": quantize.notes_of(arm) + quantize.notes_on_floats(exported, arm)},
        )

    def load(self, built: Built) -> TorchSession | training.TorchTrainingSession:
        """Load the module with its weights, on the arm's device and in its dtype; set the process's threads and
        flags.
        """
        arm, quantized = built.arm, built.arm.target.precision in SCALED
        configure(arm)
        if built.exported.trained:
            return training.eager_session(built)
        module = quantize.load_module(built.exported, built.folder) if quantized else module_of(built.exported, arm)

        def account(staged: list[torch.Tensor]) -> Facts:
            """Count the ATen operations of one run by the dtype of their operands and torch's own flags."""
            tally = count_operations(module, staged, arm.target.device)
            facts = {**tally.facts(), "fallbacks": quantize.replaced_integers(tally.products, arm)}
            stored = built.folder / quantize.WEIGHTS
            artifact = stored.stat().st_size if quantized else held_bytes(module)
            return {**facts, "artifact_bytes": artifact}

        return session_on(module, arm, built.exported, account)

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:  # noqa: ARG002
        """Run the module with its parts watched, and profile some calls; modules know no values of a graph.

        Raises:
            SkippedArm: it ran on a GPU.
        """
        if built.arm.target.device is not Device.CPU:
            raise SkippedArm("torch is read on the CPU only", "explain an arm on the CPU")
        return inside.look_inside(built, sets)


def gemms(threads: int) -> Gemms:
    """Make PyTorch's products, so MKL's and oneDNN's; without hardware for it a narrow precision is slow, but true."""
    import torch

    torch.set_num_threads(threads)

    def floating(dtype: torch.dtype) -> Callable[[int], Gemm]:
        def make(size: int) -> Gemm:
            left, right = (torch.ones((size, size), dtype=dtype) for _ in range(2))
            result = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=result)

        return make

    def eight_bit(size: int) -> Gemm:
        left, right = (torch.ones((size, size), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right.t())

    floats = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
    return {**{name: floating(dtype) for name, dtype in floats.items()}, Precision.INT8: eight_bit}


def _run_small_layer(device: Device) -> str:
    version = require_torch(device)
    import torch

    with torch.inference_mode():
        layer = torch.nn.Linear(4, 4).to(device)
        layer(torch.ones(1, 4, device=str(device))).cpu()
    return version
