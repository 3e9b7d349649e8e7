"""Tasks on hosts by ssh: all is real but the network. `ssh` is a stand-in that runs the command in a shell here."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from shootout.apps.fleet import node_side, ssh_hosts
from shootout.apps.fleet.parcel import Answer, NodeLost, Parcel, Task
from shootout.apps.fleet.ssh_hosts import SshHosts, needed_packages, read_addresses
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.commands import fleet
from shootout.commands.fleet import doctor_there, ship_there
from shootout.core import backends
from shootout.core.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
WAITS_S = 120.0
"""Of a test, for what takes a fraction of a second."""
STAND_IN = """
import os, shutil, subprocess, sys, threading
signs, words = os.environ["STAND_IN"], sys.argv[1:]
print(*words, file=open(f"{signs}/called", "a"))
if os.path.exists(f"{signs}/down"):
    sys.exit(print("ssh: connect to host board port 22: Connection refused", file=sys.stderr) or 255)
if os.path.exists(f"{signs}/greeting"):
    shutil.copyfileobj(open(f"{signs}/greeting"), sys.stdout)
    sys.stdout.flush()
command = " ".join(words[words.index("--") + 2 :])
host = subprocess.Popen(["sh", "-c", command], stdin=-1, stdout=-1, start_new_session=True)
open(f"{signs}/pid", "w").write(str(os.getpid()))
def send():
    try:
        while data := os.read(0, 65_536):
            host.stdin.write(data)
            host.stdin.flush()
        host.stdin.close()
    except OSError:
        pass
threading.Thread(target=send, daemon=True).start()
shutil.copyfileobj(host.stdout, sys.stdout.buffer)
sys.stdout.buffer.flush()
os._exit(host.wait())
"""
"""It notes its words and its process. Files beside them make the host unreachable, or greet."""
LIBRARY = """
import os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[1])
signs = pathlib.Path(os.environ["STAND_IN"])
signal.signal(signal.SIGINT, signal.default_int_handler)

def keep(text):
    (run / "journal.jsonl").write_text(text)

def tell(text):
    print(text, file=sys.stderr, flush=True)

def wait_for(name):
    limit = time.monotonic() + 120
    while not (signs / name).exists() and time.monotonic() < limit:
        time.sleep(0.01)
"""
"""The words that each task here begins with."""


class Board:
    """The host, by its stand-in: `signs` is the stand-in's folder, `cache` the host's, `said` what was heard of it."""

    def __init__(self, folder: Path, cache: Path, open_hosts: ExitStack) -> None:
        self.signs, self.cache, self.said = folder, cache, list[str]()
        self.address = f"ssh://board{sys.executable}"
        self._open_hosts = open_hosts

    def connect(self, job: str = "", *, address: str = "", **contents: str) -> SshHosts:
        """Reach the host with a package whose module `job` does this, and files of the user's with these contents."""
        sent = Parcel(
            package={"job.py": (LIBRARY + job).encode()},
            files={name: text.encode() for name, text in contents.items()},
        )
        return self._open_hosts.enter_context(ssh_hosts.connect(address or self.address, sent, self.said.append))

    def sign(self, name: str, text: str = "") -> None:
        (self.signs / name).write_text(text)

    def tasks(self) -> list[Path]:
        return [*self.cache.glob("fleet/task-*")]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    signs, binaries = tmp_path / "signs", tmp_path / "bin"
    signs.mkdir()
    binaries.mkdir()
    (binaries / "ssh").write_text(f"#!{sys.executable} -IS{STAND_IN}")
    (binaries / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(signs))
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    with ExitStack() as open_hosts:
        yield Board(signs, tmp_path / "cache", open_hosts)


def wait_until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAITS_S
    while not holds():
        assert time.monotonic() < limit, "it never came to it"
        time.sleep(0.01)


def make_task(name: str = "one", **how: Any) -> Task:
    return Task(words=("job", "{run}"), name=name, **how)


