"""What torch.compile's options come to: which weights are frozen, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.backends._torch import account
from shootout.backends._torch.compile import inductor_config
from shootout.core import backends
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.exported.fidelity import compare
from shootout.testing.checks import ConformanceCase, case_of, warm_of
from shootout.testing.fresh import run_fresh

PLAIN = Target(backend="torch-compile")


def arm_of(mode: str = "", precision: Precision = Precision.FP32, device: Device = Device.CPU, **options: str) -> Arm:
    target = Target(backend="torch-compile", mode=mode, precision=precision, device=device)
    return Arm(target=target, model="made", options=options)


@pytest.mark.parametrize(
    ("arm", "config"),
    [
        (arm_of(), {}),
        (arm_of(freezing="1"), {"freezing": True}),
        (arm_of("aoti", freezing="1"), {"freezing": True}),
        (arm_of(max_autotune="1"), {"max_autotune": True, "freezing": True}),
        (arm_of("aoti", max_autotune="1"), {"max_autotune": True}),
        (arm_of(device=Device.CUDA, max_autotune="1"), {"max_autotune": True}),
        (arm_of(precision=Precision.INT8), {"freezing": True}),
        (arm_of(skip_guard_eval_unsafe="1"), {}),
    ],
)
def test_a_cpus_tuned_kernels_come_with_frozen_weights(arm: Arm, config: dict[str, bool]):
    assert inductor_config(arm) == config


@pytest.mark.parametrize(
    ("arm", "trained", "words"),
    [
        (arm_of(precision=Precision.INT8, freezing="0"), (), r"not for int8: .* \(integers always are\)"),
        (arm_of(max_autotune="1", freezing="0"), (), "'max_autotune': .* take frozen weights only"),
        (arm_of(max_autotune="1"), ("weight",), "'max_autotune': .* take frozen weights only"),
        (arm_of(freezing="1"), ("weight",), "'freezing' is for inference"),
        (arm_of(skip_guard_eval_unsafe="1"), ("weight",), "'skip_guard_eval_unsafe' is for inference"),
        (arm_of("aoti", skip_guard_eval_unsafe="1"), (), r"is for \+cudagraphs and the plain mode"),
        (arm_of(device=Device.CUDA, freezing="1"), (), "is for cpu"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(arm: Arm, trained: tuple[str, ...], words: str, tmp_path: Path):
    exported: Any = SimpleNamespace(trained=trained)
    with pytest.raises(ValueError, match=words):
        backends.get("torch-compile").build(exported, arm, tmp_path)


def guarded(case: ConformanceCase, folder: Path) -> tuple[bool, bool]:
    """Whether calls skip guards without the option, and with it."""

    from torch._dynamo import eval_frame

    adapter, seen = backends.get("torch-compile"), []
    for options in ({}, {"skip_guard_eval_unsafe": "1"}):
        place = folder / str(len(seen))
        place.mkdir()
        built = adapter.build(case.exported, replace(case.arm, options=options), place)
        session = adapter.load(built)
        inputs = case.exported.input_buffers()[0]
        session.fetch(session.execute(session.stage(inputs, 0)))
        seen.append(eval_frame._is_skip_guard_eval_unsafe_stance())
    return seen[0], seen[1]


def test_guards_are_skipped_only_where_that_is_asked(tmp_path: Path):
    assert run_fresh(guarded, case_of(PLAIN), tmp_path, warm=warm_of(PLAIN)) == (False, True)


def test_what_stands_for_a_product_tells_its_result_under_any_name():
    class MultiOutputLayout:
        """As Inductor calls it."""

    def origin(op: str, *shape: int) -> Any:
        return SimpleNamespace(op=op, target=f"a {op}", meta={"val": SimpleNamespace(shape=shape)})

    origins = [origin("placeholder", 3, 3), origin("call_function", 8, 512), origin("get_attr", 512, 512)]
    node = SimpleNamespace(layout=MultiOutputLayout(), get_origins=lambda: origins)
    assert account._result_shapes(node) == [[8, 512]]


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [("int8", "int8", "int8"), ("int8", "bfloat16", "bf16"), ("bfloat16", "int8", "bf16"), ("float32", "int8", "fp32")],
)
def test_a_loop_s_product_is_of_8_bits_where_both_operands_are(first: str, second: str, counted: str):
    def value(dtype: str) -> Any:
        meta = {"val": SimpleNamespace(dtype=f"torch.{dtype}", shape=(2, 2))}
        return SimpleNamespace(target="convert_element_type", meta={}, args=[SimpleNamespace(target="x", meta=meta)])

    made = {"original_aten": "aten.mm.default", "val": SimpleNamespace(shape=(2, 2, 2))}
    target = SimpleNamespace(__name__="mul.Tensor")
    origin = Origin(target=target, args=[value(first), value(second)], meta=made)
    node = SimpleNamespace(get_origins=lambda: [origin])
    part = SimpleNamespace(is_extern=lambda: False, is_template=lambda: False, node=node)
    assert [*account._find_products(part, {"matmul": "ieee"}, set())] == [(counted, 16.0)]


class Origin(SimpleNamespace):
    __hash__ = object.__hash__


def frozen_package(case: ConformanceCase, folder: Path) -> float:
    """How far a package with frozen weights is from the reference outputs."""
    adapter, arm = backends.get("torch-compile"), replace(case.arm, options={"freezing": "1"})
    session = adapter.load(adapter.build(case.exported, arm, folder))
    outputs = [session.fetch(session.execute(session.stage(one, 0))) for one in case.exported.input_buffers()]
    return compare(outputs, case.exported.reference_outputs()).relative_l2 or 0.0


@pytest.mark.slow
def test_a_package_takes_frozen_weights(tmp_path: Path):
    target = replace(PLAIN, mode="aoti")
    assert 0 < run_fresh(frozen_package, case_of(target), tmp_path, warm=warm_of(target)) < 1e-5
