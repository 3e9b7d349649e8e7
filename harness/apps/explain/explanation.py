"""Two targets side by side as plain data: by layer, by block, and the first layer whose error isn't explained."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shootout.backends.optional import RanNode
from shootout.core.constants import FIDELITY_MARGIN

WORTH = 1e-2
"""Outputs of the calls that show tensors are said to differ from the raced artifact's if it is by more."""


STEEP, WRONG = 3.0, 5e-2
"""An error rises at a layer if it is so many times the largest before it, and above the second figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Hold what lies between a layer and one before it, and is rounded on its own.

    Attributes:
        layer: the number of the one before, to which these nodes belong.
        operators: theirs, each once.
    """

    layer: int
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSide:
    """Hold what is known of a layer in one target.

    Attributes:
        value: of the reference graph, at which its tensor was read; "" if it couldn't be.
        matched: whether that tensor was found by its name or by its value.
        error: relative L2 against the reference; None if it wasn't read or isn't finite.
        own: against the layer in float on the target's own inputs.
        explained: the largest own error that its precision explains; None if nothing could be predicted.
        ns: of one call, all nodes that belong to it; None if the runtime tells no times.
        conversions_ns: the part of that in nodes that only convert.
        kernels: what the runtime calls its product's nodes, fused parts included.
        precisions: of its products' nodes, how many by precision.
    """

    value: str = ""
    matched: str = ""
    error: float | None = None
    own: float | None = None
    explained: float | None = None
    ns: float | None = None
    conversions_ns: float | None = None
    kernels: tuple[str, ...] = ()
    precisions: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_beyond(self) -> bool:
        """Return whether it errs by itself beyond what its precision explains, or isn't finite."""
        if not self.value:
            return False
        return self.own is None or (self.explained is not None and self.own > self.explained)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPair:
    """Hold a layer in both targets; see `Layer` for its names, and `Outline` for what is before it."""

    number: int
    name: str
    block: str
    operator: str
    output: str
    sides: tuple[LayerSide, LayerSide]
    before: tuple[Before, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSide:
    """Hold what is known of a block in one target.

    Attributes:
        error: of its last layer that was read; None if none was.
        own: the largest own error of its layers.
        beyond: how many of its layers err beyond what their precision explains.
        ns, conversions_ns, precisions: sums of its layers'.
    """

    error: float | None
    own: float | None
    beyond: int
    ns: float | None
    conversions_ns: float | None
    precisions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPair:
    """Hold a block of layers in both targets, and how many layers it has."""

    name: str
    layers: int
    sides: tuple[BlockSide, BlockSide]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSummary:
    """Hold what is known of one target as a whole.

    Attributes:
        arm: its label.
        why: it was chosen; "" if it was named.
        unread: why nothing of it could be read; "" if something was.
        read: how many layers' tensors were.
        output_error: relative L2 of the model's outputs against the reference, of all rows as they were raced, or if
            nothing tells that, `read_error`; None if it isn't finite, isn't known, or if no output is a float.
        read_error: likewise of the calls that showed tensors, a few rows.
        error_bound: that the raced outputs were refused by; None if they weren't, or nothing is known.
        tail_error: of what follows the layers that were read, by itself: relative L2 of the outputs against the float
            graph's on those layers' tensors; None if nothing follows, or it isn't finite.
        tail_operators: the operators of what follows them, the last first, each once.
        unequal: share of the whole numbers and booleans in the outputs that differ from the reference's; None if there
            are none, or if a float output isn't finite.
        instrumented: how far the outputs of the calls that showed tensors are from the raced artifact's: relative L2,
            or the share of unequal whole numbers if that is larger.
        call_ns: of one call, all nodes; None if the runtime tells no times.
        conversions_ns: the part of that in nodes that only convert.
        unmatched_ns: the part in nodes that belong to no layer.
        fuses_less: see `Inside`.
        first_beyond: the number of the first layer that errs beyond what its precision explains; None: no such layer.
        notes: what a reader has to know, one line each.
    """

    arm: str
    why: str = ""
    unread: str = ""
    read: int = 0
    output_error: float | None = None
    read_error: float | None = None
    error_bound: float | None = None
    tail_error: float | None = None
    tail_operators: tuple[str, ...] = ()
    unequal: float | None = None
    instrumented: float | None = None
    call_ns: float | None = None
    conversions_ns: float | None = None
    unmatched_ns: float | None = None
    fuses_less: str = ""
    first_beyond: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_fused_wrong(self) -> bool:
        """Return whether the raced outputs err far more than those of the calls that showed tensors, and differ.

        Then it is what the runtime fuses that errs: outputs in between keep that apart.
        """
        if self.read_error is None or (self.instrumented is not None and self.instrumented <= WORTH):
            return False
        return self.output_error is None or self.output_error > FIDELITY_MARGIN * max(self.read_error, WORTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """Hold the layer at which an error rises most.

    Attributes:
        layer: its number.
        before: the largest error of the layers before it; 0 for the first one.
        after: its own tensor's error; None if that isn't finite.
    """

    layer: int
    before: float
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Hold two targets side by side; the first is the one to compare with.

    Attributes:
        floats: the layers to leave in float in the second, by number: those that err beyond what is explained, and
            those before them if something in between is rounded on its own, and the backend keeps that in float, too.
        mix: the command that races the second so; "" if its backend can't, it is so, or nothing would be left to
            quantize.
        rise: where the second's error rises; None if it rises nowhere by much.
        next: the command that leads on: `mix`, or one that searches or ranks layers to leave in float; "" if the second
            isn't known to be wrong, or there is none.
    """

    run: str
    group: str
    model: str
    sides: tuple[SideSummary, SideSummary]
    layers: tuple[LayerPair, ...]
    blocks: tuple[BlockPair, ...]
    floats: tuple[int, ...] = ()
    mix: str = ""
    rise: Rise | None = None
    next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTimes:
    """Hold where one target's time goes, in nanoseconds of one call; by layer's number, None for no layer.

    Attributes:
        is_told: whether the runtime tells times.
    """

    is_told: bool
    ns: Mapping[int | None, float]
    conversions_ns: Mapping[int | None, float]
    kernels: Mapping[int | None, tuple[str, ...]]
    precisions: Mapping[int | None, Mapping[str, int]]


def sum_times(nodes: Sequence[RanNode], places: Sequence[int | None]) -> SideTimes:
    """Sum the nodes' times by layer.

    Args:
        places: the layer of each node.
    """
    ns, conversions_ns = defaultdict[int | None, float](float), defaultdict[int | None, float](float)
    kernels: dict[int | None, list[str]] = {}
    precisions: dict[int | None, Counter[str]] = {}
    for node, place in zip(nodes, places, strict=True):
        ns[place] += node.ns or 0.0
        conversions_ns[place] += (node.ns or 0.0) * node.converts
        if node.precision:
            kernels.setdefault(place, []).append(node.kind)
            precisions.setdefault(place, Counter())[node.precision] += 1
    return SideTimes(
        is_told=any(node.ns is not None for node in nodes),
        ns=ns,
        conversions_ns=conversions_ns,
        kernels={place: tuple(dict.fromkeys(names)) for place, names in kernels.items()},
        precisions=precisions,
    )


def find_first_beyond(layers: Iterable[LayerPair], side: int) -> int | None:
    """Return the number of the first layer that errs beyond what its precision explains."""
    return next((layer.number for layer in layers if layer.sides[side].is_beyond), None)


def find_rise(layers: Iterable[LayerPair], side: int) -> Rise | None:
    """Return where the error rises most above that of all layers before; None if by less than `STEEP`, or to a low one.

    A model with branches has layers that lie before one only in order, so the largest of all errors before counts.
    """
    largest, found, most = 0.0, None, 0.0
    for layer in layers:
        one = layer.sides[side]
        if not one.value:
            continue
        after = math.inf if one.error is None else one.error
        if after - largest > most and after > max(STEEP * largest, WRONG):
            most, found = after - largest, Rise(layer=layer.number, before=largest, after=one.error)
        largest = max(largest, after)
        if largest == math.inf:
            break
    return found


def choose_floats(layers: Sequence[LayerPair], side: int, *, keeps_tails: bool) -> tuple[int, ...]:
    """Choose the layers to leave in float, by number; see `Explanation`, and `Inside` for `keeps_tails`."""
    beyond = [layer for layer in layers if layer.sides[side].is_beyond]
    before = {one.layer for layer in beyond for one in layer.before} if keeps_tails else set()
    return tuple(sorted({layer.number for layer in beyond} | before))


def sum_blocks(layers: Sequence[LayerPair]) -> tuple[BlockPair, ...]:
    """Sum the layers by block, in the order of their first layers."""
    blocks: dict[str, list[LayerPair]] = {}
    for layer in layers:
        blocks.setdefault(layer.block, []).append(layer)
    return tuple(
        BlockPair(
            name=name,
            layers=len(some),
            sides=(_sum_side([one.sides[0] for one in some]), _sum_side([one.sides[1] for one in some])),
        )
        for name, some in blocks.items()
    )


def _sum_side(layers: Sequence[LayerSide]) -> BlockSide:
    read = [one for one in layers if one.value]
    timed = [one for one in layers if one.ns is not None]
    owns = [math.inf if one.own is None else one.own for one in read]
    return BlockSide(
        error=read[-1].error if read else None,
        own=max(owns) if owns and max(owns) < math.inf else None,
        beyond=sum(one.is_beyond for one in read),
        ns=sum(one.ns or 0.0 for one in timed) if timed else None,
        conversions_ns=sum(one.conversions_ns or 0.0 for one in timed) if timed else None,
        precisions=dict(sum((Counter(one.precisions) for one in layers), Counter())),
    )
