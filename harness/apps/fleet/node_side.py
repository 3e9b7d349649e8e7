"""Run one task on a node: keep what was sent, start a process, return what it wrote.

Ray calls `run_task` in an actor there. A host that is reached by ssh runs this module as a program: a line of JSON says
what to do, and an answer goes back. A task's folder is kept in the node's cache until its answer was taken, and
`shootout run` goes on in it. So what was measured is never lost with a connection or a process.

This module travels as source to nodes that have none of this package, so it imports the standard library alone.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

JOURNAL, RUN, PRINTED, SAID, LOCK = "journal.jsonl", "run", "printed.txt", "said.txt", "lock"
"""The contents of a task's folder: the run folder and its journal, what its process prints and tells, and a lock that
the process holds, with its id.
"""
LOOK_S = 0.5
"""The time between two looks for news of a task."""
LAST_LINES = 3
"""So many lines of what a process told at its end are its last words."""
PLACE = re.compile(r"(exported/[0-9a-f]{64}|fleet/[0-9a-f]{32,64})")
"""The places below the cache where what is sent may lie."""


def run_task(
    name: str,
    words: Sequence[str],
    folder: bytes,
    package: str,
    files: str,
    *,
    stop: Event,
    hear: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run `python -m WORDS` to its end, in the folder of the user's files.

    One of this name that an earlier connection began is followed to its end first. Then `shootout run` goes on with
    what that one measured, or with what is sent where that has measured more.

    Args:
        words: see `Task.words`.
        folder: a zip of the run folder that the task goes on with, unless the one kept here has the longer journal;
            empty for none.
        package, files: the names of the folders of this package and of the user's own files.
        stop: set to end the process, which keeps what it has.
        hear: hears what it tells, in whole lines.

    Returns:
        The fields of the task's `Answer`.

    Raises:
        OSError: the cache can't be used; says what to do.
    """
    home, task = cache_folder(), _folder_of(name)
    if not task.exists():
        made = Path(tempfile.mkdtemp(prefix="new-", dir=home))
        try:
            (made / SAID).touch()
            _unpack(folder, made / RUN)
            made.rename(task)
        finally:  # or the next command would take it for one that was begun
            shutil.rmtree(made, ignore_errors=True)
    with (task / LOCK).open("a+b") as lock:
        if not _take(lock):
            hear("going on with what an earlier command began there\n")
            lock.seek(0)
            _attend(task, int(lock.read() or 0), lambda: _take(lock), stop, hear)
        if _is_longer(folder, task / RUN / JOURNAL):
            made = Path(tempfile.mkdtemp(prefix="new-", dir=home))
            try:
                _unpack(folder, made / RUN)
                shutil.rmtree(task / RUN)
                (made / RUN).rename(task / RUN)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        process = _start(task, words, home / package, home / files, lock)
        _attend(task, process.pid, lambda: process.poll() is not None, stop, hear)
    printed, said = ((task / one).read_text(encoding="utf-8", errors="replace") for one in (PRINTED, SAID))
    last = " | ".join(said.strip().splitlines()[-LAST_LINES:])
    return {"code": process.returncode, "printed": printed, "said": last, "folder": zip_folder(task / RUN)}


def _unpack(data: bytes, folder: Path) -> None:
    """Unpack a zip that was sent into a new folder; nothing makes an empty one."""
    folder.mkdir()
    if data:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(folder)  # noqa: S202 - what we sent ourselves


def _is_longer(data: bytes, kept: Path) -> bool:
    """Tell whether the journal in a zip that was sent is longer than the one kept here."""
    if not data:
        return False
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sent = next((info.file_size for info in archive.infolist() if info.filename == JOURNAL), 0)
    return sent > (kept.stat().st_size if kept.exists() else 0)


