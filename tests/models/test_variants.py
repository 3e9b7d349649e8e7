"""A folder of ONNX files: which one the others are held to, what is refused at once, and what becomes a skipped row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.console import deaf_here, here
from support.onnx_made import WEIGHT, half, linear, quantized, value, write

from shootout.commands import selection
from shootout.core.errors import ModelError, ShootoutError, UsageError
from shootout.core.exported.request import find_source
from shootout.core.study.plan import make_plan
from shootout.models.sources.hfconfig import TransformersConfig
from shootout.models.sources.variants import Variants

SUMMED = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceSum", ["m"], ["y"], keepdims=0)]


def choose(folder: Path) -> list[str]:
    """The names of the files that a study of a folder races, in their order."""
    return [Path(str(word)).name for word in selection.choose(f"{folder}/", {}).model]


def break_off(path: Path, whole: Path) -> Path:
    path.write_bytes(whole.read_bytes()[:-40])
    return path


def test_the_plain_file_comes_first_and_a_broken_one_stays_for_its_row(tmp_path: Path):
    quantized(tmp_path / "a_int8.onnx")
    break_off(tmp_path / "b.onnx", half(tmp_path / "model_fp16.onnx"))
    linear(tmp_path / "large.onnx", ("batch", 4), name="longer_name_of_x")
    linear(tmp_path / "model.onnx")
    (tmp_path / "model.onnx.txt").write_text("no model")
    assert choose(tmp_path) == ["model.onnx", "a_int8.onnx", "b.onnx", "large.onnx", "model_fp16.onnx"]


@pytest.mark.parametrize("usual", ["half", "none"])
def test_else_the_largest_file_in_float32_does_with_its_weights_beside_it(tmp_path: Path, usual: str):
    linear(tmp_path / "inside.onnx")
    model = onnx.load(linear(tmp_path / "outside.onnx"))
    place = tmp_path / "outside.onnx"
    onnx.save(model, place, save_as_external_data=True, location="outside.onnx_data", size_threshold=0)
    assert place.stat().st_size < (tmp_path / "inside.onnx").stat().st_size + 100
    with (tmp_path / "outside.onnx_data").open("ab") as data:
        data.write(bytes(10_000))
    others = ["inside.onnx"]
    if usual == "half":
        half(tmp_path / "model.onnx")
        others = ["model.onnx", *others]
    assert choose(tmp_path) == ["outside.onnx", *others]


def test_a_hub_folder_is_its_files_unless_it_has_weights(tmp_path: Path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    linear(tmp_path / "onnx" / "model.onnx")
    half(tmp_path / "onnx" / "model_fp16.onnx")
    linear(tmp_path / "model.onnx")
    assert isinstance(find_source(str(tmp_path)), Variants)
    found = find_source(str(tmp_path)).spread(str(tmp_path))
    assert found == tuple(str(tmp_path / "onnx" / name) for name in ("model.onnx", "model_fp16.onnx"))
    with pytest.raises(UsageError, match=r"has 2 ONNX files, which `shootout run` races .*name one here, such as"):
        find_source(str(tmp_path)).model(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert isinstance(find_source(str(tmp_path)), TransformersConfig)


def parts(folder: Path) -> None:
    linear(folder / "encoder_model.onnx")
    linear(folder / "decoder_model.onnx", name="encoded")
    quantized(folder / "encoder_model_int8.onnx")


def broken(folder: Path) -> None:
    break_off(folder / "model.onnx", linear(folder / "other.onnx"))


def lossy(folder: Path) -> None:
    half(folder / "model_fp16.onnx")
    quantized(folder / "model_int8.onnx")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (parts, r"parts of a model have: decoder_model\.onnx and encoder_model\.onnx; name one, as in shootout run "),
        (broken, r"^model\.onnx is not an ONNX model, or is cut short"),
        (lossy, r"no file in float32 .* only model_\w+\.onnx \(\w+\), model_\w+\.onnx \(\w+\): add it, or name the f"),
        (lambda folder: None, r"a folder without an \.onnx file or a config\.json, it has nothing: name the folder"),
        (lambda folder: (folder / "a.bin").touch(), r"it has a\.bin: name the folder that has one"),
    ],
)
def test_what_has_no_reference_is_refused_in_one_sentence(tmp_path: Path, make: Any, says: str):
    make(tmp_path)
    with pytest.raises(ShootoutError, match=says) as refused:
        choose(tmp_path)
    assert isinstance(refused.value, UsageError | ModelError)
    assert "\n" not in str(refused.value)


def test_files_that_cant_race_the_reference_are_skipped_rows_with_their_reasons(tmp_path: Path):
    break_off(tmp_path / "cut.onnx", linear(tmp_path / "model.onnx"))
    linear(tmp_path / "named.onnx", name="z")
    half(tmp_path / "half.onnx")
    plan = make_plan(selection.choose(f"{tmp_path}/", {"backends": ["onnxruntime"]}))
    (group,) = plan.groups
    assert [arm.label for arm in group.playing if not arm.control] == [
        "onnxruntime:cpu:fp32",
        "onnxruntime:cpu:native(half.onnx)",
    ]
    reasons = {label.partition("(")[2]: why.reason for label, why in group.skips.items()}
    assert reasons["cut.onnx)"].startswith("cut.onnx is not an ONNX model, or is cut short")
    assert reasons["named.onnx)"].startswith("named.onnx can't race model.onnx, it has other inputs: z float32")


@pytest.mark.long
def test_a_folder_is_raced_scored_and_shipped_by_file(tmp_path: Path):
    """One file has other outputs, one an operator that no runtime has: their rows fail, and the others have times."""
    folder = tmp_path / "onnx"
    folder.mkdir()
    linear(folder / "model.onnx")
    half(folder / "model_fp16.onnx")
    quantized(folder / "model_int8.onnx")
    made_up = [helper.make_node("Magic", ["x", "w"], ["y"], domain="com.acme")]
    ends = ([value("x", ("batch", 4))], [value("y", ("batch", 3))])
    model = onnx.load(write(folder / "magic.onnx", made_up, *ends, {"w": WEIGHT}))
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    onnx.save(model, folder / "magic.onnx")
    write(folder / "summed.onnx", SUMMED, ends[0], [value("y", ())], {"w": WEIGHT})
    rows = np.random.default_rng(1).standard_normal((400, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=rows, labels=(rows @ WEIGHT).argmax(1))
    done = deaf_here(
        *("run", "./onnx/", "--inputs", "x.npz", "--backends", "onnxruntime", "--out", "r", "--json"), cwd=tmp_path
    )
    rows_by_file = {row["file"]: row for row in done.data["rows"]}
    outcomes = {file: row["outcome"] for file, row in rows_by_file.items()}
    assert outcomes == {
        **dict.fromkeys(("", "model_fp16.onnx", "model_int8.onnx"), "measured"),
        **dict.fromkeys(("magic.onnx", "summed.onnx"), "failed"),
    }
    assert "ONNX Runtime has no operator com.acme:Magic, which magic.onnx needs" in rows_by_file["magic.onnx"]["reason"]
    metric = rows_by_file["model_int8.onnx"]["fidelity"]["metric"]
    assert (metric["name"], metric["value"] > 0.8) == ("accuracy", True), "of the labels, by the file itself"
    ship = ("ship", "r", "--target", "onnxruntime:cpu:native(model_fp16.onnx)", "-o", "shipped")
    assert here(*ship, cwd=tmp_path).code == 0
    manifest = json.loads((tmp_path / "shipped" / "manifest.json").read_text())
    assert manifest["model"]["name"] == "model_fp16.onnx"
    told = here("show", "r", cwd=tmp_path).out
    assert "runs model.onnx" in told
    assert "model.onnx (the reference) and 4 other files" in told
    assert "onnxruntime(magic.onnx): failed: no reference outputs: ONNX Runtime has no operator com.acme:Magic" in told
