"""Outside evidence: what the recorded system files mean, and when it flags a round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.gpus.fake_nvidia import FakeDriver, FakeNvml, install

from shootout.backends.devices.cuda import Cuda
from shootout.core.constants import SM_CLOCK_SHARE
from shootout.core.host.noise import (
    NoiseMark,
    NoiseMeter,
    disturbances,
    parse_stat,
)
from shootout.core.messages import GpuState

STAT = """cpu  5558 0 2561 143713 626 0 33 156 40 0
cpu0 662 0 569 74986 19 0 4 78 40 0
cpu1 4896 0 1991 68726 606 0 28 77 0 0
cpu11 1 1 1 1 1 1 1 1 1 1
intr 156686 0 0 0
ctxt 1234
"""
QUIET = NoiseMark(now_ns=0, steal_jiffies=100, total_jiffies=1_000, idle_jiffies=500, harness_ns=0, throttled=3)
MS = 1_000_000


def after(ms: int = 100, **changes: int | None) -> NoiseMark:
    """So much later; the watched CPU had nothing to run meanwhile, unless another count of idle jiffies is given."""
    counters = {"steal_jiffies": 100, "total_jiffies": 1_000 + ms // 10, "idle_jiffies": 500 + ms // 10}
    return NoiseMark(now_ns=ms * MS, **{**counters, "harness_ns": 0, "throttled": 3, **changes})


def test_stat_counts_only_the_asked_cpus_and_no_guest_time_twice():
    assert parse_stat(STAT, {1}) == (77, 4896 + 1991 + 68726 + 606 + 28 + 77, 68726 + 606)
    assert parse_stat(STAT, {0, 1}) == (155, 76318 + 76324, 74986 + 19 + 68726 + 606)


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


def told(*marks: Any, **own: Any) -> tuple[str, ...]:
    """Why a round is flagged, in words."""
    return tuple(map(str, disturbances(*marks, **own)))


def test_one_stolen_jiffy_is_rounding_two_are_evidence():
    assert told(QUIET, after(steal_jiffies=101)) == ()
    assert told(QUIET, after(steal_jiffies=102)) == ("steal 20.0 % of CPU time",)


def test_steal_of_one_percent_is_allowed_and_more_is_not():
    assert told(QUIET, after(ms=10_000, steal_jiffies=110)) == ()
    assert told(QUIET, after(ms=10_000, steal_jiffies=111)) == ("steal 1.1 % of CPU time",)


def busy(ms: int, *, idle_ms: int = 0, cpus: int = 1, own_ms: int = 0, **changes: int | None) -> tuple[str, ...]:
    """Why a round of so many ms is flagged, in which the watched CPUs were idle and ours for so many."""
    changes = {"total_jiffies": 1_000 + cpus * ms // 10, **changes}
    began, ended = (
        replace(mark, cpus=cpus) for mark in (QUIET, after(ms, idle_jiffies=500 + idle_ms // 10, **changes))
    )
    return told(began, ended, own_ns=own_ms * MS)


def test_cpu_time_of_others_flags():
    assert busy(1_000, own_ms=980) == ()
    assert busy(1_000, own_ms=979) == ("other programs on 2 % of the CPU time",)
    assert busy(1_000, own_ms=300, idle_ms=200) == ("other programs on 50 % of the CPU time",)


@pytest.mark.parametrize("own_ms", [2 * 470, 2 * 500 + 7], ids=["with waits", "by its own clock a little more"])
def test_an_arms_own_threads_are_no_neighbors(own_ms: int):
    """Two busy threads that wait for each other: the CPUs are never idle, and what they did is ours."""
    assert busy(500, cpus=2, own_ms=own_ms, idle_ms=max(0, 1_000 - own_ms)) == ()


def test_foreign_time_below_what_rounding_can_feign_is_none():
    """Idle time and waiting for input are each rounded down to 10 ms, once at either mark."""
    assert busy(100, own_ms=81) == (), "19 ms of 100, all of which can be rounding"
    assert busy(100, own_ms=80) == ("other programs on 20 % of the CPU time",)
    assert busy(100, cpus=16, own_ms=1_600 - 79) == (), "the errors of 16 CPUs add up to four times one's"
    assert busy(100, cpus=16, own_ms=1_600 - 80) == ("other programs on 5 % of the CPU time",)


def test_what_the_hypervisor_or_the_harness_took_is_not_foreign():
    assert busy(1_000, own_ms=700, steal_jiffies=100 + 30) == ("steal 30.0 % of CPU time",)
    assert busy(1_000, own_ms=700, harness_ns=300 * MS) == ()


@pytest.mark.parametrize(
    ("own_ns", "changes"),
    [
        (None, {}),
        (0, {"idle_jiffies": None}),
        (0, {"harness_ns": None}),
        (0, {"total_jiffies": 1_000}),
    ],
    ids=["ours isn't known", "no /proc/stat", "nor the harness's", "a file that stands still"],
)
def test_foreign_time_that_can_not_be_told_flags_nothing(own_ns: int | None, changes: dict[str, int | None]):
    assert told(QUIET, after(**{"idle_jiffies": 500, **changes}), own_ns=own_ns) == ()


def test_any_throttling_flags():
    assert told(QUIET, after(throttled=4)) == ("cgroup throttled once",)
    assert told(QUIET, after(throttled=5)) == ("cgroup throttled 2 times",)


ARM = "torch-eager:cuda:fp32"


def test_a_clock_far_below_the_highest_it_had_flags():
    least = int(SM_CLOCK_SHARE * 1_980)
    assert told(QUIET, after(), {ARM: (1_980, GpuState(sm_clock_mhz=least))}) == ()
    assert told(QUIET, after(), {ARM: (1_980, GpuState(sm_clock_mhz=least - 1))}) == (
        f"SM clock 1,484 MHz of 1,980 ({ARM})",
    )


def test_a_clock_that_is_held_down_flags_whatever_it_is():
    hot = GpuState(sm_clock_mhz=1_980, throttled=("hw_slowdown", "hw_thermal_slowdown"))
    assert told(QUIET, after(), {"calm": (1_980, GpuState(sm_clock_mhz=1_980)), ARM: (1_980, hot)}) == (
        f"GPU throttled: hw_slowdown, hw_thermal_slowdown ({ARM})",
    )


def test_a_clock_under_the_power_limit_is_the_arms_own_work():
    low = GpuState(sm_clock_mhz=1_200)
    assert told(QUIET, after(), {ARM: (1_980, low)}) == (f"SM clock 1,200 MHz of 1,980 ({ARM})",)
    assert told(QUIET, after(), {ARM: (1_980, replace(low, power_capped=True))}) == ()


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
def test_processes_on_the_gpu_that_are_not_ours_flag(before: int | None, later: int | None, reasons: tuple[str, ...]):
    began, ended = NoiseMark(now_ns=0, gpu_processes=before), NoiseMark(now_ns=1_000_000, gpu_processes=later)
    assert told(began, ended, own_contexts=2) == reasons


def test_absent_evidence_and_counters_that_step_back_flag_nothing():
    nothing = NoiseMark(now_ns=0)
    assert told(nothing, NoiseMark(now_ns=1_000_000)) == ()
    assert told(QUIET, NoiseMark(now_ns=1_000_000)) == ()
    back = after(steal_jiffies=0, total_jiffies=0, idle_jiffies=0, throttled=0)
    assert told(QUIET, back, own_ns=100 * MS) == ()
    assert told(QUIET, after(ms=0, steal_jiffies=200, total_jiffies=1_000), own_ns=0) == ()


def system(folder: Path, stat: str | None, cpu_stat: str | None, parent: set[int] | None = None) -> NoiseMeter:
    files = {"stat": stat, "group/cpu.stat": cpu_stat}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / name).write_text(text)
    return NoiseMeter({0, 1}, proc=folder, groups=[folder / "group"], parent=parent or ())


def test_a_meter_reads_every_counter(tmp_path: Path):
    meter = system(tmp_path, STAT, "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1234\n")
    mark = meter.mark()
    assert (mark.steal_jiffies, mark.total_jiffies, mark.idle_jiffies) == (155, 152_642, 144_337)
    assert (mark.cpus, mark.harness_ns, mark.throttled) == (2, 0, 4)
    assert meter.sources() == ("steal", "foreign CPU time", "cgroup throttling")


def test_a_harness_that_shares_the_arms_cpus_counts_itself(tmp_path: Path):
    meter = system(tmp_path, STAT, None, parent={1, 7})
    began = meter.mark()
    assert sum(range(200_000))
    assert (meter.mark().harness_ns or 0) > (began.harness_ns or 0) > 0
    assert system(tmp_path, STAT, None, parent={7}).mark().harness_ns == 0, "it is elsewhere"


def test_a_meter_with_a_gpu_counts_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(), FakeNvml(["nvmlDeviceGetClockInfo"]))
    meter = NoiseMeter({0}, proc=tmp_path, groups=[], gpu=Cuda())
    assert meter.mark().gpu_processes == 2
    assert meter.sources() == ("GPU throttling", "GPU processes")
