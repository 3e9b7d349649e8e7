"""Run the two kinds of process that take turns in the parity check: a harness worker, and one of `plain.py`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from lab.common import Bench
from shootout.core.adapter import Built
from shootout.core.host.placement import child_environment, on_cpus
from shootout.core.messages import SCOPES, Ask
from shootout.core.race.live_arm import warm_up

from . import plain

Medians = Mapping[str, float]
"""A round's median in ns by scope."""


class Side(Protocol):
    """One process of a restart."""

    def block(self, rng: random.Random) -> Medians:
        """Time one block in each scope."""

    def kill(self) -> None:
        """End it."""


class Ours:
    """A harness worker, entered as a restart does it."""

    def __init__(self, bench: Bench, built: Built, padding: int) -> None:
        self._player = bench.stage([built]).take(built.arm, padding)
        try:
            self._enter_restart()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it."""
        self._player.kill()

    def _enter_restart(self) -> None:
        self._player.start()
        self._player.load()
        if fault := self._player.verify().fault:
            raise RuntimeError(fault)
        warm_up(self._player)
        self._player.tuned = self._player.tune()
        self._player.hold()

    def block(self, rng: random.Random) -> Medians:
        """Take one turn."""
        self._player.release()
        turn = self._player.turn(Ask(scopes=tuple(rng.sample(SCOPES, len(SCOPES)))))
        self._player.hold()
        return {scope: float(np.median(latency)) for scope, latency in turn.latency_ns.items()}


class Held:
    """A script in a process of its own that answers one line for each line it gets, and stands still in between.

    Args:
        bench: whose placement and log folder it gets.
        script: with its arguments; after them comes our process id.
        padding: see `child_environment`.
        variables: beside the arms' own.
    """

    def __init__(
        self, bench: Bench, script: Sequence[str], padding: int, variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = bench.folder / "logs" / "plain.log"
        self._log.parent.mkdir(exist_ok=True)
        with on_cpus(bench.placement.arms), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *script, str(os.getpid())],
                env={**child_environment(bench.placement.threads, padding), **(variables or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def ready(self) -> str:
        """Read its first line, from when on it is held; one that ends instead is gone for good."""
        try:
            first = self._read_answer()
            self._signal_group(signal.SIGSTOP)
        except BaseException:
            self.kill()
            raise
        return first

    @contextmanager
    def going(self) -> Iterator[None]:
        """Let it run inside, and hold it again afterwards."""
        self._signal_group(signal.SIGCONT)
        yield
        self._signal_group(signal.SIGSTOP)

    def ask(self, *words: str) -> str:
        """Return its answer to a line."""
        assert self._process.stdin
        print(json.dumps(words), file=self._process.stdin, flush=True)
        return self._read_answer()

    def kill(self) -> None:
        """End it; harmless when it is gone."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def _read_answer(self) -> str:
        assert self._process.stdout
        if line := self._process.stdout.readline():
            return line
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the process ended with {self._process.wait()}: {' '.join(last)}")

    def _signal_group(self, number: int) -> None:
        os.killpg(self._process.pid, number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class Plain:
    """A process of `plain.py`; `how` is its loop, or torch's timer, or a loop as the library's documentation has it."""

    def __init__(self, bench: Bench, job: Path, padding: int, how: str = "loop") -> None:
        self._how = "timer" if how == "timer" else "loop"
        self._process = Held(bench, [plain.__file__, str(job), how], padding)
        self._process.ready()

    def block(self, rng: random.Random) -> Medians:
        """Time one block in each scope."""
        with self._process.going():
            return {scope: float(self._process.ask(self._how, scope)) for scope in rng.sample(SCOPES, len(SCOPES))}

    def kill(self) -> None:
        """End it; harmless when it is gone."""
        self._process.kill()
