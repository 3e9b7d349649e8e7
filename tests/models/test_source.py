"""A user's factory is read without running it: parameters, mistakes, and the source that makes it what it is."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
from support.factories import LINEAR, write

from shootout import models
from shootout.errors import ModelError, UsageError
from shootout.export import client
from shootout.export.client import Request, obtain_all
from shootout.export.request import ExportJob, checked
from shootout.host import environment
from shootout.models.user import factory, source

PARTED = f"from inner.deep import part\n{LINEAR}"


def test_parameters_are_read_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = "raise SystemExit('this was run')\n"
    text = f"{bomb}def make(batch, width=64, rate=-0.5, *, kind='a', deep=True, other=None, more=(1, 2), **rest): ...\n"
    write(tmp_path / "pack/__init__.py", bomb)
    write(tmp_path / "pack/sub/__init__.py", bomb)
    write(tmp_path / "pack/sub/mod.py", text)
    monkeypatch.chdir(tmp_path)
    for name in ("pack.sub.mod:make", "pack/sub/mod.py:make"):
        found = models.get(name)
        assert found.defaults == {"width": 64, "rate": -0.5, "kind": "a", "deep": True}
        assert found.check({"rate": 1, "kind": 3})["rate"] == 1.0
        assert source.signature(source.find(name)).takes_batch
        found = client.check(Request(model=name))
        assert (found.file_bytes, len(found.hashes), found.holds) == (0, 1, ())
    assert source.find("pack.sub.mod:make").root == tmp_path
    assert not {"pack", "pack.sub", "pack.sub.mod", "mod"} & set(sys.modules)


def test_values_of_another_type_than_the_default_are_refused(tmp_path: Path):
    path = write(tmp_path / "m.py", "def make(width=64, deep=True, rate=0.5): ...\n")
    with pytest.raises(UsageError, match="width must be a whole number, as its default 64 is, got 'x'"):
        models.get(f"{path}:make").check({"width": "x"})
    with pytest.raises(UsageError, match="deep must be true or false"):
        models.get(f"{path}:make").check({"deep": 1})
    for endless in (math.inf, -math.inf, math.nan):
        with pytest.raises(UsageError, match=f"rate must be a finite number, got {endless}"):
            models.get(f"{path}:make").check({"rate": endless})
    with pytest.raises(UsageError, match="did you mean 'width'"):
        models.get(f"{path}:make").check({"widht": 1})


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (LINEAR, "none.py:make", "can't find the file"),
        (LINEAR, "m.py:mkae", "unknown function in m.py 'mkae': did you mean 'make'"),
        (f"seed = 1\n{LINEAR}", "m.py:seeed", "known: make"),
        (LINEAR, "m.py", "say which function makes the model, as in m.py:make"),
        ("def make(:\n", "m.py:make", "m.py line 1 isn't Python"),
        ("async def make(): ...\n", "m.py:make", "async"),
        ("def make(width): ...\n", "m.py:make", "needs a value for width"),
        (LINEAR, "nopackage.mod:make", "no module 'nopackage'"),
        (LINEAR, "m.inner:make", "no module 'm.inner' in m"),
        (LINEAR, "no such name:make", "no module"),
    ],
)
def test_what_reading_already_shows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, says: str
):
    write(tmp_path / "m.py", text)
    monkeypatch.chdir(tmp_path)
    assert factory.is_meant(name)
    with pytest.raises(UsageError) as caught:
        client.check(Request(model=name))
    assert says in str(caught.value)


def test_a_change_of_any_source_that_it_imports_is_another_model(tmp_path: Path):
    write(tmp_path / "m.py", PARTED)
    write(tmp_path / "inner/part.py", "A = 1\n")
    first = source.find(f"{tmp_path}/m.py:make").digest()
    write(tmp_path / "data.txt", "not source")
    write(tmp_path / "scratch.py", "from inner import part\n")
    write(tmp_path / "inner/notes.py", "A = 1\n")
    assert source.find(f"{tmp_path}/m.py:make").digest() == first
    write(tmp_path / "inner/part.py", "A = 2\n")
    assert source.find(f"{tmp_path}/m.py:make").digest() != first


@pytest.mark.parametrize(
    "text",
    [
        "# already read: open, load\ndef make(): return net(3)\n",
        "import torch\ndef make(): torch.set_num_threads(1); return net().load_state_dict(weights(seed=3))\n",
        "import torch.nn as nn, math\nfrom numpy import linalg\ndef make(): return nn.Linear(pool=global_pool(3))\n",
        "from part import A\ndef make(): return net(A)\n",
        "from inner import part\nfrom part import A\ndef make(): return net(A)\n",
    ],
)
def test_the_same_source_elsewhere_is_the_same_model_if_it_can_read_nothing(tmp_path: Path, text: str):
    assert len({_digest_in(tmp_path / folder, text) for folder in ("one", "other")}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import sqlite3\ndef make(): return net(sqlite3.connect(DB))\n",
        "from zipfile import ZipFile as Z\ndef make(): return net(Z(W))\n",
        "def make():\n    if 1: from ctypes import CDLL\n    return net(CDLL(SO))\n",
        "import subprocess as s\ndef make(): return net(s.run(CAT))\n",
        "import unknown_library\n",
        "from theirs import weights\n",
        "import h5py, notes\n",
        "def make(): return net(__file__)\n",
        "def make(): return net(globals()['__file__'])\n",
        "import torch\ndef make(): return net(map(torch.load, WEIGHTS))\n",
        "from torch import load as l\ndef make(): return net(l(W))\n",
        "import numpy as np\ndef make(): return net(np.DataSource(), np.genfromtxt(W))\n",
        "import torch\ndef make(): return torch.UntypedStorage.from_file(W)\n",
        "import torch\ndef make(): return torch.os.popen(W)\n",
        "import torch\ndef make(): return getattr(torch, 'load')(W)\n",
        "import torch.hub\n",
        "from part import reads\n",
        "def make(): return net(checkpoint='w.pt')\n",
        "def make(): return net(load_file (WEIGHTS), pool=global_pool(3))\n",
        "def make(): return net(_load_weights(), safe_open(NAME), pkgutil.get_data(NAME))\n",
        "def make(): return net(json.load(open(os.environ['C'])))\n",
        "def make(): return AutoModel.from_pretrained(NAME)\n",
    ],
)
def test_the_same_source_elsewhere_is_another_model_if_it_may_read_data_there(tmp_path: Path, text: str):
    reads = text == "from part import reads\n"
    own = "import h5py as reads\n" if reads else "A = 1\n"
    assert len({_digest_in(tmp_path / folder, text, own) for folder in ("one", "other")}) == 2


def _digest_in(folder: Path, text: str, part: str = "A = 1\n") -> str:
    write(folder / "part.py", part)
    write(folder / "inner/__init__.py", "")
    write(folder / "h5py/notes.py", "A = 1\n")
    return source.find(f"{write(folder / 'm.py', text)}:make").digest()


def test_files_that_are_nobodys_source_stop_nothing(tmp_path: Path):
    place = source.find(f"{write(tmp_path / 'm.py', 'import part, gone, pipe' + chr(10) + LINEAR)}:make")
    first = place.digest()
    (tmp_path / ".#net.py").symlink_to("someone@somewhere.1234")  # an editor's lock
    (tmp_path / "gone.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    for name in (".hidden.py", "inner/.venv/lib/part.py", "inner/site-packages/part.py"):
        write(tmp_path / name, "A = 1\n")
    assert place.digest() == first
    (tmp_path / "m.py").unlink()
    with pytest.raises(UsageError, match="can't read"):
        place.digest()


def test_a_file_that_cannot_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', 'import theirs' + chr(10) + LINEAR)}:make")
    first = place.digest()
    locked, read = write(tmp_path / "theirs.py", "A = 1\n"), Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return read(path)

    assert place.digest() != first
    monkeypatch.setattr(Path, "read_bytes", refuse)  # its mode says nothing to root
    assert place.digest() == first


def test_a_large_tree_counts_as_far_down_as_few_files_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', PARTED)}:make")
    write(tmp_path / "near/part.py", "A = 1\n")
    write(tmp_path / "images/set/part.py", "A = 1\n")
    for index in range(20):
        write(tmp_path / f"images/set/{index:03}.png", "")
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(Path(path).name) or scandir(path))
    monkeypatch.setattr(source, "MOST_ENTRIES", 10)
    first = place.digest()
    write(tmp_path / "images/set/part.py", "A = 2\n")
    assert place.digest() == first
    write(tmp_path / "images/set/deeper/part.py", "A = 1\n")
    assert place.digest() == first
    assert "deeper" not in looked
    write(tmp_path / "near/part.py", "A = 2\n")
    assert place.digest() != first


def test_a_folder_full_of_data_hides_no_source_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', PARTED)}:make")
    for index in range(20):
        write(tmp_path / f"{index:03}.png", "")
        write(tmp_path / f"images/{index:03}/part.py", "")
    monkeypatch.setattr(source, "MOST_IN_FOLDER", 10)
    first = place.digest()
    write(tmp_path / "images/003/part.py", "A = 2\n")
    assert place.digest() == first
    for name in ("part.py", "nets/part.py", "nets/deep/er/part.py"):
        before = place.digest()
        write(tmp_path / name, "A = 1\n")
        assert place.digest() != before


def test_the_source_is_hashed_once_for_all_requests_of_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "m.py", LINEAR)
    monkeypatch.setattr(client, "_make_missing", lambda jobs, *_: {job.key: ModelError("not here") for job in jobs})
    walks: list[Path] = []
    tree = source._list_tree
    monkeypatch.setattr(source, "_list_tree", lambda folder: walks.append(folder) or tree(folder))
    name = f"{tmp_path}/m.py:make"
    obtain_all([Request(model=name)])
    once = len(walks)
    obtain_all([Request(model=name, batch=batch) for batch in range(1, 9)])
    assert len(walks) == 2 * once


def test_another_version_of_what_the_source_imports_is_another_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "import os, yaml.loader as y\nif y:\n    from onnx.helper import make_node\nfrom . import part\n"
    place = source.find(f"{write(tmp_path / 'm.py', text + LINEAR)}:make")
    assert place.imports() == {"os", "yaml", "onnx", "torch"}

    def key() -> str:
        job = checked(Request(model=place.name))
        assert isinstance(job, ExportJob)
        return job.key

    first, version_of = key(), environment.version_of
    monkeypatch.setattr(environment, "version_of", lambda name: "9.9" if name.lower() == "pyyaml" else version_of(name))
    assert key() != first
