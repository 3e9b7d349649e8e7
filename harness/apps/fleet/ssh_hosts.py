"""Run tasks on hosts by ssh. OpenSSH's client does the connecting: keys, `~/.ssh/config`.

A task outlives the connection that began it. So a lost connection costs nothing: the next one follows the task further,
or takes what it left.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Event
from typing import IO, Any

from packaging.requirements import Requirement

from shootout.apps.fleet import node_side
from shootout.apps.fleet.parcel import Parcel, write_tar
from shootout.apps.fleet.transport import Answer, NodeLost, Place, Task
from shootout.core.clock import Deadline
from shootout.core.errors import ShootoutError, UsageError, one_line
from shootout.core.units import size, span
from shootout.tell.delivery import Contents

SCHEME = "ssh://"
_TIMES = {"ConnectTimeout": 10, "ServerAliveInterval": 5, "ServerAliveCountMax": 3}
OPTIONS = ("-o", "BatchMode=yes", *(word for name, value in _TIMES.items() for word in ("-o", f"{name}={value}")))
"""Nothing is asked on the terminal, and a dead connection is noticed after 15 s; a user's own config adds to it."""
PLAIN, PYTHON = "python3", (3, 11)
"""The Python of a host where none is named, and the oldest that there may be."""
WEIGHTS_READER = "safetensors"
"""It belongs to extras, of which each that runs a model's weights has it."""
LOST_S = 120.0
"""The time after which a host that can't be reached is lost; the same command fetches what it measures meanwhile."""
AGAIN_S = 2.0
"""So long after a connection was lost, the next one is tried."""
LARGE = 10_000_000
"""So many bytes are worth a line before they are sent."""
LAST_LINES = 2
"""So much of what OpenSSH or a Python says at its end is shown."""
_BOOT = (
    f"import sys; sys.version_info >= {PYTHON} or sys.exit('it is Python %d.%d, and shootout needs "
    f"{'.'.join(map(str, PYTHON))} or newer' % sys.version_info[:2]); "
    "n = int(sys.stdin.buffer.readline()); exec(compile(sys.stdin.buffer.read(n), 'node', 'exec'))"
)
"""The program of a host's Python, older ones among them: it reads the length of another program, and that."""
_NOT_CONNECTED = 255
"""OpenSSH's exit code if the connection failed or was lost; any other is the command's own."""


class ConnectionLost(ShootoutError):
    """Report that a connection failed or ended early; the message is OpenSSH's.

    Attributes:
        heard: whether the host had answered something before.
    """

    heard = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host, as `ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON]` names it."""

    host: str
    port: str = ""
    python: str = PLAIN

    def __str__(self) -> str:
        """Return the name for people."""
        return self.host

    @property
    def url(self) -> str:
        """Return the text that names it in `--on`, as `read_addresses` takes it."""
        user, at, name = self.host.rpartition("@")
        host = f"{user}{at}[{name}]" if ":" in name else self.host  # IPv6: or its last group would be a port
        port, python = f":{self.port}" if self.port else "", self.python if self.python != PLAIN else ""
        return f"{SCHEME}{host}{port}{python}"

    @property
    def client(self) -> list[str]:
        """Return the words of OpenSSH's client that a person types to reach it."""
        return ["ssh", *(["-p", self.port] if self.port else []), self.host]

    @property
    def command(self) -> list[str]:
        """Return the command line that runs what is sent on stdin there."""
        ssh, *port, host = self.client
        return [ssh, *OPTIONS, *port, "--", host, f"exec {shlex.quote(self.python)} -c {shlex.quote(_BOOT)}"]


def read_addresses(text: str) -> list[Address]:
    """Read `ssh://…,ssh://…`.

    Raises:
        UsageError: one is of another form, or there twice.
    """
    found = []
    for word in text.split(","):
        parts = re.fullmatch(
            r"ssh://((?:[\w.+-]+@)?[\w.-]+|(?:[\w.+-]+@)?\[[0-9a-fA-F:]+\])(?::(\d+))?(/.+)?", word.strip()
        )
        if parts is None or parts[1].startswith("-"):
            raise UsageError(f"--on {word!r} is not of the form ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON]")
        address = Address(
            host=parts[1].replace("[", "").replace("]", ""), port=parts[2] or "", python=parts[3] or PLAIN
        )
        if address in found:
            raise UsageError(f"--on names {address.url} twice: name each host once")
        found.append(address)
    return found


@contextmanager
def connect(text: str, parcel: Parcel, say: Callable[[str], None]) -> Iterator[SshHosts]:
    """Reach every host once, and send each what it lacks of this package and of the study's files.

    Args:
        text: as `read_addresses` takes it.
        say: hears what hosts tell, and of lost connections.

    Raises:
        UsageError: OpenSSH's client isn't there, or a host can't be used; says what to do.
    """
    addresses = read_addresses(text)
    if shutil.which("ssh") is None:
        raise UsageError("--on ssh://HOST needs OpenSSH's client, `ssh`: install your system's package openssh-client")
    hosts = SshHosts(parcel, say)
    try:
        for address in addresses:
            alike = [one for one in addresses if one.host == address.host]
            hosts.look(address, address.url.removeprefix(SCHEME) if len(alike) > 1 else str(address))
        yield hosts
    finally:
        hosts.close()


