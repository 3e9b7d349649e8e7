"""LiteRT's own traps: what its files say of themselves, kernels outside the delegate, a converter that must be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import onnx
import pytest
from onnx import TensorProto, helper

from shootout.backends import CONVERTER, common_onnx
from shootout.backends._litert import backend, converter, quantize
from shootout.backends._litert.account import LiteRtNode
from shootout.core import backends
from shootout.core.backends import code_of
from shootout.core.contract import Arm, Precision, Target
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.host import store
from shootout.core.host.folders import NAME
from shootout.core.host.placement import passed_on
from shootout.core.schemes import parse
from shootout.models.onnx.layers import layers_of
from shootout.tell import cache_limit


@pytest.fixture
def missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without the converter, and an empty cache."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(converter, "MODULES", ("no_such_converter",))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return store.cache_folder().parent


def test_the_converter_is_installed_once_and_says_so(missing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def install(command: list[str], **_: Any) -> None:
        asked.append(command)
        folder = Path(command[command.index("--target") + 1])
        folder.mkdir()
        (folder / "no_such_converter.py").write_bytes(b"#" * 2_000_000)

    monkeypatch.setattr(subprocess, "run", install)
    monkeypatch.setattr(os, "sync", lambda: None)
    first, second = converter.require_converter(), converter.require_converter()
    assert first.startswith("LiteRT's converter was installed into the cache once: 2 MB, ")
    assert second == ""
    (command,) = asked
    assert "--no-deps" in command
    assert command[-len(converter.pins()) :] == converter.pins()
    (folder,) = (path for path in missing.iterdir() if path.is_dir() and path.name != "exported")
    assert [(one.kind, one.path) for one in cache_limit.kept()] == [("converters", folder)]
    assert Path(command[command.index("--target") + 1]).parent.name.startswith(NAME), "a killed one's is swept"
    assert list((missing / "exported").iterdir()) == []


def test_what_conversions_are_forked_from_installs_no_converter(missing: Path) -> None:
    assert not converter.find_converter()
    assert not list(missing.glob(f"{CONVERTER}*"))
    folder = missing / f"{CONVERTER}{converter._hash_pins()}"
    folder.mkdir()
    assert converter.find_converter()
    assert sys.path[-1] == str(folder)


def test_a_converter_that_is_used_is_not_the_first_to_go(missing: Path) -> None:
    folder = missing / f"{CONVERTER}{converter._hash_pins()}"
    folder.mkdir()
    os.utime(folder, (1, 1))
    converter.require_converter()
    assert folder.stat().st_mtime > 1


def test_pip_is_told_how_to_reach_an_index_and_whether_it_may() -> None:
    told = ("PIP_NO_INDEX", "PIP_INDEX_URL", "HTTPS_PROXY", "no_proxy", "REQUESTS_CA_BUNDLE")
    own = dict.fromkeys((*told, "AWS_PROFILE"), "1")
    assert set(passed_on(own, backends.capabilities("litert").variables)) == {*told}
    assert not passed_on(own, backends.capabilities("numpy").variables)


def test_without_a_network_the_arm_is_a_skip_with_the_command(missing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="WARNING: trying again\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(SkippedArm) as caught:
        converter.require_converter()
    assert caught.value.why.kind is NotRunKind.NOT_INSTALLED
    assert caught.value.reason.endswith("pip could not get it: ERROR: no network")
    assert caught.value.fix == f"pip install --no-deps {' '.join(converter.pins())}"
    assert [path for path in missing.iterdir() if path.is_dir() and path.name != "exported"] == []
    assert cache_limit.kept() == []


def test_another_converter_makes_another_build() -> None:
    assert converter.PINS.resolve() in {path.resolve() for path in code_of(backends.get("litert"))}


def test_a_quantizer_that_takes_no_product_is_refused_with_what_runs_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "float").write_bytes(b"a file")
    monkeypatch.setattr(backend, "convert", lambda _: (tmp_path / "float", []))
    monkeypatch.setattr(backend, "quantize", lambda *_: b"another")
    monkeypatch.setattr(backend, "survey", lambda _: {"compute_nodes_by_precision": {"fp32": 3}})
    arm = Arm(target=Target(backend="litert", precision=Precision.INT8), model="m")
    with pytest.raises(ValueError, match=r"nothing to quantize: AI Edge Quantizer takes .* products \(3 in fp32\)"):
        backends.get("litert").build(Mock(), arm, tmp_path)


@pytest.mark.parametrize(
    ("widths", "told"),
    [
        ((6, 8), ""),
        ((8, 6), "layer 0 first is MatMul with weights [4, 6], and in its place the converter has FULLY_CONNECTED"),
        ((6,), "the converter makes 1 products of 2 layers"),
    ],
)
def test_a_layer_has_the_weights_of_its_place_or_none_is_left_in_float(
    widths: tuple[int, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [helper.make_node("MatMul", ["x", name], [name.upper()], name=name) for name in ("first", "second")]
    stored = [
        helper.make_tensor(name, TensorProto.FLOAT, [4, width], [0.0] * 4 * width)
        for name, width in (("first", 6), ("second", 8))
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, width])
        for name, width in (("x", 4), ("FIRST", 6), ("SECOND", 8))
    ]
    file = helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:], stored))
    onnx.save(file, tmp_path / "model.onnx")
    products = [
        LiteRtNode("FULLY_CONNECTED", (), (), ((2, 4), (width, 4), (2, width)), (), False, False, name=f"of {width}")
        for width in widths
    ]
    monkeypatch.setattr(quantize, "list_products", lambda _: products)
    monkeypatch.setattr(common_onnx, "layers_in", lambda _: layers_of(file))
    exported: Any = Mock(path=lambda _: tmp_path / "model.onnx")
    if not told:
        assert quantize._find_floats(tmp_path, exported, parse("float-1")) == [r"^of\ 8;"]
        return
    with pytest.raises(SkippedArm) as caught:
        quantize._find_floats(tmp_path, exported, parse("float-1"))
    assert caught.value.reason.startswith(told)


def test_a_weight_whose_scales_have_another_rank_is_skipped_in_one_line():
    with pytest.raises(SkippedArm, match="can't quantize a reshaped weight of this model: Ranks of scales"):  # noqa: SIM117
        with quantize._explaining_ranks():
            raise ValueError("Ranks of scales (3) and zps (3) must be the same as\nthe tensor rank (2).")
    with pytest.raises(ValueError, match="another fault"), quantize._explaining_ranks():
        raise ValueError("another fault")
