"""Define calls whose inputs vary in one size: the model at each size, and the order in which the sizes arrive.

A service gets inputs of many lengths. A target may hold a session for each size, one session that takes any size, or
sessions for a few sizes to which inputs are padded. All of them get the same calls in the same order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shootout.core.contract import Arm, Arrays, NotRun, NotRunKind, TensorSpec
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.model import ExportedModel

if TYPE_CHECKING:
    from shootout.core.exported.request import Request

CALLS = 50
"""The calls of a pass, or one for each size if these are more: one pass of short calls takes no second."""
SHOWN = 8
"""Sizes that a note names."""
PADDING = "padding: {percent:.0f} % of the inputs' elements"
OPEN = "open"
"""The name of what is built for all sizes at once."""


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

    @property
    def open_dims(self) -> dict[str, tuple[int, ...]]:
        """Return, of each input, the axes whose sizes vary."""
        least, most = self.sizes[0].exported.inputs, self.sizes[-1].exported.inputs
        return {
            small.name: tuple(at for at, size in enumerate(small.shape) if size != large.shape[at])
            for small, large in zip(least, most, strict=True)
        }

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

    def compose(self, models: Mapping[int, ExportedModel], bucket: int | None, *, is_open: bool) -> ExportedModel:
        """Make the exported model of all sizes; see `compose`."""
        return compose(self, models, bucket, is_open=is_open)

    def runs(self, bucket: int | None) -> dict[int, int]:
        """Return, by size, the size that runs it: itself, or the next multiple of the bucket."""
        return {size: -(-size // bucket) * bucket if bucket else size for size in sorted({*self.sizes})}


def compose(
    arrivals: Arrivals, models: Mapping[int, ExportedModel], bucket: int | None = None, *, is_open: bool = False
) -> ExportedModel:
    """Make the exported model of varying sizes: that of the largest size, with all sizes in it.

    Args:
        arrivals: the sizes in the order of the calls.
        models: by size, those that inputs are padded to among them.
        bucket: to a multiple of what inputs are padded; None: they aren't.
        is_open: one session takes all sizes.

    Raises:
        ModelError: the sizes are of different models, or have the same inputs.
    """
    axis, runs = arrivals.axis, arrivals.runs(bucket)
    members = tuple(SizedModel(size=size, exported=models[size], runs=models[run]) for size, run in runs.items())
    last = members[-1].exported
    if len({one.weights_sha256 for one in models.values()}) > 1:
        raise ModelError(
            f"{last.model} has other weights for each {axis}: only the shapes of inputs may vary; draw random "
            "weights before the inputs, from a seed of their own"
        )
    order = tuple([*runs].index(size) for size in arrivals.sizes)
    weights = arrivals.weights or (1 / len(order),) * len(order)
    varying = Varying(axis=axis, sizes=members, arrivals=order, weights=weights, is_open=is_open)
    if varying.telling is None:
        raise ModelError(f"no input of {last.model} has {axis} in its shape: name an axis of its inputs in --mix")
    key = json.dumps([axis, is_open, order, weights, [(one.exported.key, one.runs.key) for one in members]])
    notes = dict.fromkeys(note for one in members for model in (one.exported, one.runs) for note in model.notes)
    padding = [PADDING.format(percent=100 * varying.padding)] * (bucket is not None)
    return dataclasses.replace(
        last,
        key=hashlib.sha256(key.encode()).hexdigest(),
        notes=(*notes, str(arrivals), *padding),
        export_s=sum(one.export_s for one in models.values()),
        varying=varying,
    )


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


def pad(inputs: Arrays, into: Arrays) -> None:
    """Copy inputs into the first corner of larger arrays."""
    for name, array in inputs.items():
        into[name][corner(array.shape)] = array


def corner(shape: Sequence[int]) -> tuple[slice, ...]:
    """Return what cuts an array of this shape out of the first corner of a larger one."""
    return tuple(slice(size) for size in shape)


def _count_elements(specs: Sequence[TensorSpec]) -> int:
    return sum(math.prod(spec.shape) for spec in specs)
