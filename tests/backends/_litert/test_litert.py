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

from shootout.backends import common_onnx
from shootout.backends._litert import converter, quantize
from shootout.backends._litert.account import LiteRtNode
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.host import store
from shootout.core.host.folders import NAME
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
        LiteRtNode("FULLY_CONNECTED", (), (), ((2, 4), (width, 4), (2, width)), (), False, name=f"of {width}")
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
