"""Whether a run goes on, and what that would tell: said once, at the end."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support.races.cells import cell, document, row
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from shootout.apps.judge.analysis import analyse, analyse_cells
from shootout.tell import notes, reproduce
from shootout.tell.document import Document

ONE_RESTART = (played(A, 0, 1000.0), played(B, 0, 800.0), played(COPY, 0, 1000.0), rounds(0))


def test_files_are_named_as_seen_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project, elsewhere = tmp_path / "project", tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    for folder in ("data", "results"):
        (project / folder).mkdir(parents=True)
    for folder in ("model-1", "cpu"):
        (project / folder).mkdir()
    for name in ("net.onnx", "b.onnx", "data/X.npz", "pol.toml", "new", "model-1/manifest.json"):
        (project / name).write_text("")
    words = ("run", "net.onnx,./b.onnx", "--inputs", "data/X.npz", "--policy", "pol.toml", "--python", "v=./new")
    words += (
        "--backends",
        "onnxruntime:cpu,shipped:model-1",
        "--set",
        "name=gone.onnx",
        "--truth",
        "/abs/Y.npz",
        "--weights",
        "~/w",
    )
    arms = [replace(one, model="net.onnx") for one in (A, B, COPY)]
    begun = header(arms, command=words, began_in="../..", given={"inputs": "data/X.npz"})
    write(project / "results" / "r1", begun, *ONE_RESTART, ended(complete=False))
    monkeypatch.chdir(elsewhere)
    found = analyse_cells(Path("../../project/results/r1"))
    up = "../../project"
    assert found.document.resume == (
        f"shootout run {up}/net.onnx,{up}/b.onnx --inputs {up}/data/X.npz --policy {up}/pol.toml "
        f"--python v={up}/new --backends onnxruntime:cpu,shipped:{up}/model-1 --set name=gone.onnx "
        f"--truth /abs/Y.npz --weights ~/w "
        f"--out {up}/results/r1 --max-time 5m"
    )
    (cell,) = found.cells.values()
    again = dict(cell.again([arms[0].label]))
    assert (again["--model"], again["--inputs"]) == (f"{up}/net.onnx", f"{up}/data/X.npz")
    monkeypatch.chdir(project)
    here = analyse(Path("results/r1"))
    assert here.resume == f"shootout {shlex.join(words[:-2])} --weights ~/w --out results/r1 --max-time 5m", "as typed"


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("run net.onnx --backends onnxruntime:cpu:fp32,spin", "run ../net.onnx --backends onnxruntime:cpu:fp32,spin"),
        ("tune digits --metric mae --threads all", "tune digits --metric mae --threads all"),
        ("run m,odd.onnx --inputs a=b,c.npz", "run ../m,odd.onnx --inputs ../a=b,c.npz"),
        ("run net.onnx,m,odd.onnx --labels=cpu", "run ../net.onnx,m,odd.onnx --labels ../cpu"),
        ("run digits,net.onnx", "run digits,../net.onnx"),
        ("run --energy net.onnx", "run --energy ../net.onnx"),
        ("run net.py:make --read net.py:load --metric net.py:score", None),
        ("run package.net:make --set cpu=1 --option cpu.net.onnx=cpu", None),
        ("run toy --python cpu=cpu --mix auto=cpu", "run toy --python cpu=../cpu --mix auto=../cpu"),
        ("run toy --shape cpu=1x4 --scores net.onnx", None),
        ("run toy --mix log.txt --calibration auto", "run toy --mix ../log.txt --calibration ../auto"),
        ("run toy --baseline cpu --backends shipped:ship,shipped@cpu:ship,cpu", None),
        ("gate ship --candidate net.onnx --target cpu", "gate ../ship --candidate ../net.onnx --target cpu"),
        ("gate ship --same-proof --candidate shipped:ship", "gate ../ship --same-proof --candidate shipped:../ship"),
    ],
)
def test_only_what_takes_a_file_is_seen_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, seen: str | None
):
    for name in ("cpu", "auto", "all", "digits", "run", "net.onnx", "m,odd.onnx", "a=b,c.npz", "net.py", "log.txt"):
        (tmp_path / name).write_text("")
    for name in ("ship", "sub"):
        (tmp_path / name).mkdir()
    (tmp_path / "ship" / "manifest.json").write_text("")
    monkeypatch.chdir(tmp_path / "sub")
    found = " ".join(reproduce.relocate(typed.split(), tmp_path))
    moved = typed.replace("net.py", "../net.py").replace(":ship", ":../ship") if seen is None else seen
    assert found == moved


@pytest.mark.parametrize(
    ("out", "place"),
    [("results/r1", "../.."), ("../beside", "{here}"), ("~/r1", "{here}")],
    ids=["in", "beside", "home"],
)
def test_a_run_remembers_where_its_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, place: str
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    run = Path(out).expanduser()
    told = reproduce.name_current_folder(run)
    assert told == place.format(here=here)
    run.mkdir(parents=True)
    assert reproduce.find_base(run, told) is None, "it is the current folder"
    monkeypatch.chdir(tmp_path)
    assert reproduce.find_base(here / run, told) == here
    assert reproduce.find_base(here / run, "") is None


@pytest.mark.parametrize("began_in", ["~nobody-of-this-name/x", "/root/\0", "x" * 5_000, "../" * 2_000])
def test_what_a_strangers_journal_says_of_its_folder_raises_nothing(tmp_path: Path, began_in: str):
    base = reproduce.find_base(tmp_path, began_in)
    assert base in (None, Path("/"))
    words = ("run", "a" * 5_000, "/".join("ab" * 3_000), "\0", "..", "")
    assert len(reproduce.relocate(words, tmp_path / "gone")) == len(words)


def told_at_the_end(found: Document) -> str:
    lines = [*notes.tell_end(found)]
    commands = (command.text for line in lines for command in line.commands)
    return "\n".join([*(part for line in lines for part in line.parts), *commands])


def test_an_unfinished_run_tells_its_command_where_no_answer_has_one():
    resume = "shootout run toy --out r --max-time 5m"
    known = cell(row("a", 1_000), row("b", 990), within=math.inf, complete=False, command="shootout run toy", run="r")
    found = document(known, complete=False, resume=resume)
    assert found.answer[0].next == resume
    assert told_at_the_end(found).endswith(f"it goes on by\n{resume}")
    assert "unfinished" not in shown(found), "the answer's next command is the one"
    assert "unfinished" in shown(found.model_copy(update={"answer": ()}))
    assert not told_at_the_end(document(known))


def shown(found: Document) -> str:
    return "\n".join(line.plain for line in notes.tell_run(found, full=False))
