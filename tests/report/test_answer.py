"""The first screen, line by line, and the answers of a grid; cells made by hand."""

from __future__ import annotations

import io
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.plain import as_plain
from support.races.cells import cell, comparison, document, fidelity, row, timing

from shootout.apps.judge.cell import Cell
from shootout.core.contract import NotRunKind
from shootout.core.stats.verdicts import Verdict
from shootout.tell.answer import tell_race
from shootout.tell.document import Crossover, Document, Metric, MetricChange, Ratio, Row, Why, ratio_of
from shootout.tell.grid import render_answers
from shootout.tell.limits import Standing
from shootout.tell.reproduce import name_free
from shootout.tell.screen import INDENT
from shootout.tell.table import render_tables
from shootout.tell.wording import BUSY_SHARE, bound_metric, tell_metric, tell_metric_change

MACHINE = {
    "cpu": {"model": "Intel(R) Xeon(R) Processor", "flags": ["avx2", "amx_int8"], "allowed_cpus": [0, 1]},
    "virtualisation": ["virtual machine"],
    "gpus": [],
}
LABELS = (
    "Ship",
    "Fastest",
    "Tied",
    "Unsure",
    "Sure",
    "Faster, not shipped",
    "No gain",
    "Not",
    "Smaller",
    "Changes",
    "Next",
)
SLOW, FAST = row("slow", 2e6), row("fast", 5e5)
BY_NAME = ("--group", "toy, batch 1")


def shown(found: Document, width: int = 100) -> list[str]:
    """The screen's lines."""
    page = io.StringIO()
    console = Console(width=width, file=page, highlight=False)
    for part in render_answers(found, width):
        console.print(part)
    return [line.rstrip() for line in page.getvalue().splitlines()]


def paragraphs(found: Document, width: int = 100) -> dict[str, str]:
    """Each labeled line with those that go on with it, by its label."""
    told: dict[str, str] = {}
    label = ""
    for line in filter(None, shown(found, width)):
        if not line.startswith(" " * INDENT):
            label = next(one for one in LABELS if line.startswith(one))
        told[label] = f"{told.get(label, '')} {line.removeprefix(label).strip()}".strip()
    return {label: " ".join(text.split()) for label, text in told.items()}


def screen(*rows: Any, **changes: Any) -> dict[str, str]:
    return paragraphs(document(cell(*rows, **changes)))


def test_the_first_line_says_what_to_ship_of_what():
    found = document(cell(SLOW, FAST), environment=MACHINE)
    first, second, *_ = shown(found)
    assert first.split() == [
        *["Ship", "fast:cpu:fp32", "toy", "·", "batch", "1", "·", "1", "thread", "·"],
        *["Intel", "Xeon", "with", "AMX,", "2", "CPUs", "(VM)"],
    ]
    assert len(first) == 100
    assert second == "        500 us a call · 4.00x faster than slow (3.92 to 4.08) · model 1 MB · ready in 1.5 s"


def scored(value: float, reach: float, *, mean: float = 0.9, **more: Any) -> Metric:
    """A metric whose mean changed against plain FP32's, known within ±`reach`."""
    found = MetricChange(value=value, low=value - reach, high=value + reach, sd=0.1, rows=400, against="slow:cpu:fp32")
    facts = {"name": "iou", "value": mean, "rows": 400, "lower_is_better": False, "limits": "drop", "limit": 0.009}
    return Metric(**{**facts, "change": found, **more})


