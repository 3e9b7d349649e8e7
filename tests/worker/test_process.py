"""Real workers that break, hang, die and are held: what the parent learns of it, and that nothing stays behind."""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest
from support.adapters.misbehaving import FAULTS, installed
from support.console import TESTS, children_of, environment, state
from support.exports import obtain

from shootout.core.adapter import Built
from shootout.core.contract import Arm, NotRun, Target
from shootout.core.errors import ArmFailed, NotRunKind, one_line
from shootout.core.exported.model import ExportedModel
from shootout.core.host.child import Child, _list_session
from shootout.core.host.placement import allowed_cpus
from shootout.core.messages import Ask, Fault, GpuState, Loaded, Turn
from shootout.core.worker.fork_server import ForkServer
from shootout.core.worker.process import WorkerProcess
from shootout.core.worker.worker import Worker

IN_LOAD = ["raises-in-load", "exits", "killed", "crashes", "eats"]


@pytest.fixture(scope="module")
def exported() -> ExportedModel:
    return obtain("identity", {}, 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return os.pathsep.join([str(TESTS), str(installed(tmp_path_factory.mktemp("third")))])


@pytest.fixture(scope="module")
def starter(path: str) -> Iterator[ForkServer]:
    found = ForkServer((), environment=environment(PYTHONPATH=path))
    yield found
    found.kill()


@pytest.fixture(params=[pytest.param("started", marks=pytest.mark.long), "forked"])
def process(path: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    of = request.getfixturevalue("starter") if request.param == "forked" else None
    found = WorkerProcess(environment(PYTHONPATH=path), frozenset(allowed_cpus()), tmp_path / "log", None, of)
    yield found
    found.kill()


def built(exported: ExportedModel, backend: str, folder: Path) -> Built:
    return Built(arm=Arm(target=Target(backend=backend), model="identity"), exported=exported, folder=folder)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does in its own time; the test's time-out is the limit."""
    while not condition():
        time.sleep(0.01)


def lacking() -> Turn:
    """As a message can make one: no field of it is there."""
    return object.__new__(Turn)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
LOADED = Loaded(load_s=1.0, first_call_s=1.0, rss_before_bytes=1, rss_after_bytes=1)
TIMED = Turn(latency_ns={"compute": np.ones(3)})
FORGED: list[tuple[str, Any, str]] = [
    ("load", None, "its answer to load: None: Input should be"),
    ("load", replace(LOADED, load_s="now"), "its answer to load: load_s is 'now': Input should be a valid number"),
    ("load", replace(LOADED, first_call_s=math.nan), "its answer to load: first_call_s: nan is not an amount"),
    ("load", replace(LOADED, rss_after_bytes=2**64), "its answer to load: rss_after_bytes: a number of more than"),
    ("load", replace(LOADED, gpu=TIMED), r"its answer to load: gpu is Turn\("),
    ("turn", lacking(), "turn gave an answer that can't be read: 'Turn' object has no attribute 'latency_ns'"),
    ("turn", replace(TIMED, latency_ns={"compute": [1.0]}), "its answer to turn: latency_ns.compute is "),
    ("turn", replace(TIMED, latency_ns={"compute": np.zeros(3)}), "latency_ns: compute: it has no readings"),
    ("turn", replace(TIMED, latency_ns={"compute": np.array([{}])}), "latency_ns: compute: it has no readings"),
    ("turn", replace(TIMED, gpu=GpuState(throttled=(1,))), "its answer to turn: gpu.throttled.0 is 1: "),  # type: ignore[arg-type]
    ("build", ({"of": ENDLESS}, 1.0), "build gave an answer that can't be read: maximum recursion depth"),
    ("warm", NotRun(NotRunKind.BROKEN, 3), "its answer to warm: reason is 3: "),  # type: ignore[arg-type]
    ("recheck", Fault(kind="Error", message=[]), r"its answer to recheck: message is \[\]: "),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("command", "answer", "reason"), FORGED)
def test_an_answer_is_of_the_type_that_the_command_gives(
    monkeypatch: pytest.MonkeyPatch, command: str, answer: Any, reason: str
):
    def receive() -> Any:
        return pickle.loads(pickle.dumps(answer))

    pipe = SimpleNamespace(send=id, poll=bool, recv=receive)
    monkeypatch.setattr(WorkerProcess, "_start", lambda process, **_: setattr(process, "_pipe", pipe))
    process = WorkerProcess({}, frozenset(), Path(os.devnull))
    with pytest.raises(ArmFailed, match=f"^.*{reason}"):
        process.ask(command, 60)


def test_what_a_command_gives_is_told_by_its_method():
    for name, method in vars(Worker).items():
        if not name.startswith("_"):
            assert "return" in get_type_hints(method), name


def test_a_worker_that_behaves_answers(process: WorkerProcess, exported: ExportedModel, tmp_path: Path):
    assert isinstance(process.ask("load", 60, built=built(exported, "well", tmp_path)), Loaded)
    assert process.ask("memory", 60) > 0


@pytest.mark.parametrize("backend", IN_LOAD)
def test_the_reason_says_how_it_ended_and_its_last_words(
    process: WorkerProcess, exported: ExportedModel, tmp_path: Path, backend: str
):
    with pytest.raises(ArmFailed, match=FAULTS[backend][1]):
        process.ask("load", 60, built=built(exported, backend, tmp_path))


def test_a_dead_worker_is_not_waited_for_though_a_process_of_its_own_holds_the_pipe(
    process: WorkerProcess, exported: ExportedModel, tmp_path: Path
):
    with pytest.raises(ArmFailed, match=r"^killed by SIGKILL \(.*memory runs out\) during 'load'$"):
        process.ask("load", 60, built=built(exported, "leaves-a-holder", tmp_path))
    until(lambda: not any(map(state, _list_session(process.pid))))


def test_an_answer_that_breaks_off_while_another_process_holds_the_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Half of an answer of 100 bytes is there; the other end stays open."""
    held: list[int] = []

    def start(_: Child, *__: object, pass_fds: tuple[int], **___: object) -> None:
        held.append(os.dup(pass_fds[0]))
        os.write(held[0], (100).to_bytes(4, "big") + bytes(50))

    monkeypatch.setattr(Child, "__init__", start)
    monkeypatch.setattr(Child, "was_killed", True)
    monkeypatch.setattr(Child, "wait", lambda *_: "killed by SIGKILL")
    monkeypatch.setattr(Child, "told", lambda _, how: how)
    monkeypatch.setattr(Child, "kill", lambda _: os.close(held[0]))
    monkeypatch.setattr("shootout.core.worker.process._MOST_STALLED_S", 0.01)
    with WorkerProcess({}, frozenset(), tmp_path / "log") as dying, pytest.raises(ArmFailed) as caught:
        dying.ask("memory", 60)
    assert (str(caught.value), caught.value.why.kind) == ("killed by SIGKILL during 'memory'", NotRunKind.KILLED)


@pytest.mark.parametrize(
    ("limits_s", "kind"), [((0, math.inf), NotRunKind.FAILED), ((60, 0), NotRunKind.NOT_REACHED)], ids=["most", "part"]
)
def test_a_hung_worker_is_given_up_and_killed(
    process: WorkerProcess,
    exported: ExportedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits_s: tuple[float, float],
    kind: NotRunKind,
):
    """Its time is over as soon as it hangs, however long it takes to come to that."""
    is_answered = process._is_answered

    def impatient(timeout_s: float) -> bool:
        until(lambda: b"license" in (tmp_path / "log").read_bytes())
        return is_answered(timeout_s)

    monkeypatch.setattr(process, "_is_answered", impatient)
    with pytest.raises(ArmFailed, match=FAULTS["hangs"][1]) as found:
        process.ask("load", *limits_s, built=built(exported, "hangs", tmp_path))
    assert found.value.why.kind is kind
    process.kill()
    assert state(process.pid) == ""


def test_a_command_that_raises_leaves_the_worker_alive(process: WorkerProcess):
    with pytest.raises(ArmFailed, match="turn raised AttributeError"):
        process.ask("turn", 60, ask=Ask())
    assert process.ask("memory", 60) > 0


def test_words_cannot_steer_the_terminal():
    assert one_line("\x1b[1;31mred\x1b[0m\n\n  two\x07\x1b]0;title\x07\r\n") == "red | two]0;title"


def test_held_means_stopped_with_all_that_it_started(process: WorkerProcess, exported: ExportedModel, tmp_path: Path):
    process.ask("load", 60, built=built(exported, "starts", tmp_path))
    (sleeper,) = children_of(process.pid)
    process.stop()
    assert state(process.pid) == "T"
    until(lambda: state(sleeper) == "T")
    assert 0 < (process.cpu_ns() or 0) == process.cpu_ns(), "what is held spends nothing"
    process.resume()
    until(lambda: state(sleeper) == "S")
    assert process.ask("memory", 60) > 0
    process.stop()
    process.kill()
    assert state(process.pid) == ""
    until(lambda: state(sleeper) == "")
    process.kill()  # harmless


def test_holding_a_dead_worker_does_not_wait_for_ever(process: WorkerProcess):
    os.kill(process.pid, signal.SIGKILL)
    process.stop()
    process.resume()
    with pytest.raises(ArmFailed, match="killed by SIGKILL"):
        process.ask("memory", 60)


def test_ctrl_c_reaches_the_parent_only(process: WorkerProcess):
    process.ask("memory", 60)
    os.killpg(process.pid, signal.SIGINT)
    assert process.ask("memory", 60) > 0


def test_workers_get_their_cpus_before_any_library(tmp_path: Path):
    one = frozenset({max(allowed_cpus())})
    with WorkerProcess(environment(), one, tmp_path / "log") as process:
        assert os.sched_getaffinity(process.pid) == one
        assert os.getpgid(process.pid) == process.pid


PARENT = """
import sys, time
from pathlib import Path
from shootout.core.worker.process import WorkerProcess
from shootout.core.worker.fork_server import ForkServer
from shootout.core.host.placement import allowed_cpus, child_environment
starter = ForkServer((), environment=child_environment(1, 0))
how = [(Path(sys.argv[1], "a"), None, starter), (Path(sys.argv[1], "b"), None, None)]
workers = [WorkerProcess(child_environment(1, 0), frozenset(allowed_cpus()), *rest) for rest in how]
starter.kill()
for worker in workers:
    worker.ask("memory", 60)
    worker.stop()
print("ready", flush=True)
time.sleep(600)
"""


def test_workers_die_with_a_killed_parent_while_they_are_held(tmp_path: Path):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            workers = children_of(parent.pid)
            assert len(workers) == 2
            assert list(map(state, workers)) == ["T", "T"], "a free one would see the pipe close"
        finally:
            parent.kill()
        parent.wait()
        until(lambda: not any(map(state, workers)))


def test_a_killed_worker_leaves_no_temporary_files(path: str, exported: ExportedModel, tmp_path: Path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        with WorkerProcess(environment(PYTHONPATH=path), frozenset(allowed_cpus()), tmp_path / "log") as started:
            started.ask("load", 60, built=built(exported, "litters", tmp_path))
            assert [file.name for file in scratch.rglob("litter*")] == ["litter"]
    assert list(scratch.iterdir()) == []
