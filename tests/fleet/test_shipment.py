"""What nodes are sent is known by its contents, and complete; what arrives otherwise is refused."""

from __future__ import annotations

import hashlib
import io
import signal
import time
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_made import linear

from shootout.fleet import machine, shipment
from shootout.fleet.machine import Machine
from shootout.fleet.shipment import Shipment, pack
from shootout.host import store
from shootout.study.schema import checked


def packed(**fields: Any) -> Shipment:
    return pack(checked({"name": "tiny", "targets": ["numpy"], **fields}))


def names(data: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(data)).namelist())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a package that is not packed, which takes half a second."""
    monkeypatch.setattr(shipment, "_package", lambda: shipment._archive({"shootout/__init__.py": b""}))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_package_is_whole_and_the_same_bytes_each_time():
    one, again = packed(model="identity"), packed(model="identity")
    assert one.package == again.package
    held = names(one.package.data)
    assert {
        "shootout/commands/on_node.py",
        "shootout/backends/_numpy/__init__.py",
        "shootout/models/zoo/__init__.py",
    } <= held
    assert {"shootout/studies/shootout.toml", "shootout/page/page.html"} <= held
    assert any(name.endswith(".dist-info/METADATA") for name in held)
    assert not any(name.endswith(".pyc") for name in held)


@pytest.mark.parametrize("file", ["shootout-0.1.0.dist-info/METADATA", "shootout.egg-info/PKG-INFO"])
def test_what_a_node_reads_of_the_distribution_is_there_whatever_form_it_has_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
):
    told = tmp_path / file
    told.parent.mkdir()
    told.write_text("Name: shootout\nVersion: 0.1.0\n")
    monkeypatch.setattr(shipment.metadata, "distribution", lambda _: PathDistribution(told.parent))
    sent = zipfile.ZipFile(io.BytesIO(packed(model="identity").package.data))
    assert sent.read("shootout-0.1.0.dist-info/METADATA").startswith(b"Name: shootout")


def test_a_named_model_needs_no_files(here: Path):
    assert packed(model="identity").names == ()


def test_a_users_source_goes_with_what_it_imports_and_nothing_else(here: Path):
    (here / "net.py").write_text("from own import layer\ndef make(): ...\n")
    (here / "own.py").write_text("def layer(): ...\n")
    (here / "secret.py").write_text("PASSWORD = 1\n")
    (here / "rows.py").write_text("def score(outputs, labels): ...\n")
    np.savez(here / "data.npz", x=np.zeros(2))
    sent = packed(model="net.py:make", inputs="data.npz", metric="rows.py:score")
    assert sent.names == ("data.npz", "net.py", "own.py", "rows.py")
    assert (sent.fields["model"], sent.fields["inputs"], sent.fields["metric"]) == (
        ["net.py:make"],
        "data.npz",
        "rows.py:score",
    )


def test_what_lies_elsewhere_keeps_its_name_and_not_its_path(here: Path, tmp_path: Path):
    other = tmp_path / "alice"
    other.mkdir()
    (other / "net.py").write_text("import own\ndef make(): ...\n")
    (other / "own.py").write_text("")
    sent = packed(model=f"{other}/net.py:make")
    (model,) = sent.fields["model"]
    assert model.startswith("outside/")
    assert model.endswith("/net.py:make")
    assert [name.rpartition("/")[2] for name in sent.names] == ["net.py", "own.py"]
    assert "alice" not in "".join(sent.names)


def test_an_onnx_file_goes_by_its_name(here: Path):
    linear(here / "net.onnx")
    sent = packed(model=str(here / "net.onnx"))
    assert (sent.fields["model"], sent.names) == (["net.onnx"], ("net.onnx",))


def test_other_contents_are_another_archive(here: Path):
    (here / "net.py").write_text("def make(): return 1\n")
    one = packed(model="net.py:make")
    (here / "net.py").write_text("def make(): return 2\n")
    assert packed(model="net.py:make").files.sha256 != one.files.sha256


def test_parts_of_a_grid_of_ones_own_model_are_known_by_its_name(here: Path):
    (here / "net.py").write_text("def make(): ...\n")
    (here / "tiny.toml").write_text("")
    assert (
        pack(checked({"name": "shootout", "model": "net.py:make", "targets": ["numpy"], "batch": [1, 2]}))
        .fields["name"]
        .startswith("net.py")
    )


def archive(**contents: str) -> tuple[bytes, str]:
    made = shipment._archive({name.replace("__", "."): text.encode() for name, text in contents.items()})
    return made.data, made.sha256


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fleet"


def waited(one: Machine) -> dict[str, Any]:
    """What came until its end: pieces of all looks, and the answer."""
    pieces, limit = [], time.monotonic() + 60
    while time.monotonic() < limit:
        found = one.poll()
        pieces += found["pieces"]
        if found["answer"] is not None:
            return {**found, "pieces": pieces}
        time.sleep(0.02)
    raise AssertionError("it never ended")


def test_a_changed_byte_is_refused_and_leaves_nothing(cache: Path):
    data, digest = archive(job__py="")
    spoilt = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(ValueError, match="isn't what was sent"):
        Machine(spoilt, digest, data, digest)
    assert list(cache.iterdir()) == []


def test_what_was_unpacked_counts_as_cache_and_a_job_at_work_does_not(cache: Path):
    one = Machine(*archive(job__py=""), *archive(data__txt="d"))
    assert len([each for each in store.kept() if "cluster" in each.kind]) == 2
    one.close()


def test_files_come_before_the_lines_that_name_them_and_only_whole_lines(cache: Path):
    job = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
run = folder / "run"
(run / "samples").mkdir(parents=True)
(run / "samples" / "g.parquet").write_bytes(b"s")
(run / "journal.jsonl").write_bytes(b"one\\ntwo\\nthr")
(run / "logs").mkdir()
(run / "logs" / "arm.log").write_text("l")
(folder / "answer.json").write_text(json.dumps({"code": 0, "told": json.loads((folder / "job.json").read_text())["n"]}))
"""
    one = Machine(*archive(job__py=job), *archive(data__txt="d"))
    one.begin("job", {"n": 3}, {})
    found = waited(one)
    assert found["answer"] == {"code": 0, "told": 3}
    assert ("journal.jsonl", 0, b"one\ntwo\n") in found["pieces"]
    assert [name for name, _, _ in found["pieces"]].index("samples/g.parquet") < [
        name for name, _, _ in found["pieces"]
    ].index("journal.jsonl")
    one.close()
    assert not any(path.name.startswith("job-") for path in cache.iterdir())


