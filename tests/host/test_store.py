"""The cache stays below its limit: what was used longest ago goes, and nothing while somebody works with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.console import here

from shootout.core.errors import UsageError
from shootout.core.host import store
from shootout.core.host.store import mark_used
from shootout.tell import cache_limit
from shootout.tell.cache_limit import evict, in_use, kept, limit_bytes

NAMES = ("0123456789ab", "built/b", "program-c", "converted/d.bin")
"""One of each kind, from the one that was used longest ago on; 100 bytes each."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    folder = store.cache_folder()
    for number, name in enumerate(NAMES):
        file = folder / name if "." in name else folder / name / "deep" / "file"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 100)
        os.utime(folder / name, (number + 1, number + 1))
    (folder / "lent").mkdir()
    (folder.parent / "facts.json").write_bytes(b"y" * 1_000)
    return folder


def test_a_stranger_s_folder_beside_the_cache_s_own_is_left_alone(cache: Path):
    ours = cache.parent / "converter-0123456789ab"
    strangers = [cache.parent / name for name in ("my-converter-0123456789ab", "converter-notes-of-2026")]
    for folder in (ours, *strangers):
        folder.mkdir()
        (folder / "file").write_bytes(b"z")
    assert [one.path for one in kept() if one.kind == "converters"] == [ours]
    assert evict(0)
    assert not ours.exists()
    assert all((folder / "file").exists() for folder in strangers)


def names(cache: Path) -> list[str]:
    return [str(one.path.relative_to(cache)) for one in kept()]


def test_what_was_used_longest_ago_goes_first(cache: Path):
    assert [one.size_bytes for one in kept()] == [100] * 4
    assert evict(400) == []
    mark_used(cache / NAMES[0])
    gone = evict(250)
    assert gone is not None
    assert [one.path.name for one in gone] == ["b", "program-c"]
    assert names(cache) == [NAMES[3], NAMES[0]]
    assert {path.name for path in cache.iterdir()} == {NAMES[0], "built", "converted", "lent", ".lock"}
    assert (cache.parent / "facts.json").exists()


def test_nothing_goes_while_a_command_works_with_it_and_what_is_too_much_at_its_end(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(cache_limit.LIMIT, str(1e-7))
    with in_use():
        with in_use():
            assert evict(0) is None
        assert len(names(cache)) == 4, "the other one still works with it"
    assert names(cache) == [NAMES[3]]


@pytest.mark.parametrize("text", ["much", "inf", "nan"])
def test_a_limit_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv(cache_limit.LIMIT, text)
    with pytest.raises(UsageError, match="is not a number of GB, such as 20"):
        limit_bytes()
    monkeypatch.delenv(cache_limit.LIMIT)
    assert limit_bytes() == 20_000_000_000


def test_the_command_shows_what_is_kept_and_clears_it(cache: Path, tmp_path: Path):
    shown = here("cache", cwd=tmp_path)
    assert f"{cache.parent} holds 400 B of at most 20 GB" in shown.out
    assert all(kind in shown.out for kind in ("exported models", "builds", "modules given in Python"))
    data = here("cache", "--json", cwd=tmp_path).data
    assert (data["size_bytes"], data["kinds"]["builds"]) == (400, {"number": 1, "size_bytes": 100})
    with in_use():
        busy = here("cache", "--clear", cwd=tmp_path)
    assert (busy.code, busy.err) == (2, "shootout: a running command uses the cache: wait for it, then clear it\n")
    assert "4 things removed, 400 B" in here("cache", "--clear", cwd=tmp_path).out
    assert "is empty" in here("cache", cwd=tmp_path).out
    assert (cache.parent / "facts.json").exists()
