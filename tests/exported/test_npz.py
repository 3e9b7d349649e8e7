"""Sets of tensors on disk come back in memory that every runtime reads alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.core.exported.model import ALIGNMENT, aligned, load_sets, save_sets


def first_byte(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_every_array_that_is_read_back_begins_on_a_multiple(tmp_path: Path):
    sets = [{"x": np.full((3, 5), number, np.float32), "at": np.arange(7)} for number in range(20)]
    save_sets(tmp_path / "sets.npz", sets)
    found = load_sets(tmp_path / "sets.npz", ["x", "at"])
    assert {first_byte(array) % ALIGNMENT for one in found for array in one.values()} == {0}
    for one, stored in zip(found, sets, strict=True):
        for name, array in one.items():
            assert array.dtype == stored[name].dtype
            np.testing.assert_array_equal(array, stored[name])


@pytest.mark.parametrize("array", [np.array(2.5), np.ones((4, 6), np.float16).T, np.array([[True, False]])])
def test_a_copy_has_the_same_elements_in_c_order_and_can_be_written_to(array: np.ndarray):
    found = aligned(array)
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert not np.shares_memory(found, array)
    np.testing.assert_array_equal(found, array)
