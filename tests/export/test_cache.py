"""Exported models by what they are made from: damaged ones, keys, and the folder they lie in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file
from support.exports import obtain
from support.imported import modules_outside
from support.onnx_made import linear
from support.programs import forked

import shootout
from shootout.backends._trees.backend import write_sklearn
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported import client, request
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel, open_exported
from shootout.core.exported.request import checked, find_source
from shootout.core.host import store
from shootout.core.host.store import sealed
from shootout.models.sources import trees, user_data


def flip(path: Path) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit(folder: Path, **facts: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


DAMAGE = {
    "changed": lambda folder: flip(folder / "inputs.npz"),
    "missing": lambda folder: (folder / "reference.npz").unlink(),
    "foreign": lambda folder: (folder / "model.onnx.data").write_text("x"),
    "torn manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text("null"),
    "loosened error bound": lambda folder: edit(folder, error_bounds={"fp32": 0.5, "fp16": 0.5}),
    "other version": lambda folder: (folder / "manifest.json").write_text(sealed({"schema": 99})),
}


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_exported_is_refused_and_made_again(damage: str):
    exported = obtain("identity", {}, 3)
    DAMAGE[damage](exported.folder)
    with pytest.raises(ModelError):
        open_exported(exported.folder)
    said = list[str]()
    (again,) = obtain_all([Request(model="identity", batch=3)], SimpleNamespace(say=said.append, detail=print))
    assert isinstance(again, ExportedModel)
    assert again.key == exported.key
    assert said[0].startswith(str(exported.folder))
    assert said[0].endswith(": it is made again")
    assert len(said) == 1
    assert open_exported(again.folder) == again
    assert [entry.name for entry in exported.folder.parent.iterdir()] == [exported.key]


@pytest.mark.usefixtures("own_cache")
def test_a_exported_under_another_key_is_not_believed():
    exported = obtain("identity", {}, 3)
    other = exported.folder.with_name("0" * 64)
    exported.folder.rename(other)
    assert client.lookup(other.name) is None


def test_the_key_follows_all_that_matters(monkeypatch: pytest.MonkeyPatch):
    def key(**changes: Any) -> str:
        return Request(**{"model": "residual_mlp", "parameters": {"seed": 0}, **changes}).keyed().key

    same = key()
    assert key() == same
    others = [key(parameters={"seed": 1}), key(batch=2), key(model="digits")]
    monkeypatch.setattr(request, "version_of", lambda _: "9.9")
    others.append(key())
    monkeypatch.setattr(request, "_hash_files", lambda _: "other code")
    others.append(key())
    assert len({same, *others}) == 6


def test_the_key_covers_every_module_that_makes_a_exported():
    found = forked(modules_outside, set(find_source("digits").code()))
    assert found == [], "of core only words, shapes and the exported model itself decide what is made"


def test_each_pattern_of_sources_finds_files():
    package = Path(shootout.__file__).parent
    patterns = (*(f"core/{one}" for one in request.CORE), *user_data.CODE)
    assert [pattern for pattern in patterns if not any(package.glob(pattern))] == []


GOOD = np.random.default_rng(3).random((3, 2, 64)).astype(np.float32)


def test_the_key_follows_the_calibration_data_and_the_variant(tmp_path: Path):
    def key(**more: Any) -> str:
        job = checked(Request(model="digits", **more))
        assert isinstance(job, Request), job
        return job.key

    path = tmp_path / "mine.npz"
    keys = [key(), key(calibration_npz=path)]
    for sets in (GOOD, GOOD * 2):
        np.savez(path, x=sets)
        keys.append(key(calibration_npz=path))
    keys += [key(variant=one) for one in ("shared", "shared+float-0", "shared+float-1")]
    keys.append(key(variant="shared", calibration_npz=path))
    assert len(set(keys)) == len(keys) == 8
    assert key() == keys[0]


def test_a_full_disk_is_an_error_and_leaves_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shootout.core.host.folders.tempfile.mkdtemp", full)
    with pytest.raises(UsageError, match="No space left on device; make room there, or set SHOOTOUT_CACHE"):
        obtain("identity", {}, 1)
    assert list((own_cache / "exported").iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"can't write the cache folder .*file/exported.*set SHOOTOUT_CACHE"):
        obtain("identity", {}, 1)


def test_a_cache_that_others_can_write_is_refused(own_cache: Path):
    folder = own_cache / "exported"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="others can write the cache folder"):
        obtain("identity", {}, 1)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SHOOTOUT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert store.cache_folder() == tmp_path / "home" / ".cache" / "shootout" / "exported"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.cache_folder() == tmp_path / "xdg" / "shootout" / "exported"
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "own"))
    assert store.cache_folder() == tmp_path / "own" / "exported"


NET = """import torch

from part import width

def make():
    return torch.nn.Linear(4, width()), torch.arange(4.0)[None]
"""
BERT = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "vocab_size": 20}


def write_models(folder: Path) -> list[str]:
    """A file, one with its weights beside it, a factory with an import, a transformers folder."""
    folder.mkdir()
    beside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load(linear(folder / "m.onnx")), folder / "apart.onnx", **beside)
    (folder / "part.py").write_text("def width():\n    return 3\n")
    (folder / "net.py").write_text(NET)
    hub = folder / "hub"
    hub.mkdir()
    (hub / "config.json").write_text(json.dumps(BERT))
    save_file({"w": np.ones(3, np.float32)}, hub / "model.safetensors")
    return [str(folder / "m.onnx"), str(folder / "apart.onnx"), f"{folder}/net.py:make", str(hub)]


def keys_of(names: list[str], **asked: Any) -> list[str]:
    jobs = [checked(Request(model=name, **asked)) for name in names]
    assert all(isinstance(job, Request) for job in jobs), jobs
    return [job.key for job in jobs if isinstance(job, Request)]


def test_the_key_is_that_of_the_contents_wherever_files_lie_that_read_no_others(tmp_path: Path):
    names = write_models(tmp_path / "one")
    keys = keys_of(names)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    others = [name.replace(f"{tmp_path}/one", f"{tmp_path}/other") for name in names]
    assert others != names
    same = [one == other for one, other in zip(keys_of(others), keys, strict=True)]
    assert same == [True, True, False, True], "a factory may read other data there"
    weights = bytearray((tmp_path / "other/w.bin").read_bytes())
    weights[0] ^= 1
    (tmp_path / "other/w.bin").write_bytes(weights)
    (tmp_path / "other/part.py").write_text("def width():\n    return 4\n")
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "other/hub/model.safetensors")
    assert [one == other for one, other in zip(keys_of(others), keys, strict=True)] == [True, False, False, False]


@pytest.mark.long
def test_a_converted_file_has_its_key_in_any_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    forest, other = write_sklearn(tmp_path), tmp_path / "other"
    other.mkdir()
    found = []
    for cache_of, path in (("one", forest), ("cold", Path(shutil.copy(forest, other)))):
        monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / cache_of))
        found += keys_of([trees.Trees().convert(str(path))])
    assert found[0] == found[1]
