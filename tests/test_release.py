"""What is published, without building it: one version, every file told to setuptools, links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from setuptools import find_packages
from support.console import here

from lab.release import ROOT, describe, link

FOLDERS = {"harness/": "shootout/", "backends/": "shootout/backends/", "models/": "shootout/models/"}
GENERATED = ("PKG-INFO", "setup.cfg", "shootout.egg-info/")
"""What setuptools adds to an sdist."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
TEMPLATES = sorted((ROOT / ".github").rglob("*.yml"))


def test_the_version_stands_in_one_place(tmp_path: Path) -> None:
    assert here("--version", cwd=tmp_path).out == f"shootout {VERSION}\n"
    pages = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CITATION.cff", "Makefile")]
    sources = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    told = [file.name for file in [*pages, *TEMPLATES, *sources] if re.search(rf"\b{re.escape(VERSION)}\b", read(file))]
    assert told == []
    assert not [page.name for page in (ROOT / "docs").glob("*.md") if f"shootout-{VERSION}" in read(page)], "a wheel"
    changed = re.search(r"^## (\S+)", read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert changed
    assert changed[1] == VERSION


def read(file: Path) -> str:
    return file.read_text()


def test_setuptools_knows_every_file_of_the_package() -> None:
    """Pages, studies, templates: what isn't a module. A module's place is held by tests/test_layers.py."""
    told = PROJECT["tool"]["setuptools"]["package-data"]
    patterns = [f"{package.replace('.', '/')}/{one}" for package, ones in told.items() for one in ones]
    files = [name for name in published() if name.startswith(tuple(FOLDERS))]
    packages = {name.replace(".", "/") for name in find_packages(str(ROOT), include=["shootout*"])}
    placed = {
        package + name.removeprefix(folder)
        for name in files
        for folder, package in FOLDERS.items()
        if name.startswith(folder)
    }
    data = {name for name in placed if not (name.endswith(".py") and name.rpartition("/")[0] in packages)}
    assert {name for name in data if not any(fnmatch(name, one) for one in patterns)} == set()
    assert [one for one in patterns if not any(fnmatch(name, one) for name in data)] == []


def published() -> list[str]:
    """What git tracks, since in a checkout lie models and pages of whoever works there; of an sdist, all there is."""
    with suppress(OSError, subprocess.CalledProcessError):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        if found := [one for one in listed.split("\0") if one and (ROOT / one).is_file()]:
            return found
    files = (file for file in ROOT.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return [name for name in (str(file.relative_to(ROOT)) for file in files) if not name.startswith(GENERATED)]


def test_an_sdist_has_every_folder_and_what_lies_beside_them() -> None:
    manifest = read(ROOT / "MANIFEST.in").splitlines()
    grafted = {line.split()[1].split("/")[0] for line in manifest if line.startswith("graft ")}
    ours = {"shootout", "tests", "lab", "docs", "results", ".ci", ".github"}
    assert grafted == ours
    assert all((ROOT / name).is_dir() for name in ours)
    included = [one for line in manifest if line.startswith("include ") for one in line.split()[1:]]
    beside = [name for name in published() if "/" not in name and not name.startswith(".")]
    assert [name for name in beside if not any(fnmatch(name, one) for one in included)] == []


def test_the_description_of_a_package_index_has_no_relative_link() -> None:
    readme = read(ROOT / "README.md")
    linked = link(readme, "https://example.org/shootout", "v9")
    assert not re.findall(r"\]\((?!https://|#)[^)]*\)", linked)
    assert "](https://example.org/shootout/raw/v9/results/reference/shootout.svg)" in linked
    assert "](https://example.org/shootout/blob/v9/docs/measurement.md)" in linked
    assert linked.count("](") == readme.count("](")
    bare = link(readme, "", "v9")
    assert not re.findall(r"\]\((?!https://|#)[^)]*\)", bare)
    assert "Bring your model" in bare
    assert "![" not in bare


def test_an_index_is_shown_the_linked_readme_and_the_projects_links(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(read(ROOT / "README.md"))
    (tmp_path / "pyproject.toml").write_text(
        read(ROOT / "pyproject.toml").partition("\n[project.urls]")[0]
    )  # of an sdist
    describe(tmp_path, "https://example.org/shootout")
    told = tomllib.loads(read(tmp_path / "pyproject.toml"))["project"]
    assert told["urls"]["Source"] == "https://example.org/shootout"
    assert "](https://example.org/" in read(tmp_path / told["readme"])
    assert read(tmp_path / "README.md") == read(ROOT / "README.md"), "the tests in an sdist hold it"


def test_an_index_that_lacks_most_packages_is_asked_for_one_alone() -> None:
    lines = [line for form in TEMPLATES for line in read(form).splitlines() if "--index-url" in line]
    assert lines
    assert all("--no-deps" in line for line in lines)


def test_the_page_on_installing_names_every_extra() -> None:
    rows = re.findall(r"^\| (`.*?) \|", read(ROOT / "docs" / "install.md"), re.MULTILINE)
    named = set(re.findall(r"`([\w-]+)`", " ".join(rows)))
    assert named == PROJECT["project"]["optional-dependencies"].keys() - {"dev", "site", "testing"}


def test_a_citation_says_what_the_project_says() -> None:
    cited = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["title"], cited["license"]) == (PROJECT["project"]["name"], PROJECT["project"]["license"])
    assert [one["name"] for one in cited["authors"]] == [one["name"] for one in PROJECT["project"]["authors"]]
    assert all((ROOT / name).is_file() for name in PROJECT["project"]["license-files"])


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda one: one.stem)
def test_a_form_for_an_issue_is_one_that_github_takes(form: Path) -> None:
    told = yaml.safe_load(read(form))
    assert {"name", "description", "body"} <= told.keys()
    assert {one["type"] for one in told["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    asked = [one for one in told["body"] if one["type"] != "markdown"]
    assert len({one["id"] for one in asked}) == len(asked)
    assert all(one["attributes"]["label"] for one in asked)
