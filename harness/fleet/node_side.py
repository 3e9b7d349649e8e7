"""Run one job inside Ray's own process on a node: unpack what was sent, start our process, return what it wrote.

This module travels as source to nodes that have none of this package, so it imports the standard library alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ANSWER, JOB, JOURNAL, RUN, OUTPUT = "answer.json", "job.json", "journal.jsonl", "run", "output.txt"
"""What lies in a job's folder: its answer, its words, the run folder and its journal, what its process prints."""


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
            run = place / RUN
            if folder:
                with zipfile.ZipFile(io.BytesIO(folder)) as archive:
                    archive.extractall(run)
            (place / JOB).write_text(json.dumps({**job, "out": str(run)}), encoding="utf-8")
            environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
            environment.pop("OMP_NUM_THREADS", None)  # Ray sets it by what it gave out, and the whole node is ours
            paths = [str(package_folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            with (place / OUTPUT).open("wb") as output, _interrupts_inherited():
                self._process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-P", "-m", module, temporary, str(os.getpid())],
                    cwd=files_folder,
                    env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            code = self._process.wait()
            return {**_read_answer(place, code), "folder": zip_folder(run)}

    def stop(self) -> None:
        """Ask the process to end, and to keep what it has: `run` returns soon then."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def zip_folder(folder: Path) -> bytes:
    """Return all files below a folder as a zip, but for hidden ones; the journal last, since it names the others."""
    made = io.BytesIO()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
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
            archive.extractall(made)
        try:
            made.rename(place)
        except OSError:  # another job of ours was first
            shutil.rmtree(made, ignore_errors=True)
    os.utime(place)  # the cache removes what was used longest ago
    return place
