"""Two targets side by side as plain data: by layer, and the first layer whose error isn't explained."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shootout.backends.optional import RanNode
from shootout.core.constants import FIDELITY_MARGIN

WORTH = 1e-2
"""Outputs of the calls that show tensors are said to differ from the raced artifact's if it is by more."""

STEEP, WRONG = 3.0, 5e-2
"""An error rises at a layer if it is so many times the largest before it, and above the second figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSide:
    """Hold what is known of a layer, or of a block of layers, in one target.

    Attributes:
        value: of the reference graph, at which its tensor was read; "" if it couldn't be.
        error: relative L2 against the reference; None if it wasn't read or isn't finite. Of a block its last layer's.
        own: against the layer in float on the target's own inputs. Of a block the largest.
        explained: the largest own error that its precision explains; None if nothing could be predicted.
        ns: of one call, all nodes that belong to it; None if the runtime tells no times.
        conversions_ns: the part of that in nodes that only convert.
        kernels: what the runtime calls its product's nodes, fused parts included.
        precisions: of its products' nodes, how many by precision.
    """

    value: str = ""
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
    """Hold a layer in both targets; see `Layer` for its names.

    Attributes:
        before: the numbers of the layers before it, between which and it something is rounded on its own.
    """

    number: int
    name: str
    block: str
    operator: str
    output: str
    sides: tuple[LayerSide, LayerSide]
    before: tuple[int, ...] = ()


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
class Explanation:
    """Hold two targets side by side; the first is the one to compare with.

    Attributes:
        floats: the layers to leave in float in the second, by number: those that err beyond what is explained, and
            those before them if something in between is rounded on its own, and the backend keeps that in float, too.
        rise: the number of the layer at which the second's error rises most; None if it rises nowhere by much.
        next: the command that races the second with `floats` in float; "" if its backend can't, it is so, or nothing
            would be left to quantize.
    """

    run: str
    group: str
    model: str
    sides: tuple[SideSummary, SideSummary]
    layers: tuple[LayerPair, ...]
    floats: tuple[int, ...] = ()
    rise: int | None = None
    next: str = ""

    @property
    def blocks(self) -> dict[str, list[LayerPair]]:
        """Return the layers by block, in the order of their first layers."""
        found: dict[str, list[LayerPair]] = {}
        for layer in self.layers:
            found.setdefault(layer.block, []).append(layer)
        return found


def add_times(side: LayerSide, nodes: Sequence[RanNode], *, is_told: bool) -> LayerSide:
    """Return what is known of a layer with the times, kernels and precisions of its nodes.

    Args:
        is_told: whether the runtime tells times.
    """
    products = [node for node in nodes if node.precision]
    return replace(
        side,
        ns=math.fsum(node.ns or 0.0 for node in nodes) if is_told else None,
        conversions_ns=math.fsum(node.ns or 0.0 for node in nodes if node.converts) if is_told else None,
        kernels=tuple(dict.fromkeys(node.kind for node in products)),
        precisions=dict(Counter(node.precision for node in products)),
    )


def sum_block(layers: Iterable[LayerPair], side: int) -> LayerSide:
    """Sum the layers of a block in one target."""
    sides = [layer.sides[side] for layer in layers]
    read = [one for one in sides if one.value]
    owns = [math.inf if one.own is None else one.own for one in read]
    is_timed = any(one.ns is not None for one in sides)
    return LayerSide(
        value=read[-1].value if read else "",
        error=read[-1].error if read else None,
        own=max(owns) if owns and max(owns) < math.inf else None,
        ns=math.fsum(one.ns or 0.0 for one in sides) if is_timed else None,
        conversions_ns=math.fsum(one.conversions_ns or 0.0 for one in sides) if is_timed else None,
        precisions=dict(sum((Counter(one.precisions) for one in sides), Counter())),
    )


def find_rise(layers: Iterable[LayerPair], side: int) -> int | None:
    """Return the number of the layer at which the error rises most above that of all layers before.

    A model with branches has layers that lie before one only in order, so the largest of all errors before counts.

    Returns:
        None if it rises by less than `STEEP`, or to a low one.
    """
    largest, found, most = 0.0, None, 0.0
    for layer in layers:
        one = layer.sides[side]
        if not one.value:
            continue
        after = math.inf if one.error is None else one.error
        if after - largest > most and after > max(STEEP * largest, WRONG):
            most, found = after - largest, layer.number
        largest = max(largest, after)
        if largest == math.inf:
            break
    return found


def choose_floats(layers: Iterable[LayerPair], side: int, *, keeps_tails: bool) -> tuple[int, ...]:
    """Choose the layers to leave in float, by number; see `Explanation`, and `Inside` for `keeps_tails`."""
    beyond = [layer for layer in layers if layer.sides[side].is_beyond]
    before = {number for layer in beyond for number in layer.before} if keeps_tails else set()
    return tuple(sorted({layer.number for layer in beyond} | before))
