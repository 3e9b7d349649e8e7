"""Reach hosts by ssh: what they are, and jobs of ours on them. OpenSSH's client does the rest: keys, `~/.ssh/config`.

Each request is a connection of its own, and a job outlives the one that began it. So a lost connection costs nothing:
the next one follows the job further, or takes what it left.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock
from types import MappingProxyType
from typing import IO, Any

from packaging.requirements import Requirement

from shootout.clock import Deadline, utc_in
from shootout.errors import ShootoutError, UsageError, one_line
from shootout.export.delivery import FLEET, to_json
from shootout.fleet import node_side
from shootout.fleet.node_kinds import ClusterNode
from shootout.fleet.nodes import ENTRY, LOST_S, NodeLost, Supply
from shootout.fleet.parcel import Parcel
from shootout.units import size, span

SCHEME = "ssh://"
Contents = Mapping[str, Path | bytes]
"""Files to send, by name: where each lies, or what is in it."""
OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
)
"""Nothing is asked on the terminal, and a dead connection is noticed after 15 s; a user's own config adds to it."""
PLAIN, PYTHON = "python3", (3, 11)
"""The Python of a host where none is named, and the oldest that there may be."""
WEIGHTS_READER = "safetensors"
"""It belongs to extras, of which each that runs a model's weights has it."""
AGAIN_S = 2.0
"""So long after a connection was lost, the next one is tried."""
LARGE = 10_000_000
"""So many bytes are worth a line before they are sent."""
THREADS = 200
"""So many jobs are followed at once, with room for the word that ends each; a thread starts when it is needed."""
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
    """Report that a connection failed or ended early; the message is OpenSSH's."""


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


@dataclass(frozen=True, slots=True, eq=False)
class SshJob:
    """A job that was given to a host, and what `follow` will return of it."""

    address: Address
    id: str
    result: futures.Future[dict[str, Any]]


@contextmanager
def connect(text: str, parcel: Parcel, out: str, say: Callable[[str], None]) -> Iterator[SshHosts]:
    """Reach every host once, and send each what it lacks of this package and of the study's files.

    Args:
        text: as `read_addresses` takes it.
        out: see `SshHosts`.
        say: hears what hosts print, and of lost connections.

    Raises:
        UsageError: OpenSSH's client isn't there, or a host can't be used; says what to do.
    """
    addresses = read_addresses(text)
    if shutil.which("ssh") is None:
        raise UsageError("--on ssh://HOST needs OpenSSH's client, `ssh`: install your system's package openssh-client")
    hosts = SshHosts(addresses, parcel, out, say)
    try:
        hosts.look()
        yield hosts
    finally:
        hosts.close()


