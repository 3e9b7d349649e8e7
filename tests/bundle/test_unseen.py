"""Inputs that no call has had: as valid as the known ones, and near none of them."""

from __future__ import annotations

import numpy as np
import pytest

from shootout.bundle.unseen import mixed
from shootout.contract import Array


def mixed_of(*arrays: Array) -> Array:
    return mixed([{"x": array} for array in arrays], np.random.default_rng(0))["x"]


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
    found = mixed_of(*arrays)
    assert np.all((found == arrays[0]) | (found == arrays[1]))
    assert found.dtype == arrays[0].dtype


def test_a_set_that_is_alone_is_mixed_with_itself_but_for_its_integers():
    rng = np.random.default_rng(0)
    known = {"x": rng.normal(size=64), "offsets": np.arange(9), "scale": np.array(0.5)}
    found = mixed([known], rng)
    assert np.mean(found["x"] != known["x"]) > 0.9
    assert np.array_equal(found["offsets"], known["offsets"])
    assert found["scale"] == known["scale"]


def test_no_two_are_alike():
    sets = [{"x": np.random.default_rng(index).normal(size=512)} for index in range(2)]
    rng = np.random.default_rng(7)
    first, second = (mixed(sets, rng)["x"] for _ in range(2))
    assert first @ second < 0.9 * np.sqrt((first @ first) * (second @ second))
