"""Inputs that no call has had: as valid as the known ones, and near none of them."""

from __future__ import annotations

import numpy as np
import pytest

from shootout.core.contract import Array
from shootout.core.exported.calls import NUDGES, mix_sets, nudge


def mixed_of(*arrays: Array, whole: bool = False) -> Array:
    return mix_sets([{"x": array} for array in arrays], np.random.default_rng(0), whole=whole)["x"]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_every_number_with_a_fraction_lies_between_two_known_ones_and_is_neither(dtype: str):
    one, other = np.random.default_rng(1).normal(size=(2, 8, 32)).astype(dtype)
    found = mixed_of(one, other)
    assert found.dtype == one.dtype
    assert np.all((np.minimum(one, other) <= found) & (found <= np.maximum(one, other)))
    assert min(float(np.mean(np.round(found, 2) != np.round(known, 2))) for known in (one, other)) > 0.95


@pytest.mark.parametrize(
    "arrays",
    [
        (np.array([0.0, -np.inf, 0.0, 0.0]), np.array([0.0, 0.0, -np.inf, -np.inf])),
        (np.arange(64.0), np.arange(64.0)[::-1]),
        (np.arange(64), np.arange(64)[::-1]),
        (np.array([True, False] * 8), np.array([False, True] * 8)),
    ],
    ids=["masks", "whole floats", "tokens", "marks"],
)
def test_what_means_something_as_it_is_is_taken_from_one_of_two_sets(arrays: tuple[Array, Array]):
    found = mixed_of(*arrays, whole=True)
    assert np.all((found == arrays[0]) | (found == arrays[1]))
    assert found.dtype == arrays[0].dtype
    assert any(np.array_equal(mixed_of(*arrays), one) for one in arrays), "a worker may mix none of them"


def test_whole_numbers_of_all_inputs_come_from_one_set_and_fractions_from_two():
    """Lengths and offsets fit each other in a set, and no export has checked the mix."""
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=8) * (np.arange(8) > n) for n in (1, 2)]
    sets = [{"x": x, "ends": np.arange(3) * n, "of": np.full(3, n)} for n, x in enumerate(xs, 1)]
    for _ in range(9):
        found = mix_sets(sets, rng)
        (own,) = [one for one in sets if np.array_equal(found["ends"], one["ends"])]
        assert np.array_equal(found["of"], own["of"])
        assert np.array_equal(found["x"] == 0, own["x"] == 0)
        assert not np.any((found["x"] == own["x"]) & (own["x"] != 0))


@pytest.mark.parametrize("share", NUDGES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_nudge_moves_each_fraction_a_little_and_nothing_else(dtype: str, share: float):
    given = np.append(np.random.default_rng(1).normal(size=64), [0.0, 3.0, -np.inf]).astype(dtype)
    found = nudge({"x": given, "t": np.arange(3)}, np.random.default_rng(0), share)
    assert found["x"].dtype == given.dtype
    assert np.array_equal(found["x"][64:], given[64:])
    assert np.array_equal(found["t"], np.arange(3))
    assert np.mean(found["x"][:64] != given[:64]) > 0.4
    np.testing.assert_allclose(found["x"][:64], given[:64], rtol=2 * share)
