"""Who races whom: the reference out of a folder, the candidate out of a word, and what is refused before any time."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.adapters.shipped import make_shipped
from support.exports import bare_exported
from support.factories import LINEAR, write
from support.onnx_made import linear
from support.races import planted

from shootout.apps.judge.gate import racing
from shootout.apps.judge.gate.racing import (
    MOST_RESTARTS,
    Limits,
    Reference,
    make_study,
    plan_pair,
    read_limits,
    read_reference,
)
from shootout.backends.shipped import DOCUMENT, read_row
from shootout.core.contract import Target
from shootout.core.errors import NotRun, NotRunKind, Unavailable, UsageError
from shootout.core.stats.readings import LEAST_TAILS
from shootout.core.study.plan import Plan
from shootout.core.study.schema import Study, checked

RUN = Path(__file__).parents[2] / "results" / "reference" / "decide-digits"
DIGITS = Reference(
    place="model-1",
    again="numpy:cpu:fp32",
    given={"model": "digits", "parameters": {"hidden": (64,)}, "batch": (1,), "threads": (1,)},
)


def test_the_same_target_races_itself_where_no_candidate_is_named():
    study = make_study(DIGITS, None, Limits(slower=0.03), {})
    assert study.targets == ("shipped:model-1", "numpy:cpu:fp32")
    assert (study.baseline, study.goal, study.most_restarts) == ("shipped:model-1", "limit 3%", MOST_RESTARTS)
    assert study.parameters == {"hidden": (64,)}
    assert not study.ceilings, "they take minutes that the gate has not"


def test_a_metric_scores_the_gate_s_rows_and_the_one_that_admitted_a_folder_is_asked_for():
    of_run = replace(DIGITS, given={**DIGITS.given, "metric": "accuracy", "max_drop": "2%", "inputs": "x.npz"})
    given = {"truth": "y.npz", "max_drop": "3%"}
    study = make_study(of_run, None, Limits(metric="accuracy"), given)
    assert (study.metric, study.max_drop, str(study.inputs), str(study.truth)) == ("accuracy", "3%", "x.npz", "y.npz")
    assert (Limits(metric="accuracy").shares, Limits().shares) == (2, 1)
    for standing, expected in (("met", "iou"), ("broken", ""), (None, "")):
        row = {"fidelity": {"metric": {"name": "iou", "standing": standing}}}
        assert racing._find_admitting_metric(row) == expected
    assert racing._find_admitting_metric({"fidelity": None}) == ""


def test_a_candidate_is_a_target_or_a_file_of_the_model(tmp_path: Path):
    old, new = tmp_path / "old.onnx", tmp_path / "new.onnx"
    of_file = replace(DIGITS, given={"model": str(old)})
    new.touch()
    found = make_study(of_file, str(new), Limits(), {})
    assert (found.model, found.targets) == ((str(new),), ("shipped:model-1", "numpy:cpu:fp32"))
    assert make_study(DIGITS, "onnxruntime", Limits(), {}).targets[1] == "onnxruntime:cpu:fp32"
    python = make_study(DIGITS, "numpy@new", Limits(), {"pythons": {"new": "python"}})
    assert python.targets[1] == "numpy@new:cpu:fp32"


def test_the_chance_of_an_error_is_shared_by_all_that_may_err(monkeypatch: pytest.MonkeyPatch):
    policy = {"policy": {"limits": {"p99": "5ms"}}}
    given = [read_limits(options) for options in ({}, {"size": "5%"}, policy)]
    assert [limits.shares for limits in (*given, replace(given[-1], metric="accuracy"))] == [1, 1, 2, 3]
    monkeypatch.setattr(racing, "make_plan", lambda study, _: planted.plan(study))
    plans = [plan_pair(planted.study(1), DIGITS, Limits(metric=metric)).plan for metric in ("", "accuracy")]
    assert [plan.groups[0].record.comparisons for plan in plans] == [1, 2]
    assert plans[0].identity != plans[1].identity, "a folder is raced at one share"


def test_a_gate_races_two_that_can_run_here(monkeypatch: pytest.MonkeyPatch):
    gone = {"onnxruntime:cpu:fp32": NotRun(NotRunKind.NOT_INSTALLED, "it isn't installed", "pip install it")}

    def plan(study: Study, _: object) -> Plan:
        found = planted.plan(study)
        return replace(found, groups=[replace(one, skips=gone) for one in found.groups])

    monkeypatch.setattr(racing, "make_plan", plan)
    says = "the reference onnxruntime:cpu:fp32 can't run here: it isn't installed; pip install it"
    with pytest.raises(Unavailable, match=re.escape(says)) as error:
        plan_pair(planted.study(1), DIGITS, Limits())
    assert error.value.exit_code == 6
    for study in (planted.study(1, 8), planted.study(1, targets=("numpy:cpu:fp32",))):
        with pytest.raises(UsageError, match="races one candidate beside the reference, on one model at one size, and"):
            plan_pair(study, DIGITS, Limits())


def test_a_shipped_arm_is_made_again_from_its_own_cell_with_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The document beside it is of a whole run, which may hold it at several sizes and thread counts."""
    target = Target(backend="openvino")
    shipped = make_shipped(tmp_path, bare_exported({}, model="digits"), target=target, threads=2, group="a cell")
    (row,) = (one for one in json.loads((tmp_path / DOCUMENT).read_text())["rows"] if one["executed"])
    mine = {**row, "parameters": {"hidden": 128}, "options": {"NUM_STREAMS": "2"}}
    rows = [{**row, "group": "another", "parameters": {"hidden": 64}}, {**row, "threads": 1}, mine]
    (tmp_path / DOCUMENT).write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(racing, "open_shipped", lambda _: shipped)
    found = read_reference(tmp_path)
    assert found.given["parameters"] == {"hidden": (128,)}
    assert found.given["options"] == {"openvino": {"NUM_STREAMS": "2"}}
    with pytest.raises(UsageError, match="doesn't say what openvino:cpu:fp32 was measured on"):
        read_row(replace(shipped, group="a third"))


