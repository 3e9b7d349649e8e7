"""Builds of all groups: the longest first, some of them begun during the export, and nobody left waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from support.adapters.shipped import make_shipped
from support.exports import bare_exported

from shootout.backends.adapter import Built
from shootout.build import builder, pool, preparation
from shootout.build.builder import BuiltArm, Exports
from shootout.clock import Deadline
from shootout.constants import BUILD_TIMEOUT_S
from shootout.contract import Arm, Availability, Device, NotRun, NotRunKind, Precision, Target
from shootout.errors import ArmFailed, Hung, ModelError, SkippedArm, UsageError
from shootout.exported.model import ExportedModel
from shootout.host.placement import place
from shootout.study.group import GroupRecord
from shootout.study.plan import PlannedGroup
from shootout.study.schema import Study
from shootout.study.target import provider

ARMS = [
    *(Arm(target=Target(backend=name), model="residual_mlp") for name in ("numpy", "onnxruntime", "torch-compile")),
    Arm(target=Target(backend="openvino", precision=Precision.INT8), model="residual_mlp"),
    Arm(target=Target(backend="torch-compile", mode="aoti"), model="residual_mlp"),
]
LABELS = [arm.label for arm in ARMS]


class Ledger:
    """Remembers what it hears."""

    had_hung: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        self.out: dict[str, NotRun] = {}
        self.made: list[str] = []

    def is_out(self, group: str, arm: Arm) -> bool:
        return arm.label in self.out

    def hung(self, group: str, arm: Arm) -> bool:
        return arm.label in self.had_hung

    def note(self, group: str, arm: Arm, why: NotRun) -> None:
        self.out.setdefault(arm.label, why)

    def built(self, group: str, arm: Arm, found: BuiltArm, *, runs: bool) -> None:
        self.made.append(arm.label)


class Shop:
    """Builds at once, and notes in which order and what got ready before."""

    def __init__(self, **_: Any) -> None:
        self.begun: list[str] = []
        self.ready: list[str] = []
        self.got_ready = threading.Event()
        self.stopped = self.closed = False
        self.kept: set[str] = set()
        self.slow = ""
        self.broken = ""
        self.foreign = ""
        self.hangs = ""
        self.waited_s: list[float] = []
        self.late = False
        self.stopping = threading.Event()

    def stop(self) -> None:
        self.stopped = True
        self.stopping.set()

    def close(self) -> None:
        self.closed = True

    def holds(self, arm: Arm, model: Any, version: str, runs: bool) -> bool:
        return arm.label in self.kept

    @contextmanager
    def worker(self, arm: Arm, cpus: frozenset[int]) -> Iterator[Any]:
        def ask(command: str, timeout_s: float, backend: str) -> None:
            self.ready.append(arm.label)
            self.got_ready.set()

        yield SimpleNamespace(ask=ask, label=arm.label)

    def prepare(
        self, arm: Arm, model: Any, version: str, *, runs: bool, cpus: frozenset[int], worker: Any, limit: Deadline
    ) -> BuiltArm:
        assert worker is None or worker.label == arm.label
        self.begun.append(arm.label)
        if arm.label == self.hangs:
            builder.ask(hanging(self), "build", BUILD_TIMEOUT_S, limit)
        if arm.label == self.slow:
            assert self.stopping.wait(30)
            raise ArmFailed("killed by SIGKILL during 'build'")
        if arm.label == self.broken:
            raise ArmFailed("build raised RuntimeError: no such layer")
        if arm.target.backend == "numpy":
            self.late = True
            raise SkippedArm("no such build", "none")
        facts = {"elsewhere": "it is for a phone"} if arm.label == self.foreign else {}
        return BuiltArm(
            built=Built(arm=arm, exported=model, folder=Path(), facts=facts), build_s=0.0, cached=False, probe=None
        )


def hanging(shop: Shop) -> Any:
    """A worker that never answers."""

    def ask(command: str, timeout_s: float, **_: Any) -> None:
        shop.waited_s.append(timeout_s)
        raise Hung(f"hung: no answer to {command!r}")

    return SimpleNamespace(ask=ask)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    made = Shop()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(preparation, "AT_ONCE_S", 0.01)
    monkeypatch.setattr(preparation, "Builder", lambda **_: made)
    monkeypatch.setattr(preparation, "check_export", lambda arm, exported: None)
    monkeypatch.setattr(preparation, "check_memory_of_exports", lambda arms, exported_models, memory: {})
    monkeypatch.setattr(preparation, "device_bytes", lambda arm, exported: 1)
    return made


class Left(Deadline):
    """So many seconds are left, however long anything takes; none once `over` is true."""

    def __init__(self, left_s: float, over: Callable[[], bool] = lambda: False) -> None:
        super().__init__(left_s)
        self.over = over

    @property
    def left_s(self) -> float:
        return 0.0 if self.over() else self.seconds or 0.0

    def allows(self, seconds: float) -> bool:
        return not self.over() and seconds <= self.left_s

    def part(self, share: float = 1.0) -> Deadline:
        return Left(share * (self.seconds or 0.0), self.over)


def prepared(
    monkeypatch: pytest.MonkeyPatch,
    export: Any,
    cpus: int = 2,
    deadline: Deadline | None = None,
    begun_on: Mapping[tuple[str, str], str] | None = None,
    skips: Mapping[str, NotRun] | None = None,
    limits: Mapping[str, float] | None = None,
) -> tuple[dict[str, Any], Ledger]:
    """What a group comes to, its models as `export` gives them."""
    monkeypatch.setattr(preparation, "export_all", export)
    ledger = Ledger()
    record = GroupRecord(name="g", baseline=LABELS[1] if deadline else None, comparisons=1, arms=tuple(ARMS))
    group = PlannedGroup(record=record, request=SimpleNamespace(scored="truth"), skips=skips or {})  # type: ignore[arg-type]
    request = SimpleNamespace(model="m", variant="", batch=1, device=Device.CPU, module=False)
    monkeypatch.setattr(PlannedGroup, "request_of", lambda self, arm: request)
    monkeypatch.setattr(preparation, "lanes", lambda placement: [frozenset({cpu}) for cpu in range(cpus)])
    plan: Any = SimpleNamespace(
        groups=[group],
        placement=place(1, range(cpus)),
        interpreters={},
        available={provider(arm.target): Availability(version="1") for arm in ARMS},
        here=SimpleNamespace(memory_bytes=0),
        study=Study(name="s", model=("m",), targets=("numpy",)),
        delivery=None,
        on_selection=False,
        limits=limits,
    )
    progress: Any = SimpleNamespace(stage=lambda _: None, detail=lambda _: None, say=lambda _: None)
    ready = preparation.Preparation(
        plan=plan,
        machine="m",
        logs=Path(),
        ledger=ledger,
        progress=progress,
        deadline=deadline or Deadline(None),
        begun_on=begun_on or {},
    ).run([group])
    return ready["g"], ledger


def all_of(found: Any) -> Exports:
    return Exports(models={("g", "m", "", 1, Device.CPU, False, 0): found}, probes={})


def test_what_builds_are_forked_from_is_gone_before_the_race(shop, monkeypatch):
    prepared(monkeypatch, lambda *_: all_of(SimpleNamespace(key="k", model="m")))
    assert shop.closed


def test_no_arm_goes_on_with_another_export(shop, monkeypatch):
    found: Any = SimpleNamespace(key="whole", model="m")
    asked: list[Any] = []

    def export(*words: Any) -> Exports:
        asked.append(words[3:])
        return all_of(found)

    prepared(monkeypatch, export, begun_on={("g", LABELS[1]): "whole"})
    with pytest.raises(UsageError, match="begun on another export of m"):
        prepared(monkeypatch, export, begun_on={("g", LABELS[1]): "brief"})
    needs = {"fp32", "int8", "fp16", "bf16"}  # what isn't quantized may run in half
    assert asked == [({"whole"}, needs, needs), ({"brief"}, needs, needs)], "with labels any of them may lead"


def test_the_longest_builds_come_first_those_of_integers_among_them(shop, monkeypatch):
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1)
    assert shop.begun == [LABELS[4], LABELS[2], LABELS[3], LABELS[1], LABELS[0]]
    assert sorted(ready) == sorted(set(LABELS) - {LABELS[0]})
    assert ledger.out[LABELS[0]].reason == "no such build"
    assert not shop.ready, "one lane is the export's own"


def test_a_build_gets_ready_while_its_model_is_exported(shop, monkeypatch):
    def export(*_: Any) -> Exports:
        assert shop.got_ready.wait(30), "no build began before the export ended"
        assert not shop.begun
        return all_of("model")

    ready, _ = prepared(monkeypatch, export)
    assert shop.ready == [LABELS[4]]
    assert ready[LABELS[4]].exported == "model"
    assert len(ready) == len(LABELS) - 1


def test_in_a_limited_time_the_shortest_of_the_hard_ones_begins_during_the_export(shop, monkeypatch):
    """The longest would take the time of the integers' builds, which end sooner and are raced then."""

    def export(*_: Any) -> Exports:
        assert shop.got_ready.wait(30)
        return all_of("model")

    prepared(monkeypatch, export, deadline=Left(100.0))
    assert shop.ready == [LABELS[2]]
    shop.ready.clear()
    shop.begun.clear()
    prepared(monkeypatch, lambda *_: all_of("model"), deadline=Left(40.0))  # half of it is for builds of 26 s
    assert not shop.ready
    assert shop.begun[0] != LABELS[2], "none starts before those that take less"


