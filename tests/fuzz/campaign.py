"""One kind of input after the other, and each way in which one of them broke something."""

from __future__ import annotations

import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from shootout.errors import ShootoutError

PACKAGE = "shootout"
BATCH = 2_000
"""Inputs of one seed; the next has the next, so that no memory grows without end."""


@dataclass(frozen=True)
class Kind:
    """One thing that is read from outside.

    Attributes:
        share: of all inputs, in parts.
        inputs: they come as bytes, so that they can be kept.
        read: reads one, in an empty folder.
    """

    share: int
    inputs: Callable[[], SearchStrategy[bytes]]
    read: Callable[[bytes, Path], None]


@dataclass
class Fault:
    """One way in which inputs broke something: the error, where in the package it came from, how often."""

    what: str
    count: int = 0
    smallest: bytes = b""


@dataclass
class Outcome:
    """What became of the inputs; `refused` of them met one of the project's own errors."""

    inputs: int = 0
    refused: int = 0
    faults: list[Fault] = field(default_factory=list)

    def add(self, data: bytes, error: BaseException | None) -> None:
        """Count one more input and what came of it."""
        self.inputs += 1
        if isinstance(error, ShootoutError):
            self.refused += 1
        elif error is not None:
            what = described(error)
            fault = next((one for one in self.faults if one.what == what), None)
            if fault is None:
                self.faults.append(fault := Fault(what))
            fault.count += 1
            fault.smallest = min(filter(None, (fault.smallest, data)), key=len, default=data)


def explore(kind: Kind, count: int, first_seed: int, limit_s: int = 0) -> Outcome:
    """Try so many inputs; who takes longer than `limit_s` over one (0: no limit) hangs."""
    found = Outcome()
    while found.inputs < count:
        before = found.inputs
        batch = settings(
            max_examples=min(BATCH, count - before),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        def look(data: bytes) -> None:
            found.add(data, error_of(kind, data, limit_s))

        seed(first_seed + before)(batch(given(kind.inputs())(look)))()
        if found.inputs == before:
            break
    return found


def error_of(kind: Kind, data: bytes, limit_s: int = 0) -> BaseException | None:
    """What one input makes come out."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        try:
            with _limited(limit_s):
                kind.read(data, Path(folder))
        except Exception as error:
            return error
    return None


def described(error: BaseException) -> str:
    """An error with the last line of the package on its way."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{Path(one.filename).name}:{one.lineno}" for one in frames if PACKAGE in Path(one.filename).parts]
    return f"{type(error).__name__} at {own[-1]}" if own else f"{type(error).__name__}: {str(error)[:120]!r}"


@contextmanager
def _limited(limit_s: int) -> Iterator[None]:
    if not limit_s:  # and no other's alarm is touched
        yield
        return

    def end(*_: object) -> NoReturn:
        raise TimeoutError(f"took longer than {limit_s} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
