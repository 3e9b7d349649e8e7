"""Outside evidence: what the recorded system files mean, and when it voids a round."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_nvidia import FakeDriver, FakeNvml, install

from shootout.constants import SM_CLOCK_SHARE
from shootout.host import noise
from shootout.host.gpu import Gpu
from shootout.host.noise import (
    Mark,
    NoiseMeter,
    VoidKind,
    VoidReason,
    parse_pressure,
    parse_stat,
    recalled,
    void_reasons,
)
from shootout.messages import GpuState

STAT = """cpu  5558 0 2561 143713 626 0 33 156 40 0
cpu0 662 0 569 74986 19 0 4 78 40 0
cpu1 4896 0 1991 68726 606 0 28 77 0 0
cpu11 1 1 1 1 1 1 1 1 1 1
intr 156686 0 0 0
ctxt 1234
"""
PRESSURE = """some avg10=0.80 avg60=0.97 avg300=0.33 total=3930978
full avg10=0.00 avg60=0.00 avg300=0.00 total=77
"""
QUIET = Mark(now_ns=0, steal_jiffies=100, total_jiffies=1_000, pressure_us=500, throttled=3)


def after(ms: int = 100, **changes: int | None) -> Mark:
    counters = {"steal_jiffies": 100, "total_jiffies": 1_000 + ms // 10, "pressure_us": 500, "throttled": 3}
    return Mark(now_ns=ms * 1_000_000, **{**counters, **changes})


def test_stat_counts_only_the_asked_cpus_and_no_guest_time_twice():
    assert parse_stat(STAT, {1}) == (77, 4896 + 1991 + 68726 + 606 + 28 + 77)
    assert parse_stat(STAT, {0, 1}) == (155, 76318 + 76324)


@pytest.mark.parametrize(
    "text",
    ["", "cpu1", "cpu1 1 2 3", "cpu1 a b c d e f g h", "cpu 1 2 3 4 5 6 7 8", "\0\0"],
    ids=["empty", "bare", "short (old kernel)", "words", "total only", "junk"],
)
def test_a_stat_file_that_does_not_tell_is_no_evidence(text: str):
    assert parse_stat(text, {1}) is None


def test_stat_without_one_of_the_cpus_is_no_evidence():
    assert parse_stat(STAT, {0, 7}) is None
    assert parse_stat(STAT, set()) is None


def test_pressure_is_the_running_total_of_the_some_line():
    assert parse_pressure(PRESSURE) == 3_930_978
    assert parse_pressure("full avg10=0.00 total=77\n") is None
    assert parse_pressure("some avg10=0.00 avg60=0.00\n") is None
    assert parse_pressure("some avg10=0.00 total=\n") is None
    assert parse_pressure("") is None


def told(*marks: Any, **own: Any) -> tuple[str, ...]:
    """Why a round is void, in words."""
    return tuple(map(str, void_reasons(*marks, **own)))


def test_a_quiet_round_counts():
    assert told(QUIET, after(), {"a": (100.0, 104.9)}) == ()


def test_one_stolen_jiffy_is_rounding_two_are_evidence():
    assert told(QUIET, after(steal_jiffies=101), {}) == ()
    assert told(QUIET, after(steal_jiffies=102), {}) == ("steal 20.0 % of CPU time",)


def test_steal_of_one_percent_is_allowed_and_more_is_not():
    assert told(QUIET, after(ms=10_000, steal_jiffies=110), {}) == ()
    assert told(QUIET, after(ms=10_000, steal_jiffies=111), {}) == ("steal 1.1 % of CPU time",)


def test_pressure_is_a_share_of_the_wall_time():
    assert told(QUIET, after(ms=100, pressure_us=500 + 10_000), {}) == ()
    assert told(QUIET, after(ms=100, pressure_us=500 + 14_000), {}) == ("cpu pressure 14 %",)


def test_any_throttling_voids():
    assert told(QUIET, after(throttled=4), {}) == ("cgroup throttled once",)
    assert told(QUIET, after(throttled=5), {}) == ("cgroup throttled 2 times",)


def test_a_slow_canary_voids_and_names_its_arm():
    canaries = {"numpy:cpu:fp32": (100_000.0, 108_000.0), "torch-eager:cpu:fp32": (100_000.0, 90_000.0)}
    assert told(QUIET, after(), canaries) == ("canary 8 % slow (numpy:cpu:fp32)",)


ARM = "torch-eager:cuda:fp32"


def test_a_clock_far_below_the_highest_it_had_voids():
    least = int(SM_CLOCK_SHARE * 1_980)
    assert told(QUIET, after(), {}, {ARM: (1_980, GpuState(sm_clock_mhz=least))}) == ()
    assert told(QUIET, after(), {}, {ARM: (1_980, GpuState(sm_clock_mhz=least - 1))}) == (
        f"SM clock 1,484 MHz of 1,980 ({ARM})",
    )


def test_a_clock_that_is_not_told_or_has_no_reference_voids_nothing():
    for usual, seen in [(1_980, None), (None, 300), (None, None)]:
        assert told(QUIET, after(), {}, {ARM: (usual, GpuState(sm_clock_mhz=seen))}) == ()


def test_a_clock_that_is_held_down_voids_whatever_it_is():
    hot = GpuState(sm_clock_mhz=1_980, throttled=("hw_slowdown", "hw_thermal_slowdown"))
    assert told(QUIET, after(), {}, {"calm": (1_980, GpuState(sm_clock_mhz=1_980)), ARM: (1_980, hot)}) == (
        f"GPU throttled: hw_slowdown, hw_thermal_slowdown ({ARM})",
    )


def test_a_clock_under_the_power_limit_is_the_arms_own_work():
    low = GpuState(sm_clock_mhz=1_200)
    assert told(QUIET, after(), {}, {ARM: (1_980, low)}) == (f"SM clock 1,200 MHz of 1,980 ({ARM})",)
    assert told(QUIET, after(), {}, {ARM: (1_980, replace(low, power_capped=True))}) == ()


@pytest.mark.parametrize(
    ("before", "later", "reasons"),
    [
        (2, 2, ()),
        (2, 4, ("2 foreign GPU processes",)),
        (3, 2, ("1 foreign GPU process",)),  # it left during the round
        (1, 1, ()),  # a container that hides some
        (None, None, ()),
    ],
)
def test_processes_on_the_gpu_that_are_not_ours_void(before: int | None, later: int | None, reasons: tuple[str, ...]):
    began, ended = Mark(now_ns=0, gpu_processes=before), Mark(now_ns=1_000_000, gpu_processes=later)
    assert told(began, ended, {}, own_processes=2) == reasons


def test_reasons_of_one_kind_are_counted_together():
    older = ["SM clock 1,200 MHz of 1,980 (a)", "GPU throttled: hw_slowdown (a)", "2 foreign GPU processes"]
    assert [recalled(one).category for one in older] == [
        "SM clock",
        "GPU throttled: hw_slowdown",
        "foreign GPU process",
    ]
    assert [
        recalled(one).category for one in ("cpu pressure 14 %", "cgroup throttled once", "canary 8 % slow (a)")
    ] == [
        "cpu pressure",
        "cgroup throttled",
        "canary",
    ]


def test_all_reasons_are_given_at_once():
    marked = after(steal_jiffies=105, pressure_us=90_000, throttled=9)
    assert len(void_reasons(QUIET, marked, {"a": (1.0, 2.0), "b": (1.0, 2.0)})) == 5


@pytest.mark.parametrize(
    "reason",
    [
        VoidReason(VoidKind.STEAL, 0.2),
        VoidReason(VoidKind.PRESSURE, 0.14),
        VoidReason(VoidKind.THROTTLED, 1),
        VoidReason(VoidKind.THROTTLED, 2),
        VoidReason(VoidKind.CANARY, 0.08, arm="numpy:cpu:fp32"),
        VoidReason(VoidKind.SM_CLOCK, 1_484, of=1_980, arm=ARM),
        VoidReason(VoidKind.GPU_THROTTLED, arm=ARM, causes=("hw_slowdown", "hw_thermal_slowdown")),
        VoidReason(VoidKind.FOREIGN, 1),
        VoidReason(VoidKind.FOREIGN, 2),
    ],
    ids=str,
)
def test_the_words_of_older_journals_count_as_what_they_said(reason: VoidReason):
    assert recalled(str(reason)).category == reason.category


def test_words_that_no_version_wrote_are_refused():
    with pytest.raises(ValueError, match="no reason that voids"):
        recalled("bad luck")


def test_absent_evidence_and_counters_that_step_back_void_nothing():
    nothing = Mark(now_ns=0)
    assert told(nothing, Mark(now_ns=1_000_000), {}) == ()
    assert told(QUIET, Mark(now_ns=1_000_000), {}) == ()
    assert told(QUIET, after(steal_jiffies=0, total_jiffies=0, pressure_us=0, throttled=0), {}) == ()
    assert told(QUIET, after(ms=0, pressure_us=10**9, steal_jiffies=200, total_jiffies=1_000), {}) == ()


def system(folder: Path, stat: str | None, pressure: str | None, cpu_stat: str | None) -> NoiseMeter:
    files = {"stat": stat, "pressure/cpu": pressure, "group/cpu.stat": cpu_stat}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / name).write_text(text)
    return NoiseMeter({0, 1}, proc=folder, groups=[folder / "group"])


def test_a_meter_reads_every_counter(tmp_path: Path):
    meter = system(tmp_path, STAT, PRESSURE, "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1234\n")
    mark = meter.mark()
    assert (mark.steal_jiffies, mark.total_jiffies, mark.pressure_us) == (155, 152_642, 3_930_978)
    assert mark.throttled == 4
    assert meter.sources() == ("steal", "cpu pressure", "cgroup throttling", "canary")


def test_a_meter_says_which_evidence_is_absent(tmp_path: Path):
    assert system(tmp_path / "macos", None, None, None).sources() == ("canary",)
    assert system(tmp_path / "root group", STAT, None, "usage_usec 5\n").sources() == ("steal", "canary")


def test_a_meter_with_a_gpu_counts_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(), FakeNvml(["nvmlDeviceGetClockInfo"]))
    meter = NoiseMeter({0}, proc=tmp_path, groups=[], gpu=Gpu.open())
    assert meter.mark().gpu_processes == 2
    assert meter.sources() == ("GPU throttling", "GPU processes", "canary")


def test_two_marks_of_this_machine_agree_with_each_other():
    meter = NoiseMeter({0})
    before, later = meter.mark(), meter.mark()
    assert later.now_ns > before.now_ns
    assert (before.steal_jiffies is None) == (later.steal_jiffies is None)
    if sys.platform == "linux":
        assert before.total_jiffies is not None
        assert before.total_jiffies <= (later.total_jiffies or 0)


def test_the_canary_is_the_best_of_three(monkeypatch: pytest.MonkeyPatch):
    readings = iter([0, 130, 200, 310, 400, 520])
    monkeypatch.setattr(noise, "now_ns", lambda: next(readings))
    assert noise.canary() == 110
