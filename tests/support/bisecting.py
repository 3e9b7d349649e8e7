"""Synthetic races of releases: each release has a level, and each process draws noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shootout.apps.bisect.search import COPY, MOST_RESTARTS, Question, Raced, Side, Skipped
from shootout.core.contract import Array

Noise = Callable[[np.random.Generator, int], Array]
NOISES: Mapping[str, Noise] = {
    "Gaussian": lambda rng, count: rng.standard_normal(count),
    "heavy": lambda rng, count: rng.standard_t(3, count) / math.sqrt(3),
    "spikes": lambda rng, count: rng.standard_normal(count) + (rng.random(count) < 0.07) * rng.exponential(4.0, count),
}
"""Of SD 1, but for the spikes, which come on top of it: 7 % of processes are slower by four SDs on average."""


@dataclass(slots=True)
class Simulated:
    """Races releases by their levels, until a question is told or after the most restarts.

    Attributes:
        logs: by release, in order, the log of its figure.
        sd: of a process's noise, in logs.
        skipped: releases that have no wheel.
        races: that there is time for.
        last_restarts: of the race of two neighbors, at most.
        uneven: the log-SD of the releases' own SDs.
        restarts, processes: that were needed so far.
    """

    logs: Sequence[float]
    sd: float
    seed: int | Sequence[int] = 0
    noise: str = "Gaussian"
    skipped: Collection[str] = ()
    races: int = 1_000
    last_restarts: int = MOST_RESTARTS
    uneven: float = 0.0
    restarts: int = field(default=0, init=False)
    processes: int = field(default=0, init=False)
    _rng: np.random.Generator = field(init=False)
    _sds: Mapping[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        own = np.exp(self.uneven * self._rng.standard_normal(len(self.logs)))
        self._sds = {f"1.{at}": self.sd * float(factor) for at, factor in enumerate(own)}

    def __call__(self, question: Question) -> Raced | Skipped:
        if gone := [one for one in question.releases if one in self.skipped]:
            return Skipped(gone[0], "no wheel")
        if self.races <= 0:
            return Raced()
        self.races -= 1
        names = [*question.releases, question.good]
        level = np.array([self.logs[int(name[2:])] for name in names])
        sds = np.array([self._sds[name] for name in names])
        found: dict[str, list[float]] = {name: [] for name in (*question.releases[1:], COPY)}
        for _ in range(self.last_restarts if len(question.suspects) > 1 else MOST_RESTARTS):
            x = level + sds * NOISES[self.noise](self._rng, len(names))
            for name, value in zip(found, x[1:] - x[0], strict=True):
                found[name].append(float(value))
            self.restarts += 1
            self.processes += len(names)
            if (side := question.judge(found)) is not Side.OPEN:
                break
        return Raced(side=side, logs=found, restarts=len(found[COPY]))
