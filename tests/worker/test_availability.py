"""Whether backends work, asked of ones that crash, hang and lie."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from shootout.core.adapter import Entry
from shootout.core.contract import Availability, Device
from shootout.core.host.child import QUIET, Child
from shootout.core.worker import availability

FAKES = """
import os, signal, sys, time
from shootout.core.contract import Artifact, Availability, Capabilities, Device, Precision

class Base:
    capabilities = Capabilities(consumes=(Artifact.ONNX,), targets=frozenset({(Device.CPU, Precision.FP32)}))

class Fine(Base):
    def probe(self, device):
        print("a library's greeting")
        os.system("echo a greeting from C")
        return Availability(version=f"1.0 on {device}")

class Crashing(Base):
    def probe(self, device):
        print("about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)

class CrashingLate(Base):
    def probe(self, device):
        os._exit = lambda code: os.kill(os.getpid(), signal.SIGABRT)
        return Availability(version="2.0")

class HangingOnce(Base):
    def probe(self, device):
        with open(os.environ["SHOOTOUT_FAKE_PIDS"], "a+") as asked:
            asked.seek(0)
            hangs = not asked.read()
            asked.write(f"{os.getpid()}\\n")
        if hangs:
            os.system("sleep 600")
        return Availability(version="3.0")

class Killed(Base):
    def probe(self, device):
        with open(os.environ["SHOOTOUT_FAKE_PIDS"], "a+") as asked:
            asked.write(f"{os.getpid()}\\n")
            asked.seek(0)
            if len(asked.readlines()) <= int(os.environ["SHOOTOUT_FAKE_KILLS"]):
                os.kill(os.getpid(), signal.SIGKILL)
        return Availability(version="4.0")

class Hanging(Base):
    def probe(self, device):
        open(os.environ["SHOOTOUT_FAKE_PIDS"], "a").write(f"{os.getpid()}\\n")
        os.system("sleep 600")

class Exiting(Base):
    def probe(self, device):
        sys.exit("no license")

class Mumbling(Base):
    def probe(self, device):
        return Availability(version=("1", "0"))

class Raising(Base):
    def probe(self, device):
        raise RuntimeError("no such thing")

class Leaving(Base):
    def probe(self, device):
        os._exit(7)
"""
BUILD_SERVERS = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "JENKINS_URL", "TEAMCITY_VERSION", "TRAVIS")
NAMES = {"fine": "Fine", "crash": "Crashing", "late": "CrashingLate", "hang": "Hanging", "raise": "Raising"}
NAMES |= {
    "leave": "Leaving",
    "gone": "Missing",
    "once": "HangingOnce",
    "exit": "Exiting",
    "mumble": "Mumbling",
    "killed": "Killed",
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed third-party package that brings all the fake backends; returns the hanging one's pid file."""
    info = tmp_path / "fakes-1.0.dist-info"
    info.mkdir()
    (tmp_path / "fakes.py").write_text(FAKES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fakes\nVersion: 1.0\n")
    points = "".join(f"{name} = fakes:{kind}\n" for name, kind in NAMES.items())
    (info / "entry_points.txt").write_text(f"[shootout.backends]\n{points}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SHOOTOUT_FAKE_PIDS", str(tmp_path / "pids"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "pids"


def ask(name: str) -> Availability:
    return availability.find_available([(name, Device.CPU)])[name, Device.CPU]


@pytest.mark.usefixtures("fakes")
def test_a_working_backend_answers_whatever_it_prints():
    assert ask("fine") == Availability(version="1.0 on cpu")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("crash", "killed by SIGSEGV; its last words: about to die"),
        ("raise", "RuntimeError: no such thing"),
        ("leave", "gave no answer: exited with code 7"),
        ("gone", "AttributeError"),
        ("exit", "SystemExit: no license"),
        ("mumble", "got 'tuple'"),
    ],
)
@pytest.mark.usefixtures("fakes")
def test_a_broken_backend_is_a_reason_and_a_fix_never_an_exception(name: str, reason: str):
    found = ask(name)
    assert not found.ok
    assert reason in found.reason
    assert "pip install --upgrade fakes" in found.fix


def test_an_unknown_backend_is_a_reason_with_the_nearest_name():
    found = ask("nunpy")
    assert not found.ok
    assert "did you mean 'numpy'" in found.reason


def assert_gone(group: int) -> None:
    """Wait until nothing of a killed process group lives; one that lives on runs into the test's time limit."""
    while any(member(process, group) for process in psutil.process_iter()):
        os.sched_yield()


def member(process: psutil.Process, group: int) -> bool:
    try:
        # An orphan is a zombie until init looks after it.
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def impatient_once_it_hangs(pids: Path, monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    """The time of a probe of so many is over as soon as one of them hangs."""
    answers = availability._collect_answers

    def patient(probe: Child, pairs: Sequence[availability.Pair], others: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            if len(pairs) == asked:
                wait_for_pid(pids)
                patch.setattr(availability, "PROBE_TIMEOUT_S", 0.0)
            return answers(probe, pairs, others)

    monkeypatch.setattr(availability, "_collect_answers", patient)


def wait_for_pid(pids: Path) -> None:
    """Until a probe has written its own; one that never does runs into the test's time limit."""
    while not (pids.exists() and pids.read_text().endswith("\n")):
        os.sched_yield()


@pytest.mark.timeout(60)
def test_a_hanging_probe_is_ended_with_all_it_started(fakes: Path, monkeypatch: pytest.MonkeyPatch):
    impatient_once_it_hangs(fakes, monkeypatch, 1)
    assert ask("hang").reason.startswith("gave no answer: took longer than 0 s and was killed")
    assert_gone(int(fakes.read_text()))


@pytest.mark.timeout(60)
def test_an_interrupt_leaves_nothing_of_several_behind(fakes: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> dict[availability.Pair, Availability]:
        wait_for_pid(fakes)
        raise KeyboardInterrupt

    answers = availability._collect_answers
    choose = {"fine": interrupted}
    monkeypatch.setattr(
        availability,
        "_collect_answers",
        lambda probe, pairs, others: choose.get(pairs[0][0], answers)(probe, pairs, others),
    )
    with pytest.raises(KeyboardInterrupt):
        availability.find_available([("hang", Device.CPU), ("fine", Device.CPU)])
    assert_gone(int(fakes.read_text()))


@pytest.mark.usefixtures("fakes")
def test_every_pair_gets_its_own_answer_and_is_asked_once():
    pairs = [("fine", Device.CPU), ("raise", Device.CPU), ("fine", Device.CUDA), ("fine", Device.CPU)]
    found = availability.find_available(pairs)
    assert set(found) == set(pairs)
    assert found["fine", Device.CUDA].version == "1.0 on cuda"
    assert not found["raise", Device.CPU].ok
    assert availability.find_available([]) == {}


@pytest.mark.parametrize(("kills", "version"), [(1, "4.0"), (2, "")])
def test_a_probe_that_others_killed_is_begun_anew_once(
    fakes: Path, monkeypatch: pytest.MonkeyPatch, kills: int, version: str
):
    monkeypatch.setenv("SHOOTOUT_FAKE_KILLS", str(kills))
    found = ask("killed")
    assert (found.version, len(fakes.read_text().splitlines())) == (version, 2)
    assert found.ok or "killed by SIGKILL" in found.reason


@pytest.fixture
def probes(fakes: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The backends that each process was asked for; all but leave are of one library."""
    library = Entry(path="", loads={"": ("fakes",)})
    monkeypatch.setattr(availability.backends, "shipped", lambda: dict.fromkeys(set(NAMES) - {"leave"}, library))
    found: list[list[str]] = []
    start = availability.start_probe

    def start_probe(pairs: list[availability.Pair], others: Any) -> Child:
        found.append([backend for backend, _ in pairs])
        return start(pairs, others)

    monkeypatch.setattr(availability, "start_probe", start_probe)
    return found


def test_backends_of_one_library_are_asked_in_one_process(probes: list[list[str]]):
    found = availability.find_available([(name, Device.CPU) for name in ("raise", "late", "fine", "leave")])
    assert {name for (name, _), one in found.items() if one.ok} == {"fine", "late"}
    assert sorted(probes) == [["fine", "late", "raise"], ["leave"]]
    assert found["fine", Device.CPU].version == "1.0 on cpu"


def test_whom_a_crash_left_without_an_answer_is_asked_alone(probes: list[list[str]]):
    found = availability.find_available([(name, Device.CPU) for name in ("late", "fine", "crash")])
    assert {name for (name, _), one in found.items() if one.ok} == {"late", "fine"}
    assert "killed by SIGSEGV; its last words: about to die" in found["crash", Device.CPU].reason
    assert probes == [["crash", "fine", "late"], ["crash"], ["fine"], ["late"]]


@pytest.mark.timeout(60)
def test_a_hang_loses_no_answer_and_the_rest_are_asked_side_by_side(
    probes: list[list[str]], fakes: Path, monkeypatch: pytest.MonkeyPatch
):
    both = threading.Barrier(2, timeout=30)
    impatient_once_it_hangs(fakes, monkeypatch, 3)
    answers = availability._collect_answers

    def together(probe: Child, pairs: Sequence[availability.Pair], others: Any) -> Any:
        if len(pairs) == 1:
            both.wait()
        return answers(probe, pairs, others)

    monkeypatch.setattr(availability, "_collect_answers", together)
    found = availability.find_available([(name, Device.CPU) for name in ("raise", "once", "fine")])
    assert {name: one.version for (name, _), one in found.items()} == {"fine": "1.0 on cpu", "once": "3.0", "raise": ""}
    assert (probes[0], sorted(probes[1:])) == (["fine", "once", "raise"], [["once"], ["raise"]])


def test_a_file_in_the_current_folder_cannot_pose_as_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('an impostor')")
    monkeypatch.chdir(tmp_path)
    assert ask("numpy").ok


def test_a_probe_leaves_nothing_in_the_user_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Telemetry keeps a device's id and its events there, unless a build server's variables are set."""
    for name in (*QUIET, *BUILD_SERVERS):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    found = availability.find_available([("onnxruntime", Device.CPU), ("openvino", Device.CPU)])
    assert all(one.ok for one in found.values())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
