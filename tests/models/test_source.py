"""A user's factory is read without running it: parameters, mistakes, and the source that makes it what it is."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
from support.factories import LINEAR, write

from shootout import models
from shootout.core.errors import UsageError
from shootout.core.exported import client
from shootout.core.exported.client import Request
from shootout.core.exported.request import checked, is_own
from shootout.core.host import environment
from shootout.models import source
from shootout.models.sources import own


def test_parameters_are_read_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = "raise SystemExit('this was run')\n"
    text = f"{bomb}def make(batch, width=64, rate=-0.5, *, kind='a', deep=True, other=None, more=(1, 2), **rest): ...\n"
    write(tmp_path / "pack/__init__.py", bomb)
    write(tmp_path / "pack/sub/__init__.py", bomb)
    write(tmp_path / "pack/sub/mod.py", text)
    monkeypatch.chdir(tmp_path)
    name = "pack/sub/mod.py:make"
    found = models.get(name)
    assert found.defaults == {"width": 64, "rate": -0.5, "kind": "a", "deep": True}
    assert found.check({"rate": 1, "kind": 3})["rate"] == 1.0
    assert source.signature(place := source.find(name)).takes_batch
    checked_ = client.check(Request(model=name))
    assert (checked_.content.file, len(checked_.content.hashes)) == ("", 1)
    assert (place.root, place.tree, place.module) == (tmp_path, tmp_path / "pack", "pack.sub.mod")
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
        (LINEAR, "package.mod:make", "'package.mod:make' names no function of a file: give file.py:function"),
    ],
)
def test_what_reading_already_shows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, says: str
):
    write(tmp_path / "m.py", text)
    monkeypatch.chdir(tmp_path)
    assert is_own(name)
    with pytest.raises(UsageError) as caught:
        client.check(Request(model=name))
    assert says in str(caught.value)


def test_a_change_of_any_source_in_its_folder_is_another_model(tmp_path: Path):
    write(tmp_path / "m.py", LINEAR)
    write(tmp_path / "inner/part.py", "A = 1\n")
    digests = [source.find(f"{tmp_path}/m.py:make").digest()]
    write(tmp_path / "data.txt", "not source")
    assert source.find(f"{tmp_path}/m.py:make").digest() == digests[0]
    for name, text in (("inner/part.py", "A = 2\n"), ("scratch.py", "A = 1\n"), ("inner/deep/notes.py", "A = 1\n")):
        write(tmp_path / name, text)
        digests.append(source.find(f"{tmp_path}/m.py:make").digest())
    assert len({*digests}) == 4


def test_files_that_are_nobodys_source_stop_nothing(tmp_path: Path):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
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


def test_a_folder_full_of_data_hides_no_source_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
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


def test_another_version_of_any_package_is_another_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")

    def key() -> str:
        job = checked(Request(model=place.name))
        assert isinstance(job, Request)
        return job.key

    first, installed = key(), environment.installed()
    monkeypatch.setattr(own, "installed", lambda: {**installed, "timm": "9.9"})
    assert key() != first
