"""Mixed precision under a limit: what is tried, what keeps the limit, and on which rows that is judged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from test_search import Machine, ground, plant, tune

from shootout.apps.judge.decide.question import judge_stage, read_limits
from shootout.apps.tune import search, table
from shootout.apps.tune.results import ALONE, CONFIRMED, TOGETHER, TuneOutcome, Tuning, read_tuning
from shootout.apps.tune.search import TuningSearch, list_schemes_for, refuse_unjudged
from shootout.apps.tune.settings import apply_changes, describe_setting, list_changes, list_mixes
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, NotRun, NotRunKind, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.exported.client import Request
from shootout.core.messages import Scores
from shootout.core.study.plan import Plan
from shootout.core.study.schema import Study
from shootout.models.onnx.layers import Layer
from shootout.tell.document import Document, stand
from shootout.tell.limits import Limit, Standing
from shootout.tell.study_options import TuneOptions

ROWS = 400
LIMIT = {"max-drop": 0.01}
Lost = dict[tuple[str, str], int]
"""By stage and precision, how many rows are lost of those that plain FP32 has right."""


def fast_in_integers(_: str, arm: Arm) -> float:
    """The fewer layers stay in float, the faster; other settings gain nothing."""
    if arm.target.precision is not Precision.INT8:
        return 1e6 if arm.settings == "closed" else 1.1e6
    return {"": 0.4e6, "float-1": 0.6e6, "float-0.1": 0.8e6}.get(arm.target.scheme, 0.9e6)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return plant(monkeypatch, fast_in_integers)


def losing(lost: Lost) -> Any:
    """What is right of each arm: all rows, less those that it has lost."""

    def scores(stage: str, arm: Arm) -> Scores:
        few = lost.get((stage, arm.target.scheme), 0) if arm.target.precision is Precision.INT8 else 0
        return Scores(name="accuracy", rows=(0.0,) * few + (1.0,) * (ROWS - few))

    return scores


def asked() -> TuningSearch:
    return replace(ground("openvino"), precisions=(Precision.INT8,), limits=LIMIT, mixes=("float-1", "float-0.1"))


def both(scheme: str, few: int) -> Lost:
    """The same in the search and in the confirmation."""
    return {(stage, scheme): few for stage in (ALONE, TOGETHER, CONFIRMED)}


def test_the_fastest_that_keeps_the_limit_wins_and_not_the_fastest(machine: Machine, tmp_path: Path) -> None:
    machine.scores = losing(both("", 40))
    (found,) = tune(machine, asked(), tmp_path / "out").found.values()
    assert found.conclusion.outcome is TuneOutcome.BETTER
    assert str(found.ship.target) == "openvino:cpu:int8/float-1"
    standings = {one.setting: stand(one.limits) for one in found.tried}
    assert list(standings) == ["int8", "int8/float-1", "int8/float-0.1"], "nothing but the precision is turned"
    assert standings["int8"] is Standing.BROKEN
    assert standings["int8/float-1"] is standings["int8/float-0.1"] is Standing.MET


def test_the_search_sees_the_selection_rows_and_the_confirmation_the_report_rows(
    machine: Machine, tmp_path: Path
) -> None:
    machine.scores = losing(both("", 40))
    tune(machine, asked(), tmp_path / "out")
    assert {name: plan.on_selection for name, plan in machine.plans.items()} == {ALONE: True, CONFIRMED: False}
    assert all(plan.limits == LIMIT for plan in machine.plans.values())


def test_a_winner_that_breaks_the_limit_on_rows_it_was_not_chosen_by_is_not_shipped(
    machine: Machine, tmp_path: Path
) -> None:
    machine.scores = losing({**both("", 40), (CONFIRMED, "float-1"): 20})
    (found,) = tune(machine, asked(), tmp_path / "out").found.values()
    assert found.conclusion.outcome is TuneOutcome.OVER_LIMIT
    assert found.conclusion.reason.startswith("on rows that the search did not see: max-drop")
    assert found.ship is found.default


def test_a_winner_whose_loss_is_not_known_closely_enough_is_not_shipped(machine: Machine, tmp_path: Path) -> None:
    machine.scores = losing({**both("", 40), (CONFIRMED, "float-1"): 3})
    (found,) = tune(machine, asked(), tmp_path / "out").found.values()
    assert found.conclusion.outcome is TuneOutcome.CANT_TELL
    assert "400 rows scored, needs about" in found.conclusion.reason
    assert not found.held


def test_if_nothing_keeps_the_limit_the_nearest_is_named(machine: Machine, tmp_path: Path) -> None:
    machine.scores = losing({**both("", 40), **both("float-1", 30), **both("float-0.1", 20)})
    (found,) = tune(machine, asked(), tmp_path / "out").found.values()
    assert found.conclusion.outcome is TuneOutcome.NONE_BETTER
    over = "3 faster settings over the limit, the nearest is int8/float-0.1: max-drop"
    assert found.conclusion.reason.startswith(over)
    assert machine.ran == [ALONE]


def test_if_all_outputs_are_refused_that_is_the_answer_and_not_that_nobody_can_tell(
    machine: Machine, tmp_path: Path
) -> None:
    labels = [f"openvino:cpu:int8{scheme}" for scheme in ("", "/float-1", "/float-0.1")]
    machine.refused = dict(zip(labels, (0.54, 0.1, 0.3), strict=True))
    found = tune(machine, asked(), tmp_path / "out")
    (only,) = found.found.values()
    assert only.conclusion == (
        TuneOutcome.NONE_BETTER,
        "outputs of 3 settings refused",
        "",
    )
    told = " ".join(rendered(found).split())
    assert "what each precision gains and costs" in told
    assert "3.0e-1 refused" in told


def rendered(tuning: Tuning) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(table.render(tuning, 160))
    return console.export_text()


def test_people_and_programs_are_told_what_each_mix_costs(machine: Machine, tmp_path: Path) -> None:
    machine.scores = losing(both("", 40))
    found = tune(machine, asked(), tmp_path / "out")
    text = rendered(found)
    words = " ".join(text.replace("\\\n", " ").split())  # a command that is too long for a line is broken
    (broken,) = [line for line in text.splitlines() if line.startswith("int8 ")]
    assert "0.1 (0.067 to 0.13)" in broken
    assert broken.rstrip().endswith("broken")
    (kept,) = [line for line in text.splitlines() if line.startswith("int8/float-1 ")]
    assert "kept" in kept
    assert f"shootout ship {tmp_path}/out/confirmed -o shipped --target openvino:cpu:int8/float-1" in words
    data = json.loads(json.dumps(table.as_data(found), allow_nan=False))
    assert data["limits"] == LIMIT
    (target,) = data["targets"]
    assert [one["standing"] for one in target["limits"]] == ["met"]
    assert {one["setting"]: one["limits"][0]["standing"] for one in target["tried"] if one["limits"]}[
        "int8"
    ] == "broken"


def test_the_end_names_the_setting_and_one_command(machine: Machine, tmp_path: Path) -> None:
    ships = "Next shootout ship {}/alone -o shipped --target openvino:cpu:fp32"
    machine.scores = losing({**both("", 40), (CONFIRMED, "float-1"): 3})
    told = " ".join(rendered(tune(machine, asked(), tmp_path / "out")).split())
    assert "can't tell: openvino:cpu:fp32 with int8/float-1: faster, but max-drop" in told
    assert "Fix: add rows to the data and add --fresh, or give a looser limit" in told
    assert told.endswith(ships.format(tmp_path / "out"))
    machine.scores = losing({**both("", 40), (CONFIRMED, "float-1"): 20})
    told = " ".join(rendered(tune(machine, asked(), tmp_path / "broken")).split())
    assert "over the limit: openvino:cpu:fp32 with int8/float-1: on rows that the search did not see" in told
    assert told.endswith(ships.format(tmp_path / "broken"))
    machine.unfinished = {CONFIRMED}
    told = " ".join(rendered(tune(machine, asked(), tmp_path / "begun")).split())
    assert told.endswith("This tuning is unfinished; run the same command again to go on.")


def test_what_was_not_built_in_time_is_named(machine: Machine, tmp_path: Path) -> None:
    machine.scores, late = losing({}), "openvino:cpu:int8/float-0.1"
    why = NotRun(NotRunKind.NOT_REACHED, "not built in time", "run the same command again")

    def cut(plan: Plan, out: Path, limit: Deadline) -> Document:
        if out.name == ALONE:
            plan = replace(plan, groups=[replace(group, skips={late: why}) for group in plan.groups])
        return machine.run(plan, out, limit)

    search.tune(asked(), tmp_path / "out", cut, judge_stage, fresh=False, limit=Deadline(None), say=lambda _: None)
    told = " ".join(rendered(read_tuning(tmp_path / "out", judge_stage)).split())
    assert "not raced: int8/float-0.1: not built in time. Fix: run the same command again" in told


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, None),
        ({"precision": ["int8"]}, None),
        ({"precision": ["int8"], "max_drop": "0.5pp"}, {}),
        ({"precision": ["int8"], "max_error": "2e-2"}, {Limit.ERROR: 0.02}),
        ({"precision": ["int8"], "max_drop": "1%", "metric": "iou"}, {}),
        ({"precision": ["int8"], "policy": {"limits": {"size": "5MB"}}, "max_drop": "1pp"}, {Limit.SIZE: 5e6}),
        ({"precision": ["int8"], "policy": {"limits": {"max-drop": "1pp"}}}, {Limit.DROP: 0.01}),
    ],
)  # fmt: skip
def test_limits_are_read_as_a_policy_has_them(options: TuneOptions, wanted: dict[Limit, float] | None) -> None:
    found = read_limits(options)
    assert (found is None) is (wanted is None)
    assert {name: round(value, 9) for name, value in (found or {}).items()} == (wanted or {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_drop": "0.5pp"}, "name those to try, as in --precision int8,bf16"),
        ({"precision": ["int8"], "max_error": "small"}, "max-error is 'small': write a relative error as 0.1% or 1e-3"),
        (
            {"precision": ["int8"], "policy": {"limits": {"min-agreement": "99%"}}},
            "leave objective, load, min-agreement",
        ),
        ({"precision": ["int8"], "policy": {"objective": "size"}}, "leave objective, load, min-agreement"),
        (
            {"precision": ["int8"], "metric": "iou", "max_drop": "0.005", "max_error": "2e-2"},
            "--max-drop is of a metric, and max-error limits the same outputs otherwise: give one of them",
        ),
    ],
)
def test_a_wrong_limit_is_answered_with_the_right_form(options: TuneOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_limits(options)


def test_a_limit_that_nothing_could_show_to_be_kept_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(name="s", model=("bert",), targets=("openvino",))
    with pytest.raises(UsageError, match=r"--max-drop 0.5pp can't be judged: bert has no labels here: give --inputs"):
        refuse_unjudged({}, study.model_copy(update={"max_drop": "0.5pp"}), Request(model="bert"))
    with pytest.raises(UsageError, match="what a precision costs can't be judged"):
        refuse_unjudged({Limit.SIZE: 1e6}, study, Request(model="bert"))
    refuse_unjudged({Limit.ERROR: 0.02}, study, Request(model="bert"))
    np.save(tmp_path / "labels.npy", np.zeros(200, np.int64))
    asked = Request(model="m.onnx", inputs_npz=tmp_path / "x.npy", labels_npz=tmp_path / "labels.npy")
    np.save(tmp_path / "x.npy", np.zeros((200, 4), np.float32))
    refuse_unjudged({}, study.model_copy(update={"max_drop": "4%"}), asked)
    scored = study.model_copy(update={"metric": "iou"})
    with pytest.raises(UsageError, match="--metric iou: without truth a metric compares with FP32's own outputs"):
        refuse_unjudged({}, scored, Request(model="bert"))


def test_a_limit_beside_another_precision_than_fp32_is_refused() -> None:
    study = Study(name="s", model=("digits",), targets=("openvino:cpu:bf16",))
    with pytest.raises(UsageError, match="limits compare with plain FP32, and openvino:cpu:bf16 isn't"):
        search.make_search(study, [Precision.INT8], {Limit.DROP: 0.005})


def layer(number: int, block: str) -> Layer:
    return Layer(number=number, name=f"{block}.{number}", operator="MatMul", node="", output="", weight="", block=block)


def test_the_worst_layers_and_the_worst_blocks_are_left_in_float_ever_more() -> None:
    order = [layer(number, block) for number, block in ((4, "b"), (0, "a"), (5, "b"), (1, "a"), (2, "c"), (3, "c"))]
    assert list_mixes(order) == ["float-4", "float-0.4", "float-4.5"], "the fewest layers in float first"
    assert "float-0.1.4.5" in list_mixes([*order, layer(6, "d"), layer(7, "d")]), "at most half of them"
    assert list_mixes(order[:1]) == []
    assert list_mixes([]) == []


def test_a_backend_is_asked_for_the_mixes_that_it_offers() -> None:
    words = ["shared", "accuracy-control", "float-1"]

    def tried(backend: str, *precisions: Precision) -> set[str]:
        default = Arm(target=Target(backend=backend), model="digits")
        changes = list_changes(default, 1, precisions, words)
        return {describe_setting(default, apply_changes(default, [one])) for one in changes if one.precision}

    assert tried("openvino", Precision.INT8) == {"int8", *(f"int8/{word}" for word in words)}
    assert tried("onnxruntime", Precision.INT8) == {"int8", "int8/shared", "int8/float-1"}
    assert tried("onnxruntime", Precision.INT8_DYNAMIC) == {"int8-dynamic", "int8-dynamic/float-1"}
    assert tried("openvino", Precision.BF16) == {"bf16"}
    default = Arm(target=Target(backend="openvino"), model="digits")
    both = list_changes(default, 1, (Precision.INT8, Precision.BF16), words)
    assert [one.scheme for one in both if one.precision][:3] == ["", "", "shared"], "plain precisions are built first"
    assert tried("iree", Precision.INT8) == {"int8/shared", "int8/shared+float-1"}
    by_label = {
        arm.label: arm
        for arm in (apply_changes(default, [one]) for one in list_changes(default, 1, [Precision.INT8], words))
    }
    assert by_label["openvino:cpu:int8/shared"].quantizer == "shared"
    assert by_label["openvino:cpu:int8/float-1"].quantizer == "vendor"


def test_schemes_for_the_whole_model_follow_the_limit() -> None:
    study, digits = Study(name="s", model=("digits",), targets=("openvino",), max_drop="0.5pp"), Request(model="digits")
    by_labels = ["shared", "accuracy-control"]
    assert list_schemes_for({}, study, digits) == list_schemes_for({Limit.DROP: 0.005}, study, digits) == by_labels
    assert list_schemes_for({Limit.ERROR: 0.02}, study, digits) == ["shared"]
    scored = study.model_copy(update={"metric": "iou"})
    assert list_schemes_for({}, scored, digits) == ["shared"], "NNCF's search goes by labels, not by a metric"


def ranked_by(words: Sequence[str]) -> Callable[[TuningSearch], list[str]]:
    def rank(_: TuningSearch) -> list[str]:
        rankings.append(list(words))
        return list(words)

    rankings.clear()
    return rank


rankings: list[list[str]] = []


def test_the_mixes_that_a_run_began_with_are_kept_with_it(machine: Machine, tmp_path: Path) -> None:
    machine.scores = losing(both("", 40))
    bare, out = replace(asked(), mixes=("shared",)), tmp_path / "out"
    found = search.with_mixes(bare, out, ranked_by(["float-1", "float-0.1"]), fresh=False)
    assert found.mixes == ("shared", "float-1", "float-0.1")
    again = search.with_mixes(bare, out, ranked_by(["float-3"]), fresh=False)
    assert (again.mixes, again.identity, rankings) == (found.mixes, found.identity, [])
    tune(machine, again, out)
    other = replace(bare, limits={"max-drop": 0.02})
    with pytest.raises(UsageError, match="holds another tuning run: add --fresh"):
        search.with_mixes(other, out, ranked_by(["float-3"]), fresh=False)
    assert rankings == [], "before anything is ranked"
    assert search.with_mixes(other, out, ranked_by(["float-3"]), fresh=True).mixes == ("shared", "float-3")


def test_a_run_that_was_ended_behind_its_ranking_is_gone_on_with(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = search.choose_folder(asked(), judge_stage, fresh=False)
    found = search.with_mixes(asked(), folder, ranked_by(["float-2"]), fresh=False)
    assert search.choose_folder(asked(), judge_stage, fresh=False) == folder
    assert search.choose_folder(replace(asked(), limits={"max-error": 0.1}), judge_stage, fresh=False) != folder
    machine.unfinished = {ALONE, CONFIRMED}
    tune(machine, found, folder)
    assert search.choose_folder(asked(), judge_stage, fresh=False) == folder