AGREED: dict[str, Any] = {"against": "outputs", "change": None, "low": 0.88, "high": 0.92}


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312),
            "iou -0.004 (-0.011 to +0.003), limit -0.009: needs about 910 more scored rows to admit it (half of "
            "the rows given are scored)",
        ),
        (
            scored(-0.012, 0.007, standing=Standing.UNKNOWN, rows_needed=1_312, unit="speaker"),
            "iou -0.012 (-0.019 to -0.005), limit -0.009: 400 speakers, too few; needs about 910 more scored "
            "speakers to refuse it",
        ),
        (
            scored(-0.19, 0.07, standing=Standing.UNKNOWN, limit=2.0),
            "iou -0.19 (-0.26 to -0.12), limit -2: FP32's whole score is 1.09; give a lower limit, or did you mean "
            "--max-drop 2%?",
        ),
        (
            scored(0, 0.07, standing=Standing.UNKNOWN, limit=0.0, mean=0.0),
            "iou +0 (-0.07 to +0.07), limit -0: FP32 itself scores 0 on every row; does the metric read the "
            "right output?",
        ),
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN),
            "iou -0.004 (-0.011 to +0.003), limit -0.009: can't tell",
        ),
        (
            scored(0.02, 0.003, standing=Standing.BROKEN, name="mae", lower_is_better=True),
            "mae +0.02 (+0.017 to +0.023), limit +0.009: broken",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.99, standing=Standing.BROKEN),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.99: broken",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.985, standing=Standing.UNKNOWN),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.985: can't tell",
        ),
        (
            scored(-0.004, 0.007, standing=Standing.UNKNOWN, limit=0.0055),
            "iou -0.004 (-0.011 to +0.003), limit -0.0055: can't tell",
        ),
        (
            scored(0, 0, **AGREED, limits=None, limit=None),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), no limit: give --min-agreement",
        ),
        (
            scored(0, 0, **AGREED, limits=None, limit=None, name="mae", lower_is_better=True),
            "mae 0.9 against FP32's outputs (0.88 to 0.92), no limit: give --max-drop",
        ),
        (scored(0, 0, change=None, limits=None, limit=None), "iou 0.9, no score of plain FP32 to compare with"),
    ],
    ids=[
        *("more rows", "of speakers", "a whole score", "all zero", "no rows tell", "broken", "agreement"),
        *("a limit of three digits", "a drop of two digits", "no limit"),
        *("no limit on an error", "alone"),
    ],
)
def test_a_target_that_its_metric_does_not_admit_has_a_line_of_its_own(metric: Metric, told: str):
    found = document(cell(SLOW, row("slower", 3e6), row("a:cpu:int8", 4e5, fidelity=fidelity(metric=metric))))
    assert found.answer[0].ship
    assert found.answer[0].ship.arm == SLOW.arm
    text = " ".join(" ".join(shown(found)).split())
    assert text.count(told) == text.count(f"a:cpu:int8 5.00x faster than slow (4.90 to 5.10): {told}") == 1
    assert max(map(len, shown(found, 80))) <= 80


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (scored(-0.004, 0.001, standing=Standing.MET), "iou 0.9, -0.004 (-0.005 to -0.003), limit -0.009"),
        (
            scored(0.004, 0.001, standing=Standing.MET, name="wer", lower_is_better=True),
            "wer 0.9, +0.004 (+0.003 to +0.005), limit +0.009",
        ),
        (
            scored(0, 0, **AGREED, limits="agreement", limit=0.85, standing=Standing.MET),
            "iou 0.9 against FP32's outputs (0.88 to 0.92), limit 0.85",
        ),
        (
            scored(0, 0, change=None, limits=None, limit=None, mean=0.0),
            "iou 0: FP32 itself scores 0 on every row; does the metric read the right output?",
        ),
        (scored(0, 0, change=None, limits=None, limit=None, mean=0.0, lower_is_better=True), "iou 0"),
    ],
    ids=["a score", "an error", "an agreement", "FP32 scores 0", "FP32 without errors"],
)
def test_the_limit_stands_beside_what_a_shipped_target_lost(metric: Metric, told: str):
    assert tell_metric(metric) == told


AGREEMENT: dict[str, Any] = {"against": "outputs", "limits": "agreement", "limit": 0.985, "low": 0.9537, "high": 1.004}


@pytest.mark.parametrize(
    ("metric", "ends", "change"),
    [
        (scored(-0.019, 0.03, mean=0.981, name="recall@10", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="cosine", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="f1", **AGREEMENT), (0.9537, 1.0), "-0.019 (-0.046 to +0)"),
        (scored(-0.019, 0.03, mean=0.981, name="m.py:f", **AGREEMENT), (0.9537, 1.004), "-0.019 (-0.046 to +0.004)"),
        (
            scored(
                0.004, 0.006, mean=0.004, name="mae", lower_is_better=True, against="outputs", low=0.003, high=0.005
            ),
            *((0.0, 0.01), "+0.004 (+0 to +0.01)"),
        ),
        (scored(-0.004, 0.007, mean=0.9), None, "-0.004 (-0.011 to +0.003)"),
    ],
    ids=["recall", "cosine", "f1", "own", "a drop against FP32's outputs", "truth"],
)
def test_a_score_has_one_interval_that_decides_within_what_it_can_be(
    metric: Metric, ends: tuple[float, float] | None, change: str
):
    """The column of the change has the same interval as the answer."""
    if ends:
        assert bound_metric(metric) == pytest.approx(ends)
    assert tell_metric_change(metric) == change


OWN, SLOWER = row("onnxruntime", 8e5), ratio_of(comparison(1.5, 0.01))
LAYERS = "layer by layer: shootout explain RUN onnxruntime:cpu:int8"


def lower_precision(ns: float, own: Ratio, **changes: Any) -> Row:
    why = Why(cause="conversions", text="converting costs 9 us more", against=OWN.arm, ratio=own)
    return row("onnxruntime:cpu:int8", ns, **{"fidelity": fidelity(1e-2), "why": why, **changes})