def _take(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _attend(task: Path, pid: int, is_over: Callable[[], bool], stop: Event, hear: Callable[[str], None]) -> None:
    """Pass on what a process tells until it is over, and end it if that is asked: once, since a second signal would
    break what the first one ends.
    """
    seen, is_ending = 0, False
    while True:
        ended = is_over()
        with (task / SAID).open("rb") as said:
            said.seek(seen)
            text = said.read()
        text = text if ended else text[: text.rfind(b"\n") + 1]
        seen += len(text)
        if text:
            hear(text.decode(errors="replace"))
        if ended:
            return
        if stop.is_set() and pid and not is_ending:
            is_ending = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        time.sleep(LOOK_S)


def _start(task: Path, words: Sequence[str], package: Path, files: Path, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that holds the task's lock, with its id in it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment.pop("OMP_NUM_THREADS", None)  # Ray sets it by what it gave out, and the whole node is ours
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    run = str(task / RUN)
    filled = [word.replace("{run}", run, 1) if word.startswith("{run}") else word for word in words]
    before = signal.pthread_sigmask(
        signal.SIG_UNBLOCK, {signal.SIGINT}
    )  # Ray's process blocks it; a child inherits that
    try:
        with (task / PRINTED).open("wb") as printed, (task / SAID).open("wb") as said:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", *filled],
                cwd=files,
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    lock.truncate(0)
    lock.write(str(process.pid).encode())
    lock.flush()
    return process


def zip_folder(folder: Path) -> bytes:
    """Return all files below a folder as a zip; the journal last, since it names the others.

    Left out are hidden files and links, which may lead out of the folder.
    """
    made = io.BytesIO()
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = sorted(path for path in found if not path.name.startswith("."))
    # a board without a clock writes files of 1970, and ZIP knows no time before 1980
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for path in sorted(files, key=lambda path: path.name == JOURNAL):
            archive.write(path, path.relative_to(folder))
    return made.getvalue()


def cache_folder() -> Path:
    """Return the cache's folder for what nodes are sent.

    Raises:
        PermissionError: others can write there.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "shootout"
    home = Path(os.environ.get("SHOOTOUT_CACHE") or home).expanduser().absolute() / "fleet"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = home.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"others can write {home}: chmod 700 it, or set SHOOTOUT_CACHE")
    return home


def receive(place: str, tar: IO[bytes], members: int) -> None:
    """Add a tar's files to a folder below the cache's, none of them in part.

    Args:
        members: how many files the tar has: one that was cut looks like a shorter one.
    """
    into = cache_folder().parent / place
    into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="new-", dir=cache_folder()))
    try:
        with tarfile.open(fileobj=tar, mode="r|") as archive:
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(made, **safely)  # noqa: S202 - what we sent ourselves
            if members != len(archive.getmembers()):
                raise OSError("the connection was lost")
        with suppress(OSError):  # some of its files are there, or another task was first
            made.rename(into)
        for path in [path for path in made.rglob("*") if path.is_file()]:
            there = into / path.relative_to(made)
            there.parent.mkdir(parents=True, exist_ok=True)
            path.replace(there)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def find_lacking(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return which of these files the cache lacks, by the place there; also a place that is lacking as a whole.

    Raises:
        OSError: a place isn't one for what is sent.
    """
    home = cache_folder().parent
    if wrong := [place for place in places if not PLACE.fullmatch(place)]:
        raise OSError(f"nothing may be sent to {wrong[0]}")
    for folder in filter(Path.exists, map(home.joinpath, places)):
        os.utime(folder)  # the cache removes what was used longest ago
    lacks = {place: [name for name in names if not (home / place / name).exists()] for place, names in places.items()}
    return {place: names for place, names in lacks.items() if names or not (home / place).exists()}


def drop(name: str) -> None:
    """Forget a task, whose answer was taken."""
    shutil.rmtree(_folder_of(name), ignore_errors=True)


def _folder_of(name: str) -> Path:
    return cache_folder() / f"task-{name}-{re.sub('[^A-Za-z0-9]', '', platform.node())}"  # homes may be shared


class NodeTask:
    """A task on a node of a Ray cluster. Ray makes it, calls `run`, and may call `stop` meanwhile."""

    def __init__(self) -> None:
        self._stop = Event()

    def run(self, name: str, words: list[str], folder: bytes, sent: list[tuple[str, int, bytes]]) -> dict[str, Any]:
        """Run a task to its end as `run_task` does.

        Args:
            sent: the package and the user's files: the place, the number of files and a tar of each.
        """
        for place, members, tar in sent:
            if find_lacking({place: []}):
                receive(place, io.BytesIO(tar), members)
        package, files = (place.rpartition("/")[2] for place, _, _ in sent)
        return run_task(name, words, folder, package, files, stop=self._stop)

    def stop(self) -> None:
        """Ask the process to end, and to keep what it has: `run` returns soon then."""
        self._stop.set()

    def drop(self, name: str) -> None:
        """Forget a task, whose answer was taken."""
        drop(name)


def main() -> None:
    """Do what a line of JSON on stdin asks, and answer with one on stdout; what goes wrong is told in it."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        verbs: dict[str, Callable[..., None]] = {"look": _look, "put": _put, "run": _run, "drop": _drop}
        verbs[asked.pop("verb")](**asked)
    except OSError as error:
        fix = ""
        if error.errno is not None:
            free = "free some there, or " if error.errno == errno.ENOSPC else ""
            fix = f"; {free}set SHOOTOUT_CACHE there to a folder that it can write to"
        _tell(error=f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}{fix}")


def _tell(**answer: Any) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def _look(packages: list[str]) -> None:
    """Tell what this host is, and the versions of those of these packages that its Python has."""
    versions = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    _tell(path=sys.executable, name=platform.node(), versions=versions)


def _put(places: dict[str, list[str]], members: int | None = None) -> None:
    """Tell which of these files the cache lacks; with members, add those of the only place from a tar on stdin."""
    lacks = find_lacking(places)
    if members is not None:
        receive(next(iter(places)), sys.stdin.buffer, members)
    _tell(lacks=lacks)


def _run(name: str, words: list[str], package: str, files: str, size: int) -> None:
    """Run a task, whatever becomes of the connection; `size`: of the zip on stdin, behind which a line may stop it."""
    folder, stop = sys.stdin.buffer.read(size), Event()
    if len(folder) != size:
        raise OSError("the connection was lost")

    def await_stop() -> None:
        if sys.stdin.buffer.readline():
            stop.set()

    def hear(text: str) -> None:
        with suppress(BrokenPipeError):
            _tell(text=text)

    Thread(target=await_stop, daemon=True).start()
    answer = run_task(name, words, folder, package, files, stop=stop, hear=hear)
    data = answer.pop("folder")
    with suppress(BrokenPipeError):
        _tell(answer=answer, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    os._exit(0)  # a thread that reads stdin would keep the interpreter from ending in order


def _drop(name: str) -> None:
    drop(name)
    _tell(dropped=True)


if __name__ == "__main__":
    main()
