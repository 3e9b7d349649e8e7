"""Whether a run goes on, and what that would tell: said once, at the end."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.races.cells import cell, document, row
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from shootout.apps.judge.analysis import analyse, analyse_cells
from shootout.apps.judge.next_steps import more_time
from shootout.core.contract import NotRunKind
from shootout.tell import notes, reproduce
from shootout.tell.document import Document

ONE_RESTART = (played(A, 0, 1000.0), played(B, 0, 800.0), played(COPY, 0, 1000.0), rounds(0))


def test_a_command_that_names_files_is_typed_where_it_was_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project, elsewhere = tmp_path / "project", tmp_path / "else"
    for folder in (project / "results", elsewhere):
        folder.mkdir(parents=True)
    (project / "net.onnx").write_text("")
    arms = [replace(one, model="net.onnx") for one in (A, B, COPY)]
    words = ("run", "net.onnx", "--backends", "spin")
    begun = header(arms, command=words, began_in="../..", given={"inputs": "X.npz"})
    write(project / "results" / "r1", begun, *ONE_RESTART, ended(complete=False))
    monkeypatch.chdir(elsewhere)
    found = analyse_cells(Path("../project/results/r1"))
    typed = "shootout run net.onnx --backends spin --out"
    assert found.document.resume == f"cd {project} && {typed} {elsewhere}/../project/results/r1 --max-time 5m"
    (cell,) = found.cells.values()
    assert cell.begun.race(cell.again([arms[0].label])).startswith(f"cd {project} && shootout run --model net.onnx ")
    assert cell.begun.race([("--model", "digits"), ("--set", "x=1.5")]) == "shootout run --model digits --set x=1.5"
    monkeypatch.chdir(project)
    assert analyse(Path("results/r1")).resume == f"{typed} results/r1 --max-time 5m", "as typed"


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
    begun = reproduce.Begun(base=tmp_path / "gone")
    assert begun.race([("--model", "a" * 5_000 + "/".join("ab" * 3_000)), ("--out", "..")]).startswith("shootout run ")


@pytest.mark.parametrize(("is_late", "had_s", "told"), [(False, 600, "5m"), (True, 42, "5m"), (True, 130, "15m")])
def test_a_run_that_could_not_build_all_is_to_have_five_times_as_long(is_late: bool, had_s: float, told: str):
    late = row("b", None).model_copy(update={"cause": NotRunKind.NOT_REACHED})
    assert more_time([row("a", 1_000), *([late] if is_late else [])], had_s) == told


def told_at_the_end(found: Document) -> str:
    lines = [*notes.tell_end(found)]
    commands = (command.text for line in lines for command in line.commands)
    return "\n".join([*(part for line in lines for part in line.parts), *commands])


def test_an_unfinished_run_tells_its_command_where_no_answer_has_one():
    resume = "shootout run toy --out r --max-time 5m"
    known = cell(row("a", 1_000), row("b", 990), within=math.inf, complete=False, command="shootout run toy", run="r")
    found = document(known, complete=False, resume=resume)
    assert found.answer[0].next == resume
    assert not told_at_the_end(found), "the answer's next command is the one"
    races = found.answer[0].model_copy(update={"next": "shootout run toy --max-time 1m", "goes_on": False})
    assert not told_at_the_end(found.model_copy(update={"answer": (races,)})), "one command, not two"
    ships = races.model_copy(update={"next": "shootout ship r", "reason": None, "unsettled": ()})
    assert told_at_the_end(found.model_copy(update={"answer": (ships,)})).endswith(f"it goes on by\n{resume}")
    assert not told_at_the_end(document(known))


def test_a_command_names_what_a_reader_made_rows_of():
    words = ("shootout", "run", "./bert", "--texts", "t.parquet:text", "--labels=t.parquet:label", "--batch", "1")
    given = {
        "inputs": "/cache/rows-1/t.npz",
        "labels": "/cache/rows-1/labels.npy",
        "metric": "accuracy",
        "max_drop": "1pp",
    }
    typed = reproduce.write_given(reproduce.Begun(words=words, given=given).typed)
    assert typed == [("--texts", "t.parquet:text"), ("--labels", "t.parquet:label"), ("--max-drop", "1pp")]
    assert reproduce.Begun(words=("shootout", "run", "net.onnx"), given=given).typed == given
