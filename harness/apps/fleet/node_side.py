"""Run one task on a node: keep what was sent, start a process, return what it wrote.

Ray calls `run_sent` there. A host that is reached by ssh runs this module as a program: a line of JSON says what to do,
and an answer goes back. The run folder of a named task stays in the node's cache, and the same task goes on in it: so
what was measured is never lost with a connection, a process or a node's network.

This module travels as source to nodes that have none of this package, so it imports the standard library alone.
"""

from __future__ import annotations

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
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

JOURNAL = "journal.jsonl"
LOOK_S = 0.2
"""The time between two looks whether a process has ended."""
LAST_LINES = 3
"""Lines that a process told at its end: its last words."""


def run_task(
    name: str,
    words: Sequence[str],
    folder: bytes,
    package: str,
    files: str,
    *,
    is_new: bool,
    begun: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    hear: Callable[[bytes], None] = lambda _: None,
) -> dict[str, Any]:
    """Run `python -m WORDS` to its end, in the folder of the user's files; a Ctrl-C ends it in order.

    Args:
        name: of the folder that it goes on in, kept here; "": it needs none.
        words: see `Task.words`.
        folder: a zip of the run folder that it goes on with, unless the one kept here has the longer journal; empty for
            none.
        package, files: the places of this package and of the user's own files.
        is_new: whether it starts over, whatever is kept here.
        begun: gets the process, to end it by a signal.
        hear: hears each line that it tells.

    Returns:
        The fields of the task's `Answer`.

    Raises:
        OSError: the cache can't be used; says what to do.
    """
    home = cache_folder()
    with tempfile.TemporaryDirectory(prefix="new-", dir=home) as made:
        run = Path(made, "run")
        run.mkdir()
        if folder:
            zipfile.ZipFile(io.BytesIO(folder)).extractall(run)  # noqa: S202 - what we sent ourselves
        if name:
            kept = home / f"task-{name}-{re.sub('[^A-Za-z0-9]', '', platform.node())}"  # homes may be shared
            if is_new or not kept.exists() or _size(kept / JOURNAL) < _size(run / JOURNAL):
                shutil.rmtree(kept, ignore_errors=True)
                run.rename(kept)
            run = kept
        return _run(run, words, home.parent / package, home.parent / files, begun, hear)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _run(
    run: Path,
    words: Sequence[str],
    package: Path,
    files: Path,
    begun: Callable[[subprocess.Popen[bytes]], None],
    hear: Callable[[bytes], None],
) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment.pop("OMP_NUM_THREADS", None)  # Ray sets it by what it gave out, and the whole node is ours
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    filled = [word.replace("{run}", str(run), 1) if word.startswith("{run}") else word for word in words]
    last = list[bytes]()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", *filled],
            cwd=files,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        begun(process)
        hearing = Thread(target=_hear, args=(process.stderr, last, hear))
        hearing.start()
        while process.poll() is None:
            try:
                time.sleep(LOOK_S)  # Ray's Ctrl-C interrupts nothing but Python's own steps
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
        hearing.join()
        printed.seek(0)
        told = printed.read().decode(errors="replace")
    said = " | ".join(line.decode(errors="replace").strip() for line in last[-LAST_LINES:])
    return {"code": process.returncode, "printed": told, "said": said, "folder": zip_folder(run)}


def _hear(stream: IO[bytes], lines: list[bytes], hear: Callable[[bytes], None]) -> None:
    for line in stream:
        lines.append(line)
        hear(line)


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
    made = Path(tempfile.mkdtemp(prefix="new-", dir=cache_folder()))
    try:
        with tarfile.open(fileobj=tar, mode="r|") as archive:
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(made, **safely)  # noqa: S202 - what we sent ourselves
            if members != len(archive.getmembers()):
                raise OSError("the connection was lost")
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in [path for path in made.rglob("*") if path.is_file()]:
            there = into / path.relative_to(made)
            there.parent.mkdir(parents=True, exist_ok=True)
            path.replace(there)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def find_lacking(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return which of these files the cache lacks, by the place there; also a place that is lacking as a whole."""
    home = cache_folder().parent
    for folder in filter(Path.exists, map(home.joinpath, places)):
        os.utime(folder)  # the cache removes what was used longest ago
    lacks = {place: [name for name in names if not (home / place / name).exists()] for place, names in places.items()}
    return {place: names for place, names in lacks.items() if names or not (home / place).exists()}


def run_sent(
    name: str, words: list[str], folder: bytes, sent: list[tuple[str, int, bytes]], *, is_new: bool
) -> dict[str, Any]:
    """Run a task on a node of a Ray cluster, as `run_task` does.

    Args:
        sent: the package and the user's files: the place, the number of files and a tar of each.
    """
    for place, members, tar in sent:
        if find_lacking({place: []}):
            receive(place, io.BytesIO(tar), members)
    package, files = (place for place, _, _ in sent)
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which a child inherits
    try:
        return run_task(name, words, folder, package, files, is_new=is_new)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    """Do what a line of JSON on stdin asks, and answer with one on stdout; what goes wrong is told in it."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        verbs: dict[str, Callable[..., None]] = {"look": _look, "put": _put, "run": _run_asked}
        verbs[asked.pop("verb")](**asked)
    except OSError as error:
        fix = "; set SHOOTOUT_CACHE there to a folder with space that it can write to" if error.errno else ""
        _answer(error=f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}{fix}")


def _answer(**answer: Any) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def _look(packages: list[str], places: dict[str, list[str]]) -> None:
    """Tell the versions of those of these packages that this Python has, and which of these files the cache lacks."""
    versions = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    _answer(path=sys.executable, versions=versions, lacks=find_lacking(places))


def _put(place: str, members: int) -> None:
    """Add files to a place from a tar on stdin."""
    receive(place, sys.stdin.buffer, members)
    _answer()


def _run_asked(size: int, **task: Any) -> None:
    """Run a task with the zip on stdin, of so many bytes; the end of stdin, and so of the connection, ends it."""
    folder = sys.stdin.buffer.read(size)
    if len(folder) != size:
        raise OSError("the connection was lost")

    def end_with_connection(process: subprocess.Popen[bytes]) -> None:
        def wait() -> None:
            sys.stdin.buffer.read()
            process.send_signal(signal.SIGINT)

        Thread(target=wait, daemon=True).start()

    def hear(line: bytes) -> None:
        with suppress(OSError):
            os.write(2, line)

    answer = run_task(folder=folder, begun=end_with_connection, hear=hear, **task)
    data = answer.pop("folder")
    with suppress(OSError):
        _answer(**answer)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    os._exit(0)  # a thread that reads stdin would keep the interpreter from ending in order


if __name__ == "__main__":
    main()
