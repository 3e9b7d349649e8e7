"""The live test of the harness: what it plants, what it makes of verdicts, and that it needs the device it tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from shootout.commands import selftest
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Target
from shootout.core.errors import Unavailable, UsageError
from shootout.tell.progress import ProgressDisplay


@dataclass
class Races:
    """Stands in for the races; what was asked, and arms that take as long as they were told to."""

    asked: list[tuple[str, list[dict[str, str]]]] = field(default_factory=list)
    copy: Any = field(default_factory=lambda: ratio(1.0))

    def race(self, out: Path, target: Target, options: Sequence[Mapping[str, str]], *_: Any) -> Any:
        self.asked.append((str(target), [dict(one) for one in options]))
        amounts = [float(next(iter(one.values()))) for one in options]
        rows = [row(amount, amount / amounts[0]) for amount in amounts]
        control = SimpleNamespace(ratio=self.copy, holds=True)
        return SimpleNamespace(rows=rows, control=control, void_share=0.0, groups=[SimpleNamespace(restarts=20)])


def ratio(value: float, *, reach: float | None = 1e-4) -> Any:
    verdict = "same" if value == 1 else "slower" if value > 1 else "faster"
    low, high = (None, None) if reach is None else (value - reach, value + reach)
    return SimpleNamespace(value=value, low=low, high=high, verdict=verdict, sd=0.002)


def row(amount: float, value: float) -> Any:
    compute, end_to_end = SimpleNamespace(median_ns=1e3 * amount), SimpleNamespace(ratio=ratio(value))
    return SimpleNamespace(arm="spin", reason="", compute=compute, end_to_end=end_to_end)


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Races:
    found = Races()
    monkeypatch.setattr(selftest, "_race_spins", found.race)
    monkeypatch.setattr(selftest, "write_facts", lambda name, facts: tmp_path / "bias-floor.json")
    return found


def report_on(device: Device, *, quick: bool = False) -> selftest.SelfTestReport:
    return selftest.run(quick=quick, progress=ProgressDisplay(Console(file=StringIO())), device=device)


def words(report: selftest.SelfTestReport) -> str:
    out = Console(file=StringIO(), width=200)
    out.print(selftest.render(report))
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


def test_on_a_cpu_times_are_known_and_the_floor_is_stored(races: Races):
    report = report_on(Device.CPU)
    assert [target for target, _ in races.asked] == ["spin:cpu:fp32"] * 2
    assert [one.error for one in report.known] == [0, 0, 0, 0]
    assert all(one.right for one in report.planted)
    assert report.stored is not None
    assert "Known times" in words(report)
    assert report_on(Device.CPU, quick=True).stored is None


@pytest.mark.parametrize(
    ("reach", "floor", "stored"),
    [(1e-4, 0.005, True), (0.008, 1 / 0.992 - 1, True), (0.02, 1 / 0.98 - 1, False), (None, None, False)],
)
def test_the_floor_is_the_bias_that_an_arm_beside_itself_does_not_exclude(
    races: Races, monkeypatch: pytest.MonkeyPatch, reach: float | None, floor: float | None, stored: bool
):
    """Its median was 1 exactly, which says little where the interval is wide; as wide as `same`, it is noise."""
    monkeypatch.setattr(races, "copy", ratio(1.0, reach=reach))
    report = report_on(Device.CPU)
    assert report.bias_floor == pytest.approx(floor)
    assert (report.stored is not None) == stored
    assert ("up to 2.04% can't be excluded" in words(report)) == (reach == 0.02)
    assert ("can't bound a bias" in words(report)) == (floor is None)


def test_on_a_gpu_the_same_ratios_are_planted_and_nothing_is_stored(races: Races):
    report = report_on(Device.CUDA)
    ((target, options),) = races.asked
    assert target == "spin:cuda:fp32"
    assert options == [{"work": str(steps)} for steps in (2000, 2000, 2000, 2020, 1960, 2100)]
    assert [one.ratio for one in report.planted] == [1, 1, 1.01, 0.98, 1.05]
    assert all(one.right for one in report.planted)
    assert (report.known, report.stored) == ((), None)
    assert "Known times" not in words(report)
    assert "only shown" in words(report)


def test_without_a_gpu_it_says_what_to_do_and_ends_as_unavailable(monkeypatch: pytest.MonkeyPatch):
    missing = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "there is none", "get one"))
    planned = SimpleNamespace(here=SimpleNamespace(available={("spin", Device.CUDA): missing}))
    monkeypatch.setattr(selftest, "make_plan", lambda study: planned)
    with pytest.raises(Unavailable, match="selftest on cuda: there is none; get one") as caught:
        report_on(Device.CUDA)
    assert caught.value.exit_code == 6


def test_an_unknown_device_is_refused():
    with pytest.raises(UsageError, match=r"unknown device 'tpu': .*known: cpu, cuda"):
        selftest.selftest(quick=True, device="tpu", as_json=False)
