"""What a row says of a quantized model before it has run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.exports import bare_exported
from support.races.fakes import FakePlayer, World
from support.races.groups import group_of_rules
from support.races.made import played, rounds

from shootout.core.constants import TAIL_S
from shootout.core.contract import Arm, Array, Device, Precision, Target
from shootout.core.errors import NotRun, NotRunKind
from shootout.core.exported.model import REPORT
from shootout.core.journal import samples
from shootout.core.journal.records import not_run
from shootout.core.messages import SCOPES, Tuned, Turn
from shootout.core.race.recording import NO_TIME, UNKNOWN, Recorder, _find_doubts, _prepared_line
from shootout.core.race.restart import tail_calls
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import Rules

LITTLE = (
    "weak check: int4 rounding alone may err by {} on this model, and an answer that ignores its inputs errs by only "
    "{}; labeled data would tell"
)
REST = "what isn't quantized computes in"


ARM = Arm(target=Target(backend="numpy"), model="m")


class Reader(FakePlayer):
    """A player that is asked for calls."""

    def __init__(self, arm: Arm) -> None:
        super().__init__(World({}), arm)
        self.asked: list[tuple[int, int]] = []

    def warm(self, calls: int, ns: int) -> Array:
        self.asked.append((calls, ns))
        return np.ones(calls)


def performance(call_ns: float, known: int, *, arm: Arm = ARM, per_reading: int = 1) -> Reader:
    """Of an arm whose rounds brought so many readings."""
    tuned = Tuned(per_reading=dict.fromkeys(SCOPES, per_reading), call_ns=dict.fromkeys(SCOPES, call_ns))
    found = Reader(arm)
    found.tuned, found.turns = tuned, [Turn(latency_ns=dict.fromkeys(SCOPES, np.ones(known)))]
    return found


def doubts(target: Target, *, drawn: bool = True, **error_bounds: float) -> tuple[str, ...]:
    exported = bare_exported({"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2, **error_bounds}, model="mine.onnx", drawn=drawn)
    found: Any = SimpleNamespace(exported=exported, probe="int4")
    return _find_doubts(Arm(target=target, model="m"), found, runs=True)


@pytest.mark.parametrize(
    ("backend", "device", "rest"),
    [
        ("torch-eager", Device.CPU, "bf16"),
        ("torch-compile", Device.CPU, "bf16"),
        ("onnxruntime", Device.CPU, ""),
        ("tensorrt", Device.CUDA, "fp16"),
    ],
)
def test_a_row_says_what_its_backend_declares_of_the_rest(backend: str, device: Device, rest: str):
    target = Target(backend=backend, device=device, precision=Precision.INT4)
    assert doubts(target, int4=0.2) == ((f"{REST} {rest}",) if rest else ())


def test_the_error_bound_has_what_the_rest_errs_by():
    exported = bare_exported({"fp32": 1e-5, "bf16": 0.02, "int4": 0.3})
    target = Target(backend="torch-eager", precision=Precision.INT4)
    declared = {(Device.CPU, Precision.INT4): Precision.BF16}
    assert exported.error_bound(target)[0] == 0.3
    assert exported.error_bound(target, declared)[0] == 0.32


@pytest.mark.parametrize(
    ("backend", "int4", "drawn", "says"),
    [
        ("onnxruntime", 0.51, True, "error not checked: the inputs are random; give --inputs"),
        ("onnxruntime", 0.51, False, LITTLE.format("0.51", 1)),
        ("onnxruntime", 0.49, True, None),
        ("torch-eager", 0.49, True, "error not checked: the inputs are random; give --inputs"),  # with BF16's on top
    ],
)
def test_a_row_says_where_its_error_proves_little(backend: str, int4: float, drawn: bool, says: str | None):
    found = doubts(Target(backend=backend, precision=Precision.INT4), drawn=drawn, int4=int4)
    assert [line for line in found if not line.startswith(REST)] == ([says] if says else [])


@pytest.mark.parametrize("precision", [Precision.INT4, Precision.BF16, Precision.FP16])
def test_a_row_whose_labels_or_truth_are_scored_is_not_told_to_bring_labels(tmp_path: Path, precision: Precision):
    found = []
    for is_scored in (False, True):
        if is_scored:
            (tmp_path / REPORT).touch()
        wide: Any = {"fp32": 1e-5, "fp16": 0.9, "bf16": 0.9, "int4": 0.9}
        exported = bare_exported(wide, model="mine.onnx", folder=tmp_path)
        made: Any = SimpleNamespace(exported=exported, probe="int4")
        target = Target(backend="onnxruntime", precision=precision)
        found.append(any("weak check" in line for line in _find_doubts(Arm(target=target, model="m"), made, runs=True)))
    assert found == [True, False]


def test_what_there_was_no_time_to_predict_refuses_nothing():
    """Nor is the row held to the tighter error bound of another scheme, or told that drawn inputs were at fault."""
    made = bare_exported({"fp32": 1e-5, "int8": 0.02}, whole_s=9.0, unpredicted=("fp16", "int8/per-tensor"))
    for scheme in ("shared+rest-fp16", "per-tensor"):
        target = Target(backend="onnxruntime", device=Device.CUDA, precision=Precision.INT8, scheme=scheme)
        assert made.error_bound(target)[0] is None
        assert not made.is_judged(target)
        found: Any = SimpleNamespace(exported=made, probe="int8")
        assert NO_TIME in _find_doubts(Arm(target=target, model="m"), found, runs=True)
    assert made.is_judged(Target(backend="onnxruntime", precision=Precision.INT8))
    assert made.is_judged(Target(backend="onnxruntime", precision=Precision.BF16)), "no time would have told it"


def test_a_files_own_precisions_that_nothing_can_be_predicted_of_are_not_judged():
    native, made = Target(backend="onnxruntime", precision=Precision.NATIVE), bare_exported({"fp32": 1e-5})
    found: Any = SimpleNamespace(exported=made, probe=None)
    assert not made.is_judged(native)
    assert _find_doubts(Arm(target=native, model="m"), found, runs=True) == (UNKNOWN,)


def test_a_wide_error_bound_of_fp32_shows_no_integers_to_be_floats():
    int4 = Target(backend="onnxruntime", precision=Precision.INT4)
    assert [bare_exported({"fp32": fp32, "int4": 34.0}).error_bound(int4)[1] for fp32 in (1e-3, 1.9)] == [1e-3, 0.0]


def test_an_error_above_what_inputs_move_proves_little_and_is_held_all_the_same():
    exported = bare_exported({"fp32": 1e-5, "int4": 0.2}, drawn=True, spread=0.3)
    int4 = Target(backend="onnxruntime", precision=Precision.INT4)
    found: Any = SimpleNamespace(exported=exported, probe="int4")
    assert exported.is_judged(int4)
    assert _find_doubts(Arm(target=int4, model="m"), found, runs=True) == (LITTLE.format(0.2, 0.3),)


def test_who_was_killed_is_tried_again_by_the_same_command_and_in_once_it_has_played(tmp_path, monkeypatch):
    arms = [Arm(target=Target(backend=name), model="m") for name in ("numpy", "openvino")]
    lines = [
        not_run("g", arm, NotRun(NotRunKind(kind), "r", during="a round"))
        for arm, kind in zip(arms, ("killed", "failed"), strict=True)
    ]
    written: list[Any] = []
    file, quiet = SimpleNamespace(append=lambda *some: written.extend(some)), SimpleNamespace(say=lambda _: None)

    def recorder(*lines: Any) -> Recorder:
        history: Any = SimpleNamespace(lines=lines)
        return Recorder(out=tmp_path, file=cast("Any", file), history=history, progress=cast("Any", quiet))

    assert list(recorder(*lines).of_group("g")) == ["openvino:cpu:fp32"]
    found = recorder()
    killed, broke = (NotRun(NotRunKind(kind), "r") for kind in ("killed", "failed"))
    found.note("g", arms[0], killed)
    assert (written[-1].cause, found.lacks) == (NotRunKind.KILLED, True)
    monkeypatch.setattr(samples, "write", lambda *_: None)
    rules = Rules(baseline=None, control=None, comparisons=1, max_restarts=9, bias_floor=0.005)
    line, closing = played(arms[0], 0, 1.0), rounds(0)
    group = replace(group_of_rules(rules, arms), setbacks=found.of_group("g"))
    group.take([line], closing)
    playing = [SimpleNamespace(arm=arms[0], turns=[], single_ns=np.array([]))]
    found.restart(group, cast("Any", SimpleNamespace(samples="", playing=playing)))
    assert written[-2:] == [line, closing]
    assert not found.lacks
    found.note("g", arms[0], killed)
    found.note("g", arms[0], broke)
    assert found.of_group("g") == {arms[0].label: broke}
    assert not found.lacks


def test_a_run_knows_which_exports_it_was_begun_on(tmp_path):
    built: Any = SimpleNamespace(
        exported=replace(bare_exported({"fp32": 1e-5}), key="brief"),
        facts={},
        build_s=1.0,
        cached=False,
        probe="fp32",
        install_bytes=None,
    )
    before: Any = SimpleNamespace(**{**vars(built), "exported": replace(built.exported, key="")})
    arms = [Arm(target=Target(backend=name), model="m") for name in ("numpy", "onnxruntime")]
    lines = [_prepared_line("g", arm, one, runs=True) for arm, one in zip(arms, (built, before), strict=True)]
    for complete, keys in ((False, {("g", "numpy:cpu:fp32"): "brief"}), (True, {})):
        history: Any = SimpleNamespace(lines=lines, complete=complete)
        nobody: Any = None
        assert Recorder(out=tmp_path, file=nobody, history=history, progress=nobody).begun_on == keys


@pytest.mark.parametrize(
    ("call_ns", "known", "left_s", "asked"),
    [
        (5e6, 60, 1e9, 3 + 106),
        (5e6, 166, 1e9, None),
        (1e8, 60, 1e9, 3 + 106),
        (2e8, 60, 1e9, None),
        (5e6, 60, 0.1, None),
    ],
    ids=["few", "enough", "slow", "too slow for a p99", "no time"],
)
def test_long_calls_are_read_as_often_as_a_p99_takes(call_ns: float, known: int, left_s: float, asked: int | None):
    found = performance(call_ns, known)
    single_ns = scenario_of(found.arm).read_after(found, left_s, tail_calls())
    assert found.asked == ([(asked, int(1e9 * min(left_s, TAIL_S)))] if asked else [])
    assert single_ns.size == (asked - 3 if asked else 0), "the lead-in doesn't count"


@pytest.mark.parametrize(
    ("arm", "per_reading"),
    [(replace(ARM, scenario="throughput"), 1), (replace(ARM, scenario="train-step"), 1)],
    ids=["several sessions", "training"],
)
def test_no_tail_is_read_of_calls_that_are_not_those_of_the_rounds(arm: Arm, per_reading: int):
    found = performance(5e6, 60, arm=arm, per_reading=per_reading)
    assert not scenario_of(arm).read_after(found, 1e9, tail_calls()).size


def test_a_gpus_clock_rises_before_its_tail_is_read():
    found = performance(5e6, 60, arm=replace(ARM, target=Target(backend="numpy", device=Device.CUDA)))
    scenario_of(found.arm).read_after(found, 1e9, tail_calls())
    assert found.asked[0][0] == 10 + 106
