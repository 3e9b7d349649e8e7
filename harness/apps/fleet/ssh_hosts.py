"""Run tasks on hosts by ssh. OpenSSH's client does the connecting: keys, `~/.ssh/config`.

Each request is a connection of its own. A task ends with its connection, and what it measured stays on the host, where
the same command goes on with it.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from threading import Thread
from typing import Any

from packaging.requirements import Requirement

from shootout.apps.fleet import node_side
from shootout.apps.fleet.parcel import Answer, NodeLost, Parcel, Place, Task, write_tar
from shootout.core.errors import UsageError, one_line
from shootout.tell.delivery import Contents

SCHEME = "ssh://"
_TIMES = {"ConnectTimeout": 10, "ServerAliveInterval": 5, "ServerAliveCountMax": 3}
OPTIONS = ("-o", "BatchMode=yes", *(word for name, value in _TIMES.items() for word in ("-o", f"{name}={value}")))
"""Nothing is asked on the terminal, and a dead connection is noticed after 15 s; a user's own config adds to it."""
PLAIN, PYTHON = "python3", (3, 11)
"""The Python of a host where none is named, and the oldest that there may be."""
WEIGHTS_READER = "safetensors"
"""It belongs to extras, of which each that runs a model's weights has it."""
LAST_LINES = 2
"""Lines shown of what OpenSSH or a Python says at its end."""
_BOOT = (
    f"import sys; sys.version_info >= {PYTHON} or sys.exit('it is Python %d.%d, and shootout needs "
    f"{'.'.join(map(str, PYTHON))} or newer' % sys.version_info[:2]); "
    "n = int(sys.stdin.buffer.readline()); exec(compile(sys.stdin.buffer.read(n), 'node', 'exec'))"
)
"""The program of a host's Python, older ones among them: it reads the length of another program, and that."""
_NOT_CONNECTED = 255
"""OpenSSH's exit code if the connection failed or was lost; any other is the command's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host, as `ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON]` names it."""

    host: str
    port: str = ""
    python: str = PLAIN

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
        UsageError: one is of another form.
    """
    found = []
    for word in text.split(","):
        parts = re.fullmatch(
            r"ssh://((?:[\w.+-]+@)?[\w.-]+|(?:[\w.+-]+@)?\[[0-9a-fA-F:]+\])(?::(\d+))?(/.+)?", word.strip()
        )
        if parts is None or parts[1].startswith("-"):
            raise UsageError(f"--on {word!r} is not of the form ssh://[USER@]HOST[:PORT][/PATH/TO/PYTHON]")
        host = parts[1].replace("[", "").replace("]", "")
        found.append(Address(host=host, port=parts[2] or "", python=parts[3] or PLAIN))
    return found


@contextmanager
def connect(text: str, parcel: Parcel, say: Callable[[str], None]) -> Iterator[SshHosts]:
    """Reach every host once, and send each what it lacks of this package and of the study's files.

    Args:
        text: as `read_addresses` takes it.
        say: hears what hosts tell.

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
            hosts.add(address, address.url.removeprefix(SCHEME) if len(alike) > 1 else address.host)
        yield hosts
    finally:
        for process in [*hosts.running]:
            process.kill()


