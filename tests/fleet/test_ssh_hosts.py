"""Jobs on hosts by ssh: all is real but the network. `ssh` is a stand-in that runs the command in a shell here."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import signal
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from shootout import backends
from shootout.clock import utc_in
from shootout.commands import elsewhere
from shootout.commands.elsewhere import doctor_there, ship_there
from shootout.errors import UsageError
from shootout.export.delivery import Delivery, list_files
from shootout.fleet import node_side, parcel, ssh_hosts
from shootout.fleet.node_side import ANSWER
from shootout.fleet.nodes import NodeLost
from shootout.fleet.parcel import Parcel
from shootout.fleet.ssh_hosts import Address, SshHosts, SshJob, needed_packages, read_addresses

ROOT = Path(__file__).resolve().parents[2]
WAITS_S = 30.0
"""Of a test, for what takes a fraction of a second."""
STAND_IN = """#!/bin/sh
echo "$@" >> "$STAND_IN/called"
while [ "$1" != -- ]; do shift; done
shift 2
if [ -e "$STAND_IN/down" ]; then
    echo 'ssh: connect to host board port 22: Connection refused' >&2
    exit 255
fi
if [ -e "$STAND_IN/cut" ]; then
    bytes=$(cat "$STAND_IN/cut")
    rm "$STAND_IN/cut"
    head -c "$bytes" | sh -c "$*" > "$STAND_IN/refused" 2>&1
    exit 255
fi
if [ -e "$STAND_IN/greeting" ]; then cat "$STAND_IN/greeting"; fi
echo $$ > "$STAND_IN/pid"
exec sh -c "$*"
"""
"""It notes its words and its process. Files beside them make the host unreachable, cut what is sent, or greet."""
LIBRARY = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
words = json.loads((folder / "job.json").read_text())
signs = pathlib.Path(os.environ["STAND_IN"])
signal.signal(signal.SIGINT, signal.default_int_handler)

def answer(**told):
    (folder / "answer.json").write_text(json.dumps({"code": 0, **told}))

def keep(text):
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "journal.jsonl").write_text(text)

def wait_for(name):
    limit = time.monotonic() + 30
    while not (signs / name).exists() and time.monotonic() < limit:
        time.sleep(0.01)
"""
"""What each job here begins with."""


