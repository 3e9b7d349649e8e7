"""A loaded session's timed calls: warm-up, a first look, and the blocks of a turn. Runs in the worker.

The bracket is the same for every backend: stage, execute, synchronize, fetch for `end_to_end`; execute and synchronize
on inputs staged before for `compute`.

A stream goes on from block to block, and begins anew with each clip. Handing a state on takes a copy on the host, which
is part of `end_to_end`, as it is for a user. `compute` hands nothing on: its inputs hold the states that the reference
had there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from shootout.core import clock
from shootout.core.adapter import Session
from shootout.core.constants import (
    BLOCK_CALLS,
    BLOCK_NS,
    GPU_LEAD_IN_NS,
    LEAD_IN_CALLS,
    LEAD_IN_NS,
    LONG_CALL_NS,
    SHORT_CALL_NS,
    SLOW_CALL_NS,
)
from shootout.core.contract import Array, Arrays
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import aligned
from shootout.core.messages import SCOPES, Ask, Scope, Tuned, Turn

T = TypeVar("T")
_READINGS = 200_000
_GLANCE_CALLS = 3


class Caller(Protocol):
    """The timed calls of a loaded arm."""

    @property
    def calls_alone(self) -> bool:
        """Tell whether one session makes them, one after the other."""

    @property
    def sets(self) -> Sequence[Arrays]:
        """Return all input sets: of a stream, each call of its clips."""

    @property
    def buffers(self) -> Sequence[Arrays]:
        """Return those that calls outside of a stream rotate through."""

    @property
    def together(self) -> Callable[[], Sequence[Sequence[Arrays]]] | None:
        """Return what gives each session's outputs while all compute; None for one session."""

    def first_call_s(self) -> float:
        """Return the seconds of the first call, end to end."""

    def warm(self, calls: int, ns: int) -> Array:
        """Make up to `calls` calls, ending early after `ns`; return the nanoseconds of each."""

    def tune(self) -> Tuned:
        """Fix, for this restart, how many calls go into one reading."""

    def turn(self, ask: Ask) -> Turn:
        """Play what is asked in one turn."""

    def at_once(self, job: Callable[[Blocks], T]) -> list[T]:
        """Return what a job gives for every session, all at once."""