def test_a_lower_precision_that_is_not_faster_has_a_line_with_the_cause_and_what_shows_more():
    found = document(cell(SLOW, FAST, OWN, lower_precision(1.2e6, SLOWER)))
    assert paragraphs(found)["No gain"] == (
        "onnxruntime:cpu:int8 1.50x slower than its FP32 (1.49 to 1.52): converting costs 9 us more " + LAYERS
    )
    (told,) = found.model_dump(mode="json", by_alias=True)["answer"][0]["no_gain"]
    assert (told["arm"], f"layer by layer: {told['explain']}") == ("onnxruntime:cpu:int8", LAYERS)
    assert [told["why"][key] for key in ("cause", "against")] == ["conversions", OWN.arm]
    faster = document(cell(SLOW, FAST, OWN, lower_precision(6e5, ratio_of(comparison(0.75, 0.01)))))
    assert "No gain" not in paragraphs(faster)
    assert faster.answer[0].no_gain == ()


def test_a_loss_over_the_limit_is_told_with_the_limit_and_leads_to_the_layers():
    own = ratio_of(comparison(0.4, 0.01))
    lost, unsure = (fidelity(0.1, (-0.05, reach, SLOW.arm)) for reach in (0.02, 0.06))
    told = screen(SLOW, FAST, lower_precision(3e5, own, fidelity=lost))["Faster, not shipped"]
    assert "accuracy -0.05 (-0.07 to -0.03), limit -0.01: broken" in told
    assert LAYERS in told
    told = screen(SLOW, FAST, lower_precision(3e5, own, fidelity=unsure))["Faster, not shipped"]
    assert "limit -0.01: can't tell" in told
    assert LAYERS not in told, "nothing is known to be wrong"


def test_outputs_that_were_refused_lead_to_the_layers():
    refused = fidelity(0.9, standing="refused")
    failed = {"reason": "error 0.9 is above the error bound", "cause": NotRunKind.FAILED, "fidelity": refused}
    int8 = row("onnxruntime:cpu:int8", None, **{**failed, "outcome": "failed", "fix": None})
    assert LAYERS in str(screen(SLOW, FAST, int8))
    scored = FAST.model_copy(update={"fidelity": fidelity(1e-7, (0.0, 0.01, SLOW.arm))})
    told = str(screen(SLOW, scored, int8, is_scored=True))
    assert LAYERS in told
    search = "leave some in float: shootout tune --model toy --threads 1 --backends onnxruntime --precision int8"
    assert f"{search} --max-drop 1%" in told.replace(" \\\\", "")


def test_an_arm_that_only_measured_slower_is_not_called_slower():
    found = screen(SLOW, FAST, row("far", 6e5), within=0.3)
    assert found["Unsure"] == "far: about 1.2x slower, open"
    assert "Tied" not in found


def test_how_sure_it_is_and_what_would_make_it_surer():
    control = "control (a hidden copy of slow) equal (within 2 %)"
    race = f"up to 5 restarts of each process · 0 % of the rounds disturbed · {control}"
    assert screen(SLOW, FAST)["Sure"] == (
        f"at 95 %: fast is faster than the only other FP32 target; slow is 4.00x slower (3.92 to 4.08) {race}"
    )
    assert screen(SLOW, FAST, row("slower", 3e6))["Sure"].startswith(
        "at 95 %: fast is faster than each of the 2 other FP32 targets; the closest, slow, is 4.00x slower "
        "(3.92 to 4.08) up to 5 restarts"
    )
    assert screen(SLOW, FAST, row("near", 5.05e5))["Sure"].startswith(
        "at 95 %: fast is faster than 1 of the 2 other FP32 targets; slow "
    )
    assert screen(SLOW, FAST, row("near", 5.15e5), within=0.2)["Sure"].startswith(
        "at 95 %: fast is faster than 1 of the 2 other FP32 targets; slow is 4.0x slower (3.3 to 4.8) "
        "about 32 restarts would settle it with near: "
        "shootout run --model toy --backends fast:cpu:fp32,near:cpu:fp32 --threads 1 --goal best \\ --max-time 5m "
        "up to 5 "
    )
    several = screen(SLOW, FAST, row("near", 5.15e5), row("far", 5.9e5), within=0.2)["Sure"]
    assert "about 32 restarts would settle it with near, the closest of 2 that are open: shootout run " in several
    alone = screen(FAST, control_holds=None)["Sure"]
    assert alone.startswith("no other target was measured, so nothing was compared up to 5 restarts")
    assert alone.endswith("control (a hidden copy of fast) not different (within 20 %)")
    int8 = row("fast:cpu:int8", 5.1e5, fidelity=fidelity(6.4e-2))
    slow8 = row("fast:cpu:int8", 9e5, fidelity=fidelity(6.4e-2))
    assert screen(FAST, slow8)["Sure"].startswith("no other target is eligible up to 5"), (
        "it is slower, but might not be"
    )
    assert screen(FAST, int8, within=0.1)["Sure"].startswith("no other target is eligible up to 5")


