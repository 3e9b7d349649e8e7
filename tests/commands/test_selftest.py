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
from shootout.core.clock import Deadline
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Target
from shootout.core.errors import NothingMeasured, Unavailable, UsageError
from shootout.core.study.plan import Plan
from shootout.tell.progress import ProgressDisplay


@dataclass
class Races:
    """Stands in for the races; what was asked, and arms that take as long as they were told to."""

    asked: list[tuple[str, list[dict[str, str]]]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    copy: Any = field(default_factory=lambda: ratio(1.0))

    def race(self, out: Path, target: Target, options: Sequence[Mapping[str, str]], *_: Any) -> Any:
        self.folders.append(out)
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
    assert selftest.as_data(report)["device"] == "cuda"


def test_the_races_are_kept_where_a_folder_is_named(races: Races, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert selftest.selftest(quick=True, out=tmp_path / "kept", as_json=True) == 0
    assert races.folders == [tmp_path / "kept" / "known", tmp_path / "kept" / "raced"]
    races.folders.clear()
    assert selftest.selftest(quick=True, as_json=True) == 0
    assert not any(folder.parent.exists() for folder in races.folders)


def test_a_race_goes_on_only_with_the_same_question(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    ran: list[tuple[str, Path, bool]] = []

    def run(planned: Plan, out: Path, *, fresh: bool, **_: Any) -> None:
        ran.append((planned.identity, out, fresh))

    monkeypatch.setattr(selftest, "measure", run)
    progress = ProgressDisplay(Console(file=StringIO()))
    target, options = Target(backend="spin"), [{"work": "10"}, {"work": "20"}]
    for restarts in (5, 5, 20):
        selftest._race_spins(tmp_path, target, options, restarts, progress, Deadline(None))
    identities = [identity for identity, _, _ in ran]
    assert identities[0] == identities[1] != identities[2]
    assert {(out, fresh) for _, out, fresh in ran} == {(tmp_path, False)}


@dataclass
class CutRaces(Races):
    """Stands in for races whose time ends: the first `known` and the first `raced` arms have figures."""

    known: int = 4
    raced: int = 6
    limits: list[Deadline] = field(default_factory=list)

    def race(self, out: Path, target: Target, options: Sequence[Mapping[str, str]], *more: Any) -> Any:
        found = super().race(out, target, options)
        self.limits.append(more[2])
        count = self.known if out.name == "known" else self.raced
        for one in found.rows[count:]:
            one.compute = one.end_to_end = None
        found.complete = count >= len(options)
        found.control = SimpleNamespace(ratio=self.copy if count > 1 else None, holds=True if count > 1 else None)
        return found


@pytest.mark.parametrize(
    ("known", "raced", "told", "untold"),
    [
        (4, 4, "A target against itself, and", "true 0.98"),
        (2, 0, "So few restarts can't bound a bias", "A target against itself, and"),
        (0, 6, "A target against itself, and", "Known times"),
    ],
)
def test_what_was_measured_in_time_is_shown_and_nothing_is_stored(
    monkeypatch: pytest.MonkeyPatch, known: int, raced: int, told: str, untold: str
):
    races = CutRaces(known=known, raced=raced)
    monkeypatch.setattr(selftest, "_race_spins", races.race)
    monkeypatch.setattr(selftest, "write_facts", lambda *_: pytest.fail("stored"))
    limit, progress = Deadline(60.0), ProgressDisplay(Console(file=StringIO()))
    report = selftest.run(quick=False, progress=progress, limit=limit)
    assert (len(report.known), len(report.planted), report.stored) == (known, max(raced - 1, 0), None)
    assert races.limits == [limit, limit]
    assert untold not in words(report)
    assert told in words(report)


def test_a_selftest_without_time_for_anything_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(selftest, "_race_spins", CutRaces(known=0, raced=0).race)
    with pytest.raises(NothingMeasured, match="--max-time 30 s was over before anything was measured"):
        selftest.selftest(max_time_s=30.0, quick=True, as_json=False)
    assert NothingMeasured.exit_code == 3


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