def run(hosts: SshHosts, name: str = "one", **how: Any) -> Answer:
    return hosts.run(hosts.places[0], make_task(name, **how))


class Begun(Thread):
    """A task that another thread waits for; `ended` is its answer or error."""

    def __init__(self, hosts: SshHosts) -> None:
        super().__init__(daemon=True)
        self.hosts, self.ended = hosts, list[Answer | NodeLost]()
        self.start()

    def run(self) -> None:
        try:
            self.ended.append(run(self.hosts))
        except NodeLost as lost:
            self.ended.append(lost)

    def wait(self) -> Any:
        self.join(WAITS_S)
        return self.ended[0]


def files(data: bytes) -> dict[str, str]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    return {name: archive.read(name).decode() for name in archive.namelist()}


def interpreter(folder: Path, before: str = "", *options: str) -> str:
    """The address of a host whose Python does something before all else."""
    path = folder / "python"
    run = f"{before}\nimport sys; exec(sys.argv[1])"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {' '.join(options)} -c '{run}' \"$2\"\n")
    path.chmod(0o755)
    return f"ssh://board{path}"


@pytest.mark.parametrize(
    ("text", "host", "port", "python"),
    [
        ("ssh://board", "board", "", "python3"),
        ("ssh://me@board.local:2222", "me@board.local", "2222", "python3"),
        ("ssh://board/opt/venv/bin/python", "board", "", "/opt/venv/bin/python"),
        ("ssh://[::1]", "::1", "", "python3"),
        ("ssh://me@[fe80::1]:22/usr/bin/python3.12", "me@fe80::1", "22", "/usr/bin/python3.12"),
    ],
)
def test_an_address_names_host_port_and_python(text: str, host: str, port: str, python: str):
    (found,) = read_addresses(text)
    assert (found.host, found.port, found.python) == (host, port, python)
    assert found.command[found.command.index("--") + 1] == host
    assert read_addresses(found.url) == [found], "a run's folder holds it, and `ship --on` reads it again"
    assert found.url == text


@pytest.mark.parametrize(
    "text", ["board", "ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://board:http", "ssh://a,b", "ssh://a;b"]
)
def test_what_is_no_address_is_refused_with_the_form(text: str):
    with pytest.raises(UsageError, match=r"is not of the form ssh://\[USER@\]HOST"):
        read_addresses(text)


def test_a_task_s_answer_and_folder_come_back(board: Board):
    job = "keep(pathlib.Path('data.txt').read_text()); tell('to hear'); print('to read'); sys.exit(4)"
    hosts = board.connect(job, **{"data.txt": "mine"})
    found = run(hosts)
    assert (found.code, found.printed, found.said) == (4, "to read\n", "to hear")
    assert files(found.folder) == {"journal.jsonl": "mine"}
    assert board.said == ["board: to hear"]
    run(hosts, name="")
    assert len(board.tasks()) == 1, "that of the task with a name, in which it goes on"


def test_what_a_host_has_is_not_sent_again(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sent, write = list[tuple[str, ...]](), ssh_hosts.write_tar

    def noted(into: Any, contents: Mapping[str, Any]) -> None:
        sent.append(tuple(contents))
        write(into, contents)

    monkeypatch.setattr(ssh_hosts, "write_tar", noted)
    made, place = tmp_path / "made", f"exported/{'a' * 64}"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "weights").write_bytes(b"w" * 5_000)
    (made / "one").write_bytes(b"1")
    hosts = board.connect()
    run(hosts, sent={place: {"deep/weights": made / "deep" / "weights"}})
    assert (board.cache / place / "deep" / "weights").read_bytes() == b"w" * 5_000
    assert sent == [("job.py",), (), ("deep/weights",)]
    both: dict[str, Path | bytes] = {name: made / name for name in ("deep/weights", "one")}
    run(board.connect(), "other", sent={place: both})
    assert sent[3:] == [("one",)]
    assert (board.cache / place / "one").read_bytes() == b"1"
    assert not [*(board.cache / "fleet").glob("new-*")]


