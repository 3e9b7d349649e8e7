"""The settings that a tuning run tries: every knob alone, and those that helped together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shootout.apps.tune.settings import Change, apply_changes, combine, describe_setting, list_changes, thread_counts
from shootout.core.contract import Arm, Precision, Target


def default(backend: str, *, threads: int = 1, **target: Any) -> Arm:
    return Arm(target=Target(backend=backend, **target), model="residual_mlp", threads=threads)


def names(arm: Arm, changes: Sequence[Change]) -> list[str]:
    return [describe_setting(arm, apply_changes(arm, [one])) for one in changes]


def test_every_thread_count_is_tried_on_few_cpus_and_powers_of_two_on_many():
    assert thread_counts(4) == [1, 2, 3, 4]
    assert thread_counts(20) == [1, 2, 4, 8, 16, 20]
    assert names(default("numpy"), list_changes(default("numpy"), 3)) == ["threads=2", "threads=3"]


def test_a_knob_of_several_threads_brings_them_along_and_is_left_out_on_one_cpu():
    arm = default("onnxruntime")
    assert "threads=2, session.intra_op.allow_spinning=0" in names(arm, list_changes(arm, 2))
    assert not [name for name in names(arm, list_changes(arm, 1)) if "spinning" in name]
    wide = default("onnxruntime", threads=2)
    assert "session.intra_op.allow_spinning=0" in names(wide, list_changes(wide, 2))


def test_modes_and_allowed_precisions_are_knobs_too():
    arm = default("torch-compile")
    assert {"+aoti", "cpp_wrapper=1"} <= set(names(arm, list_changes(arm, 1)))
    assert "+aoti" not in names(
        default("torch-compile", mode="aoti"), list_changes(default("torch-compile", mode="aoti"), 1)
    )
    openvino = default("openvino")
    assert "int8" not in names(openvino, list_changes(openvino, 1))
    assert "int8" in names(openvino, list_changes(openvino, 1, [Precision.INT8]))


def test_a_knob_of_one_precision_is_not_turned_in_another():
    quantized, half = default("torch-compile", precision=Precision.INT8), default("jax-jit", precision=Precision.BF16)
    assert "freezing" not in {one.knob for one in list_changes(quantized, 1)}, "integers are always frozen"
    assert "xla_cpu_experimental_ynn_fusion_type" not in {one.knob for one in list_changes(half, 1)}
    assert "xla_cpu_experimental_ynn_fusion_type" in {one.knob for one in list_changes(default("jax-jit"), 1)}


def test_what_helped_is_combined_the_best_with_each_other_one_then_more():
    arm = default("openvino", threads=2)
    one, pin, hint = (
        Change(knob="threads", threads=1),
        Change(knob="ENABLE_CPU_PINNING", options={"ENABLE_CPU_PINNING": "NO"}),
        Change(knob="PERFORMANCE_HINT", options={"PERFORMANCE_HINT": "THROUGHPUT"}),
    )
    combined = [apply_changes(arm, several).setting for several in combine(arm, [one, pin, hint])]
    assert combined == [
        "threads=1, ENABLE_CPU_PINNING=NO",
        "threads=1, PERFORMANCE_HINT=THROUGHPUT",
        "threads=1, ENABLE_CPU_PINNING=NO, PERFORMANCE_HINT=THROUGHPUT",
    ]
    assert combine(arm, [one]) == []
    assert combine(arm, []) == []


def test_no_combination_asks_a_mode_for_an_option_that_it_lacks():
    arm = default("torch-compile")
    aoti, wrapper = Change(knob="mode", mode="aoti"), Change(knob="cpp_wrapper", options={"cpp_wrapper": "1"})
    assert combine(arm, [aoti, wrapper]) == []
