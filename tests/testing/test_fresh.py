"""Fresh processes, started anew or forked from one that has imported a module already."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shootout.testing.fresh import run_fresh

MODULE = "colorsys"
"""Cheap, and nothing else imports it."""
HOW = pytest.mark.parametrize(
    "warm", [pytest.param("", id="new", marks=pytest.mark.long), pytest.param(MODULE, id="forked")]
)


def placed() -> tuple[bool, int, str | None, str]:
    """Whether the module is there, the parent, and two things that a call may change for itself only."""
    found = MODULE in sys.modules, os.getppid(), os.environ.get("OMP_NUM_THREADS"), str(Path.cwd())
    os.environ["OMP_NUM_THREADS"] = "99"
    os.chdir("/")
    return found


def test_a_forked_process_holds_the_module_and_nothing_of_the_calls_before():
    first, second = run_fresh(placed, warm=MODULE), run_fresh(placed, warm=MODULE)
    assert first == second == (True, first[1], "1", str(Path.cwd()))
    assert first[1] != os.getpid()
    assert run_fresh(placed) == (False, os.getpid(), "1", str(Path.cwd()))


def test_what_a_function_keeps_is_there_too():
    assert run_fresh(faulthandler.is_enabled, warm="faulthandler:enable")
    assert not run_fresh(faulthandler.is_enabled, warm="faulthandler")


def test_another_environment_or_folder_gets_another_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = run_fresh(placed, warm=MODULE)
    threaded = run_fresh(placed, warm=MODULE, threads=2)
    assert (threaded[2], threaded[1] != before[1]) == ("2", True)
    monkeypatch.chdir(tmp_path)
    assert run_fresh(placed, warm=MODULE)[3] == str(tmp_path)


def set_by_jax() -> tuple[int, str | None]:
    return os.getppid(), os.environ.get("TF_CPP_MIN_LOG_LEVEL")


def test_what_a_library_imported_here_sets_for_itself_reaches_no_fresh_process(monkeypatch: pytest.MonkeyPatch):
    """And costs no new parent with all its imports; a user's own setting is none of that."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    before = run_fresh(set_by_jax, warm=MODULE)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_me")
    assert run_fresh(set_by_jax, warm=MODULE) == before == (before[0], None)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    assert run_fresh(set_by_jax, warm=MODULE)[1] == "0"


@HOW
def test_what_a_call_leaves_in_its_temporary_folder_goes_with_it(warm: str):
    left = Path(run_fresh(tempfile.mkdtemp, warm=warm))
    assert not left.parent.exists()
    assert left.parent != Path(tempfile.gettempdir())


def died(how: str) -> None:
    """Say something and end badly."""
    print("last words", file=sys.stderr, flush=True)
    if how == "raises":
        raise ValueError(how)
    os.kill(os.getpid(), signal.SIGSEGV)


@HOW
@pytest.mark.parametrize(("how", "told"), [("raises", r"with 1:(.|\n)*ValueError"), ("crashes", "with -11:")])
def test_a_death_is_told_with_its_last_words_and_the_next_call_lives(how: str, told: str, warm: str):
    with pytest.raises(AssertionError, match=told) as error:
        run_fresh(died, how, warm=warm)
    assert "last words" in str(error.value)
    assert run_fresh(placed, warm=warm)[0] == bool(warm)


@HOW
def test_a_call_that_takes_too_long_is_ended(warm: str):
    with pytest.raises(subprocess.TimeoutExpired):
        run_fresh(time.sleep, 60, warm=warm, timeout_s=0.5)
    assert run_fresh(placed, warm=warm)[0] == bool(warm)


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_process_that_forks_ends_with_its_own(end: str):
    call = f"print(run_fresh(os.getppid, warm='{MODULE}'), flush=True)"
    code = f"import os; from shootout.testing.fresh import run_fresh; {call}"
    told = subprocess.run([sys.executable, "-c", f"{code}\n{end}"], capture_output=True, text=True, check=False)
    while Path(f"/proc/{int(told.stdout)}").exists():
        time.sleep(0.05)  # the test's time-out is the limit
