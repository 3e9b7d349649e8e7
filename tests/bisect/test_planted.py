"""Searches of fake releases by the run's own race, for outputs, which need no clock: what is found, skipped or kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.deaf import deafen
from support.releases import find, make_adapter, make_environment, make_releases, plant

from shootout.apps.bisect.search import Outcome

RELEASES = ("1.0", "1.1", "1.2", "1.3")
pytestmark = pytest.mark.long  # beside test_kept_races.py


@pytest.fixture(autouse=True)
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake runtime's adapter, installed here and in each worker, in a process that waits for no quiet machine."""
    folder = str(make_adapter(tmp_path / "adapter"))
    deafen({}, monkeypatch.setattr)
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.syspath_prepend(folder)


def test_the_release_that_changed_is_named(tmp_path: Path):
    found = find(tmp_path / "out", make_releases(tmp_path, plant(RELEASES, "1.2", 2.0), "outputs"), "outputs")
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.NAMED, "1.1", "1.2")
    assert found.sign == 1
    assert found.ratio.value > 1


def test_a_release_that_does_not_load_is_skipped_with_its_reason(tmp_path: Path):
    environments = make_releases(tmp_path, {"1.0": 1.0, "1.2": 2.0}, "outputs")
    broken = make_environment(tmp_path / "1.1", "1.1", 'raise ImportError("/home/me/libfake.so.3: no such file")')
    found = find(tmp_path / "out", {"1.0": environments["1.0"], "1.1": broken, "1.2": environments["1.2"]}, "outputs")
    assert (found.outcome, found.last_good, found.first_bad) == (Outcome.NAMED, "1.0", "1.2")
    assert found.between == ("1.1",)
    assert "libfake.so.3: no such file" in found.skipped["1.1"]
    assert "/home" not in found.skipped["1.1"]


def test_errors_at_random_are_told_too(tmp_path: Path):
    environments = make_releases(tmp_path, {"1.0": 1.0, "1.1": 2.0}, "outputs", base=0.3)
    found = find(tmp_path / "out", environments, "outputs")
    assert (found.outcome, found.first_bad) == (Outcome.NAMED, "1.1")
    assert found.readings["1.1"].ratio.restarts > 2
