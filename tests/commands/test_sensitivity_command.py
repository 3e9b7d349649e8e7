"""`shootout sensitivity` as a command: its screen, its JSON, its figure, and what it refuses."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support import onnx_made
from support.console import here

from shootout.apps.sensitivity import MOST_LINES, LayerSensitivity, PrecisionSensitivity, render
from shootout.commands.layers import as_data
from shootout.core.contract import Precision
from shootout.models.onnx.layers import Layer


def layer(number: int) -> Layer:
    return Layer(
        number=number, name=f"body.{number}.fc", operator="Gemm", node="", output="", weight="", block=f"body.{number}"
    )


def part(number: int, sqnr_db: float, **more: Any) -> LayerSensitivity:
    one = layer(number)
    return LayerSensitivity(name=one.name, layers=(one,), sqnr_db=sqnr_db, weight_bytes=64, flops_share=0.1, **more)


def precision(*parts: LayerSensitivity, name: Precision = Precision.INT8, **more: Any) -> PrecisionSensitivity:
    whole = more.pop("whole", part(9, 20.0))
    return PrecisionSensitivity(precision=name, by="layer", parts=parts, whole=whole, **more)


def screen(found: PrecisionSensitivity, columns: int = 140) -> str:
    console = Console(width=columns)
    with console.capture() as shown:
        console.print(render(found, "net, batch 1", columns))
    return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines())


WORST = part(3, 21.0, noise_share=0.81, weights_db=40.0, activations_db=21.1)
NAMED = replace(part(4, 0.7), name="8", layers=(replace(layer(4), name="8"),))
MANY = [part(number, 20.0 + number, noise_share=0.01) for number in range(MOST_LINES + 5)]
SCREENS = {
    "the answer comes first and says what it is worth": precision(
        WORST, part(0, 30.0, noise_share=0.19), without_worst=part(0, 29.5)
    ),
    "a layer named by a number isn't taken for its place": precision(NAMED, part(8, 40.0), without_worst=part(0, 35.7)),
    "no scheme leaves a layer of BF16 in float": precision(NAMED, name=Precision.BF16),
    "what a long table leaves out is counted": precision(*MANY),
    "--max-time left no time for some layers": precision(part(0, 21.0), unmeasured=3),
    "no error": precision(part(0, math.inf), part(1, math.inf), whole=part(9, math.inf)),
}


def test_its_screens_are_those_that_are_kept():
    text = "".join(f"== {name}\n{screen(found)}\n" for name, found in SCREENS.items())
    kept = Path(__file__).parent / "sensitivity.txt"
    if os.environ.get("SCREENS") == "write":
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "read the difference, then write it with SCREENS=write"


def test_no_error_and_no_number_are_told_apart():
    one, other = (as_data(precision(part(0, db)), "net")["parts"][0] for db in (math.inf, -math.inf))
    assert (one["sqnr_db"], one["is_exact"], one["is_finite"]) == (None, True, True)
    assert (other["sqnr_db"], other["is_exact"], other["is_finite"]) == (None, False, False)


def test_json_has_every_layer(tmp_path: Path):
    done = here("sensitivity", "digits", "--precision", "bf16", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert (done.data["model"], done.data["precision"]) == ("digits, batch 1", "bf16")
    assert {found["layers"][0]["number"] for found in done.data["parts"]} == {0, 1, 2}
    assert all(found["weights_db"] and found["activations_db"] for found in done.data["parts"])
    assert math.fsum(found["noise_share"] for found in done.data["parts"]) == pytest.approx(1)


def test_one_of_several_files_is_to_be_named(tmp_path: Path):
    onnx_made.linear(tmp_path / "model.onnx")
    onnx_made.linear(tmp_path / "other.onnx")
    done = here("sensitivity", "./", cwd=tmp_path)
    assert (done.code, "looks at one model at a time: name one file, such as model.onnx" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--precision", "int5"], "unknown precision in --precision 'int5': did you mean 'int8'?"),
        (["--by", "stage"], "unknown part in --by 'stage': known: block, layer"),
        (["--batch", "1,2"], "sensitivity looks at one model at a time: give one value for each --set, got 2 models"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_made(words: list[str], says: str, tmp_path: Path):
    done = here("sensitivity", "digits", *words, cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "rounding" not in done.err
