"""The training step's own proof: sketches, errors, the reference outputs against gradients by hand, and what can't be
asked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shootout.core.adapter import TARGET
from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import Array, Arrays, Precision, Target
from shootout.core.errors import ShootoutError, UsageError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.quantize.error_bounds import BUCKETS, off, sketch
from shootout.scenarios import train_step

BATCH = 3


STEP = Request(model="mlp", parameters={"inputs": 8, "hidden": 16, "outputs": 5}, batch=BATCH, training=True)
QUANTIZED = replace(STEP, variant="shared")
PROBE = Request(model="permutation_probe", batch=6, training=True)
WEIGHTLESS = Request(model="nested_sin", parameters={"elements": 8}, training=True)


@pytest.fixture(scope="module")
def found() -> dict[str, ExportedModel | ShootoutError]:
    """All that is exported here, in one process."""
    asked = {"step": STEP, "quantized": QUANTIZED, "probe": PROBE, "weightless": WEIGHTLESS}
    return dict(zip(asked, obtain_all(list(asked.values())), strict=True))


@pytest.fixture(scope="module")
def exported(found: dict[str, ExportedModel | ShootoutError]) -> ExportedModel:
    step = found["step"]
    assert isinstance(step, ExportedModel), step
    return step


def by_hand(weights: Arrays, inputs: Arrays) -> tuple[float, dict[str, Array]]:
    """Loss and gradients of Linear, ReLU, Linear under the mean squared error, in float64."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    x, target = inputs["x"].astype(np.float64), inputs[TARGET].astype(np.float64)
    before = x @ w["0.weight"].T + w["0.bias"]
    hidden = np.maximum(before, 0)
    wrong = hidden @ w["2.weight"].T + w["2.bias"] - target
    back = 2 * wrong / wrong.size
    inward = (back @ w["2.weight"]) * (before > 0)
    gradients = {"0.weight": inward.T @ x, "0.bias": inward.sum(0), "2.weight": back.T @ hidden, "2.bias": back.sum(0)}
    return float((wrong**2).mean()), gradients


def test_the_reference_has_the_loss_and_gradients_that_calculus_gives(exported: ExportedModel):
    weights, (losses, gradients) = exported.weights(), (exported.reference_outputs(), exported.gradients())
    assert exported.trained == ("0.weight", "0.bias", "2.weight", "2.bias")
    for inputs, loss, found in zip(exported.input_buffers(), losses, gradients, strict=True):
        wanted, right = by_hand(weights, inputs)
        assert float(loss["loss"]) == pytest.approx(wanted, rel=1e-12)
        for name, array in sketch(right).items():
            np.testing.assert_allclose(found[name], array, rtol=1e-10, atol=1e-14)


def test_it_has_an_error_bound_for_what_a_step_is_offered_in_and_no_other(exported: ExportedModel):
    assert set(exported.error_bounds) == {"fp32", "tf32", "bf16"}
    assert exported.error_bounds["fp32"] == pytest.approx(1e-5)
    mixed = exported.error_bounds["bf16"]
    assert mixed is not None
    assert 1e-3 < mixed < USEFUL_BOUND, "one ReLU that turns over in one buffer doesn't set it"
    assert exported.error_bound(Target(backend="torch-eager", precision=Precision.FP16)) == (None, 0.0)


@pytest.mark.parametrize("what", ["quantized", "probe", "weightless"])
def test_what_has_no_training_step_says_so(what: str, found: dict[str, ExportedModel | ShootoutError]):
    error = found[what]
    assert isinstance(error, UsageError)
    assert "has a training step" in str(error)


SHAPES = {"wide": (300, 200), "bias": (40,), "odd": (7, 11, 3), "one": ()}


def drawn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.standard_normal(shape)) for name, shape in SHAPES.items()}


def test_a_sketch_keeps_sums_and_the_norm_of_a_difference():
    a, b = drawn(1), drawn(2)
    left, right = sketch(a), sketch(b)
    both = sketch({name: a[name] + b[name] for name in a})
    for name in a:
        assert left[name].shape == (BUCKETS,)
        np.testing.assert_allclose(both[name], left[name] + right[name], atol=1e-9)
        ratio = np.linalg.norm(left[name] - right[name]) / np.linalg.norm(a[name] - b[name])
        assert ratio == pytest.approx(1, abs=0.5 if a[name].size > BUCKETS else 1e-9)


def test_two_rows_that_changed_places_show_in_a_sketch():
    gradient = drawn(3)
    swapped = {**gradient, "wide": gradient["wide"][[1, 0, *range(2, 300)]]}
    error = off(sketch(swapped), sketch(gradient))
    assert error is not None
    assert error > 0.03  # two of 300 rows, each off by sqrt(2): 0.115 in full


def test_each_tensor_is_judged_by_itself_unless_it_is_next_to_nothing():
    wanted = {"large": np.full(100, 10.0), "small": np.full(100, 0.1), "zero": np.zeros(100)}
    off_by = lambda name, by: off({**wanted, name: wanted[name] + by}, wanted)  # noqa: E731
    assert off_by("large", 1.0) == pytest.approx(0.1)
    assert off_by("small", 0.1) == pytest.approx(1.0)
    assert off_by("zero", 1e-7) == pytest.approx(1e-5)
    assert off_by("small", np.nan) is None


@pytest.mark.parametrize(
    ("target", "obstacle"),
    [
        (Target(backend="torch-eager"), False),
        (Target(backend="torch-eager", precision=Precision.TF32), False),
        (Target(backend="torch-eager", precision=Precision.BF16), False),
        (Target(backend="torch-eager", precision=Precision.FP16), True),
        (Target(backend="torch-eager", precision=Precision.INT8_DYNAMIC), True),
        (Target(backend="torch-eager", scheme="float-1"), True),
    ],
)
def test_only_targets_that_keep_their_weights_in_float32_are_trained(target: Target, obstacle: bool):
    found = train_step.obstacle(target)
    assert (found is not None) is obstacle
    if found:
        assert target.precision in found[0]
        assert "fp32" in found[1]
