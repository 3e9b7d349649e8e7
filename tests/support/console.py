"""The command line as a user has it, in a process of its own: real, or deaf to this machine's noise (see `deaf`)."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from shootout import cli
from shootout.core import backends
from shootout.core.contract import Availability
from shootout.core.study import plan
from shootout.core.worker.availability import Pair, PythonInterpreter, known_available
from support.deaf import FORKED, STOPS_IN, deafen
from support.forked_workers import fork_workers

TESTS = Path(__file__).resolve().parents[1]
SHOOTOUT = [sys.executable, "-c", "from shootout.cli import main; main()"]
TIMEOUT_S = 120
PR_CAPBSET_DROP = 24


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON document on stdout; anything else there fails."""
        return json.loads(self.out)


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": _python_path(TESTS), **changes}


def _python_path(*folders: Path) -> str:
    """The folders, then those that are there: a process must import the same package as this one, or exports differ."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def deaf(*words: object, forked: bool = False, stops_in: int | str | None = None, **constants: float) -> list[str]:
    """The command line of a deaf run; `core__race__pace__SOME_S=2` changes that constant in `shootout.core.race.pace`.

    Args:
        words: of the command line.
        forked: whether its workers are forked, where a test is not about how they start and end.
        stops_in: where it stops itself, see `STOPS_IN`.
        constants: the changed ones.
    """
    changes = {**_changes(constants), FORKED: forked, STOPS_IN: stops_in}
    return [sys.executable, str(TESTS / "support" / "deaf.py"), json.dumps(changes), *map(str, words)]


def _changes(constants: Mapping[str, float]) -> dict[str, float]:
    return {f"shootout.{name.replace('__', '.')}": value for name, value in constants.items()}


def call(command: list[str], cwd: Path, env: Mapping[str, str] | None = None, **how: Any) -> Ended:
    """Run a command to its end; a traceback is never what a user may see."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment() if env is None else dict(env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        **how,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


def deaf_here(
    *words: object,
    cwd: Path,
    modules: Path | None = None,
    probed_here: Collection[str] = (),
    taken_to_work: Collection[str] = (),
    **constants: float,
) -> Ended:
    """A deaf run in this process, without its imports: its workers are processes as ever, but forked with theirs.

    Args:
        words: of the command line.
        cwd: its working folder.
        modules: a folder that it and its workers import from too.
        probed_here: backends that are asked in this process whether they work, which saves each a process.
        taken_to_work: backends that aren't asked.
        constants: as in `deaf`.
    """

    def found(
        pairs: Collection[Pair], others: Mapping[str, PythonInterpreter], *, fresh: bool
    ) -> dict[Pair, Availability]:
        answers = {(name, device): backends.get(name).probe(device) for name, device in pairs if name in probed_here}
        answers |= {pair: Availability(version="1") for pair in pairs if pair[0] in taken_to_work}
        return {**answers, **known_available({*pairs} - {*answers}, others, fresh=fresh)}

    with pytest.MonkeyPatch.context() as patch:
        deafen(_changes(constants), patch.setattr)
        patch.setattr(plan, "known_available", found)
        fork_workers(patch.setattr)
        patch.setenv("PYTHONPATH", _python_path(TESTS, *([modules] if modules else [])))
        if modules:
            patch.syspath_prepend(modules)
        return here(*words, cwd=cwd)


def here(*words: object, cwd: Path) -> Ended:
    """The command in this process: for words and exit codes, not for what a process does.

    Anything but a clean exit is a traceback, which fails, as does one on stderr (a thread's, or a handler's).
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ),  # `--gpu` sets variables, which are the next test's otherwise
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["shootout", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    for number, handler in before.items():
        signal.signal(number, handler)
    out.seek(0)
    err.seek(0)
    found = Ended(int(ended.value.code or 0), out.read(), err.read())
    assert "Traceback" not in found.err, found.err
    return found


def without_privileges() -> None:
    """Before exec: permission bits hold for root too (it drops CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH)."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        assert all(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 for capability in (1, 2))


def spin_study(folder: Path, *, restarts: int = 2, arms: int = 2, work: int = 20, name: str = "tiny") -> Path:
    """A study file that takes about a second a restart and needs no framework."""
    path = folder / f"{name}.toml"
    targets = ", ".join(['"spin"'] * arms)
    path.write_text(
        f'model = "identity"\ntargets = [{targets}]\nmax_restarts = {restarts}\n[options.spin]\nwork = "{work}"\n'
    )
    return path


def children_of(pid: int) -> set[int]:
    """All living processes that descend from `pid`."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *children_of(child)}
    return found


def state(pid: int) -> str:
    """The state letter in /proc, "" when there is no such process (or only its zombie is left)."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if letter in "ZX" else letter