def test_a_model_out_of_the_cache_needs_no_getting_ready(shop, monkeypatch):
    monkeypatch.setattr(preparation, "AT_ONCE_S", 30.0)
    prepared(monkeypatch, lambda *_: all_of("model"))
    assert not shop.ready


def test_an_export_that_breaks_leaves_no_build_waiting(shop, monkeypatch):
    def export(*_: Any) -> Exports:
        assert shop.got_ready.wait(30)
        raise ModelError("nothing could be exported")

    with pytest.raises(ModelError):
        prepared(monkeypatch, export)
    assert shop.stopped
    assert not shop.begun


@pytest.mark.parametrize("kind", [NotRunKind.FAILED, NotRunKind.KILLED])
def test_an_arm_without_a_model_is_out_for_the_export_s_reason(shop, monkeypatch, kind):
    def export(*_: Any) -> Exports:
        assert shop.got_ready.wait(30)
        return all_of(ModelError("has no such thing", kind))

    ready, ledger = prepared(monkeypatch, export)
    assert not ready
    assert not shop.begun
    assert {(why.kind, why.during) for why in ledger.out.values()} == {(kind, "export")}


def test_what_is_for_a_gpu_is_built_after_all_others_and_last_what_times_kernels(shop, monkeypatch):
    names = ("tensorrt", "torch-compile", "jax-jit")
    on_gpu = [Arm(target=Target(backend=name, device=Device.CUDA), model="residual_mlp") for name in names]
    monkeypatch.setattr(f"{__name__}.ARMS", [*on_gpu, *ARMS])
    prepared(monkeypatch, lambda *_: all_of("model"))
    assert {*shop.begun[-3:-1]} == {on_gpu[1].label, on_gpu[2].label}
    assert shop.begun[-1] == on_gpu[0].label


