"""Commands that a screen proposes can be pasted: none is cut, and one of several lines is one to a shell."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from support.races.cells import cell, document, fidelity, row

from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import read_question
from shootout.apps.judge.decide.screen import tell_decision
from shootout.cli import app
from shootout.tell.document import Document
from shootout.tell.report import Command, Line, write_lines

ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "reference" / "decide-digits"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("name", ["my net.onnx", "it's mine.onnx", """both' "kinds.onnx""", "don't"])
def test_a_command_of_several_lines_is_one_to_a_shell(width: int, name: str):
    words = ["shootout", "run", "--model", name, "--backends", "onnxruntime:cpu:fp32,openvino:cpu:fp32"]
    words += ["--threads", "1", "--goal", "best", "--max-time", "5m"]
    lines = [line.plain for line in write_lines([Line("Next", commands=[Command(text=shlex.join(words))])], width)]
    assert max(map(len, lines)) <= width
    assert (len(lines) > 1) is (width < 200)
    command = "\n".join(lines).removeprefix("Next")
    assert shlex.split(command.replace("\\\n", "")) == words, "as a shell takes a backslash before a new line"


@pytest.mark.parametrize("width", range(30, 60))
def test_no_line_begins_with_a_dot_or_parts_a_figure_from_its_unit(width: int):
    items = [f"one of several long items that are wrapped between their words, {ns} ms and {ns} %" for ns in (5, 5.5)]
    lines = [line.plain.strip() for line in write_lines([Line("Best", [*items, "a short one"])], width)]
    assert not any(line.startswith(("·", "ms", "%")) for line in lines)


MINE = {"model": "net.onnx"}
SLOW, FAST = (row(name, ns, **MINE) for name, ns in (("slow", 2e6), ("fast", 5e5)))
ROUGH = row("fast:cpu:int8", 2.5e5, fidelity=fidelity(1.9e-3), **MINE)
LOST = row("fast:cpu:int4", 2e5, fidelity=fidelity(0.1, (-0.018, 0.015, SLOW.arm)), **MINE)
BROKEN = row("onnxruntime:cpu:int8", 2.2e5, fidelity=fidelity(0.1, (-0.05, 0.015, SLOW.arm)), **MINE)


def commands_of(found: Document) -> list[str]:
    """All that an answer proposes to type."""
    told = [part for answer in found.answer for part in (answer.next, answer.sure.command)]
    told += [
        part for answer in found.answer for change in answer.would_change for part in (change.measure, change.accept)
    ]
    return [command for command in told if command]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 2),
        ({"named": ("--group", "toy, batch 1"), "command": "shootout run --model 'my net.onnx'"}, 2),
        ({"within": 0.2, "complete": False, "command": "shootout run toy"}, 1),
        ({"within": math.inf, "complete": False, "command": "shootout run toy"}, 1),
    ],
)
def test_each_command_that_a_screen_proposes_is_one_of_ours(changes: dict[str, Any], count: int):
    near = [row("near", 5.15e5, **MINE)] if "within" in changes else []
    found = document(cell(SLOW, FAST, ROUGH, LOST, BROKEN, *near, run=str(RUN), **changes))
    commands = commands_of(found)
    assert len(commands) >= count
    for command in commands:
        parse(command)


def test_what_a_decision_proposes_is_one_of_ours():
    question = read_question([RUN])
    for limits in ({"max-error": "1e-1", "install": "100MB"}, {"p99": "1us"}, {"max-drop": "0.1pp"}):
        found = decide(read_policy(None, limits), question)
        commands = [command.text for line in tell_decision(found, question) for command in line.commands]
        assert commands
        for command in commands:
            parse(command)


def parse(command: str) -> None:
    """Have the command line read a command; nothing runs."""
    program, name, *words = shlex.split(command)
    assert program == "shootout"
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, words)
