"""Run one arm on sizes that vary: sessions for each size, one that takes any, or a few that inputs are padded to.

A service gets inputs of many lengths. All targets get the same calls in the same order. Behind `VaryingSession` each
call goes to the session of its inputs' shapes, as a service would hand it on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import numpy as np

from shootout.core import clock
from shootout.core.adapter import Built, GpuSide, Runner, Session, check_inputs
from shootout.core.constants import LEAD_IN_NS, TAIL_S
from shootout.core.contract import Arm, Array, Arrays, Capabilities, Executed, NotRun, NotRunKind, TensorSpec
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.model import ExportedModel, aligned
from shootout.core.messages import SCOPES, Ask, Scope, Tuned, Turn, Verified
from shootout.core.scenario import Player, Scenario, StudyOption
from shootout.core.schemes import without_shapes
from shootout.core.units import measured
from shootout.core.worker.blocks import Blocks, Caller
from shootout.core.worker.verification import Claim, rank_error, verify
from shootout.scenarios import mix, own_sizes
from shootout.scenarios.latency import read_singly

if TYPE_CHECKING:  # none of these is for a worker
    from shootout.core.exported.request import Request
    from shootout.core.study.schema import Study

CALLS = 50
"""The calls of a pass, or one for each size if these are more: one pass of short calls takes no second."""
SHOWN = 8
"""Sizes that a note names."""
SCORED = "scored with all rows at {axis}={size}"
BY_SIZE = "each scored row is called at the least size that holds it"
PADDING = "padding: {percent:.0f} % of the inputs' elements"
OPEN = "open"
"""The name of what is built for all sizes at once."""
PADDED = "its inputs of {size} are padded, and a model without a mask input may read the zeros as data: run it without"
SIZES = "sizes"
"""The key in a build's facts for those of each size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedModel:
    """Hold the model at one of the sizes.

    Attributes:
        size: of the axis that varies.
        exported: with the inputs and reference outputs of this size.
        runs: what a session is made of: the same, or the model at the size to which inputs are padded.
    """

    size: int
    exported: ExportedModel
    runs: ExportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Varying:
    """Hold the sizes that calls have, and the order of the calls in a pass.

    Attributes:
        axis: that varies.
        sizes: ascending.
        arrivals: of each call in order, the index of its size.
        weights: what each of these calls counts in the mean; they sum to 1.
        is_open: one session takes all sizes.
    """

    axis: str
    sizes: tuple[SizedModel, ...]
    arrivals: tuple[int, ...]
    weights: tuple[float, ...]
    is_open: bool = False

    @property
    def builds(self) -> dict[str, ExportedModel]:
        """Return what the artifact of each size is built from, by its name."""
        return {self.name_build(one): one.runs for one in self.sizes}

    def name_build(self, one: SizedModel) -> str:
        """Return the name of the artifact that runs a size."""
        return OPEN if self.is_open else one.runs.key

    @property
    def telling(self) -> str | None:
        """Return the first input whose shape tells the size; None if none does."""
        every = zip(*(one.exported.inputs for one in self.sizes), strict=True)
        return next((specs[0].name for specs in every if len({one.shape for one in specs}) == len(self.sizes)), None)

    @property
    def padding(self) -> float:
        """Return which share of the inputs' elements in all calls is padding, by the calls' weights."""
        if self.is_open:
            return 0.0
        weighed = [*zip((self.sizes[index] for index in self.arrivals), self.weights, strict=True)]
        given = math.fsum(weight * _count_elements(one.exported.inputs) for one, weight in weighed)
        return 1 - given / math.fsum(weight * _count_elements(one.runs.inputs) for one, weight in weighed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Say which sizes arrive.

    Attributes:
        axis: that varies: `batch`, a parameter, or a free axis of a file.
        sizes: of each call, in order.
        weights: what each of these calls counts in the mean, see `weigh_calls`; () if all count the same.
        binned: how a log of lengths was put into these sizes, for people; "" of sizes that were given.
    """

    axis: str
    sizes: tuple[int, ...]
    weights: tuple[float, ...] = ()
    binned: str = ""

    def __str__(self) -> str:
        """Write for people how many calls have which size."""
        counts = sorted(Counter(self.sizes).items())
        listed = ", ".join(f"{count} of {self.axis}={size}" for size, count in counts[:SHOWN])
        more = f" and {len(counts) - SHOWN} sizes more, up to {counts[-1][0]}" if len(counts) > SHOWN else ""
        binned = f"; {self.binned}" if self.binned else ""
        return f"{len(self.sizes)} calls in a drawn order: {listed}{more}{binned}"

    @property
    def span(self) -> str:
        """Write the least and the largest size for people."""
        least, most = min(self.sizes), max(self.sizes)
        return f"{least} to {most}" if least < most else str(most)

    def find_bad_sizes(self, asked: Request, arms: Sequence[Arm]) -> dict[str, NotRun]:
        """Explain by label why the model can't have the sizes that arms pad to."""
        from shootout.core.study.points import at_size  # none of these is for a worker
        from shootout.core.study.target import scheme_of

        found = {}
        for arm in arms:
            bucket = scheme_of(arm.target).bucket
            for size, padded in self.runs(bucket).items():
                try:
                    other = at_size(asked, self.axis, padded)
                    other.source.check_sizes(other)
                except UsageError as error:
                    reason = f"bucket-{bucket} pads {self.axis}={size} to {padded}, and {error}"
                    found[arm.label] = NotRun(NotRunKind.UNFIT, reason, f"a bucket that divides {size}")
                    break
        return found

    def compose(
        self, models: Mapping[int, ExportedModel], bucket: int | None = None, *, is_open: bool = False
    ) -> ExportedModel:
        """Make the exported model of varying sizes: that of the largest size, with all sizes in it.

        Args:
            models: by size, those that inputs are padded to among them.
            bucket: to a multiple of what inputs are padded; None: they aren't.
            is_open: one session takes all sizes.

        Raises:
            ModelError: the sizes are of different models, or have the same inputs.
        """
        axis, runs = self.axis, self.runs(bucket)
        members = tuple(SizedModel(size=size, exported=models[size], runs=models[run]) for size, run in runs.items())
        last = members[-1].exported
        if len({one.weights_sha256 for one in models.values()}) > 1:
            raise ModelError(
                f"{last.model} has other weights for each {axis}: only the shapes of inputs may vary; draw random "
                "weights before the inputs, from a seed of their own"
            )
        order = tuple([*runs].index(size) for size in self.sizes)
        weights = self.weights or (1 / len(order),) * len(order)
        varying = Varying(axis=axis, sizes=members, arrivals=order, weights=weights, is_open=is_open)
        if varying.telling is None:
            raise ModelError(f"no input of {last.model} has {axis} in its shape: name an axis of its inputs in --mix")
        key = json.dumps([axis, is_open, order, weights, [(one.exported.key, one.runs.key) for one in members]])
        notes = dict.fromkeys(note for one in members for model in (one.exported, one.runs) for note in model.notes)
        told = BY_SIZE if own_sizes.can_call(last) else SCORED.format(axis=axis, size=members[-1].size)
        scored = [told] * last.has_report
        padding = [PADDING.format(percent=100 * varying.padding)] * (bucket is not None)
        return replace(
            last,
            key=hashlib.sha256(key.encode()).hexdigest(),
            notes=(*notes, str(self), *scored, *padding),
            export_s=sum(one.export_s for one in models.values()),
            varying=varying,
        )

    def runs(self, bucket: int | None) -> dict[int, int]:
        """Return, by size, the size that runs it: itself, or the next multiple of the bucket."""
        return {size: -(-size // bucket) * bucket if bucket else size for size in sorted({*self.sizes})}


def draw_arrivals(weights: Mapping[int, float], calls: int, seed: int) -> tuple[int, ...]:
    """Return the sizes of so many calls in a drawn order, each as often as its weight asks, and once at least.

    A seed below 0 is one like any other, though NumPy takes none.
    """
    total = sum(weights.values())
    exact = {size: calls * weight / total for size, weight in weights.items() if weight > 0}
    counts = {size: max(1, math.floor(count)) for size, count in exact.items()}
    by_rest = sorted(exact, key=lambda size: (counts[size] - exact[size], size))
    for size in by_rest[: max(0, calls - sum(counts.values()))]:
        counts[size] += 1
    order = [size for size, count in sorted(counts.items()) for _ in range(count)]
    return tuple(int(size) for size in np.random.default_rng(seed if seed >= 0 else (0, -seed)).permutation(order))


def weigh_calls(weights: Mapping[int, float], sizes: Sequence[int]) -> tuple[float, ...]:
    """Return what each call counts in the mean, so that all calls of a size have its exact share between them.

    A pass of few calls rounds the shares, and has a rare size far too often.
    """
    counts, total = Counter(sizes), math.fsum(weights.values())
    return tuple(weights[size] / total / counts[size] for size in sizes)


def _corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return what cuts an array of this shape out of the first corner of a larger one."""
    return tuple(slice(size) for size in shape)


def _count_elements(specs: Sequence[TensorSpec]) -> int:
    return sum(math.prod(spec.shape) for spec in specs)


class VaryingSizes(Scenario):
    """One call after the other, of sizes that vary as they arrive."""

    name = "varying"
    measures = "the time of a call, over calls of all sizes"
    options: ClassVar = {
        "mix": StudyOption(
            help="how many calls have which size along one axis (`sequence=16:50,64:30`, or `sequence=` and a log of "
            "lengths); the scenario is `varying` then.",
            read=mix.read,
            flag="--mix",
            is_dropped=False,
            implies=True,
            is_told=False,
            give_sizes=lambda given: {given.axis: given.sizes},
        )
    }
    varies = True
    scopes = ("end_to_end",)
    is_one_call = False
    unshippable = (
        "a mix can't be shipped, since a shipped folder has one size: race the largest by itself and pad to it, or "
        "each size for a folder of its own"
    )
    unexplainable = "sizes that vary have no one graph: explain a run of one size"

    def read_after(self, live: Player, left_s: float, tail: tuple[int, int]) -> Array:  # noqa: ARG002
        """Read some calls one by one if a reading of the rounds holds several."""
        is_short = live.tuned.per_reading["end_to_end"] > 1
        return read_singly(live, int(1e9 * TAIL_S)) if is_short else np.array([])

    def tell_time(self, row: Any) -> str:
        """Write the mean of all sizes."""
        return f"mean of all sizes {measured(row.end_to_end.median_ns)}"

    def find_faults(self, study: Study) -> Iterator[str]:
        """Yield what makes no sense of a mix, or of sizes without one."""
        if (given := study.value_of("mix")) is None:
            yield "scenario varying calls with many sizes: say which, with a mix (--mix sequence=16:50,64:30,256:20)"
        else:
            yield from mix.find_faults(study, given)

    def arrivals(self, study: Study) -> Arrivals:
        """Return which sizes the calls have: those of the mix, in an order that is drawn by the study's seed."""
        given: mix.Mix = study.value_of("mix")
        weights = dict(zip(given.sizes, given.weights, strict=True))
        sizes = draw_arrivals(weights, CALLS, study.seed)
        return Arrivals(axis=given.axis, sizes=sizes, weights=weigh_calls(weights, sizes), binned=given.binned)

    def find_obstacle(self, arm: Arm, can: Capabilities, _count: object) -> NotRun | None:
        """Explain why a target can't take any size in one session; None if it can, or isn't asked to."""
        return mix.find_closed_shapes(arm, can)

    def build(self, runner: Runner, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Build the artifact of each size; of a model with one size, such as a probe, that."""
        return build(runner, exported, arm, folder) if exported.varying else runner.build(exported, arm, folder)

    def load(self, runner: Runner, built: Built) -> Session:
        """Load the sessions of all sizes."""
        return load(runner, built) if built.exported.varying else runner.load(built)

    def open(self, built: Built, sessions: Sequence[Session], seed: int) -> SizedBlocks:
        """Return what calls the sizes in their order."""
        sizes, on_gpu = list_buffers(built.exported), built.arm.target.device.is_gpu
        first = int(np.random.default_rng(seed).integers(len(sizes)))  # another one in each restart
        order, weights = order_calls(built.exported, sizes, first), _varying_of(built.exported).weights
        return SizedBlocks(sessions[0], sizes, first, order=order, weights=weights, on_gpu=on_gpu)

    def verify(self, claim: Claim, caller: Caller, keep: Path | None) -> tuple[Verified, Claim]:
        """Verify the arm at each of its sizes; the claim that is returned is of the one that is checked again."""
        assert isinstance(caller, SizedBlocks), "as it was opened"
        return verify_sizes(claim, caller.sizes, caller.first, keep)


class SizedBlocks(Blocks):
    """Reads calls of all sizes; a reading is of a pass through all of them, in their order.

    Args:
        sizes: the input buffers of each size.
        first: the size that is checked again later; its buffers come first.
        order: which buffer each call takes.
        weights: what each call of the order counts in the mean of a pass.
        on_gpu: see `Blocks`.

    Attributes:
        read_ns: what all calls of the last turn took, see `Turn`.
    """

    def __init__(
        self,
        session: Session,
        sizes: Sequence[Sequence[Arrays]],
        first: int,
        *,
        order: Sequence[int],
        weights: Sequence[float],
        on_gpu: bool = False,
    ) -> None:
        others = [buffer for at, some in enumerate(sizes) if at != first for buffer in some]
        super().__init__(session, [*sizes[first], *others], on_gpu=on_gpu)
        self.sizes, self.first, self.read_ns = sizes, first, 0.0
        self._count, self._weights = len(order), np.array(weights)
        self._timed = {scope: _in_order(call, order) for scope, call in self.calls.items()}

    def tune(self) -> Tuned:
        """Fix that a reading is of a pass."""
        self._tuned = replace(super().tune(), per_reading=dict.fromkeys(SCOPES, self._count))
        return self._tuned

    def turn(self, ask: Ask) -> Turn:
        """Play what is asked in one turn, and add up what its calls took."""
        self.read_ns = 0.0
        return replace(super().turn(ask), read_ns=self.read_ns)

    def _estimate_call_ns(self, scope: Scope) -> float:
        """Return the mean of a pass."""
        count = self._count
        call_ns = self._read_calls(scope, self._readings, per_reading=1, block_ns=LEAD_IN_NS, min_calls=count)
        return float(call_ns[:count].mean())

    def _read_block(self, scope: Scope, block_ns: int, _min_calls: int) -> Array:
        """Read whole passes, call by call, until the block has lasted; return each one's weighted mean."""
        passes, block = list[Array](), clock.Deadline(block_ns / 1e9)
        while not passes or block.left_s > 0:
            passes.append(self._read_calls(scope, self._readings, per_reading=1, block_ns=0, min_calls=self._count))
        read_ns = np.array(passes)
        self.read_ns += float(read_ns.sum())
        return np.average(read_ns, axis=1, weights=self._weights)


def _in_order(call: clock.Call, order: Sequence[int]) -> clock.Call:
    """Return the call that takes the place of each in a pass, in place of a buffer."""

    def call_next(place: int) -> Any:
        return call(order[place])

    return call_next


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


def verify_sizes(
    claim: Claim, buffers: Sequence[Sequence[Arrays]], first: int, keep: Path | None
) -> tuple[Verified, Claim]:
    """Verify an arm whose sizes vary at each of them, against the reference outputs of that size.

    Args:
        claim: of all sizes.
        buffers: of each size.
        first: the size whose later answers are checked, by its index.
        keep: gets the outputs for the rows that a metric scores, of their own sizes or all of the largest.

    Returns:
        The first fault, or the worst error; and the claim at the size `first`.
    """
    varying, found, own = _varying_of(claim.exported), list[Verified](), claim
    last = varying.sizes[-1]
    is_by_size = keep is not None and own_sizes.can_call(last.exported)
    for index, (one, inputs) in enumerate(zip(varying.sizes, buffers, strict=True)):
        sized = replace(claim, exported=one.exported, buffers=inputs)
        own = sized if index == first else own
        verified = verify(sized, keep if one is last and not is_by_size else None)
        if verified.fault:
            is_masked = any("mask" in spec.name.lower() for spec in one.exported.inputs)
            padded = "" if is_masked or one.runs.key == one.exported.key else f"; {PADDED.format(size=one.size)}"
            return replace(verified, fault=f"at {varying.axis}={one.size}: {verified.fault}{padded}"), own
        found.append(verified)
    if keep and is_by_size:
        sizes = {one.size: one.exported for one in varying.sizes}
        own_sizes.keep_outputs(claim.session, sizes, keep, slot=sum(map(len, buffers)))
    worst = max(found, key=lambda one: rank_error(one.fidelity))
    return replace(worst, call_s=mean(one.call_s or 0.0 for one in found)), own


class OpenSession(Session, Protocol):
    """Run a loaded model that takes any size of an open axis."""

    def sized(self, exported: ExportedModel) -> Session:
        """Return a session of the same loaded model for the inputs of another size."""


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
        """Return the account of the largest size, with artifacts and fallbacks of all."""
        accounts = [session.executed for session in self._loaded.values()]
        return replace(
            self._sessions[-1].executed,
            artifact_bytes=sum(one.artifact_bytes for one in accounts),
            fallbacks=tuple(dict.fromkeys(line for one in accounts for line in one.fallbacks)),
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

    def close(self) -> None:
        """Free all sessions."""
        for session in (*self._sessions, *self._loaded.values()):
            session.close()

    def _session_of(self, one: SizedModel) -> Session:
        session = self._loaded[self._varying.name_build(one)]
        if self._varying.is_open:
            return session if one is self._varying.sizes[-1] else cast(OpenSession, session).sized(one.exported)
        return session if one.runs is one.exported else PaddedSession(session, one)


class PaddedSession:
    """A session for a larger size: pads its inputs with zeros, and cuts its outputs back."""

    def __init__(self, session: Session, one: SizedModel) -> None:
        self.gpu = None
        self._session, self._inputs, self._larger = session, one.exported.inputs, one.runs.inputs
        self._cuts = {spec.name: _corner(spec.shape) for spec in one.exported.outputs}
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
        for name, array in inputs.items():
            padded[name][_corner(array.shape)] = array
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

    def close(self) -> None:
        """Leave the larger session to `VaryingSession`, which closes it."""


def _varying_of(exported: ExportedModel) -> Varying:
    assert exported.varying, "only an arm whose sizes vary comes here"
    return cast("Varying", exported.varying)


def _inner_arm(exported: ExportedModel, arm: Arm) -> Arm:
    """Return the arm as its adapter sees it: of padding it has to know nothing."""
    if _varying_of(exported).is_open:
        return arm
    return replace(arm, target=replace(arm.target, scheme=without_shapes(arm.target.scheme)))


def _list_builds(exported: ExportedModel) -> dict[str, ExportedModel]:
    """Return what artifacts are built from, by the name of each: the one for all sizes sees all of them."""
    varying = _varying_of(exported)
    return {OPEN: exported} if varying.is_open else varying.builds
