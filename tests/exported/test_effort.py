"""How much an export may do in its time: what it takes, what it leaves out, and when it gives up at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.core.clock import Deadline
from shootout.core.contract import NotRunKind
from shootout.core.errors import SkippedArm
from shootout.core.exported.client import read_progress
from shootout.core.messages import ExportProgress
from shootout.models.onnx import effort
from shootout.models.onnx.effort import Effort


class Left(Deadline):
    """So many seconds are left, however long anything takes."""

    def __init__(self, left_s: float) -> None:
        super().__init__(left_s)

    @property
    def left_s(self) -> float:
        assert self.seconds is not None
        return self.seconds


def limited(plan_s: float, limit_s: float, report: Path | None = None) -> Effort:
    return Effort("big.onnx", limit=Left(limit_s), plan=Left(plan_s), report=report)


def test_a_long_export_takes_the_fewest_input_sets_and_says_so():
    found = limited(20, 60)
    assert found.buffers(8, 1.0) == 2
    assert found.most_sets == effort.BRIEF_SETS
    assert found.notes == (
        "left out of the export for want of time (all of it takes 7 min, and the export had 20 s): 6 of 8 input sets",
    )


def test_one_that_has_no_time_for_the_fewest_gives_up_with_what_it_would_take():
    with pytest.raises(
        SkippedArm, match=r"exporting big.onnx takes 100 s at least \(a call takes about 10 s\)"
    ) as found:
        limited(10, 30).buffers(8, 10.0)
    assert found.value.why.kind is NotRunKind.NOT_REACHED


def test_its_parent_reads_how_far_it_is(tmp_path: Path):
    place = tmp_path / "report.json"
    assert read_progress(place) is None
    Effort("m.onnx", report=place).buffers(8, 0.1)
    assert read_progress(place) == ExportProgress(
        model="m.onnx", doing="the right outputs of 8 input sets, a call takes 0.1 s", whole_s=40.0
    )
    Effort("m.onnx", limit=Left(60), plan=Left(20), report=place).buffers(8, 1.0)
    assert (found := read_progress(place)), "it says how many it takes, not how many it would have"
    assert found.doing == "the right outputs of 2 input sets, a call takes 1 s"
    place.write_text("[1]")
    assert read_progress(place) is None


def test_an_export_of_more_than_a_minute_takes_the_fewest_input_sets_though_there_is_no_limit():
    found = Effort("m.onnx", needs=["int8"], leading=["fp32"])
    assert found.buffers(8, 1.0) == 2
    assert found.notes == ("left out of the export for want of time (all of it takes 2 min): 6 of 8 input sets",)
    assert not found.allows("int8"), "its error decides nothing"
    short = Effort("m.onnx", needs=["int8"], leading=["fp32"])
    assert short.buffers(8, 0.1) == 8
    assert short.allows("int8")


def test_loading_counts_once_for_each_run_and_rows_to_score_once_each():
    found = Effort("m.onnx", needs=["fp32"])
    assert found.expect(8, 0.01, load_s=2.0, scored=500)
    assert found.whole_s == pytest.approx(5 * (8 * 0.01 + 2.0) + 500 * 0.01)
    with pytest.raises(SkippedArm, match="takes 51 s at least"):
        limited(10, 30).buffers(64, 0.1, scored=500)
