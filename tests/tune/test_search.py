"""The tuner: what it makes of the results, and its stages, driven by planted times."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.races import made

from shootout.apps.judge import analysis
from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.decide.question import judge_stage
from shootout.apps.tune import search, table
from shootout.apps.tune.results import ALONE, CONFIRMED, TOGETHER, TUNED, TuneOutcome, Tuning, read_tuning
from shootout.apps.tune.search import TuningSearch, best_of_each
from shootout.apps.tune.settings import Change
from shootout.commands import tune as tune_command
from shootout.core import backends
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Availability, Device, NotRun, NotRunKind, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.host import environment
from shootout.core.host.placement import place
from shootout.core.journal import journal
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import Ended, Header, Rounds, not_run
from shootout.core.messages import Scores
from shootout.core.stats.verdicts import Verdict
from shootout.core.study import points
from shootout.core.study.feasibility import Here, needed_bytes
from shootout.core.study.plan import Plan, plan_groups
from shootout.core.study.schema import Study
from shootout.tell import option_values, run_folder
from shootout.tell.document import Document, Ratio
from shootout.tell.limits import Standing

WORKS = Availability(version="1")
MISSING = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "it is not installed", "pip install it"))
HERE = Here(available={}, threads=2, cpus=2, memory_bytes=10**12)


def default(backend: str, *, threads: int = 1, **target: Any) -> Arm:
    return Arm(target=Target(backend=backend, **target), model="residual_mlp", threads=threads)


def ratio(value: float, verdict: Verdict = Verdict.CANT_TELL) -> Ratio:
    return Ratio(value=value, low=value * 0.9, high=value * 1.1, verdict=verdict, restarts_needed=None, sd=0.01)


def test_the_best_value_of_each_knob_that_may_help_is_taken_the_largest_gain_first():
    a1, a2, b, c, d = (Change(knob=name, threads=index) for index, name in enumerate("aabcd", start=1))
    results = [(a1, ratio(0.9)), (a2, ratio(0.8)), (b, ratio(0.7)), (c, ratio(0.995)), (d, None)]
    assert best_of_each([(*one, Standing.MET) for one in results]) == [b, a2]
    assert best_of_each([(b, ratio(0.97, Verdict.SAME), Standing.MET)]) == []


def test_a_value_that_keeps_the_limits_comes_before_one_that_may_and_one_that_does_not_is_none():
    sure, fast, broken = (Change(knob="precision", threads=index) for index in (1, 2, 3))
    found = [(fast, ratio(0.5), Standing.UNKNOWN), (sure, ratio(0.8), Standing.MET)]
    assert best_of_each([*found, (broken, ratio(0.3), Standing.BROKEN)]) == [sure]
    assert best_of_each([found[0], (broken, ratio(0.3), Standing.BROKEN)]) == [fast]


def test_one_model_at_a_time():
    study = Study(name="s", model=("identity",), targets=("spin",), options={"spin": {"work": "20"}}, batch=(1, 2))
    with pytest.raises(UsageError, match="one model at a time: give one value for each axis, got 2"):
        search.make_search(study, ())
    files = study.model_copy(update={"model": ("a.onnx", "b.onnx"), "batch": (1,)})
    with pytest.raises(UsageError, match=r"one model at a time: name one file, such as a\.onnx"):
        search.make_search(files, ())


GENERAL = [name for name in backends.names() if not backends.entry(name).own_files]


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        (("backend=openvino", "precision=bf16"), {"openvino:cpu:bf16"}),
        (("device=cuda",), {f"{name}:cuda:{points.describe(name)[1].precision}" for name in GENERAL}),
        ((), {str(points.describe(name)[1]) for name in GENERAL}),
    ],
)
def test_axes_choose_the_targets_to_tune(sets: tuple[str, ...], wanted: set[str], monkeypatch: pytest.MonkeyPatch):
    def stop(study: Study, *_: object) -> TuningSearch:
        asked.append(study)
        raise UsageError("seen")

    asked: list[Study] = []
    monkeypatch.setattr(search, "make_search", stop)
    with pytest.raises(UsageError, match="seen"):
        tune_command.tune({"parameters": option_values.read_sets("--set", sets)}, as_json=True)
    assert {str(target) for target in points.targets_of(asked[0])} == wanted


Times = Callable[[str, Arm], float]
"""The true time (ns) of an arm in a stage."""


class Machine:
    """Plays a stage's run with planted times, as the journal would hold it."""

    def __init__(self, times: Times) -> None:
        self.scores: Callable[[str, Arm], Scores | None] = lambda *_: None
        self.times, self.ran, self.limits, self.unfinished = times, [], {}, set()
        self.plans: dict[str, Plan] = {}
        self.refused: dict[str, float] = {}
        """The relative error of arms whose outputs are refused, by label."""
        self.rng = np.random.default_rng(0)
        self.now_s = 0.0

    def run(self, plan: Plan, out: Path, limit: Deadline) -> Document:
        stage = out.name
        self.ran.append(stage)
        self.limits[stage] = limit.seconds
        self.now_s += 7.0
        self.plans[stage] = plan
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        file = Journal(out)
        file.append(self._header(plan))
        for group in plan.groups:
            for arm in group.record.arms:
                if why := group.skips.get(arm.label):
                    file.append(not_run(group.record.name, arm, NotRun(why.kind, why.reason, why.fix)))
            playing = [arm for arm in group.playing if arm.label not in self.refused]
            for arm in (one for one in group.playing if one.label in self.refused):
                name, error = group.record.name, self.refused[arm.label]
                wrong = replace(made.EXACT, relative_l2=error)
                failed = not_run(name, arm, NotRun(NotRunKind.FAILED, f"relative L2 error {error}", during="verify"))
                file.append(made.checked(arm, group=name, fidelity=wrong), failed)
            for arm in (one for one in playing if not one.control):
                if scores := self.scores(stage, arm):
                    file.append(made.checked(arm, scores, group=group.record.name))
            for restart in range(8 if playing else 0):
                lines = [
                    made.played(
                        arm,
                        restart,
                        self.times(stage, arm) * float(np.exp(self.rng.normal(0, 0.002))),
                        group=group.record.name,
                    )
                    for arm in playing
                ]
                file.append(*lines, Rounds(group=group.record.name, restart=restart, tried=3, voided=(), wall_s=1))
        file.append(Ended(complete=stage not in self.unfinished, why="made", wall_s=7.0))
        file.close()
        return analysis.analyse_cells(out).document

    def _header(self, plan: Plan) -> Header:
        return made.header(
            study=plan.study.name,
            identity=plan.identity,
            groups=tuple(group.record for group in plan.groups),
            environment={},
            limits=plan.limits,
        )


