"""Ceilings are remembered by machine and threads, refused when impossible, and really measured (with tiny sizes)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.console import here

from shootout.apps.ceilings import measure, worker
from shootout.apps.ceilings.measure import known_ceilings, obtain_ceilings, read_ceilings, working_sets, write_ceilings
from shootout.backends._openvino.backend import STEP
from shootout.core.contract import Precision
from shootout.core.errors import ShootoutError
from shootout.core.host import environment
from shootout.core.host.placement import Placement
from shootout.tell.machines import Ceilings, parse_ceilings

ONE = Placement(parent=frozenset({0}), arms=frozenset({0}), threads=1)
FACTS = {"machine": "made", "libraries": {"torch": "1"}}
MADE: dict[str, Any] = {
    "schema_version": 1,
    "threads": 1,
    "cpus": [0],
    "measured": "2026-01-01T00:00:00+00:00",
    "peaks": {"fp32": {"giga_ops": 100.0, "source": "made"}},
    "bandwidth": [{"level": "DRAM", "holds_bytes": None, "read_gbs": 10.0, "copy_gbs": 8.0}],
    "notes": [],
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    return tmp_path / "ceilings.json"


class Meter:
    """Counts how often it is asked to measure."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.loads: list[float] = []

    def __call__(self, placement: Placement, load: float, *_: Any) -> Ceilings:
        self.asked.append(placement.threads)
        self.loads.append(load)
        return Ceilings.model_validate({**MADE, "threads": placement.threads})


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    found = Meter()
    monkeypatch.setattr(measure, "measure_ceilings", found)
    return found


def silent(_: str) -> None:
    """Nobody listens."""


def test_they_are_measured_once_for_each_thread_count(cache: Path, meter: Meter):
    two = Placement(parent=frozenset({0}), arms=frozenset({0, 1}), threads=2)
    first = obtain_ceilings(ONE, FACTS, silent)
    assert obtain_ceilings(ONE, FACTS, silent) == first
    obtain_ceilings(two, FACTS, silent)
    assert meter.asked == [1, 2]
    assert set(read_ceilings(FACTS)) == {1, 2}
    obtain_ceilings(ONE, FACTS, silent, fresh=True)
    assert meter.asked == [1, 2, 1]


def test_another_machine_or_version_has_its_own(cache: Path, meter: Meter):
    obtain_ceilings(ONE, FACTS, silent)
    obtain_ceilings(ONE, {**FACTS, "libraries": {"torch": "2"}}, silent)
    obtain_ceilings(ONE, {**FACTS, "machine": "other"}, silent)
    assert len(meter.asked) == 3
    assert set(read_ceilings(FACTS)) == {1}


def test_the_command_prints_what_is_remembered(cache: Path, tmp_path: Path):
    write_ceilings(Ceilings.model_validate(MADE), environment.facts())
    found = here("ceilings", "--threads", 1, cwd=tmp_path)
    assert found.code == 0
    assert [words for words in ("100 GFLOP/s", "made", "DRAM", "10 GB/s", "8 GB/s") if words not in found.out] == []
    assert parse_ceilings(here("ceilings", "--threads", 1, "--json", cwd=tmp_path).data) == parse_ceilings(MADE)


