"""Define what an adapter may have beside its contract, for the apps and checks that call for it.

It may be shipped, show what it computes inside, say what its library's errors mean, and tell the conformance suite
how to drive it. Imports NumPy at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from shootout.core.adapter import Adapter, Built
from shootout.core.contract import Array, Arrays, NotRun, NotRunKind, Precision, Target, Value

Gemm = Callable[[], object]
"""Computes a product of two square matrices; it is done on return."""
Gemms = Mapping[Precision, Callable[[int], Gemm]]
"""By precision, a function that prepares a product of the given size, its operands ready: 2·n³ operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """An artifact that an adapter put into a shipped folder (`shootout ship`).

    Attributes:
        template: the file beside the adapter's module that becomes the middle of the folder's `load.py`: a function
            `_open` without arguments, which gives the function that makes a call.
        options: its own settings as measured, JSON values, for `_open` to read as OPTIONS.
        environment: variables that must be set before the library is imported, beside the thread counts.
        isa: instruction sets that the artifact itself needs, see `shootout.backends.shipped`.
        installs: requirements of `load.py`, where these are not all that the arm's process needs (`Entry.installs`).
    """

    template: str = "load.txt"
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    isa: tuple[str, ...] = ()
    installs: tuple[str, ...] = ()


Ship = Callable[[Built, Path], Shipment]
"""Puts an arm's artifact into a folder; raises `SkippedArm` where this one can't be shipped, with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanNode:
    """Hold one node that each call runs, with its time by the runtime's own profiler.

    Attributes:
        kind: the runtime's own name of what it computes, fused parts and all.
        ns: of one call; None if the runtime doesn't tell.
        names: all by which the model's graph may know it, the surest first: nodes, values, weights, modules.
        reads, makes: its inputs and outputs by the runtime's names, which lead to other nodes.
        precision: that it computes in; "" where the runtime doesn't tell.
        converts: whether it only changes a tensor's type or layout.
    """

    kind: str
    ns: float | None
    names: tuple[str, ...]
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    precision: str = ""
    converts: bool = False


TensorNames = Literal["values", "modules", "lost"]
"""What names of tensors that a runtime shows are: of the ONNX graph's values, or of the modules that made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Hold what a runtime computes inside of its calls, and what its nodes take.

    Attributes:
        tensors: by name, in the order in which they are made, an array for each input set; integers dequantized.
        names: what these names are.
        outputs: the model's outputs for each input set, from the same calls.
        nodes: what a call of the built artifact runs; empty if the runtime tells nothing of them.
        notes: what a reader has to know, one line each.
        keeps_tails: whether a layer in float takes with it what follows it up to the next one.
        fuses_less: the option of `shootout run` with which the runtime fuses less, "" if there is none, or it is set.
    """

    tensors: Mapping[str, tuple[Array, ...]]
    names: TensorNames
    outputs: tuple[Arrays, ...]
    nodes: tuple[RanNode, ...] = ()
    notes: tuple[str, ...] = ()
    keeps_tails: bool = False
    fuses_less: str = ""


class TransparentAdapter(Adapter, Protocol):
    """Show what a runtime computes inside of a call, for `shootout explain`; an adapter may leave this out."""

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:
        """Run the input sets, and return the tensors between the layers and the times of the nodes.

        Args:
            values: the float values of the model's ONNX graph that are of interest; any part of them will do, in the
                graph's order. Of a graph that lost their names, all floats are: layers are found by value then.

        Raises:
            SkippedArm: this arm can't be read; with what can.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """Settings with which the conformance suite (`shootout.testing`) drives a backend; `Fixture()` will do for most.

    Attributes:
        model, parameters, batch: what it runs; small, with a batch of 2 so that a swapped axis shows.
        write_model: writes the file of a model into a folder and returns it, in place of `model`: for a backend that
            runs files of its own library alone.
        options: the backend's knobs, where it needs any.
        elsewhere: by precision, what runs instead where the library can't run that model.
        slow: modes (or devices) and precisions, or single checks of these, that only `make test-full` asks.
        lacks: whether a target has to be a skip here: no device can do it, or this machine lacks what it needs.
            It is called in the process of the checks, so that it may ask the library.
        tells_rest: whether the runtime tells what a quantized model's float remainder runs in.
        warm: by mode, the modules that a process may hold before the checks of floats, and of integers, begin (see
            `run_fresh`); those of "" where a mode has none of its own.
    """

    model: str = "residual_mlp"
    parameters: Mapping[str, Value] = field(default_factory=lambda: {"d_model": 64, "n_layers": 4})
    batch: int = 2
    write_model: Callable[[Path], Path] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[Precision, Fixture] = field(default_factory=dict)
    slow: frozenset[tuple[str, Precision] | tuple[str, Precision, str]] = frozenset()
    lacks: Callable[[Target], bool] = lambda target: False  # noqa: ARG005 - of any target
    tells_rest: bool = True
    warm: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHint:
    """One kind of refusal: the model is sound, and this library can't take it.

    Attributes:
        said: a regular expression; found in what it raises, its type's name in front.
        reason: what that means, in one line; `{name}` is what the expression's group of that name found.
        fix: what the user can do, or "".
    """

    said: str
    reason: str
    fix: str = ""


NOTHING_TO_QUANTIZE = ErrorHint(
    said="^ValueError: (?P<why>nothing to quantize: .*)",
    reason="{why}",
    fix="race its floats; products inside branches and loops are out of every quantizer's reach",
)
"""Every adapter's error for a model without layers of the kinds that it quantizes."""


def explain_error(error: BaseException, table: Iterable[ErrorHint]) -> NotRun | None:
    """Return what an error means by the first hint that fits it; None if none does, and the error is a failure."""
    text = f"{type(error).__name__}: {error}"
    for row in (*table, NOTHING_TO_QUANTIZE):
        if match := re.search(row.said, text):
            return NotRun(NotRunKind.UNFIT, row.reason.format(**match.groupdict()), row.fix)
    return None
