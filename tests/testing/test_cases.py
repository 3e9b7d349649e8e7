"""What the conformance suite runs on: never a guess at what a backend can do, and it stays while the suite runs."""

from __future__ import annotations

import fcntl

import pytest

from shootout import backends
from shootout.backends import described
from shootout.contract import Device, Target
from shootout.errors import SkippedArm
from shootout.host import store
from shootout.testing import cases, checks
from shootout.testing.test_conformance import cache_in_use  # noqa: F401 - a fixture


def test_a_backend_that_can_t_say_what_it_can_do_gets_no_case(monkeypatch: pytest.MonkeyPatch):
    """What is assumed of it would leave out the probe and the counts, and the rest might pass."""
    monkeypatch.setattr(backends, "describe", lambda name: described.broken("its capabilities: modes is 7", "mend it"))
    target = Target(backend="numpy")
    for ask in (lambda: cases.targets(["numpy"]), lambda: cases.case_of.__wrapped__(target)):
        with pytest.raises(SkippedArm, match="modes is 7") as told:
            ask()
        assert told.value.fix == "mend it"


@pytest.mark.parametrize("backend", backends.SHIPPED)
def test_only_a_backend_that_ignores_the_model_goes_without_its_probe(backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cases, "exported_models", lambda asked, probe: (cases.Request(model=asked.model), probe))
    case = cases.case_of.__wrapped__(cases.targets([backend])[0])
    assert (case.probe_exported is None) == (backend == "spin")


def test_a_fresh_process_holds_the_checks_beforehand_but_nothing_where_there_is_a_gpu():
    assert cases.warm_of(Target(backend="numpy")) == cases.OURS
    assert cases.warm_of(Target(backend="torch-eager")) == f"{cases.OURS},torch"
    assert cases.warm_of(Target(backend="torch-eager", device=Device.CUDA)) == ""


def test_a_single_check_of_a_target_can_be_left_to_the_full_run(monkeypatch: pytest.MonkeyPatch):
    package = Target(backend="torch-compile", mode="aoti")
    assert [name for name in checks.CHECKS if cases.is_slow(package, name)] == ["probe_agrees"]
    assert not any(cases.is_slow(Target(backend="torch-compile"), name) for name in checks.CHECKS)
    made: list[str] = []
    monkeypatch.setattr(checks, "CHECKS", {name: lambda bench, name=name: made.append(name) for name in "abc"})
    assert checks.run_checks(None, ["c", "a"]) == {"c": "", "a": ""}  # type: ignore[arg-type] # no build: checks tell
    assert made == ["c", "a"]


@pytest.mark.usefixtures("cache_in_use")
def test_nobody_takes_anything_out_of_the_cache_while_the_suite_runs():
    with (store.cache_folder() / ".lock").open("r+b") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
