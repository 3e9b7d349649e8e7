"""Share what the sections need: where they run, built arms, restarts that are watched and timed, tables as plain rows.

A section goes through the harness's own stage, players and restarts wherever it can, so that its figures are theirs.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from shootout import models
from shootout.core.adapter import Built
from shootout.core.build.builder import Builder
from shootout.core.clock import Stopwatch
from shootout.core.contract import Arm, Array, NotRun, Value
from shootout.core.errors import ArmFailed, SkippedArm
from shootout.core.exported.client import obtain
from shootout.core.exported.request import Request
from shootout.core.host import environment
from shootout.core.host.noise import Disturbance, Gpus, NoiseMeter
from shootout.core.host.placement import Placement
from shootout.core.host.store import cache_folder
from shootout.core.messages import Scope
from shootout.core.race.live_arm import Launcher, LiveArm
from shootout.core.race.restart import Restart, block_medians
from shootout.core.stats.group_evidence import log_ratios
from shootout.core.study.points import describe
from shootout.core.study.schema import checked
from shootout.core.study.target import parse_targets

T = TypeVar("T")
Table = list[dict[str, Any]]
Tables = dict[str, Table]
"""Title → rows; a row is column → value, units in the column's name."""
TOY = "residual_mlp"
TARGETS = (
    "numpy",
    "torch-eager",
    "torch-compile",
    "torch-compile+aoti",
    "torchscript",
    "jax-jit",
    "onnxruntime",
    "openvino",
    "openvino:cpu:bf16",
    "openvino:cpu:int8",
    "litert",
    "litert:cpu:int8-dynamic",
)
"""Every CPU arm of the default study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how thoroughly the sections run.

    Attributes:
        quick: everything once or twice, to see that it works; its figures mean nothing.
        folder: for logs, jobs and run folders.
        runs: how often whole runs are repeated, if it is given.
        max_time: of each of these, as people type it.
        keep: gets a section's tables so far, whenever there is more of them.
        targets: the arms of sections that have one table line or column each; empty: those that the section has.
    """

    quick: bool
    placement: Placement
    folder: Path
    seed: int = 0
    runs: int | None = None
    max_time: str | None = None
    keep: Callable[[Tables], None] = lambda tables: None
    targets: Sequence[str] = ()

    @property
    def cpu_targets(self) -> Sequence[str]:
        """Return the arms that were asked for, or every CPU arm of the default study."""
        return self.targets or TARGETS

    def repeats(self, full: int, quick: int) -> int:
        """Return how many whole runs there are."""
        return self.runs or self.size(full, quick)

    def size(self, full: int, quick: int) -> int:
        """Return how often to do something."""
        return quick if self.quick else full

    def rng(self, name: str) -> random.Random:
        """Make a generator of its own for the section `name`."""
        return random.Random(f"{self.seed} {name}")

    def arm(self, target: str, model: str = TOY, parameters: Mapping[str, Value] | None = None, **fields: Any) -> Arm:
        """Make an arm of `target`, as people write it; the model's parameters complete."""
        complete = models.get(model).check(parameters or {})
        fields = {"threads": self.placement.threads, **fields}
        return Arm(target=parse_targets(target, describe)[0], model=model, parameters=complete, **fields)

    def built(self, arm: Arm) -> Built:
        """Export and build the arm as a run does (without the permutation probe), and return what that took."""
        builder = Builder(
            cache=cache_folder(),
            placement=self.placement,
            probes={},
            machine=environment.fingerprint(environment.facts()),
            logs=self.folder / "logs",
        )
        exported = obtain(Request(model=arm.model, parameters=arm.parameters, batch=arm.batch))
        return builder.prepare(arm, exported, environment.libraries().get(arm.target.backend, ""))

    def stage(self, built: Sequence[Built]) -> Launcher:
        """Return a launcher of these artifacts; their arms' labels must differ."""
        return Launcher(**self.staged(built))

    def staged(self, built: Sequence[Built]) -> dict[str, Any]:
        """Return what a launcher of these artifacts is made of."""
        logs, unwatched = self.folder / "logs", cast("NoiseMeter", None)
        named = {one.arm.label: one for one in built}
        study = checked({"name": "lab", "model": TOY, "targets": ["numpy"]}, "the lab")
        return {"built": named, "placement": self.placement, "logs": logs, "study": study, "watch": unwatched}


