"""Torchao on a GPU without one: what it is asked for, and what the trace says of what torch then runs.

FP8 really runs here: `torch._scaled_mm` takes E4M3 on a CPU too, where it widens it: the values are a GPU's.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_torch_quantized import built_in, exported_of, operations_packed, ran

from shootout.backends._torch.quantize import replaced_integers, require_integers
from shootout.core.contract import Arm, Device, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import case_of, run_checks, warm_of
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

FP8 = Target(backend="torch-eager", precision=Precision.FP8)
WARM = warm_of(FP8)


def on_ada(call: Any, *args: Any) -> Any:
    """What this gives where torchao takes the CPU for a GPU with FP8 products."""
    import torch
    from torchao.quantization import quant_api

    quant_api._check_hardware_support = lambda granularity: None
    torch.cuda.get_device_capability = lambda: (8, 9)
    return call(*args)


def loaded(exported: ExportedModel, folder: Path) -> tuple[Executed, str | None]:
    return ran(built_in(exported, FP8, folder))


def test_fp8_is_fp8_in_the_trace_and_in_the_error(tmp_path: Path):
    executed, fault = run_fresh(on_ada, loaded, exported_of("digits"), tmp_path, warm=WARM)
    assert fault is None
    assert dict(executed.compute_nodes_by_precision) == {"fp8": 1, "fp32": 1}  # ten outputs are no multiple of 16


def test_fp8_keeps_every_promise_of_the_suite():
    """Account, grid probe and error bound among them: what an FP8 row has to show wherever it runs."""
    faults: dict[str, str] = run_fresh(on_ada, run_checks, case_of(FP8), warm=WARM)
    assert {check: fault for check, fault in faults.items() if fault} == {}
    assert "probe_agrees" in faults


def refused(exported: ExportedModel, folder: Path) -> tuple[str, str]:
    import torch

    torch.cuda.get_device_capability = lambda: (8, 6)
    try:
        built_in(exported, FP8, folder)
    except SkippedArm as skip:
        return skip.reason, skip.fix
    return "", ""


def test_an_older_gpu_is_a_skip_that_says_which_ones_have_fp8(tmp_path: Path):
    reason, fix = run_fresh(refused, exported_of("probe"), tmp_path, warm=WARM)
    assert "SM89 or later" in reason
    assert reason.endswith("this is SM86")
    assert "bf16" in fix


def counted(rows: int) -> dict[str, int]:
    """What the trace makes of torchao's integer product on a GPU, of so many rows."""
    import torch
    from torch._higher_order_ops.out_dtype import out_dtype

    from shootout.backends._torch.account import count_operations

    def int_mm(op: Any, dtype: Any, args: Any) -> bool:
        if rows <= 16:
            raise RuntimeError("self.size(0) needs to be greater than 16")  # as cuBLAS has it
        return True

    def product(x: Any) -> Any:
        try:
            return out_dtype(torch.ops.aten.mm.default, torch.int32, x, x.t())
        except RuntimeError:  # as torchao does it
            return torch.matmul(x.to(torch.float32), x.t().to(torch.float32))

    sys.modules["torch._higher_order_ops.out_dtype"].is_int_mm = int_mm
    x = torch.ones((rows, 32), dtype=torch.int8)
    return dict(count_operations(product, [x], Device.CPU).products)


def test_an_integer_product_is_counted_as_what_ran_in_its_place():
    assert run_fresh(counted, 32, warm=WARM) == {"int8": 1}
    assert run_fresh(counted, 8, warm=WARM) == {"fp32": 1}


def test_a_model_whose_integer_products_were_all_replaced_is_a_skip():
    arm = Arm(target=Target(backend="torch-eager", device=Device.CUDA, precision=Precision.INT8_DYNAMIC), model="made")
    require_integers({"int8": 1, "fp32": 3}, arm)
    with pytest.raises(SkippedArm, match=r"more than 16 rows.*4 in fp32"):
        require_integers({"fp32": 4}, arm)


def test_products_in_the_place_of_integer_ones_are_fallbacks():
    arm = Arm(target=Target(backend="torch-eager", device=Device.CUDA, precision=Precision.INT8_DYNAMIC), model="made")
    (line,) = replaced_integers({"int8": 1, "fp32": 3, "bf16": 2}, arm)
    assert line == "torchao ran 3 products in fp32 for int8"
    assert replaced_integers({"int8": 1, "bf16": 1}, arm) == ()
    assert replaced_integers({"int8": 1, "fp32": 1}, replace(arm, target=replace(arm.target, device=Device.CPU))) == ()


def test_a_package_is_made_of_fp8_products():
    aoti = Target(backend="torch-compile", mode="aoti", precision=Precision.FP8)
    told = run_fresh(on_ada, operations_packed, exported_of("digits"), aoti, warm=WARM)
    assert any("_scaled_mm" in name for name in told), told