class Board:
    """The host, by its stand-in: `signs` is the stand-in's folder, `cache` the host's, `said` what was heard of it."""

    def __init__(self, folder: Path, cache: Path, open_hosts: ExitStack) -> None:
        self.signs, self.cache, self.said = folder, cache, list[str]()
        self.address = f"ssh://board{sys.executable}"
        self._open_hosts = open_hosts

    def connect(self, job: str = "", *, address: str = "", out: str = "out", **contents: str) -> SshHosts:
        """Reach the host with a package whose entry is `job`, and files of the user's with these contents."""
        package = parcel._zip_contents({"job.py": (LIBRARY + job).encode()})
        files = parcel._zip_contents({name: text.encode() for name, text in contents.items()})
        sent = Parcel(package=package, files=files, fields={}, names=())
        hosts = ssh_hosts.connect(address or self.address, sent, out, self.said.append)
        return self._open_hosts.enter_context(hosts)

    def has(self, name: str) -> bool:
        return (self.signs / name).exists()

    def sign(self, name: str, text: str = "") -> None:
        (self.signs / name).write_text(text)

    def jobs(self) -> list[Path]:
        return [*self.cache.glob("fleet/job-*")]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    signs, binaries = tmp_path / "signs", tmp_path / "bin"
    signs.mkdir()
    binaries.mkdir()
    (binaries / "ssh").write_text(STAND_IN)
    (binaries / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(signs))
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ssh_hosts, "ENTRY", "job")
    monkeypatch.setattr(ssh_hosts, "AGAIN_S", 0.05)
    source = inspect.getsource(node_side)
    assert "LOOK_S = 0.5\n" in source
    monkeypatch.setattr(ssh_hosts.inspect, "getsource", lambda _: source.replace("LOOK_S = 0.5\n", "LOOK_S = 0.02\n"))
    with ExitStack() as open_hosts:
        yield Board(signs, tmp_path / "cache", open_hosts)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that files are sent to, each time."""
    places, put = list[str](), ssh_hosts._put

    def noted(address: Address, place: str, *sent: Any) -> Any:
        places.append(place)
        return put(address, place, *sent)

    monkeypatch.setattr(ssh_hosts, "_put", noted)
    return places


def wait_until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAITS_S
    while not holds():
        assert time.monotonic() < limit, "it never came to it"
        time.sleep(0.01)


def measure(hosts: SshHosts, **how: Any) -> SshJob:
    return hosts.measure(hosts.nodes(), {"do": "measure", "ends_utc": None}, **how)


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


def test_a_host_is_named_once():
    with pytest.raises(UsageError, match="names ssh://board twice"):
        read_addresses("ssh://other,ssh://board,ssh://board")


def test_a_job_s_answer_and_folder_come_back_and_nothing_of_it_stays(board: Board):
    hosts = board.connect("keep(pathlib.Path('data.txt').read_text()); answer(on=words['on'])", **{"data.txt": "mine"})
    begun = measure(hosts)
    found = hosts.result(begun)
    assert (found["code"], found["on"]) == (0, board.address)
    assert files(found["folder"]) == {"journal.jsonl": "mine"}
    assert len(board.jobs()) == 1
    hosts.release(begun)
    assert board.jobs() == []


def test_what_a_host_has_is_not_sent_again(board: Board, sent: list[str], tmp_path: Path):
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "weights").write_bytes(b"w" * 5_000)
    place = f"exported/{'a' * 64}"
    hosts = board.connect()
    hosts.result(measure(hosts, delivered={place: list_files(made)}))
    assert (board.cache / place / "deep" / "weights").read_bytes() == b"w" * 5_000
    assert len(sent) == 3, "the package, the files, and what was delivered"
    again = board.connect(out="another")
    again.result(measure(again, delivered={place: list_files(made)}))
    assert len(sent) == 3
    board.connect("answer(other=1)")
    assert len(sent) == 4, "another package"


@pytest.mark.long
def test_a_host_that_has_some_files_of_a_folder_is_sent_the_others(board: Board, sent: list[str], tmp_path: Path):
    made, place = tmp_path / "made", f"exported/{'a' * 64}"
    (made / "deep").mkdir(parents=True)
    for name in ("one", "two", "deep/three"):
        (made / name).write_text(name)
    every = list_files(made)
    hosts = board.connect()
    for names in (["one"], ["one", "two"], [*every]):
        (made / "one").write_text(" and ".join(names))
        hosts.result(measure(hosts, delivered={place: {name: every[name] for name in names}}))
    assert {name: path.read_text() for name, path in list_files(board.cache / place).items()} == {
        name: name for name in every
    }, "what was there isn't sent again"
    assert sent.count(place) == 3
    assert not [*(board.cache / "fleet").glob("new-*")]


def test_a_job_goes_on_behind_the_folder_that_comes_with_it(board: Board, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("one ")
    hosts = board.connect("keep((folder / 'run' / 'journal.jsonl').read_text() + 'more'); answer()")
    found = hosts.result(measure(hosts, folder=node_side.zip_folder(tmp_path / "run")))
    assert files(found["folder"]) == {"journal.jsonl": "one more"}


def test_a_cut_connection_costs_nothing_and_each_line_is_said_once(board: Board):
    hosts = board.connect(
        "print('first', flush=True); print('sec', end='', flush=True); wait_for('go'); print('ond'); answer(n=1)"
    )
    begun = measure(hosts)
    wait_until(lambda: "board: first" in board.said)
    os.kill(int((board.signs / "pid").read_text()), signal.SIGKILL)
    wait_until(lambda: any("the connection was lost" in line for line in board.said))
    board.sign("go")
    assert hosts.result(begun)["n"] == 1
    assert [line for line in board.said if "lost" not in line] == ["board: first", "board: second"]
    assert board.said.count("board: the connection was lost; trying again") == 1


@pytest.mark.long
@pytest.mark.parametrize("into_next", [0, 700], ids=["between files", "within a file"])
def test_what_was_sent_in_part_is_refused_and_sent_again(
    board: Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, into_next: int
):
    made, place = tmp_path / "made", f"exported/{'b' * 64}"
    made.mkdir()
    for name in ("one", "two"):
        (made / name).write_bytes(name.encode() * 150)  # a header and a block of 512 bytes each
    put, times = ssh_hosts._put, list[str]()

    def cut_first(address: Address, name: str, *sent: Any) -> Any:
        if name == place:
            assert not (board.cache / place).exists()
            times.append(name)
        if len(times) == 1 and name == place:
            source = ssh_hosts.inspect.getsource(node_side).encode()
            asked = json.dumps({"verb": "put", "places": {place: ["one", "two"]}, "members": 2}).encode()
            board.sign("cut", str(len(b"%d\n%b%b\n" % (len(source), source, asked)) + 1024 + into_next))
        return put(address, name, *sent)

    monkeypatch.setattr(ssh_hosts, "_put", cut_first)
    hosts = board.connect("answer()")
    assert hosts.result(measure(hosts, delivered={place: list_files(made)}))["code"] == 0
    assert len(times) == 2
    refused = (board.signs / "refused").read_text()
    assert ("unexpected end of data" if into_next else "the connection was lost") in refused
    assert sorted(path.name for path in (board.cache / place).iterdir()) == ["one", "two"]
    assert not [*(board.cache / "fleet").glob("new-*")], "nothing half-made is left"


ASKS = """
def ask(number):
    (folder / "asked.new").write_text(json.dumps({"number": number, "groups": ["g"]}))
    (folder / "asked.new").rename(folder / "asked.json")
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            given = json.loads((folder / "given.json").read_text())
            if given["number"] == number:
                (folder / "asked.json").unlink()
                return given
        except FileNotFoundError:
            pass
        time.sleep(0.01)
