"""jax-jit beyond the suite: both roads, what is stored, and that XLA's own account can contradict a label."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shootout.backends._jax import program as jax_program
from shootout.backends._jax.account import count_conversions, count_nodes
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Device, Executed, Precision, Target
from shootout.testing.checks import ConformanceCase, call, case_of, warm_of
from shootout.testing.fresh import run_fresh

PLAIN, TORCHAX = Target(backend="jax-jit"), Target(backend="jax-jit", mode="torchax")


@dataclass(frozen=True)
class Seen:
    """What a fresh process saw while it used the adapter."""

    built: Built
    executed: Executed
    compilations: int
    torch: bool


def observe(case: ConformanceCase, folder: Path, built: Built | None = None) -> Seen:
    """Build (unless that was done elsewhere), load and call; counts XLA's compilations on the way."""
    import jax

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    adapter = backends.get("jax-jit")
    built = built or adapter.build(case.exported, case.arm, folder)
    session = adapter.load(built)
    call(session, case.exported.input_buffers()[0])
    compilations = sum("backend_compile" in event for event in compiled)
    return Seen(built, session.executed, compilations, "torch" in sys.modules)


def test_load_neither_compiles_nor_imports_torch(tmp_path: Path):
    case = case_of(PLAIN)
    first = run_fresh(observe, case, tmp_path, warm=warm_of(PLAIN))
    again = run_fresh(observe, case, tmp_path, first.built, warm=warm_of(PLAIN))
    assert first.compilations >= 2, "the listener hears nothing"
    assert (first.torch, again.compilations, again.torch) == (False, 0, False)
    check_account(again.executed, case)


def check_account(executed: Executed, case: ConformanceCase) -> None:
    assert executed.compute_nodes_by_precision == {"fp32": 4}
    assert executed.other_nodes_by_precision["fp32"] > 0
    assert executed.artifact_bytes > case.exported.parameter_count * 4
    assert executed.conversion_nodes == 0


