"""What a run says on the way."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from shootout.core.units import span
from shootout.tell import progress
from shootout.tell.progress import ProgressDisplay


class Clock:
    """Says what it is set to, in nanoseconds."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> int:
        return int(1e9 * self.s)


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


def test_a_restart_is_told_with_the_time_left_and_the_standing(clock: Clock):
    text = io.StringIO()
    told = ProgressDisplay(Console(file=text, width=200), clock)
    told.restart("g", 0, 5, 0.0)
    clock.s += progress.EVERY_S
    told.restart("g", 1, 5, 400.0, standing="onnxruntime leads, 3 targets open")
    clock.s += progress.EVERY_S
    told.restart("g", 5, 5, 30.0)
    assert text.getvalue().splitlines() == [
        "g: restart 1 of 5 or more",
        "g: restart 2 of 5 or more, about 7 min left, onnxruntime leads, 3 targets open",
        "g: restart 6, about 30 s left",
    ]


def test_time_that_is_over_is_never_negative(clock: Clock):
    text = io.StringIO()
    told = ProgressDisplay(Console(file=text, width=200), clock)
    told.restart("g", 1, 5, -232.0, standing="onnxruntime leads")
    assert text.getvalue().splitlines() == ["g: restart 2 of 5 or more, onnxruntime leads"]
    assert [span(one) for one in (-232.0, -0.1, 0.0, 8.0)] == ["0 s", "0 s", "0 s", "8 s"]


def test_off_a_terminal_there_is_a_line_every_15_seconds_at_most(clock: Clock):
    text = io.StringIO()
    told = ProgressDisplay(Console(file=text, width=200), clock)
    told.stage("building")
    for second in range(1, 61):
        clock.s += 1.0
        told.detail(f"arm {second}")
    told.say("failed: an arm")
    assert text.getvalue().splitlines() == [
        "building",
        *(f"building: arm {second}" for second in (15, 30, 45, 60)),
        "failed: an arm",
    ]


def test_on_a_terminal_there_is_a_bar_once_the_time_left_is_known(clock: Clock):
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True, legacy_windows=False, color_system=None)
    with ProgressDisplay(console, clock) as told:
        told.stage("building")
        told.detail("numpy")
        assert "\u2501" not in text.getvalue()
        clock.s += 30.0
        told.restart("g", 0, 5, 30.0, standing="numpy leads, 2 arms open")
        assert _bar(text) == progress.BAR_WIDTH // 2
        for second in range(1, 16):
            clock.s += 1.0
            told.detail(f"round {second}/15")
        assert _bar(text) == 3 * progress.BAR_WIDTH // 4
        assert "about 30 s left, numpy leads, 2 arms open: round 15/15" in text.getvalue()
        clock.s += 300.0
        told.detail("late")
        assert _bar(text) == progress.BAR_WIDTH


@pytest.mark.parametrize("left_s", [0.0, 30.0])
def test_on_a_narrow_terminal_what_happens_now_is_not_what_is_cut(clock: Clock, left_s: float):
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, legacy_windows=False, color_system=None)
    names = ", ".join(["torch-compile+aoti:cpu:fp32", "openvino:cpu:int8", "executorch:cpu:fp32"])
    with ProgressDisplay(console, clock) as told:
        told.restart("exporting and building, 12 targets", 0, 4, left_s, standing="--max-time leaves 55 s for all")
        told.detail(f"3 of 12 built, now {names}")
        last = text.getvalue().rstrip().splitlines()[-1]
        assert "exporting and" in last
        assert ": 3 of 12 built, now torch" in last
        told.detail("short")
        assert text.getvalue().rstrip().endswith(": short")
    told.stage("a" * 90)


def _bar(text: io.StringIO) -> int:
    """How many cells of the last bar are filled."""
    last = text.getvalue().rstrip().splitlines()[-1]
    return last.count("\u2501")


def test_the_hidden_copy_is_told_by_what_it_is_for(clock: Clock):
    text = io.StringIO()
    ProgressDisplay(Console(file=text, width=200), clock).detail("loading numpy:cpu:fp32#control")
    assert text.getvalue() == "loading numpy:cpu:fp32 (the control)\n"


def test_a_wait_is_told_at_once_and_then_counted(clock: Clock):
    text = io.StringIO()
    told = ProgressDisplay(Console(file=text, width=200), clock)
    for second in range(31):
        told.wait("waiting for another run", float(second))
        clock.s += 1.0
    assert text.getvalue().splitlines() == [
        "waiting for another run",
        "waiting for another run: 15 s",
        "waiting for another run: 30 s",
    ]
