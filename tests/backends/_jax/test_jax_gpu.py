"""jax-jit on CUDA without a GPU: XLA's words for its GPU products, the TF32 policy, and when a session waits.

The modules below are written by hand in the form that XLA prints for NVIDIA GPUs.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shootout.backends._jax.account import count_conversions, count_nodes
from shootout.backends._jax.program import PRODUCTS, gpu_side
from shootout.backends._jax.session import JaxSession, JaxTrainingSession
from shootout.core.contract import Arm, Device, Precision, Target, TensorSpec
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

JAX = warm_of(Target(backend="jax-jit"))
GEMM = """
HloModule jit_run, is_scheduled=true

ENTRY %main.9 (x.1: DTYPE[32,64], w.1: DTYPE[64,128]) -> DTYPE[32,128] {
  %x.1 = DTYPE[32,64]{1,0} parameter(0), metadata={op_name="x"}
  %w.1 = DTYPE[64,128]{1,0} parameter(1), metadata={op_name="w"}
  %gemm.1 = (DTYPE[32,128]{1,0}, s8[33554432]{0}) custom-call(%x.1, %w.1), custom_call_target="TARGET", \
metadata={op_name="jit(run)/dot_general"}, backend_config={"operation_queue_id":"0","gemm_backend_config":{\
"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"]},"precision_config":{"operand_precision":["ASKED","ASKED"],\
"algorithm":"ALGORITHM"},"epilogue":"DEFAULT","selected_algorithm":"11"}}
  ROOT %result.1 = DTYPE[32,128]{1,0} get-tuple-element(%gemm.1), index=0
}
"""


LIBRARY = "__cublas$gemm"


def gemm(dtype: str = "f32", asked: str = "DEFAULT", algorithm: str = "ALG_UNSET", target: str = LIBRARY) -> str:
    told = {"DTYPE": dtype, "ASKED": asked, "ALGORITHM": algorithm, "TARGET": target}
    text = GEMM
    for name, value in told.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize(
    ("module", "counted"),
    [
        (gemm(asked="HIGHEST"), "fp32"),
        (gemm(asked="HIGH"), "tf32"),
        (gemm(asked="DEFAULT"), "tf32"),
        (gemm("bf16", target="__cublas$lt$matmul"), "bf16"),
        (gemm("f16", target="__cublas$lt$matmul"), "fp16"),
        (gemm(asked="HIGHEST", algorithm="ALG_DOT_TF32_TF32_F32"), "tf32"),
        (gemm(algorithm="ALG_DOT_F32_F32_F32"), "fp32"),
        (gemm(algorithm="ALG_DOT_BF16_BF16_F32"), "bf16"),
        (gemm(algorithm="ALG_DOT_BF16_BF16_F32_X9"), "bf16x9"),
        (gemm("bf16", algorithm="ALG_DOT_ANY_F8_ANY_F8_F32"), "bf16"),
    ],
)
def test_a_library_product_says_what_it_makes_of_its_operands(module: str, counted: str):
    products, others = count_nodes(module, Device.CUDA)
    assert products == {counted: 1}
    assert others == {}


CONVOLUTION = """
ENTRY %main (x: f32[2,8,8,16], w: f32[32,3,3,16]) -> f32[2,8,8,32] {
  %x = f32[2,8,8,16]{3,2,1,0} parameter(0)
  %w = f32[32,3,3,16]{3,2,1,0} parameter(1)
  %conv.1 = (f32[2,8,8,32]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"PRECISION, \
backend_config={"cudnn_conv_backend_config":{"activation_mode":"kNone","algorithm":{"algo_id":"5"}}}
  ROOT %y = f32[2,8,8,32]{3,2,1,0} get-tuple-element(%conv.1), index=0
}
"""


@pytest.mark.parametrize(
    ("precision", "counted"),
    [
        ("", "tf32"),
        (", operand_precision={high,high}", "tf32"),
        (", operand_precision={highest,highest}", "fp32"),
    ],
)
def test_a_convolution_of_cudnn_is_ieee_only_where_it_asks_for_it(precision: str, counted: str):
    module = CONVOLUTION.replace("PRECISION", precision)
    assert count_nodes(module, Device.CUDA)[0] == {counted: 1}


FUSED = """
%gemm_fusion_dot (p0: f32[32,64], p1: bf16[64,128]) -> f32[32,128] {
  %p0 = f32[32,64]{1,0} parameter(0)
  %p1 = bf16[64,128]{1,0} parameter(1)
  %wide = f32[64,128]{1,0} convert(%p1)
  ROOT %dot.1 = f32[32,128]{1,0} dot(%p0, %wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
algorithm=dot_tf32_tf32_f32
}

%relu (p2: f32[32,128]) -> f32[32,128] {
  %p2 = f32[32,128]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %zeros = f32[32,128]{1,0} broadcast(%zero), dimensions={}
  ROOT %maximum.1 = f32[32,128]{1,0} maximum(%p2, %zeros)
}

%command_buffer (p3: f32[32,64], p4: bf16[64,128]) -> f32[32,128] {
  %p3 = f32[32,64]{1,0} parameter(0)
  %p4 = bf16[64,128]{1,0} parameter(1)
  %gemm = f32[32,128]{1,0} fusion(%p3, %p4), kind=kCustom, calls=%gemm_fusion_dot, \
backend_config={"fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"32"}}}
  %beside = ((f32[32,128]{1,0}), f32[32,128]{1,0}) fusion-start(%gemm), kind=kLoop, calls=%relu
  ROOT %done = f32[32,128]{1,0} fusion-done(%beside)
}

ENTRY %main (x: f32[32,64], w: bf16[64,128]) -> f32[32,128] {
  %x = f32[32,64]{1,0} parameter(0)
  %w = bf16[64,128]{1,0} parameter(1)
  ROOT %call = f32[32,128]{1,0} call(%x, %w), to_apply=%command_buffer
}
"""


def test_a_triton_fusion_in_a_command_buffer_counts_once_and_waiting_is_no_node():
    products, others = count_nodes(FUSED, Device.CUDA)
    assert products == {"tf32": 1}
    assert others == {"fp32": 3}, "a convert, a broadcast and a maximum"
    assert count_conversions(FUSED) == 0


def lowered(precision: Precision) -> str:
    """A product and a convolution, as JAX hands them to XLA under the policy of a precision."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def run(x: Any, image: Any, window: Any) -> Any:
        return x @ x, lax.conv(image, window, (1, 1), "SAME")

    arrays = jnp.zeros((4, 4)), jnp.zeros((1, 2, 4, 4)), jnp.zeros((2, 2, 3, 3))
    with jax.default_matmul_precision(PRODUCTS[precision]):
        return str(jax.jit(run).lower(*arrays).as_text())


@pytest.mark.parametrize(("precision", "word"), [(Precision.FP32, "HIGHEST"), (Precision.TF32, "HIGH")])
def test_one_policy_holds_for_products_and_convolutions(precision: Precision, word: str):
    text: str = run_fresh(lowered, precision, warm=JAX)
    lines = [line for line in text.splitlines() if "dot_general" in line or "convolution(" in line]
    assert [re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line) for line in lines] == [[word, word]] * 2


class Pending:
    """An array of a device that is still busy."""

    def __init__(self, name: str, waited: list[str]) -> None:
        self.name, self._waited = name, waited

    def block_until_ready(self) -> None:
        self._waited.append(self.name)


def bare(kind: type[Any], waited: list[str]) -> Any:
    """A session whose programs return at once what isn't there yet."""
    session = object.__new__(kind)
    session._exported = SimpleNamespace(inputs=(TensorSpec(name="x", shape=(2,), dtype="float32"),))
    session._names, session._weights, session._state = ("x",), (), ()
    session._stage = lambda arrays: (Pending("staged", waited),)
    session._run = lambda weights, staged: (Pending("result", waited), Pending("state", waited))
    session._as_is = False
    return session


@pytest.mark.parametrize("kind", [JaxSession, JaxTrainingSession])
def test_to_synchronize_is_to_wait_for_what_came_last_staged_inputs_too(kind: type[Any]):
    waited: list[str] = []
    session = bare(kind, waited)
    staged = session.stage({"x": np.zeros(2, np.float32)}, 0)
    assert waited == []
    session.synchronize()
    assert waited == ["staged"]
    session.execute(staged)
    session.synchronize()
    assert "result" in waited[1:]
    assert "staged" not in waited[1:]


def test_only_a_gpu_s_session_tells_of_a_gpu():
    on_gpu, on_cpu = (
        Arm(target=Target(backend="jax-jit", device=device), model="m") for device in (Device.CUDA, Device.CPU)
    )
    assert gpu_side(on_cpu, None) is None
    side = gpu_side(on_gpu, None)
    assert side
    assert (side.copies, side.event_ns) == ("staged", None)