@pytest.mark.parametrize(
    ("sd", "told"),
    [(None, "one restart can't distinguish near"), (0.4, "over 1,000 restarts would be needed to settle it with near")],
)
def test_what_played_one_restart_needs_no_thousand(sd: float | None, told: str):
    """Nothing tells how much restarts differ: 12x slower in one restart takes two, as a rule."""
    found = document(cell(SLOW, FAST, row("near", 5.15e5), within=0.2))
    (answer,) = found.answer
    (rival,) = answer.unsettled or answer.tied
    assert rival.ratio is not None
    open_ = rival.model_copy(update={"ratio": replace(rival.ratio, sd=sd)})
    sure = answer.sure.model_copy(update={"restarts_needed": None, "nearest": rival.arm})
    answer = answer.model_copy(update={"tied": (), "unsettled": (open_,), "sure": sure})
    assert told in paragraphs(found.model_copy(update={"answer": (answer,)}))["Sure"]


def test_the_share_of_disturbed_rounds_and_a_control_that_differs_are_told():
    found = document(cell(SLOW, FAST, unvouched="the control differs", control_holds=False))
    noisy = found.model_copy(
        update={"groups": tuple(group.model_copy(update={"void_share": 0.85}) for group in found.groups)}
    )
    told = paragraphs(noisy)["Sure"]
    control = "control (a hidden copy of slow) DIFFERENT, 1.50x slower (1.47 to 1.53): no verdict is given"
    assert f"85 % of the rounds disturbed, the times are of a busy machine · {control}" in told


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (
            [{"sd": 0.123}],
            "up to 5 restarts of each process; times vary by 12 % between them (counted in the intervals)",
        ),
        (
            [{"sd": 1.23}],
            "up to 5 restarts of each process; times vary by 120 % between them (counted in the intervals)",
        ),
        (
            [{"sd": 0.004}],
            "up to 5 restarts of each process; times vary by 0.4 % between them (counted in the intervals)",
        ),
        ([{"restarts": 1}], "1 restart of each process"),
        (
            [{"sd": 0.03, "restarts": 4}, {"sd": 0.2}, {}],
            "up to 5 restarts of each process; times vary by up to 20 % between them (counted in the intervals)",
        ),
        ([{}, {}], "up to 5 restarts of each process"),
    ],
)
def test_by_how_much_restarts_differ_is_told_if_it_is_known(groups: list[dict[str, Any]], told: str):
    (made,) = document(cell(SLOW, FAST)).groups
    assert made.sd is None
    assert next(tell_race([made.model_copy(update=changes) for changes in groups])) == told


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([0.0], "0 % of the rounds disturbed"),
        ([0.0, 0.0], "0 % of the rounds disturbed"),
        ([0.03, 0.12], "at most 12 % of the rounds disturbed"),
        ([BUSY_SHARE], "50 % of the rounds disturbed"),
        ([0.85], "85 % of the rounds disturbed, the times are of a busy machine"),
        ([0.85, 0.0], "at most 85 % of the rounds disturbed, the times are of a busy machine"),
    ],
)
def test_a_busy_machine_is_told_only_where_most_rounds_were_disturbed(shares: list[float], told: str):
    (made,) = document(cell(SLOW, FAST)).groups
    _, disturbed, _ = tell_race([made.model_copy(update={"void_share": share}) for share in shares])
    assert disturbed == told


def test_a_verdict_that_is_withheld_is_not_called_a_tie():
    base, fast = cell(SLOW, FAST).rows
    assert fast.end_to_end
    withheld = ratio_of(comparison(0.25, 0.02), "slow found no steady state")
    fast = fast.model_copy(update={"end_to_end": timing(5e5, withheld)})
    found = screen(SLOW, FAST, rows=(base, fast), unvouched="slow found no steady state")["Ship"]
    assert "about 4.0x faster than slow, no verdict" in found


def test_who_is_not_to_be_shipped_and_why():
    int8 = row("fast:cpu:int8", 2.5e5, fidelity=fidelity(6.4e-2), model="residual_mlp")
    found = screen(
        SLOW, FAST, int8, row("odd", 6e5), withheld=lambda label: "no steady state" if "odd" in label else None
    )
    assert found["Not"].startswith("odd: no steady state")
    assert found["Faster, not shipped"] == (
        "fast:cpu:int8 2.00x faster than fast (1.96 to 2.04), error 6.4e-2: accuracy unknown, since this "
        "model's inputs are random "
        "try your own model: shootout run MODEL.onnx --inputs X.npz --labels Y.npz "
        "or accept its error: shootout ship RUN --max-error 6.4% -o model-1"
    )


