"""The protocol of a backend: an adapter that builds an arm's artifact once, and loads it in every fresh process.

`Session`, which `load` returns, is in `shootout.core.session`, all other words in `shootout.core.contract`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shootout.core.contract import (
    Arm,
    Arrays,
    Availability,
    Capabilities,
    Device,
    Inside,
    NotRun,
    NotRunKind,
    Precision,
    Target,
    Value,
)
from shootout.core.exported.model import ExportedModel
from shootout.core.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An arm's artifact on disk: all that `load` needs, in any later process.

    Attributes:
        exported: the model it was built from.
        folder: where `build` put its files; read-only from then on.
        facts: what `build` wants to tell `load` or the record (JSON values). `compute_nodes_by_precision` and
            `artifact_bytes`, where they are among them, go into the row of an arm that is built here but can't run;
            `elsewhere` is why, where its options and not the device make it so: a row that is built only.
    """

    arm: Arm
    exported: ExportedModel
    folder: Path
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """An artifact that an adapter put into a shipped folder (`shootout ship`).

    Attributes:
        template: the file beside the adapter's module that becomes the middle of the folder's `load.py`: a function
            `_open` without arguments, which gives the function that makes a call.
        options: its own settings as measured, JSON values, for `_open` to read as OPTIONS.
        environment: variables that must be set before the library is imported, beside the thread counts.
        isa: instruction sets that the artifact itself needs, see `exported.shipped_folder`.
        installs: requirements of `load.py`, where these are not all that the arm's process needs (`Entry.installs`).
    """

    template: str = "load.txt"
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    isa: tuple[str, ...] = ()
    installs: tuple[str, ...] = ()


Ship = Callable[[Built, Path], Shipment]
"""Puts an arm's artifact into a folder; raises `SkippedArm` where this one can't be shipped, with what to do."""


class Runner(Protocol):
    """A builder and loader of arms: an adapter, or the runner of shipped folders."""

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Quantize, compile, write the engine into `folder` (empty): once per arm, cached by content."""

    def load(self, built: Built) -> Session:
        """Load a ready session, in each restart's fresh process; affinity and thread variables are already set."""


class OpenSession(Session, Protocol):
    """Run a loaded model that takes any size of an open axis."""

    def sized(self, exported: ExportedModel) -> Session:
        """Return a session of the same loaded model for the inputs of another size."""

    def compilations(self) -> int | None:
        """Count what was compiled for sizes since it was loaded; None if the runtime doesn't tell."""


class Adapter(Runner, Protocol):
    """One backend. Its module imports no framework at the top; the framework comes in with the first call."""

    name: str
    capabilities: Capabilities

    def probe(self, device: Device) -> Availability:
        """Build and run a tiny real session on `device`. Never raises; always explains."""


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