BAD: dict[str, Any] = {
    "zero": {"peaks": {"fp32": {"giga_ops": 0, "source": "made"}}},
    "infinite": {"peaks": {"fp32": {"giga_ops": "Infinity", "source": "made"}}},
    "not a number": {"peaks": {"fp32": {"giga_ops": "fast", "source": "made"}}},
    "no peak": {"peaks": {}},
    "no memory": {"bandwidth": []},
    "negative": {"bandwidth": [{"level": "L1", "holds_bytes": -1, "read_gbs": 1.0, "copy_gbs": 1.0}]},
    "another version": {"schema_version": 2},
    "no threads": {"threads": 0},
    "a key too many": {"more": 1},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_impossible_values_are_refused(bad: dict[str, Any], cache: Path, meter: Meter):
    assert parse_ceilings(MADE) is not None
    assert parse_ceilings({**MADE, **bad}) is None
    cache.write_text(json.dumps({environment.fingerprint(FACTS): {"1": {**MADE, **bad}}}))
    assert read_ceilings(FACTS) == {}
    obtain_ceilings(ONE, FACTS, silent)
    assert meter.asked == [1]


def test_a_run_takes_what_is_remembered_and_measures_only_what_it_is_asked_for(cache: Path, meter: Meter):
    heard = list[str]()
    assert known_ceilings([], ONE, FACTS, silent) == {}
    assert meter.asked == []
    assert set(known_ceilings([1], ONE, FACTS, heard.append)) == {"1"}
    assert (meter.asked, len(heard)) == ([1], 1)
    assert set(known_ceilings([], ONE, FACTS, silent)) == {"1"}


def test_a_run_goes_on_where_they_can_not_be_measured(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Ceilings:
        raise ShootoutError("no way")

    monkeypatch.setattr(measure, "measure_ceilings", broken)
    heard: list[str] = []
    assert known_ceilings([1], ONE, FACTS, heard.append) == {}
    assert heard[-1] == "no way"


class Answers:
    """In place of a process: by the figure and library asked, what it says or raises."""

    def __init__(self, rates: dict[str, Any], faults: dict[str, list[str]] | None = None) -> None:
        self.rates, self.faults = rates, faults or {}

    def __call__(self, placement: Any, threads: int, figure: Any, asked: Any, what: str, notes: list[str]) -> Any:
        if figure is worker.bandwidth:
            return (10.0, 20.0)
        found = self.rates.get(asked["source"])
        if found is None:
            notes.append(f"{what}: broke")
            return None
        return found, self.faults.get(asked["source"], [])


def test_the_fastest_library_sets_a_peak_and_one_that_breaks_is_noted(monkeypatch: pytest.MonkeyPatch):
    rates = {"numpy": {"fp32": 100.0}, "torch": {"fp32": 120.0, "bf16": 90.0}, "openvino": {"bf16": 95.0}}
    monkeypatch.setattr(measure, "_run_fresh", Answers(rates))
    monkeypatch.setattr(measure, "find_spec", lambda name: name != "onnxruntime" or None)
    found = measure.measure_ceilings(ONE, 0.0)
    peaks = {name: (peak.giga_ops, peak.source) for name, peak in found.peaks.items()}
    assert peaks == {"fp32": (120.0, "torch"), "bf16": (95.0, "openvino")}
    monkeypatch.setattr(measure, "_run_fresh", Answers({"numpy": {"fp32": 100.0}}))
    assert "torch: broke" in measure.measure_ceilings(ONE, 0.0).notes
    refused = Answers({"torch": {"fp32": 100.0}}, {"torch": ["int8: RuntimeError: no"]})
    monkeypatch.setattr(measure, "_run_fresh", refused)
    found = measure.measure_ceilings(ONE, 0.0)
    assert (list(found.peaks), "torch int8: RuntimeError: no" in found.notes) == (["fp32"], True)
    monkeypatch.setattr(measure, "_run_fresh", Answers({}))
    with pytest.raises(ShootoutError, match=r"can't be measured here: .*numpy: broke"):
        measure.measure_ceilings(ONE, 0.0)


def test_main_memory_is_left_out_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measure, "_run_fresh", Answers({"numpy": {"fp32": 1.0}}))
    monkeypatch.setattr(measure, "cache_held", lambda name, cpus: {"L1d": 32_768, "L2": 1_000_000}.get(name, 0))
    monkeypatch.setattr(environment, "memory_available_bytes", lambda: 13_000_000)
    assert [one.level for one in measure.measure_ceilings(ONE, 0.0).bandwidth] == ["L1", "L2", "DRAM"]
    monkeypatch.setattr(environment, "memory_available_bytes", lambda: 11_000_000)
    found = measure.measure_ceilings(ONE, 0.0)
    assert [one.level for one in found.bandwidth] == ["L1", "L2"]
    assert any(note.startswith("DRAM: 3,000,000 bytes") for note in found.notes)


def test_working_sets_lie_inside_their_level_and_beyond_the_one_below():
    assert working_sets(1_000, 0) == [500, 750]
    assert working_sets(1_000, 100) == [500, 750, 400]
    assert working_sets(1_000, 300) == [500, 750]


def test_caches_that_cpus_share_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for cpu in (0, 1):
        for index, (level, size, shared) in enumerate([("2", "1M", str(cpu)), ("3", "8M", "0-1")]):
            folder = tmp_path / f"devices/system/cpu/cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            facts = {"level": level, "type": "Unified", "size": size, "shared_cpu_list": shared}
            for name, text in facts.items():
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(environment, "SYSTEM", tmp_path)
    assert measure.cache_held("L2", [0, 1]) == 2 * 2**20
    assert measure.cache_held("L3", [0, 1]) == 8 * 2**20
    assert measure.cache_held("L1d", [0, 1]) == 0


@pytest.mark.parametrize("source", sorted(worker.multipliers()))
def test_every_library_makes_right_products(source: str):
    """Products of ones have the size everywhere; OpenVINO's bytes are scaled."""
    for precision, make in worker.gemms(source, 1).items():
        result: Any = make(32)()
        rows = next(iter(result.values())) if source == "openvino" else result[0] if source == "onnxruntime" else result
        scale = STEP if (source, precision) == ("openvino", Precision.INT8) else 1
        assert [float(rows[0][0]), float(rows[-1][-1])] == pytest.approx([32 * scale] * 2)


@pytest.mark.parametrize("source", sorted(worker.multipliers()))
def test_rates_are_positive(source: str):
    rates, faults = worker.peak_rates(source, 1, sizes=(32,))
    assert "fp32" in rates
    assert all(rate > 0 for rate in rates.values())
    assert not faults


def test_a_precision_that_a_library_refuses_costs_it_no_other(monkeypatch: pytest.MonkeyPatch):
    def refused(_: int) -> Any:
        raise RuntimeError("no such kernel\nmore")

    products = {Precision.BF16: refused, **worker.gemms("numpy", 1)}
    monkeypatch.setattr(worker, "gemms", lambda *_: products)
    rates, faults = worker.peak_rates("made", 1, sizes=(32,))
    assert (list(rates), faults) == (["fp32"], ["bf16: RuntimeError: no such kernel"])


def test_our_own_first_measurement_is_no_disturbance_of_the_second(
    cache: Path, meter: Meter, monkeypatch: pytest.MonkeyPatch
):
    loads = iter([0.2, 5.0, 9.0])  # what the system would say, each time it is asked
    monkeypatch.setattr("os.getloadavg", lambda: (next(loads), 0.0, 0.0))
    both = Placement(parent=frozenset({0}), arms=frozenset({0, 1}), threads=2)
    known_ceilings([1, 2], both, FACTS, silent)
    assert (meter.asked, meter.loads) == ([1, 2], [0.2, 0.2])
    monkeypatch.undo()
    monkeypatch.setattr(measure, "_run_fresh", Answers({"numpy": {"fp32": 1.0}}))
    assert not any("load average" in note for note in measure.measure_ceilings(ONE, 0.2).notes)
    assert "load average 5.0" in measure.measure_ceilings(ONE, 5.0).notes[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_bandwidth_is_positive(threads: int):
    read, copied = worker.bandwidth([4_096, 8_192], threads, call_bytes=1 << 16)
    assert read > 0
    assert copied > 0


def test_a_fresh_process_answers_or_leaves_a_note():
    notes: list[str] = []
    asked = {"source": "numpy", "threads": 1, "sizes": [32]}
    rates, _ = measure._run_fresh(ONE, 1, worker.peak_rates, asked, "numpy", notes)
    assert rates["fp32"] > 0
    assert not notes
    assert measure._run_fresh(ONE, 1, worker.peak_rates, {**asked, "source": "none"}, "none", notes) is None
    assert notes == ["none: measure raised KeyError: 'none'"]