def case_with(precision: Precision = Precision.FP32, threads: int = 1, **options: str) -> ConformanceCase:
    case = case_of(PLAIN)
    return replace(
        case, arm=replace(case.arm, target=replace(PLAIN, precision=precision), threads=threads, options=options)
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_limited_and_counted(threads: int, tmp_path: Path):
    assert run_fresh(observe, case_with(threads=threads), tmp_path, warm=warm_of(PLAIN)).executed.threads == threads


HLO = """
HloModule jit_run, is_scheduled=true

%fused (a: bf16[2,8], b: bf16[8,8]) -> f32[2,8] {
  %a = bf16[2,8]{1,0} parameter(0)
  %b = bf16[8,8]{1,0} parameter(1)
  %wide = f32[8,8]{1,0} convert(%b)
  ROOT %mixed = f32[2,8]{1,0} dot(%a, %wide), lhs_contracting_dims={1}, operand_precision={highest,highest}
}

ENTRY %main (x: f16[2,8], q: s8[8,8], d: f64[2,8], s: f32[8,8]) -> (f32[2,8], f16[2,8]) {
  %x = f16[2,8]{1,0} parameter(0)
  %q = s8[8,8]{1,0} parameter(1)
  %d = f64[2,8]{1,0} parameter(2)
  %s = f32[8,8]{1,0} parameter(3)
  %half = (f16[2,8]{1,0}, s8[4096]{0}) custom-call(%x, %x), custom_call_target="__cublas$lt$matmul"
  %int = s32[8,8]{1,0} dot(%q, %q), lhs_contracting_dims={1}
  %double.1 = f64[2,8]{1,0} convolution(%d, %d), dim_labels=bf_io->bf
  %default = f32[8,8]{1,0} dot(%s, %s), lhs_contracting_dims={1}
  %ieee = f32[8,8]{1,0} custom-call(%s, %s), custom_call_target="__cublas$gemm", \
backend_config={"precision_config":{"operand_precision":["HIGHEST","HIGHEST"]}}
  %sorted = f32[8,8]{1,0} custom-call(%s), custom_call_target="TopK"
  %more = pred[8,8]{1,0} compare(%s, %sorted), direction=GT
  ROOT %out = (f32[2,8]{1,0}, f16[2,8]{1,0}) tuple(%fusion, %gte)
}
"""


def test_the_account_names_each_product_by_its_operands():
    products, others = count_nodes(HLO, Device.CPU)
    assert products == {"fp32": 3, "fp16": 1, "int8": 1, "fp64": 1}
    assert others == {"fp32": 2, "pred": 1}


def test_on_cuda_a_float32_product_is_tf32_unless_it_asks_for_the_highest_precision():
    assert count_nodes(HLO, Device.CUDA)[0] == {"fp32": 2, "tf32": 1, "fp16": 1, "int8": 1, "fp64": 1}


CONVERTING = """
%quantize (p0: f32[2,8]) -> s8[2,8] {
  %p0 = f32[2,8]{1,0} parameter(0)
  %scaled = f32[2,8]{1,0} multiply(%p0, %p0)
  ROOT %cast = s8[2,8]{1,0} convert(%scaled)
}

%turn (p1: f32[8,2]) -> f32[2,8] {
  %p1 = f32[8,2]{1,0} parameter(0)
  ROOT %turned = f32[2,8]{0,1} transpose(%p1), dimensions={1,0}
}

%relu_and_cast (p2: f32[2,8]) -> bf16[2,8] {
  %p2 = f32[2,8]{1,0} parameter(0)
  %relu = f32[2,8]{1,0} maximum(%p2, %p2)
  ROOT %more = bf16[2,8]{1,0} convert(%relu)
}

%scale (p3: f32[2,8]) -> f32[2,8] {
  %p3 = f32[2,8]{1,0} parameter(0)
  ROOT %product = f32[2,8]{1,0} multiply(%p3, %p3)
}

ENTRY %main (x: f32[2,8]) -> s8[2,8] {
  %x = f32[2,8]{1,0} parameter(0)
  %a = s8[2,8]{1,0} fusion(%x), kind=kLoop, calls=%quantize
  %b = f32[2,8]{1,0} fusion(%x), kind=kLoop, calls=%turn, metadata={}
  %c = bf16[2,8]{1,0} fusion(%x), kind=kLoop, calls=%relu_and_cast
  %d = f32[2,8]{1,0} fusion(%x), kind=kLoop, calls=%scale
  ROOT %e = f32[2,8]{0,1} copy(%x)
}
"""


def test_a_node_that_only_converts_is_counted_and_one_that_also_computes_is_not():
    assert count_conversions(CONVERTING) == 3


def refusals(cases: list[ConformanceCase], folder: Path) -> list[str]:
    """What `build` says to each case's options; "" where it takes them."""
    said = []
    for case in cases:
        try:
            backends.get("jax-jit").build(case.exported, case.arm, folder)
            said.append("")
        except ValueError as error:
            said.append(str(error))
    return said


def test_options_are_xla_s_own_and_wrong_ones_are_named(tmp_path: Path):
    wrong = [
        {"xla_no_such_thing": "1"},
        {"xla_cpu_enable_fast_math": "perhaps"},
        {"NUM_STREAMS": "1"},
        {jax_program.ASYNC_DISPATCH: "1"},
    ]
    right = {"xla_cpu_enable_fast_math": "true", jax_program.ASYNC_DISPATCH: "false"}
    *said, nothing = run_fresh(
        refusals, [case_with(**options) for options in [*wrong, right]], tmp_path, warm=warm_of(PLAIN)
    )
    assert nothing == ""
    for options, words in zip(wrong, said, strict=True):
        assert next(iter(options)) in words


def platforms(folder: Path) -> tuple[str, str]:
    """What a CPU arm opens, and the variable that keeps a CUDA arm from taking all of the GPU's memory."""
    device = jax_program.open_device(Device.CPU, 1, {})
    import jax

    return ",".join(sorted({one.platform for one in jax.devices()} | {device.platform})), os.environ[
        "XLA_PYTHON_CLIENT_PREALLOCATE"
    ]


def test_a_cpu_arm_opens_no_other_device(tmp_path: Path):
    assert run_fresh(platforms, tmp_path, warm=warm_of(PLAIN)) == ("cpu", "false")
