"""The answer of one group in each of its states, a golden screen each; cells made by hand."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kept_screen import hold
from support.plain import as_plain
from support.races.cells import cell, comparison, document, fidelity, row

from shootout.core.contract import NotRunKind
from shootout.tell.answer import choose_label, qualify
from shootout.tell.document import Document, Why, ratio_of
from shootout.tell.grid import render_answers
from shootout.tell.reproduce import name_free
from shootout.tell.wording import NOISY_SHARE, QUIET_SHARE, describe_noise

MACHINE = {
    "cpu": {"model": "Intel(R) Xeon(R) Processor", "flags": ["avx2", "amx_int8"], "allowed_cpus": [0, 1]},
    "virtualisation": ["virtual machine"],
    "gpus": [],
}
COMMAND: dict[str, Any] = {"command": "shootout run net.onnx --threads 1", "run": "results/net"}
MINE = {"model": "net.onnx"}
SLOW, FAST, NEAR = row("slow", 2e6, **MINE), row("fast", 5e5, **MINE), row("near", 5.15e5, **MINE)
FAR = row("far", 5.9e5, **MINE)
INT8 = row("fast:cpu:int8", 2.5e5, fidelity=fidelity(1.9e-3, top1_agreement=0.99), **MINE)


def of(*rows: Any, **changes: Any) -> Document:
    """A run of one cell of `net.onnx`."""
    facts = {key: changes.pop(key) for key in ("complete",) if key in changes}
    found = document(cell(*rows, **{**COMMAND, **changes}, **facts), environment=MACHINE, **facts)
    return found.model_copy(update={"run": "results/net"})


def noisy(found: Document, *, void_share: float, sd: float | None) -> Document:
    (group,) = found.groups
    return found.model_copy(update={"groups": (group.model_copy(update={"void_share": void_share, "sd": sd}),)})


def of_one_restart() -> Document:
    """Nothing is known of how much restarts differ."""
    found = of(SLOW, FAST, FAR, within=math.inf, complete=False, restarts=1, restarts_needed=lambda *_: None)
    (answer,) = found.answer
    ratios = [replace(one.ratio, sd=None, restarts=1) for one in answer.unsettled if one.ratio]
    open_ = [one.model_copy(update={"ratio": ratio}) for one, ratio in zip(answer.unsettled, ratios, strict=True)]
    return found.model_copy(update={"answer": (answer.model_copy(update={"unsettled": tuple(open_)}),)})


def of_a_metric() -> Document:
    kept = fidelity(1e-2, (-0.002, 0.004, SLOW.arm))
    scored = [one.model_copy(update={"fidelity": fidelity(1e-7, (0.0, 0.0, SLOW.arm))}) for one in (SLOW, FAST)]
    return of(*scored, INT8.model_copy(update={"fidelity": kept}))


def of_no_gain() -> Document:
    slower = Why(
        cause="conversions",
        text="converting between types costs 1.96 us more",
        against=FAST.arm,
        ratio=ratio_of(comparison(1.35, 0.02)),
    )
    return of(SLOW, FAST, INT8.model_copy(update={"end_to_end": FAR.end_to_end, "why": slower}))


def of_a_library() -> Document:
    """The library's own call wins, of which no folder is made."""
    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx", "executed": {"library": "xgboost", "version": "3.2.0"}}
    return of(row("onnxruntime", 9e5, **mine), row("xgboost", 5e5, **mine))


def of_scores_without_fp32(*beside: Any) -> Document:
    """A metric scored INT8 alone, whose loss is one against plain FP32, which may have failed beside it."""
    scored = fidelity(1.9e-3, (-0.002, 0.004, SLOW.arm))
    metric = scored.metric.model_copy(update={"change": None, "standing": None}) if scored.metric else None
    return of(*beside, INT8.model_copy(update={"fidelity": replace(scored, metric=metric)}))