"""
"""A job that asks for exports on its way, as `shootout.commands.node` does."""


def test_a_job_that_asks_for_exports_on_its_way_gets_them(board: Board, tmp_path: Path, sent: list[str]):
    made, asked = tmp_path / ("b" * 64), list[Sequence[Any]]()
    made.mkdir()
    (made / "engine").write_text("e")

    def supply(groups: Sequence[Any]) -> Delivery:
        asked.append(groups)
        if len(asked) > 1:
            raise UsageError("it can't be exported")
        return Delivery(made_on="it", models={}, builds={"one": made})

    hosts = board.connect(f"{ASKS}\nanswer(first=ask(1), second=ask(2), heard=(folder / 'heard').exists())")
    found = hosts.result(measure(hosts, supply=supply))
    assert found["first"]["delivery"]["made_on"] == "it"
    assert found["second"] == {"number": 2, "error": "it can't be exported"}
    assert found["heard"]
    assert asked == [["g"], ["g"]]
    assert sent[-1] == f"fleet/{made.name}"
    assert (board.cache / sent[-1] / "engine").read_text() == "e"


@pytest.mark.long
def test_a_question_is_heard_by_the_next_connection_if_one_was_cut(board: Board):
    asked = list[Sequence[Any]]()

    def supply(groups: Sequence[Any]) -> Delivery:
        asked.append(groups)
        if len(asked) == 1:
            os.kill(int((board.signs / "pid").read_text()), signal.SIGKILL)
        return Delivery(made_on="it", models={})

    hosts = board.connect(f"{ASKS}\nanswer(first=ask(1), second=ask(2))")
    found = hosts.result(measure(hosts, supply=supply))
    assert [found[name]["delivery"]["made_on"] for name in ("first", "second")] == ["it", "it"]
    assert len(asked) >= 2


@pytest.mark.long
def test_the_same_command_finds_the_job_that_an_ended_one_began(board: Board):
    job = "print('begun', flush=True); wait_for('go'); print('done'); answer(pid=os.getpid())"
    first = board.connect(job)
    left = measure(first)
    wait_until(lambda: "board: begun" in board.said)
    first.close()
    with pytest.raises(NodeLost):
        first.result(left)
    first.release(left)
    (folder,) = board.jobs()
    pid = int((folder / "pid").read_text())

    board.said.clear()
    again = board.connect(job)
    begun = measure(again)
    wait_until(lambda: "board: begun" in board.said)
    board.sign("go")
    assert again.result(begun)["pid"] == pid
    assert board.said == ["board: going on with what an earlier command began there", "board: begun", "board: done"]


@pytest.mark.long
def test_a_command_that_writes_elsewhere_begins_a_job_of_its_own(board: Board):
    one, other = board.connect("answer()", out="one"), board.connect("answer()", out="other")
    one.result(measure(one))
    other.result(measure(other))
    assert len(board.jobs()) == 2
    assert board.said == []


@pytest.mark.long
def test_a_job_of_other_files_is_none_that_an_earlier_command_began(board: Board):
    job = "answer(data=pathlib.Path('data.txt').read_text())"
    for text in ("one", "other"):
        hosts = board.connect(job, **{"data.txt": text})
        assert hosts.result(measure(hosts))["data"] == text
    assert len(board.jobs()) == 2
    assert board.said == []


@pytest.mark.long
def test_a_job_that_is_stopped_while_its_files_are_sent_never_begins(
    board: Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    made, place = tmp_path / "made", f"exported/{'c' * 64}"
    made.mkdir()
    (made / "weights").write_bytes(b"w" * 5_000)
    put, is_sending, may_go_on = ssh_hosts._put, Event(), Event()

    def slow(*sent: Any) -> Any:
        is_sending.set()
        assert may_go_on.wait(WAITS_S)
        return put(*sent)

    hosts = board.connect("answer()")
    monkeypatch.setattr(ssh_hosts, "_put", slow)
    begun = measure(hosts, delivered={place: list_files(made)})
    assert is_sending.wait(WAITS_S)
    hosts.stop(begun)
    may_go_on.set()
    with pytest.raises(NodeLost, match="its job was stopped before it began"):
        hosts.result(begun)
    assert not (board.cache / place).exists(), "sending ended in the middle"
    assert board.jobs() == []


def test_a_command_that_ends_while_files_are_sent_begins_nothing(board: Board, monkeypatch: pytest.MonkeyPatch):
    hosts = board.connect("answer()")
    monkeypatch.setattr(hosts, "_send_lacking", lambda *_: hosts.close())
    with pytest.raises(NodeLost, match="this command has ended"):
        hosts.result(measure(hosts))
    assert board.jobs() == []


@pytest.mark.long
def test_a_job_that_is_stopped_while_it_begins_is_stopped_once(board: Board, monkeypatch: pytest.MonkeyPatch):
    hosts = board.connect("""
