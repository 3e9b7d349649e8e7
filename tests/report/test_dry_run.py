"""A dry run says the groups of a plan, and figures that follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from rich.console import Console
from support.kept_screen import hold
from support.onnx_made import value, write

from shootout.apps import dry_run
from shootout.commands.run import find_threads_of_ceilings
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind
from shootout.core.exported.request import Content
from shootout.core.host.placement import Placement
from shootout.core.stats.verdicts import LEAST_RESTARTS
from shootout.core.study.feasibility import Here
from shootout.core.study.plan import Plan, plan_groups
from shootout.core.study.schema import checked
from shootout.models.onnx import effort

TARGETS = ("torch-eager", "numpy", "openvino:cpu:int8", "onnxruntime")
GIB = 2**30


def planned(memory: int = 64 * GIB, **fields: Any) -> Plan:
    study = checked({"name": "s", "model": "residual_mlp", "targets": TARGETS, **fields}, "a test")
    works = Availability(version="1")
    available = {(name.partition(":")[0], Device.CPU): works for name in TARGETS}
    available["onnxruntime", Device.CPU] = Availability(
        why=NotRun(NotRunKind.UNAVAILABLE, "it is not installed", "get it")
    )
    facts = dict.fromkeys(study.model, Content(bytes=1_000))
    here = Here(available=available, threads=1, cpus=2, memory_bytes=memory, facts=facts)
    placement = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
    return Plan(study=study, groups=plan_groups(study, here), placement=placement, here=here, identity="")


@pytest.fixture(autouse=True)
def _one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    for name in ("lanes", "lanes_near"):
        monkeypatch.setattr(dry_run, name, lambda placement: [placement.arms])


def text(found: Plan, max_time_s: float | None = None, policy: str = "") -> list[str]:
    console = Console(width=300)
    with console.capture() as captured:
        console.print(dry_run.render(found, max_time_s, policy))
    return [line.rstrip() for line in captured.get().splitlines()]


def least_s(found: Plan) -> float:
    return dry_run.foresee(found).least_s


def prepare_s(found: Plan) -> float:
    return dry_run.foresee(found).prepare_s


def test_time_is_restarts_times_arms_times_a_round_and_a_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "PRODUCTS_S", 1e12)  # calls take next to nothing
    one, many = planned(), planned(batch=tuple(range(1, 31)))
    assert least_s(many) == pytest.approx(30 * least_s(one), rel=0.3)
    assert dry_run.as_data(many)["cells"] == 30 * len(TARGETS)
    told = dry_run.foresee(planned(goal="baseline"))
    assert told.most_s / told.least_s == pytest.approx(20 / LEAST_RESTARTS)
    lean, heavy = planned(targets=("numpy",)), planned(targets=("torch-eager",))
    assert least_s(lean) < least_s(heavy)
    assert prepare_s(lean) < prepare_s(heavy) < prepare_s(one)


def test_loads_and_builds_go_side_by_side_and_rounds_don_t(monkeypatch: pytest.MonkeyPatch):
    found = planned(targets=("numpy", "torch-eager"), max_restarts=1)
    ready_s = sum(backends.entry(arm.target.backend).ready_s for arm in found.groups[0].playing)
    alone_s, builds_s = least_s(found), prepare_s(found)
    monkeypatch.setattr(dry_run, "lanes_near", lambda placement: [placement.arms] * 2)
    assert alone_s - least_s(found) == pytest.approx(ready_s / 2, rel=0.1)
    monkeypatch.setattr(dry_run, "lanes", lambda placement: [placement.arms] * 2)
    saved_s = backends.entry("numpy").build_s  # beside the longer one, which takes its time all the same
    assert builds_s - prepare_s(found) == pytest.approx(saved_s, rel=0.2)


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [
        ({}, 90.0),
        ({"batch": (1, 8)}, 180.0),
        ({"goal": "baseline"}, None),
        ({"goal": "resolve 3%"}, None),
        ({"scenario": ("throughput",)}, None),
    ],
)
def test_only_a_race_for_the_best_has_a_limit_of_its_own(fields: dict[str, Any], limit_s: float | None):
    found = planned(max_restarts=1_000, **fields)
    assert found.racing_s == dry_run.as_data(found)["racing_s"] == limit_s
    assert (dry_run.foresee(found).most_s == limit_s) is (limit_s is not None)
    assert any(line.startswith(f"goal {found.study.aims_at}: about") for line in text(found))


def test_rounds_take_as_long_as_their_scenario_has_them():
    def spent(**fields: Any) -> float:
        one = planned(targets=("numpy",), max_restarts=1, **fields)
        (group,) = one.groups
        return least_s(one) / len(group.playing) - backends.entry("numpy").ready_s

    alone = {"instances": (1,), "batch": (1,)}
    assert spent() == pytest.approx((12 + 4) * 0.012, rel=0.5)
    assert spent(scenario=("throughput",), **alone) == pytest.approx((12 + 4) * 0.052, rel=0.2)
    assert spent(scenario=("serve",), **alone) == pytest.approx(9 * 1.1, rel=0.1)
    assert spent(scenario=("serve",), rate=200.0, **alone) == pytest.approx(3 * 1.1, rel=0.1)
    assert "  1 to 1 restarts of 9 rounds" in text(planned(max_restarts=1, scenario=("serve",)))


def test_turns_under_sustained_load_share_the_time_that_is_given():
    found = planned(scenario=("sustained",), batch=(1, 8), sustained_s=1_440.0)
    assert 1_440 <= least_s(found) <= dry_run.foresee(found).most_s < 1_560


def test_no_more_restarts_are_promised_than_the_study_allows():
    short = planned(max_restarts=2)
    assert dry_run.as_data(short)["groups"][0]["restarts"] == [2, 2]
    assert least_s(short) == dry_run.foresee(short).most_s


def test_memory_is_that_of_the_largest_group_that_runs():
    fits, not_all = planned(batch=(1, 1024)), planned(memory=4 * GIB, parameters={"d_model": (512, 65536)})
    assert dry_run.needed_bytes(fits) == fits.groups[1].needs_bytes > fits.groups[0].needs_bytes > 0
    assert 0 < dry_run.needed_bytes(not_all) == not_all.groups[0].needs_bytes < 4 * GIB
    assert not not_all.groups[1].playing
    assert dry_run.as_data(not_all)["memory_available_bytes"] == 4 * GIB
    none = planned(memory=1)
    assert (dry_run.needed_bytes(none), least_s(none)) == (0, 0)


def test_ceilings_are_measured_at_the_threads_of_all_arms_and_only_where_a_study_asks():
    assert find_threads_of_ceilings(planned(threads=[1, 2])) == []
    assert find_threads_of_ceilings(planned(threads=[1, 2], ceilings=True)) == [1, 2]


def test_the_time_that_was_given_is_what_there_is():
    found = planned(max_restarts=1_000)
    before, least = prepare_s(found), least_s(found)
    for given, left, says in (
        (before + 600, 600, "10 min at most"),
        (before + 1, 1, "s are too short for all: about 2 of 3 targets"),
    ):
        assert dry_run.foresee(found, given).most_s == pytest.approx(left)
        data = dry_run.as_data(found, given)
        assert (data["racing_s"], data["max_time_s"], data["most_s"]) == (None, given, left)
        (line,) = (line for line in text(found, given) if line.startswith("goal"))
        assert says in line
    assert 1 < least < 600


def test_the_sizes_of_a_log_are_binned(tmp_path: Path):
    log = tmp_path / "sizes.txt"
    log.write_text("\n".join(["1"] * 60 + ["7"] * 10 + ["8"] * 50))
    of_log = planned(mix=f"batch={log}")
    data = dry_run.as_data(of_log)["mix"]
    assert (data["axis"], data["sizes"]) == ("batch", (1, 8))
    assert dry_run.as_data(planned())["mix"] is None


def encoder(path: Path, width: int, tokens: int) -> Path:
    """Two products, one weight each: `width` gives it bytes, `tokens` operations."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    weights = {name: np.zeros((width, width), np.float32) for name in "wv"}
    return write(path, nodes, [value("x", (tokens, width))], [value("y", (tokens, width))], weights)


