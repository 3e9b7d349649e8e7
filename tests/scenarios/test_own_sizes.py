"""Rows that a metric scores, each called at its own size: the least that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exports import bare_exported
from support.sessions import EchoSession

from shootout.core.contract import Arrays, TensorSpec
from shootout.core.exported.calls import NAMES
from shootout.core.exported.model import REPORT, REPORT_OUTPUTS, ExportedModel
from shootout.models.sources.input_sets import save_rows
from shootout.scenarios import own_sizes

LENGTHS = np.array([2, 5, 1, 3, 8])


class Model(EchoSession):
    """Doubles each number that its mask keeps, and adds them up; `seen` has the sizes of its calls."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def stage(self, inputs: Arrays, slot: int) -> Any:
        assert slot == 7
        self.seen.append(inputs["ids"].shape[1])
        return inputs["ids"] * inputs["mask"]

    def execute(self, staged: Any) -> Any:
        return staged

    def fetch(self, raw: Any) -> Arrays:
        return {"each": 2 * raw, "all": raw.sum(axis=1)}


def at(size: int, folder: Path, batch: int) -> ExportedModel:
    def spec(name: str, *shape: int) -> TensorSpec:
        return TensorSpec(name=name, shape=(batch, *shape), dtype="int64")

    inputs, outputs = (spec("ids", size), spec("mask", size)), (spec("each", size), spec("all"))
    return bare_exported({}, folder=folder, key=str(size), inputs=inputs, outputs=outputs, batch=batch)


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize(("batch", "seen"), [(1, [4, 8, 4, 4, 8]), (2, [8, 4, 8])])
def test_each_row_is_called_at_the_least_size_that_holds_it(batch: int, seen: list[int], is_left: bool, tmp_path: Path):
    begins = 8 - LENGTHS if is_left else 0 * LENGTHS
    spans = np.stack([begins, begins + LENGTHS], axis=1)
    mask = ((np.arange(8) >= spans[:, :1]) & (np.arange(8) < spans[:, 1:])).astype(np.int64)
    ids = 10 + np.arange(40).reshape(5, 8)
    rows = {"ids": ids, "mask": mask}
    numbers = np.arange(5), np.arange(0)
    save_rows(tmp_path / REPORT, rows, None, numbers)
    sizes = {size: at(size, tmp_path, batch) for size in (4, 8)}
    assert not own_sizes.can_call(sizes[8]), "nothing says where rows end"
    save_rows(tmp_path / REPORT, rows, None, numbers, spans)
    assert own_sizes.can_call(sizes[8])
    kept = tmp_path / "kept"
    for own in (False, True):
        if own:
            np.savez(tmp_path / REPORT_OUTPUTS, **{"0": np.full((5, 8), -1.0), "1": np.zeros(5)})
        kept.mkdir(exist_ok=True)
        session: Any = Model()
        own_sizes.keep_outputs(session, sizes, kept, slot=7)
        assert session.seen == seen
        (file,) = kept.glob("*.npz")
        with np.load(file) as stored:
            each, total = (np.concatenate([*stored[name]])[:5] for name in stored.files)
        np.testing.assert_array_equal(total, (ids * mask).sum(axis=1))
        np.testing.assert_array_equal(each[mask > 0], 2 * ids[mask > 0])
        taken = each[0] if batch == 1 else each[3]
        beyond = taken[:4] if is_left else taken[4:]
        assert {*beyond} == {-1 if own else 0}, "no call computes it"
        assert (kept / NAMES).exists()
