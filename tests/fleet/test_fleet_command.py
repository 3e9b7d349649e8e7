"""`run --on`: each machine measures the study in a run folder of its own; what is lost is said, and nothing else is."""

from __future__ import annotations

import io
import json
import socket
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.fleets.nodes import GROUPS, make_header

from shootout.apps.fleet.node_side import zip_folder
from shootout.apps.fleet.parcel import Answer, NodeLost, Parcel, Place, Task
from shootout.apps.fleet.ray_cluster import check_address
from shootout.apps.judge.compare.merged import is_merged
from shootout.commands import fleet
from shootout.commands.fleet import find_runs
from shootout.core.contract import Device, NotRun, NotRunKind, Precision, Target
from shootout.core.errors import ExitCode, UsageError
from shootout.core.exported.client import Delivery
from shootout.core.journal import journal
from shootout.core.journal.folder import DELIVERY
from shootout.core.journal.journal import Journal
from shootout.core.journal.records import Ended, not_run

PLAYING = {name: ["a", "b"] for name in GROUPS}
MEASURED = NotRun(NotRunKind.UNAVAILABLE, "measured, for all that this tells", "")


@dataclass
class FakeMachines:
    """Machines of which each writes a journal as a run does, and is lost, fails or stays busy when told.

    Attributes:
        folder: where they write.
        lost: machines that are lost with what they measure.
        strange: the zips of those whose answers can't be used.
        fails: those whose process breaks behind its first group.
        refuses: those that can't plan the study, and why.
        busy: those that end only when they are stopped, behind their first group.
        interrupts: whether Ctrl-C comes once one of these has begun.
        begun: the tasks that measure, by machine.
    """

    folder: Path
    names: Collection[str] = ("one", "other")
    lost: Collection[str] = ()
    strange: Mapping[str, bytes] = field(default_factory=dict)
    fails: Collection[str] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    busy: Collection[str] = ()
    deaf: bool = False
    exports_there: bool = True
    begun: dict[str, Task] = field(default_factory=dict)
    stopped: Event = field(default_factory=Event)
    closed: Event = field(default_factory=Event)

    @property
    def places(self) -> list[Place]:
        return [Place(id=name, name=name) for name in self.names]

    def run(self, place: Place, task: Task) -> Answer:
        job = json.loads(task.words[1])
        header = make_header(GROUPS, place.name)
        if not task.measures:
            assert job["do"] == "plan"
            if why := self.refuses.get(place.name):
                return Answer(code=2, printed="", said=f"shootout: {why}", folder=b"")
            told = {"header": header.model_dump(mode="json"), "playing": PLAYING}
            return Answer(code=0, printed=json.dumps({**told, "estimate_s": 10.0}), said="", folder=b"")
        self.begun[place.name] = task
        if place.name in self.lost:
            raise NodeLost("it is gone")
        if place.name in self.busy:
            (self.closed if self.deaf else self.stopped).wait(30)
        run = self.folder / place.name
        if task.folder:
            zipfile.ZipFile(io.BytesIO(task.folder)).extractall(run)
        breaks = place.name in self.fails or place.name in self.busy
        done = {line.group for line in journal.read(run).lines if line.kind == "skip"} if journal.begun(run) else set()
        sound = journal.read(run).sound_bytes if journal.begun(run) else 0
        run.mkdir(parents=True, exist_ok=True)
        file = Journal(run, sound)
        file.append(*([] if sound else [header]))
        for group in [one for one in header.groups if one.name not in done][: 1 if breaks else None]:
            file.append(*(not_run(group.name, arm, MEASURED) for arm in group.arms if not arm.control))
        if not breaks:
            file.append(Ended(complete=True, why="nothing is left to measure", wall_s=1.0))
        file.close()
        code = 1 if place.name in self.fails else ExitCode.INTERRUPTED if breaks else 0
        data = self.strange.get(place.name) or zip_folder(run)
        return Answer(code=code, printed="", said="no memory was left" if code == 1 else "", folder=data)

    def stop(self) -> None:
        self.stopped.set()


