"""Run one job on a node: unpack what was sent, start our process, return what it wrote.

Ray calls `NodeJob` inside its own process there. A host that is reached by ssh runs this module as a program: a line of
JSON says what to do, and an answer goes back.

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
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER, JOB, JOURNAL, RUN, OUTPUT = "answer.json", "job.json", "journal.jsonl", "run", "output.txt"
"""The contents of a job's folder: its answer, its words, the run folder and its journal, what its process prints."""
SHIPPED = "shipped"
"""The folder that a job which ships makes, in the run folder."""
RESULT, LOCK, PID = "result.json", "lock", "pid"
"""The same of a job that was begun by ssh: what it ended with, a lock until then, the id of its process."""
ASKED, HEARD, GIVEN = "asked.json", "heard", "given.json"
"""The same of one that asks for more on its way: the question, a sign that a connection hears it, the answer."""
LOOK_S = 0.5
"""The time between two looks for news by a connection that follows a job."""
SILENT = 10
"""After so many looks without any, it sends word that it is still there."""
PLACE = re.compile(r"(exported/[0-9a-f]{64}|fleet/[0-9a-f]{32,64})")
"""The places below the cache where what is sent may lie."""


class NodeJob:
    """One job on this node. Ray makes it, calls `run`, and may call `stop` meanwhile."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, module: str, job: dict[str, Any], folder: bytes, package: bytes, files: bytes) -> dict[str, Any]:
        """Run `python -m MODULE FOLDER PARENT` in the folder of the user's files, to its end.

        Args:
            job: the process finds it as JSON in FOLDER.
            folder: a zip of the run folder that it goes on with; empty for a new one.
            package, files: zips of this package and of the user's own files.

        Returns:
            The process's answer, or `error` and `code`; and as `folder` a zip of the run folder.

        Raises:
            OSError: the cache can't be used; says what to do.
        """
        home = _cache_folder()
        package_folder, files_folder = _unpack_once(home, package), _unpack_once(home, files)
        with tempfile.TemporaryDirectory(prefix="shootout-job-") as temporary:
            place = Path(temporary)
            _fill_job(place, job, folder)
            self._process = _start_job(place, module, package_folder, files_folder)
            return {**_read_answer(place, self._process.wait()), "folder": zip_folder(place / RUN)}

    def stop(self) -> None:
        """Ask the process to end, and to keep what it has: `run` returns soon then."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def _fill_job(place: Path, job: dict[str, Any], folder: bytes) -> None:
    """Write a job's words, and the run folder that it goes on with, a zip, if there is one."""
    run = place / RUN
    if folder:
        with zipfile.ZipFile(io.BytesIO(folder)) as archive:
            archive.extractall(run)  # noqa: S202 - what we sent ourselves
    (place / JOB).write_text(json.dumps({**job, "out": str(run)}), encoding="utf-8")


