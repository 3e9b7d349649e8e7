"""Kill a short run's parent, or one of its processes, at random; then run the same command again.

The run is real but for its few rounds (`support.deaf`): a cold cache, an export, builds, forked and started workers,
and an adapter that starts a process. What must hold afterwards is in `Found`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.adapters.misbehaving import installed
from support.console import TESTS, children_of, deaf, environment

from lab.common import Bench, Tables, say
from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Stopwatch
from shootout.core.errors import ShootoutError
from shootout.core.exported.model import open_exported
from shootout.core.host.folders import NAME
from shootout.core.journal import journal
from shootout.core.journal.journal import History
from shootout.core.journal.records import Header, Line, Played, Rounds, Setback
from shootout.core.journal.samples import read

KILLS, QUICK = 50, 2
TABLE, FAULTS = "kill -9 at random instants", "what was wrong"
STUDY = 'model = "identity"\ntargets = ["numpy", "starts"]\nmax_restarts = 2\n'
BACKENDS = ("numpy", "starts")
PARENT, WORKER = "parent", "worker"
MOST_COMMANDS = 6
LOOKING_S = 0.005
TIMEOUT_S = 600
ENDED = "it had ended"
"""The word in `Found.during` for a run that ended before the kill."""


def figures(bench: Bench) -> Tables:
    """Count both kinds by turns, so that one that is stopped has some of each."""
    folder = bench.folder / "kills"
    usual_s = whole_s(folder / "whole")
    found: list[Found] = []
    for number in range(bench.repeats(KILLS, QUICK)):
        for kind in (PARENT, WORKER):
            place = folder / f"{kind}-{number}"
            one = drill(place, kind, f"{bench.seed} {number}", usual_s)
            found.append(one)
            say(f"{kind} {number}: after {one.after_s:.1f} s, {one.during}: {one.fault or 'well'}")
            if not one.fault:
                shutil.rmtree(place)
            bench.keep(_make_tables(found))
    return _make_tables(found)


def _make_tables(found: list[Found]) -> Tables:
    faults = [{"failed": one.fault, **asdict(one)} for one in found if one.fault]
    return {TABLE: [as_row(found, kind) for kind in (PARENT, WORKER)], **({FAULTS: faults} if faults else {})}


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of one run.

    Attributes:
        after_s: when the kill came, in seconds since the command began.
        during: what the journal had come to by then.
        commands: how often the command was given until the run was complete.
        lost: lines of the journal, as it was at the kill, that it has no more, and samples that can't be read.
        twice: arms of a restart that were measured more than once, and numbers of restarts that are missing.
        left: files and folders that aren't needed, entries of the cache that aren't whole, processes that live on.
        without_time: backends that have no time.
        ended: why the run wasn't complete in the end; "" where it was.
    """

    kind: str
    seed: str
    after_s: float
    during: str
    commands: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    left: tuple[str, ...]
    without_time: tuple[str, ...]
    ended: str

    @property
    def fault(self) -> str:
        """Return what is wrong; "" if nothing is."""
        named = {"lost": self.lost, "twice": self.twice, "left": self.left, "without": self.without_time}
        told = [f"{name}: {', '.join(some)}" for name, some in named.items() if some]
        return "; ".join([*told, *filter(None, [self.ended])])


class Drill:
    """A run in a folder of its own, with its cache and temporary files.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.cache, self.tmp = folder / "cache", folder / "tmp"
        self.tmp.mkdir(parents=True)
        self.cache.mkdir(mode=0o700)
        (folder / "study.toml").write_text(STUDY)
        found = filter(None, [str(TESTS), str(installed(folder / "third")), os.environ.get("PYTHONPATH")])
        where = {"SHOOTOUT_CACHE": str(self.cache), "TMPDIR": str(self.tmp)}
        self._environment = environment(PYTHONPATH=os.pathsep.join(found), **where)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command, which goes on with what there is."""
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                deaf("run", "study.toml", "--out", "out"),
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def finish(self) -> int:
        """Give the command until the run is complete; how often that was."""
        for count in range(1, MOST_COMMANDS + 1):
            wait(self.start())
            if self.is_complete():
                return count
        return MOST_COMMANDS

    def is_complete(self) -> bool:
        """Return whether everything was measured as often as the study allows."""
        found = self.history()
        return bool(found and found.played_out)

    def history(self) -> History | None:
        """Read the journal as it is now; None before there is one."""
        try:
            return journal.read(self.out)
        except ShootoutError:
            return None

    def processes(self) -> list[int]:
        """Return all that the run and whatever it started have running."""
        mark, found = b"SHOOTOUT_CACHE=%b" % os.fsencode(self.cache), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:
                pass
        return found

    def left(self) -> list[str]:
        """List files that are there and that nothing needs."""
        found = [f"{path.name} in TMPDIR" for path in self.tmp.iterdir()]
        exported_models = self.cache / "exported"
        found += [f"{path.name} in the cache" for path in exported_models.iterdir() if path.name.startswith(NAME)]
        entries = [path for path in exported_models.iterdir() if path.is_dir() and path.name != "built"]
        found += [f"{path.name} is no exported model" for path in entries if not _is_whole(path)]
        found += [
            f"{path.name} is no build" for path in exported_models.glob("built/*") if not (path / "built.json").exists()
        ]
        history = self.history()
        named = {line.samples for line in history.lines if isinstance(line, Played)} if history else set()
        found += [str(path.name) for path in (self.out / "samples").glob("*") if f"samples/{path.name}" not in named]
        return found + [f"process {pid}" for pid in self.processes()]


