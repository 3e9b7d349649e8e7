"""Run one arm on sizes that vary: sessions for each size, one that takes any, or a few that inputs are padded to.

Behind `VaryingSession` each call goes to the session of its inputs' shapes, as a service would hand it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from shootout.backends.common import check_inputs
from shootout.core.adapter import Built, OpenSession, Runner
from shootout.core.contract import Arm, Arrays, Executed
from shootout.core.exported.model import ExportedModel, aligned
from shootout.core.messages import Scope
from shootout.core.scenario import Scenario
from shootout.core.schemes import without_shapes
from shootout.core.session import Event, GpuSide, Session
from shootout.scenarios.varying_inputs import OPEN, SizedModel, Varying, corner, pad

SIZES = "sizes"
"""The key in a build's facts for those of each size."""


class VaryingSizes(Scenario):
    """One call after the other, of sizes that vary as they arrive."""

    name = "varying"
    measures = "the time of a call, over calls of all sizes"
    options = frozenset({"mix"})
    scopes = (Scope.END_TO_END,)
    is_mean = True
    is_foreseen = False
    is_one_call = False
    unshippable = "varying sizes can't be shipped, since a shipped folder has one size: race the size to ship by itself"
    unexplainable = "sizes that vary have no one graph: explain a run of one size"


