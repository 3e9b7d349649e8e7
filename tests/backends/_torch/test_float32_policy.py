"""The one policy for float32 products on CUDA, and that Inductor's kernels are counted once: in fresh processes."""

from __future__ import annotations

from typing import Any

import pytest

from shootout.backends._torch.account import float32_policy
from shootout.backends._torch.session import configure
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

TORCH = warm_of(Target(backend="torch-eager"))


def rounding(precision: str) -> tuple[Any, ...]:
    """Torch's flags of a CUDA arm, the older ones too: reading those fails where they disagree with the newer."""
    import torch

    target = Target(backend="torch-eager", device=Device.CUDA, precision=Precision(precision))
    configure(Arm(target=target, model="made"))
    older = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    policy = {**float32_policy(Device.CUDA), "all of cudnn": torch.backends.cudnn.fp32_precision}  # Inductor reads this
    return policy, older, torch.get_float32_matmul_precision()


@pytest.mark.parametrize(
    ("precision", "policy", "older"),
    [("fp32", "ieee", "highest"), ("tf32", "tf32", "high"), ("fp16", "ieee", "highest"), ("bf16", "ieee", "highest")],
)
def test_one_policy_rounds_products_convolutions_and_recurrent_layers(precision: str, policy: str, older: str):
    flags, switches, matmul = run_fresh(rounding, precision, warm=TORCH)
    assert flags == dict.fromkeys(("conv", "rnn", "matmul", "all of cudnn"), policy)
    assert switches == (policy == "tf32",) * 2
    assert matmul == older
