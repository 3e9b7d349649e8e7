"""Searches of fake releases by the run's own race, for outputs, which need no clock: what is found, skipped or kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.deaf import deafen
from support.releases import find, make_adapter, make_environment, make_releases, plant

from shootout.apps.bisect.releases import Environment
from shootout.apps.bisect.search import Outcome, Side

RELEASES = ("1.0", "1.1", "1.2", "1.3")


@pytest.fixture(autouse=True)
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake runtime's adapter, installed here and in each worker, in a process that waits for no quiet machine."""
    folder = str(make_adapter(tmp_path / "adapter"))
    deafen({}, monkeypatch.setattr)
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.syspath_prepend(folder)


def test_two_releases_are_raced_and_read_again_without_a_race(tmp_path: Path):
    found = find(tmp_path / "out", make_releases(tmp_path, {"1.0": 1.0, "1.1": 2.0}, "outputs"), "outputs")
    assert (found.outcome, found.last_good, found.first_bad, found.questions) == (Outcome.NAMED, "1.0", "1.1", 1)
    bad = found.readings["1.1"]
    assert (bad.ratio.restarts, bad.side, bad.folder) == (2, Side.BAD, str(tmp_path / "out" / "1.0-1.1"))
    assert bad.figure == pytest.approx(0.01, rel=0.2)
    assert found.readings["1.0"].figure == 0
    gone = dict.fromkeys(("1.0", "1.1"), Environment(release="", python="/gone", packages={}, size_bytes=0))
    assert find(tmp_path / "out", gone, "outputs") == found
    none = find(tmp_path / "none", gone, "outputs", seconds=0)
    assert (none.outcome, none.questions) == (Outcome.OPEN, 0)


def test_a_race_without_time_for_two_restarts_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = find(tmp_path / "out", make_releases(tmp_path, {"1.0": 1.0, "1.1": 2.0}, "outputs"), "outputs", seconds=5)
    assert (found.outcome, found.questions) == (Outcome.OPEN, 0)
    assert "no race of the ends yet: --max-time leaves" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_release_that_changed_is_named(tmp_path: Path):
    found = find(tmp_path / "out", make_releases(tmp_path, plant(RELEASES, "1.2", 2.0), "outputs"), "outputs")
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.NAMED, "1.1", "1.2")
    assert found.sign == 1
    assert found.ratio.value > 1


@pytest.mark.long
def test_a_release_that_does_not_load_is_skipped_with_its_reason(tmp_path: Path):
    environments = make_releases(tmp_path, {"1.0": 1.0, "1.2": 2.0}, "outputs")
    broken = make_environment(tmp_path / "1.1", "1.1", 'raise ImportError("/home/me/libfake.so.3: no such file")')
    found = find(tmp_path / "out", {"1.0": environments["1.0"], "1.1": broken, "1.2": environments["1.2"]}, "outputs")
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.NAMED, "1.0", "1.2")
    assert found.between == ("1.1",)
    assert "libfake.so.3: no such file" in found.skipped["1.1"]
    assert "/home" not in found.skipped["1.1"]


@pytest.mark.long
def test_errors_at_random_are_told_too(tmp_path: Path):
    environments = make_releases(tmp_path, {"1.0": 1.0, "1.1": 2.0}, "outputs", base=0.3)
    found = find(tmp_path / "out", environments, "outputs")
    assert (found.outcome, found.first_bad) == (Outcome.NAMED, "1.1")
    assert found.readings["1.1"].ratio.restarts > 2
