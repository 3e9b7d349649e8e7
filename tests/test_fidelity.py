from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shootout.bundle import Report
from shootout.contract import TensorSpec
from shootout.errors import ModelError
from shootout.fidelity import NOTHING, accuracy, check_outputs, compare, gate, read_probe, with_accuracy
from shootout.models import permutation_probe
from shootout.oracle import require_telling

Y = (TensorSpec(name="y", shape=(2, 3), dtype="float32"),)
RIGHT = np.array([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]])


def test_equal_outputs_have_no_error():
    found = compare([{"y": RIGHT.astype(np.float32)}], [{"y": RIGHT}])
    assert (found.max_abs, found.relative_l2, found.sqnr_db, found.top1_agreement) == (0.0, 0.0, None, 1.0)
    assert found.cosine == pytest.approx(1)
    assert gate(found, 1e-5) is None


def test_the_figures_are_the_formulas():
    got = RIGHT + np.array([[0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    found = compare([{"y": got}], [{"y": RIGHT}])
    assert found.max_abs == 2.0
    assert found.relative_l2 == pytest.approx(math.sqrt(5 / 91))
    assert found.sqnr_db == pytest.approx(10 * math.log10(91 / 5))
    assert found.cosine == pytest.approx((91 + 4 - 4) / math.sqrt(91 * (91 + 4 + 8 + 1 - 8)))
    assert found.top1_agreement == 0.5


def test_the_worst_buffer_and_output_counts_by_itself():
    oracle = [{"big": np.full((1, 2), 1e6), "small": np.array([[1.0, 2.0]])} for _ in range(2)]
    outputs = [{name: array.copy() for name, array in one.items()} for one in oracle]
    outputs[1]["small"][0, 0] = 2.0
    assert compare(outputs, oracle).relative_l2 == pytest.approx(1 / math.sqrt(5))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_fail_the_gate(bad: float):
    got = RIGHT.copy()
    got[0, 0] = bad
    found = compare([{"y": got}], [{"y": RIGHT}])
    assert found == NOTHING
    assert "NaN or infinity" in str(gate(found, 1e-5))
    assert "overflows in this precision" in str(gate(found, None))


def test_an_error_above_the_band_fails_and_below_it_passes():
    found = compare([{"y": RIGHT * 1.001}], [{"y": RIGHT}])
    assert gate(found, 1.1e-3) is None
    assert gate(found, 0.9e-3) == "relative L2 error 0.001 is above the 0.0009 that this precision explains"


def test_a_precision_without_a_band_cannot_pass():
    assert "no error band is known" in str(gate(compare([{"y": RIGHT}], [{"y": RIGHT}]), None))


def test_integer_outputs_are_compared_exactly():
    oracle = [{"index": np.array([1, 2, 3]), "mask": np.array([True, False])}]
    assert gate(compare(oracle, oracle), 1e-5) is None
    found = compare([{"index": np.array([1, 2, 4]), "mask": np.array([False, False])}], oracle)
    assert found.mismatches == 2
    assert gate(found, 1e-5) == "2 integer or boolean output elements differ from the oracle's"


def test_a_zero_oracle_allows_no_error():
    zero = [{"y": np.zeros((1, 2))}]
    assert compare(zero, zero).relative_l2 == 0.0
    assert compare([{"y": np.array([[0.0, 1e-9]])}], zero).relative_l2 == math.inf


@pytest.mark.parametrize("shape", [(3,), (2, 1), (2, 2, 2)])
def test_there_is_no_top1_without_classes(shape: tuple[int, ...]):
    one = [{"y": np.arange(float(np.prod(shape))).reshape(shape)}]
    assert compare(one, one).top1_agreement is None


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


@pytest.mark.parametrize("batch", [1, 3, 7, 10])
def test_accuracy_counts_every_row_once_whatever_the_batch(batch: int):
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    inputs = {"x": np.eye(3, dtype=np.float32)[labels]}
    inputs["x"][0] = [0, 1, 0]  # one of seven is wrong
    seen: list[int] = []

    def run(x: Any) -> Any:
        seen.append(len(x["x"]))
        return {"y": x["x"]}

    report = Report(inputs=inputs, labels=labels)
    assert accuracy(run, report, batch) == pytest.approx(6 / 7)
    assert set(seen) == {batch}
    assert with_accuracy(NOTHING, run, report, batch).accuracy == pytest.approx(6 / 7)


def mantissa(bits: int) -> Any:
    """Rounds float32 to so many mantissa bits, ties to even."""

    def rounded(x: Any) -> Any:
        drop = 23 - bits
        raw = x.astype(np.float32).view(np.uint32)
        half = np.uint32((1 << (drop - 1)) - 1) + ((raw >> np.uint32(drop)) & np.uint32(1))
        return ((raw + half) & ~np.uint32((1 << drop) - 1)).view(np.float32)

    return rounded


def half(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def saturating_half(x: Any) -> Any:
    return half(np.clip(x, -65_504, 65_504))


PRECISIONS = {
    "fp32": lambda x: x,
    "tf32": mantissa(10),
    "fp16": half,
    "bf16": mantissa(7),
}


def probe(rounding: Any) -> str:
    (inputs,) = permutation_probe.draw({}, 6)
    weight = np.eye(256, dtype=np.float32)[permutation_probe.ORDER]
    with np.errstate(invalid="ignore"):
        return read_probe(inputs, {"y": rounding(inputs["x"]) @ weight.T})


@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_the_probe_tells_the_precisions_apart(precision: str):
    assert probe(PRECISIONS[precision]) == precision


def test_the_probe_knows_fp16_that_saturates():
    assert probe(saturating_half) == "fp16"


@pytest.mark.parametrize(
    "rounding",
    [
        mantissa(3),
        mantissa(9),
        np.ones_like,
        np.zeros_like,
        lambda x: x + np.float32(1e-3),
        lambda x: x[:, ::-1],
        lambda x: np.full_like(x, np.nan),
        lambda x: np.where(x > 2, np.inf, x),
        lambda x: np.where(x > 2, 3, x),
    ],
    ids=["3 bits", "9 bits", "ones", "zeros", "shifted", "other order", "NaN", "fp32 overflow", "wrong top"],
)
def test_the_probe_does_not_guess(rounding: Any):
    assert probe(rounding) == "unknown"


def telling(*arrays: Any, dtype: str = "float32") -> None:
    oracle = [{"y": np.asarray(array)} for array in arrays]
    require_telling("m", (TensorSpec(name="y", shape=oracle[0]["y"].shape, dtype=dtype),), oracle)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (([1.0, np.nan], [1.0, 2.0]), "has NaN or infinity"),
        (([1.0, 2.0], [1.0, -np.inf]), "has NaN or infinity"),
        (([3.5, 3.5], [3.5, 3.5]), "is constant (3.5 everywhere)"),
        (([0.0, 0.0], [0.0, 0.0]), "is constant (0.0 everywhere)"),
        (([1e-40, 2e-40], [3e-40, 1e-41]), "is all denormal"),
        (([1.0, 2.0], [1.0, 2.0]), "is the same for all 2 different inputs"),
        (([], []), "is empty"),
        (([[True, True]], [[True, True]]), "is constant (True everywhere)"),
    ],
)
def test_a_degenerate_oracle_is_refused_with_the_reason(arrays: Any, says: str):
    with pytest.raises(ModelError) as error:
        telling(*arrays)
    assert says in str(error.value)
    assert "--inputs" in str(error.value)


def test_a_telling_oracle_passes():
    telling([1.0, 2.0], [2.0, 1.0])
    telling([1.0, 2.0])  # a single buffer can't be the same as another
    telling([1e-40, 2e-40], [3e-40, 1e-41], dtype="float64")
    telling(1.5)


def test_one_telling_output_is_enough():
    specs = tuple(TensorSpec(name=name, shape=(1,), dtype="float32") for name in ("size", "y"))
    require_telling("m", specs, [{"size": np.array([3]), "y": np.array([value])} for value in (1.0, 2.0)])