@dataclass
class SshHosts:
    """Hosts that this process has reached; a `Transport`."""

    exports_there = False
    late = NodeLost("--max-time was over before its result came; the same command fetches it")

    parcel: Parcel
    say: Callable[[str], None]
    _hosts: dict[Place, Address] = field(default_factory=dict, init=False)
    _requests: dict[subprocess.Popen[bytes], bool] = field(default_factory=dict, init=False)
    _stopped: Event = field(default_factory=Event, init=False)
    _closed: Event = field(default_factory=Event, init=False)

    @property
    def places(self) -> list[Place]:
        """List the hosts, in the order in which they were named."""
        return [*self._hosts]

    def look(self, address: Address, name: str) -> None:
        """Ask a host what it is, and send it this package and the study's files.

        Raises:
            UsageError: it can't be reached, or its Python is too old or lacks packages; says what to do.
        """
        needed = needed_packages()
        try:
            found = self._ask(address, {"verb": "look", "packages": sorted(needed)})
            _require_packages(address, found, needed)
            place = Place(id=address.url, name=name)
            self._hosts[place] = address
            self._send_lacking(place, self.parcel.by_place)
        except ConnectionLost as lost:
            raise UsageError(
                f"--on {address.url}: {lost}; `{shlex.join(address.client)} true` has to work first"
            ) from None
        except NodeLost as lost:
            raise UsageError(f"--on {address.url}: {lost}") from None

    def _send_lacking(self, place: Place, contents: Mapping[str, Contents]) -> None:
        """Send the files that a host lacks, by their folders' places."""
        address = self._hosts[place]
        asked = {"verb": "put", "places": {folder: [*files] for folder, files in contents.items()}}
        for folder, names in self._insist(place, lambda: self._ask(address, asked), self._stopped)["lacks"].items():
            lacked = {name: contents[folder][name] for name in names}
            total = sum(one.stat().st_size if isinstance(one, Path) else len(one) for one in lacked.values())
            if total >= LARGE:
                self.say(f"{place.name}: sending {size(total)}")
            put = {"verb": "put", "places": {folder: names}, "members": len(names)}
            self._insist(place, partial(self._ask, address, put, lacked), self._stopped)

    def run(self, place: Place, task: Task, *, claims: bool = True) -> Answer:
        """Run a task as `Transport` has it; it goes on there without a connection.

        Raises:
            NodeLost: the host can't be reached for `LOST_S`, or can't do it: its disk is full, say.
        """
        del claims  # the machine's lock is what tasks wait for
        try:
            self._send_lacking(place, task.sent)
            package, files = (folder.rpartition("/")[2] for folder in self.parcel.by_place)
            asked: dict[str, Any] = {
                "verb": "run",
                "name": task.name_at(place, self.parcel.by_place),
                "words": [*task.words],
            }
            asked |= {"package": package, "files": files, "size": len(task.folder)}
            found: Answer = self._insist(place, lambda: self._follow(place, asked, task.folder), self._closed)
        except OSError as error:  # what was to be sent is gone
            raise NodeLost(one_line(f"{type(error).__name__}: {error}")) from error
        return found

    def _follow(self, place: Place, asked: Mapping[str, Any], folder: bytes) -> Answer:
        """Begin a task or find it, and pass on what it tells until it ends.

        Raises:
            ConnectionLost: the connection ended before.
            NodeLost: the host can't do it.
        """
        with self._request(self._hosts[place], asked, folder) as answers:
            for answer in answers:
                if "answer" in answer:
                    data = answers.read(answer["size"])
                    if hashlib.sha256(data).hexdigest() != answer["sha256"]:
                        raise ConnectionLost("it ended before all was copied")
                    return Answer(**answer["answer"], folder=data)
                if "text" not in answer:
                    raise NodeLost(answer.get("error", "it answered what no task does"))
                for line in filter(str.strip, answer["text"].splitlines()):
                    self.say(f"{place.name}: {line.rstrip()}")
        raise AssertionError("a request ends with an answer or an error")

    def forget(self, place: Place, task: Task) -> None:
        """Drop a task whose answer was kept here."""
        with suppress(ShootoutError):
            self._ask(self._hosts[place], {"verb": "drop", "name": task.name_at(place, self.parcel.by_place)})

    def stop(self) -> None:
        """Ask every task to end; one that hasn't begun never does."""
        self._stopped.set()
        for process, is_begun in [*self._requests.items()]:
            if is_begun:
                _tell_to_stop(process)
            else:
                process.kill()

    def close(self) -> None:
        """Give up what is still waited for."""
        self._stopped.set()
        self._closed.set()
        for process in [*self._requests]:
            process.kill()

    def _insist(self, place: Place, action: Callable[[], Any], ended: Event) -> Any:
        """Do something on a host, once more after a lost connection, until it can't be reached for `LOST_S`.

        Args:
            ended: set when it isn't wanted any more.

        Raises:
            NodeLost: that, or the host can't do it; says why.
        """
        patience, is_told = Deadline(LOST_S), False
        while True:
            if ended.is_set():
                raise NodeLost("this command has ended" if self._closed.is_set() else "it was stopped before it began")
            try:
                return action()
            except ConnectionLost as lost:
                told = f" ({lost})" if str(lost) else ""
                if lost.heard:
                    patience, is_told = Deadline(LOST_S), False
                if not patience.allows(AGAIN_S):
                    raise NodeLost(
                        f"it can't be reached for {span(LOST_S)}{told}; the same command fetches what it measures "
                        "meanwhile"
                    ) from None
                if not is_told and not ended.is_set():
                    self.say(f"{place.name}: the connection was lost{told}; trying again")
                    is_told = True
                ended.wait(AGAIN_S)

    def _ask(self, address: Address, request: Mapping[str, Any], sent: Contents | None = None) -> dict[str, Any]:
        """Return the only answer to a request.

        Args:
            sent: files that go behind it, as a tar.

        Raises:
            ConnectionLost: there was none.
            NodeLost: the host can't do it.
        """
        with self._request(address, request, sent) as answers:
            answer = next(iter(answers))
            if "error" in answer:
                raise NodeLost(answer["error"])
            return answer

    @contextmanager
    def _request(
        self, address: Address, request: Mapping[str, Any], sent: bytes | Contents | None = None
    ) -> Iterator[_Answers]:
        """Run the node's program on a host, with a request; yield what it answers.

        Raises:
            ConnectionLost: instead of what went wrong within, if the connection failed or ended early.
            NodeLost: there is no such Python.
        """
        source = inspect.getsource(node_side).encode()
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(  # noqa: S603
                address.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for us: the task is asked to end, and then returns what it has
            ) as process,
        ):
            assert process.stdin, "a pipe"
            assert process.stdout, "a pipe"
            answers = _Answers(process.stdout)
            self._requests[process] = False
            try:
                with suppress(BrokenPipeError):  # the host answers why, or the connection ended
                    process.stdin.write(b"%d\n%b%b\n" % (len(source), source, json.dumps(request).encode()))
                    if isinstance(sent, bytes):
                        process.stdin.write(sent)
                    elif sent is not None:
                        write_tar(process.stdin, sent)
                    process.stdin.flush()  # and stays open for the word that stops a task
                    self._requests[process] = request["verb"] == "run"
                    if self._requests[process] and self._stopped.is_set():
                        _tell_to_stop(process)
                yield answers
            except ConnectionLost:
                process.wait()
                errors.seek(0)
                said = one_line("\n".join(errors.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]))
                if process.returncode == _NOT_CONNECTED or process.returncode < 0:
                    lost = ConnectionLost(said)
                    lost.heard = answers.heard
                    raise lost from None
                raise NodeLost(
                    f"{address.python} there ended with {process.returncode}: {said}; another Python is named as "
                    f"{replace(address, python='/PATH/TO/PYTHON').url}"
                ) from None
            finally:
                del self._requests[process]
                process.kill()
                with suppress(BrokenPipeError):  # which would hide what went wrong within
                    process.stdin.close()


