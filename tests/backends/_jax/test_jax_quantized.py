"""jax-jit below float32 on the CPU: what XLA really runs, on both roads, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.backends._jax import program as jax_program
from shootout.core import backends
from shootout.core.contract import Array, Arrays, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.worker.verification import executed_fault
from shootout.models.base import Model
from shootout.testing.checks import ConformanceCase, call, case_of, exported_models, lacks, warm_of
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

TORCHAX = warm_of(Target(backend="jax-jit", mode="torchax"))
LAYERS, WIDTH = 4, 64
"""Of the fixture's residual MLP."""


def case_at(target: str, batch: int = 2) -> ConformanceCase:
    """The fixture at `[mode:]precision[/scheme]`."""
    head, _, scheme = target.partition("/")
    mode, _, precision = head.rpartition(":")
    asked = Target(backend="jax-jit", precision=Precision(precision), mode=mode, scheme=scheme)
    case = case_of(replace(asked, scheme=""))
    request = Request(model=case.arm.model, parameters=case.arm.parameters, batch=batch)
    return replace(case, arm=replace(case.arm, target=asked, batch=batch), exported=exported_models(request)[0])


@dataclass(frozen=True)
class Ran:
    """What one arm gave: its account, its error on all input buffers, the weights on disk by name, a refusal."""

    executed: Executed | None = None
    error: float = 0.0
    stored: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
    refused: str = ""


def run_all(cases: list[ConformanceCase], folder: Path) -> list[Ran]:
    """Each case built, loaded and called, in this process."""
    return [_run(case, folder / str(index)) for index, case in enumerate(cases)]


def _run(case: ConformanceCase, folder: Path) -> Ran:
    from safetensors.numpy import load_file

    adapter = backends.get("jax-jit")
    folder.mkdir()
    try:
        session = adapter.load(adapter.build(case.exported, case.arm, folder))
    except (ValueError, SkippedArm) as refusal:
        return Ran(refused=f"{type(refusal).__name__}: {refusal}")
    outputs = [call(session, inputs) for inputs in case.exported.input_buffers()]
    stored = {name: (str(one.dtype), one.shape) for name, one in load_file(folder / "buffers.safetensors").items()}
    found = fidelity.compare(outputs, case.exported.reference_outputs())
    assert (fault := fidelity.gate(found, *case.exported.error_bound(case.arm.target))) is None, fault
    return Ran(session.executed, found.relative_l2, stored)


INT8 = ("int8", "int8-dynamic", "torchax:int8", "torchax:int8-dynamic")


def test_both_roads_multiply_int8_and_store_it(tmp_path: Path):
    cases = [case_at(target) for target in INT8]
    for case, ran in zip(cases, run_fresh(run_all, cases, tmp_path, warm=TORCHAX), strict=True):
        assert ran.executed.compute_nodes_by_precision == {"int8": LAYERS}
        assert executed_fault(ran.executed, case.arm) is None
        assert sorted(ran.stored.values()) == [("float32", (WIDTH,))] * LAYERS + [("int8", (WIDTH, WIDTH))] * LAYERS


def test_the_words_of_a_scheme_are_obeyed(tmp_path: Path):
    offered = backends.get("jax-jit").capabilities.schemes
    same = ["int8", "int8/per-channel+symmetric+minmax"]
    other = ["int8/per-tensor", "int8/samples-1", "int8-dynamic/per-tensor", "int8/samples-9999"]
    assert all(set(one.partition("/")[2].split("+")) <= offered[Precision.INT8] for one in same[1:])
    cases = [case_at(target) for target in [*same, *other]]
    plain, spelled, coarse, few, dynamic, many = run_fresh(run_all, cases, tmp_path, warm=TORCHAX)
    assert plain.error == spelled.error
    assert len({plain.error, coarse.error, few.error, dynamic.error}) == 4, "a word changed nothing"
    for ran in (coarse, dynamic):
        assert {shape for kind, shape in ran.stored.values() if kind == "float32"} == {(1,)}
    assert many.refused.startswith("ValueError: samples-9999"), many


def lacking(targets: list[Target]) -> list[bool]:
    return [lacks(one) for one in targets]


def test_what_xla_keeps_runs_and_what_it_widens_says_what_became_of_it(tmp_path: Path):
    """On x86 it keeps bfloat16 and widens float16; a small product shows what it does here."""
    cases = [case_at(target) for target in ("bf16", "torchax:bf16", "fp16")]
    lost = run_fresh(lacking, [case.arm.target for case in cases], warm=TORCHAX)
    for case, is_lost, ran in zip(cases, lost, run_fresh(run_all, cases, tmp_path, warm=TORCHAX), strict=True):
        if is_lost:
            became = f"turned all {case.precision} products of this model into {LAYERS} fp32 ones"
            assert ran.refused == f"SkippedArm: XLA's CPU compiler {became}"
        else:
            assert ran.refused == ""
            assert ran.executed.compute_nodes_by_precision == {case.precision: LAYERS}


def test_a_model_without_linear_layers_has_nothing_to_quantize(tmp_path: Path):
    case = case_at("int8-dynamic")
    exported, *_ = exported_models(Request(model="identity", parameters={}, batch=2))
    (ran,) = run_fresh(run_all, [replace(case, exported=exported)], tmp_path, warm=TORCHAX)
    assert ran.refused.startswith("ValueError: nothing to quantize: identity has no linear layer"), ran


def awkward(xp: Any, weights: Arrays, inputs: Arrays) -> dict[str, Array]:
    """Products that hide: in calls, a weight on the left, a weight used twice and once as it is, a batched one."""
    import jax

    first, second, third, fourth = (weights[f"layers.{index}.weight"] for index in range(LAYERS))
    y = jax.nn.silu(jax.jit(lambda x: x @ first.T)(inputs["x"]))  # silu is a custom_jvp
    y = jax.checkpoint(lambda x: (second @ x.T).T)(y)
    y = xp.einsum("bij,kij->bk", y.reshape(-1, 8, 8), third.reshape(-1, 8, 8)) + third[0]
    pair = xp.stack([y, y]) @ xp.stack([fourth, fourth])
    return {"y": pair[0] + xp.stack([y @ fourth, y])[0]}


def hidden_products(case: ConformanceCase, folder: Path) -> tuple[Executed, tuple[str, ...], float]:
    """The account of `awkward` in INT8, the names of its weights, and its distance from float32."""
    import jax.numpy as jnp

    original: Model = models.get(case.exported.model)

    def bound(xp: Any, weights: Arrays, _: Any) -> Any:
        return partial(awkward, xp, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax_program, "find_model", lambda name: replace(original, forward=bound))
        adapter = backends.get("jax-jit")
        built = adapter.build(case.exported, case.arm, folder)
        inputs = case.exported.input_buffers()[0]
        wanted = np.asarray(awkward(jnp, case.exported.weights(), inputs)["y"])
    session = adapter.load(built)
    got = call(session, inputs)["y"]
    error = float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    return session.executed, built.facts["weights"], error


def test_products_inside_calls_are_found_and_the_rest_stays_float(tmp_path: Path):
    executed, names, error = run_fresh(hidden_products, case_at("int8-dynamic"), tmp_path, warm=TORCHAX)
    counts = executed.compute_nodes_by_precision
    assert counts["int8"] == 4, counts  # first, second, third, fourth; the batched one stays float
    assert counts["fp32"] >= 1, counts
    floats = {name for name in names if name.startswith("layers.")}
    assert floats == {"layers.2.weight", "layers.3.weight"}, "what is also read as a float is kept, and nothing else"
    assert 1e-4 < error < 0.05, error
