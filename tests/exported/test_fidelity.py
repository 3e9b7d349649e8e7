from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shootout.core.contract import OutputError, TensorSpec
from shootout.core.errors import ModelError
from shootout.core.exported.fidelity import (
    NOTHING,
    check_outputs,
    compare,
    disagreement,
    gate,
    standing,
    useful_flips,
    worst_error,
)
from shootout.models.sources.assembly import require_telling, spread
from shootout.quantize.error_bounds import find_errors

Y = (TensorSpec(name="y", shape=(2, 3), dtype="float32"),)
RIGHT = np.array([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]])
FLIPPED = (OutputError(name="ids", relative_l2=0.0, mismatches=2, elements=6, flipped=2 / 6),)


def test_the_figures_are_the_formulas():
    got = RIGHT + np.array([[0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    found = compare([{"y": got}], [{"y": RIGHT}])
    assert found.max_abs == 2.0
    assert found.relative_l2 == pytest.approx(math.sqrt(5 / 91))
    assert found.sqnr_db == pytest.approx(10 * math.log10(91 / 5))
    assert found.cosine == pytest.approx((91 + 4 - 4) / math.sqrt(91 * (91 + 4 + 8 + 1 - 8)))
    assert found.top1_agreement == 0.5


def test_an_integer_row_as_exact_as_fp32_was_never_rounded():
    found = compare([{"y": RIGHT * (1 + 1e-6)}], [{"y": RIGHT}])
    assert gate(found, 0.1) is None
    assert "nothing was rounded" in (gate(found, 0.1, least=1e-5) or "")


def test_each_output_has_its_own_error_and_its_worst_row():
    rng = np.random.default_rng(0)
    reference = [{"a": rng.normal(size=(4, 5)), "b": rng.normal(size=(4, 2, 3)), "ids": np.arange(4)} for _ in range(3)]
    outputs = [{name: array.copy() for name, array in one.items()} for one in reference]
    outputs[0]["a"][1] += 0.1
    outputs[2]["a"][3] += 0.2
    outputs[1]["b"][2, 1] *= 2
    outputs[1]["ids"][[1, 3]] = 9
    found = compare(outputs, reference, batch=4)
    assert [(one.name, one.row, one.mismatches) for one in found.by_output] == [
        ("a", 11, 0),
        ("b", 6, 0),
        ("ids", 5, 2),
    ]
    sizes = {name: np.sqrt(np.mean([np.square(one[name]).sum() for one in reference])) for name in ("a", "b")}
    expected = [np.sqrt(5 * 0.2**2) / sizes["a"], np.linalg.norm(reference[1]["b"][2, 1]) / sizes["b"], 0.0]
    assert [one.relative_l2 for one in found.by_output] == pytest.approx(expected)
    assert found.relative_l2 == max(one.relative_l2 or 0.0 for one in found.by_output)
    assert found.worst_output is max(found.by_output, key=lambda one: one.relative_l2 or 0.0)


def test_the_output_at_fault_is_named_if_there_are_several():
    reference = [{"fine": np.ones((1, 2)), "wild": np.ones((1, 2))}]
    odd = compare([{"fine": np.ones((1, 2)), "wild": np.array([[1.0, np.inf]])}], reference)
    assert [one.relative_l2 for one in odd.by_output] == [0.0, None]
    assert "output 'wild' has NaN or infinity" in (gate(odd, 0.1) or "")
    off = compare([{"fine": np.ones((1, 2)), "wild": np.full((1, 2), 1.2)}], reference)
    assert "of output 'wild' 0.2 is above" in (gate(off, 0.1) or "")
    assert "output 'y'" not in (gate(compare([{"y": 2 * RIGHT}], [{"y": RIGHT}]), 0.1) or "")


def test_an_output_that_is_nearly_zero_on_one_input_is_held_against_all_of_them():
    reference_outputs = [{"y": np.full((1, 4), size)} for size in (1.0, 1e-6)]
    outputs = [{"y": one["y"] + 1e-7} for one in reference_outputs]
    assert compare(outputs, reference_outputs).relative_l2 == pytest.approx(1e-7 * math.sqrt(2))
    assert compare([*outputs[:1], {"y": np.zeros((1, 4))}], reference_outputs).relative_l2 == pytest.approx(
        1e-6 * math.sqrt(2)
    )
    assert compare([reference_outputs[1], reference_outputs[1]], reference_outputs).relative_l2 == pytest.approx(
        math.sqrt(2), rel=1e-5
    )


def test_the_spread_is_the_share_of_an_output_that_inputs_move():
    swing = np.array([[1.0, -1.0]])
    reference_outputs = [
        {"y": 10 + swing, "anchors": np.full((1, 2), 7.0)},
        {"y": 10 - swing, "anchors": np.full((1, 2), 7.0)},
    ]
    assert spread(reference_outputs) == pytest.approx(1 / math.sqrt(101))
    ignoring = [{**one, "y": np.full((1, 2), 10.0)} for one in reference_outputs]
    assert worst_error(ignoring, reference_outputs) == pytest.approx(spread(reference_outputs))
    assert spread(reference_outputs[:1]) == spread([{"anchors": one["anchors"]} for one in reference_outputs]) == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_fail_the_gate(bad: float):
    got = RIGHT.copy()
    got[0, 0] = bad
    found = compare([{"y": got}], [{"y": RIGHT}])
    assert replace(found, by_output=()) == NOTHING
    assert "NaN or infinity" in str(gate(found, 1e-5))
    assert "overflows in this precision" in str(gate(found, None))


def test_an_error_above_the_error_bound_fails_and_below_it_passes():
    found = compare([{"y": RIGHT * 1.001}], [{"y": RIGHT}])
    assert gate(found, 1.1e-3) is None
    assert gate(found, 0.9e-3) == "relative L2 error 0.001 is above the error bound of this precision, 0.0009"


@pytest.mark.parametrize("error_bound", [0.9e-3, None])
def test_what_inputs_cannot_show_is_not_judged_but_more_than_nothing_was_rounded(error_bound: float | None):
    found = compare([{"y": RIGHT * 1.5}], [{"y": RIGHT}])
    assert gate(found, error_bound)
    assert gate(found, error_bound, is_judged=False) is None
    assert "nothing was rounded" in str(gate(found, error_bound, least=0.6, is_judged=False))
    assert bool(gate(NOTHING, error_bound, is_judged=False)) is (error_bound is not None), (
        "an overflow that is predicted"
    )
    assert gate(replace(found, by_output=FLIPPED), error_bound, is_judged=False) is None, (
        "one flipped index refuses a detector"
    )
    assert "differ" in str(gate(replace(found, by_output=FLIPPED), 1e9))


def test_real_inputs_let_no_zeros_pass_however_wide_the_error_bound():
    zeros, far, near = (compare([{"y": RIGHT * scale}], [{"y": RIGHT}]) for scale in (0.0, 0.4, 0.6))
    assert "is above 0.5, the limit for any precision (outputs of zeros alone would err by 1)" in str(gate(zeros, 1.6))
    assert "is above 0.5, the limit for any precision (outputs of zeros alone would err by 1)" in str(gate(far, 1.6))
    assert gate(near, 1.6) is gate(far, 1.6, max_error=0.7) is None
    unknown = replace(near, relative_l2=math.nan)
    assert [standing(one, 1.6, is_judged=True) for one in (far, near, unknown)] == ["tolerated", "met", "tolerated"]


def test_a_metric_judges_an_error_that_may_be_explained_however_large():
    found = compare([{"y": RIGHT * 2.2}], [{"y": RIGHT}])
    assert "is above 0.5, the limit for any precision (outputs of zeros alone would err by 1)" in str(gate(found, 9.9))
    assert gate(found, 9.9, is_scored=True) is None
    assert standing(found, 9.9, is_judged=True) == "tolerated"
    assert "above the error bound of this precision, 1.1" in str(gate(found, 1.1, is_scored=True))
    assert gate(NOTHING, 9.9, is_scored=True)
    assert gate(found, None, is_scored=True) is None, "of which nothing is known"
    assert gate(NOTHING, None, is_scored=True)


def test_a_tolerance_lets_no_mismatch_pass_and_nothing_that_was_never_rounded():
    found = compare([{"y": RIGHT * 1.001}], [{"y": RIGHT}])
    assert gate(found, None, max_error=0.01) is None
    assert gate(replace(found, by_output=FLIPPED), 0.1, max_error=0.01)
    assert gate(found, 0.1, least=0.002, max_error=0.01)
    assert gate(NOTHING, 0.1, max_error=0.01)


def test_integer_outputs_are_compared_exactly():
    reference_outputs = [{"index": np.array([1, 2, 3]), "mask": np.array([True, False])}]
    assert gate(compare(reference_outputs, reference_outputs), 1e-5) is None
    found = compare([{"index": np.array([1, 2, 4]), "mask": np.array([False, False])}], reference_outputs)
    assert found.mismatches == 2
    told = "1 of 3 integer or boolean elements of output 'index' differ from the reference's"
    assert gate(found, 1e-5) == f"{told}, and this precision explains 0"


def test_rounding_may_flip_as_many_integers_as_its_prediction_says():
    rng = np.random.default_rng(0)
    reference_outputs = [{"map": rng.integers(0, 9, (1, 100)), "count": np.array([at])} for at in range(4)]
    outputs = [{name: array.copy() for name, array in one.items()} for one in reference_outputs]
    for at in range(4):
        outputs[at]["map"][0, at] += 1
    found = compare(outputs, reference_outputs)
    assert (found.mismatches, found.by_output[0].elements) == (4, 400)
    assert gate(found, 1e-5, flips={"map": 0.01}) is None
    told = "4 of 400 integer or boolean elements of output 'map' differ from the reference's"
    assert gate(found, 1e-5, flips={"map": 0.0099}) == (
        f"{told}, 1 % for the worst inputs; this precision explains 0.99 %"
    )
    outputs[0]["count"] = np.array([7])
    wrong = gate(compare(outputs, reference_outputs), 1e-5, flips={"map": 0.01})
    assert "1 of 4 integer or boolean elements of output 'count'" in str(wrong), "each output by itself"
    assert gate(compare([reference_outputs[1]] * 4, reference_outputs), 1e-5, flips={"map": 0.3}), "kept answers"


@pytest.mark.parametrize("size", [1_000, 300])
def test_one_input_set_that_is_wholly_wrong_is_no_rounding(size: int):
    """Seven right maps must not hide it: rounding flips a twentieth of each at most, and four times that is a fifth."""
    rng = np.random.default_rng(0)
    right = [{"map": rng.integers(0, 20, (1, size))} for _ in range(8)]
    wrong = [*right[:3], {"map": np.zeros((1, size), int)}, *right[4:]]
    flips = useful_flips({"map": 4 * 0.05}, right)
    assert compare(wrong, right).mismatches < 0.2 * 8 * size
    assert "elements of output 'map' differ" in str(gate(compare(wrong, right), 1e-3, flips=flips))
    off = [{"map": np.where(rng.random((1, size)) < 0.05, -1, one["map"])} for one in right]
    assert gate(compare(off, right), 1e-3, flips=flips) is None


@pytest.mark.parametrize(("sets", "elements"), [(64, 1), (16, 4), (4, 16)])
def test_a_flip_in_a_set_of_few_elements_is_a_share_of_all_sets(sets: int, elements: int):
    """Half of the labels may not be wrong because rounding turns one of them."""
    right = [{"label": np.arange(elements) + 7 * at} for at in range(sets)]
    turned = [{"label": one["label"] + (at == 0) * (np.arange(elements) == 0)} for at, one in enumerate(right)]
    predicted = find_errors(turned, right, None)
    assert predicted.flipped == {"label": 1 / 64}
    flips = useful_flips(predicted.widened().flipped, right)
    assert gate(compare(turned, right), 1e-5, flips=flips) is None
    many = [{"label": one["label"] + (at < sets // 4)} for at, one in enumerate(right)]
    assert "16 of 64 integer" in str(gate(compare(many, right), 1e-5, flips=flips))


def test_a_share_that_an_answer_to_other_inputs_would_pass_proves_nothing():
    alike = np.zeros((1, 100), int)
    other = alike.copy()
    other[0, :10] = 1
    explained = {"map": 0.9}
    assert useful_flips(explained, [{"map": alike}, {"map": other}]) == {"map": pytest.approx(0.05)}
    assert useful_flips({"map": 0.01}, [{"map": alike}, {"map": other}]) == {"map": 0.01}
    assert useful_flips(explained, [{"map": alike}, {"map": alike}]) == {"map": 0.0}
    assert useful_flips(explained, [{"map": alike}]) == {"map": 0.5}
    assert useful_flips({}, [{"y": RIGHT}, {"y": 2 * RIGHT}]) == {}


MASKED = np.array([[1.0, -np.inf, 2.0], [np.nan, np.nan, np.nan], [np.inf, 3.0, -np.inf]])


def test_nan_and_infinity_at_the_same_places_are_equal():
    reference_outputs = [{"logits": MASKED, "y": np.ones((3, 2))}, {"logits": 2 * MASKED[::-1], "y": np.ones((3, 2))}]
    assert compare(reference_outputs, reference_outputs).relative_l2 == 0.0
    off = [{**one, "logits": 1.25 * one["logits"]} for one in reference_outputs]
    found = compare(off, reference_outputs, batch=3)
    expected = 0.25 * math.sqrt(4 * 14) / math.sqrt((14 + 4 * 14) / 2)
    assert found.relative_l2 == pytest.approx(expected) == worst_error(off, reference_outputs)
    assert found.mismatches == 0
    assert found.max_abs == 1.5
    assert found.sqnr_db == pytest.approx(20 * math.log10(4), abs=0.8), "of finite numbers alone"
    assert found.cosine is not None
    assert math.isfinite(spread(reference_outputs))


@pytest.mark.parametrize(
    ("place", "wrong"), [((0, 1), np.inf), ((0, 1), -1e30), ((1, 1), np.inf), ((2, 1), np.nan), ((2, 0), np.nan)]
)
def test_nan_or_infinity_at_another_place_tells_output_row_and_share(place: tuple[int, int], wrong: float):
    reference_outputs = [{"y": np.ones((3, 2)), "logits": MASKED} for _ in range(2)]
    outputs = [{name: array.copy() for name, array in one.items()} for one in reference_outputs]
    outputs[1]["logits"][place] = wrong
    found = compare(outputs, reference_outputs, batch=3)
    assert found.relative_l2 is None
    told = "output 'logits' has NaN or infinity where the reference has none, or the other way round"
    assert gate(found, 0.1) == f"{told}, in 1 of 18 elements (row {3 + place[0]})"
    assert worst_error(outputs, reference_outputs) is None


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ({"z": np.zeros((2, 3), np.float32)}, "expected ['y'], got ['z']"),
        ({}, "expected ['y'], got []"),
        ({"y": np.zeros((3, 2), np.float32)}, "expected float32[2, 3], got float32[3, 2]"),
        ({"y": np.zeros((2, 3), np.float64)}, "expected float32[2, 3], got float64[2, 3]"),
        ({"y": np.zeros((2, 3), np.int32)}, "got int32"),
    ],
)
def test_outputs_of_another_name_shape_or_type_are_named(outputs: dict[str, Any], says: str):
    assert says in str(check_outputs(Y, outputs))


def test_a_float_output_may_come_as_float32():
    half = (TensorSpec(name="y", shape=(1,), dtype="float16"),)
    assert check_outputs(Y, {"y": np.zeros((2, 3), np.float32)}) is None
    assert check_outputs(half, {"y": np.zeros(1, np.float32)}) is None
    assert check_outputs(half, {"y": np.zeros(1, np.float16)}) is None


def telling(*arrays: Any, dtype: str = "float32") -> None:
    reference_outputs = [{"y": np.asarray(array)} for array in arrays]
    require_telling("m", (TensorSpec(name="y", shape=reference_outputs[0]["y"].shape, dtype=dtype),), reference_outputs)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (([np.nan, np.nan], [np.inf, np.nan]), "has NaN or infinity everywhere"),
        (([1.0, np.nan], [1.0, np.nan]), "is the same for all 2 different inputs"),
        (([3.5, 3.5], [3.5, 3.5]), "is constant (3.5 everywhere)"),
        (([0.0, 0.0], [0.0, 0.0]), "is constant (0.0 everywhere)"),
        (([1e-40, 2e-40], [3e-40, 1e-41]), "is all denormal"),
        (([1.0, 2.0], [1.0, 2.0]), "is the same for all 2 different inputs"),
        (([], []), "is empty"),
        (([[True, True]], [[True, True]]), "is constant (True everywhere)"),
    ],
)
def test_a_degenerate_reference_is_refused_with_the_reason(arrays: Any, says: str):
    with pytest.raises(ModelError) as error:
        telling(*arrays)
    assert says in str(error.value)
    assert "--inputs" in str(error.value)


@pytest.mark.parametrize(
    ("off", "error_bound", "says"),
    [
        (0.01, 0.04, None),
        (0.03, 0.04, "0.03 (relative L2) off the shared model's own, above 0.02"),
        (0.2, 0.5, None),
        (0.4, 1.0, None),  # an error bound may be wide: twice what is predicted is the bound all the same
        (None, 0.04, None),
    ],
)
def test_runtimes_of_one_quantized_model_have_to_agree(off: float | None, error_bound: float, says: str | None):
    reference = [{"y": RIGHT}]
    found = (
        NOTHING
        if off is None
        else replace(NOTHING, shared_l2=compare([{"y": RIGHT * (1 + off)}], reference).relative_l2)
    )
    assert (disagreement(found, error_bound) or "").endswith(says or "")
    assert (disagreement(found, error_bound) is None) == (says is None)
