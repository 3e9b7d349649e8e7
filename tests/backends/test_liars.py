"""The suite is itself under test: each broken promise is noticed, by the check that is there for it and by no other."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.adapters.third_party import install
from support.console import TESTS

from shootout.core.contract import Precision, Target
from shootout.testing.checks import ConformanceCase, case_of, run_checks, warm_of
from shootout.testing.fresh import run_fresh

TORCH = warm_of(Target(backend="torch-eager"))


@dataclass(frozen=True, kw_only=True)
class ExpectedFailure:
    """Which check must fail, through whose fault, with which words in its error, and why."""

    check: str
    fault: str
    error: str
    why: str


FEW_BITS = ExpectedFailure(
    check="error_within_error_bound",
    fault="adapter",
    error="is above the error bound of this precision, 1e-05",
    why="bf16 keeps 8 bits",
)
LOWERING = (
    ExpectedFailure(
        check="executed_matches_request", fault="adapter", error="bf16", why="torch's trace shows bf16 operands"
    ),
    ExpectedFailure(check="probe_agrees", fault="adapter", error="shows bf16", why="2^-8 is lost next to 1"),
    FEW_BITS,
)
ECHOING = (
    ExpectedFailure(check="probe_explains", fault="adapter", error="names its version", why="it gives no version"),
    ExpectedFailure(
        check="probe_agrees",
        fault="adapter",
        error="shows bf16",
        why="the account is an echo, bits are not",
    ),
    FEW_BITS,
    ExpectedFailure(check="threads_as_asked", fault="adapter", error="runs 64", why="it reports 64 threads"),
    ExpectedFailure(check="inputs_unchanged", fault="adapter", error="Mismatched", why="it rounds the caller's array"),
    ExpectedFailure(check="outputs_survive", fault="adapter", error="a later call changed", why="one output for all"),
    ExpectedFailure(check="slots_are_independent", fault="adapter", error="slot", why="one input for all slots"),
    ExpectedFailure(check="wrong_inputs_are_refused", fault="adapter", error="DID NOT RAISE", why="it checks nothing"),
    ExpectedFailure(
        check="unknown_option_is_refused", fault="adapter", error="DID NOT RAISE", why="it reads no option"
    ),
    ExpectedFailure(
        check="load_only_reads", fault="adapter", error="load wrote into the folder", why="it writes a log"
    ),
    ExpectedFailure(check="close_twice", fault="adapter", error="AttributeError", why="the second close breaks"),
)


BOASTING = (
    ExpectedFailure(check="probe_agrees", fault="adapter", error="shows float", why="2,048 levels are all there"),
    ExpectedFailure(
        check="error_within_error_bound", fault="adapter", error="nothing was rounded", why="its error is float32's own"
    ),
)


def checked(case: ConformanceCase, packages: Path) -> dict[str, str]:
    """What the suite says of a backend that lies among these packages."""
    sys.path.insert(0, str(packages))
    return run_checks(case)


@pytest.mark.parametrize(
    ("lied_about", "path", "expected"),
    [
        (Target(backend="lowering"), "support.adapters.liars:Lowering", LOWERING),
        (Target(backend="echoing"), "support.adapters.liars:Echoing", ECHOING),
        (Target(backend="boasting", precision=Precision.INT8), "support.adapters.liars:Boasting", BOASTING),
    ],
)
def test_each_broken_promise_is_noticed(
    lied_about: Target,
    path: str,
    expected: tuple[ExpectedFailure, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, f"{lied_about.backend}-package", {lied_about.backend: path})
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TESTS, tmp_path))))  # of the process that describes it
        case: ConformanceCase = case_of(lied_about)
    faults: dict[str, str] = run_fresh(checked, case, tmp_path, warm=TORCH)
    assert {check for check, fault in faults.items() if fault} == {row.check for row in expected}
    for row in expected:
        assert row.error in faults[row.check], f"{row}:\n{faults[row.check]}"
