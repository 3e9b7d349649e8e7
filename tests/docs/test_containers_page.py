"""The container's example: what it copies and installs exists, and both files run the page's command."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from shootout import studies

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "container"
CONTAINERFILE = (EXAMPLE / "Containerfile").read_text()
JOINED = CONTAINERFILE.replace("\\\n", " ")
COMMAND = json.loads(JOINED[JOINED.rindex("CMD ") + 4 :])
PAGE = (ROOT / "docs" / "fleet.md").read_text()


def test_what_is_copied_is_there_and_makes_the_wheel():
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", JOINED, re.MULTILINE) for word in line.split()]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "ln -s harness shootout" in JOINED, "COPY would take a link at the top as what it leads to"
    assert {"harness", "backends", "models", project["project"]["readme"], *project["project"]["license-files"]} <= set(
        copied
    )


def test_the_extras_are_those_of_the_project():
    (asked,) = re.findall(r'"\.\[(.*?)\]"', JOINED)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(asked.split(",")) <= known.keys()
    assert "-c constraints.txt" in JOINED


def test_the_run_is_left_in_the_volume():
    assert COMMAND[:3] == ["shootout", "run", "container"]
    assert "container" in studies.names()
    (volume,) = re.findall(r"^VOLUME (.*)$", JOINED, re.MULTILINE)
    assert COMMAND[COMMAND.index("--out") + 1].startswith(f"{volume}/")


def test_the_job_runs_the_same_command_under_one_limit():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == COMMAND
    assert container["resources"]["requests"] == container["resources"]["limits"]
    (mount,), (volume,) = container["volumeMounts"], job["spec"]["template"]["spec"]["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/runs")


def test_the_page_runs_the_study_with_the_values_it_explains():
    assert studies.load("container").threads == ("default", "all")
    told = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert told == ["default", "all"]