class Blocks:
    """Reads a session's calls; every input buffer is staged once, here.

    Args:
        on_gpu: each turn begins with calls until a GPU's clock has risen again.
        stream: whose calls are timed end to end; None: calls on the buffers are.
        sets: of a stream, those of all its clips, call by call; else the buffers.

    Attributes:
        calls: the timed calls by scope.
        cpu_ns: CPU time of a call in the last block end to end, see `Turn`.
    """

    calls_alone = True
    together = None

    def __init__(
        self,
        session: Session,
        buffers: Sequence[Arrays],
        *,
        on_gpu: bool = False,
        stream: Stream | None = None,
        sets: Sequence[Arrays] = (),
    ) -> None:
        self._session, self.buffers = session, buffers
        self.sets = sets or buffers
        self._single = self.calls = make_timed_calls(session, buffers)
        if stream:
            call = make_stream_call(session, stream, sets, slot=len(buffers))
            self.calls = {**self._single, "end_to_end": call}
        self._timed, self._count = self.calls, len(buffers)
        self._on_gpu = on_gpu
        self._readings = array("q", bytes(8 * _READINGS))
        self._tuned: Tuned | None = None
        self._last_ns = 0.0
        self.cpu_ns: float | None = None

    def first_call_s(self) -> float:
        """Return the seconds of the first call, end to end."""
        return self.seconds_to_answer(0)

    def warm(self, calls: int, ns: int) -> Array:
        """Make up to `calls` calls, ending early after `ns`; return the nanoseconds of each."""
        readings = self._readings if calls >= _READINGS else array("q", bytes(8 * calls))
        clock.quiet_collector()
        latency_ns = self._read_calls("end_to_end", readings, per_reading=1, block_ns=ns, min_calls=1)
        self._last_ns = float(latency_ns[-1])
        return latency_ns

    def tune(self) -> Tuned:
        """Fix, for this restart, how many calls go into one reading, from a short look at each scope.

        The last call of the warm-up tells of long ones: to stage and fetch takes none of their time that counts.
        """
        is_long = self._last_ns > LONG_CALL_NS
        call_ns = {scope: self._last_ns if is_long else self._estimate_call_ns(scope) for scope in SCOPES}
        per_reading = {scope: max(1, -(-SHORT_CALL_NS // max(1, int(ns)))) for scope, ns in call_ns.items()}
        self._tuned = Tuned(per_reading=per_reading, call_ns=call_ns)
        return self._tuned

    def play(self, scopes: Sequence[Scope]) -> dict[Scope, Array]:
        """Play one block per scope, in the order given; return nanoseconds per call.

        Each has its lead-in before, but for those of long calls (see `SLOW_CALL_NS`).
        """
        clock.quiet_collector()
        if self._on_gpu:
            clock.lead_in(self._timed[scopes[0]], self._count, calls=_READINGS, ns=GPU_LEAD_IN_NS)
        return {scope: self._play_block(scope, is_first=scope == scopes[0]) for scope in scopes}

    def turn(self, ask: Ask) -> Turn:
        """Play what is asked in one turn."""
        return Turn(latency_ns=self.play(ask.scopes), cpu_ns=self.cpu_ns)

    def at_once(self, job: Callable[[Blocks], T]) -> list[T]:
        """Return what a job gives for every session of the arm, which has one."""
        return [job(self)]

    def computed(self, buffer: int) -> Arrays:
        """Return the outputs of a call as `compute` times it."""
        outputs: Arrays = self._session.fetch(self.calls["compute"](buffer))
        return outputs

    def answered(self, buffer: int) -> Arrays:
        """Return the outputs of a call as `end_to_end` times it, on this buffer, outside of a stream."""
        return cast("Arrays", self._single["end_to_end"](buffer))

    def seconds_to_answer(self, buffer: int) -> float:
        """Return the seconds of such a call."""
        return clock.seconds_to_call(self._single["end_to_end"], buffer)

    def stage(self, buffer: int) -> None:
        """Stage an input buffer again after its memory was written to."""
        self._session.stage(self.buffers[buffer], buffer)

    def _estimate_call_ns(self, scope: Scope) -> float:
        call_ns = self._read_calls(scope, self._readings, per_reading=1, block_ns=LEAD_IN_NS, min_calls=_GLANCE_CALLS)
        return float(np.median(call_ns))

    def _play_block(self, scope: Scope, *, is_first: bool) -> Array:
        assert self._tuned is not None, "tune comes first"
        k, call_ns = self._tuned.per_reading[scope], self._tuned.call_ns[scope]
        is_long = call_ns > LONG_CALL_NS
        block_ns, min_calls = (0, 1) if is_long else (BLOCK_NS, BLOCK_CALLS)
        if not is_long or (is_first and call_ns <= SLOW_CALL_NS):
            clock.lead_in(self._timed[scope], self._count, calls=LEAD_IN_CALLS, ns=LEAD_IN_NS)
        before_ns = clock.spent_cpu_ns()
        latency_ns = self._read_block(scope, block_ns, min_calls)
        after_ns = clock.spent_cpu_ns()
        if scope == "end_to_end":
            calls = k * latency_ns.size
            self.cpu_ns = None if before_ns is None or after_ns is None else (after_ns - before_ns) / calls
        return latency_ns

    def _read_block(self, scope: Scope, block_ns: int, min_calls: int) -> Array:
        """Read calls until the block has lasted, so many at least; return each reading's nanoseconds per call."""
        assert self._tuned is not None, "tune comes first"
        k = self._tuned.per_reading[scope]
        return self._read_calls(scope, self._readings, per_reading=k, block_ns=block_ns, min_calls=min_calls) / k

    def _read_calls(
        self, scope: Scope, readings: array[int], *, per_reading: int, block_ns: int, min_calls: int
    ) -> Array:
        count = clock.read_block(
            self._timed[scope], self._count, readings, per_reading=per_reading, block_ns=block_ns, min_calls=min_calls
        )
        return np.frombuffer(readings, dtype=np.int64, count=count).copy()


def make_stream_call(session: Session, stream: Stream, sets: Sequence[Arrays], slot: int) -> clock.Call:
    """Return a function that makes the next call of a stream, whatever buffer it is given.

    The states have memory of their own, which each call stages, and into which its outputs are copied.

    Args:
        sets: of all its clips, call by call.
        slot: for the inputs; no other call stages it meanwhile.
    """
    stage, execute, synchronize, fetch = session.stage, session.execute, session.synchronize, session.fetch
    steps, count = stream.steps, len(sets)
    memory = {name: aligned(sets[0][name]) for name in stream.state}
    handed = [(memory[name], made) for name, made in stream.state.items()]
    called = [{**one, **memory} for one in sets]
    at = 0

    def call(_buffer: int) -> Any:
        nonlocal at
        if at % steps == 0:
            for name, state in memory.items():
                np.copyto(state, sets[at][name])
        raw = execute(stage(called[at], slot))
        synchronize()
        outputs = fetch(raw)
        for state, made in handed:
            np.copyto(state, outputs[made])
        at = at + 1 if at + 1 < count else 0
        return outputs

    return call


def make_timed_calls(session: Session, buffers: Sequence[Arrays]) -> dict[Scope, clock.Call]:
    """Return the two timed calls by scope. They use locals instead of attributes, since a look-up would be timed."""
    stage, execute, synchronize, fetch = session.stage, session.execute, session.synchronize, session.fetch
    handles = [stage(inputs, slot) for slot, inputs in enumerate(buffers)]

    def end_to_end(buffer: int) -> Any:
        raw = execute(stage(buffers[buffer], buffer))
        synchronize()
        return fetch(raw)

    def compute(buffer: int) -> Any:
        raw = execute(handles[buffer])
        synchronize()
        return raw

    return {"end_to_end": end_to_end, "compute": compute}
