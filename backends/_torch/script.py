"""TorchScript: deprecated by PyTorch, and still what many deploy.

`build` scripts (or traces), freezes and saves; `load` runs `optimize_for_inference`, because what that makes may hold
oneDNN's packed tensors, which can't be saved. The profiling executor specializes the graph in its first runs; `load`
makes those runs, so that what is timed afterwards no longer changes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends._torch.account import count_operations
from shootout.backends._torch.session import (
    LAYOUT,
    NATIVE,
    TARGETS,
    Facts,
    TorchSession,
    configure,
    example_of,
    module_of,
    require_torch,
    session_on,
    shipped_settings,
)
from shootout.backends.common import trial
from shootout.backends.cuda_memory import COPIES
from shootout.core.adapter import Built, Fixture, Shipment, check_options
from shootout.core.contract import Arm, Artifact, Availability, Capabilities, Device

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

FILE = "model.pt"
PROFILING_RUNS = 3
"""Torch specializes after one profiled run; two more show that it has settled."""
FIXTURE = Fixture(warm={"": ("torch", "torch")})


class TorchScriptAdapter:
    """A frozen TorchScript module on CPU and CUDA."""

    name = "torchscript"
    capabilities = Capabilities(consumes=(Artifact.MODULE,), targets=TARGETS, native=NATIVE, options=(LAYOUT, COPIES))

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer, scripted and optimized."""
        return trial("torch", lambda: _run_small_script(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the frozen module to a file; the facts say whether it was scripted or traced.

        Raises:
            ValueError: an option that TorchScript doesn't have here.
        """
        check_options(arm, self.capabilities.options)
        import torch

        configure(arm)
        module = module_of(exported, arm)
        scripted, how = _script_or_trace(module, example_of(exported, arm))
        torch.jit.save(torch.jit.freeze(scripted), str(folder / FILE))
        return Built(arm=arm, exported=exported, folder=folder, facts=how)

    def load(self, built: Built) -> TorchSession:
        """Load the saved module, optimize it for inference and run it until its executor has specialized."""
        import torch

        arm, path = built.arm, built.folder / FILE
        configure(arm)
        jit: Any = torch.jit
        saved = jit.load(str(path), map_location=str(arm.target.device))
        module, example = jit.optimize_for_inference(saved), example_of(built.exported, arm)
        with torch.inference_mode():
            for _ in range(PROFILING_RUNS):
                module(*example)

        def account(staged: list[torch.Tensor]) -> Facts:
            """Count what the interpreter dispatches in one run of the specialized graph."""
            facts = count_operations(module, staged, arm.target.device).facts()
            return {**facts, "artifact_bytes": path.stat().st_size}

        return session_on(module, arm, built.exported, account)


def ship_script(built: Built, folder: Path) -> Shipment:
    """Copy the file; `optimize_for_inference` optimizes it for whatever CPU loads it."""
    shutil.copyfile(built.folder / FILE, folder / FILE)
    return Shipment(template="load_script.txt", options={**shipped_settings(built), "first_calls": PROFILING_RUNS})


def _script_or_trace(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> tuple[Any, dict[str, str]]:
    """Script the module, or trace it if the script compiler can't take it, with the compiler's reason."""
    import torch

    jit: Any = torch.jit
    try:
        return jit.script(module), {"captured_by": "script"}
    except Exception as error:  # of any kind, for a user's own module: the compiler's errors have no common root
        with torch.no_grad():
            traced = jit.trace(module, example)
        return traced, {"captured_by": "trace", "script_error": str(error).strip()[:500]}


def _run_small_script(device: Device) -> str:
    version = require_torch(device)
    import torch

    layer = torch.jit.freeze(torch.jit.script(torch.nn.Linear(4, 4).eval().to(device)))
    with torch.inference_mode():
        torch.jit.optimize_for_inference(layer)(torch.ones(1, 4, device=str(device))).cpu()
    return version