def build(runner: Runner, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
    """Build the artifact of each size, or the one for all, each into a folder of its own."""
    facts: dict[str, Mapping[str, Any]] = {}
    for name, model in _list_builds(exported).items():
        (folder / name).mkdir()
        facts[name] = runner.build(model, _inner_arm(exported, arm), folder / name).facts
    last = [*facts.values()][-1]
    notes = dict.fromkeys(note for one in facts.values() for note in one.get("notes", ()))
    return Built(arm=arm, exported=exported, folder=folder, facts={**last, "notes": [*notes], SIZES: facts})


def load(runner: Runner, built: Built) -> VaryingSession:
    """Load the sessions of all sizes."""
    loaded = dict[str, Session]()
    arm = _inner_arm(built.exported, built.arm)
    for name, model in _list_builds(built.exported).items():
        facts = built.facts[SIZES][name]
        loaded[name] = runner.load(Built(arm=arm, exported=model, folder=built.folder / name, facts=facts))
    return VaryingSession(_varying_of(built.exported), loaded)


def list_buffers(exported: ExportedModel) -> list[list[dict[str, Any]]]:
    """Return the input buffers of each size."""
    return [one.exported.input_buffers() for one in _varying_of(exported).sizes]


def order_calls(exported: ExportedModel, buffers: Sequence[Sequence[Arrays]], first: int) -> list[int]:
    """Return which buffer each call of a pass takes, if those of the size `first` come first and then all others.

    Calls of one size take turns among its buffers.
    """
    varying, begins, at = _varying_of(exported), dict[int, int](), 0
    for index in (first, *(one for one in range(len(buffers)) if one != first)):
        begins[index] = at
        at += len(buffers[index])
    had = dict.fromkeys(begins, 0)
    order = []
    for index in varying.arrivals:
        order.append(begins[index] + had[index] % len(buffers[index]))
        had[index] += 1
    return order


class VaryingSession:
    """The sessions of one arm for all sizes, behind one.

    Args:
        varying: the sizes, and their order.
        loaded: by the name of what was built.
    """

    def __init__(self, varying: Varying, loaded: Mapping[str, Session]) -> None:
        self._varying, self._loaded = varying, loaded
        self._sessions = [self._session_of(one) for one in varying.sizes]
        self._telling = varying.telling or ""
        self._by_shape = {
            next(spec.shape for spec in one.exported.inputs if spec.name == self._telling): session
            for one, session in zip(varying.sizes, self._sessions, strict=True)
        }
        self._last = self._sessions[-1]

    @property
    def gpu(self) -> GpuSide | None:
        """Return what can be told of several sessions on a device: how they copy."""
        side = self._sessions[-1].gpu
        return GpuSide(copies=side.copies) if side else None

    @cached_property
    def executed(self) -> Executed:
        """Return the account of the largest size, with artifacts and fallbacks of all, and what was compiled again."""
        accounts = [session.executed for session in self._loaded.values()]
        return replace(
            self._sessions[-1].executed,
            artifact_bytes=sum(one.artifact_bytes for one in accounts),
            fallbacks=tuple(dict.fromkeys(line for one in accounts for line in one.fallbacks)),
            recompiles=self._count_recompiles(),
        )

    def stage(self, inputs: Arrays, slot: int) -> tuple[Session, Any]:
        """Stage inputs in the session for their shapes.

        Raises:
            ValueError: none of the sizes has these.
        """
        given = inputs.get(self._telling)
        session = None if given is None else self._by_shape.get(given.shape)
        if session is None:
            check_inputs(self._varying.sizes[-1].exported.inputs, inputs)
        return cast(Session, session), cast(Session, session).stage(inputs, slot)

    def execute(self, staged: tuple[Session, Any]) -> tuple[Session, Any]:
        """Run the session that these inputs were staged in."""
        session, handle = staged
        self._last = session
        return session, session.execute(handle)

    def synchronize(self) -> None:
        """Wait for the session that ran last."""
        self._last.synchronize()

    def fetch(self, raw: tuple[Session, Any]) -> Arrays:
        """Fetch the outputs from the session that ran."""
        session, outputs = raw
        return session.fetch(outputs)

    def profile(self, call: Any, calls: int) -> Sequence[Event]:
        """Return what the runtime's profiler sees of calls of the largest size."""
        return self._sessions[-1].profile(call, calls)

    def close(self) -> None:
        """Free all sessions."""
        for session in (*self._sessions, *self._loaded.values()):
            session.close()

    def _session_of(self, one: SizedModel) -> Session:
        session = self._loaded[self._varying.name_build(one)]
        if self._varying.is_open:
            return session if one is self._varying.sizes[-1] else cast(OpenSession, session).sized(one.exported)
        return session if one.runs is one.exported else PaddedSession(session, one)

    def _count_recompiles(self) -> int | None:
        """Count what is compiled in a pass, after one call of each size; 0 of fixed shapes."""
        if not self._varying.is_open:
            return 0
        session = cast(OpenSession, self._loaded[OPEN])
        inputs = [one.exported.input_buffers()[0] for one in self._varying.sizes]
        for index in range(len(inputs)):
            self._call(inputs[index])
        before = session.compilations()
        for index in self._varying.arrivals:
            self._call(inputs[index])
        after = session.compilations()
        return None if before is None or after is None else after - before

    def _call(self, inputs: Arrays) -> None:
        raw = self.execute(self.stage(inputs, 0))
        self.synchronize()
        self.fetch(raw)


class PaddedSession:
    """A session for a larger size: pads its inputs with zeros, and cuts its outputs back."""

    def __init__(self, session: Session, one: SizedModel) -> None:
        self.gpu = None
        self._session, self._inputs, self._larger = session, one.exported.inputs, one.runs.inputs
        self._cuts = {spec.name: corner(spec.shape) for spec in one.exported.outputs}
        self._padded: dict[int, Arrays] = {}

    @property
    def executed(self) -> Executed:
        """Return the larger session's account."""
        return self._session.executed

    def stage(self, inputs: Arrays, slot: int) -> Any:
        """Copy the inputs into the slot's larger arrays, and stage these under a slot that no other size has."""
        check_inputs(self._inputs, inputs)
        padded = self._padded.get(slot)
        if padded is None:
            padded = {spec.name: aligned(np.zeros(spec.shape, spec.dtype)) for spec in self._larger}
            self._padded[slot] = padded
        pad(inputs, padded)
        return self._session.stage(padded, hash((id(self), slot)))

    def execute(self, staged: Any) -> Any:
        """Run the larger session."""
        return self._session.execute(staged)

    def synchronize(self) -> None:
        """Wait for the larger session."""
        self._session.synchronize()

    def fetch(self, raw: Any) -> Arrays:
        """Fetch the outputs and cut them back to the size of the inputs."""
        return {name: array[self._cuts[name]] for name, array in self._session.fetch(raw).items()}

    def profile(self, call: Any, calls: int) -> Sequence[Event]:
        """Return what the runtime's profiler sees of the larger session."""
        return self._session.profile(call, calls)

    def close(self) -> None:
        """Leave the larger session to `VaryingSession`, which closes it."""


def _varying_of(exported: ExportedModel) -> Varying:
    assert exported.varying, "only an arm whose sizes vary comes here"
    return exported.varying


def _inner_arm(exported: ExportedModel, arm: Arm) -> Arm:
    """Return the arm as its adapter sees it: of padding it has to know nothing."""
    if _varying_of(exported).is_open:
        return arm
    return replace(arm, target=replace(arm.target, scheme=without_shapes(arm.target.scheme)))


def _list_builds(exported: ExportedModel) -> dict[str, ExportedModel]:
    """Return what artifacts are built from, by the name of each: the one for all sizes sees all of them."""
    varying = _varying_of(exported)
    return {OPEN: exported} if varying.is_open else varying.builds