try:
    (signs / "up").touch()
    wait_for("never")
except KeyboardInterrupt:
    answer(code=130)
""")
    ask, verbs, given = ssh_hosts._ask, list[str](), list[SshJob]()

    def stop_at_begin(address: Address, request: Any, *write: Any) -> Any:
        verbs.append(request["verb"])
        answer = ask(address, request, *write)
        if request["verb"] == "begin":
            wait_until(lambda: bool(given) and board.has("up"))
            hosts.stop(given[0])
        return answer

    monkeypatch.setattr(ssh_hosts, "_ask", stop_at_begin)
    given.append(measure(hosts))
    assert hosts.result(given[0])["code"] == 130
    assert verbs.count("stop") == 1


@pytest.mark.long
def test_a_file_that_is_gone_before_it_is_sent_fails_that_host_s_job_alone(
    board: Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    made, put = tmp_path / "made", ssh_hosts._put
    made.mkdir()
    (made / "weights").write_bytes(b"w")
    hosts = board.connect("answer()")

    def put_late(*sent: Any) -> Any:
        (made / "weights").unlink()
        return put(*sent)

    monkeypatch.setattr(ssh_hosts, "_put", put_late)
    begun = measure(hosts, delivered={f"exported/{'d' * 64}": list_files(made)})
    with pytest.raises(NodeLost, match=r"FileNotFoundError: .*weights"):
        hosts.result(begun)
    assert board.jobs() == []


def test_a_job_that_is_stopped_keeps_what_it_has(board: Board):
    hosts = board.connect("""
try:
    keep("one restart")
    print("begun", flush=True)
    wait_for("never")
except KeyboardInterrupt:
    answer(error="interrupted", code=130)
