"""A mix of sizes, as a service's calls have them: given by weights, or read from a log of lengths.

A log has many lengths. They are put into a few bins, and every call counts as the largest length of its bin, so nothing
is underestimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Arm, Array, Artifact, Capabilities, NotRun, NotRunKind
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.units import counted

if TYPE_CHECKING:
    from shootout.core.study.schema import Study

MOST_BINS = 8
"""Bins of a log: each is a size to export, build and race."""
ENOUGH_PADDING = 0.05
"""Fewer bins do if they make the lengths no longer than this share, all calls together."""
MOST_LENGTHS = 4_096
"""Different lengths that are binned exactly; of more, neighbors are put together first."""
FORM = "a mix is AXIS=SIZE:WEIGHT,SIZE:WEIGHT, such as sequence=16:50,64:30,256:20, or a file with one length a line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Say which sizes calls have, and how many calls each.

    Attributes:
        axis: `batch`, or a parameter or free axis of the model; "" of a mix without one, until the model tells it.
        sizes: rising, each once.
        weights: calls of each size, in any unit, above 0.
        log: what the lengths come from, for people; "" if the sizes were given.
        padding: the share by which bins make the lengths of a log longer, all calls together.
    """

    axis: str
    sizes: tuple[int, ...]
    weights: tuple[float, ...]
    log: str = ""
    padding: float = 0.0

    def __post_init__(self) -> None:
        sizes = self.sizes
        if not sizes or sizes[0] < 1 or len(sizes) != len(self.weights) or list(sizes) != sorted({*sizes}):
            raise ValueError(f"needs sizes from 1 on, each once with its weight, received {', '.join(map(str, sizes))}")
        for size, weight in zip(sizes, self.weights, strict=True):
            if not 0 < weight < math.inf:
                raise ValueError(f"the weight of size {size} is {weight:g}: give a number above 0, or leave it out")

    @property
    def binned(self) -> str:
        """Tell people how a log was put into bins; "" of sizes that were given."""
        if not self.log:
            return ""
        bins = counted(len(self.sizes), "bin")
        return (
            f"{self.log} in {bins}: each call counts as the largest of its bin, {100 * self.padding:.2g} % more in all"
        )

    def bin_few(self) -> Mix:
        """Return a log's mix over few sizes: as few as pad all lengths by `ENOUGH_PADDING` at most, or `MOST_BINS`."""
        found = self
        for edges in _list_edges(np.array(self.sizes), np.array(self.weights)):
            found = self._bin_over(edges)
            if found.padding <= ENOUGH_PADDING:
                break
        return found

    def _bin_over(self, edges: Sequence[int]) -> Mix:
        """Return the mix over these rising sizes: each length is padded to the next; the last fits the largest."""
        sizes, weights = np.array(self.sizes), np.array(self.weights)
        counts = np.bincount(np.searchsorted(edges, sizes), weights)
        padding = float(np.dot(edges, counts) / np.dot(sizes, weights)) - 1
        return replace(self, sizes=tuple(edges), weights=tuple(map(float, counts)), padding=padding)


def read(given: Any) -> Mix:
    """Read a mix of text, or of its fields.

    Raises:
        UsageError, ValueError: it is none.
    """
    from pydantic import TypeAdapter  # which no worker has

    return read_mix(given) if isinstance(given, str) else TypeAdapter(Mix).validate_python(given)


def read_mix(text: str, find_axes: Callable[[], Sequence[str]] = tuple) -> Mix:
    """Read a mix as people write it; a log is read, and put into few bins.

    Args:
        find_axes: returns those that the model leaves open, for a mix that is given without an axis.

    Raises:
        UsageError: it is of another form, a weight is no number above 0, a size comes twice, the file holds something
            else than lengths, or its axis isn't known.
    """
    axis, equals, rest = (part.strip() for part in text.partition("="))
    axis, rest = (axis, rest) if equals else ("", text.strip())
    if not rest or (equals and not axis):
        raise UsageError(f"--mix {text!r}: {FORM}")
    is_log = ":" not in rest or Path(rest).expanduser().exists()
    mix = _read_log(axis, rest) if is_log else _read_sizes(axis, rest, text)
    if not mix.axis:
        if len(axes := find_axes()) != 1:
            known = f"it leaves {', '.join(axes)} open" if axes else "it is no file with an open axis"
            fix = "" if axes else ", or export the file with that axis open"
            raise UsageError(
                f"--mix {text} doesn't say which axis of the model its sizes are of, and {known}: write "
                f"--mix {axes[0] if axes else 'AXIS'}={text}{fix}"
            )
        mix = replace(mix, axis=axes[0])
    return mix.bin_few() if mix.log else mix