def test_in_a_limited_time_what_is_kept_and_the_baseline_come_first_and_what_takes_too_long_never(shop, monkeypatch):
    shop.kept = {LABELS[4]}  # of 25 s, which is more than half of 26
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(26.0))
    assert shop.begun == [LABELS[4], LABELS[1], LABELS[0], LABELS[3]]
    assert ledger.out[LABELS[2]].kind is NotRunKind.NOT_REACHED
    assert sorted(ready) == sorted([LABELS[1], LABELS[3], LABELS[4]])


def test_in_a_limited_time_a_tuning_run_with_limits_builds_in_the_order_of_its_candidates(shop, monkeypatch):
    prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(100.0))
    assert shop.begun == [LABELS[1], LABELS[0], LABELS[3], LABELS[2], LABELS[4]], "the shortest first"
    shop.begun.clear()
    prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(100.0), limits={"max-error": 0.1})
    assert shop.begun == [LABELS[1], LABELS[0], LABELS[2], LABELS[3], LABELS[4]]


def test_what_can_t_run_here_anyway_is_not_said_to_have_lacked_time(shop, monkeypatch):
    no_gpu = NotRun(NotRunKind.BUILT_ONLY, "no GPU", "get one")
    skips = {LABELS[2]: no_gpu}
    _, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(26.0), skips=skips)
    assert ledger.out[LABELS[2]] == no_gpu