""")
    begun = measure(hosts)
    wait_until(lambda: "board: begun" in board.said)
    hosts.stop(begun)
    found = hosts.result(begun)
    assert (found["code"], found["error"]) == (130, "interrupted")
    assert files(found["folder"]) == {"journal.jsonl": "one restart"}


def test_a_job_that_dies_says_its_last_words(board: Board):
    hosts = board.connect("sys.exit('no memory was left')")
    found = hosts.result(measure(hosts))
    assert (found["code"], found["error"]) == (1, "the process ended with code 1: no memory was left")


@pytest.mark.long
def test_a_job_whose_host_started_anew_is_said_to_be_gone(board: Board):
    hosts = board.connect("wait_for('never')")
    begun = measure(hosts)
    wait_until(lambda: any((folder / "pid").exists() for folder in board.jobs()))
    job = int((board.jobs()[0] / "pid").read_text())
    supervisor = int(Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(job, signal.SIGKILL)
    assert hosts.result(begun)["error"] == "its process is gone, as after a restart of the host"


@pytest.mark.long
def test_a_host_that_is_lost_for_long_is_given_up_and_what_it_measures_fetched_later(
    board: Board, monkeypatch: pytest.MonkeyPatch
):
    job = "print('begun', flush=True); wait_for('go'); answer(n=1)"
    hosts = board.connect(job)
    monkeypatch.setattr(ssh_hosts, "LOST_S", 0.3)
    begun = measure(hosts)
    wait_until(lambda: "board: begun" in board.said)
    board.sign("down")
    os.kill(int((board.signs / "pid").read_text()), signal.SIGKILL)
    with pytest.raises(NodeLost, match=r"Connection refused.*the same command fetches what it measures meanwhile"):
        hosts.result(begun)
    hosts.release(begun)
    (board.signs / "down").unlink()
    board.sign("go")
    later = board.connect(job)
    assert later.result(measure(later))["n"] == 1
    assert "board: going on with what an earlier command began there" in board.said


def test_a_host_that_never_answered_is_refused_with_what_has_to_work(board: Board):
    board.sign("down")
    with pytest.raises(UsageError, match="port 22: Connection refused; `ssh board true` has to work first"):
        board.connect()


def test_what_has_to_work_first_names_the_port_that_was_typed(board: Board):
    board.sign("down")
    with pytest.raises(UsageError, match="`ssh -p 2201 me@board true` has to work first"):
        board.connect(address="ssh://me@board:2201")


def test_without_a_client_its_package_is_named(board: Board, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="install your system's package openssh-client"):
        board.connect()


def test_a_python_that_is_not_there_is_named_with_how_to_name_another(board: Board):
    with pytest.raises(UsageError, match=r"/no/python there ended with 127: .*named as ssh://board:22/PATH/TO/PYTHON"):
        board.connect(address="ssh://board:22/no/python")


def test_a_python_that_is_too_old_is_named_with_its_version(board: Board, tmp_path: Path):
    old = interpreter(tmp_path, "import sys; sys.version_info = (3, 9, 2)")
    with pytest.raises(UsageError, match=r"it is Python 3\.9, and shootout needs 3\.11 or newer"):
        board.connect(address=old)


def test_packages_that_are_not_there_are_named_with_the_command(board: Board, tmp_path: Path):
    bare = interpreter(tmp_path, "", "-I", "-S")
    with pytest.raises(UsageError, match=r"lacks .*numpy.*; run there: .* -m pip install .*'numpy>=2\.0'") as error:
        board.connect(address=bare)
    assert "torch" not in str(error.value)


def test_a_package_that_is_too_old_is_named_with_its_version(board: Board, tmp_path: Path):
    old = interpreter(
        tmp_path,
        """
