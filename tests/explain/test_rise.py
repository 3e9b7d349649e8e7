"""The layer at which an error rises is named, with the command that leads on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.plain import as_plain

from shootout.apps.explain.measure import Explanation, LayerPair, LayerSide, SideSummary, find_rise
from shootout.apps.explain.screen import render

PLANTED = (0.013, 0.014, 0.015, 0.019, 0.59, 0.48, 0.52)


def layers(errors: Sequence[float | None]) -> tuple[LayerPair, ...]:
    """Make layers whose names are other numbers than their places; NaN: not read, None: not finite."""
    return tuple(
        LayerPair(
            number=number,
            name=str(2 * number),
            block=str(2 * number),
            operator="Conv",
            output="",
            sides=(
                LayerSide(value="x", error=1e-7, own=1e-7),
                LayerSide() if error is not None and math.isnan(error) else LayerSide(value="x", error=error, own=1e-2),
            ),
        )
        for number, error in enumerate(errors)
    )


@pytest.mark.parametrize(
    ("errors", "rise"),
    [
        (PLANTED, 4),
        ((0.013, math.nan, 0.59), 2),  # one in between wasn't read
        ((0.4, 0.41, 0.42), 0),  # already at the first
        ((0.2, 0.01, 0.21), 0),  # another branch lies in between
        ((0.01, None, None), 1),
        ((0.01, 0.02, 0.03, 0.04, 0.06, 0.08), None),  # layer by layer, by rounding alone
        ((1e-4, 4e-2, 3e-2), None),  # steep, yet small
        ((math.nan, math.nan), None),
        ((), None),
    ],
)
def test_the_error_rises_where_it_leaves_all_errors_before_behind(
    errors: Sequence[float | None], rise: int | None
) -> None:
    assert find_rise(layers(errors)) == rise


def test_the_screen_names_the_layer_its_scheme_and_one_command() -> None:
    command = "shootout run --model net.onnx"
    found = Explanation(
        run="r",
        group="g",
        model="m",
        sides=(SideSummary(arm="a:cpu:fp32", read=7), SideSummary(arm="a:cpu:int8", read=7)),
        layers=layers(PLANTED),
        rise=find_rise(layers(PLANTED)),
        next=command,
    )
    lines = as_plain([render(found, 100, full=True)], 100).splitlines()
    assert lines[0] == "Answer  the error of a:cpu:int8 rises at layer 8: 0.019 → 0.59 (float-4 leaves it in float)"
    assert [line.strip() for line in lines if "shootout" in line] == [command]
    none = as_plain([render(replace(found, rise=None, next=""), 100, full=True)], 100)
    assert "rises" not in none
    assert "Next" not in none