def test_a_build_that_fails_for_a_target_that_can_t_run_here_is_a_skip_with_both_reasons(shop, monkeypatch):
    shop.broken = LABELS[2]
    skips = {LABELS[2]: NotRun(NotRunKind.BUILT_ONLY, "no NVIDIA driver", "install one")}
    _, ledger = prepared(monkeypatch, lambda *_: all_of("model"), skips=skips)
    reason = "no NVIDIA driver; its build failed too: build raised RuntimeError: no such layer"
    assert ledger.out[LABELS[2]] == NotRun(NotRunKind.UNAVAILABLE, reason, "install one")
    _, ledger = prepared(monkeypatch, lambda *_: all_of("model"))
    assert ledger.out[LABELS[2]].failed
    assert ledger.out[LABELS[2]].during == "build"


def test_what_was_built_for_another_machine_is_told_and_never_raced(shop, monkeypatch):
    shop.foreign = LABELS[2]
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"))
    assert LABELS[2] not in ready
    assert LABELS[2] in ledger.made
    assert ledger.out[LABELS[2]] == NotRun(NotRunKind.BUILT_ONLY, "it is for a phone")


def test_a_build_that_overruns_is_ended_and_what_is_ready_goes_on(shop, monkeypatch):
    monkeypatch.setattr(pool, "LOOKING_S", 0.01)
    shop.slow = LABELS[3]  # begun before the two of torch-compile
    over = Left(200.0, lambda: LABELS[3] in shop.begun)
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=over)
    assert shop.stopped
    assert list(ready) == [LABELS[1]]
    assert {label: why.kind for label, why in ledger.out.items() if label != LABELS[0]} == dict.fromkeys(
        LABELS[2:], NotRunKind.NOT_REACHED
    )


def test_a_build_that_hangs_is_ended_with_its_part_and_the_others_are_built(shop, monkeypatch):
    shop.hangs = LABELS[1]  # the baseline: it comes first
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(40.0))
    assert shop.waited_s == [pytest.approx(10.0, abs=0.5)]  # half of the half that builds get
    why = ledger.out[LABELS[1]]
    assert why.hung
    assert why.reason == "--max-time left it no more time: its 'build' was stopped"
    assert sorted(ready) == sorted([LABELS[2], LABELS[3]])


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("hung: no answer to 'build' within 35 s; it was killed", "its 'build' was stopped after 35 s"),
        ("hung: no answer to 'load' within 9 s; it was killed; its last words: w", None),
        ("hung: no answer", "its call was stopped"),
        ("it died", "it died"),
    ],
)
def test_what_the_run_s_time_stopped_has_not_hung(reason: str, told: str | None):
    told = told or "its 'load' was stopped after 9 s; its last words: w"
    assert Hung(reason, had_part=True).why.reason == f"--max-time left it no more time: {told}"
    assert Hung(reason).why.reason == reason, "without a limit it hung"


@pytest.mark.parametrize(("kept", "waited_s"), [(LABELS[2:], 20.0), (LABELS[3:], 10.0)], ids=["alone", "not alone"])
def test_a_build_that_no_other_waits_behind_has_all_of_the_time_for_builds(shop, monkeypatch, kept, waited_s):
    monkeypatch.setattr(f"{__name__}.ARMS", ARMS[1:])
    shop.hangs, shop.kept = LABELS[1], {*kept}
    prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=Left(40.0))
    assert shop.waited_s == [pytest.approx(waited_s, abs=0.5)]


