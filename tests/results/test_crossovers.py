"""Between which sizes of a sweep the faster of two targets changes, and the sizes that are proposed in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.apps.judge.analysis import analyse, list_between
from shootout.tell import reproduce

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def test_a_sweep_beside_a_baseline_tells_each_pair_whose_lead_changes():
    found = analyse(REFERENCE / "width-sweep").crossovers
    told = [(one.scope, one.below, one.low, one.above, one.high, one.ships) for one in found]
    assert told == [
        ("end_to_end", "jax-jit:cpu:fp32", 64, "onnxruntime:cpu:fp32", 256, True),
        ("compute", "jax-jit:cpu:fp32", 64, "onnxruntime:cpu:fp32", 256, False),
    ]
    assert found[0].between
    assert found[0].between.endswith("onnxruntime:cpu:fp32,jax-jit:cpu:fp32 --threads 1 --set d_model=96,128,192")


def test_sizes_without_a_verdict_lie_inside():
    assert {(one.low, one.high) for one in analyse(REFERENCE / "batch-crossover").crossovers} == {(112, 224)}
    assert analyse(REFERENCE / "width-crossover").crossovers == (), "no verdict at any size"


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [(8, 16, [10, 12, 14]), (1, 1024, [6, 32, 192]), (64, 72, [66, 68, 70]), (1, 3, [2]), (1, 2, [])],
)
def test_the_sizes_between_are_round_and_part_the_range_evenly(low: int, high: int, sizes: list[int]):
    assert list_between(low, high) == sizes


def test_a_command_at_several_sizes_keeps_all_other_options():
    options = [("--model", "toy"), ("--set", "n=4"), ("--set", "m=2"), ("--batch", "1")]
    assert reproduce.at_sizes(options, "n", [5, 6])[1:] == [
        ("--set", "m=2"),
        ("--batch", "1"),
        ("--set", "n=5,6"),
    ]
    assert reproduce.at_sizes(options, "batch", [2])[-1] == ("--batch", "2")
