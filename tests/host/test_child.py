"""A child process says how it ended, on one line, and neither it nor what it started outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from shootout.core import clock
from shootout.core.host.child import Child, ending, last_words, run

ODD = """
import subprocess, sys, time
from shootout.core.host.child import leave_with
leave_with(int(sys.argv[-1]))
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that a child can run; tests add to it what it does."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    return path


def add(path: Path, code: str) -> None:
    path.write_text(path.read_text() + code)


def test_what_it_says_and_what_it_is_told(odd: Path):
    add(odd, "import os; print(sys.argv[1], os.environ['ODD'], 'é'); print('aside', file=sys.stderr)")
    ended = run("odd", ["given"], 60, {"ODD": "set"})
    assert (ended.code, ended.said) == (0, "given set é\n")
    assert ended.how == "exited with code 0; its last words: aside"


def test_one_that_takes_too_long_is_ended_with_what_it_started(odd: Path):
    add(
        odd,
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True)\nprint('waiting', file=sys.stderr)\ntime.sleep(60)",
    )
    with Child("odd") as child:
        while not (said := os.pread(child._said.fileno(), 100, 0)).endswith(b"\n"):
            time.sleep(0.01)
        ended = child.finish(0.1)
    assert (ended.code, ended.said) == (None, said.decode())
    assert ended.how == "took longer than 0 s and was killed; its last words: waiting"
    while alive(int(said)):
        time.sleep(0.01)
    child.kill()  # harmless


def test_its_folder_ends_with_it(odd: Path):
    add(odd, "import os\nprint(os.environ['TMPDIR'])")
    with Child("odd") as child:
        folder = Path(child.finish(60).said.strip())
        assert folder.is_dir()
    assert not folder.exists()


PARENT = """
import sys, time
from shootout.core.host.child import Child
with Child("short") as gone, Child("odd") as child:
    gone.finish(60)
    print(gone.pid, child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_a_child_started_ends_with_us_however_we_end(odd: Path, tmp_path: Path, number: signal.Signals):
    add(odd, "open(sys.argv[0] + '.pid', 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\ntime.sleep(60)")
    (tmp_path / "short.py").write_text(ODD)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout
    parent.stdout.readline()
    while not (said := tmp_path / "odd.py.pid").exists() or not said.read_text():
        time.sleep(0.01)
    started = int(said.read_text())
    assert alive(started)
    parent.send_signal(number)
    parent.communicate()
    while alive(started):
        time.sleep(0.01)  # the test's time-out is the limit


@pytest.mark.parametrize("seen_by", ["wait", "finish", "kill"])
def test_nobody_is_sent_a_signal_once_its_end_was_seen(monkeypatch: pytest.MonkeyPatch, seen_by: str):
    """Its process id may be another's by then."""
    sent: list[int] = []
    monkeypatch.setattr("shootout.core.host.child.os.killpg", lambda _, number: sent.append(number))
    ended = SimpleNamespace(pid=2**22, returncode=0, wait=lambda timeout=None: 0)
    child = Child("odd", fork=lambda *_: ended)
    arguments = {"wait": (0.0,), "finish": (1.0,), "kill": ()}[seen_by]
    getattr(child, seen_by)(*arguments)
    before = len(sent)
    assert signal.SIGKILL in sent, "what it started is ended"
    child.signal(signal.SIGSTOP)
    child.wait(0.0) if seen_by != "kill" else None
    child.kill()
    assert len(sent) == before


def test_its_cpu_time_is_that_of_all_its_threads_and_of_what_it_started(odd: Path):
    add(
        odd,
        """
import threading
def spin():
    while time.thread_time() < 0.05: pass
threads = [threading.Thread(target=spin) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
began = time.process_time_ns()
work = 'import time\\nwhile time.process_time() < 0.2: pass\\ntime.sleep(60)'
grandchild = subprocess.Popen([sys.executable, '-c', work])
print(began, flush=True)
time.sleep(60)
""",
    )
    with Child("odd") as child:
        while not (said := os.pread(child._said.fileno(), 100, 0)).endswith(b"\n"):
            time.sleep(0.01)
        own_ns = clock.cpu_ns(child.pid) or 0
        assert own_ns >= int(said) >= 100_000_000, "the threads have ended, and count"
        while (child.cpu_ns() or 0) < own_ns + 200_000_000:
            time.sleep(0.01)
    assert clock.cpu_ns(child.pid) is None, "it has gone"


def test_the_cpu_time_of_a_helper_that_vanished_is_not_told_once(odd: Path, monkeypatch: pytest.MonkeyPatch):
    """Left out at once, the sum would fall, and the round would seem to be another program's."""
    used = {1: 70, 2: 30}
    monkeypatch.setattr("shootout.core.host.child._list_session", lambda _: [*used])
    monkeypatch.setattr("shootout.core.host.child.clock.cpu_ns", lambda pid: used.get(pid, 5))
    add(odd, "time.sleep(60)")
    with Child("odd") as child:
        assert child.cpu_ns() == 105
        del used[2]
        assert [child.cpu_ns() for _ in range(2)] == [None, 75]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-signal.SIGKILL, "killed by SIGKILL (the kernel does this when memory runs out)"),
    ],
)
def test_an_exit_code_in_words(code: int, words: str):
    assert ending(code) == words


def test_last_words_are_the_last_lines_of_its_own_part(tmp_path: Path):
    (tmp_path / "log").write_text("of another\none\n\n two\nthree\nfour\n")
    with (tmp_path / "log").open("rb") as log:
        assert last_words(log) == "two | three | four"
        assert last_words(log, len("of another\none\n\n two\n")) == "three | four"


def test_a_file_in_the_current_folder_cannot_pose_as_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Path
):
    here = tmp_path / "here"
    here.mkdir()
    (here / "signal.py").write_text("raise SystemExit('an impostor')")
    monkeypatch.chdir(here)
    assert run("odd", [], 60).code == 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
