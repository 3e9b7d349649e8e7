"""Builds of all groups: those of the first answer, then what was held back, in the order that the time asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from support.adapters.shipped import make_shipped
from support.exports import bare_exported

from shootout.core.adapter import Built
from shootout.core.build import preparation
from shootout.core.build.builder import Exports
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S
from shootout.core.contract import Arm, Availability, Device, NotRun, NotRunKind, Precision, Target
from shootout.core.errors import ArmFailed, ModelError, SkippedArm, UsageError
from shootout.core.exported.model import ExportedModel
from shootout.core.host.placement import place
from shootout.core.stats.goals import Aim, Goal
from shootout.core.study.group import GroupRecord
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.schema import Study
from shootout.core.study.target import provider
from shootout.core.worker.process import no_answer
from shootout.models.metrics import scorer

ARMS = [
    *(Arm(target=Target(backend=name), model="residual_mlp") for name in ("numpy", "onnxruntime", "torch-compile")),
    Arm(target=Target(backend="openvino", precision=Precision.INT8), model="residual_mlp"),
    Arm(target=Target(backend="torch-compile", mode="aoti"), model="residual_mlp"),
]
LABELS = [arm.label for arm in ARMS]
NUMPY, ORT, COMPILE, INT8, AOTI = LABELS
"""Builds of 0.3, 1, 15, 11 and 25 s by rule of thumb; the two of torch-compile take 4.5 s to load, too."""
CONVERTED = Arm(target=Target(backend="executorch"), model="residual_mlp")
"""It takes 25 s to build, and loads in 2 s."""
VERDICTS, BEST = Goal(), Goal(aim="best")


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

    def built(self, group: str, arm: Arm, found: Built, *, runs: bool) -> None:
        self.made.append(arm.label)


class Shop:
    """Builds at once, and notes in which order."""

    def __init__(self, **_: Any) -> None:
        self.begun: list[str] = []
        self.stopped = self.closed = False
        self.kept: set[str] = set()
        self.slow = ""
        self.broken = ""
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

    def prepare(
        self, arm: Arm, model: Any, version: str, *, runs: bool, cpus: frozenset[int], limit: Deadline
    ) -> Built:
        self.begun.append(arm.label)
        if arm.label == self.hangs:
            hanging(self).ask("build", BUILD_TIMEOUT_S, limit.left_s)
        if arm.label == self.slow:
            assert self.stopping.wait(30)
            raise ArmFailed("killed by SIGKILL during 'build'")
        if arm.label == self.broken:
            raise ArmFailed("build raised RuntimeError: no such layer")
        if arm.target.backend == "numpy":
            self.late = True
            raise SkippedArm("no such build", "none")
        return Built(arm=arm, exported=model, folder=Path())


def hanging(shop: Shop) -> Any:
    """A worker that never answers."""

    def ask(command: str, most_s: float, part_s: float) -> None:
        shop.waited_s.append(min(most_s, part_s))
        raise no_answer(command, part_s, had_part=part_s < most_s)

    return SimpleNamespace(ask=ask)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    made = Shop()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
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


def planned(
    monkeypatch: pytest.MonkeyPatch,
    export: Any = lambda *_: all_of("model"),
    *,
    arms: Sequence[Arm] = (),
    baseline: str = ORT,
    goal: Goal = VERDICTS,
    selects_for: str | None = None,
    has_labels: bool = True,
    max_error: float = 0.0,
    cpus: int = 1,
    deadline: Deadline | None = None,
    begun_on: Mapping[tuple[str, str], str] | None = None,
    skips: Mapping[str, NotRun] | None = None,
    limits: Mapping[str, float] | None = None,
) -> tuple[preparation.Preparation, PlannedGroup, Ledger]:
    """What prepares a group, its models as `export` gives them."""
    monkeypatch.setattr(preparation, "export_all", export)
    ledger, arms = Ledger(), arms or ARMS
    record = GroupRecord(
        name="g", baseline=baseline, comparisons=1, arms=tuple(arms), goal=goal, selects_for=selects_for
    )
    unlabeled = SimpleNamespace(labels=lambda _: "")
    scored: Any = SimpleNamespace(scored="truth" if has_labels else "", source=unlabeled)
    group = PlannedGroup(record=record, request=scored, skips=skips or {})
    request = SimpleNamespace(model="m", variant="", batch=1, device=Device.CPU, module=False)
    monkeypatch.setattr(PlannedGroup, "request_of", lambda self, arm: request)
    monkeypatch.setattr(preparation, "lanes", lambda placement: [frozenset({cpu}) for cpu in range(cpus)])
    plan: Any = SimpleNamespace(
        groups=[group],
        placement=place(1, range(max(2, cpus))),
        interpreters={},
        here=SimpleNamespace(
            memory_bytes=0, available={provider(arm.target): Availability(version="1") for arm in arms}
        ),
        study=Study(name="s", model=("m",), targets=("numpy",), max_error=max_error),
        delivery=None,
        on_selection=False,
        limits=limits,
    )
    progress: Any = SimpleNamespace(stage=lambda _: None, detail=lambda _: None, say=lambda _: None)
    going = preparation.Preparation(
        plan=plan,
        machine="m",
        logs=Path(),
        recorder=ledger,
        progress=progress,
        deadline=deadline or Deadline(None),
        begun_on=begun_on or {},
    )
    return going, group, ledger


def prepared(
    monkeypatch: pytest.MonkeyPatch, export: Any = lambda *_: all_of("model"), **how: Any
) -> tuple[dict[str, Any], Ledger]:
    """What a group comes to in the first step, and how its ledger reads then; `how` as in `planned`."""
    going, group, ledger = planned(monkeypatch, export, **how)
    return going.run([group]).get("g", {}), ledger


def all_of(found: Any, groups: Sequence[str] = ("g",)) -> Exports:
    return Exports(models={(name, "m", "", 1, Device.CPU, False, 0): found for name in groups}, probes={})


def test_no_arm_goes_on_with_another_export(shop, monkeypatch):
    found: Any = SimpleNamespace(key="whole", model="m")
    asked: list[Any] = []

    def export(*words: Any) -> Exports:
        asked.append(words[3:])
        return all_of(found)

    prepared(monkeypatch, export, begun_on={("g", ORT): "whole"})
    with pytest.raises(UsageError, match="begun on another export of m"):
        prepared(monkeypatch, export, begun_on={("g", ORT): "brief"})
    needs = {"fp32", "int8", "fp16", "bf16"}  # what isn't quantized may run in half
    assert asked == [({"whole"}, needs, needs), ({"brief"}, needs, needs)], "with labels any of them may lead"


def test_the_longest_builds_come_first_those_of_integers_among_them(shop, monkeypatch):
    ready, ledger = prepared(monkeypatch)
    assert shop.begun == [AOTI, COMPILE, INT8, ORT, NUMPY]
    assert sorted(ready) == sorted([AOTI, COMPILE, INT8, ORT])
    assert ledger.out[NUMPY].reason == "no such build"


def test_an_export_that_breaks_ends_the_run_before_any_build(shop, monkeypatch):
    def export(*_: Any) -> Exports:
        raise ModelError("nothing could be exported")

    with pytest.raises(ModelError):
        prepared(monkeypatch, export)
    assert not shop.begun


@pytest.mark.parametrize("kind", [NotRunKind.FAILED, NotRunKind.KILLED])
def test_an_arm_without_a_model_is_out_for_the_export_s_reason(shop, monkeypatch, kind):
    ready, ledger = prepared(monkeypatch, lambda *_: all_of(ModelError("has no such thing", kind)))
    assert not ready
    assert not shop.begun
    assert {(why.kind, why.during) for why in ledger.out.values()} == {(kind, "export")}


def build_next(going: preparation.Preparation) -> dict[str, dict[str, Any]]:
    """The second step, when nothing else is left to do."""
    return going.build(going.find_next(is_idle=True))


def test_what_is_for_a_gpu_is_built_after_all_others_and_last_what_times_kernels(shop, monkeypatch):
    names = ("tensorrt", "torch-compile", "jax-jit")
    on_gpu = [Arm(target=Target(backend=name, device=Device.CUDA), model="residual_mlp") for name in names]
    prepared(monkeypatch, arms=[*on_gpu, *ARMS], cpus=2)
    assert {*shop.begun[-3:-1]} == {on_gpu[1].label, on_gpu[2].label}
    assert shop.begun[-1] == on_gpu[0].label


def test_in_a_limited_time_what_is_kept_and_the_baseline_come_first_and_what_takes_too_long_waits(shop, monkeypatch):
    shop.kept = {AOTI}  # of 25 s, which is more than half of 26
    going, group, ledger = planned(monkeypatch, deadline=Left(26.0))
    ready = going.run([group])["g"]
    assert shop.begun == [AOTI, ORT, NUMPY, INT8]
    assert sorted(ready) == sorted([AOTI, ORT, INT8])
    assert set(ledger.out) == {NUMPY}, "nothing is said yet of the one that waits"
    assert (going.has_next, going.count_held("g")) == (False, 1)


@pytest.mark.parametrize(
    ("how", "kept", "first", "then"),
    [
        ({"has_labels": False}, set(), [ORT, NUMPY], [AOTI, COMPILE, INT8]),
        ({"has_labels": False, "deadline": 200.0}, set(), [ORT, NUMPY], [INT8, COMPILE, AOTI]),
        ({"has_labels": True}, set(), [INT8, ORT, NUMPY], [AOTI, COMPILE]),
        ({"has_labels": False, "max_error": 0.1}, set(), [INT8, ORT, NUMPY], [AOTI, COMPILE]),
        ({"has_labels": False}, {COMPILE, INT8}, [ORT, NUMPY], [AOTI, COMPILE, INT8]),
        ({"arms": [*ARMS[:2], CONVERTED]}, set(), [ORT, NUMPY], [CONVERTED.label]),
        ({"arms": [*ARMS[:2], CONVERTED]}, {CONVERTED.label}, [ORT, NUMPY, CONVERTED.label], []),
        ({"baseline": COMPILE}, set(), [COMPILE, INT8, ORT, NUMPY], [AOTI]),
        ({"baseline": COMPILE, "deadline": 200.0}, set(), [COMPILE, NUMPY, ORT, INT8], [AOTI]),
    ],
    ids=[
        *("longest first", "limited", "labels", "an error", "kept"),
        *("long build", "long build, kept", "long baseline", "long baseline, limited"),
    ],
)
def test_in_a_race_for_the_best_what_takes_long_loads_slowly_or_can_t_be_shipped_waits(
    shop, monkeypatch, how, kept, first, then
):
    shop.kept = kept  # which makes no target load faster, or fit to be shipped
    deadline = Left(how["deadline"]) if "deadline" in how else None
    going, group, _ = planned(monkeypatch, goal=BEST, **{**how, "deadline": deadline})
    ready = going.run([group])["g"]
    assert shop.begun == first
    assert {*ready} == {*first} - {NUMPY}
    assert (going.has_next, going.count_held("g")) == (bool(then), len(then))
    if then:
        assert {*build_next(going)["g"]} == {*then}
    assert shop.begun[len(first) :] == then
    assert (going.has_next, going.count_held("g")) == (False, 0)


@pytest.mark.parametrize("aim", [*Aim, "settings"])
def test_a_group_with_another_goal_holds_back_only_what_seems_not_to_end_in_time(shop, monkeypatch, aim):
    how: dict[str, Any] = {"goal": BEST, "selects_for": ORT} if aim == "settings" else {"goal": Goal(aim=aim)}
    waits = {COMPILE, AOTI, INT8} if aim == "best" else set[str]()
    for deadline, late in ((None, set[str]()), (Left(200.0), set[str]()), (Left(60.0), {AOTI})):
        shop.begun.clear()
        going, group, _ = planned(monkeypatch, has_labels=False, deadline=deadline, **how)
        going.run([group])
        assert {*shop.begun} == {*LABELS} - waits - late
        assert going.count_held("g") == (0 if aim == "settings" else len(waits | late)), "a setting can't join later"


def test_what_no_time_is_left_for_is_not_reached_with_what_to_do(shop, monkeypatch):
    no_gpu = NotRun(NotRunKind.BUILT_ONLY, "no GPU", "get one")
    going, group, ledger = planned(monkeypatch, deadline=Left(26.0), skips={AOTI: no_gpu})
    going.run([group])
    assert not going.find_next(is_idle=False)
    assert going.count_held("g") == 0
    assert ledger.out[COMPILE] == NotRun(
        NotRunKind.NOT_REACHED,
        "not built in the time that --max-time leaves for builds",
        "run the same command again, with more time: what was built is kept",
    )
    assert ledger.out[AOTI] == no_gpu, "it can't run here anyway"
    assert set(ledger.out) == {NUMPY, COMPILE, AOTI}


def test_a_build_that_fails_for_a_target_that_can_t_run_here_is_a_skip_with_both_reasons(shop, monkeypatch):
    shop.broken = COMPILE
    skips = {COMPILE: NotRun(NotRunKind.BUILT_ONLY, "no NVIDIA driver", "install one")}
    _, ledger = prepared(monkeypatch, skips=skips)
    reason = "no NVIDIA driver; its build failed too: build raised RuntimeError: no such layer"
    assert ledger.out[COMPILE] == NotRun(NotRunKind.UNAVAILABLE, reason, "install one")
    _, ledger = prepared(monkeypatch)
    assert ledger.out[COMPILE].failed
    assert ledger.out[COMPILE].during == "build"


def test_a_build_that_overruns_is_ended_and_what_is_ready_goes_on(shop, monkeypatch):
    monkeypatch.setattr(preparation, "LOOKING_S", 0.01)
    shop.slow = INT8  # begun before the two of torch-compile
    over = Left(200.0, lambda: INT8 in shop.begun)
    ready, ledger = prepared(monkeypatch, deadline=over)
    assert shop.stopped
    assert list(ready) == [ORT]
    assert {label: why.kind for label, why in ledger.out.items() if label != NUMPY} == dict.fromkeys(
        LABELS[2:], NotRunKind.NOT_REACHED
    )


def test_a_build_that_hangs_is_ended_with_its_part_and_the_others_are_built(shop, monkeypatch):
    shop.hangs = ORT  # the baseline: it comes first
    ready, ledger = prepared(monkeypatch, deadline=Left(60.0))
    assert shop.waited_s == [pytest.approx(15.0, abs=0.5)]  # half of the half that builds get
    why = ledger.out[ORT]
    assert why.hung
    assert why.reason == "--max-time left it no more time: its build was stopped after 15.0 s"
    assert sorted(ready) == sorted([COMPILE, INT8])


def test_a_shipped_folder_of_other_weights_ends_the_run(tmp_path):
    mine = bare_exported({}, model="m", weights_sha256="a" * 64)
    make_shipped(tmp_path / "out", replace(mine, weights_sha256="b" * 64))
    arm = Arm(target=Target(backend="numpy", folder=str(tmp_path / "out")), model="m")
    exports: Any = SimpleNamespace(of=lambda *_: mine)
    plan: Any = SimpleNamespace(here=SimpleNamespace(memory_bytes=1))
    group: Any = SimpleNamespace(record=SimpleNamespace(name="g"))
    silent: Any = None
    going = preparation.Preparation(plan=plan, machine="m", logs=Path(), recorder=Ledger(), progress=silent)
    with pytest.raises(UsageError, match=r"model\.sha256 bbbbbbbbbbbb…; this race is of m, aaaaaaaaaaaa…"):
        going._hand_out(group, [arm], exports, silent)


def test_a_metric_that_fails_on_the_reference_outputs_ends_the_run_before_any_build(shop, monkeypatch):
    tried: list[str] = []

    def fail(_spec: Any, exported: ExportedModel, timeout_s: float) -> str:
        tried.append(exported.model)
        return "metric.py:score raised KeyError: 'logits'. Outputs: y float32[1, 3]"

    monkeypatch.setattr(preparation, "metric_of", lambda study: SimpleNamespace(metric="metric.py:score"))
    monkeypatch.setattr(scorer, "try_first_call", fail)
    with pytest.raises(UsageError, match=r"metric.py:score can't score the outputs of m: metric.py:score raised"):
        prepared(monkeypatch, lambda *_: all_of(bare_exported({})))
    assert tried == ["m"], "once, whatever the number of targets"
    assert not shop.begun
