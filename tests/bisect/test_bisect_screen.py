"""The answer of a search over releases: its sentence, its table, and the text for an issue."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.onnx_made import linear

from shootout.apps.bisect.bisection import Asked, Bisection
from shootout.apps.bisect.issue import PROGRAM, name_files, write_issue, write_program
from shootout.apps.bisect.releases import Environment, Environments
from shootout.apps.bisect.screen import make_rows, tell_sentence, write_answer, write_notes
from shootout.apps.bisect.search import MOST_RESTARTS, NO_RATIO, Found, Outcome, Reading, Side
from shootout.commands.output import show_progress
from shootout.core.clock import Deadline
from shootout.core.contract import TensorSpec
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.tell.report import write_lines

FACTS = {"os": {"name": "Debian 12", "kernel": "6.1"}, "python": {"version": "3.11.7"}, "cpu": {"model": "EPYC"}}


def compared(ratio: float, low: float, high: float) -> Comparison:
    verdict = Verdict.SLOWER if low > 1 else Verdict.CANT_TELL
    return replace(NO_RATIO, value=ratio, low=low, high=high, verdict=verdict, restarts=4)


def reading(ratio: float, side: Side) -> Reading:
    low, high = (1.0, 1.0) if ratio == 1 else (ratio * 0.95, ratio * 1.05)
    return Reading(figure=2e6 * ratio, ratio=compared(ratio, low, high), side=side, folder="r")


def tell(one: Bisection, issue: str = "") -> str:
    """The lines of the answer and those below the table."""
    return "\n".join(line.plain for line in write_lines([*write_answer(one, issue), *write_notes(one)], 200))


READINGS = {
    "1.20.0": reading(1.0, Side.GOOD),
    "1.24.4": reading(1.36, Side.BAD),
    "1.22.0": reading(1.01, Side.GOOD),
    "1.22.1": reading(1.34, Side.BAD),
}
NAMED = Found(
    outcome=Outcome.NAMED,
    last_good="1.22.0",
    first_bad="1.22.1",
    sign=1,
    ratio=compared(1.34, 1.28, 1.41),
    whole=1.36,
    readings=READINGS,
    skipped={"1.21.0": "doesn't load the model"},
    questions=4,
)
ENDS = replace(NAMED, outcome=Outcome.NONE, last_good="1.20.0", first_bad="1.24.4", sign=0)
OPEN = replace(ENDS, outcome=Outcome.OPEN, ratio=compared(1.08, 0.9, 1.29))
ASKED = Asked(
    package="onnxruntime",
    wanted="1.20..1.24",
    kind="time",
    target="onnxruntime:cpu:fp32",
    model="/home/me/net.onnx",
    sha256="ab12",
    python="/home/me/bin/python",
)
OLD = Environment("1.20.0", "/home/me/e1/bin/python", {"onnxruntime": "1.20.0", "numpy": "2.2"}, 10**8)
NEW = Environment("1.22.1", "/home/me/e2/bin/python", {"onnxruntime": "1.22.1", "numpy": "2.4"}, 10**8)
TOLD = Bisection(
    asked=ASKED,
    folder=Path("results/bisect/1"),
    releases=("1.20.0", "1.21.0", "1.22.0", "1.22.1", "1.23.0", "1.24.4"),
    index=("1.19.0", "1.20.0", "1.21.0", "1.22.0", "1.22.1", "1.23.0", "1.23.1", "1.23.2", "1.24.4", "1.25.0"),
    bound=1e-4,
    environments=Environments("onnxruntime", (), "", made={"1.20.0": OLD, "1.22.1": NEW}),
    race=lambda *_: None,
    progress=show_progress(),
    deadline=Deadline(None),
    found=NAMED,
    again="shootout bisect onnxruntime --model=net.onnx",
    go_on="shootout bisect onnxruntime 1.20..1.24 --model net.onnx --out results/bisect/1",
    before_s=250.0,
    facts=FACTS,
    threads=1,
)


@pytest.mark.parametrize(
    ("kind", "found", "sentence"),
    [
        ("time", NAMED, "onnxruntime is slower since 1.22.1: 1.34x (1.28 to 1.41)"),
        (
            "memory",
            replace(NAMED, sign=-1, ratio=compared(1 / 1.34, 1 / 1.41, 1 / 1.28)),
            "onnxruntime takes less memory since 1.22.1: 1.34x (1.28 to 1.41)",
        ),
        (
            "memory",
            replace(NAMED, last_good="1.20.0", first_bad="1.24.4"),
            "onnxruntime takes more memory between 1.20.0 and 1.24.4: 1.34x (1.28 to 1.41); "
            "2 releases between weren't asked",
        ),
        (
            "ready",
            replace(NAMED, last_good="1.20.0", between=("1.21.0",)),
            "onnxruntime starts slower since 1.21.0 or 1.22.1: 1.34x (1.28 to 1.41)",
        ),
        (
            "outputs",
            replace(
                NAMED, readings={at: replace(one, figure=0.3 * (one.ratio.value - 1)) for at, one in READINGS.items()}
            ),
            "onnxruntime errs more since 1.22.1: the outputs err by 10 %, and by 0.30 % in 1.22.0",
        ),
        (
            "time",
            replace(NAMED, outcome=Outcome.RANGE, first_bad="1.24.4"),
            "onnxruntime 1.24.4 is slower than 1.20.0: 1.34x (1.28 to 1.41); less than half of it has come by 1.22.0",
        ),
        (
            "time",
            replace(NAMED, outcome=Outcome.RANGE),
            "onnxruntime 1.24.4 is slower than 1.20.0: 1.34x (1.28 to 1.41); "
            "half of the difference has come by 1.22.1 and less than half by 1.22.0",
        ),
        (
            "time",
            replace(NAMED, outcome=Outcome.DRIFT),
            "onnxruntime is slower bit by bit from 1.20.0 to 1.24.4, 1.34x (1.28 to 1.41): "
            "no single release brought most of it",
        ),
        (
            "time",
            replace(ENDS, ratio=compared(1.01, 0.98, 1.04)),
            "onnxruntime 1.24.4 differs from 1.20.0 by less than 5 %: 1.01x the time of a call (0.980 to 1.04)",
        ),
        (
            "outputs",
            replace(ENDS, readings={at: replace(one, figure=1e-6) for at, one in READINGS.items()}),
            "onnxruntime 1.24.4 and 1.20.0 both err within the error bound of 0.010 %: "
            "the outputs err by under 0.001 %, and by under 0.001 % in 1.20.0",
        ),
        (
            "outputs",
            replace(OPEN, readings={}),
            "it isn't told yet if only one of onnxruntime 1.20.0 and 1.24.4 errs beyond the error bound of 0.010 %: "
            "no race of the two has ended",
        ),
        (
            "time",
            OPEN,
            "it isn't told yet if onnxruntime 1.20.0 and 1.24.4 differ by more than 5 %: "
            "about 1.1x the time of a call so far",
        ),
        (
            "time",
            replace(OPEN, readings={}),
            "it isn't told yet if onnxruntime 1.20.0 and 1.24.4 differ by more than 5 %: no race of the two has ended",
        ),
    ],
)
def test_the_answer_is_one_sentence(kind: str, found: Found, sentence: str):
    assert tell_sentence(replace(TOLD, asked=replace(ASKED, kind=kind), found=found)) == sentence


def test_the_screen_names_what_was_left_out_and_what_else_differs():
    lines = tell(replace(TOLD, deadline=Deadline(None)), "results/bisect/1/issue.md")  # which counts from now
    assert "Skipped 1.21.0: doesn't load the model" in lines
    assert "each time is that of 1.20.0 × the ratio of one race" in lines
    assert "numpy 2.2 with 1.20.0 and 2.4 with 1.22.1" in lines
    assert "4 min · 4 races · 2 environments of 200 MB in the cache" in lines
    assert "a text for an issue is in results/bisect/1/issue.md" in lines
    assert "Next" not in lines
    assert [[*row.values()] for row in make_rows(TOLD)] == [
        ["  1.20.0", "2.00 ms", "", "4", ""],
        ["  1.21.0", "–", "", "", "skipped"],
        ["  1.22.0", "2.02 ms", "about 1.01x slower", "4", "1.20.0"],
        ["▸ 1.22.1", "2.68 ms", "1.34x slower (1.27 to 1.41)", "4", "1.24.4"],
        ["  1.24.4", "2.72 ms", "1.36x slower (1.29 to 1.43)", "4", ""],
    ]
    only = {end: READINGS[end] for end in ("1.20.0", "1.24.4")}
    headers = [*make_rows(replace(TOLD, found=replace(ENDS, readings=only, skipped={})))[0]]
    assert headers == ["release", "time", "against 1.20.0", "restarts"]
    lines = tell(replace(TOLD, found=replace(NAMED, outcome=Outcome.RANGE, between=("1.23.0",))))
    assert "still open: 1.23.0" in lines
    assert f"Next    {TOLD.go_on}" in lines
    lines = tell(replace(TOLD, found=replace(OPEN, is_spent=True)))
    assert f"too close to tell in {MOST_RESTARTS} restarts" in lines
    assert "Next" not in lines


def test_figures_and_ratios_agree_though_each_race_has_figures_of_its_own():
    drifted = {at: replace(one, figure=one.figure and 1.1 * one.figure) for at, one in READINGS.items()}
    told = replace(TOLD, found=replace(NAMED, readings={**drifted, "1.20.0": READINGS["1.20.0"]}))
    assert make_rows(told) == make_rows(TOLD)


def test_a_range_that_holds_less_than_half_of_the_difference_says_so():
    """A drift in three equal steps, at the time at which its middle steps are told."""
    steps = {
        "2025.0": reading(1.0, Side.GOOD),
        "2026.1": reading(1.14, Side.BAD),
        "2025.4": reading(1.05, Side.GOOD),
        "2026.0": reading(1.09, Side.BAD),
    }
    found = replace(
        NAMED, outcome=Outcome.RANGE, last_good="2025.4", first_bad="2026.0", whole=1.14, readings=steps, skipped={}
    )
    told = replace(TOLD, found=found, asked=replace(ASKED, kind="memory"), releases=tuple(sorted(steps)))
    lines = " ".join(tell(told).split())
    assert "perhaps no single release brought it: between 2025.4 and 2026.0 lies only about 1.04x" in lines
    assert "memory includes mapped files, cached in one way here: another way can change it by 20 %" in lines
    assert "perhaps no single release brought it" in write_issue(told)
    step = replace(found, readings={**steps, "2026.0": reading(1.13, Side.BAD)})
    assert "perhaps" not in tell(replace(told, found=step))


def test_the_text_for_an_issue_has_no_path_of_this_machine():
    text = write_issue(TOLD)
    assert text.startswith("# onnxruntime is slower since 1.22.1: 1.34x (1.28 to 1.41)\n")
    assert "/home" not in text
    race = "- 1.22.1 against 1.22.0, in a race of the two: 1.34x (1.28 to 1.41)."
    machine = "Debian 12, kernel 6.1"
    for said in ("sha256 `ab12`", "| ▸ 1.22.1 | 2.68 ms |", race, machine, TOLD.again, "numpy 2.2 with 1.20.0"):
        assert said in text


def test_the_program_measures_by_the_package_alone(tmp_path: Path):
    net = linear(tmp_path / "net.onnx")
    told = replace(TOLD, inputs=(TensorSpec(name="x", shape=(1, 4), dtype="float32"),), operators={"MatMul": 1})
    program = tmp_path / PROGRAM
    program.write_text(write_program(told))
    command = [sys.executable, program, net]
    ended = subprocess.run(command[:2], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "usage: python repro.py MODEL.onnx\n")
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "time of a call" in ended.stdout
    assert "peak memory" in ended.stdout
    assert write_program(told) in write_issue(told)
    assert "pip install onnxruntime==1.22.1 numpy==2.4 && python repro.py net.onnx" in write_issue(told)
    assert write_program(replace(told, asked=replace(ASKED, target="onnxruntime:cpu:int8"))) == ""
    gone = write_issue(replace(told, environments=Environments("onnxruntime", (), "")))  # the cache was cleared
    assert "pip install onnxruntime==1.22.1 numpy && python repro.py net.onnx" in gone
    other = replace(told, asked=replace(ASKED, package="openvino", target="openvino:cpu:fp32"))
    compile(write_program(other), PROGRAM, "exec")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--inputs=/gone/of/me/x.npz", "--inputs=x.npz"),
        ("~/me/api.py:run", "api.py:run"),
        ("1.20..1.24", "1.20..1.24"),
        ("openvino:cpu:int8", "openvino:cpu:int8"),
    ],
)
def test_a_word_of_the_command_has_no_folder(word: str, told: str):
    assert name_files(word) == told