def drill(
    folder: Path, kind: str, seed: str, whole_s: float = 0.0, reached: Callable[[Drill], bool] = lambda _: True
) -> Found:
    """Kill one run, give its command again until it is complete, and look.

    Args:
        kind: what is killed: the parent, or one of its processes.
        seed: decides when, and which.
        whole_s: seconds that a run takes if it isn't killed.
        reached: whether it has come so far that it may be killed.
    """
    run, rng = Drill(folder), random.Random(f"{kind} {seed}")
    after_s = rng.uniform(0, 0.9 * whole_s)
    process = run.start()
    with Stopwatch() as watch:
        time.sleep(after_s)
        while process.poll() is None and not reached(run):
            time.sleep(LOOKING_S)
        killed = _kill_one(process, kind, rng)
    before = (run.out / journal.NAME).read_bytes() if (run.out / journal.NAME).exists() else b""
    history = run.history()
    has_begun = history and not all(
        isinstance(line, Header) or (isinstance(line, Setback) and line.kind == "skip") for line in history.lines
    )  # else it begins again
    sound = history.sound_bytes if history and has_begun else 0
    wait(process)
    commands = 1 if run.is_complete() and not (kind == PARENT and killed) else 1 + run.finish()
    return Found(
        kind=kind,
        seed=seed,
        after_s=round(watch.seconds, 3),
        during=_stage_of(history) if killed else ENDED,
        commands=commands,
        lost=tuple(_find_losses(run, before[:sound])),
        twice=tuple(_find_repeats(run)),
        left=tuple(run.left()),
        without_time=tuple(_without_time(run)),
        ended="" if run.is_complete() else f"not complete after {commands} commands",
    )


def wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until it has ended; one that seems never to is ended.

    Raises:
        subprocess.TimeoutExpired: it was.
    """
    try:
        process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()  # its own processes end with it
        process.wait()
        raise


def whole_s(folder: Path) -> float:
    """Return the seconds that the run takes if it isn't killed.

    Raises:
        AssertionError: even that one isn't as it must be.
    """
    run = Drill(folder)
    with Stopwatch() as watch:
        wait(run.start())
    assert run.is_complete(), (folder / "said").read_text()
    assert not run.left(), run.left()
    assert not list(_without_time(run))
    return watch.seconds


def _kill_one(process: subprocess.Popen[bytes], kind: str, rng: random.Random) -> bool:
    """Kill the parent, or one of its processes as soon as there is one; return whether there was any."""
    while process.poll() is None:
        if kind == PARENT:
            process.kill()
            return True
        if children := sorted(children_of(process.pid)):
            try:
                os.kill(rng.choice(children), signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
        time.sleep(LOOKING_S)
    return False


def _stage_of(history: History | None) -> str:
    lines: Sequence[Line] = history.lines if history else ()
    if not lines:
        return "before the journal"
    if not any(line.kind in ("prepared", "checked") for line in lines):
        return "exports and builds"
    return f"after {sum(isinstance(line, Rounds) for line in lines)} restarts"


def _find_losses(run: Drill, before: bytes) -> Iterable[str]:
    now = (run.out / journal.NAME).read_bytes() if (run.out / journal.NAME).exists() else b""
    if not now.startswith(before):
        yield f"{len(before)} bytes of the journal were there and are not"
    history = run.history()
    for line in history.lines if history else ():
        if isinstance(line, Played) and not read(run.out, line.samples, line.arm, "end_to_end").size:
            yield f"{line.samples} of {line.arm}"


def _find_repeats(run: Drill) -> Iterable[str]:
    history = run.history()
    lines = history.lines if history else ()
    count = Counter((line.restart, line.arm) for line in lines if isinstance(line, Played))
    yield from (f"{arm} in restart {restart}" for (restart, arm), often in count.items() if often > 1)
    numbers = [line.restart for line in lines if isinstance(line, Rounds)]
    if numbers != list(range(len(numbers))):
        yield f"restarts {numbers}"


def _without_time(run: Drill) -> Iterable[str]:
    rows: dict[str, Any] = {row.backend: row for row in analyse(run.out).rows} if run.history() else {}
    for name in BACKENDS:
        row = rows.get(name)
        if row is None or row.end_to_end is None:
            yield f"{name}: {row.reason if row else 'no row'}"


def _is_whole(exported: Path) -> bool:
    try:
        open_exported(exported)
    except ShootoutError:
        return False
    return True


def as_row(found: Sequence[Found], kind: str) -> dict[str, Any]:
    """Sum up the kills of one kind as a line of a table."""
    mine = [one for one in found if one.kind == kind]
    return {
        "killed": kind,
        "kills": sum(one.during != ENDED for one in mine),
        "runs with records lost": sum(bool(one.lost) for one in mine),
        "measured twice": sum(bool(one.twice) for one in mine),
        "with something left behind": sum(bool(one.left) for one in mine),
        "with an arm without a time": sum(bool(one.without_time) for one in mine),
        "unfinished": sum(bool(one.ended) for one in mine),
        "commands, mean": round(sum(one.commands for one in mine) / max(1, len(mine)), 2),
        "when": json.dumps(dict(sorted(Counter(one.during for one in mine).items()))),
    }
