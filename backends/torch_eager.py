"""PyTorch as most people run it: the module, call by call, in inference mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends.common import check_options, trial
from shootout.backends.torch_session import (
    TARGETS,
    Account,
    TorchSession,
    configure,
    module_of,
    require_torch,
    weight_bytes,
)
from shootout.backends.torch_trace import count_operations
from shootout.contract import Arm, Artifact, Availability, Built, Capabilities, Device

if TYPE_CHECKING:
    import torch

    from shootout.bundle import ModelBundle

__all__ = ["TorchEagerAdapter", "TorchSession"]


class TorchEagerAdapter:
    """Eager PyTorch on CPU and CUDA."""

    name = "torch-eager"
    capabilities = Capabilities(consumes=(Artifact.MODULE,), targets=TARGETS)

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer."""
        return trial("torch", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """Nothing to build: eager mode has no artifact of its own.

        Raises:
            ValueError: the arm has options; eager mode takes none.
        """
        check_options(arm.options, ())
        return Built(arm=arm, bundle=bundle, folder=folder)

    def load(self, built: Built) -> TorchSession:
        """The module with its weights, on the arm's device and in its dtype; sets the process's threads and flags."""
        arm = built.arm
        configure(arm)
        module = module_of(built.bundle, arm)

        def account(staged: list[torch.Tensor]) -> Account:
            """The ATen operations of one run by the dtype of their operands, and torch's own flags."""
            counts = count_operations(module, staged, arm.target.device)
            return Account(compute_nodes_by_precision=counts, artifact_bytes=weight_bytes(module.state_dict().values()))

        return TorchSession(module, arm, built.bundle, account)


def _try(device: Device) -> str:
    version = require_torch(device)
    import torch

    with torch.inference_mode():
        layer = torch.nn.Linear(4, 4).to(device)
        layer(torch.ones(1, 4, device=str(device))).cpu()
    return version
