"""Forked workers tell what started ones would; how they live and die is in test_process, for both."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.console import environment, state
from support.exports import obtain

from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.host.child import Forked
from shootout.core.host.placement import allowed_cpus
from shootout.core.messages import Loaded
from shootout.core.worker.fork_server import BINDING_VARIABLES, ForkServer, can_fork
from shootout.core.worker.process import WorkerProcess

IMPORT_S, HELD_BYTES = 1e6, 50_000_000
HEAVY = f"""
from shootout.core import clock
now_ns = clock.now_ns
clock.now_ns = lambda: now_ns() + int({IMPORT_S} * 1e9)
held = b"x" * {HELD_BYTES}
"""
"""Puts the clock forward while it is imported."""
SOCIABLE = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
STINGY = """
import errno, os
left, fork = {}, os.fork
def stingy():
    global left
    left -= 1
    if left < 0:
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    return fork()
os.fork = stingy
"""
"""Forks as often as it is told; the first time is for nothing."""
MODULES = {"heavy": HEAVY, "sociable": SOCIABLE, "outer": STINGY.replace("{}", "1"), "inner": STINGY.replace("{}", "2")}
CPUS = frozenset(allowed_cpus())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of modules to import."""
    found = tmp_path_factory.mktemp("modules")
    for name, text in MODULES.items():
        (found / f"{name}.py").write_text(text)
    return found


@pytest.fixture(scope="module")
def heavy(place: Path) -> Iterator[ForkServer]:
    found = ForkServer(["heavy"], environment=environment(PYTHONPATH=str(place), SHOOTOUT_PADDING="its own"), cpus=CPUS)
    yield found
    found.kill()


def forked(starter: ForkServer, place: Path, log: Path, cpus: frozenset[int] = CPUS) -> WorkerProcess:
    return WorkerProcess(environment(PYTHONPATH=str(place), SHOOTOUT_PADDING="x"), cpus, log, None, starter)


def resident_bytes(pid: int, kind: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def test_its_figures_hold_the_import_that_it_was_spared(heavy: ForkServer, place: Path, tmp_path: Path):
    arm = Arm(target=Target(backend="numpy"), model="identity")
    built = backends.get("numpy").build(obtain("identity", {}, 1), arm, tmp_path)
    process = forked(heavy, place, tmp_path / "log")
    try:
        loaded = process.ask("load", 60, built=built)
        again = process.ask("load", 60, built=built)
    finally:
        process.kill()
    assert isinstance(loaded, Loaded)
    assert loaded.forked
    assert loaded.load_s >= IMPORT_S > again.load_s, "once"
    assert loaded.rss_after_bytes - loaded.rss_before_bytes > HELD_BYTES


def test_it_has_the_memory_of_a_started_one_but_cpus_and_variables_of_its_own(
    heavy: ForkServer, place: Path, tmp_path: Path
):
    one = frozenset({max(CPUS)})
    process = forked(heavy, place, tmp_path / "log", one)
    try:
        assert os.sched_getaffinity(process.pid) == one, "from the first, since it may be moved from then on"
        assert process.ask("memory", 60) > 0
        theirs = resident_bytes(heavy.pid, "RssFile:")
        assert resident_bytes(process.pid, "RssFile:") == pytest.approx(theirs, rel=0.05)
        assert os.getsid(process.pid) == process.pid
        assert f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.kill()
    assert state(process.pid) == ""


def test_one_that_cannot_fork_says_why_and_its_workers_are_started(place: Path, tmp_path: Path):
    starter = ForkServer(["sociable"], environment=environment(PYTHONPATH=str(place)), log=tmp_path / "import")
    try:
        assert not starter.is_ready()
        assert "sociable left threads or processes" in (tmp_path / "import").read_text()
        process = forked(starter, place, tmp_path / "log")
        assert process.ask("memory", 60) > 0
        process.kill()
    finally:
        starter.kill()


@pytest.mark.parametrize("stingy", ["outer", "inner"])
def test_a_worker_is_started_where_the_system_lets_nobody_fork(place: Path, tmp_path: Path, stingy: str):
    starter = ForkServer([stingy], environment=environment(PYTHONPATH=str(place)), log=tmp_path / "import")
    try:
        assert starter.is_ready()
        process = forked(starter, place, tmp_path / "log")
        assert process.ask("memory", 60) > 0
        process.kill()
        assert "BlockingIOError" in (tmp_path / "import").read_text()
        assert not starter.is_ready(), "nobody else tries"
        assert state(starter.pid) in ("", "Z")
    finally:
        starter.kill()


@pytest.mark.parametrize("name", BINDING_VARIABLES)
def test_nothing_is_forked_where_the_importing_thread_might_be_bound(monkeypatch: pytest.MonkeyPatch, name: str):
    assert can_fork()
    monkeypatch.setenv(name, "0")
    assert not can_fork()


def test_only_what_differs_is_sent_and_too_much_of_it_costs_the_others_nothing(heavy: ForkServer):
    assert heavy.is_ready()
    with pytest.raises(ChildProcessError):
        heavy.fork(["0", "1"], {"SHOOTOUT_PADDING": "x" * 200_000}, [0, 1, 2])
    assert heavy.is_ready()


def test_two_threads_hear_how_it_ended(monkeypatch: pytest.MonkeyPatch):
    both = threading.Barrier(2, timeout=30)

    def woken(*wait: Any) -> Any:
        found = select.select(*wait)
        both.wait()
        return found

    monkeypatch.setattr("shootout.core.host.child.select", SimpleNamespace(select=woken))
    process = Forked(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {}))
    with ThreadPoolExecutor(2) as pool:
        assert [one.result() for one in [pool.submit(process.wait, 30), pool.submit(process.wait)]] == [3, 3]


def test_openblas_threads_are_no_hindrance(tmp_path: Path):
    starter = ForkServer(["numpy"], environment=environment(OPENBLAS_NUM_THREADS="2"), log=tmp_path / "import")
    assert starter.is_ready(), (tmp_path / "import").read_text()
    starter.kill()