def of_sizes(scenario: str) -> dict[str, Any]:
    """What a cell tells of a race over several sizes."""
    targets = "onnxruntime:cpu:fp32/dynamic,onnxruntime:cpu:fp32,jax:cpu:int8/per-tensor+bucket-32"
    options = [("--model", "m.onnx"), ("--set", "n=64"), ("--backends", targets), ("--scenario", scenario)]
    command = f"shootout run m.onnx --scenario {scenario} --mix n=16:1,64:1"
    return {"again": lambda _: options, "command": command}


def test_varying_sizes_say_why_they_do_not_ship_and_how_one_size_is_raced():
    facts: dict[str, Any] = {"scenario": "varying", "model": "m.onnx", "parameters": {"n": 64}}
    rough = row("fast:cpu:int8", 1e5, fidelity=fidelity(1.9e-3), **facts)
    told = screen(row("slow", 2e6, **facts), row("fast", 5e5, **facts), rough, **of_sizes("varying"))
    one = "shootout run --model m.onnx --set n=64 --backends onnxruntime:cpu:fp32,jax:cpu:int8/per-tensor"
    assert one in told["Next"].replace("\\ ", "")
    assert "a shipped folder has one size: race the size to ship by itself" in told["Next"]
    measure = told["Faster, not shipped"].replace("\\ ", "").partition("measure it:")[2]
    assert measure.split()[:9] == [*one.split(), "--inputs"], "a run of several sizes takes no inputs"


def test_varying_sizes_are_told_by_their_mean_and_raced_with_all_their_targets_at_one_size():
    facts: dict[str, Any] = {"scenario": "varying", "model": "m.onnx", "parameters": {"n": 64}}
    rows = row("slow", 2e6, **facts), row("fast", 5e5, **facts), row("late", None, **facts)
    text = screen(*rows)
    assert "mean of all sizes 500 us a call" in text["Ship"]
    assert "--backends slow:cpu:fp32,fast:cpu:fp32 --threads 1" in text["Next"].replace("\\ ", "")
    for found, is_mean in ((cell(*rows), True), (cell(row("slow", 2e6), row("fast", 5e5)), False)):
        assert ("mean time" in as_plain([render_tables(document(found), 100)], 100)) is is_mean


def test_a_training_step_says_why_nothing_ships_it():
    facts: dict[str, Any] = {"scenario": "train-step"}
    told = screen(row("slow", 2e6, **facts), row("fast", 5e5, **facts))
    assert told["Next"].endswith(
        ": a training step can't be shipped, since a shipped folder answers calls: race those with --scenario latency"
    )


def test_one_size_of_a_sweep_is_measured_by_itself():
    own: dict[str, Any] = {"model": "m.onnx", "parameters": {"n": 64}}
    rough = row("fast:cpu:int8", 1e5, fidelity=fidelity(1.9e-3), **own)
    rows = row("slow", 2e6, **own), row("fast", 5e5, **own), rough
    swept = screen(*rows, **{**of_sizes("latency"), "named": BY_NAME})["Faster, not shipped"]
    assert "run --model m.onnx --set n=64" in swept
    assert "--mix" not in swept


def test_an_unsound_arm_is_named_once():
    why = row("odd", 1e5), {"withheld": lambda arm: f"{arm} found no steady state" if "odd" in arm else None}
    found = screen(SLOW, FAST, why[0], **why[1])
    assert "odd: found no steady state" in found["Not"]


def test_a_faster_target_that_has_no_verdict_yet_is_named_as_such():
    found = cell(SLOW, FAST, row("q:cpu:int8", 4.6e5, fidelity=fidelity(1e-2)))
    sure = found.compare("q:cpu:int8", FAST.arm)
    assert sure
    unsure, compare = replace(sure, verdict=Verdict.CANT_TELL), found.compare
    unsettled = replace(found, compare=lambda a, b: unsure if (a, b) == ("q:cpu:int8", FAST.arm) else compare(a, b))
    told = paragraphs(document(unsettled))["Faster, not shipped"]
    assert told.startswith("q:cpu:int8 about 1.1x faster than fast, open, error 1.0e-2: ")


def test_a_suggested_command_writes_where_nothing_is_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model-1").mkdir()
    (tmp_path / "model-2").symlink_to("gone")
    assert screen(SLOW, FAST)["Next"] == "shootout ship RUN -o model-3"
    assert screen(SLOW, FAST, named=BY_NAME)["Next"].endswith(" -o model-3")
    assert [name_free(name) for name in ("model-1", "shipped", "model-2")] == ["model-3", "shipped", "model-3"]
    (tmp_path / "shipped").touch()
    assert name_free("shipped") == "shipped-2"