def _tell_to_stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        with suppress(OSError, ValueError):  # its connection is at its end
            process.stdin.write(b"stop\n")
            process.stdin.flush()


class _Answers:
    """The objects of JSON that a host answers, one a line, and the bytes behind them.

    Raises:
        ConnectionLost: there are no more.
        NodeLost: a line is something else, which the host's shell prints, say.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.heard = stream, False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._stream:
            if not line.endswith(b"\n"):
                break
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                raise NodeLost(
                    f"it printed {one_line(line.decode(errors='replace'))!r} before shootout's answer: let its shell "
                    "print nothing for commands by ssh"
                )
            self.heard = True
            yield answer
        raise ConnectionLost("")

    def read(self, number: int) -> bytes:
        """Return so many bytes, or fewer if the connection ends."""
        return self._stream.read(number)


def needed_packages() -> dict[str, Requirement]:
    """Return what shootout itself and all exported models need, by name."""
    asked = [Requirement(text) for text in metadata.requires("shootout") or ()]
    return {one.name: one for one in asked if one.marker is None or one.name == WEIGHTS_READER}


def _require_packages(address: Address, found: Mapping[str, Any], needed: Mapping[str, Requirement]) -> None:
    versions = found["versions"]
    unmet = {
        f"{name}{one.specifier}": f"{name}{one.specifier} (it has {versions[name]})" if name in versions else name
        for name, one in needed.items()
        if name not in versions or not one.specifier.contains(versions[name], prereleases=True)
    }
    if unmet:
        raise UsageError(
            f"--on {address.url}: {found['path']} lacks {', '.join(unmet.values())}; run there: "
            f"{found['path']} -m pip install {shlex.join(unmet)}, and the runtimes to measure"
        )