from importlib import metadata
version = metadata.version
metadata.version = lambda name: "1.26.4" if name == "numpy" else version(name)
""",
    )
    wants = r"lacks numpy>=2\.0 \(it has 1\.26\.4\); run there: .* -m pip install 'numpy>=2\.0', and"
    with pytest.raises(UsageError, match=wants):
        board.connect(address=old)


@pytest.mark.parametrize("greeting", ["Welcome to board", "2026", "[]"])
def test_what_a_host_s_shell_prints_is_no_answer(board: Board, greeting: str):
    board.sign("greeting", f"{greeting}\n")
    told = rf"it printed '{re.escape(greeting)}' .* let its shell print nothing"
    with pytest.raises(UsageError, match=told):
        board.connect()


@pytest.mark.parametrize("place", ["fleet/../../x", "/etc", "exported/short", f"exported/{'a' * 64}/../../x", "fleet"])
def test_nothing_is_sent_outside_of_the_cache(board: Board, place: str):
    (address,) = read_addresses(board.address)
    with pytest.raises(NodeLost, match="nothing may be sent to"):
        ssh_hosts._put(address, place, {"file": b"x"}, lambda: None)


def test_a_cache_that_cannot_be_written_is_said_with_what_to_do(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match=r"Not a directory: .*/file/cache.*; set SHOOTOUT_CACHE there"):
        board.connect()


def test_a_cache_that_others_can_write_is_refused(board: Board):
    (board.cache / "fleet").mkdir(parents=True)
    (board.cache / "fleet").chmod(0o777)
    with pytest.raises(UsageError, match=r"others can write .* chmod 700 it, or set SHOOTOUT_CACHE"):
        board.connect()


@pytest.mark.long
def test_a_host_whose_clock_is_wrong_ends_when_it_should(board: Board, tmp_path: Path):
    early = """
import datetime as module
class Clock(module.datetime):
    @classmethod
    def now(cls, zone=None):
        return super().now(zone) + module.timedelta(hours=1)
module.datetime = Clock
"""
    hosts = board.connect("answer(ends=words['ends_utc'])", address=interpreter(tmp_path, early))
    ends_utc = utc_in(600.0)
    found = hosts.result(hosts.measure(hosts.nodes(), {"do": "measure", "ends_utc": ends_utc}))
    shifted = datetime.fromisoformat(found["ends"]) - datetime.fromisoformat(ends_utc)
    assert timedelta(hours=1) <= shifted < timedelta(hours=1, seconds=WAITS_S)
    assert datetime.fromisoformat(found["ends"]).tzinfo == UTC


@pytest.mark.long
def test_two_ports_of_one_name_are_two_hosts(board: Board):
    hosts = board.connect("answer()", address=f"ssh://board:1{sys.executable},ssh://board:2{sys.executable}")
    assert len({node.id for node in hosts.nodes()}) == 2
    jobs = [measure(hosts), measure(hosts)]
    assert [hosts.result(job)["code"] for job in jobs] == [0, 0]
    assert [job.address.port for job in jobs] == ["1", "2"]
    assert {*hosts.wait(jobs, 0.0, until_all=True)} == {*jobs}
    called = (board.signs / "called").read_text()
    assert "-p 1 -- board" in called
    assert "-p 2 -- board" in called


@pytest.mark.long
def test_a_job_that_could_not_be_written_is_none_that_was_begun(board: Board, tmp_path: Path):
    job = "answer(n=2)"
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
    hosts = board.connect(job, address=address)
    with pytest.raises(NodeLost, match="No space left on device; free some there, or set SHOOTOUT_CACHE"):
        hosts.result(measure(hosts, folder=data))
    assert board.jobs() == []
    interpreter(tmp_path)
    again = board.connect(job, address=address)
    assert again.result(measure(again, folder=data))["n"] == 2


@pytest.fixture
def sends(board: Board, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes commands send a package whose entry is this job in place of their own."""

    def send(job: str) -> None:
        package = parcel._zip_contents({"job.py": (LIBRARY + job).encode()})
        nothing = Parcel(package=package, files=parcel._zip_contents({}), fields={}, names=())
        monkeypatch.setattr(elsewhere, "pack_nothing", lambda: nothing)

    return send


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Ships a target of a run there, into the folder `model` here."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.jsonl").write_text("the run")
    source = SimpleNamespace(arm=SimpleNamespace(label="litert:cpu:fp32"), row=SimpleNamespace(group="g"))
    monkeypatch.setattr(elsewhere, "find_arm_to_ship", lambda *_: source)

    def made(address: str, policy: Path | None = None) -> int:
        return ship_there(address, tmp_path / "run", tmp_path / "model", target=None, policy=policy, group=None)

    return made


