"""The candidate as a folder of its own: when it is made, when not, and what is told then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.adapters.shipped import make_shipped
from support.exports import bare_exported
from support.races import made, planted

from shootout.apps.judge.gate import racing
from shootout.apps.judge.gate.racing import Contest, Limits, Reference
from shootout.commands import gate as command
from shootout.core.clock import Deadline
from shootout.core.contract import Target
from shootout.core.errors import NothingMeasured, UsageError
from shootout.core.study.plan import Plan

SHIPPED = Reference(place="model-1", again="numpy:cpu:fp32", given={"model": "digits"})


def contest(target: Target | None = None, reference: str = "shipped:model-1") -> Contest:
    """A shipped folder against a target, NumPy unless told."""
    arm = SimpleNamespace(target=target or Target(backend="numpy"), label="candidate")
    study = planted.study(1).model_copy(update={"targets": (reference, str(arm.target))})
    plan = SimpleNamespace(groups=[SimpleNamespace(record=SimpleNamespace(arms=(arm,)))], study=study)
    return of_plan(plan, (reference, arm.label))


def of_plan(plan: Any, names: tuple[str, str]) -> Contest:
    return Contest(plan=plan, recorded=SHIPPED, limits=Limits(), names=names)


def pack_for(asked: Contest, out: Path, *, fresh: bool = False) -> Contest:
    """As the command does, without any time."""
    progress = cast(Any, SimpleNamespace(stage=lambda _: None))
    return command.pack_candidate(asked, out, limit=Deadline(None), progress=progress, fresh=fresh)


@pytest.fixture(autouse=True)
def no_build_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where the candidate was measured by itself: nothing is planned or measured."""
    places: list[Path] = []
    monkeypatch.setattr(racing, "make_plan", lambda study, **_: study)

    def measure(_: object, place: Path, **__: object) -> SimpleNamespace:
        places.append(place)
        place.mkdir(parents=True, exist_ok=True)
        made.write(place, made.header())
        return SimpleNamespace(rows=[SimpleNamespace(outcome="measured")])

    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(racing, "plan_pair", lambda study, *_: replace(contest(), plan=cast(Plan, study)))
    return places


@pytest.fixture
def packed(alone: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were made of the candidate, each of what was built in the run of its own."""
    folders: list[Path] = []

    def write(source: tuple[Path, str], built: str, folder: Path) -> None:
        assert (source, built) == ((alone[-1], "numpy:cpu:fp32"), "built")
        make_shipped(folder, bare_exported({}, model="digits"))
        folders.append(folder)

    monkeypatch.setattr(racing, "find_arm_to_ship", lambda run, arm: (run, arm))
    monkeypatch.setattr(racing, "find_built", lambda *_: "built")
    monkeypatch.setattr(racing, "write_folder", write)
    return folders


def test_the_candidate_is_shipped_from_a_run_of_its_own_and_raced_as_that_folder(
    tmp_path: Path, alone: list[Path], packed: list[Path]
):
    for _ in range(2):
        found = pack_for(contest(), tmp_path / "gate")
        study = cast(Any, found.plan)
        assert study.targets == ("shipped:model-1", f"shipped:{tmp_path}/gate/candidate/numpy-cpu-fp32")
        assert (found.packed, found.notes) == (True, ())
    assert len(packed) == 1, "the same command finds it there"
    assert alone == [tmp_path / "gate" / "candidate" / "run"] * 2, "which tells whether it is still the same"
    (packed[0] / "load.py").write_text("")
    pack_for(contest(), tmp_path / "gate")
    assert len(packed) == 2, "one that isn't whole is made again"


@pytest.mark.parametrize(("fresh", "ci"), [(True, ""), (False, "true")])
def test_the_candidate_s_folder_is_made_again_where_nothing_earlier_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: list[Path], fresh: bool, ci: str
):
    pack_for(contest(), tmp_path / "gate")
    (mine := tmp_path / "gate" / "candidate" / "mine.txt").touch()
    monkeypatch.setenv("CI", ci)
    pack_for(contest(), tmp_path / "gate", fresh=fresh)
    assert len(packed) == 2
    assert mine.exists(), "what no gate made stays"


@pytest.mark.parametrize("ci", ["", "true"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_that_no_gate_made_is_neither_raced_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: list[Path], fresh: bool, ci: str
):
    folder = tmp_path / "candidate" / "numpy-cpu-fp32"
    make_shipped(folder, bare_exported({}, model="digits"))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(
        UsageError, match=r"candidate/numpy-cpu-fp32' was not made by `shootout gate`, .*: choose another --out"
    ):
        pack_for(contest(), tmp_path, fresh=fresh)
    assert (folder / "load.py").exists()
    assert not packed


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (Target(backend="torch-eager"), "it runs the Python"),
        (Target(backend="numpy", python="new"), "numpy@new:cpu:fp32 runs under another interpreter"),
    ],
)
def test_what_no_folder_can_be_made_of_runs_by_its_adapter_and_that_is_told(
    target: Target, why: str, tmp_path: Path, alone: list[Path]
):
    found = pack_for(contest(target), tmp_path / "gate")
    assert (found.packed, len(found.notes), alone) == (False, 1, [])
    assert found.notes[0].startswith("only the reference runs by a load.py, which checks the inputs")
    assert why in found.notes[0]


def test_a_candidate_that_could_not_be_measured_is_left_to_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[Path]
):
    def refuse(*_: object) -> None:
        raise UsageError("'numpy' was not measured: outputs are wrong")

    monkeypatch.setattr(racing, "find_arm_to_ship", refuse)
    found = pack_for(contest(), tmp_path / "gate")
    assert (found.packed, "outputs are wrong" in found.notes[0], len(alone)) == (False, True, 1)


def test_a_candidate_without_time_is_not_raced_by_its_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[Path]
):
    """The same command goes on in the same folder, where it would find another race then."""
    late = SimpleNamespace(rows=[SimpleNamespace(outcome="not timed")])
    monkeypatch.setattr(command, "measure", lambda *_, **__: late)
    with pytest.raises(
        NothingMeasured, match="before the candidate was measured by itself; run the same command again"
    ):
        pack_for(contest(), tmp_path / "gate")
    assert not alone


def test_a_candidate_that_is_a_folder_stays_what_it_is(tmp_path: Path, alone: list[Path]):
    asked = contest(Target(backend="numpy", folder="/models/model-2"))
    assert pack_for(asked, tmp_path) is asked
    assert not alone


def test_what_passed_is_adopted_by_one_command():
    told = racing.tell_adoption(of_plan(SimpleNamespace(), ("a", "b")), "gate/candidate/b c")
    assert told == "cp -r 'gate/candidate/b c' model-1-new && rm -r model-1 && mv model-1-new model-1"
