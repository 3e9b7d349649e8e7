"""A packed run shows what the run shows, in two small files, and goes on like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.races.made import A, B, ended, played, rounds, write

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import pack
from shootout.core.contract import Array
from shootout.core.errors import UsageError
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import Journal
from shootout.core.journal.samples import Samples
from shootout.core.messages import SCOPES, Scope, Turn

CALLS = {"end_to_end": 1, "compute": 3}
GENERATOR = np.random.default_rng(0)


def add_samples(folder: Path, restart: int, latency_ns: dict[Scope, Array]) -> None:
    turns = [Turn(latency_ns=latency_ns)] * 2
    samples.write(folder, f"samples/g0-{restart:03}.npz", [(A.label, turns), (B.label, turns)])


def whole_ns(count: int) -> dict[Scope, Array]:
    """Whole nanoseconds, shared by the calls of a reading."""
    return {scope: GENERATOR.integers(900, 1_100, count) / CALLS[scope] for scope in SCOPES}


def computed_ns(count: int) -> dict[Scope, Array]:
    return {scope: GENERATOR.uniform(900, 1_100, count) for scope in SCOPES}


def run(folder: Path, *, complete: bool = True, latencies=whole_ns) -> Path:
    restarts = [
        (played(A, g, 1.0, per_reading=CALLS), played(B, g, 2.0, per_reading=CALLS), rounds(g)) for g in range(4)
    ]
    write(folder, *(line for lines in restarts for line in lines), ended(complete=complete))
    for restart in range(4):
        add_samples(folder, restart, latencies(200))
    return folder


@pytest.mark.parametrize("latencies", [whole_ns, computed_ns])
def test_a_packed_run_shows_the_same_in_two_small_files(tmp_path: Path, latencies):
    whole, small = run(tmp_path / "whole", latencies=latencies), tmp_path / "small"
    pack(whole, small)
    assert sorted(path.name for path in small.iterdir()) == [journal.PACKED, samples.PACKED]
    before = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in small.iterdir()) < before
    one, other = analyse(whole), analyse(small)
    assert one.rows[1].end_to_end.samples == 1_600
    assert one.rows[1].end_to_end.p99_ns is not None
    assert one.model_copy(update={"run": ""}) == other.model_copy(update={"run": ""})


@pytest.mark.parametrize("latencies", [whole_ns, computed_ns])
def test_every_reading_is_there_to_the_last_bit(tmp_path: Path, latencies):
    whole, small = run(tmp_path / "whole", latencies=latencies), tmp_path / "small"
    pack(whole, small)
    for scope in SCOPES:
        files = {restart: f"samples/g0-{restart:03}.npz" for restart in range(4)}
        right = Samples(whole).of("identity, batch 1", B.label, scope, files)
        found = Samples(small).of("identity, batch 1", B.label, scope, files)
        assert list(found) == list(right) == [0, 1, 2, 3]
        assert all(np.array_equal(found[restart], np.sort(right[restart])) for restart in right)


def test_an_unfinished_run_goes_on_from_its_packed_form(tmp_path: Path):
    whole, small = run(tmp_path / "whole", complete=False), tmp_path / "small"
    pack(whole, small)
    file = Journal(small, journal.read(small).sound_bytes)
    file.append(played(A, 4, 1.0, per_reading=CALLS), played(B, 4, 2.0, per_reading=CALLS), rounds(4))
    file.close()
    add_samples(small, 4, whole_ns(200))
    assert not (small / journal.PACKED).exists()
    timing = analyse(small).rows[1].end_to_end
    assert timing.restarts == 5
    assert timing.samples == 2_000
    assert timing.p99_low_ns is not None
    assert analyse(small).warnings == ()
    later = small / "samples/g0-004.npz"
    later.rename(tmp_path / "gone")
    assert analyse(small).warnings[0].startswith("samples/g0-004.npz is gone or damaged")
    (tmp_path / "gone").rename(later)
    pack(small, tmp_path / "smaller")
    assert analyse(tmp_path / "smaller").model_copy(update={"run": ""}) == analyse(small).model_copy(update={"run": ""})
    assert not (tmp_path / "smaller" / journal.NAME).exists()


def test_all_stages_of_a_tuning_run_are_packed(tmp_path: Path):
    (tmp_path / "tune").mkdir()
    run(tmp_path / "tune" / "alone")
    run(tmp_path / "tune" / "confirmed")
    pack(tmp_path / "tune", tmp_path / "small")
    assert {path.relative_to(tmp_path / "small").as_posix() for path in tmp_path.glob("small/*/*")} == {
        f"{stage}/{name}" for stage in ("alone", "confirmed") for name in (journal.PACKED, samples.PACKED)
    }


def test_a_link_takes_no_file_along_that_lies_elsewhere(tmp_path: Path):
    (tmp_path / "key").write_text("private")
    pack(run(tmp_path / "whole"), tmp_path / "small", raw=False)
    (tmp_path / "small" / samples.PACKED).symlink_to(tmp_path / "key")
    pack(tmp_path / "small", tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [journal.PACKED]


def test_without_samples_all_but_percentiles_is_the_same_and_the_screen_says_why(tmp_path: Path):
    whole, small = run(tmp_path / "whole"), tmp_path / "small"
    pack(whole, small, raw=False)
    assert [path.name for path in small.iterdir()] == [journal.PACKED]
    one, other = analyse(whole).rows[1].end_to_end, analyse(small).rows[1].end_to_end
    assert (other.median_ns, other.ratio, other.restarts) == (one.median_ns, one.ratio, one.restarts)
    assert (one.p99_ns is None, other.p99_ns is None) == (False, True)
    assert analyse(small).warnings[0].startswith("packed without its samples")
    pack(small, tmp_path / "again")
    assert [path.name for path in (tmp_path / "again").iterdir()] == [journal.PACKED], "--raw can't bring back samples"


def test_nothing_is_packed_over_something_else(tmp_path: Path):
    whole = run(tmp_path / "whole")
    for into, why in ((whole, "already exists"), (whole / "journal.jsonl", "already exists")):
        with pytest.raises(UsageError, match=why):
            pack(whole, into)
    with pytest.raises(UsageError, match="no run to pack"):
        pack(tmp_path / "nowhere", tmp_path / "small")


def test_a_damaged_packed_journal_is_told(tmp_path: Path):
    pack(run(tmp_path / "whole"), tmp_path / "small")
    path = tmp_path / "small" / journal.PACKED
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match="is damaged"):
        journal.read(tmp_path / "small")
