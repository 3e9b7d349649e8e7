"""A factory's shipped folder, by real runs: gated where its source isn't in sight, raced on a copy of its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.console import Ended, deaf_here, here
from support.factories import LINEAR, write

STUDY = 'model = "{}"\ntargets = ["{}"]\nmax_restarts = 1\n'


def deaf(*words: object, cwd: Path) -> Ended:
    return deaf_here(*words, cwd=cwd, probed_here=["onnxruntime"], apps__judge__gate__racing__MOST_RESTARTS=1)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder made of `net.py:make`, as that was named where it lies."""
    place = tmp_path_factory.mktemp("made")
    write(place / "net.py", LINEAR)
    write(place / "study.toml", STUDY.format("net.py:make", "onnxruntime"))
    assert deaf("run", "study.toml", "--out", "run", cwd=place).code == 0
    done = here("ship", "run", "--target", "onnxruntime", "-o", "shipped", "--json", cwd=place)
    assert done.code == 0, done.err
    folder, told = place / "shipped", done.data
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    assert (told["folder"], told["target"], told["files"]) == ("shipped", "onnxruntime:cpu:fp32", sizes)
    assert told["checked"] in done.err, "people are told the same on stderr"
    return folder


@pytest.mark.long
def test_it_is_gated_from_another_folder_and_both_sides_run_by_a_load_py(shipped: Path, tmp_path: Path):
    done = deaf("gate", shipped, "--same-proof", "--out", "gate", "--json", cwd=tmp_path)
    assert done.code == 7, done.err
    found = done.data
    assert (found["reference"], found["candidate"]) == ("shipped:shipped", "shipped:onnxruntime-cpu-fp32")
    assert found["restarts"] == 1, "they raced each other"
    standings = {one["name"]: one["standing"] for one in found["checks"] if one["standing"]}
    assert standings.pop("time") == "unknown"
    assert standings == dict.fromkeys(("error", "device", "compute nodes", "fallbacks"), "met")
    assert not any("load.py" in one for one in found["notes"])
    packed = tmp_path / "gate" / "candidate" / "onnxruntime-cpu-fp32"
    assert (packed / "load.py").read_text() == (shipped / "load.py").read_text()
    rows = json.loads((packed / "evidence" / "document.json").read_text())["rows"]
    assert [row["arm"] for row in rows] == ["onnxruntime:cpu:fp32"]


def test_it_is_raced_on_a_copy_of_its_source_under_another_name(shipped: Path, tmp_path: Path):
    write(tmp_path / "renamed.py", LINEAR)
    write(tmp_path / "study.toml", STUDY.format("renamed.py:make", f"shipped:{shipped}"))
    done = deaf("run", "study.toml", "--out", "out", "--json", cwd=tmp_path)
    assert (done.code, [row["outcome"] for row in done.data["rows"]]) == (0, ["measured"]), done.err