def test_times_follow_from_the_bytes_of_weights_and_the_operations_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(effort, "PRODUCTS_S", 1e9)

    def told(width: int, tokens: int, max_time_s: float | None = None) -> dict[str, Any]:
        model = str(encoder(tmp_path / f"{width}-{tokens}.onnx", width, tokens))
        found = planned(model=model, targets=("numpy", "torch-eager"))
        group = replace(found.groups[0], weight_bytes=Path(model).stat().st_size)
        return dry_run.as_data(replace(found, groups=[group]), max_time_s)

    small, long, heavy = told(8, 8), told(8, 100_000), told(512, 8)
    for step in ("export_s", "restart_s"):
        assert small[step] < long[step], "a call of 26 ms, and one of a microsecond"
    assert small["export_s"] <= heavy["export_s"]
    monkeypatch.setattr(effort, "PRODUCTS_S", 2e8)
    assert told(64, 40_000, 60.0)["export_s"] < told(64, 40_000, 600.0)["export_s"], "two input sets in place of all"


def of_a_grid() -> Plan:
    sizes = {"d_model": (*range(1, 10), 65536), "n_layers": (2,)}
    return planned(memory=4 * GIB, batch=tuple(range(1, 12)), parameters=sizes)


def write_files() -> None:
    """Write the models and data of the kept screens into the current folder."""
    pictures = [helper.make_node("Conv", ["x", "k"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    weights = {"k": np.zeros((4, 3, 3, 3), np.float32)}
    write(Path("picture.onnx"), pictures, [value("x", (None, 3, "h", 10))], [value("y", None)], weights)
    np.savez("rows.npz", x=np.zeros((4, 3, 10, 10), np.float32), labels=np.arange(4))
    states = [helper.make_node("Add", ["x", "h"], ["hn"]), helper.make_node("Relu", ["hn"], ["y"])]
    ends = [value("x", (1, 4)), value("h", (1, 4))], [value("y", (1, 4)), value("hn", (1, 4))]
    write(Path("state.onnx"), states, *ends)
    encoder(Path("slow.onnx"), 512, 512)
    Path("sizes.txt").write_text("\n".join(["1"] * 60 + ["7"] * 10 + ["8"] * 50))


ONE: dict[str, Any] = {"targets": ("numpy",)}
PICTURE: dict[str, Any] = {"model": "picture.onnx", "shapes": {"x": (2, 3, 10, 10)}, **ONE}
STATE: dict[str, Any] = {"model": "state.onnx", **ONE}
STATIC = {**PICTURE, "targets": ("numpy", "onnxruntime:cpu:int8"), "inputs": "rows.npz"}
SCREENS: dict[str, Callable[[], list[str]]] = {
    "a limit on the worst restart": lambda: text(planned(**ONE, least_restarts=4, max_restarts=9)),
    "a file": lambda: text(planned(**PICTURE)),
    "rows, and static quantization": lambda: text(planned(**STATIC)),
    "a state that is given": lambda: text(planned(**STATE, state={"h": "hn"}, stream=7)),
    "a grid": lambda: text(of_a_grid()),
    "turns": lambda: text(planned(scenario=("sustained",), batch=(1, 8), sustained_s=1_440.0)),
    "a mix": lambda: text(planned(mix="batch=1:50,8:30")),
    "too little time for the export": lambda: text(planned(model="slow.onnx", **ONE), 60.0),
}


def test_what_is_told_of_a_plan_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effort, "PRODUCTS_S", 1e6)
    monkeypatch.chdir(tmp_path)
    write_files()
    told = "\n".join("\n".join([f"== {name}", *show(), ""]) for name, show in SCREENS.items())
    hold("dry-run", told.replace(f"{tmp_path}/", ""))
