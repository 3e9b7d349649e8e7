"""The page of two targets keeps blocks apart whose long names begin alike."""

from __future__ import annotations

import pytest

from shootout.explain.explanation import BlockPair, BlockSide, Explanation, SideSummary
from shootout.explain.page import draw_times
from shootout.page.charts import to_svg

LONG = "encoder.a_module_with_a_long_name.layer"


@pytest.mark.parametrize("narrow", [False, True])
def test_blocks_whose_names_begin_alike_have_bars_of_their_own(narrow: bool) -> None:
    side = BlockSide(error=None, own=None, beyond=0, ns=1e3, conversions_ns=0.0, precisions={})
    blocks = tuple(BlockPair(name=f"{LONG}.{number}", layers=1, sides=(side, side)) for number in range(3))
    summaries = SideSummary(arm="a", call_ns=3e3), SideSummary(arm="b", call_ns=3e3)
    found = Explanation(run="r", group="g", model="m", sides=summaries, layers=(), blocks=blocks)
    chart = draw_times(found, narrow=narrow)
    assert chart is not None
    drawn = to_svg(chart)
    assert [drawn.count(f"layer.{number} {letter}") for number in range(3) for letter in "AB"] == [1] * 6