def test_a_process_that_dies_says_its_last_words(cache: Path):
    one = Machine(*archive(job__py="import sys; sys.exit('no such thing')"), *archive(data__txt="d"))
    one.begin("job", {}, {})
    answer = waited(one)["answer"]
    assert answer["code"] == 1
    assert "no such thing" in answer["error"]
    one.close()


def test_a_job_starts_in_the_folder_of_the_files_with_the_whole_node(cache: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OMP_NUM_THREADS", "RAY_JOB_ID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = """
import json, os, pathlib, sys
answer = {"code": 0, "seen": sorted(os.environ), "here": pathlib.Path("data.txt").read_text(), "me": __file__}
(pathlib.Path(sys.argv[1]) / "answer.json").write_text(json.dumps(answer))
"""
    one = Machine(*archive(job__py=job), *archive(data__txt="mine"))
    one.begin("job", {}, {})
    answer = waited(one)["answer"]
    assert not {"OMP_NUM_THREADS", "RAY_JOB_ID", "CUDA_VISIBLE_DEVICES"} & {*answer["seen"]}
    assert answer["here"] == "mine"
    assert str(cache) in answer["me"]
    one.close()


def test_a_job_goes_on_behind_what_was_there(cache: Path):
    job = """
import pathlib, sys
with (pathlib.Path(sys.argv[1]) / "run" / "journal.jsonl").open("ab") as file:
    file.write(b"more\\n")
"""
    one = Machine(*archive(job__py=job), *archive(data__txt="d"))
    one.begin("job", {}, {"journal.jsonl": b"one\n", "samples/g.parquet": b"s"})
    assert waited(one)["pieces"] == [("journal.jsonl", 4, b"more\n")]
    one.close()


def test_a_job_is_asked_to_end(cache: Path):
    job = """
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    (folder / "run").mkdir()
    (folder / "run" / "journal.jsonl").write_text("begun\\n")
    time.sleep(60)
except KeyboardInterrupt:
    (folder / "answer.json").write_text(json.dumps({"code": 130}))
"""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray's processes have it
    try:
        one = Machine(*archive(job__py=job), *archive(data__txt="d"))
        one.begin("job", {}, {})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    while not one.poll()["pieces"]:
        time.sleep(0.02)
    one.stop()
    assert waited(one)["answer"] == {"code": 130}
    one.close()


def test_nodes_need_nothing_of_ours_to_read_what_runs_there():
    source = Path(machine.__file__).read_text()
    assert "import shootout" not in source
    assert "from shootout" not in source
    assert hashlib.sha256 is machine.hashlib.sha256