def test_what_comes_next_is_a_command():
    assert screen(SLOW, FAST, run="results/a")["Next"] == "shootout ship results/a -o model-1"
    assert screen(SLOW, FAST, named=BY_NAME)["Next"] == "shootout ship RUN --group 'toy, batch 1' -o model-1"
    more = screen(SLOW, FAST, within=math.inf, complete=False, command="shootout run toy", run="results/a")
    assert more["Next"] == "shootout run toy --out results/a --max-time 5m"
    assert "Next" not in screen(SLOW, FAST, within=math.inf), "from Python nothing is typed"
    over = screen(SLOW, FAST, within=math.inf, command="shootout run toy", run="results/a")
    assert over["Next"] == "shootout run toy --max-time 5m", "a new run, for this one is over"
    strays = {"unvouched": "the control differs", "control_holds": False, "command": "shootout run toy"}
    assert screen(SLOW, FAST, **strays)["Next"] == "shootout run toy --max-time 5m"
    steps = [one.model_copy(update={"scenario": "train-step"}) for one in (SLOW, FAST)]
    assert "a training step can't be shipped" in screen(*steps)["Next"]


COPY_IT = "xgboost: it runs forest.ubj as it is, so copy that file"
"""What is next if the library's own call wins."""


def test_a_winner_that_cant_be_put_into_a_folder_says_so_and_what_can_be():
    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    mine |= {"threads": 2, "executed": {"library": "xgboost", "version": "3.2.0"}}
    own, ort = row("xgboost", 5e5, **mine), row("onnxruntime", 9e5, **mine)
    found = screen(ort, own)["Next"]
    assert found == (
        f"{COPY_IT}; at batch 1 it was measured with xgboost==3.2.0 and 2 threads · "
        "or ship onnxruntime, 1.80x slower (1.76 to 1.84): "
        "shootout ship RUN --target onnxruntime -o model-1"
    )
    assert screen(own)["Next"] == f"{COPY_IT}; at batch 1 it was measured with xgboost==3.2.0 and 2 threads"
    assert "Next" not in screen(ort, own, within=math.inf), "more is to be measured first"
    eager = screen(row("onnxruntime", 9e5), row("torch-eager", 5e5))["Next"]
    assert eager.startswith("torch-eager: it runs the Python of the model's own package: ship torch-compile+aoti")
    assert eager.endswith("shootout ship RUN --target onnxruntime -o model-1")
    gpu = screen(row("onnxruntime", 9e5), row("onnxruntime:cuda:fp32", 5e5))["Next"]
    assert "drivers" in gpu
    assert gpu.endswith(" --target onnxruntime -o model-1")
    assert screen(own, ort.model_copy(update={"end_to_end": timing(4e5)}))["Next"] == "shootout ship RUN -o model-1"


def test_the_layers_of_trees_are_not_looked_into():
    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    refused = row("onnxruntime", 9e5, **mine, outcome="failed", reason="too far off", fidelity=fidelity(0.3))
    found = refused.model_copy(update={"fidelity": replace(refused.fidelity, standing="refused")})
    assert "explain" not in str(screen(row("xgboost", 5e5, **mine), found.model_copy(update={"end_to_end": None})))


def test_a_run_of_several_groups_has_a_next_command_for_each():
    def group(batch: int, *rows: Row) -> Cell:
        mine = [one.model_copy(update={"batch": batch, "group": f"toy, batch {batch}"}) for one in rows]
        return cell(*mine, group=f"toy, batch {batch}", named=("--group", f"toy, batch {batch}"))

    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    own, ort = row("xgboost", 5e5, **mine), row("onnxruntime", 9e5, **mine)
    found = document(group(1, SLOW, FAST), group(1000, ort, own))
    text = " ".join(line.strip() for line in shown(found, 120) if line)
    assert f"Next    {COPY_IT}; at batch 1000 it was measured with xgboost and 1 thread" in text
    lines = [line.strip() for line in shown(found, 120) if line]
    assert lines[-2:] == [
        "shootout ship RUN --group 'toy, batch 1' -o model-1",
        "shootout ship RUN --group 'toy, batch 1000' --target onnxruntime -o model-2",
    ]


def test_a_file_in_its_own_precisions_is_shipped_with_its_error():
    native = row("fast:cpu:native", 500, fidelity=fidelity(0.03))
    assert "error 3.0e-2" in screen(row("slow:cpu:native", 2_000), native)["Ship"]


@pytest.mark.parametrize("complete", [True, False])
def test_where_the_control_fails_there_is_no_answer_and_no_more_time_makes_one(complete: bool):
    found = document(cell(SLOW, FAST, unvouched="the control differs", control_holds=False), complete=complete)
    assert "no answer: the control differs" in shown(found)[0]
    told = paragraphs(found)
    assert "the lowest median, which proves nothing, is fast's: 500 us" in told["Ship"]
    assert told["Sure"].startswith("measure again; `shootout doctor`")
    assert "DIFFERENT" in told["Sure"]


