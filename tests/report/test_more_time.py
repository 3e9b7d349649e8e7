"""Whether a run goes on, and what that would tell: said once, at the end."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support.races.cells import GROUP as CELL
from support.races.cells import cell, document, row
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from shootout.apps.judge.analysis import analyse, analyse_cells
from shootout.core.contract import NotRunKind
from shootout.tell import notes, reproduce
from shootout.tell.document import NearestOpen

ONE_RESTART = (played(A, 0, 1000.0), played(B, 0, 800.0), played(COPY, 0, 1000.0), rounds(0))


def test_what_more_time_would_tell_is_said_once_whether_a_verdict_stands_or_not():
    nearest = NearestOpen(
        group=CELL, arms=("a:cpu:fp32", "b:cpu:fp32"), restarts=3, seconds=9.0, others=0, ended_at=None
    )
    for unvouched in (None, "the copy had no time yet"):
        known = cell(
            row("a", 1_000), row("b", 990), within=0.2, unvouched=unvouched, complete=False, command="shootout run toy"
        )
        found = document(known, complete=False, nearest_open=nearest)
        assert found.answer[0].sure.command
        assert bool(found.answer[0].reason) is bool(unvouched)
        assert any("3 more restarts" in line for line in notes.tell_end(found)) is bool(unvouched)


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
        ("tune digits --metric auto --threads all", "tune digits --metric auto --threads all"),
        ("run m,odd.onnx --inputs a=b,c.npz", "run ../m,odd.onnx --inputs ../a=b,c.npz"),
        ("run net.onnx,m,odd.onnx --labels=cpu", "run ../net.onnx,m,odd.onnx --labels=../cpu"),
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


def test_no_command_above_is_named_that_does_not_stand_there():
    resume = "shootout run toy --out r --max-time 5m"
    known = cell(row("a", 1_000), row("b", 990), within=math.inf, complete=False, command="shootout run toy", run="r")
    found = document(known, complete=False, resume=resume)
    assert found.answer[0].next == resume
    assert any(line.endswith("The command above continues it.") for line in notes.tell_end(found))
    (told,) = notes.tell_end(found, above=())
    assert told.endswith(f"To continue it, run: {resume}")
    several = found.model_copy(update={"answer": (found.answer[0].model_copy(update={"next": "shootout ship r"}),) * 2})
    assert any(resume in line for line in notes.tell_end(several)), "of several groups the first command is shown"


NEAREST = NearestOpen(group=CELL, arms=("c:cpu:fp32", "d:cpu:fp32"), restarts=6, seconds=44.0, others=1, ended_at=None)


def test_a_choice_that_is_settled_is_no_unfinished_run():
    told_of = {"complete": False, "command": "shootout run toy", "run": "r"}
    known = cell(row("a", 1_000), row("c", 3_000), row("d", 3_010), within=0.02, **told_of)
    found = document(known, complete=False, nearest_open=NEAREST, resume="shootout run toy --out r --max-time 5m")
    assert found.answer[0].ship
    assert found.answer[0].sure.nearest is None
    (told,) = notes.tell_end(found)
    assert told == (
        "The choice is settled. Open, without effect on it: c against d (about 44 s more) and 1 other pair; "
        "the same command with --out and more --max-time goes on."
    )
    for seconds, others, said in ((None, 0, "c against d; the"), (44.0, 2, "more) and 2 other pairs; the")):
        (told,) = notes.tell_end(
            found.model_copy(update={"nearest_open": NEAREST.model_copy(update={"seconds": seconds, "others": others})})
        )
        assert said in told


def test_a_choice_is_not_settled_while_something_could_still_win():
    told_of = {"complete": False, "command": "shootout run toy", "run": "r"}
    open_ = cell(row("a", 1_000), row("c", 990), row("d", 3_010), within=0.2, **told_of)
    waits = cell(row("a", 1_000), row("c", 3_000), row("z", None, cause=NotRunKind.NOT_REACHED), within=0.02, **told_of)
    for known in (open_, waits):
        found = document(known, complete=False, nearest_open=NEAREST)
        assert not any("settled." in line for line in notes.tell_end(found))