def test_a_cut_connection_ends_the_task_and_the_same_command_goes_on_with_what_it_measured(board: Board):
    begun = Begun(
        board.connect("""
try:
    keep("one restart")
    tell("begun")
    wait_for("never")
except KeyboardInterrupt:
    keep("one restart, ended in order")
    (signs / "ended").touch()
""")
    )
    wait_until(lambda: "board: begun" in board.said)
    os.kill(int((board.signs / "pid").read_text()), signal.SIGKILL)
    assert str(begun.wait()) == "the connection was lost; the same command goes on with what was measured"
    wait_until(lambda: (board.signs / "ended").exists())
    again = board.connect("keep((run / 'journal.jsonl').read_text() + ', more')")
    assert files(run(again).folder) == {"journal.jsonl": "one restart, ended in order, more"}
    fresh = board.connect("keep(str((run / 'journal.jsonl').exists()))")
    assert files(run(fresh, is_new=True).folder) == {"journal.jsonl": "False"}, "and a new run starts over"


def test_a_task_that_is_stopped_keeps_what_it_has(board: Board):
    hosts = board.connect("""
try:
    keep("one restart")
    tell("begun")
    wait_for("never")
except KeyboardInterrupt:
    sys.exit(130)
""")
    begun = Begun(hosts)
    wait_until(lambda: "board: begun" in board.said)
    hosts.stop()
    found = begun.wait()
    assert (found.code, files(found.folder)) == (130, {"journal.jsonl": "one restart"})


def test_a_task_that_could_not_be_written_is_none_that_was_begun(board: Board, tmp_path: Path):
    full = """
import errno, zipfile
def fail(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
zipfile.ZipFile.extractall = fail
"""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("one")
    data = node_side.zip_folder(tmp_path / "run")
    address = interpreter(tmp_path, full)
    with pytest.raises(NodeLost, match="No space left on device; set SHOOTOUT_CACHE"):
        run(board.connect(address=address), folder=data)
    assert board.tasks() == []
    interpreter(tmp_path)
    assert files(run(board.connect(address=address), folder=data).folder) == {"journal.jsonl": "one"}


def test_a_host_that_never_answered_is_refused_with_what_has_to_work(board: Board):
    board.sign("down")
    with pytest.raises(UsageError, match=r"port 22: Connection refused\); `ssh board true` has to work first"):
        board.connect()


def test_a_python_that_is_not_there_is_named_with_how_to_name_another(board: Board):
    with pytest.raises(UsageError, match=r"/no/python there ended with 127: .*named as ssh://board:22/PATH/TO/PYTHON"):
        board.connect(address="ssh://board:22/no/python")


def test_a_python_that_is_too_old_is_named_with_its_version(board: Board, tmp_path: Path):
    old = interpreter(tmp_path, "import sys; sys.version_info = (3, 9, 2)")
    with pytest.raises(UsageError, match=r"it is Python 3\.9, and shootout needs 3\.11 or newer"):
        board.connect(address=old)


@pytest.mark.parametrize("greeting", ["Welcome to board", "2026", "[]"])
def test_what_a_host_s_shell_prints_is_no_answer(board: Board, greeting: str):
    board.sign("greeting", f"{greeting}\n")
    told = rf"it printed '{re.escape(greeting)}' .* let its shell print nothing"
    with pytest.raises(UsageError, match=told):
        board.connect()