@dataclass
class SshHosts:
    """Hosts that this process has reached, for which exports and portable builds are made here and sent."""

    exports_there = False

    parcel: Parcel
    say: Callable[[str], None]
    running: dict[subprocess.Popen[bytes], bool] = field(default_factory=dict, init=False)
    """The connections that are open, and whether each runs a task."""
    _hosts: dict[Place, Address] = field(default_factory=dict, init=False)
    _is_stopped: bool = field(default=False, init=False)

    @property
    def places(self) -> list[Place]:
        """List the hosts, in the order in which they were named."""
        return [*self._hosts]

    def add(self, address: Address, name: str) -> None:
        """Look at a host, and send it this package and the study's files.

        Raises:
            UsageError: it can't be reached, or its Python is too old or lacks packages; says what to do.
        """
        place = Place(id=address.url, name=name)
        self._hosts[place] = address
        try:
            self._send_lacking(place, self.parcel.by_place)
        except NodeLost as lost:
            raise UsageError(f"--on {address.url}: {lost}") from None

    def _send_lacking(self, place: Place, contents: Mapping[str, Contents]) -> None:
        """Send the files that a host lacks, by their folders' places."""
        needed = needed_packages()
        places = {folder: [*files] for folder, files in contents.items()}
        found, _ = self._ask(place, {"verb": "look", "packages": sorted(needed), "places": places})
        _require_packages(found, needed)
        for folder, names in found["lacks"].items():
            lacked = {name: contents[folder][name] for name in names}
            self._ask(place, {"verb": "put", "place": folder, "members": len(names)}, lacked)

    def run(self, place: Place, task: Task) -> Answer:
        """Run a task to its end; called in a thread for each place.

        Raises:
            NodeLost: the host can't be reached any more, or can't do it: its disk is full, say.
        """
        package, files = self.parcel.by_place
        asked: dict[str, Any] = {"verb": "run", "name": task.name, "words": [*task.words], "is_new": task.is_new}
        asked |= {"package": package, "files": files, "size": len(task.folder)}
        try:
            if task.sent:
                self._send_lacking(place, task.sent)
            answer, folder = self._ask(place, asked, task.folder)
        except OSError as error:  # what was to be sent is gone
            raise NodeLost(one_line(f"{type(error).__name__}: {error}")) from error
        return Answer(**answer, folder=folder)

    def stop(self) -> None:
        """Ask every task to end, and to return what it has; one that hasn't begun never does."""
        self._is_stopped = True
        for process, is_task in [*self.running.items()]:
            if is_task:
                _close(process)
            else:
                process.kill()

    def _ask(
        self, place: Place, request: Mapping[str, Any], sent: bytes | Contents = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Run the node's program on a host, with a request; return its answer, and the bytes behind it.

        Args:
            sent: what goes behind the request, files as a tar.

        Raises:
            NodeLost: the host can't be reached, or can't do it; says why.
        """
        if self._is_stopped:
            raise NodeLost("it was stopped before it began")
        address, source, is_task = self._hosts[place], inspect.getsource(node_side).encode(), request["verb"] == "run"
        pipe, told = subprocess.PIPE, list[str]()
        process = subprocess.Popen(  # noqa: S603
            address.command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,  # Ctrl-C is for us: the task is asked to end, and then returns what it has
        )
        self.running[process] = is_task
        try:
            with process:
                assert process.stdin, "a pipe"
                assert process.stdout, "a pipe"
                hearing = Thread(target=self._hear, args=(place, process, told, is_task), daemon=True)
                hearing.start()
                with suppress(BrokenPipeError):  # the host answers why, or the connection ended
                    process.stdin.write(b"%d\n%b%b\n" % (len(source), source, json.dumps(request).encode()))
                    if isinstance(sent, bytes):
                        process.stdin.write(sent)
                    else:
                        write_tar(process.stdin, sent)
                    process.stdin.flush()
                if not is_task or self._is_stopped:  # a task's stays open: its end stops it
                    _close(process)
                line, _, data = process.stdout.read().partition(b"\n")
                code = process.wait()
                hearing.join()
        finally:
            del self.running[process]
            process.kill()
        said = "\n".join(told[-LAST_LINES:])
        return _read_answer(address, code, line, said, is_task=is_task), data

    def _hear(self, place: Place, process: subprocess.Popen[bytes], told: list[str], is_task: bool) -> None:
        """Pass on the lines that a task tells, and keep all."""
        assert process.stderr, "a pipe"
        for line in process.stderr:
            if text := line.decode(errors="replace").strip():
                told.append(text)
                if is_task:
                    self.say(f"{place.name}: {text}")


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        with suppress(OSError):  # its connection is at its end
            process.stdin.close()


def _read_answer(address: Address, code: int, line: bytes, said: str, *, is_task: bool) -> dict[str, Any]:
    """Read the only line that a host answers; `code`: what its connection ended with, `said`: what was told then.

    Raises:
        NodeLost: it is no answer, or says what went wrong there.
    """
    said = one_line(said)
    if (code == _NOT_CONNECTED or code < 0) and is_task:
        raise NodeLost("the connection was lost; the same command goes on with what was measured")
    if code == _NOT_CONNECTED or code < 0:
        first = f"`{shlex.join(address.client)} true`"
        raise NodeLost(f"no connection ({said or 'it was lost'}); {first} has to work first")
    with suppress(ValueError):
        if isinstance(answer := json.loads(line), dict):
            if "error" in answer:
                raise NodeLost(answer["error"])
            return answer
    if code:
        other = replace(address, python="/PATH/TO/PYTHON").url
        raise NodeLost(f"{address.python} there ended with {code}: {said}; another Python is named as {other}")
    raise NodeLost(
        f"it printed {one_line(line.decode(errors='replace'))!r} before shootout's answer: let its shell print nothing "
        "for commands by ssh"
    )


def needed_packages() -> dict[str, Requirement]:
    """Return what shootout itself and all exported models need, by name."""
    asked = [Requirement(text) for text in metadata.requires("shootout") or ()]
    return {one.name: one for one in asked if one.marker is None or one.name == WEIGHTS_READER}


def _require_packages(found: Mapping[str, Any], needed: Mapping[str, Requirement]) -> None:
    """Refuse a host whose Python lacks packages.

    Raises:
        NodeLost: it does; with pip's command.
    """
    versions = found["versions"]
    unmet = {
        f"{name}{one.specifier}": f"{name}{one.specifier} (it has {versions[name]})" if name in versions else name
        for name, one in needed.items()
        if name not in versions or not one.specifier.contains(versions[name], prereleases=True)
    }
    if unmet:
        raise NodeLost(
            f"{found['path']} lacks {', '.join(unmet.values())}; run there: {found['path']} -m pip install "
            f"{shlex.join(unmet)}, and the runtimes to measure"
        )
