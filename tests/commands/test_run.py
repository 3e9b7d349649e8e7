"""What `run` gives a race: its time, and what is written down of how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races.planted import here, study

from shootout.commands import run
from shootout.core import run as core
from shootout.core.clock import Deadline
from shootout.core.constants import RACING_S
from shootout.core.errors import UsageError
from shootout.core.host.placement import place
from shootout.core.study.plan import Plan, plan_groups
from shootout.core.study.schema import Study
from shootout.tell.progress import ProgressDisplay


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("run net.onnx --batch 1,8 --max-time 2m --out=here --fresh --json", "run net.onnx --batch 1,8"),
        ("run --to a.csv --to=b.csv --max-time=9s study.toml --full", "run study.toml"),
        ("run --model /home/me/net.onnx --inputs=/home/me/x.npz", "run --model ~/net.onnx --inputs ~/x.npz"),
        (
            "run --backends shipped:/home/me/m,shipped:/home/me/n",
            "run --backends shipped:~/m,shipped:~/n",
        ),
        ("run --python=new=/home/me/bin/python --batch=1,8", "run --python new=~/bin/python --batch=1,8"),
        ("run --model /home/meg/net.onnx", "run --model /home/meg/net.onnx"),
    ],
)
def test_the_command_that_goes_on_with_a_run_is_kept_without_what_is_of_one_process(
    typed: str, kept: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", "/home/me")
    assert " ".join(run.command_of(typed.split())) == kept


class Seen(Exception):
    """Ends a run where its campaign would begin."""


def planned(asked: Study) -> Plan:
    groups = plan_groups(asked, here())
    return Plan(study=asked, groups=groups, placement=place(1), here=here(), identity="0")


@pytest.mark.parametrize(("counts", "left_s"), [(False, 60.0), (True, 10.0)])
def test_the_wait_for_the_machine_is_no_part_of_the_time(
    counts: bool, left_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: dict[str, Any] = {}
    limit = Deadline(60.0)

    @contextmanager
    def lock(*_: object, **how: Any) -> Iterator[float]:
        given.update(how)
        limit.put_off(-50.0)  # so long ago it was set
        yield 50.0

    def campaign(**parts: Any) -> Any:
        given.update(parts)
        raise Seen

    monkeypatch.setattr(core, "RaceRunner", campaign)
    monkeypatch.setattr(run, "machine_lock", lock)
    how: dict[str, Any] = {"fresh": False, "limit": limit, "wait": limit if counts else None}
    with pytest.raises(Seen), ProgressDisplay(Console(quiet=True)) as progress:
        run.measure(planned(study(1)), tmp_path / "out", progress=progress, **how)
    assert given["limit"] is how["wait"], "else it is waited for until it is free"
    assert given["time"].run.seconds == pytest.approx(left_s, abs=8)


def test_a_dry_run_refuses_the_folder_that_the_run_would_refuse(monkeypatch: pytest.MonkeyPatch):
    other = Path(__file__).resolve().parents[2] / "results" / "reference" / "shootout"
    monkeypatch.setattr(run, "plan_run", lambda *_: (planned(study(1)), None))
    with pytest.raises(UsageError, match="holds another study"):
        run.run("", {"out": other}, dry_run=True, as_json=True)


@pytest.mark.parametrize("before", [False, True])
def test_a_run_that_ended_while_it_waited_leaves_no_folder_behind(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "results" / "s" / "now"
    if before:
        out.parent.mkdir(parents=True)
    monkeypatch.setattr(run, "machine_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), ProgressDisplay(Console(quiet=True)) as progress:
        run.measure(planned(study(1)), out, fresh=False, limit=Deadline(None), progress=progress)
    assert [*tmp_path.rglob("*")] == ([out.parent.parent, out.parent] if before else [])


@pytest.mark.parametrize(
    ("fields", "max_time_s", "racing_s"),
    [({}, None, RACING_S), ({}, 300.0, None), ({"goal": "baseline"}, None, None)],
)
def test_a_race_for_the_best_gets_its_budget_where_nobody_gives_a_time(
    fields: dict[str, Any],
    max_time_s: float | None,
    racing_s: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    given: dict[str, Any] = {}

    def campaign(**parts: Any) -> Any:
        given.update(parts)
        raise Seen

    asked = study(1, **fields)
    monkeypatch.setattr(core, "RaceRunner", campaign)
    monkeypatch.setattr(run, "machine_lock", lambda *_, **__: nullcontext(0.0))
    with pytest.raises(Seen), ProgressDisplay(Console(quiet=True)) as progress:
        run.measure(planned(asked), tmp_path / "out", fresh=False, limit=Deadline(max_time_s), progress=progress)
    assert given["time"].most_s == racing_s
    assert given["time"].run.seconds == (max_time_s and pytest.approx(max_time_s, abs=10))
