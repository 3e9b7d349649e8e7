"""Forked workers tell what started ones would; how they live and die is in test_process, for both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.console import environment, state
from support.exports import obtain

from shootout import backends
from shootout.contract import Arm, Target
from shootout.errors import ArmFailed
from shootout.host.placement import allowed_cpus
from shootout.messages import Loaded
from shootout.worker.process import WorkerProcess
from shootout.worker.starter import Starter

SLEPT_S, HELD_BYTES = 0.3, 50_000_000
HEAVY = f"""
import time
time.sleep({SLEPT_S})
held = b"x" * {HELD_BYTES}
"""
SOCIABLE = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
CPUS = frozenset(allowed_cpus())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules to import."""
    found = tmp_path_factory.mktemp("modules")
    for name, text in {"heavy": HEAVY, "sociable": SOCIABLE}.items():
        (found / f"{name}.py").write_text(text)
    return found


@pytest.fixture(scope="module")
def heavy(place: Path) -> Iterator[Starter]:
    found = Starter(["heavy"], environment=environment(PYTHONPATH=str(place), SHOOTOUT_PADDING="its own"), cpus=CPUS)
    yield found
    found.kill()


def forked(starter: Starter, place: Path, log: Path, cpus: frozenset[int] = CPUS) -> WorkerProcess:
    return WorkerProcess(environment(PYTHONPATH=str(place), SHOOTOUT_PADDING="x"), cpus, log, None, starter)


def resident_bytes(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def test_its_figures_hold_the_import_that_it_was_spared(heavy: Starter, place: Path, tmp_path: Path):
    arm = Arm(target=Target(backend="numpy"), model="identity")
    built = backends.get("numpy").build(obtain("identity", {}, 1), arm, tmp_path)
    process = forked(heavy, place, tmp_path / "log")
    try:
        loaded = process.ask("load", 60, built=built)
        again = process.ask("load", 60, built=built)
    finally:
        process.kill()
    assert isinstance(loaded, Loaded)
    assert loaded.load_s >= SLEPT_S > again.load_s, "once"
    assert loaded.rss_after_bytes - loaded.rss_before_bytes > HELD_BYTES


def test_it_has_the_memory_of_a_started_one_but_cpus_and_variables_of_its_own(
    heavy: Starter, place: Path, tmp_path: Path
):
    one = frozenset({max(CPUS)})
    process = forked(heavy, place, tmp_path / "log", one)
    try:
        assert process.ask("memory", 60) > 0
        theirs = resident_bytes(heavy.pid, "RssFile:")
        assert resident_bytes(process.pid, "RssFile:") == pytest.approx(theirs, rel=0.05)
        assert os.sched_getaffinity(process.pid) == one
        assert os.getsid(process.pid) == process.pid
        assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.kill()
    assert state(process.pid) == ""


def test_one_that_cannot_fork_says_why_and_its_workers_are_started(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    starter = Starter(["sociable"], environment=environment(PYTHONPATH=str(place)), log=tmp_path / "import")
    try:
        assert not starter.is_ready()
        assert "sociable left threads or processes" in (tmp_path / "import").read_text()
        process = forked(starter, place, tmp_path / "log")
        assert process.ask("memory", 60) > 0
        process.kill()
        starter._ready = True  # as if it had gone while it forked
        monkeypatch.setattr("shootout.worker.starter.socket.send_fds", lambda *_: None)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
        (tmp_path / "scratch").mkdir()
        with pytest.raises(ArmFailed, match="the process that it was forked from died"):
            forked(starter, place, tmp_path / "log")
        assert list((tmp_path / "scratch").iterdir()) == []
    finally:
        starter.kill()


def test_openblas_threads_are_no_hindrance(tmp_path: Path):
    starter = Starter(["numpy"], environment=environment(OPENBLAS_NUM_THREADS="2"), log=tmp_path / "import")
    assert starter.is_ready(), (tmp_path / "import").read_text()
    starter.kill()