@pytest.mark.parametrize(("call_s", "left_s", "built"), [(0.5, 40.0, False), (0.5, 400.0, True), (0.01, 60.0, True)])
def test_what_can_t_be_shipped_is_built_only_if_that_leaves_the_others_time(shop, monkeypatch, call_s, left_s, built):
    monkeypatch.setattr(preparation, "leading_of", lambda groups, *, any_error: {"fp32"})
    monkeypatch.setattr(preparation, "size_of", lambda request, weight_bytes: SimpleNamespace(call_s=call_s))
    monkeypatch.setattr(PlannedGroup, "playing", ARMS)
    _, ledger = prepared(monkeypatch, lambda *_: all_of("model"), deadline=Left(left_s), cpus=2)
    assert (LABELS[3] in shop.begun) is built
    assert LABELS[1] in shop.begun
    if not built:
        assert "without labels or an error that you accept it can't be shipped" in ledger.out[LABELS[3]].reason


def test_a_build_that_has_a_lane_of_its_own_has_all_of_the_time_for_builds(shop, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ARMS", ARMS[1:3])
    shop.hangs = LABELS[1]
    prepared(monkeypatch, lambda *_: all_of("model"), cpus=2, deadline=Left(100.0))
    assert shop.waited_s == [pytest.approx(50.0, abs=0.5)]


def test_a_build_that_hung_comes_behind_the_others_when_the_run_goes_on(shop, monkeypatch):
    monkeypatch.setattr(Ledger, "had_hung", {LABELS[1], LABELS[4]})
    prepared(monkeypatch, lambda *_: all_of("model"), deadline=Left(200.0), cpus=1)
    assert shop.begun[-2:] == [LABELS[1], LABELS[4]]


def test_a_build_that_hangs_in_a_run_without_end_has_failed():
    made = Shop()
    with pytest.raises(Hung) as found:
        builder.ask(hanging(made), "build", BUILD_TIMEOUT_S, Deadline(None))
    assert (found.value.why.kind, made.waited_s) == (NotRunKind.FAILED, [BUILD_TIMEOUT_S])


def test_what_fails_by_itself_when_the_time_is_over_has_failed(shop, monkeypatch):
    over = Left(200.0, lambda: shop.late)
    _, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=over)
    assert ledger.out[LABELS[0]].reason == "no such build"


def test_what_is_kept_is_loaded_however_late_it_is(shop, monkeypatch):
    shop.kept = set(LABELS)
    over = Left(200.0, lambda: bool(shop.begun))
    ready, ledger = prepared(monkeypatch, lambda *_: all_of("model"), cpus=1, deadline=over)
    assert sorted(ready) == sorted(LABELS[1:])
    assert set(ledger.out) == {LABELS[0]}


def test_a_shipped_folder_of_other_weights_ends_the_run(tmp_path):
    mine = bare_exported({}, model="m", weights_sha256="a" * 64)
    make_shipped(tmp_path / "out", replace(mine, weights_sha256="b" * 64))
    arm = Arm(target=Target(backend="numpy", folder=str(tmp_path / "out")), model="m")
    exports: Any = SimpleNamespace(of=lambda *_: mine)
    plan: Any = SimpleNamespace(here=SimpleNamespace(memory_bytes=1))
    group: Any = SimpleNamespace(record=SimpleNamespace(name="g"))
    silent: Any = None
    going = preparation.Preparation(plan=plan, machine="m", logs=Path(), ledger=Ledger(), progress=silent)
    with pytest.raises(UsageError, match=r"model\.sha256 bbbbbbbbbbbb…; this race is of m, aaaaaaaaaaaa…"):
        going._hand_out([preparation.BuildJob(group, arm)], exports)


def test_a_metric_that_fails_on_the_reference_outputs_ends_the_run_before_any_build(shop, monkeypatch):
    tried: list[str] = []

    def fail(measure: Any, exported: ExportedModel, timeout_s: float) -> str:
        tried.append(exported.model)
        assert timeout_s == 30.0
        return "metric.py:score raised KeyError: 'logits'. Outputs: y float32[1, 3]"

    monkeypatch.setattr(preparation, "measure_of", lambda study: SimpleNamespace(metric="metric.py:score"))
    monkeypatch.setattr(preparation.scoring, "try_first_call", fail)
    with pytest.raises(UsageError, match=r"metric.py:score can't score the outputs of m: metric.py:score raised"):
        prepared(monkeypatch, lambda *_: all_of(bare_exported({})), cpus=1)
    assert tried == ["m"], "once, whatever the number of targets"
    assert not shop.begun
