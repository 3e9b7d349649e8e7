"""What is published, without building it: one version, every file told to setuptools, links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from support.console import here

from tests.release import __main__ as release
from tests.release.contents import FOLDERS, GENERATED, in_wheel
from tests.release.source import ROOT, changed, link, read_project, stage, tracked

PROJECT = read_project()
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
    packages = {name.replace(".", "/") for name in PROJECT["tool"]["setuptools"]["packages"]}
    data = {
        name
        for name in in_wheel(files, VERSION)
        if not name.startswith("shootout-") and not (name.endswith(".py") and name.rpartition("/")[0] in packages)
    }
    assert {name for name in data if not any(fnmatch(name, one) for one in patterns)} == set()
    assert [one for one in patterns if not any(fnmatch(name, one) for name in data)] == []


def published() -> list[str]:
    """What git tracks, since in a checkout lie models and pages of whoever works there; of an sdist, all there is."""
    with suppress(OSError, subprocess.CalledProcessError):
        if found := tracked():
            return found
    files = (file for file in ROOT.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return [name for name in (str(file.relative_to(ROOT)) for file in files) if not name.startswith(GENERATED)]


def test_an_sdist_has_every_folder_and_what_lies_beside_them() -> None:
    manifest = read(ROOT / "MANIFEST.in").splitlines()
    grafted = {line.split()[1].split("/")[0] for line in manifest if line.startswith("graft ")}
    ours = {"harness", "backends", "models", "tests", "docs", "results", ".ci", ".github"}
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
    assert "Your own model" in bare
    assert "![" not in bare


def test_an_index_is_shown_the_linked_readme_and_the_projects_links(tmp_path: Path) -> None:
    root, staged = tmp_path / "root", tmp_path / "staged"
    root.mkdir()
    (root / "README.md").write_text(read(ROOT / "README.md"))
    (root / "pyproject.toml").write_text(read(ROOT / "pyproject.toml").partition("\n[project.urls]")[0])  # of an sdist
    files = stage(["README.md", "pyproject.toml"], staged, "https://example.org/shootout", root)
    told = read_project(staged)["project"]
    assert told["urls"]["Source"] == "https://example.org/shootout"
    assert told["readme"] in files
    assert "](https://example.org/" in read(staged / told["readme"])
    assert read(staged / "README.md") == read(ROOT / "README.md"), "the tests in an sdist hold it"


def test_a_staged_program_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    for name in ("README.md", "pyproject.toml", "run"):
        (tmp_path / "root" / name).write_text(read(ROOT / "pyproject.toml"))
    (tmp_path / "root" / "run").chmod(0o755)
    stage(["run"], tmp_path / "staged", "", tmp_path / "root")
    assert (tmp_path / "staged" / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("faults", "differing", "left"),
    [([], [], ["shootout-9.tar.gz", "shootout-9.whl"]), (["it breaks"], [], []), ([], ["README.md"], [])],
)
def test_what_lies_there_to_be_uploaded_is_what_was_found_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str], differing: list[str], left: list[str]
) -> None:
    def make(made: Path, *_: object) -> list[str]:
        made.mkdir()
        for name in ("shootout-9.whl", "shootout-9.tar.gz"):
            (made / name).write_text(name)
        return faults

    into = tmp_path / "dist"
    into.mkdir()
    (into / "shootout-8.whl").write_text("of the release before")
    (into / "notes.txt").write_text("of whoever works there")
    monkeypatch.setattr(release, "_make", make)
    monkeypatch.setattr("tests.release.source.changed", lambda: differing)
    assert release.main(["--into", str(into)]) == (0 if left else 1)
    assert sorted(file.name for file in into.iterdir()) == ["notes.txt", *left]


def test_a_tracked_file_that_differs_from_the_commit_is_seen(tmp_path: Path) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("first")
    for words in (["init", "--quiet"], ["add", "a", "b"], [*who, "commit", "--quiet", "--message", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert changed(tmp_path) == []
    (tmp_path / "b").write_text("second")
    assert changed(tmp_path) == ["b"]


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
