"""A link in a run folder: nothing behind it is read, written or deleted."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.races.made import A, header, played, rounds, write

from shootout.apps.fleet.node_side import zip_folder
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare import merged
from shootout.apps.judge.compare.merged import pack, write_archive
from shootout.apps.tune import search
from shootout.core.errors import UsageError
from shootout.core.journal import folder as run_folder
from shootout.core.journal import journal, samples


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Make a folder outside of the run, with files named as samples are."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("notes.txt", "g0-009.npz", "weights.tmp"):
        (folder / name).write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def begun(folder: Path) -> Path:
    folder.mkdir()
    write(folder, header(), played(A, 0, 1e6), rounds(0))
    return folder


def test_samples_behind_a_link_are_never_removed(tmp_path: Path, theirs: Path):
    out, before = begun(tmp_path / "run"), contents(theirs)
    (out / samples.FOLDER).symlink_to(theirs)
    history = journal.read(out)
    run_folder.drop_unnamed_samples(out, history)
    with run_folder.open_journal(out, history):
        pass
    assert contents(theirs) == before


@pytest.mark.parametrize(
    "name",
    [
        *(samples.FOLDER, "samples/g0-001.tmp", "logs/a.log", "candidate/run"),
        *(journal.NAME, journal.UNPACKING, samples.PACKED, ".lock"),
    ],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_no_run_writes_behind_a_link(tmp_path: Path, theirs: Path, name: str, fresh: bool):
    out, before = begun(tmp_path / "run"), contents(theirs)
    path = out / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(theirs if path.suffix == "" and name != ".lock" else theirs / "notes.txt")
    with (
        pytest.raises(UsageError, match=f"{name}.*is a link"),
        run_folder.open_folder(out, "another plan's", fresh=fresh),
    ):
        raise AssertionError("it was opened")
    assert contents(theirs) == before
    assert path.is_symlink(), "with --fresh, too, nothing was removed"


def test_the_run_folder_itself_may_be_a_link(tmp_path: Path):
    begun(tmp_path / "large-disk")
    (tmp_path / "run").symlink_to(tmp_path / "large-disk")
    run_folder.refuse_links(tmp_path / "run")
    assert analyse(tmp_path / "run").rows


@pytest.mark.parametrize("name", [journal.NAME, journal.PACKED])
@pytest.mark.parametrize("reads", [journal.begun, journal.read, analyse])
def test_a_journal_behind_a_link_is_not_read(tmp_path: Path, name: str, reads: Callable[[Path], object]):
    pack(begun(tmp_path / "run"), tmp_path / "packed")
    source = tmp_path / ("run" if name == journal.NAME else "packed") / name
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / name).symlink_to(source)
    with pytest.raises(UsageError, match=rf"linked/{name} is a link, and a run's journal lies in its own folder: copy"):
        reads(tmp_path / "linked")


def test_nothing_that_is_sent_comes_from_behind_a_link(tmp_path: Path, theirs: Path):
    out = begun(tmp_path / "run")
    (out / "key").symlink_to(theirs / "notes.txt")
    (out / samples.FOLDER).symlink_to(theirs)
    with zipfile.ZipFile(io.BytesIO(zip_folder(out))) as archive:
        assert archive.namelist() == [journal.NAME]
    (out / merged.NAME).symlink_to(theirs / "notes.txt")
    write_archive([out], tmp_path / "run.tar.gz", raw=True)
    assert not merged.is_merged(out)


@pytest.mark.parametrize("name", ["alone", search.RANKING, "alone/samples"])
def test_a_tuning_run_writes_behind_no_link(tmp_path: Path, theirs: Path, name: str):
    path = tmp_path / "tuned" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(theirs)
    with pytest.raises(UsageError, match=f"{name}' is a link"):
        search.with_mixes(None, tmp_path / "tuned", list, fresh=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("inside", [True, False])
def test_a_link_to_readings_is_followed_only_inside_the_folder(tmp_path: Path, inside: bool):
    run, readings = tmp_path / "run", np.array([1.0, 2.0])
    place = run if inside else tmp_path
    run.mkdir()
    samples.write(place, "samples/g0-000.npz", [], [("a", readings)])
    (run / "samples").mkdir(exist_ok=True)
    link = run / "samples" / "g0-001.npz"
    link.symlink_to(place / "samples" / "g0-000.npz")
    found = samples.read(run, "samples/g0-001.npz", "a", samples.SINGLE)
    assert found.tolist() == (readings.tolist() if inside else [])
