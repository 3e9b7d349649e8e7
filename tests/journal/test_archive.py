"""`shootout pack`: one archive of several runs, which opens to folders that every reader takes."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from support.console import here
from support.races.made import A, B, ended, played, rounds, write

from shootout.apps.judge.compare.merged import write_archive
from shootout.core.journal import journal, samples

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def run(folder: Path) -> Path:
    facts = [line for g in range(4) for line in (played(A, g, 1.0), played(B, g, 2.0), rounds(g))]
    write(folder, *facts, ended())
    (folder / "logs").mkdir()
    (folder / "logs" / "b.log").write_text("what a process printed")
    return folder


def opened(file: Path, into: Path) -> Path:
    with tarfile.open(file) as archive:
        archive.extractall(into, filter="data")
    return into


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_runs_of_one_name_have_a_folder_each_which_show_and_merge_and_decide_read(tmp_path: Path):
    for place, name in (("laptop", "shootout"), ("server", "shootout-intel")):
        shutil.copytree(REFERENCE / name, tmp_path / place / "today")
    told = here("pack", "laptop/today", "server/today", "-o", "both.tar.gz", cwd=tmp_path)
    assert (told.code, told.out) == (0, "")
    assert told.err.startswith("both.tar.gz: ")
    folder = opened(tmp_path / "both.tar.gz", tmp_path / "there")
    assert files(folder) == [f"today-2/{journal.PACKED}", f"today/{journal.PACKED}"]
    for words in (("show", "today"), ("decide", "today-2"), ("merge", "today", "today-2")):
        read = here(*words, cwd=folder)
        assert read.code == 0, read.err
        assert "onnxruntime" in read.out


def test_samples_come_with_raw_alone(tmp_path: Path):
    write_archive([REFERENCE / "shootout"], tmp_path / "a.tar.gz", raw=False)
    write_archive([REFERENCE / "shootout"], tmp_path / "b.tar.gz", raw=True)
    assert files(opened(tmp_path / "a.tar.gz", tmp_path / "a")) == [f"shootout/{journal.PACKED}"]
    whole = opened(tmp_path / "b.tar.gz", tmp_path / "b") / "shootout"
    for name in (journal.PACKED, samples.PACKED):
        assert (whole / name).read_bytes() == (REFERENCE / "shootout" / name).read_bytes()


def test_no_owner_is_named(tmp_path: Path):
    write_archive([run(tmp_path / "one")], tmp_path / "a.tar.gz", raw=True)
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in archive} == {(0, 0, "", "")}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("one", "empty", "-o", "a.tar.gz"), "no run to pack in 'empty'; name a folder made by"),
        (("nowhere", "-o", "a.tar.gz"), "no run to pack in 'nowhere'"),
        (("one/journal.jsonl", "-o", "a.tar.gz"), "no run to pack in 'one/journal.jsonl'"),
        (("one", "-o", "a.zip"), "'a.zip' is no name for an archive; choose one that ends in .tar.gz"),
        (("one", "-o", "one/journal.jsonl/a.tar.gz"), "can't be written: "),
        (("strange", "-o", "a.tar.gz"), "strange"),
    ],
)
def test_what_is_no_run_is_refused_and_nothing_is_written(tmp_path: Path, words: tuple[str, ...], told: str):
    run(tmp_path / "one")
    (tmp_path / "empty").mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / journal.NAME).write_text('{"kind":"a list of passwords"}\n')
    ended_with = here("pack", *words, cwd=tmp_path)
    assert ended_with.code == 2
    assert told in ended_with.err
    assert not [*tmp_path.glob("*.tar.gz*"), *tmp_path.glob("*.zip*")]
