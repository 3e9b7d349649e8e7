"""The layer at which an error rises is named, with the command that leads on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plain import as_plain
from support.races import made

from shootout.apps.explain.explanation import Explanation, LayerPair, LayerSide, Rise, SideSummary, find_rise
from shootout.apps.explain.measure import write_search
from shootout.apps.explain.screen import render
from shootout.commands.explain import find_sides
from shootout.core.contract import Arm, Precision, Target
from shootout.tell import reproduce

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
        (PLANTED, Rise(layer=4, before=0.019, after=0.59)),
        ((0.013, math.nan, 0.59), Rise(layer=2, before=0.013, after=0.59)),  # one in between wasn't read
        ((0.4, 0.41, 0.42), Rise(layer=0, before=0.0, after=0.4)),  # already at the first
        ((0.2, 0.01, 0.21), Rise(layer=0, before=0.0, after=0.2)),  # another branch lies in between
        ((0.01, None, None), Rise(layer=1, before=0.01, after=None)),
        ((0.01, 0.02, 0.03, 0.04, 0.06, 0.08), None),  # layer by layer, by rounding alone
        ((1e-4, 4e-2, 3e-2), None),  # steep, yet small
        ((math.nan, math.nan), None),
        ((), None),
    ],
)
def test_the_error_rises_where_it_leaves_all_errors_before_behind(
    errors: Sequence[float | None], rise: Rise | None
) -> None:
    assert find_rise(layers(errors), 1) == rise


def test_the_screen_names_the_layer_its_scheme_and_one_command() -> None:
    command = "shootout tune --model net.onnx"
    found = Explanation(
        run="r",
        group="g",
        model="m",
        sides=(SideSummary(arm="a:cpu:fp32", read=7), SideSummary(arm="a:cpu:int8", read=7)),
        layers=layers(PLANTED),
        blocks=(),
        rise=find_rise(layers(PLANTED), 1),
        next=command,
    )
    lines = as_plain([render(found, 100, full=True)], 100).splitlines()
    assert lines[0] == "Answer  the error of a:cpu:int8 rises at layer 8 (float-4): 0.019 → 0.59"
    assert [line.strip() for line in lines if "shootout" in line] == [command]
    none = as_plain([render(replace(found, rise=None, next=""), 100, full=True)], 100)
    assert "rises" not in none
    assert "Next" not in none


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ({"inputs": "x.npz", "labels": "y.npz"}, "tune --model m.onnx --batch 2 --threads 1 --inputs x.npz"),
        ({"inputs": "x.npz"}, "sensitivity m.onnx --batch 2 --inputs x.npz --precision int8"),
        ({"inputs": "x.npz", "metric": "iou"}, "sensitivity m.onnx --batch 2 --inputs x.npz --metric iou"),
        ({"truth": "t.npz", "metric": "iou"}, "tune --model m.onnx --batch 2 --threads 1 --truth t.npz"),
        ({"energy": True, "max_error": 0.1}, "sensitivity m.onnx --batch 2 --precision int8"),
    ],
)
def test_what_leads_on_searches_if_rows_are_scored_and_ranks_if_not(
    given: dict[str, Any], command: str, tmp_path: Path
) -> None:
    plain = Arm(target=Target(backend="onnxruntime"), model="m.onnx", batch=2)
    arm = replace(plain, target=Target(backend="onnxruntime", precision=Precision.INT8))
    refused = replace(made.EXACT, relative_l2=0.8, error_bound=9.0, standing="refused")
    lines = [made.prepared(plain), made.prepared(arm), made.played(arm, 0, 1e5, fidelity=refused)]
    header = made.header([plain, arm]).model_copy(update={"given": given})
    _, side = find_sides(made.write(tmp_path / "run", header, *lines), [plain.label, arm.label])
    found = write_search(side)
    assert found.startswith(f"shootout {command}")
    assert ("--max-drop 1" in found) is ("tune" in command)
    mine = replace(side.source.mine, arm=replace(arm, target=Target(backend="numpy")))
    other = replace(side, source=replace(side.source, mine=mine))
    assert write_search(other) == "", "nothing is quantized"


def test_a_search_keeps_each_parameter_and_names_its_own_precision() -> None:
    given = [("--set", "d_model=64"), ("--set", "n_layers=4"), ("--backends", "a:cpu:int8"), ("--scenario", "latency")]
    words = shlex.split(reproduce.search_mix(given, "a", "int8", ("--max-drop", "1pp")))
    told = "--set d_model=64 --set n_layers=4 --backends a --precision int8 --max-drop 1pp"
    assert " ".join(words[2:]) == told
    kept = shlex.split(reproduce.search_mix([*given, ("--max-drop", "2pp")], "a", "int8", ("--max-drop", "1pp")))
    assert kept.count("--max-drop") == 1
