"""The pages of docs/recipes: what they say to type is what their kept runs were typed as."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from lab.recipes import PAGES, RECIPES, ROOT, RUN, RUNS, list_shown, read_blocks, read_commands
from shootout.core.journal import journal

NAMES = [*RECIPES]


def test_the_nav_has_the_recipes_in_their_order_after_the_tutorial():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert [[*part] for part in nav][1] == ["Recipes"]
    assert [Path(page).stem for entry in nav[1]["Recipes"] for page in entry.values()] == NAMES
    assert {page.stem for page in PAGES.glob("*.md")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_run_was_typed_as_its_page_says_and_the_page_shows_it(name: str):
    page = PAGES / f"{name}.md"
    commands = (re.sub(" --(out|max-time) [^ ]+", "", command) for command in read_commands(page.read_text()))
    typed = [command for command in commands if command.startswith(RUN)]
    runs = [RUNS / run for run in RECIPES[name]]
    recorded = [" ".join(["shootout", *journal.read(run).header.command]) for run in runs]
    assert recorded == typed, f"python -m lab recipes {name}"
    shown = {Path(command.split()[1]).name for command in list_shown(page)}
    assert shown <= {*RECIPES[name]}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_begins_with_what_people_type_and_ends_with_the_next_step(name: str):
    text = (PAGES / f"{name}.md").read_text()
    assert re.match(r"# [^\n]+\n\n```sh\nshootout ", text)
    assert text.count("\nNext: ") == 1
    assert "\n## If it goes wrong\n" in text


def test_commands_are_the_lines_of_the_shell_blocks_alone():
    page = "```sh\nshootout run a \\\n  --batch 1\n\nshootout show r\n```\n```\nno\n```\n```sh\nshootout ship r\n```\n"
    assert read_commands(page) == ["shootout run a --batch 1", "shootout show r", "shootout ship r"]
    assert read_blocks("```toml\na = 1\n```\n```sh\nb\n```\n", "toml") == "a = 1\n"


@pytest.mark.long
def test_int8_on_one_scale_loses_the_pixels_beside_a_column_of_seconds(tmp_path: Path):
    import onnxruntime

    from lab import recipe_files

    recipe_files.make_int8(tmp_path)
    with np.load(tmp_path / "rows.npz") as rows, np.load(tmp_path / "labels.npz") as labels:
        found = rows["rows"], labels["labels"]

    def accuracy(array: np.ndarray) -> float:
        session = onnxruntime.InferenceSession(tmp_path / "wide.onnx")
        return float((session.run(None, {"rows": array})[0].argmax(1) == found[1]).mean())

    rounded = found[0].copy()
    step = rounded.max() / 255
    rounded[:] = np.round(rounded / step) * step
    assert accuracy(found[0]) > 0.85
    assert accuracy(rounded.astype(np.float32)) < 0.3
