"""Define what every model gives the harness, so that one export serves them all. NumPy only: workers load it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.constants import INPUT_BUFFERS
from shootout.core.contract import Array, Arrays, Artifact, TensorSpec, Value
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.calls import buffer_count, set_bytes
from shootout.core.exported.request import find_model
from shootout.models.drawing import InputWay, usual

if TYPE_CHECKING:
    from torch import nn

MOST_INPUT_SETS = 64
"""Sets of a user's inputs that are verified and timed, from all over them: every target holds them all."""
CALIBRATION_ROWS = 256
"""About so many drawn rows give quantizers their ranges, or rows of a user's inputs without labels or a metric."""
CALIBRATION_BYTES = 64 << 20
"""Drawn calibration sets together stay below this, but are at least as many as input buffers."""
TRAIN_BATCH, LEARNING_RATE = 32, 2e-3
WEIGHTS_PARAMETER = "weights"
"""The parameter of a call that says where its weights are; random ones without it."""
Parameters = Mapping[str, Value]
"""A model's parameters, complete (as `Model.check` returns them)."""
Call = Callable[[Arrays], dict[str, Array]]
"""Takes inputs by name and returns outputs by name."""
Draw = Callable[[int, int], list[dict[str, Array]]]
"""Takes (how many, seed) and returns input sets."""
Forward = Callable[[Any, Arrays, Parameters], Call]
"""`forward(xp, weights, parameters)` makes the model in an array library `xp` (numpy or jax.numpy), as a function of
its inputs. All that doesn't depend on them is done before: it finds its weights by name once, not in each call.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """Check a whole-number parameter from `low` to `high`."""

    default: int
    low: int
    high: int

    def check(self, name: str, value: Value) -> Value:
        """Return `value`, or raise a UsageError that says what is allowed."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise UsageError(f"{name} must be a whole number from {self.low} to {self.high}, got {value!r}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Check a parameter that is one of a few words."""

    default: str
    choices: tuple[str, ...]

    def check(self, name: str, value: Value) -> Value:
        """Return `value`, or raise a UsageError with the nearest word that is allowed."""
        if value not in self.choices:
            raise unknown(name, str(value), self.choices)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SameType:
    """Check a parameter of a user's own factory: any value of its default's type."""

    default: Value

    def check(self, name: str, value: Value) -> Value:
        """Return `value` in the default's type, or raise a UsageError that says what is allowed."""
        kind = type(self.default)
        if kind is str:
            return str(value)
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise UsageError(f"{name} must be {_KINDS[kind]}, as its default {self.default!r} is, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):  # no record could tell it from its name
            raise UsageError(f"{name} must be a finite number, got {value}")
        return value


_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
SEED = IntRange(default=0, low=0, high=2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledTask:
    """Hold a data set's splits that training did not see; arrays are stacked along axis 0.

    Attributes:
        calibration: by input name; for quantization and for the timed input buffers.
        calibration_labels: the right class of each row of `calibration`; for searches that select by accuracy.
        report: by input name; for the accuracy in the record, and for nothing else.
        labels: the right class of each row of `report`.
    """

    calibration: Arrays
    calibration_labels: Array
    report: Arrays
    labels: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """Hold what running a user's model gives.

    Attributes:
        module: float32, on the CPU, in eval mode; takes the inputs in order, returns a tensor or a tuple of them.
        inputs: the example, by name.
        outputs: names, in order.
        dtypes: of the outputs, as NumPy names them.
        labels: the right class of each row of the inputs, or None.
        draw: more input sets like the example; None: only the example itself is known to be valid.
        batch: the batch size that the inputs were asked for; None where the model can't be told one.
        notes: what was done to the module, one line each.
    """

    module: nn.Module
    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    labels: Array | None = None
    draw: Draw | None = None
    batch: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Describe one model as data and functions. All functions take complete parameters.

    Attributes:
        parameter_count: number of weights, by arithmetic (nothing is allocated).
        inputs: names, shapes and dtypes at a batch size.
        forward: makes the model in NumPy or jax.numpy; None where it is too big to write twice.
        module: the torch module, architecture only; returns one tensor, the output `y`.
        trained: the torch module with its final weights, the same in every process.
        task: the data set, or None.
        draw: the model's own input buffers at a batch size; None: seeded standard normal ones.
        calibration: input sets for quantization at a batch size; None: the data set's split, or drawn ones.
        artifacts: what an exported model of it holds.
        write: writes the artifacts (safetensors weights among them) into a folder by itself and returns the weights,
            for a model that must not need torch; None: they are traced from `trained`.
        by_rows: axis 0 of every input and output is the batch, and no row of it depends on another.
        takes_batch: a call may have any number of rows.
        called: a user's own model, run: its module and all that only running it tells. Its `parameter_count` is 0 and
            its `inputs` are none: they aren't known before.
        source: hash of a user's own source.
        folder: where that source lies and may read data, None if it can read none.
        title: what people call it, where that isn't the name.
        weights: where a user's own model has its weights, a file or a folder; None: its source tells, or it is unknown.
    """

    name: str
    description: str
    parameters: Mapping[str, IntRange | Choice | SameType]
    parameter_count: Callable[[Parameters], int]
    inputs: Callable[[Parameters, int], tuple[TensorSpec, ...]]
    module: Callable[[Parameters], nn.Module]
    trained: Callable[[Parameters], nn.Module]
    forward: Forward | None = None
    task: Callable[[Parameters], LabeledTask] | None = None
    draw: Callable[[Parameters, int], list[dict[str, Array]]] | None = None
    calibration: Callable[[Parameters, int], list[dict[str, Array]]] | None = None
    artifacts: tuple[Artifact, ...] = (Artifact.FORWARD, Artifact.MODULE, Artifact.ONNX, Artifact.PT2)
    write: Callable[[Path], dict[str, Array]] | None = None
    by_rows: bool = True
    takes_batch: bool = True
    called: Callable[[Parameters], Called] | None = None
    source: Callable[[], str] | None = None
    folder: Path | None = None
    title: str = ""
    weights: Path | None = None

    @property
    def defaults(self) -> dict[str, Value]:
        """Return the parameters that `check({})` gives."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def check(self, parameters: Parameters) -> dict[str, Value]:
        """Fill in the defaults and check every value.

        Raises:
            UsageError: an unknown parameter, or a value of the wrong type or out of range.
        """
        for name in parameters:
            if name not in self.parameters:
                raise unknown("parameter", name, self.parameters)
        complete = {**self.defaults, **parameters}
        return {name: self.parameters[name].check(name, value) for name, value in complete.items()}

    def count_weights(self, parameters: Parameters) -> int:
        """Count the weights with these parameters; missing ones get their defaults.

        Raises:
            UsageError: they aren't this model's.
        """
        return self.parameter_count(self.check(parameters))


def buffer_notes(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the notes on the number of a row's drawn buffers; none if it is the usual one."""
    if (count := buffer_count(specs)) == INPUT_BUFFERS:
        return ()
    return (f"{count} input buffers instead of {INPUT_BUFFERS}, of {set_bytes(specs) / 1e6:.4g} MB each",)


def set_count(rows: int, batch: int, specs: Sequence[TensorSpec]) -> int:
    """Return how many sets of `batch` rows hold about `rows` rows: at least as many as there are input buffers."""
    return max(-(-rows // batch), buffer_count(specs))


def draw(
    specs: tuple[TensorSpec, ...], count: int, seed: int, ways: Mapping[str, InputWay] | None = None
) -> list[dict[str, Array]]:
    """Draw `count` seeded input sets, each input in its way; of others floats are standard normal, integers 0 or 1."""
    rng, known = np.random.default_rng(seed), ways or {}
    return [{spec.name: known.get(spec.name, usual(spec)).tensor(rng, spec) for spec in specs} for _ in range(count)]


def get(name: str) -> Model:
    """Return a model that ships, or the user's own, of whose code nothing is run here.

    Raises:
        UsageError: no such model; says the nearest name.
    """
    model = find_model(name)
    assert isinstance(model, Model), f"{name} is a file"
    return model


@contextmanager
def seeded(parameters: Parameters) -> Iterator[None]:
    """Use one thread and set torch's generator to the model's seed; restore both on exit."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one order of summation, so the weights are the same on any machine like this one
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(parameters["seed"]))
            yield
    finally:
        torch.set_num_threads(threads)


def variance_kept(module: Callable[[Parameters], nn.Module], parameters: Parameters) -> nn.Module:
    """Build the module, frozen, with seeded normal weights of variance 1 / inputs in its Linear layers.

    So outputs are as large as inputs. All else keeps torch's own init, seeded too.
    """
    import torch

    with seeded(parameters):
        model = module(parameters)
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
    return model.requires_grad_(False)


def fit(model: nn.Module, images: Array, labels: Array, epochs: int) -> nn.Module:
    """Return the model after so many epochs of Adam, frozen and in eval mode. Call it inside `seeded`."""
    import torch

    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(TRAIN_BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval().requires_grad_(False)
