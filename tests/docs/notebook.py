"""Make notebooks from Python files with marked cells, as Jupyter opens them and GitHub shows them (nbformat 4.5).

docs/notebook.py → docs/notebook.ipynb: its cells run one after the other, and what they show goes with them. `make
notebook` runs them on the runs that this repository ships, `make notebook LIVE=1` on races of its own. Jupyter is not
needed for any of it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE, NOTEBOOK = DOCS / "notebook.py", DOCS / "notebook.ipynb"
_MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it is written: `kind` is `code` or `markdown`."""

    kind: str
    source: str


def read_cells(text: str, *, live: bool = False) -> list[Cell]:
    """The cells of a source file; what stands before the first one is for people who read that file."""
    _, *parts = _MARK.split(text)
    cells = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        source = body.strip("\n")
        if mark:
            lines = [line.removeprefix("#").removeprefix(" ") for line in source.splitlines()]
            cells.append(Cell("markdown", "\n".join(lines)))
        else:
            cells.append(Cell("code", source.replace("LIVE = False", "LIVE = True") if live else source))
    return cells


def make(cells: list[Cell], folder: Path) -> dict[str, Any]:
    """The notebook, executed in `folder`; what a cell raises comes out here."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        made = []
        for number, cell in enumerate(cells):
            count = sum(one.kind == "code" for one in cells[: number + 1])
            made.append({"id": f"cell-{number}", **_executed(cell, count, names)})
    return _notebook(made)


def _notebook(made: list[dict[str, Any]]) -> dict[str, Any]:
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": language}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _executed(cell: Cell, count: int, names: dict[str, Any]) -> dict[str, Any]:
    found = {"cell_type": cell.kind, "metadata": {}, "source": _lines(cell.source)}
    if cell.kind == "markdown":
        return found
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        value = _run(cell.source, names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in _shown(value).items()}
        outputs.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    return {**found, "execution_count": count, "outputs": outputs}


def _run(source: str, names: dict[str, Any]) -> Any:
    """What the last expression of a cell is."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return eval(compile(last, "<cell>", "eval"), names) if last else None


def _shown(value: Any) -> dict[str, str]:
    """The forms of a value that a notebook takes."""
    exported = getattr(value, "_repr_mimebundle_", None)
    found = exported() if exported else None
    if found:
        return found[0] if isinstance(found, tuple) else dict(found)
    html = getattr(value, "_repr_html_", None)
    return {"text/plain": repr(value)} | ({"text/html": html()} if html else {})


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Write the notebooks; `--live`: with races of its own."""
    _write(make(read_cells(SOURCE.read_text(), live="--live" in sys.argv), DOCS), NOTEBOOK)


def _write(made: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    sys.stderr.write(f"{file}: {file.stat().st_size / 1e3:.0f} kB\n")


if __name__ == "__main__":
    main()
