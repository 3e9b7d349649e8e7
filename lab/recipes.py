"""Make the runs of docs/recipes again: `python -m lab recipes`, or `python -m lab recipes NAME` for one page.

A page's `sh` blocks are what is typed, so the page and its run can't differ. They are typed in a fresh folder that has
the page's models and data, and its `toml` block as deploy.toml. Each run is kept as `results/reference/recipe-…`. What
other commands print is kept as a screen of tests/report/screens. Then the screens of all pages are written anew. A
verdict that stays open is a result, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.site import screens
from lab.common import Bench, Tables, say
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import pack
from shootout.core.clock import Stopwatch
from shootout.core.errors import unknown
from shootout.core.journal import journal

ROOT = Path(__file__).resolve().parents[1]
PAGES, RUNS = ROOT / "docs" / "recipes", ROOT / "results" / "reference"
PLACE = Path("/tmp/shootout-recipes")
"""The folder in which the pages' commands are typed, with a cache of its own: journals name its files, and no home."""
LIMIT_S = 1_200.0
"""A command that takes longer is ended."""
COLUMNS = "100"
"""The width of screens that are kept."""
RUN, SHIP = "shootout run ", "shootout ship "


RECIPES: Mapping[str, tuple[str, ...]] = {
    "texts": ("recipe-texts",),
    "detector": ("recipe-detector",),
    "trees": ("recipe-trees",),
    "variants": ("recipe-variants",),
    "service": ("recipe-service",),
    "int8": ("recipe-int8-wrong", "recipe-int8-mended", "recipe-int8-slower"),
    "ci": ("recipe-ci",),
}
"""By page, in the order of the nav, the folders in results/reference of the runs that it types. `lab.recipe_files` has
a function for each that makes its models and data.
"""


def figures(bench: Bench) -> Tables:
    """Make the recipes that are named, or all; with `--quick` nothing is kept, and the pages stay as they are.

    Raises:
        UsageError: there is no such recipe.
    """
    for name in bench.targets:
        if name not in RECIPES:
            raise unknown("recipe", name, RECIPES)
    tables: Tables = {"commands": []}
    for name in bench.targets or RECIPES:
        tables["commands"] += _make(bench, name)
        bench.keep(tables)
    shutil.rmtree(PLACE)
    if not bench.quick:
        write_screens()
    return tables


def read_blocks(page: str, language: str) -> str:
    """Return the code blocks of a page that are in a language, one after the other."""
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL))


def read_commands(page: str) -> list[str]:
    """Return what a page's `sh` blocks say to type, one command a line; a backslash joins a line with the next."""
    joined = read_blocks(page, "sh").replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line.strip()]


def list_shown(page: Path) -> list[str]:
    """Return the commands on kept runs whose screens a page shows."""
    return re.findall(r"<!-- \w+: (\w+ results/reference/[^\n]+?) -->", page.read_text(encoding="utf-8"))


def write_screens() -> None:
    """Write the screens of the kept runs, and the pages that show them."""
    words = ["-m", "pytest", "-q", "--disable-plugin-autoload", "-p", "timeout", "tests/report/test_screens.py", "-k"]
    environment = {**os.environ, "SCREENS": "write"}
    subprocess.run([sys.executable, *words, "recipe"], cwd=ROOT, env=environment, stdout=sys.stderr, check=True)
    screens.main()


def _make(bench: Bench, name: str) -> list[dict[str, Any]]:
    """Type a page's commands in a folder with its files; keep its runs, and what the other commands print."""
    folder = PLACE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # in a process of its own, since torch changes the environment, and there, since quantizers leave files
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", f"from lab.recipe_files import *; make_{name}(Path())"]
    subprocess.run(words, cwd=folder, env=environment, stdout=sys.stderr, check=True)
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    (folder / "deploy.toml").write_text(read_blocks(page, "toml"))
    rows, told, names = [], [], iter(RECIPES[name])
    for command in read_commands(page):
        say(f"  {command}")
        before = _list_runs(folder)
        with Stopwatch() as wall:
            done = _type(command, folder)
        row = {"recipe": name, "command": command, "exit": done.returncode, "wall_s": round(wall.seconds, 1)}
        if command.startswith(RUN):
            row |= _keep_run(_list_runs(folder) - before, None if bench.quick else RUNS / next(names))
        elif not command.startswith(SHIP):
            told.append(f"$ {command}\n{done.stdout}[{done.returncode}]\n")
        rows.append(row)
    if told and not bench.quick:
        (screens.KEPT / f"typed-{name}.txt").write_text("\n".join(told), encoding="utf-8")
    return rows


def _type(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a command in a folder; what it prints goes where the bench's words go, too."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": COLUMNS, "SHOOTOUT_CACHE": str(PLACE / "cache")}
    words = ["bash", "-c", command]
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
    )
    sys.stderr.write(done.stdout)
    return done


def _list_runs(folder: Path) -> set[Path]:
    return {file.parent for file in folder.rglob(journal.NAME)}


def _keep_run(new: set[Path], into: Path | None) -> dict[str, Any]:
    """Pack the run that a command began, and say how many targets it timed; `failed` says that there is none."""
    timed = sum(row.end_to_end is not None for run in new for row in analyse(run).rows)
    if len(new) != 1 or not timed:
        return {"failed": f"{len(new)} runs, {timed} targets timed"}
    if into:
        shutil.rmtree(into, ignore_errors=True)
        pack(new.pop(), into)
    return {"timed": timed, "kept": into.name if into else None}
