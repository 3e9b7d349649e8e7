"""The documentation's site, but for its build: that needs mkdocs, and `make site` fails where a page or a link does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from docs.site.commands import write_commands
from docs.site.links import BETTER, ELSEWHERE, find_broken, find_repository, move_links
from docs.site.notebook import write_notebook
from docs.site.prose import APART, BUDGETS, MADE, TYPES, find_type
from shootout.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_every_page_has_its_place_in_the_nav():
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    written = {*BETTER.values(), *ELSEWHERE.values()}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    apart = {page for page in pages if page.startswith((*APART, "examples/"))}
    assert sorted(set(listed) - written) == sorted(pages - apart), "mkdocs.yml, nav"
    assert len(listed) == len(set(listed))


def test_every_page_that_people_write_has_a_budget_and_every_budget_a_page():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    types = {page: find_type(nav, page) for page in [*BUDGETS, "runtimes/jax.md", "recipes/ci.md", "reference/keys.md"]}
    assert set(types.values()) <= set(TYPES), types
    assert [title for part in nav for title in part] == list(TYPES)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    others = (*APART, *MADE, "examples/", "runtimes/", "recipes/")
    assert {page for page in pages - set(BUDGETS) if not page.startswith(others)} == set()


def test_the_page_of_commands_tells_each_with_all_its_options():
    page, root = write_commands(), get_command(app)
    parts = dict(re.findall(r"^## shootout (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(parts) == [name for name, one in root.commands.items() if not one.hidden]
    for name, part in parts.items():
        for parameter in root.commands[name].params:
            if not parameter.hidden:
                assert (parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]) in part
    assert "shootout run net.py:make --backends torch-compile,onnxruntime,openvino" in parts["run"]


def test_the_pages_that_the_site_adds_are_written_without_a_framework():
    code = """
import sys
sys.modules |= dict.fromkeys(
    ["torch", "jax", "onnx", "onnxruntime", "openvino", "transformers", "sklearn", "pandas", "scipy", "iree", "ncnn"]
)
from docs.site import notebook, reference, studies
assert reference.write_reference() and notebook.write_notebook() and studies.find_runs()
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_links_lead_into_the_site_or_to_the_repository():
    pages = {"a.md", "runtimes/b.md", "results.md"}
    text = (
        "[a](../a.md#top) ![p](../../harness/core/clock.py) [c\nd](../../harness/core) [e](#f) [g](https://h) "
        "[i](../../results/reference/README.md) [j](../notebook.ipynb)"
    )
    assert move_links(text, "runtimes/b.md", pages, "https://x/y") == (
        "[a](../a.md#top) [p](https://x/y/blob/HEAD/harness/core/clock.py) [c\nd](https://x/y/tree/HEAD/harness/core) "
        "[e](#f) [g](https://h) [i](../results.md) [j](../notebook.md)"
    )
    assert move_links("[`clock`](../harness/core/clock.py) is", "a.md", pages, "") == "`clock` is"
    assert move_links("```\n[a](b.md)\n```", "a.md", pages, "") == "```\n[a](b.md)\n```"


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://example.org/a/b.git", "https://example.org/a/b"),
        ("git@example.org:a/b.git", "https://example.org/a/b"),
        ("ssh://git@example.org/a/b", "https://example.org/a/b"),
        ("https://me:token@example.org/a/b", ""),
        ("../b", ""),
    ],
)
def test_the_repository_is_where_its_checkout_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, address: str
):
    monkeypatch.delenv("REPOSITORY", raising=False)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert find_repository(tmp_path) == ""
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", origin], cwd=tmp_path, check=True)
    assert find_repository(tmp_path) == address


def test_a_repository_that_is_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REPOSITORY", raising=False)
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nSource = "https://example.org/of/sdist"\n')
    assert find_repository(tmp_path) == "https://example.org/of/sdist"
    monkeypatch.setenv("REPOSITORY", "https://example.org/a/b/")
    assert find_repository(tmp_path) == "https://example.org/a/b"


def test_a_link_to_no_file_is_found():
    text = "[a](measurement.md) [b](nowhere.md#c) [d](../harness/none.py) [e](https://f) [g](#h)\n```\n[i](j.md)\n```"
    assert list(find_broken(text, "docs/studies.md")) == ["nowhere.md#c", "../harness/none.py"]


def test_the_notebook_is_a_page_with_what_it_showed():
    page = write_notebook()
    assert page.startswith("# ")
    assert page.count('<div class="picture"') == page.count("<svg") == 3
    assert "```python\nrun.plot()\n```" in page
    assert "Ship    litert:cpu:fp32" in page
