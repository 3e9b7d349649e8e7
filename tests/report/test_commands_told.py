"""Commands that a screen proposes can be pasted: none is cut, and one of several lines is one to a shell."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from shootout.report.screen import INDENT, labelled, typed

ROOT = Path(__file__).parents[2]
OF_A_COMMAND = re.compile(r"shootout (run|ship|decide|gate|tune)|\b(pip|python|git) |--[a-z]|=\s*…|\w\(.*…")


def told(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that may be printed."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield node.value


@pytest.mark.parametrize("folder", ["harness", "backends", "models"])
def test_no_command_that_is_told_holds_an_ellipsis(folder: str):
    for file in (ROOT / folder).rglob("*.py"):
        for text in told(ast.parse(file.read_text(encoding="utf-8"))):
            assert "…" not in text or not OF_A_COMMAND.search(text), f"{file}: {text}"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("name", ["my net.onnx", "it's mine.onnx", """both' "kinds.onnx""", "don't"])
def test_a_command_of_several_lines_is_one_to_a_shell(width: int, name: str):
    words = ["shootout", "run", "--model", name, "--backends", "onnxruntime:cpu:fp32,openvino:cpu:fp32"]
    words += ["--threads", "1", "--goal", "best", "--max-time", "5m"]
    lines = [line.plain for line in labelled("Sure?", [f"As told:  {typed(shlex.join(words), width - INDENT)}"], width)]
    assert max(map(len, lines)) <= width
    assert (len(lines) > 1) is (width < 200)
    _, _, command = "\n".join(lines).partition("As told:")
    assert shlex.split(command.replace("\\\n", "")) == words, "as a shell takes a backslash before a new line"