@dataclass
class SshHosts:
    """Hosts that this process has reached. They are `Nodes`.

    Attributes:
        out: where this command writes, by which the same command finds the jobs that an earlier one began.
        were_named: see `Nodes`.
    """

    were_named = True

    addresses: Sequence[Address]
    parcel: Parcel
    out: str
    say: Callable[[str], None]
    _nodes: dict[str, ClusterNode] = field(default_factory=dict, init=False)
    _given: Counter[str] = field(default_factory=Counter, init=False)
    _pool: futures.ThreadPoolExecutor = field(default_factory=partial(futures.ThreadPoolExecutor, THREADS), init=False)
    _closed: Event = field(default_factory=Event, init=False)
    _begun: set[str] = field(default_factory=set, init=False)
    _stopped: set[str] = field(default_factory=set, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def look(self) -> None:
        """Ask each host what it is, and send it this package and the study's files.

        Raises:
            UsageError: one can't be reached, or its Python is too old or lacks packages; says what to do.
        """
        needed = needed_packages()
        for address in self.addresses:
            try:
                found = _ask(address, {"verb": "look", "packages": sorted(needed)})
                _require_packages(address, found, needed)
                self._send_lacking(address, {place_of(zipped): _unzip(zipped) for zipped in self.parcel.zips})
            except ConnectionLost as lost:
                raise UsageError(
                    f"--on {address.url}: {lost}; `{shlex.join(address.client)} true` has to work first"
                ) from None
            except NodeLost as lost:
                raise UsageError(f"--on {address.url}: {lost}") from None
            name = f"{self._name(address)} ({found['name']})"
            self._nodes[address.url] = ClusterNode(id=address.url, name=name, cpus=float(found["cpus"]))

    def nodes(self) -> list[ClusterNode]:
        """List the hosts, in the order in which they were named."""
        return [self._nodes[address.url] for address in self.addresses]

    def _name(self, address: Address) -> str:
        """Return a host's name for people, with port and Python where others of these hosts have the same name."""
        alike = [one for one in self.addresses if one.host == address.host]
        return address.url.removeprefix(SCHEME) if len(alike) > 1 else str(address)

    def _send_lacking(self, address: Address, contents: Mapping[str, Contents], job: str = "") -> None:
        """Send the files that a host lacks, by their folders' places, unless this job is stopped meanwhile."""
        asked = {"verb": "put", "places": {place: [*files] for place, files in contents.items()}}
        for place, names in self._insist(address, lambda: _ask(address, asked))["lacks"].items():
            self._require_wanted(job)
            lacked = {name: contents[place][name] for name in names}
            total = sum(one.stat().st_size if isinstance(one, Path) else len(one) for one in lacked.values())
            if total >= LARGE:
                self.say(f"{self._name(address)}: sending {size(total)}")
            check = partial(self._require_wanted, job)
            self._insist(address, partial(_put, address, place, lacked, check))

    def ask(self, node: ClusterNode, job: Mapping[str, Any], folder: bytes = b"") -> SshJob:
        """Start a job on a host as `Nodes` has it; `folder` is a zip of the run folder that it is about."""
        return self._start_job(self._address(node), job, folder, token_hex(16))

    def measure(
        self,
        nodes: Sequence[ClusterNode],
        job: Mapping[str, Any],
        folder: bytes = b"",
        delivered: Mapping[str, Contents] | None = None,
        supply: Supply | None = None,
    ) -> SshJob:
        """Start a job on the first of these hosts that has none, or find the one that the same command began there.

        The host is sent what it lacks of the delivered files.
        """
        node = min(nodes, key=lambda node: self._given[node.id])
        self._given[node.id] += 1
        job = {**job, "on": self._address(node).url}
        lasting = {name: value for name, value in job.items() if name != "ends_utc"}
        sent = [place_of(zipped) for zipped in self.parcel.zips]  # or a job of other files would be taken for this one
        told = json.dumps([self.out, node.id, sent, lasting], sort_keys=True)
        name = hashlib.sha256(told.encode()).hexdigest()[:32]
        return self._start_job(self._address(node), job, folder, name, delivered or {}, supply)

    def wait(self, jobs: Sequence[SshJob], seconds: float, *, until_all: bool = False) -> list[SshJob]:
        """Wait for jobs as `Nodes` has it."""
        when = futures.ALL_COMPLETED if until_all else futures.FIRST_COMPLETED
        ended, _ = futures.wait([job.result for job in jobs], timeout=seconds, return_when=when)
        return [job for job in jobs if job.result in ended]

    def result(self, job: SshJob) -> dict[str, Any]:
        """Return a job's answer as `Nodes` has it.

        Raises:
            NodeLost: the host couldn't be reached for `LOST_S`, can't hold what was sent, or answered what no job does.
        """
        try:
            return job.result.result()
        except ShootoutError:
            raise
        except Exception as error:  # of one host: the others go on
            raise NodeLost(one_line(f"{type(error).__name__}: {error}")) from error

    def node_of(self, job: SshJob) -> ClusterNode:
        """Return the host that has a job."""
        return self._nodes[job.address.url]

    def stop(self, job: SshJob) -> None:
        """Ask a job to end as `Nodes` has it; one that hasn't begun never does."""
        with self._lock:
            self._stopped.add(job.id)
            has_begun = job.id in self._begun
        if has_begun:  # otherwise its own thread sees to it: a second signal would break what the first one ends
            self._pool.submit(self._stop_begun, job.address, job.id)

    def _stop_begun(self, address: Address, name: str) -> None:
        self._insist(address, lambda: _ask(address, {"verb": "stop", "id": name}))

    def _require_wanted(self, job: str) -> None:
        if job in self._stopped:
            raise NodeLost("its job was stopped before it began")
        if self._closed.is_set():
            raise NodeLost("this command has ended")

    def release(self, job: SshJob) -> None:
        """Forget a job whose result was taken; one that goes on, on a host that is lost, keeps what it has."""
        if job.result.done() and job.result.exception() is None:
            with suppress(ShootoutError):
                _ask(job.address, {"verb": "drop", "id": job.id})

    def _address(self, node: ClusterNode) -> Address:
        return next(address for address in self.addresses if address.url == node.id)

    def _start_job(
        self,
        address: Address,
        job: Mapping[str, Any],
        folder: bytes,
        name: str,
        delivered: Mapping[str, Contents] = MappingProxyType({}),
        supply: Supply | None = None,
    ) -> SshJob:
        run = partial(self._run_job, address, dict(job), folder, name, delivered, supply)
        return SshJob(address, name, self._pool.submit(run))

    def _run_job(
        self,
        address: Address,
        job: dict[str, Any],
        folder: bytes,
        name: str,
        delivered: Mapping[str, Contents],
        supply: Supply | None,
    ) -> dict[str, Any]:
        """Begin a job, or find it begun, and follow it to its end over as many connections as it takes.

        Raises:
            NodeLost: the host can't be reached for `LOST_S`, or can't do it: its disk is full, say.
        """
        self._send_lacking(address, delivered, name)
        package, files = (place_of(zipped).rpartition("/")[2] for zipped in self.parcel.zips)
        begin = {"verb": "begin", "id": name, "module": ENTRY, "job": job, "package": package, "files": files}
        self._require_wanted(name)
        begun = self._insist(
            address,
            lambda: _ask(address, {**begin, "size": len(folder), "now": utc_in(0.0)}, lambda into: into.write(folder)),
        )
        with self._lock:
            self._begun.add(name)
            is_stopped = name in self._stopped
        if is_stopped:
            self._stop_begun(address, name)
        if not begun["begun"]:
            self.say(f"{self._name(address)}: going on with what an earlier command began there")
        progress = _Followed(
            say=partial(self._say_lines, address), give=partial(self._give, address, name, supply), closed=self._closed
        )
        answer: dict[str, Any] = self._insist(address, lambda: _follow(address, name, progress), progress)
        return answer

    def _give(self, address: Address, name: str, supply: Supply | None, asked: Mapping[str, Any]) -> None:
        """Make and send what a job asks for on its way, or why it can't be had."""
        given: dict[str, Any] = {"number": asked["number"]}
        try:
            if supply is None:
                raise NodeLost("nothing more is exported for it")
            delivery = supply(asked["groups"])
            self._send_lacking(address, delivery.contents, name)
            given["delivery"] = to_json(delivery)
        except ShootoutError as error:
            given["error"] = str(error)
        self._insist(address, lambda: _ask(address, {"verb": "give", "id": name, "given": given}))

    def _say_lines(self, address: Address, text: str) -> None:
        for line in filter(str.strip, text.splitlines()):
            self.say(f"{self._name(address)}: {line.rstrip()}")

    def _insist(self, address: Address, action: Callable[[], Any], progress: _Followed | None = None) -> Any:
        """Do something on a host, once more after a lost connection, until it can't be reached for `LOST_S`.

        Raises:
            NodeLost: that, or the host can't do it; says why.
        """
        patience, heard = Deadline(LOST_S), progress.seen if progress else 0
        is_told = False
        while True:
            try:
                return action()
            except ConnectionLost as lost:
                if progress and progress.seen != heard:
                    patience, heard, is_told = Deadline(LOST_S), progress.seen, False
                if not patience.allows(AGAIN_S) or self._closed.is_set():
                    raise NodeLost(
                        f"it can't be reached for {span(LOST_S)}{_in_brackets(lost)}; the same command fetches what it "
                        "measures meanwhile"
                    ) from None
                if not is_told:
                    self.say(f"{self._name(address)}: the connection was lost{_in_brackets(lost)}; trying again")
                    is_told = True
                self._closed.wait(AGAIN_S)

    def close(self) -> None:
        """Give up what is still waited for."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _in_brackets(lost: ConnectionLost) -> str:
    return f" ({lost})" if str(lost) else ""


@dataclass
class _Followed:
    """Hold how much of a job's output was heard, over all connections, until it is `closed`.

    Attributes:
        say: hears it.
        give: gives the job what it asks for.
    """

    say: Callable[[str], None]
    give: Callable[[Mapping[str, Any]], None]
    closed: Event
    seen: int = 0


def _follow(address: Address, name: str, progress: _Followed) -> dict[str, Any]:
    """Pass on what a job prints until it ends; return its answer, with a zip of its run folder.

    Raises:
        ConnectionLost: the connection ended before.
        NodeLost: the host doesn't know the job any more, or this command is at its end.
    """
    with _request(address, {"verb": "follow", "id": name, "seen": progress.seen}) as answers:
        for answer in answers:
            if progress.closed.is_set():  # a thread that waits for more would keep this process from ending
                raise NodeLost("this command has ended")
            if "text" in answer:
                progress.say(answer["text"])
                progress.seen = answer["seen"]
            elif "asks" in answer:
                progress.give(answer["asks"])
            elif "answer" in answer:
                folder = answers.read(answer["size"])
                if hashlib.sha256(folder).hexdigest() != answer["sha256"]:
                    raise ConnectionLost("it ended before all was copied")
                return {**answer["answer"], "folder": folder}
            else:
                raise NodeLost(answer.get("error") or "its cache was emptied, and the job with it")
        raise ConnectionLost("")


@dataclass
class _CheckedFile:
    """A file that is sent, and what is called before each piece of it: sending one may take minutes."""

    file: IO[bytes]
    check: Callable[[], object]

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        self.check()
        return self.file.read(size)


def _put(address: Address, place: str, contents: Contents, check: Callable[[], object]) -> dict[str, Any]:
    """Send files, as a tar.

    Args:
        check: raises if they aren't to be sent any more.
    """

    def write(into: IO[bytes]) -> None:
        with tarfile.open(fileobj=into, mode="w|") as archive:
            for name, content in contents.items():
                member = tarfile.TarInfo(name)
                with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as data:
                    member.size = content.stat().st_size if isinstance(content, Path) else len(content)
                    archive.addfile(member, _CheckedFile(data, check))

    return _ask(address, {"verb": "put", "places": {place: [*contents]}, "members": len(contents)}, write)


def _ask(
    address: Address, request: Mapping[str, Any], write: Callable[[IO[bytes]], object] | None = None
) -> dict[str, Any]:
    """Return the only answer to a request.

    Args:
        write: what is sent behind it.

    Raises:
        ConnectionLost: there was none.
        NodeLost: the host can't do it.
    """
    with _request(address, request, write) as answers:
        answer = next(iter(answers), None)
        if answer is None:
            raise ConnectionLost("")
        if "error" in answer:
            raise NodeLost(answer["error"])
        return answer


class _Answers:
    """The objects of JSON that a host answers, one a line, and the bytes behind them.

    Raises:
        NodeLost: a line is something else, which the host's shell prints, say.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._stream:
            if not line.endswith(b"\n"):
                return
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                raise NodeLost(
                    f"it printed {one_line(line.decode(errors='replace'))!r} before shootout's answer: let its shell "
                    "print nothing for commands by ssh"
                )
            yield answer

    def read(self, number: int) -> bytes:
        """Return so many bytes, or fewer if the connection ends."""
        return self._stream.read(number)


@contextmanager
def _request(
    address: Address, request: Mapping[str, Any], write: Callable[[IO[bytes]], object] | None = None
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
            start_new_session=True,  # Ctrl-C is for us: the job is asked to end, and then returns what it has
        ) as process,
    ):
        assert process.stdin, "a pipe"
        assert process.stdout, "a pipe"
        try:
            with suppress(BrokenPipeError):  # the host answers why, or the connection ended
                process.stdin.write(b"%d\n%b%b\n" % (len(source), source, json.dumps(request).encode()))
                if write:
                    write(process.stdin)
            with suppress(BrokenPipeError):
                process.stdin.close()
            yield _Answers(process.stdout)
        except ConnectionLost:
            process.wait()
            errors.seek(0)
            said = one_line("\n".join(errors.read().decode(errors="replace").strip().splitlines()[-LAST_LINES:]))
            if process.returncode == _NOT_CONNECTED or process.returncode < 0:
                raise ConnectionLost(said) from None
            raise NodeLost(
                f"{address.python} there ended with {process.returncode}: {said}; another Python is named as "
                f"{replace(address, python='/PATH/TO/PYTHON').url}"
            ) from None
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # which would hide what went wrong within
                process.stdin.close()


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


def place_of(zipped: bytes) -> str:
    """Return where a zip's files lie below a host's cache."""
    return f"{FLEET}/{hashlib.sha256(zipped).hexdigest()[:32]}"


def _unzip(zipped: bytes) -> Contents:
    with zipfile.ZipFile(io.BytesIO(zipped)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
