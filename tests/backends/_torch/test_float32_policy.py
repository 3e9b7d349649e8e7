"""The one policy for float32 products on CUDA, and that Inductor's kernels are counted once: in fresh processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shootout.backends._torch import inductor
from shootout.backends._torch.account import float32_policy, kernel_recorder
from shootout.backends._torch.session import configure
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

INDUCTOR = warm_of(Target(backend="torch-compile"))
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


def kernels_seen(twice: bool, older: bool, folder: Path) -> dict[str, int]:
    """Products that the recorder counts when a graph is scheduled once or twice, in this torch or an older one."""
    import torch
    from torch._inductor import custom_graph_pass

    newer = getattr(custom_graph_pass, "CustomSchedulerPass", None)
    if older and newer:
        del custom_graph_pass.CustomSchedulerPass
    recorder, tally, _ = kernel_recorder(Device.CPU)
    if newer:
        custom_graph_pass.CustomSchedulerPass = newer  # type: ignore[misc]
    run = (lambda nodes: recorder(recorder(nodes))) if twice else recorder
    net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).eval()
    with (
        inductor.inductor_with(folder, {"_post_fusion_custom_pass": run, "force_disable_caches": True}),
        torch.no_grad(),
    ):
        torch.compile(net, fullgraph=True, dynamic=False)(torch.ones(1, 16))
    return dict(tally.products)


@pytest.mark.parametrize(("twice", "older"), [(True, False), (False, True)])
def test_kernels_are_counted_once_and_in_torch_before_2_13_too(twice: bool, older: bool, tmp_path: Path):
    assert run_fresh(kernels_seen, twice, older, tmp_path, warm=INDUCTOR) == {"fp32": 2}
