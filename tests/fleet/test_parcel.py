"""What nodes are sent is known by its contents, and complete."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.onnx_made import linear, value, write

from shootout.apps.fleet import parcel
from shootout.apps.fleet.parcel import Parcel, pack
from shootout.core.exported.request import Request
from shootout.core.exported.request import checked as checked_request
from shootout.core.study.schema import Study, checked


def study(model: str, **fields: Any) -> Study:
    return checked({"name": "tiny", "targets": ["numpy"], "model": model, **fields})


def packed(**fields: Any) -> Parcel:
    return pack(study(**fields))


def names(sent: Parcel) -> list[str]:
    return sorted(sent.files)


def write_files(sent: Parcel, into: Path) -> Path:
    """The user's files that a node has."""
    for name, one in sent.files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one if isinstance(one, bytes) else one.read_bytes())
    return into


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a package that is nearly empty."""
    monkeypatch.setattr(parcel, "pack_package", lambda: Parcel(package={"shootout/__init__.py": b""}))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_machine_is_not_sent_for_what_only_builds_need_that_are_made_here(monkeypatch: pytest.MonkeyPatch):
    kept = ["ai-edge-litert<3,>=2.3; extra == 'litert'", "torch<2.14,>=2.11; extra == 'torch'"]
    left_out = ["torch<2.14,>=2.11; extra == 'litert'", 'onnx2fx==0.0.1; extra == "executorch"']
    lines = [f"Requires-Dist: {line}" for line in ("numpy>=2", *kept, *left_out)]
    own = SimpleNamespace(version="1.2", read_text=lambda _: "\n".join(["Name: shootout", *lines]))
    monkeypatch.setattr(parcel.metadata, "distribution", lambda _: own)
    sent = parcel.pack_package().package["shootout-1.2.dist-info/METADATA"]
    assert isinstance(sent, bytes)
    assert sent.decode().splitlines() == ["Name: shootout", *lines[:3]]


def test_the_package_is_whole_and_known_by_its_contents():
    one, again = packed(model="identity"), packed(model="identity")
    assert [*one.by_place] == [*again.by_place]
    held = {*one.package}
    assert {
        "shootout/commands/fleet.py",
        "shootout/apps/fleet/node_side.py",
        "shootout/backends/_numpy/__init__.py",
        "shootout/models/zoo/__init__.py",
    } <= held
    assert {"shootout/studies/shootout.toml", "shootout/tell/page/page.html"} <= held
    assert any(name.endswith(".dist-info/METADATA") for name in held)
    assert not any(name.endswith(".pyc") for name in held)


def test_a_file_whose_weights_come_with_its_export_goes_without_them(here: Path):
    weight = np.ones((64, 64), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    file = write(here / "m.onnx", [node], [value("x", ("n", 64))], [value("y", ("n", 64))], {"w": weight})
    whole, sent = packed(model="m.onnx"), pack(study("m.onnx"), weights=False)
    assert sent.fields == whole.fields
    there = write_files(sent, here / "there") / "m.onnx"
    assert there.stat().st_size < 1_000 < weight.nbytes
    job, real = (checked_request(Request(model=str(path))) for path in (there, file))
    assert isinstance(job, Request)
    assert isinstance(real, Request)
    assert replace(job.content, file="", files={}) == replace(real.content, file="", files={})
    write(file, [node], [value("x", ("n", 64))], [value("y", ("n", 64))], {"w": 2 * weight})
    assert pack(study("m.onnx"), weights=False).files != sent.files, "a node goes on with the same weights alone"


def test_a_users_source_goes_with_the_python_of_its_folder_and_nothing_else(here: Path):
    (here / "net.py").write_text("from own import layer\ndef make(): ...\n")
    (here / "own.py").write_text("def layer(): ...\n")
    (here / "secret.env").write_text("PASSWORD=1\n")
    (here / ".secret.py").write_text("PASSWORD = 1\n")
    (here / "rows.py").write_text("def score(outputs, labels): ...\n")
    np.savez(here / "data.npz", x=np.zeros(2))
    sent = packed(model="net.py:make", inputs="data.npz", metric="rows.py:score")
    assert names(sent) == ["data.npz", "net.py", "own.py", "rows.py"]
    assert (sent.fields["model"], sent.fields["inputs"], sent.fields["metric"]) == (
        ["net.py:make"],
        "data.npz",
        "rows.py:score",
    )


def test_a_users_files_go_with_the_function_that_reads_them_and_with_their_truth(here: Path, tmp_path: Path):
    (here / "prep.py").write_text("import crop\ndef load(path): ...\n")
    (here / "crop.py").write_text("")
    images = tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    for name in ("b.png", "sub/a.png", ".thumbs"):
        (images / name).write_text(name)
    linear(here / "net.onnx")
    (here / "truth.npy").write_text("1\n2\n")
    np.save(here / "speaker.npy", np.arange(2))
    words = {"inputs": str(images), "read": "prep.py:load", "truth": "truth.npy", "metric": "mae"}
    words["rows_by"] = "speaker.npy"
    sent = packed(model="net.onnx", **words)
    inputs = sent.fields["inputs"]
    theirs = [f"{inputs}/b.png", f"{inputs}/sub/a.png"]
    assert names(sent) == ["crop.py", "net.onnx", *theirs, "prep.py", "speaker.npy", "truth.npy"]
    assert {**sent.fields, "inputs": str(images)}.items() >= words.items()


def test_what_lies_elsewhere_keeps_its_name_and_not_its_path(here: Path, tmp_path: Path):
    other = tmp_path / "alice"
    other.mkdir()
    (other / "net.py").write_text("import own\ndef make(): ...\n")
    (other / "own.py").write_text("")
    sent = packed(model=f"{other}/net.py:make")
    (model,) = sent.fields["model"]
    assert model.startswith("outside/")
    assert model.endswith("/net.py:make")
    assert [name.rpartition("/")[2] for name in names(sent)] == ["net.py", "own.py"]
    assert "alice" not in "".join(names(sent))


def test_other_contents_are_another_place(here: Path):
    (here / "net.py").write_text("def make(): return 1\n")
    one = [*packed(model="net.py:make").by_place]
    (here / "net.py").write_text("def make(): return 2\n")
    other = [*packed(model="net.py:make").by_place]
    assert (other[0], other[1] == one[1]) == (one[0], False)