def of_sizes() -> Document:
    facts: dict[str, Any] = {"scenario": "varying", "parameters": {"n": 64}, **MINE}
    return of(row("slow", 2e6, **facts), row("fast", 5e5, **facts))


def of_refused_outputs() -> Document:
    refused: dict[str, Any] = {
        "outcome": "failed",
        "cause": NotRunKind.FAILED,
        "reason": "above its bound",
        "fix": None,
    }
    int8 = row("onnxruntime:cpu:int8", None, fidelity=fidelity(0.9, standing="refused"), **refused, **MINE)
    return of(SLOW, FAST, int8)


LOST = fidelity(0.1, (-0.05, 0.02, SLOW.arm))
OF_A_STEP = {"scenario": "train-step"}
LATE = {"cause": NotRunKind.NOT_REACHED, "reason": "not built in the time that --max-time leaves for builds"}
STATES: dict[str, Callable[[], Document]] = {
    "nothing measured": lambda: of(row("a:cuda:fp32", None), restarts=0, control_holds=None, complete=False),
    "nothing measured, and over": lambda: of(row("a:cuda:fp32", None), restarts=0, control_holds=None, command=""),
    "sure": lambda: of(SLOW, FAST, row("third", 3e6, **MINE), within=0.2),
    "exact": lambda: noisy(of(SLOW, FAST), void_share=0.02, sd=0.031),
    "a tie": lambda: of(SLOW, FAST, NEAR, within=0.2),
    "leads, with a tie": lambda: of(SLOW, FAST, NEAR, FAR, within=0.2),
    "leads, unfinished": lambda: noisy(
        of(SLOW, FAST, FAR, row("farther", 6e5, **MINE), within=0.3, complete=False), void_share=0.33, sd=0.22
    ),
    "leads, too noisy": lambda: noisy(
        of(SLOW, FAST, FAR, within=0.3, restarts_needed=lambda *_: None), void_share=0.85, sd=0.4
    ),
    "one restart": of_one_restart,
    "leads, begun from Python": lambda: of(SLOW, FAST, FAR, within=0.3, complete=False, command=""),
    "too noisy, begun from Python": lambda: of(
        SLOW, FAST, FAR, within=0.3, restarts_needed=lambda *_: None, complete=False, command=""
    ),
    "too noisy, begun from Python, and over": lambda: of(
        SLOW, FAST, FAR, within=0.3, restarts_needed=lambda *_: None, command=""
    ),
    "leads, not all reached": lambda: of(
        SLOW, FAST, FAR, row("late", None, **LATE, **MINE), within=0.3, complete=False
    ),
    "not all reached": lambda: of(SLOW, FAST, row("late", None, **LATE, **MINE), complete=False),
    "no control yet": lambda: of(SLOW, FAST, unvouched="the copy had no time yet", control_holds=None, complete=False),
    "the control differs": lambda: of(SLOW, FAST, unvouched="the control differs", control_holds=False),
    "a metric decides": of_a_metric,
    "held back": lambda: of(SLOW, FAST, INT8),
    "held back, broken": lambda: of(SLOW, FAST, INT8.model_copy(update={"fidelity": LOST}), row("q:cpu:int4", 4e5)),
    "no gain": of_no_gain,
    "one target": lambda: of(FAST, control_holds=None),
    "one FP32 target": lambda: of(FAST, INT8),
    "scores without FP32": of_scores_without_fp32,
    "scores, and FP32 failed": lambda: of_scores_without_fp32(row("fast", None, **MINE)),
    "lower precisions alone": lambda: of(row("slow:cpu:int8", 2e6, **MINE), INT8),
    "lower precisions alone, open": lambda: of(row("slow:cpu:int8", 2.9e5, **MINE), INT8, within=0.3, complete=False),
    "on another machine": lambda: of(SLOW, FAST, on="pi@kitchen", given={"inputs": "data/X.npz"}),
    "a training step": lambda: of(*(one.model_copy(update=OF_A_STEP) for one in (SLOW, FAST))),
    "threads that aren't set": lambda: of(
        *(one.model_copy(update={"threads": 0, "executed": {"threads": 2}}) for one in (SLOW, FAST))
    ),
    "a GPU wins": lambda: of(SLOW, row("fast:cuda:fp32", 5e5, **MINE)),
    "varying sizes": of_sizes,
    "a library's own call": of_a_library,
    "outputs that were refused": of_refused_outputs,
    "unsound": lambda: of(SLOW, FAST, FAR, withheld=lambda arm: "no steady state" if "far" in arm else None),
}


