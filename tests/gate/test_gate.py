"""A gate's whole way on a fake stage: exact evidence ends it at once, the limit ends it, the time never passes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.races import fakes, made, planted
from support.races.cells import comparison, row, timing

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.gate.racing import Contest, Limits, Reference
from shootout.apps.judge.gate.verdict import Gate, GatePurpose, _check_time, judge_gate
from shootout.core.messages import Verified
from shootout.core.units import duration
from shootout.tell.document import ratio_of
from shootout.tell.limits import Standing

NAMES = "numpy:cpu:fp32", "onnxruntime:cpu:fp32"
MADE = made.A.label, made.B.label


def contest(limits: Limits | None = None, names: tuple[str, str] = MADE, **recorded: Any) -> Contest:
    """A race whose reference was recorded so."""
    reference = Reference(place="made", again=names[0], given={"model": "digits"}, **recorded)
    return Contest(plan=cast(Any, None), recorded=reference, limits=limits or Limits(), names=names)


def raced(
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    times: Mapping[str, float],
    *,
    sd: float = 0.01,
    limits: Limits | None = None,
    most: int = 60,
) -> Gate:
    """A gate between two planted arms, the first one the reference."""
    limits = limits or Limits()
    patch.setattr(planted, "LINES", {name: (ns, 0.0) for name, ns in times.items()})
    planted.on_stage(patch)[0].restart_sd = sd
    out = tmp_path / f"run {limits.size}"
    asked = planted.study(1, baseline=NAMES[0], goal=str(limits.goal), max_restarts=most)
    planted.run(out, asked, purpose=GatePurpose(out, contest(limits, NAMES)))
    return judge_gate(out, contest(limits, NAMES))


@pytest.mark.parametrize(
    ("slowdown", "outcome", "code"), [(1.0, "pass", 0), (0.5, "pass", 0), (1.10, "fail", 5), (2.0, "fail", 5)]
)
def test_a_race_ends_as_soon_as_the_limit_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slowdown: float, outcome: str, code: int
):
    found = raced(tmp_path, monkeypatch, {"numpy": 2e4, "onnxruntime": 2e4 * slowdown})
    assert (found.outcome, found.exit_code) == (outcome, code)
    assert 2 <= found.restarts < 20
    assert found.ratio
    low, high = found.ratio.low, found.ratio.high
    assert low
    assert high
    assert high < 1.05 if outcome == "pass" else low > 1.05


def test_the_times_of_a_gate_agree_with_its_ratio():
    """Each arm's own median is of other restarts than their ratio."""
    found = row("new", 3_000, end_to_end=timing(3_000, ratio=ratio_of(comparison(2.0, 0.01))))
    check = _check_time(row("old", 1_000), found, Limits(), ())
    assert (check.reference, check.candidate) == (duration(1_000), duration(2_000))


def test_what_is_not_known_in_time_is_never_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = raced(tmp_path, monkeypatch, {"numpy": 2e4, "onnxruntime": 2e4}, sd=0.10, most=3)
    assert (found.outcome, found.exit_code, found.restarts) == ("undecided", 7, 3)
    assert "; the time was over" in found.reasons[0]
    assert [(one.limit, one.standing) for one in found.checks if one.name == "time"] == [
        ("at most 5 % slower", Standing.UNKNOWN)
    ]


def test_red_evidence_ends_the_race_after_the_first_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = {NAMES[0]: 100, NAMES[1]: 111}

    def verify(self: fakes.FakePlayer) -> Verified:
        self._command("verify")
        ran = replace(made.EXECUTED, artifact_bytes=sizes[self.arm.label.removesuffix("#control")])
        return Verified(executed=ran, fidelity=made.EXACT, fault=None)

    monkeypatch.setattr(fakes.FakePlayer, "verify", verify)
    times = {"numpy": 2e4, "onnxruntime": 1e4}
    assert raced(tmp_path, monkeypatch, times, limits=Limits(size=0.12)).outcome == "pass"
    found = raced(tmp_path, monkeypatch, times, limits=Limits(size=0.10))
    assert (found.outcome, found.restarts) == ("fail", 1)
    assert analyse(Path(found.run)).groups[0].restarts == 1, "nor does the reference play on by itself"
    assert found.reasons == ("size is 111 B, reference 100 B, limit at most 10 % more: +11.0 %",)


@pytest.mark.parametrize(
    ("wrong", "fault", "said"),
    [
        (1, "outputs are wrong", "outputs are wrong"),
        (
            0,
            "relative L2 error 0.26",
            "the candidate computes something else than the reference: relative L2 error 0.26",
        ),
    ],
)
def test_wrong_outputs_of_either_are_red(
    wrong: int, fault: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A shipped folder beside a file of other weights: what the candidate computes is not what was shipped."""
    world = planted.on_stage(monkeypatch)
    world[0].fails = {(NAMES[wrong], "gate"): fault}
    monkeypatch.setattr(planted, "on_stage", lambda _: world)
    found = raced(tmp_path, monkeypatch, {"numpy": 2e4, "onnxruntime": 1e4})
    assert (found.outcome, found.exit_code) == ("fail", 5)
    assert said in found.reasons[0]
