"""What the conformance suite runs on: never a guess at what a backend can do, and it stays while the suite runs."""

from __future__ import annotations

import pytest

from shootout.core import backends
from shootout.core.contract import Device, NotRun, NotRunKind, Target
from shootout.core.errors import SkippedArm, UsageError
from shootout.testing import checks
from shootout.testing import test_conformance as suite
from shootout.testing.test_conformance import cache_in_use  # noqa: F401 - a fixture


def test_a_backend_that_can_t_say_what_it_can_do_gets_no_case(monkeypatch: pytest.MonkeyPatch):
    """What is assumed of it would leave out the probe and the counts, and the rest might pass."""
    why = NotRun(NotRunKind.BROKEN, "its capabilities: modes is 7", "mend it")
    monkeypatch.setattr(backends, "describe", lambda name: why)
    target = Target(backend="numpy")
    for ask in (lambda: checks.targets(["numpy"]), lambda: checks.case_of.__wrapped__(target)):
        with pytest.raises(SkippedArm, match="modes is 7") as told:
            ask()
        assert told.value.fix == "mend it"


@pytest.mark.parametrize("backend", backends.shipped())
def test_only_a_backend_without_layers_of_a_model_goes_without_its_probe(backend: str, monkeypatch: pytest.MonkeyPatch):
    """`spin` ignores the model, `joint` calls a program, and trees have no product that a precision could round."""
    monkeypatch.setattr(checks, "_convert_fixture", lambda write: write.__name__)  # trees'
    monkeypatch.setattr(checks, "exported_models", lambda asked, *probes: (checks.Request(model=asked.model), *probes))
    case = checks.case_of.__wrapped__(checks.targets([backend])[0])
    assert (case.probe_exported is None) == (backend in {"spin", "joint", "sklearn", "lightgbm", "xgboost"})


def test_a_fresh_process_holds_the_checks_beforehand_but_nothing_where_there_is_a_gpu():
    assert checks.warm_of(Target(backend="numpy")) == checks.OURS
    assert checks.warm_of(Target(backend="torch-eager")) == f"{checks.OURS},torch"
    assert checks.warm_of(Target(backend="torch-eager", device=Device.CUDA)) == ""


def test_a_single_check_of_a_target_can_be_left_to_the_full_run(monkeypatch: pytest.MonkeyPatch):
    package = Target(backend="torch-compile", mode="aoti")
    assert [name for name in checks.CHECKS if checks.is_slow(package, name)] == ["probe_agrees"]
    assert not any(checks.is_slow(Target(backend="torch-compile"), name) for name in checks.CHECKS)
    made: list[str] = []
    monkeypatch.setattr(checks, "CHECKS", {name: lambda bench, name=name: made.append(name) for name in "abc"})
    assert checks.run_checks(None, ["c", "a"]) == {"c": "", "a": ""}  # type: ignore[arg-type] # no build: checks tell
    assert made == ["c", "a"]


def test_what_can_t_be_exported_costs_its_own_targets_alone(monkeypatch: pytest.MonkeyPatch):
    """On the first GPU, a converter for trees was missing, and all of the suite failed."""
    eager = Target(backend="torch-eager")

    def find_needs(target: Target) -> tuple[None, tuple[str, ...]]:
        if target != eager:
            raise UsageError("forest.joblib needs skl2onnx")
        return None, ("model",)

    monkeypatch.setattr(checks, "_find_needs", find_needs)
    exported: list[str] = []
    monkeypatch.setattr(checks, "obtain_all", exported.extend)
    checks.export_for([Target(backend="sklearn"), eager])
    assert exported == ["model"]


@pytest.mark.parametrize(("gpu", "warm"), [(True, ""), (False, f"{checks.OURS},torch")])
def test_no_fork_is_asked_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch, gpu: bool, warm: str):
    asked: list[str] = []
    monkeypatch.setattr(suite, "has_gpu", lambda: gpu)
    monkeypatch.setattr(suite, "run_fresh", lambda *_, warm: asked.append(warm) or {})
    suite.answers.__wrapped__("torch-eager")
    assert asked == [warm]