def times(stage: str, arm: Arm) -> float:
    """OpenVINO gains from one thread and from a hint; ONNX Runtime seems to gain in the search only; NumPy never."""
    name, setting = arm.target.backend, arm.setting
    if name == "openvino":
        return 1e6 * (0.5 if arm.threads == 1 else 1) * (0.9 if "THROUGHPUT" in setting else 1)
    if name == "onnxruntime" and "spinning" in setting:
        return 0.95e6 if stage == ALONE else 1e6
    return 1e6 if arm.settings == "closed" else 1.1e6


def plant(patch: pytest.MonkeyPatch, times: Times = times) -> Machine:
    """Make a machine, and what reads its journals read no samples and analyze a journal once."""
    analysed: dict[tuple[Path, bytes], Analysed] = {}

    def analyse_once(folder: Path) -> Analysed:
        """Spare it for a stage that was not played since: each stage begins with all before it."""
        place = folder, (folder / journal.NAME).read_bytes()
        if place not in analysed:
            analysed[place] = analyse_cells(folder)
        return analysed[place]

    patch.setattr("shootout.core.journal.samples.read", lambda *_: np.ones(10))
    patch.setattr(environment, "facts", dict)
    patch.setattr(analysis, "analyse_cells", analyse_once)
    return Machine(times)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return plant(monkeypatch)


def ground(
    *targets: str, missing: tuple[str, ...] = (), threads: int = 2, memory: int = 10**12, **fields: Any
) -> TuningSearch:
    named = targets or ("openvino", "onnxruntime", "numpy")
    study = Study(name="s", model=("residual_mlp",), targets=named, **fields)
    known = [*backends.names(), *(f"{name}@{python}" for name in backends.names() for python in study.pythons)]
    available = {(name, device): MISSING if name in missing else WORKS for name in known for device in Device}
    here = Here(available=available, threads=threads, cpus=threads, memory_bytes=memory)
    planned = Plan(
        study=study,
        groups=plan_groups(study, here),
        placement=place(None),
        identity="request",
        here=here,
    )
    return TuningSearch(plan=planned, most_threads=2, precisions=())


class Lasting(Deadline):  # its time passes only where the machine plays
    def __init__(self, seconds: float, machine: Machine) -> None:
        super().__init__(seconds)
        self.ends_s, self.machine = machine.now_s + seconds, machine

    @property
    def left_s(self) -> float:
        return self.ends_s - self.machine.now_s

    def put_off(self, seconds: float) -> None:
        super().put_off(seconds)
        self.ends_s += seconds