def find_faults(study: Study, mix: Mix) -> Iterator[str]:
    """Yield what makes no sense of a study's mix."""
    from shootout.core.study.schema import AXES  # with pydantic, which no worker has
    from shootout.models.data import sized_rows

    if others := sorted(map(str, study.all_scenarios - {"varying"})):
        yield f"a mix (--mix) is for scenario varying, got {others[0]}: leave one of the two out"
    sized = sized_rows.find(Path(study.inputs)) if study.inputs else None
    if sized and (sized.axis != mix.axis or sized.largest > mix.sizes[-1]):
        yield (
            f"the rows of {study.inputs} have sizes up to {sized.axis}={sized.largest}, and the mix up to "
            f"{mix.axis}={mix.sizes[-1]}: give a mix whose largest size holds them all"
        )
    of_one_size: dict[str, object] = {
        "inputs (--inputs)": study.inputs and not sized and mix.axis != "batch",
        "state (--state)": study.state,
        "stream (--stream)": study.stream,
    }
    for other in (name for name, given in of_one_size.items() if given):
        one = f"--batch {mix.sizes[-1]}" if mix.axis == "batch" else f"--set {mix.axis}={mix.sizes[-1]}"
        yield f"{other} is for one size at a time, and a mix has several: leave one out, or race one size with {one}"
    if mix.axis in ("model", *AXES) and mix.axis != "batch":
        yield f"a mix is over batch or an axis of the model, such as sequence, not over {mix.axis}"
    given = {**study.parameters, **({"batch": study.batch} if "batch" in study.model_fields_set else {})}
    if given.get(mix.axis, mix.sizes) != mix.sizes:
        yield f"the mix says which sizes of {mix.axis} to race: leave out {mix.axis} itself"


def find_closed_shapes(arm: Arm, can: Capabilities) -> NotRun | None:
    """Explain why a target can't take any size in one session; None if it can, or isn't asked to."""
    from shootout.core.exported.request import is_file  # none of these is for a worker
    from shootout.core.study.target import scheme_of

    scheme = scheme_of(arm.target)
    if not scheme.is_dynamic:
        return None
    static = replace(arm.target, scheme="+".join(replace(scheme, shapes="").words))
    fix = f"use {static}, a session for each size, or its /bucket-N"
    if arm.target.precision not in can.opens:
        reason = f"{arm.target.backend} takes no open shapes here in {arm.target.precision}"
        return NotRun(NotRunKind.UNSUPPORTED, reason, fix)
    if is_file(arm.model) and Artifact.ONNX not in can.consumes:
        return NotRun(NotRunKind.UNFIT, "the torch module of a file is made for one size", fix)
    return None


def _read_sizes(axis: str, given: str, text: str) -> Mix:
    try:
        found = sorted((int(size), float(weight)) for size, weight in (part.split(":") for part in given.split(",")))
    except ValueError:
        raise UsageError(f"--mix {text!r}: {FORM}") from None
    try:
        return Mix(axis=axis, sizes=tuple(size for size, _ in found), weights=tuple(weight for _, weight in found))
    except ValueError as error:
        raise UsageError(f"--mix {text!r}: {error}") from None


def _read_log(axis: str, name: str) -> Mix:
    """Count the lengths of a log, a whole number from 1 on in each line; empty lines don't count."""
    from shootout.models.data.data_files import title  # which no worker needs

    give = "give one with a whole number from 1 on in each line"
    try:
        lengths = np.array(Path(name).expanduser().read_text(encoding="utf-8").split(), dtype=float)
    except OSError as error:
        raise UsageError(f"can't read the lengths in {name!r}: {tell_refusal(error, FORM)}") from None
    except ValueError as error:
        raise UsageError(f"{name!r} is no log of lengths ({error}): {give}") from None
    if not lengths.size or not np.isfinite(lengths).all() or (lengths < 1).any() or (lengths % 1).any():
        raise UsageError(f"{name!r} is no log of lengths: {give}")
    sizes, counts = np.unique(lengths.astype(int), return_counts=True)
    return Mix(axis=axis, sizes=tuple(map(int, sizes)), weights=tuple(map(float, counts)), log=title(Path(name)))


def _list_edges(sizes: Array, weights: Array) -> Iterator[list[int]]:
    """Yield for 1, 2 … `MOST_BINS` bins the largest length of each, such that all lengths are padded the least."""
    if sizes.size > MOST_LENGTHS:
        kept = np.unique(np.linspace(0, sizes.size - 1, MOST_LENGTHS).round().astype(int))
        ends = np.searchsorted(kept, np.arange(sizes.size))  # each length counts as the next one that is kept
        sizes, weights = sizes[kept], np.bincount(ends, weights)
    calls = np.concatenate([[0.0], np.cumsum(weights)])
    cost, starts = sizes * calls[1:], list[Array]()  # of one bin over the first lengths
    yield [int(sizes[-1])]
    for _ in range(1, min(MOST_BINS, sizes.size)):
        best, start = np.empty(sizes.size), np.zeros(sizes.size, dtype=int)
        before = np.concatenate([[0.0], cost[:-1]])
        for last in range(sizes.size):
            tried = before[: last + 1] + sizes[last] * (calls[last + 1] - calls[: last + 1])
            start[last] = int(np.argmin(tried))
            best[last] = tried[start[last]]
        cost = best
        starts.append(start)
        edges, last = [], sizes.size - 1
        for bins in (*reversed(starts), np.zeros(sizes.size, dtype=int)):
            if last < 0:
                break
            edges.append(int(sizes[last]))
            last = int(bins[last]) - 1
        yield edges[::-1]
