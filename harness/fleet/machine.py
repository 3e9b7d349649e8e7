"""What runs inside the cluster's own process on a node: it unpacks what was sent, starts our process, and reads along.

It travels as source, to nodes that have none of this package: it imports the standard library alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

ANSWER, JOB, JOURNAL, RUN, WORDS = "answer.json", "job.json", "journal.jsonl", "run", "said.txt"
"""What a job's folder holds: its answer, its words, and below its run folder the journal."""
LOCK, OLD_S = "lock", 86_400.0
"""A file in it that is locked while its process lives; without that, what is older is removed."""
SENT = ("samples",)
"""Folders of a run whose files are whole once the journal names them; all else is sent when the process has ended."""


class Machine:
    """One job on this node, from its beginning to its end.

    Making one can't fail: the cluster would tell the asker no more than that it is gone.
    """

    def __init__(self) -> None:
        self._folder, self._run = Path(), Path()
        self._lock: IO[bytes] | None = None
        self._sent: dict[str, int] = {}
        self._told = 0
        self._process: subprocess.Popen[bytes] | None = None

    def begin(
        self,
        module: str,
        told: dict[str, Any],
        folder: dict[str, bytes],
        package: bytes,
        package_sha256: str,
        files: bytes,
        files_sha256: str,
    ) -> None:
        """Start the job: `python -m MODULE` in the folder of the user's files.

        Args:
            told: the job's words.
            folder: what its run folder holds already.
            package, files: archives with this package, and with the user's own files.
            package_sha256, files_sha256: theirs, as they were sent.

        Raises:
            ValueError: an archive isn't what was sent.
            OSError: the cache can't be used; says what to do.
        """
        home = _home()
        _sweep(home)
        place, here = _unpacked(home, package, package_sha256), _unpacked(home, files, files_sha256)
        self._folder = Path(tempfile.mkdtemp(prefix="job-", dir=home))
        self._lock = (self._folder / LOCK).open("wb")
        with suppress(OSError):  # a disk without locks, where no sweep removes a job's folder either
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._run = self._folder / RUN
        for path, data in folder.items():
            held = self._run / path
            held.parent.mkdir(parents=True, exist_ok=True)
            held.write_bytes(data)
            self._sent[path] = len(data)
        (self._folder / JOB).write_text(json.dumps({**told, "out": str(self._run)}), encoding="utf-8")
        paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
        given = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        given.pop("OMP_NUM_THREADS", None)  # the cluster sets it by what it gave out, and the whole node is ours
        with (self._folder / WORDS).open("wb") as words, _heard(signal.SIGINT):
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", module, str(self._folder), str(os.getpid())],
                cwd=here,
                env={**given, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )

    def poll(self) -> dict[str, Any]:
        """What is new: `pieces` of files (path, offset, bytes), `said`, and `answer` once the process has ended."""
        assert self._process is not None
        code = self._process.poll()
        pieces = self._pieces(every=code is not None)
        words = (self._folder / WORDS).read_bytes()
        said, self._told = words[self._told :].decode(errors="replace").splitlines(), len(words)
        return {"pieces": pieces, "said": said, "answer": None if code is None else self._answer(code, words)}

    def stop(self) -> None:
        """Ask the process to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the process, and remove the job's folder; what was unpacked stays for the next one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.close()

    def _pieces(self, *, every: bool) -> list[tuple[str, int, bytes]]:
        """Whole lines of the journal, behind all files that they name."""
        journal = self._run / JOURNAL
        at = self._sent.get(JOURNAL, 0)
        lines = b""
        if journal.exists():
            with journal.open("rb") as file:
                file.seek(at)
                lines = file.read()
            lines = lines[: lines.rfind(b"\n") + 1]
        folders = [self._run] if every else [self._run / name for name in SENT]
        found = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
        pieces = []
        for path in found:
            name = str(path.relative_to(self._run))
            if name in self._sent or path == journal or path.name.startswith("."):
                continue
            data = path.read_bytes()
            self._sent[name] = len(data)
            pieces.append((name, 0, data))
        if lines:
            self._sent[JOURNAL] = at + len(lines)
            pieces.append((JOURNAL, at, lines))
        return pieces

    def _answer(self, code: int, words: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads((self._folder / ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = " | ".join(words.decode(errors="replace").strip().splitlines()[-3:])
            return {"error": f"the process ended with code {code}: {last}", "code": 1}
        return answer


@contextmanager
def _heard(number: signal.Signals) -> Iterator[None]:
    """Let what is started meanwhile hear a signal: the cluster's own process blocks Ctrl-C, which is inherited."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _home() -> Path:
    """The cache's folder for what is sent.

    Raises:
        PermissionError: others can write there.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "shootout"
    home = Path(os.environ.get("SHOOTOUT_CACHE") or home).expanduser().absolute() / "fleet"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"others can write {home}: chmod 700 it, or set SHOOTOUT_CACHE")
    return home


def _sweep(home: Path) -> None:
    """Remove what killed processes left. Another machine's may lie here, on a shared disk, which shares locks too."""
    for left in [*home.glob("job-*"), *home.glob("new-*")]:
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > OLD_S and not _is_locked(left / LOCK):
                shutil.rmtree(left)


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _unpacked(home: Path, data: bytes, digest: str) -> Path:
    """The folder with an archive's files, unpacked once.

    Raises:
        ValueError: it isn't what was sent.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"what arrived isn't what was sent: its SHA-256 should begin with {digest[:12]}")
    place = home / digest[:32]
    if not place.exists():
        made = Path(tempfile.mkdtemp(prefix="new-", dir=home))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(made)
        try:
            made.rename(place)
        except OSError:  # another job of ours was first
            shutil.rmtree(made, ignore_errors=True)
    os.utime(place)
    return place