def _start_job(place: Path, module: str, package: Path, files: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment.pop("OMP_NUM_THREADS", None)  # Ray sets it by what it gave out, and the whole node is ours
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (place / OUTPUT).open("wb") as output, _interrupts_inherited():
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", module, str(place), str(os.getpid())],
            cwd=files,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


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


def _read_answer(place: Path, code: int) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads((place / ANSWER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        lines = (place / OUTPUT).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = f"the process ended with code {code}: {' | '.join(lines[-3:])}"
        return {"error": reason, "code": 1}  # as `ExitCode.ERROR`, which can't be imported here
    return answer


@contextmanager
def _interrupts_inherited() -> Iterator[None]:
    """Unblock Ctrl-C for what is started meanwhile: Ray's process blocks it, and a child inherits that."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cache_folder() -> Path:
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


def _unpack_once(home: Path, data: bytes) -> Path:
    """Return the folder with a zip's files, named by its hash and unpacked once."""
    place = home / hashlib.sha256(data).hexdigest()[:32]
    if not place.exists():
        made = Path(tempfile.mkdtemp(prefix="new-", dir=home))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(made)  # noqa: S202 - what we sent ourselves
        try:
            made.rename(place)
        except OSError:  # another job of ours was first
            shutil.rmtree(made, ignore_errors=True)
    os.utime(place)  # the cache removes what was used longest ago
    return place


def main() -> None:
    """Do what a line of JSON on stdin asks, and answer with one on stdout; what goes wrong is told in it."""
    asked = json.loads(sys.stdin.buffer.readline())
    verbs: dict[str, Callable[..., None]] = {
        "look": _look,
        "put": _put,
        "begin": _begin,
        "follow": _follow,
        "give": _give,
        "stop": _stop,
        "drop": _drop,
    }
    try:
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
    _tell(path=sys.executable, name=platform.node(), cpus=os.cpu_count() or 1, versions=versions)


def _put(places: dict[str, list[str]], members: int | None = None) -> None:
    """Tell which of these files the cache lacks; with members, add those of the only place from a tar on stdin.

    Args:
        places: the names of files, by the place in the cache where they belong. The answer has the places that lack
            some of theirs, or all.
        members: how many files the tar has: one that was cut looks like a shorter one.
    """
    home = _cache_folder().parent
    if wrong := [place for place in places if not PLACE.fullmatch(place)]:
        raise OSError(f"nothing may be sent to {wrong[0]}")
    lacks = {place: [name for name in names if not (home / place / name).exists()] for place, names in places.items()}
    for folder in filter(Path.exists, map(home.joinpath, places)):
        os.utime(folder)  # the cache removes what was used longest ago
    if members is None:
        _tell(lacks={place: names for place, names in lacks.items() if names or not (home / place).exists()})
        return
    (place,) = places
    (home / place).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="new-", dir=_cache_folder()))
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(made, **safely)  # noqa: S202 - what we sent ourselves
            if len(archive.getmembers()) != members:
                raise OSError("the connection was lost")
        with suppress(OSError):  # some of its files are there, or another job was first
            made.rename(home / place)
        for path in [path for path in made.rglob("*") if path.is_file()]:
            there = home / place / path.relative_to(made)
            there.parent.mkdir(parents=True, exist_ok=True)
            path.replace(there)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _tell(lacks={})


def _begin(id: str, module: str, job: dict[str, Any], package: str, files: str, size: int, now: str) -> None:  # noqa: A002
    """Start a job that outlives this connection, unless one of this name was begun before and not dropped.

    Args:
        size: bytes of a zip on stdin: the run folder that it goes on with.
        now: the sender's time in UTC; this host's clock may be wrong, and `ends_utc` goes by the sender's.
    """
    place, home = _job_folder(id), _cache_folder()
    folder = sys.stdin.buffer.read(size) if size else b""
    if len(folder) != size:
        raise OSError("the connection was lost")
    if job.get("ends_utc"):
        late = datetime.now(UTC) - datetime.fromisoformat(now)
        job["ends_utc"] = (datetime.fromisoformat(job["ends_utc"]) + late).isoformat(timespec="milliseconds")
    made = Path(tempfile.mkdtemp(prefix="new-", dir=home))
    with (made / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which the process that is forked holds on to
        try:
            made.rename(place)
        except OSError:
            shutil.rmtree(made)
            _tell(begun=False)
            return
        try:
            _fill_job(place, job, folder)
        except OSError:  # or the next command would take it for one that was begun
            shutil.rmtree(place)
            raise
        if os.fork() == 0:
            _supervise(place, module, home / package, home / files)
    while not (place / PID).exists() and not _is_over(place):
        time.sleep(LOOK_S / 10)
    _tell(begun=True)


def _supervise(place: Path, module: str, package: Path, files: Path) -> None:
    """Run a job to its end, whatever becomes of the connection. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        process = _start_job(place, module, package, files)
        write_whole(place / PID, str(process.pid))
        write_whole(place / RESULT, json.dumps(_read_answer(place, process.wait())))
    except Exception as error:
        write_whole(place / RESULT, json.dumps({"error": f"{type(error).__name__}: {error}", "code": 1}))
    finally:
        os._exit(0)


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    made = path.with_suffix(".new")
    made.write_text(text, encoding="utf-8")
    made.rename(path)


def _follow(id: str, seen: int) -> None:  # noqa: A002
    """Tell what a job prints, from so many bytes on, what it asks for, and its end: with what, its folder behind it."""
    place = _job_folder(id)
    if not (place / LOCK).exists():
        _tell(gone=True)
        return
    is_over, silent, asked = False, 0, ""
    while not is_over:
        is_over = _is_over(place)
        with suppress(OSError), (place / OUTPUT).open("rb") as output:
            output.seek(seen)
            text = output.read()
            if not is_over:
                text = text[: text.rfind(b"\n") + 1]  # a line that is half written is told when it is whole
            silent = 0 if text else silent + 1
            if text or silent % SILENT == 0:  # so that both ends hear of a lost connection
                seen += len(text)
                _tell(seen=seen, text=text.decode(errors="replace"))
        with suppress(FileNotFoundError):
            asks = (place / ASKED).read_text(encoding="utf-8")
            (place / HEARD).touch()
            if asks != asked:
                _tell(asks=json.loads(asks))
            asked = asks
        if not is_over:
            time.sleep(LOOK_S)
    result = place / RESULT
    died = {"error": "its process is gone, as after a restart of the host", "code": 1}
    answer = json.loads(result.read_text(encoding="utf-8")) if result.exists() else died
    folder = zip_folder(place / RUN)
    _tell(answer=answer, size=len(folder), sha256=hashlib.sha256(folder).hexdigest())
    sys.stdout.buffer.write(folder)
    sys.stdout.buffer.flush()


def _is_over(place: Path) -> bool:
    with (place / LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _give(id: str, given: dict[str, Any]) -> None:  # noqa: A002
    """Give a job what it asked for."""
    write_whole(_job_folder(id) / GIVEN, json.dumps(given))
    _tell(given=True)


def _stop(id: str) -> None:  # noqa: A002
    """Ask a job to end, and to keep what it has."""
    place = _job_folder(id)
    if (place / LOCK).exists() and not _is_over(place):
        os.kill(int((place / PID).read_text(encoding="utf-8")), signal.SIGINT)
    _tell(stopped=True)


def _drop(id: str) -> None:  # noqa: A002
    """Forget a job, whose folder was copied."""
    shutil.rmtree(_job_folder(id), ignore_errors=True)
    _tell(dropped=True)


def _job_folder(id: str) -> Path:  # noqa: A002
    return _cache_folder() / f"job-{int(id, 16):032x}"


if __name__ == "__main__":
    main()