def say(text: str) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def attempt(step: Callable[[], T]) -> tuple[T | None, dict[str, str]]:
    """Return the result of `step`, or a row's `skipped` or `failed` column: one arm must not cost the others their
    figures.
    """
    try:
        return step(), {}
    except SkippedArm as skip:
        return None, {"skipped": skip.reason}
    except (ArmFailed, RuntimeError) as fault:
        return None, {"failed": str(fault)}


def copies(built: Built, count: int) -> list[Built]:
    """Return `count` arms on one artifact: `#1` … `#count`."""
    return [replace(built, arm=replace(built.arm, ordinal=number)) for number in range(1, count + 1)]


@dataclass(slots=True)
class Disturbances:
    """A watch that counts disturbed rounds and flags none, so that a bench on a busy machine ends and says so."""

    inner: NoiseMeter
    rounds: int = 0
    disturbed: int = 0

    def begin(self) -> None:
        self.inner.begin()

    def reasons(self, gpus: Gpus, own_ns: int | None, own_contexts: int) -> tuple[Disturbance, ...]:
        found = self.inner.reasons(gpus, own_ns, own_contexts)
        self.rounds += 1
        self.disturbed += bool(found)
        return ()

    @property
    def share(self) -> float:
        return self.disturbed / max(self.rounds, 1)


def watch(placement: Placement) -> Disturbances:
    """Make a fresh watch over the arms' CPUs."""
    return Disturbances(NoiseMeter(placement.arms, parent=placement.parent))


@dataclass(slots=True)
class Ledger:
    """Seconds of the parent's wall time, and calls, by what it waited for."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)

    def timed(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return `step`, entered under `name` whenever it runs."""

        def entered(*arguments: Any) -> Any:
            with Stopwatch() as stopwatch:
                result = step(*arguments)
            self.seconds[name] += stopwatch.seconds
            self.calls[name] += 1
            return result

        return entered


TIMED = [
    "start",
    "load",
    "verify",
    "warm",
    "tune",
    "turn",
    "hold",
    "release",
    "read_gpu",
    "peak_memory",
    "recheck",
    "kill",
]


@dataclass(slots=True, kw_only=True)
class TimedLauncher(Launcher):
    """A launcher of arms whose every command is entered in the ledger."""

    ledger: Ledger

    def take(self, arm: Arm, padding: int) -> LiveArm:
        """Return an arm that is timed."""
        live = Launcher.take(self, arm, padding)
        vars(live).update({name: self.ledger.timed(name, getattr(live, name)) for name in TIMED})
        return live


def restart(
    index: int,
    arms: Sequence[Arm],
    stage: Launcher,
    eye: Disturbances,
    rng: random.Random,
    setback: Callable[[Arm, NotRun], None] | None = None,
) -> Restart:
    """Run one restart of the package's own.

    Args:
        setback: hears of an arm that fails, and the others go on; without it, such an arm ends the section.

    Raises:
        RuntimeError: with the arm's last words.
    """
    faults: list[str] = []

    def fault(arm: Arm, why: NotRun) -> None:
        faults.append(f"{arm.label}: {why.reason}")

    stage.watch = cast("NoiseMeter", eye)
    found = Restart(index=index, arms=arms, launcher=stage, setback=setback or fault, rng=rng).run()
    if faults:
        raise RuntimeError("; ".join(faults))
    return found


def medians(performances: Sequence[LiveArm], scope: Scope) -> dict[str, Array]:
    """Return block medians (ns) by label."""
    return {one.arm.label: np.array(block_medians(one)[scope]) for one in performances}


def log_ratio(ours: Sequence[float] | Array, theirs: Sequence[float] | Array) -> float:
    """Return a restart's x: the median over rounds of log(ours / theirs)."""
    return float(log_ratios({0: np.asarray(ours)}, {0: np.asarray(theirs)})[0])


def timed_s(performances: Sequence[LiveArm]) -> float:
    """Return the seconds inside the brackets of all blocks."""
    return sum(
        float(latency.sum()) * one.tuned.per_reading[scope] / 1e9
        for one in performances
        for turn in one.turns
        for scope, latency in turn.latency_ns.items()
    )


def pooled(performance: LiveArm, scope: Scope) -> Array:
    """Return all readings (ns) of one arm in one restart."""
    return np.concatenate([turn.latency_ns[scope] for turn in performance.turns if scope in turn.latency_ns])
