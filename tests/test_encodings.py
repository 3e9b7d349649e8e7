"""Text files are UTF-8 wherever this runs: no file is opened with the encoding of somebody's locale.

Ruff has a rule for it (PLW1514), which sees a path only where its type is plain: half of the calls.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("harness", "backends", "models", "docs") for path in (ROOT / folder).rglob("*.py"))
TEMPLATES = [
    *sorted((ROOT / "harness" / "ship").glob("check*.txt")),
    *(path for folder in ("harness", "backends") for path in sorted((ROOT / folder).rglob("load*.txt"))),
]
OTHERS = {"os", "gzip", "tarfile", "zipfile", "webbrowser"}
"""Modules whose `open` opens no text."""


def loose(tree: ast.AST) -> list[int]:
    """The lines of calls that open text without saying its encoding."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_loose(node)]


def _is_loose(call: ast.Call) -> bool:
    named = {one.arg: one.value for one in call.keywords}
    if "encoding" in named:
        return False
    match call.func:
        case ast.Attribute(attr="read_text"):
            return not call.args
        case ast.Attribute(attr="write_text"):
            return len(call.args) < 2
        case ast.Attribute(attr="run" | "Popen" | "check_output") if "text" in named:
            return True
        case ast.Attribute(value=ast.Name("os"), attr="fdopen") | ast.Name("open"):
            mode = call.args[1] if len(call.args) > 1 else named.get("mode")
        case ast.Attribute(value=ast.Name(name) | ast.Attribute(attr=name), attr="open") if _opens_else(name):
            return False
        case ast.Attribute(attr="open"):
            mode = call.args[0] if call.args else named.get("mode")
            if mode is not None and not isinstance(mode, ast.Constant | ast.IfExp):
                return False  # a file's name in an archive
        case _:
            return False
    modes = [str(one.value) for one in ast.walk(mode) if isinstance(one, ast.Constant)] if mode else []
    return not any("b" in one for one in modes)


def _opens_else(name: str) -> bool:
    """Whether it is a module, or a class that isn't Path, whose `open` opens no text."""
    return name in OTHERS or (name[:1].isupper() and not name.isupper() and name != "Path")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.read_text()", 1),
        ("a.read_text('utf-8')", 0),
        ("a.write_text(b)", 1),
        ("a.write_text(b, encoding='utf-8')", 0),
        ("a.open('a')", 1),
        ("(a / b).open()", 1),
        ("Path(a).open('rb')", 0),
        ("open(a, 'w')", 1),
        ("os.open(a, b)", 0),
        ("tarfile.open(fileobj=a, mode='w|')", 0),
        ("gpu.UsedGpu.open()", 0),
        ("FOLDER.open('a')", 1),
        ("archive.open(name)", 0),
        ("a.open('ab' if b else 'wb')", 0),
        ("a.open(mode='w')", 1),
        ("os.fdopen(1, 'w')", 1),
        ("subprocess.run(a, text=True)", 1),
    ],
)
def test_the_look_finds_what_it_is_for(text: str, found: int):
    assert len(loose(ast.parse(text))) == found


def test_no_text_is_opened_without_its_encoding():
    assert len(FILES) > 300
    assert len(TEMPLATES) > 8
    found = [f"{path.relative_to(ROOT)}:{line}" for path in FILES for line in loose(ast.parse(path.read_bytes()))]
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8").replace("BODY\n", "").replace("CODE_ENDINGS", "0")
        found += [f"{path.relative_to(ROOT)}:{line}" for line in loose(ast.parse(text))]
    assert found == []