def test_a_shipped_factory_is_found_from_here_or_where_it_lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another checkout's own source comes first: what was changed there is what its gate is about."""
    lay = str(write(tmp_path / "here" / "net.py", LINEAR)) + ":make"
    folder = tmp_path / "out"
    make_shipped(folder, bare_exported({}, model=lay), said="net.py:make", parameters={"width": 3}, median_ns=7e3)
    for place, wanted in ((tmp_path / "here", "net.py:make"), (tmp_path, lay)):
        monkeypatch.chdir(place)
        found = read_reference(folder)
        assert (found.given["model"], found.given["parameters"]) == (wanted, {"width": (3,)})


@pytest.mark.parametrize(("said", "wanted"), [("minilm", "minilm"), ("minilm/config.json",) * 2])
def test_a_shipped_config_is_found_where_it_lay_with_the_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, wanted: str
):
    lay = tmp_path / "here" / "minilm" / "config.json"
    make_shipped(tmp_path / "out", bare_exported({}, model=str(lay)), said=said)
    monkeypatch.chdir(tmp_path)
    assert read_reference(tmp_path / "out").given["model"] == str(tmp_path / "here" / wanted)


def test_a_policy_s_worst_of_several_takes_as_many_restarts():
    for limits, least in (({"p99": "5ms"}, LEAST_TAILS), ({"size": "5MB"}, 0)):
        asked = read_limits({"policy": {"limits": limits}})
        assert make_study(DIGITS, None, asked, {}).least_restarts == least


@pytest.mark.parametrize(
    ("candidate", "options", "says"),
    [
        ("nump", {}, "unknown backend 'nump': did you mean 'numpy'?"),
        ("openvno:cpu:int8", {}, "unknown backend 'openvno': did you mean 'openvino'?"),
        ("openvno:cuda", {}, "unknown backend 'openvno': did you mean 'openvino'?"),
        ("openvno@new:cpu", {}, "unknown backend 'openvno': did you mean 'openvino'?"),
        (
            "openvino:cpu",
            {"model": "residual_mlp"},
            "the reference runs 'digits', and the candidate 'residual_mlp'",
        ),
        ("numpy@new", {}, "unknown interpreter 'new'"),
        ("openvino:cpu", {"batch": (8,)}, "the reference is of batch 1, and --batch says 8"),
        ("new.onnx", {}, "the reference runs 'digits', and the candidate 'new.onnx'"),
    ],
)
def test_what_is_no_candidate_is_refused(candidate: str | None, options: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        make_study(DIGITS, candidate, Limits(), options)


def test_a_candidate_s_file_that_is_gone_as_after_a_failed_build_is_refused():
    shipped = replace(DIGITS, given={"model": "gone/m.onnx"})
    for given in ("gone/new.onnx", "gone/m.onnx"):
        with pytest.raises(UsageError, match=rf"'{given}' isn't there: name the model's file"):
            make_study(shipped, given, Limits(), {})


def test_what_is_no_reference_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="isn't there: name one made by `shootout ship"):
        read_reference(tmp_path / "nothing")
    with pytest.raises(UsageError, match="is no shipped folder"):
        read_reference(RUN)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match=r"manifest.json' has the schema None"):
        read_reference(tmp_path)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "m.onnx")
    np.savez("rows.npz", x=np.zeros((40, 4), np.float32))
    np.savez("labels.npz", labels=np.zeros(40, np.int64))
    return tmp_path


DATA = {"inputs": "rows.npz", "labels": "labels.npz"}
POINT = {"limits": {"max-drop": "1pp", "min-metric": "0.9"}}


@pytest.mark.parametrize(
    ("options", "fields", "metric", "says"),
    [
        ({}, {"max_drop": "0.5pp"}, "accuracy", "--max-drop 0.5pp needs rows: give --inputs rows.npz --labels"),
        ({}, {"max_drop": "0.5pp", "inputs": "rows.npz"}, "accuracy", "--max-drop 0.5pp needs rows"),
        ({}, {"max_drop": "0.5pp", **DATA}, "accuracy", ""),
        ({"policy": POINT}, {}, "", "min-metric of the policy needs rows"),
        ({"policy": POINT}, DATA, "", ""),
        ({"policy": {"limits": {"max-drop": "5"}}}, DATA, "", "max-drop 5: accuracy is 1 at most"),
        ({}, {}, "iou", "give --inputs rows.npz --truth truth.npz --metric iou"),
        ({}, {"max_drop": "0.5pp", "model": "digits"}, "accuracy", ""),
        ({}, {"max_drop": "0.5pp", "model": "mlp"}, "accuracy", "--max-drop 0.5pp needs rows"),
        ({}, {}, "", ""),
    ],
)
def test_a_limit_on_rows_that_nobody_gave_is_refused_before_any_race(
    rows: Path, options: dict[str, Any], fields: dict[str, Any], metric: str, says: str
):
    study = checked({"name": "gate", "model": "m.onnx", "targets": ["numpy"], **fields})
    limits = replace(read_limits(options), metric=metric)
    with pytest.raises(UsageError, match=re.escape(says)) if says else nullcontext():
        racing.refuse_unjudged(study, limits)