def test_the_answer_in_each_state_is_the_one_that_is_kept():
    told = [f"== {name}\n{as_plain(render_answers(make(), 100, full=True), 100)}\n" for name, make in STATES.items()]
    hold("answers", "\n".join(told))


def test_the_answer_is_as_wide_as_the_terminal_up_to_a_limit():
    found = STATES["leads, unfinished"](), STATES["held back"]()
    told = [f"== {width}\n{as_plain(render_answers(one, width), width)}\n" for width in (60, 80, 140) for one in found]
    hold("answers-widths", "\n".join(told))


@pytest.mark.parametrize("name", STATES)
def test_an_answer_has_at_most_ten_lines_and_one_next_command_at_any_width(name: str):
    found = STATES[name]()
    labels = [line.partition(" ")[0] for line in as_plain(render_answers(found, 100), 100).splitlines()]
    assert len([label for label in labels if label]) + 1 <= 10
    (answer,) = found.answer
    for width in range(40, 105, 5):
        text = as_plain(render_answers(found, width), width)
        long = max(map(len, shlex.split(answer.next or "")), default=0)
        assert max(map(len, text.splitlines())) <= max(width, len("        ") + long + len(" \\"))
        assert (answer.next or "") in " ".join(text.replace("\\\n", " ").split())


@pytest.mark.parametrize(
    ("state", "label", "told"),
    [
        ("sure", "Ship", ""),
        ("one target", "Ship", ", nothing compared"),
        ("leads, with a tie", "Leads", ", leads so far"),
        ("lower precisions alone", "Fastest", ", not shipped"),
        ("lower precisions alone, open", "Leads", ", leads so far"),
    ],
)
def test_what_follows_a_name_agrees_with_the_first_word(state: str, label: str, told: str):
    (answer,) = STATES[state]().answer
    assert (choose_label(answer), qualify(answer)) == (label, told)


@pytest.mark.parametrize(
    ("void_share", "sd", "told"),
    [
        (0.0, None, "low (0 % of the rounds disturbed)"),
        (QUIET_SHARE, QUIET_SHARE, "low (5 % of the rounds disturbed, restarts differ by 5 %)"),
        (0.0, 0.123, "medium (0 % of the rounds disturbed, restarts differ by 12 %)"),
        (NOISY_SHARE, 0.004, "high (20 % of the rounds disturbed, restarts differ by 0.4 %)"),
        (0.02, 1.23, "high (2 % of the rounds disturbed, restarts differ by 123 %)"),
    ],
)
def test_noise_is_as_high_as_the_worse_of_disturbed_rounds_and_restarts(void_share: float, sd: float | None, told: str):
    assert describe_noise(noisy(of(SLOW, FAST), void_share=void_share, sd=sd).groups) == told


def test_a_hostile_name_is_shown_as_it_is():
    evil = "[bold red]evil[/bold red]"
    text = as_plain(render_answers(of(SLOW, row(evil, 5e5), row(f"{evil}2", 5.1e5)), 100), 100)
    assert f"Ship    {evil}:cpu:fp32" in text
    assert f"{evil}2: same (within" in text


def test_a_suggested_command_writes_where_nothing_is_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model-1").mkdir()
    (tmp_path / "model-2").symlink_to("gone")
    assert of(SLOW, FAST).answer[0].next == "shootout ship results/net -o model-3"
    assert [name_free(name) for name in ("model-1", "shipped", "model-2")] == ["model-3", "shipped", "model-3"]
