"""Define what an adapter may have beside its contract, for the apps and checks that call for it.

It may be shipped, show what it computes inside, say what its library's errors mean, and tell the conformance suite
how to drive it. Beside that: what its artifact takes to install where it runs. Imports NumPy at most.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shootout.core.adapter import Adapter, Built, Event, Session
from shootout.core.contract import Array, Arrays, NotRun, NotRunKind, Precision, Target, Value

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OWN = "shootout"
"""A third party's adapter requires it; an artifact doesn't."""
_UNREADABLE = (OSError, ValueError, AttributeError, csv.Error)
"""Errors of a package's record that is damaged, or of a form that has gone."""

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
"""The kinds of names that a runtime shows tensors by: of the ONNX graph's values, or of the modules that made them."""


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


class ProfiledSession(Session, Protocol):
    """Tell what the runtime's own profiler sees, for `shootout run --trace`; a session may leave this out."""

    def profile(self, call: Callable[[], object], calls: int) -> Sequence[Event]:
        """Return the events of some calls.

        Args:
            call: makes one call, from staging to fetching; not used by a profiler that needs a session of its own.
            calls: how many to profile.
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
        fix: what the user can do.
    """

    said: str
    reason: str
    fix: str = "take another backend, or a model without that operation"


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


def install_bytes(wanted: tuple[str, ...], folders: Iterable[str] | None = None, python: str = "") -> int | None:
    """Return the bytes of these packages and of all that they require; None if that can't be told.

    A package's size is what the installer wrote down for it: without bytecode, which Python makes later, and without
    what the system brings (a driver, a compiler).

    Args:
        wanted: see `find_closure`.
        folders: where another interpreter looks for packages; our own where None.
        python: that one's version.
    """
    try:
        return _closure_bytes(wanted, tuple(sys.path if folders is None else folders), python) if wanted else None
    except _UNREADABLE:
        return None


@lru_cache  # arms of one backend ask again, and so does each model of a grid
def _closure_bytes(wanted: tuple[str, ...], folders: tuple[str, ...], python: str) -> int | None:
    """Return the bytes of these packages and all that they require; a package that several need counts once."""
    packages = find_closure(wanted, folders, python)
    sizes = [_recorded_bytes(package) for package in packages.values()] if packages is not None else [None]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def find_closure(wanted: tuple[str, ...], folders: tuple[str, ...], python: str) -> dict[str, Distribution] | None:
    """Return these packages and all that they require, by name; None if one that is wanted isn't there.

    A missing package that only another package requires counts nothing: the arm runs without it.

    Args:
        wanted: requirements, with the extras that must be there; of several with `|` in between the first that is
            installed.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    packages: dict[str, Distribution] = {}
    known: set[tuple[str, frozenset[str], bool]] = set()
    waiting = [(Requirement(_first_installed(one.split("|"), folders)), True) for one in wanted]
    while waiting:
        one, is_wanted = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if name == OWN or (name, extras, is_wanted) in known:
            continue
        known.add((name, extras, is_wanted))
        if (package := _find_package(name, folders)) is not None:
            packages[name] = package
            waiting += [(each, is_wanted and by_extra) for each, by_extra in _requirements_of(package, extras, python)]
        elif is_wanted:
            return None
    return packages


def _first_installed(names: list[str], folders: tuple[str, ...]) -> str:
    from packaging.requirements import Requirement

    return next((name for name in names if _find_package(Requirement(name).name, folders)), names[0])


def _find_package(name: str, folders: tuple[str, ...]) -> Distribution | None:
    return next(iter(distributions(name=name, path=list(folders))), None)


def _requirements_of(package: Distribution, extras: frozenset[str], python: str) -> Iterator[tuple[Requirement, bool]]:
    """Yield what a package requires there, with these extras of it, and whether for one of these alone."""
    from packaging.requirements import Requirement

    there = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python} if python else {}
    for line in package.requires or ():
        one = Requirement(line)
        holds = (not one.marker or one.marker.evaluate({**there, "extra": extra}) for extra in ("", *extras))
        always, *by_extra = holds
        if always or any(by_extra):
            yield one, not always


def _recorded_bytes(package: Distribution) -> int | None:
    """Return the size by the installer's record; None without one, and for a package in development elsewhere."""
    record, origin = package.read_text("RECORD"), package.read_text("direct_url.json")
    if not record or (origin and json.loads(origin).get("dir_info", {}).get("editable")):
        return None
    return sum(int(line[2]) for line in csv.reader(record.splitlines()) if len(line) > 2 and line[2])
