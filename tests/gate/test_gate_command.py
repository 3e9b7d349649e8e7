"""The command around a gate: whose evidence a folder holds, and what stands where no word could be had."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as Xml

import pytest
from support.plain import as_plain
from support.races import made

from shootout.apps.judge.gate import verdict
from shootout.apps.judge.gate.output import render
from shootout.apps.judge.gate.racing import Contest, Limits, Reference
from shootout.apps.judge.gate.verdict import Gate, judge_gate
from shootout.commands import gate as command
from shootout.core.clock import Deadline
from shootout.core.errors import NothingMeasured, NotRun, NotRunKind, Unavailable, UsageError
from shootout.core.journal import journal
from shootout.core.journal.records import Line, not_run
from shootout.core.results.run import read_run

NAMES = made.A.label, made.B.label
RECORDED = Reference(place="made", again=NAMES[0], given={"model": "identity"})
PLAN = SimpleNamespace(identity="0", groups=[SimpleNamespace(record=SimpleNamespace(arms=made.ARMS))])
CONTEST = Contest(plan=cast(Any, PLAN), recorded=RECORDED, limits=Limits(), names=NAMES)
RED = not_run(made.GROUP, made.B, NotRun(NotRunKind.OFF_LIMITS, "size is 2 B"))


def written(folder: Path, candidate_ns: float, *also: Line) -> Path:
    """A finished gate of six restarts."""
    lines: list[Line] = []
    for restart in range(6):
        for arm, ns in ((made.A, 100.0), (made.B, candidate_ns), (made.COPY, 100.0)):
            lines.append(made.played(arm, restart, ns * (1 + restart / 1e4)))
        lines.append(made.rounds(restart))
    return made.write(folder, made.header(), *lines, *also, made.ended())


def race(out: Path, patch: pytest.MonkeyPatch, *, is_from_here: bool = True) -> tuple[Gate, list[bool]]:
    """A gate in a folder, and whether what it holds is gone on with."""
    asked: list[bool] = []
    patch.delenv("CI", raising=False)
    patch.setattr(verdict, "is_from_here", lambda _: is_from_here)
    patch.setattr(command, "measure", lambda *_, purpose, **__: asked.append(purpose.goes_on(read_run(out))))
    found = command.race(CONTEST, out, limit=Deadline(None), progress=cast(Any, None))
    return found, asked


def test_a_finished_gate_answers_for_what_it_decides_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found, asked = race(written(tmp_path / "told", 90.0), monkeypatch)
    assert (found.outcome, asked) == ("pass", [False])
    found, asked = race(written(tmp_path / "loosened", 90.0, RED), monkeypatch)
    assert (found.outcome, asked) == ("undecided", [True]), "red by a limit that is no more"


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("fresh", [True, False])
def test_in_ci_no_earlier_evidence_answers_for_a_later_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_finished: bool, fresh: bool
):
    out = written(tmp_path / "told", 90.0)
    if not is_finished:
        lines = (out / journal.NAME).read_bytes().splitlines(keepends=True)
        assert b'"kind":"ended"' in lines[-1]
        (out / journal.NAME).write_bytes(b"".join(lines[:-1]))
    monkeypatch.setattr(command, "read_reference", lambda *_: RECORDED)
    monkeypatch.setattr(command, "plan_contest", lambda *_: CONTEST)
    monkeypatch.setattr(command, "pack_candidate", lambda asked, *_, **__: asked)
    monkeypatch.setattr(command.chosen_gpu, "choose_gpu", lambda *_: None)
    raced: list[Path] = []
    monkeypatch.setattr(command, "measure", lambda _, out, **__: raced.append(out))
    options: dict[str, Any] = {"out": out, "fresh": fresh}
    monkeypatch.setenv("CI", "true")
    if fresh:
        command.gate(tmp_path, options, as_json=True)
    else:
        with pytest.raises(UsageError, match=r"holds an earlier gate, .* in CI .*: add --fresh"):
            command.gate(tmp_path, options, as_json=True)
    monkeypatch.setenv("CI", "false")
    command.gate(tmp_path, {"out": out}, as_json=True)
    assert len(raced) == 1 + fresh


@pytest.mark.parametrize("ci", ["", "true"])
@pytest.mark.parametrize(("restarts", "goes_on"), [(1, True), (6, False)])
def test_an_undecided_gate_tells_the_same_command_with_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int, goes_on: bool, ci: str
):
    lines: list[Line] = []
    for restart in range(restarts):
        lines += [made.played(arm, restart, 100.0 + restart / 1e3) for arm in made.ARMS]
        lines.append(made.rounds(restart))
    begun = made.header(command=("gate", "model-1", "--candidate", "new.onnx"))
    out = made.write(tmp_path / "gate", begun, *lines, made.ended(complete=not goes_on))
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(command, "measure", lambda *_, **__: None)
    found = command.race(CONTEST, out, limit=Deadline(None), progress=cast(Any, None))
    assert found.outcome == ("undecided" if goes_on else "pass")
    told = f"shootout gate model-1 --candidate new.onnx --out {out} --max-time 1m" if goes_on and not ci else None
    assert found.next == told, "in CI no later command takes it up"
    assert (f"Next    {told}" in as_plain([render(found, None, 400)], 400)) is (told is not None)


def test_a_finished_gate_is_none_of_another_machine_s_or_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UsageError, match="begun on another machine or with other versions: add --fresh"):
        race(written(tmp_path / "told", 90.0), monkeypatch, is_from_here=False)


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (NotRun(NotRunKind.UNAVAILABLE, "load.py: this CPU lacks avx512f"), 6),
        (NotRun(NotRunKind.UNFIT, "its input is a text", "name another"), 6),
        (NotRun(NotRunKind.NOT_REACHED, "the time was over"), 7),
    ],
)
def test_who_turns_out_not_to_run_here_is_no_mere_question_of_time(tmp_path: Path, why: NotRun, code: int):
    out = made.write(tmp_path / "run", made.header(), not_run(made.GROUP, made.B, why), made.ended())
    if code == Unavailable.exit_code:
        with pytest.raises(Unavailable, match=f"the candidate {NAMES[1]} can't run here: {why.reason}"):
            judge_gate(out, CONTEST)
    else:
        assert judge_gate(out, CONTEST).exit_code == code


def test_without_a_free_machine_there_are_files_and_a_warning_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def busy(*_: object, **__: object) -> None:
        raise NothingMeasured("this machine is in use")

    monkeypatch.setattr(command, "read_reference", lambda *_: RECORDED)
    monkeypatch.setattr(command, "plan_contest", lambda *_: CONTEST)
    monkeypatch.setattr(command, "pack_candidate", lambda asked, *_, **__: asked)
    monkeypatch.setattr(command.chosen_gpu, "choose_gpu", lambda *_: None)
    monkeypatch.setattr(command, "measure", busy)
    files = [tmp_path / "gate.xml", tmp_path / "bencher.json"]
    for file in files:
        file.write_text("of yesterday")
    assert command.gate(tmp_path, {"out": tmp_path / "run"}, as_json=False, to=files) == 7
    assert Xml.parse(files[0]).getroot()[0].get("errors") == "1"
    assert not files[1].exists(), "no run, so nothing of one"
    assert "nothing was raced: this machine is in use" in capsys.readouterr().out