Use = Callable[..., FakeMachines]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Makes machines, which the command finds from then on."""
    sent = Parcel(package={"job.py": b""}, files={"net.py": b""}, fields={"model": ["mlp"]})
    monkeypatch.setattr(fleet, "pack", lambda *_, **__: sent)
    monkeypatch.setattr(fleet, "show", lambda *_, **__: ExitCode.OK)
    monkeypatch.setattr(fleet, "STOP_S", 0.2)
    monkeypatch.setattr(fleet, "LOOK_S", 0.02)
    every = list[FakeMachines]()

    def make(**how: Any) -> FakeMachines:
        made = FakeMachines(tmp_path / f"machines{len(every)}", **how)
        every.append(made)

        @contextmanager
        def reach(*_: object) -> Iterator[FakeMachines]:
            yield made

        monkeypatch.setattr(fleet, "reach", reach)
        return made

    yield make
    for made in every:
        made.closed.set()


def run(out: Path, *, dry_run: bool = False, as_json: bool = False, **options: Any) -> int:
    asked: Any = {"backends": ["numpy"], "out": out, **options}
    return fleet.run_on_fleet("mlp", asked, address="x:1", dry_run=dry_run, full=False, as_json=as_json)


def measured(out: Path) -> dict[str, int]:
    """The number of groups that each machine has measured, by the machine."""
    histories = [journal.read(folder) for folder in find_runs(out)]
    return {
        one.header.environment["machine"]: len({line.group for line in one.lines if line.kind == "skip"})
        for one in histories
    }


def test_a_dry_run_tells_what_each_machine_would_measure(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    machines = use()
    assert run(tmp_path / "out", dry_run=True, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    each = {"groups": PLAYING, "estimate_s": 10.0}
    assert told == {"files": ["net.py"], "machines": {"one": each, "other": each}}
    assert not (tmp_path / "out").exists()
    assert not machines.begun
    assert run(tmp_path / "out", dry_run=True) == 0
    shown = capsys.readouterr().out
    assert "Each machine is sent this package, net.py." in shown
    assert "one: 5 groups, 10 cells, at least 10 s" in shown


def test_every_machine_measures_all_of_it_and_the_same_command_begins_nothing(use: Use, tmp_path: Path):
    machines = use()
    assert run(tmp_path / "out", max_time_s=60.0) == 0
    assert measured(tmp_path / "out") == {"one": 5, "other": 5}
    assert is_merged(tmp_path / "out")
    assert 0 < json.loads(machines.begun["one"].words[1])["max_time_s"] <= 60.0
    again = use()
    assert run(tmp_path / "out") == 0
    assert not again.begun
    use(names=["third"])
    assert run(tmp_path / "out") == 0
    assert len(measured(tmp_path / "out")) == 3, "what was measured before stays"


def test_hosts_get_what_was_exported_for_them(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = tmp_path / ("d" * 64)
    made.mkdir()
    (made / "engine").touch()
    delivery = Delivery(made_on="it", models={("g1", "m", "", 1, Device.CPU, False, 0): "a" * 64}, builds={"one": made})
    monkeypatch.setattr(fleet.Fleet, "_deliver", lambda *_: delivery)
    machines = use(exports_there=False)
    assert run(tmp_path / "out") == 0
    task = machines.begun["one"]
    assert task.sent == {f"fleet/{made.name}": {"engine": made / "engine"}}
    assert json.loads(task.words[1])["on"] == "one"
    with zipfile.ZipFile(io.BytesIO(task.folder)) as archive:
        assert json.loads(archive.read(DELIVERY))["builds"] == {"one": {"folder": made.name}}


def test_a_lost_machine_is_said_and_the_same_command_asks_it_again(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lost = use(lost=["one"])
    assert run(tmp_path / "out") == ExitCode.FAILED
    assert measured(tmp_path / "out") == {"other": 5}
    assert "one: it is gone" in capsys.readouterr().err
    again = use()
    assert run(tmp_path / "out") == 0
    assert [*again.begun] == ["one"]
    assert again.begun["one"].name == lost.begun["one"].name, "by which it finds what that one measured"
    assert measured(tmp_path / "out") == {"one": 5, "other": 5}


def test_a_process_that_fails_keeps_what_it_measured_and_goes_on_behind_it(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    use(fails=["one"])
    assert run(tmp_path / "out") == ExitCode.FAILED
    assert measured(tmp_path / "out") == {"one": 1, "other": 5}
    assert "one: its process ended with code 1: no memory was left" in capsys.readouterr().err
    again = use()
    assert run(tmp_path / "out") == 0
    assert again.begun["one"].folder
    assert measured(tmp_path / "out") == {"one": 5, "other": 5}


def test_a_machine_that_is_late_is_said(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    use(busy=["one"], deaf=True)
    assert run(tmp_path / "out", max_time_s=0.0) == ExitCode.FAILED
    assert "one: it has no result in time; the same command goes on" in capsys.readouterr().err
    assert measured(tmp_path / "out") == {"other": 5}


def make_zip(*names: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "some text " * 9)
    return made.getvalue()


STRANGE = {
    "no zip": (b"no zip", "BadZipFile"),
    "damaged": (make_zip("a")[:31] + b"\xff" + make_zip("a")[32:], "error: "),
}


@pytest.mark.parametrize(("data", "says"), STRANGE.values(), ids=STRANGE)
def test_an_answer_that_cannot_be_read_is_that_machine_s_fault(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, says: str
):
    use(strange={"one": data})
    assert run(tmp_path / "out") == ExitCode.FAILED
    assert measured(tmp_path / "out") == {"other": 5}
    told = capsys.readouterr().err
    assert "one: its answer can't be read (" in told
    assert says in told


def test_an_answer_that_does_not_go_on_from_the_run_here_leaves_it_as_it_is(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    use(names=["one"], fails=["one"])
    assert run(out) == ExitCode.FAILED
    folder = out / Place(id="one", name="one").folder
    file = Journal(folder, journal.read(folder).sound_bytes)
    file.append(Ended(complete=False, why="it was interrupted", wall_s=1.0))  # else the run only began
    file.close()
    before = zip_folder(folder)
    other = make_zip("journal.jsonl", "more")
    use(names=["one"], strange={"one": other})
    capsys.readouterr()
    assert run(out, strict=True) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().err.split())
    assert "one: its run doesn't go on from the one in" in told
    assert zip_folder(folder) == before


def test_an_interrupt_keeps_what_machines_return_and_the_same_command_goes_on(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    machines = use(busy=["one", "other"])
    wait = fleet.futures.wait

    def interrupted(*given: Any) -> Any:
        if machines.begun and not machines.stopped.is_set():
            raise KeyboardInterrupt
        return wait(*given)

    monkeypatch.setattr(fleet.futures, "wait", interrupted)
    assert run(tmp_path / "out") == ExitCode.INTERRUPTED
    assert measured(tmp_path / "out") == {"one": 1, "other": 1}
    use()
    monkeypatch.setattr(fleet.futures, "wait", wait)
    assert run(tmp_path / "out") == 0
    assert measured(tmp_path / "out") == {"one": 5, "other": 5}


def test_a_folder_of_another_study_is_refused(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use()
    run(tmp_path / "out")
    monkeypatch.setattr(
        fleet.Header, "model_validate", lambda _: replace_identity(make_header(GROUPS, "one"), "another plan")
    )
    with pytest.raises(UsageError, match="holds another study"):
        run(tmp_path / "out")


def replace_identity(header: Any, identity: str) -> Any:
    return header.model_copy(update={"identity": identity})


@pytest.mark.parametrize("name", ["policy", "trace"])
def test_what_is_for_one_machine_is_refused(use: Use, tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=f"--{name} is for a run on this machine"):
        run(tmp_path / "out", **{name: "given"})


def test_a_shipped_folder_is_refused(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shipped = Target(backend="numpy", device=Device.CPU, precision=Precision.FP32, folder="/somewhere/mine")
    monkeypatch.setattr(fleet.points, "targets_of", lambda _: [shipped])
    with pytest.raises(UsageError, match="shipped:mine: the folder isn't sent to nodes"):
        run(tmp_path / "out")


def test_a_machine_that_cannot_plan_the_study_is_left_out_and_a_failure(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    use(refuses={"one": "no net.py"})
    assert run(tmp_path / "out", dry_run=True) == ExitCode.FAILED
    assert "left out: one: no net.py" in capsys.readouterr().err


def test_where_no_machine_can_plan_the_study_the_first_says_why(use: Use, tmp_path: Path):
    use(names=["one"], refuses={"one": "no such model"})
    with pytest.raises(UsageError, match="one: no such model"):
        run(tmp_path / "out")


@pytest.mark.parametrize(
    ("codes", "code"), [([], 0), ([0, 3], 0), ([3, 3], 3), ([0, 4, 6], 6), ([7, 4], 4), ([0, 130, 6], 130)]
)
def test_of_several_exit_codes_the_weightiest_counts(codes: list[int], code: int):
    assert fleet.combine_codes(codes) == code


def test_where_nothing_answers_it_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_address(f"127.0.0.1:{port}")
    with pytest.raises(UsageError, match=f"nothing answers there .*ray start --head --port={port}"):
        check_address(f"127.0.0.1:{port}")
