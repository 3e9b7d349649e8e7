"""Hold the sizes that only a commit which says why may raise: `python -m lab.ratchet`, which `make check` runs.

They stand in pyproject.toml under `tool.ratchet`: the code lines of core (no docstrings, comments or blank lines), its
modules and classes, the fields of the types that a run passes from step to step, the options of `shootout run`, and
the imports against the rings. A size that has fallen is to be written down as well, so that it can't rise again
unnoticed.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from shootout.cli import app

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "harness" / "core"
EXCEPTIONS = ROOT / "tests" / "ring_exceptions.txt"
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
"""The kinds of tokens that make a line no line of code."""


def count_code_lines(source: str) -> int:
    """Return how many lines of a file hold code: no docstrings, comments or blank lines."""
    prose = set[int]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                prose |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    return len(lines - prose)


def find_fields(place: str) -> Iterator[str]:
    """Yield the fields of a class: `study/schema.py:Study`, a path in core."""
    path, _, name = place.partition(":")
    found = [one for one in ast.parse((CORE / path).read_text()).body if isinstance(one, ast.ClassDef)]
    body = next(one.body for one in found if one.name == name)
    yield from (ast.unparse(one.target) for one in body if isinstance(one, ast.AnnAssign))


def measure(spine: list[str]) -> Mapping[str, int]:
    """Return the sizes as they are."""
    commands = typer.main.get_group(app).commands
    sources = [file.read_text() for file in CORE.rglob("*.py")]
    return {
        "core_lines": sum(map(count_code_lines, sources)),
        "core_modules": len(sources),
        "core_classes": sum(isinstance(node, ast.ClassDef) for one in sources for node in ast.walk(ast.parse(one))),
        "spine_fields": sum(len(list(find_fields(place))) for place in spine),
        "run_options": sum(one.param_type_name == "option" for one in commands["run"].params),
        "ring_exceptions": sum(not line.startswith("#") for line in EXCEPTIONS.read_text().splitlines()),
    }


def main() -> int:
    """Compare the sizes with those written down; the exit code is 1 if one has changed."""
    kept = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ratchet"]
    sizes = measure(kept["spine"])
    changed = {name: size for name, size in sizes.items() if size != kept[name]}
    for name, size in changed.items():
        way = "say why in the commit" if size > kept[name] else "well done"
        print(f"{name}: {kept[name]} in pyproject.toml, {size} now: write {size} there, and {way}")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