@pytest.mark.parametrize(
    ("changes", "complete", "says"),
    [
        ({"within": math.inf}, True, "nothing is distinguished after 5 restarts measure again"),
        ({"within": math.inf}, False, "after 5 restarts up to 5 restarts of"),
        ({"unvouched": "the copy had no time yet"}, False, "the copy had no time yet up to 5 restarts"),
    ],
)
def test_where_no_verdict_stands_the_fastest_so_far_is_named_and_what_to_do(
    changes: dict[str, Any], complete: bool, says: str
):
    found = document(cell(SLOW, FAST, **{"control_holds": None, **changes}), complete=complete)
    told = paragraphs(found)
    assert told["Ship"].startswith("fast:cpu:fp32, fastest so far")
    assert told["Unsure"].startswith("slow: about 4.0x slower")
    assert told["Sure"].startswith("not yet: ")
    assert says in told["Sure"]


@pytest.mark.parametrize(("complete", "says"), [(True, "and the fix, is below"), (False, "0 restarts of")])
def test_where_nothing_was_measured_the_first_line_says_so(complete: bool, says: str):
    found = document(cell(row("a:cuda:fp32", None), restarts=0, control_holds=None), complete=complete)
    assert shown(found)[0].startswith("Ship    no answer: nothing was timed")
    assert says in paragraphs(found)["Sure"]


CROWDED = (
    SLOW,
    FAST,
    row("near", 5.1e5, artifact_bytes=900_000),
    row("fast:cpu:int8", 2e5, fidelity=fidelity(6.4e-2)),
    *(row(f"backend-{number}", number * 1e6) for number in range(3, 9)),
    row("g:cuda:fp32", None),
)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 150])
def test_no_width_cuts_a_value(width: int):
    found = document(cell(*CROWDED, within=0.1), environment=MACHINE)
    lines = shown(found, width)
    assert max(map(len, lines)) <= max(width, 40)
    words = " ".join(lines).split()
    assert "…" not in words
    for value in ("near:cpu:fp32", "510", "(3.6", "(2.3", "32", "equal", "6.4%", "model-1"):
        assert any(value in word for word in words), value
    if width >= 100:
        assert len(lines) <= 21, "the last one is empty"


@pytest.mark.parametrize("width", range(45, 105, 5))
def test_no_width_breaks_a_word(width: int):
    rows = [*CROWDED, row("a-rather-long-name-of-a-backend", 5.05e5)]
    one, several = document(cell(*rows, within=0.1)), document(*(at(n, *rows, within=0.1) for n in (1, 2)))
    for found, whole in ((one, ("restarts", "disturbed")), (several, ("tied",))):
        lines = shown(found, width)
        for words in ("a-rather-long-name-of-a-backend", *whole):
            assert any(words in line for line in lines), words


def test_a_hostile_name_is_shown_as_it_is():
    evil = "[bold red]evil[/bold red]"
    found = document(cell(SLOW, row(evil, 5e5), row(f"{evil}2", 5.1e5)))
    text = "\n".join(shown(found))
    assert f"Ship    {evil}:cpu:fp32" in text
    assert f"{evil}2: same (within" in text


def at(batch: int, *rows: Any, **changes: Any) -> Cell:
    name = f"toy, batch {batch}"
    mine = [one.model_copy(update={"group": name, "batch": batch}) for one in rows]
    return cell(*mine, group=name, **changes)


def test_a_grid_is_a_line_a_cell_and_where_the_answer_changes():
    changes = Crossover(
        model="toy", axis="batch", fixed={"threads": 1}, scenario="latency", scope="end_to_end", ships=True,
        below=FAST.arm, low=16, above=SLOW.arm, high=64, between="shootout run --model toy --batch 24,32,48",
    )  # fmt: skip
    copies = changes.model_copy(update={"scope": "compute", "ships": False})
    found = document(
        at(1, SLOW, FAST),
        at(16, SLOW, FAST, row("near", 5.05e5)),
        at(64, row("slow", 3e5), FAST, row("near", 5.05e5)),
        at(256, SLOW, FAST, unvouched="the control differs", control_holds=False),
        at(512, SLOW, FAST, within=math.inf),
        crossovers=(changes, copies, copies.model_copy(update={"low": 1})),
    )
    lines = shown(found)
    assert lines[0] == "What to ship, in 5 groups"
    placed = found.model_copy(update={"environment": MACHINE})
    assert shown(placed)[0] == "What to ship, in 5 groups · Intel Xeon with AMX, 2 CPUs (VM)"
    assert " ".join(lines[3].split()) == "1 fast 500 us 4.00x faster than slow (3.92 to 4.08)"
    assert " ".join(lines[4].split()) == "16 fast 500 us 4.00x faster than slow (3.92 to 4.08) near lower time"
    assert " ".join(lines[5].split()) == "64 slow 300 us 1.67x faster than fast (1.63 to 1.70)", "it is the baseline"
    assert lines[6].split() == ["256", "no", "answer"]
    assert lines[7].split()[:5] == ["512", "fast,", "fastest", "so", "far"]
    assert "No answer  batch=256: the control differs" in lines
    assert "So far  batch=512: nothing is distinguished after 5 restarts" in lines
    assert "Changes by batch  fast up to 16, slow from 64 on" in lines
    assert "Faster by batch  fast up to 1, slow from 64 on without copies" in lines, "only where that differs"
    assert lines.count("        the sizes between:  shootout run --model toy --batch 24,32,48") == 1
    assert "DIFFERENT in 1 of 5 groups" in paragraph_of(lines, "Sure")