@pytest.fixture
def sends(board: Board, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes commands send a package whose command line is this in place of their own."""

    def send(job: str) -> None:
        code = LIBRARY.replace("sys.argv[1]", "sys.argv[min(2, len(sys.argv) - 1)]") + job
        package = {"shootout/__init__.py": b"", "shootout/cli.py": code.encode()}
        monkeypatch.setattr(fleet, "pack_package", lambda: Parcel(package=package))

    return send


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Ships a target of a run there, into the folder `model` here."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("the run")
    source = SimpleNamespace(arm=SimpleNamespace(label="litert:cpu:fp32"), row=SimpleNamespace(group="g"))
    monkeypatch.setattr(fleet, "find_arm_to_ship", lambda *_: source)

    def made(address: str, policy: Policy | None = None) -> int:
        return ship_there(address, tmp_path / "run", tmp_path / "model", target=None, policy=policy, group=None)

    return made


def test_a_host_s_doctor_is_printed_and_its_code_is_the_commands(
    board: Board, sends: Callable[[str], None], capsys: pytest.CaptureFixture[str]
):
    sends("""print(f"{sys.argv[1:]}\\033[2J"); sys.exit(3)""")
    assert doctor_there(board.address, as_json=False) == 3
    assert capsys.readouterr().out == "['doctor'][2J\n", "and nothing that steers the terminal"
    assert board.tasks() == []


def test_what_a_host_ships_is_copied_and_no_file_leaves_the_folder(
    board: Board,
    sends: Callable[[str], None],
    ship: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    sends("""
for start in ("checked", "next, where it runs", "before something replaces it"):
    tell(f"{start}:  command {run}")
made = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
(made / "model").mkdir(parents=True)
(made / "model" / "model.tflite").write_text(f"{sys.argv[5:]}{(run / 'journal.jsonl').read_text()}")
""")
    assert ship(board.address) == 0
    said = capsys.readouterr().err
    folder = tmp_path / "model"
    assert said.count("board: ") == said.count("board: checked:") == 1
    assert said.splitlines()[-3:] == [
        f"copied to {folder}",
        f"next, where it runs:  pip install -r {folder}/requirements.txt && python {folder}/check.py",
        f"before something replaces it:  shootout gate {folder}",
    ], "the folder there is gone"
    (made,) = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert made == tmp_path / "model/model/model.tflite"
    assert made.read_text() == "['--target', 'litert:cpu:fp32', '--group', 'g']the run"
    shutil.rmtree(tmp_path / "model")
    assert ship(board.address, policy=read_policy(None, {"p99": "5ms", "max-error": "1%"})) == 0
    assert made.read_text() == "['--p99', '5ms', '--max-error', '1%']the run", "which decides there as here"
    with pytest.raises(UsageError, match="already exists"):
        ship(board.address)


def test_a_host_that_does_not_ship_leaves_no_folder(
    board: Board,
    sends: Callable[[str], None],
    ship: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    sends("tell('shootout: the model is gone'); sys.exit(2)")
    assert ship(board.address) == 2
    assert "board: shootout: the model is gone" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    with pytest.raises(UsageError, match="--on 'ray:auto' is not of the form ssh://"):
        ship("ray:auto")
    with pytest.raises(UsageError, match="this command is for one host: name it alone"):
        ship(f"{board.address},ssh://other{sys.executable}")


def test_the_page_lists_what_a_board_needs():
    """First what every board needs, then a line for each runtime, with packages that its extra has."""
    page = (ROOT / "docs/fleet.md").read_text()
    told = re.findall(r"^~/bench/bin/pip install (.*)", page, re.M)
    again = re.compile(r"; ~/bench/bin/pip install --no-deps")
    needed, *lines = [again.sub("", line.split("#")[0]).split() for line in told]
    assert sorted(needed) == sorted(needed_packages())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line, name in zip(lines, ("onnxruntime", "litert", "openvino", "ncnn", "iree"), strict=True):
        assert set(line) <= {Requirement(text).name for text in extras[name]}
        entry = backends.shipped()[name]
        assert all(set(either.split("|")) & set(line) for either in entry.installs[""])
        if name != "litert":  # whose builds are sent
            assert set(entry.makers) <= set(line)