def test_each_host_s_doctor_is_printed_below_its_name_and_the_worst_code_counts(
    board: Board, sends: Callable[[str], None], capsys: pytest.CaptureFixture[str]
):
    sends("""
answer(code=3 * (signs / "second").exists(), printed=f"env {words['env']}\\033[2J\\n")
(signs / "second").touch()
""")
    assert doctor_there(board.address, {"env": ["HF_HOME"]}, as_json=False) == 0
    assert capsys.readouterr().out == "env ['HF_HOME'][2J\n", "and nothing that steers the terminal"
    both = f"{board.address},ssh://other{sys.executable}"
    assert doctor_there(both, {}, as_json=False) == 3
    first, _, second, _ = capsys.readouterr().out.splitlines()
    assert (first.split()[0], second.split()[0]) == ("board", "other")
    assert board.jobs() == []


@pytest.mark.long
def test_hosts_of_one_name_are_told_apart_by_port_and_python(
    board: Board, sends: Callable[[str], None], capsys: pytest.CaptureFixture[str]
):
    sends("answer(printed='works\\n')")
    assert doctor_there(f"ssh://board:1{sys.executable},ssh://board:2{sys.executable}", {}, as_json=False) == 0
    first, _, second, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in (first, second)] == [f"board:{port}{sys.executable}" for port in (1, 2)]
    assert board.jobs() == [], "each host's answer was taken"


def test_what_a_host_ships_is_copied_and_no_file_leaves_the_folder(
    board: Board, sends: Callable[[str], None], ship: Callable[..., int], tmp_path: Path
):
    sends("""
made = folder / "run" / "shipped"
(made / "model").mkdir(parents=True)
(made / "model" / "model.tflite").write_text(words["target"] + (folder / "run" / "journal.jsonl").read_text())
answer()
""")
    assert ship(board.address) == 0
    assert [path for path in (tmp_path / "model").rglob("*") if path.is_file()] == [
        tmp_path / "model/model/model.tflite"
    ]
    assert (tmp_path / "model/model/model.tflite").read_text() == "litert:cpu:fp32the run"
    with pytest.raises(UsageError, match="already exists"):
        ship(board.address)


def test_a_run_is_shipped_on_one_host(board: Board, ship: Callable[..., int]):
    with pytest.raises(UsageError, match="a run is shipped on the host that measured it; name that one alone"):
        ship(f"{board.address},ssh://other{sys.executable}")
    assert not board.has("called"), "before anything is reached"


def test_a_host_that_names_files_outside_of_what_it_ships_gets_none_there(
    board: Board,
    sends: Callable[[str], None],
    ship: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in ("shipped/../../outside", "shipped//etc/shootout-outside", "shipped/load.py", "journal.jsonl"):
            archive.writestr(name, "x")
    sends("answer()")
    monkeypatch.setattr(SshHosts, "result", lambda *_: {"code": 0, "folder": made.getvalue()})
    assert ship(board.address) == 0
    assert not [*tmp_path.glob("outside")]
    found = {str(path.relative_to(tmp_path / "model")) for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert found == {"outside", "etc/shootout-outside", "load.py"}


@pytest.mark.long
def test_a_host_that_does_not_ship_leaves_no_folder(
    board: Board, sends: Callable[[str], None], ship: Callable[..., int], tmp_path: Path
):
    sends("answer(code=3)")
    assert ship(board.address) == 3
    sends("answer(error='the model is gone', code=2)")
    with pytest.raises(UsageError, match=r"board \(.*\): the model is gone"):
        ship(board.address)
    assert not (tmp_path / "model").exists()
    with pytest.raises(UsageError, match="`shootout decide` names its choice; pass that with --target"):
        ship(board.address, policy=Path("policy.toml"))
    with pytest.raises(UsageError, match="--on 'ray:auto' is not of the form ssh://"):
        ship("ray:auto")


def test_the_answer_s_file_is_the_one_that_a_job_writes():
    assert f'"{ANSWER}"' in LIBRARY


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
        entry = backends.SHIPPED[name]
        assert all(set(either.split("|")) & set(line) for either in entry.installs[""])
        if name != "litert":  # whose builds are sent
            assert set(entry.makers) <= set(line)