@pytest.mark.parametrize(
    ("holds", "told"),
    [
        ((True, True), "control (a hidden copy of each baseline) equal"),
        (
            (True, None),
            "control (a hidden copy of each baseline) equal in 1, not different in 1 of 2 groups",
        ),
        ((None, None), "control (a hidden copy of each baseline) not different"),
    ],
)
def test_a_grid_claims_no_control_that_nothing_shows(holds: tuple[bool | None, ...], told: str):
    found = document(*(at(batch, SLOW, FAST, control_holds=one) for batch, one in enumerate(holds, 1)))
    sure = paragraph_of(shown(found), "Sure")
    assert sure == f"up to 5 restarts of each process · 0 % of the rounds disturbed · {told}"


def paragraph_of(lines: list[str], label: str) -> str:
    """A labeled line with those that go on with it."""
    start = next(number for number, line in enumerate(lines) if line.startswith(label))
    more = itertools.takewhile(lambda line: line.startswith(" " * INDENT), lines[start + 1 :])
    return " ".join(line.removeprefix(label).strip() for line in (lines[start], *more))


@pytest.mark.parametrize(("ns", "within"), [(4.95e5, 0.02), (4.5e5, 0.2)])
def test_a_grid_in_which_an_arm_is_not_known_to_lose_does_not_change(ns: float, within: float):
    found = document(at(1, SLOW, FAST), at(16, SLOW, FAST, row("near", ns, artifact_bytes=9), within=within))
    assert [answer.ship and answer.ship.arm for answer in found.answer] == [FAST.arm, "near:cpu:fp32"]
    assert not any(line.startswith("Changes") for line in shown(found))


def test_a_large_grid_is_folded_and_counts_its_rest():
    found = document(*(at(batch, SLOW, FAST, row("g:cuda:fp32", None)) for batch in range(1, 41)))
    lines = shown(found)
    assert "and 16 groups more, which --json has" in lines
    assert len(lines) < 40


def test_a_quantization_study_ships_with_its_accuracy_and_tells_what_less_size_costs():
    own = ratio_of(comparison(0.5, 0.01))
    kept = fidelity(1e-2, (0.0, 0.004, SLOW.arm))
    rows = (
        SLOW,
        FAST,
        row("q:cpu:int8", 2e5, artifact_bytes=300_000, fidelity=kept, end_to_end=timing(2e5, own=own)),
        row("q:cpu:int4", 4e5, artifact_bytes=150_000, fidelity=fidelity(6e-2), end_to_end=timing(4e5, own=own)),
    )
    one = screen(*rows)
    assert one["Smaller"] == "q:cpu:int4: model 150 kB, 2.00x slower (1.96 to 2.04), error 6.0e-2"
    several = "\n".join(shown(document(at(1, *rows), at(2, *rows)), 150))
    figures = "10.0x faster than slow (9.80 to 10.2)  300 kB  accuracy 0.9, +0 (-0.004 to +0.004), limit -0.01  1.0e-2"
    assert f"q:cpu:int8  200 us  {figures}" in several
    assert "Smaller, batch=2:  q:cpu:int4: model 150 kB" in several


@pytest.mark.parametrize(
    ("others", "alone"),
    [
        ((), True),
        ((row("gone", None),), True),
        ((row("other", 900),), False),
        ((row("bad", 900, outcome="failed", reason="it crashed"),), False),
    ],
)
def test_a_single_measured_target_is_said_to_be_compared_with_nothing(others: tuple[Row, ...], alone: bool):
    """It may be shipped, since it is what the user named; but no comparison says so."""
    found = document(cell(row("only", 1_000), *others))
    (answer,) = found.answer
    assert answer.alone is alone
    assert json.loads(found.model_dump_json())["answer"][0]["alone"] is alone
    text = as_plain([*render_answers(found, 100), render_tables(found, 100)], 100)
    assert ("nothing compared" in text.splitlines()[0]) is alone, text
    assert ("no other target was measured, so nothing was compared" in " ".join(text.split())) is alone
    assert any("only:cpu:fp32" in line and "nothing compared" in line for line in text.splitlines()[3:]) is alone