def tune(machine: Machine, found: TuningSearch, out: Path, max_time_s: float | None = None) -> Tuning:
    limit = Deadline(max_time_s) if max_time_s is None else Lasting(max_time_s, machine)
    search.tune(found, out, machine.run, judge_stage, fresh=False, limit=limit, say=lambda _: None)
    return read_tuning(out, judge_stage)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Tuning, Path]:
    """A whole tuning: the machine that played it, what it came to, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        machine = plant(patch)
        return machine, tune(machine, ground(), folder), folder


def test_the_gain_is_that_of_a_fresh_race_and_what_held_is_raced_last(whole: tuple[Machine, Tuning, Path]):
    machine, found, _ = whole
    assert machine.ran == [ALONE, TOGETHER, CONFIRMED, TUNED]
    assert found.complete
    openvino, onnxruntime, numpy = (found.found[f"{name}:cpu:fp32"] for name in ("openvino", "onnxruntime", "numpy"))
    assert openvino.conclusion.outcome is TuneOutcome.BETTER
    assert openvino.best is not None
    assert openvino.best.setting == "threads=1, PERFORMANCE_HINT=THROUGHPUT"
    assert openvino.gain
    low, high = openvino.gain.ends
    assert (low or 1) < 0.45 < (high or 0)
    assert onnxruntime.conclusion.outcome is TuneOutcome.NONE_BETTER  # the winner's curse, met
    assert onnxruntime.best is not None
    assert onnxruntime.conclusion.reason == "what led the search did not hold"
    assert onnxruntime.ship is onnxruntime.default
    assert (numpy.conclusion.outcome, numpy.best) == (TuneOutcome.NONE_BETTER, None)


def test_a_finished_tuning_is_not_run_again_and_another_one_is_refused_its_folder(
    machine: Machine, whole: tuple[Machine, Tuning, Path]
):
    *_, folder = whole
    assert tune(machine, ground(), folder).complete
    with pytest.raises(UsageError, match="holds another tuning run: add --fresh"):
        tune(machine, ground("openvino"), folder)
    assert machine.ran == []


def test_the_time_is_shared_out_among_the_stages_and_one_without_any_is_left_for_later(
    machine: Machine, tmp_path: Path
):
    found = tune(machine, ground(), tmp_path / "out", max_time_s=20.0)  # each stage takes 7 s
    assert machine.ran == [ALONE, TOGETHER, CONFIRMED]
    assert machine.limits[ALONE] == pytest.approx(20 * search.SHARES[ALONE])
    assert machine.limits[CONFIRMED] == pytest.approx(6 * search.SHARES[CONFIRMED])
    assert not found.complete
    assert tune(machine, ground(), tmp_path / "out").complete
    assert machine.ran[3:] == [TUNED]


def test_the_last_race_waits_until_every_winner_is_confirmed(machine: Machine, tmp_path: Path):
    machine.unfinished = {ALONE, CONFIRMED}
    found = tune(machine, ground(), tmp_path / "out")
    assert machine.ran == [ALONE, TOGETHER, CONFIRMED]  # a search that was cut short is good enough to propose
    assert not found.complete
    machine.unfinished = set()
    assert tune(machine, ground(), tmp_path / "out").complete
    assert machine.ran[3:] == [CONFIRMED, TUNED]  # and isn't gone on with, once something rests on it


def test_a_search_that_was_cut_short_before_any_setting_leads_gets_the_rest_of_the_time_and_is_gone_on_with(
    machine: Machine, tmp_path: Path
):
    machine.unfinished = {ALONE}
    found = tune(machine, ground("numpy", "onnxruntime"), tmp_path / "out", max_time_s=40.0)  # of which one leads
    assert machine.ran[:2] == [ALONE, CONFIRMED]
    machine.ran.clear()
    machine.times = lambda *_: 1e6  # as if nothing had been built in time
    found = tune(machine, ground("numpy", "openvino"), tmp_path / "none", max_time_s=40.0)
    assert machine.ran == [ALONE, ALONE]
    assert machine.limits[ALONE] == pytest.approx(40.0 - 7.0)
    assert machine.plans[ALONE].planning_s == 0, "which counts once"
    assert not found.complete
    machine.unfinished = set()
    assert tune(machine, ground("numpy", "openvino"), tmp_path / "none").complete
    assert machine.ran[2:] == [ALONE, TUNED]


def test_a_target_that_cannot_run_here_is_skipped_and_the_others_are_tuned(machine: Machine, tmp_path: Path):
    found = tune(machine, ground("openvino", "numpy", missing=("openvino",)), tmp_path / "out")
    skipped, numpy = sorted(found.found.values(), key=lambda one: one.target, reverse=True)
    assert skipped.conclusion == (TuneOutcome.SKIPPED, MISSING.reason, MISSING.fix)
    assert numpy.conclusion.outcome is TuneOutcome.NONE_BETTER
    assert machine.ran == [ALONE]  # nothing to combine, to confirm or to race
    assert found.complete


def test_each_target_has_the_memory_for_itself_and_settings_beyond_it_are_left_out(machine: Machine, tmp_path: Path):
    two = needed_bytes(list(ground("numpy").defaults.values()) * 2, HERE)
    found = tune(machine, ground("openvino", "numpy", memory=two), tmp_path / "out")
    openvino = next(group for group in machine.plans[ALONE].groups if "openvino" in group.record.name)
    assert [arm.label for arm in openvino.playing if not arm.control] == [arm.label for arm in openvino.record.arms[:2]]
    assert (openvino.record.comparisons, openvino.needs_bytes) == (1, two)
    tried = next(iter(found.found.values())).tried
    assert tried[0].ratio
    assert all("beside 2 other targets it needs" in (one.row.reason or "") for one in tried[1:])
    assert len(tried) > 2
    nothing = ground("openvino", "numpy", memory=1)
    assert all("B of memory, has" in nothing.skip_of(arm).reason for arm in nothing.defaults.values())


def test_twins_under_another_interpreter_are_targets_of_one_tuning(machine: Machine, tmp_path: Path):
    asked = ground("openvino", "numpy", pythons={"new": "python"})
    assert len(asked.plan.groups) == 2  # as a run would race them
    tune(machine, asked, tmp_path / "out")
    assert [group.record.name for group in machine.plans[ALONE].groups] == [
        f"residual_mlp, batch 1, {target}"
        for target in ("openvino:cpu:fp32", "openvino@new:cpu:fp32", "numpy:cpu:fp32", "numpy@new:cpu:fp32")
    ]


def test_a_tuning_goes_on_with_the_same_versions_only(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    folder = search.choose_folder(ground(), judge_stage, fresh=False)
    machine.unfinished = {ALONE, CONFIRMED}
    tune(machine, ground(), folder)
    assert search.choose_folder(ground(), judge_stage, fresh=False) == folder
    assert search.choose_folder(ground("numpy"), judge_stage, fresh=False) != folder
    monkeypatch.setattr(environment, "facts", lambda: {"libraries": {"openvino": "another"}})
    with pytest.raises(UsageError, match="was begun on another machine or with other versions: add --fresh"):
        tune(machine, ground(), folder)
    folder.rename(tmp_path / "results/tune/2020")  # a name that no new folder gets
    assert search.choose_folder(ground(), judge_stage, fresh=False).name != "2020"
    monkeypatch.setattr(environment, "facts", dict)
    assert search.choose_folder(ground(), judge_stage, fresh=False).name == "2020"


def test_people_and_programs_are_told_the_gain_and_how_to_get_it(whole: tuple[Machine, Tuning, Path]):
    _, found, _ = whole
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table.render(found, 200))
    text = console.export_text()
    assert "x faster (2." in text
    assert "--threads 1 --option openvino.PERFORMANCE_HINT=THROUGHPUT" in text
    assert text.count("Next  ") == 1, "to ship what the last race found"
    assert "Ship    " in text
    data = json.loads(json.dumps(table.as_data(found), allow_nan=False))
    (first,) = [one for one in data["targets"] if one["target"] == "openvino:cpu:fp32"]
    assert first["outcome"] == "better"
    assert first["gain"]["low"] < 0.45 < first["gain"]["high"]
    assert first["ship"]["options"] == {"PERFORMANCE_HINT": "THROUGHPUT"}
    assert set(data["stages"]) == {ALONE, TOGETHER, CONFIRMED, TUNED}


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_folder, "utc_now", lambda: "2026-01-02T03:04:05+00:00")
    first = run_folder.new_folder(tmp_path)
    first.mkdir()
    assert [first.name, run_folder.new_folder(tmp_path).name] == ["2026-01-02T030405Z", "2026-01-02T030405Z-2"]


def test_the_last_race_has_the_plain_fp32_that_a_lower_precision_is_compared_with(machine: Machine, tmp_path: Path):
    machine.times = lambda _, arm: 0.5e6 if arm.target.precision is Precision.INT8 else 1e6
    asked = replace(ground("openvino", "numpy"), precisions=(Precision.INT8,))
    tune(machine, asked, tmp_path / "out")
    (group,) = machine.plans[TUNED].groups
    labels = [arm.label for arm in group.record.arms if not arm.control]
    assert labels == ["openvino:cpu:int8", "numpy:cpu:fp32", "openvino:cpu:fp32"]
    assert group.record.references == {"openvino:cpu:int8": "openvino:cpu:fp32"}
    assert group.record.comparisons == 2, "the pair with its reference is the baseline's"
