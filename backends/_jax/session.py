"""Sessions on JAX: a compiled function, and a compiled training step.

A step is one function of (weights and momenta, inputs), differentiated and compiled as a whole.

The arrays that a step changes are given up to it (donated), so that XLA writes the new ones over the old; SGD is
written out in a line, as there is no optimizer in JAX itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._jax.account import profile_calls, read_executed
from shootout.backends._jax.program import (
    EXECUTABLE,
    Program,
    gpu_side,
    is_read_as_is,
    open_device,
    program_of,
    read_program,
    read_weights,
)
from shootout.core.adapter import MOMENTUM, Built, Event, check_inputs
from shootout.core.contract import Array, Arrays, Device, Executed

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel


class JaxSession:
    """A compiled function with its weights. Results are new arrays at each call, and immutable."""

    def __init__(self, built: Built) -> None:
        arm, self._built, self._exported = built.arm, built, built.exported
        self._device = open_device(arm.target.device, arm.threads, arm.options)
        self._run, self._stage = read_program(built.folder, self._device)
        # A flat tuple: JAX sorts a dict's keys at each call, 10 us for 128 weights.
        self._weights: tuple[Any, ...] = ()
        self._pending: tuple[Any, ...] = ()
        self._names = tuple(spec.name for spec in built.exported.inputs)
        self._outputs = tuple((spec.name, _host_dtype(spec.dtype)) for spec in built.exported.outputs)
        self.gpu = gpu_side(arm, self._device)
        self._as_is = arm.target.device is Device.CPU and all(
            is_read_as_is(arm, spec) for spec in built.exported.inputs
        )
        self._read_weights()

    def _read_weights(self) -> None:
        names, built = self._built.facts["weights"], self._built
        self._weights = read_weights(self._exported, built.arm, names, self._device, built.folder)

    @cached_property
    def executed(self) -> Executed:
        """Return the loaded executable's own account, after one call."""
        result = self.execute(self.stage(self._exported.input_buffers()[0], 0))[0]
        weights = self._weights[: len(self._built.facts["weights"])]  # a training step has its momenta behind them
        stored = (self._built.folder / EXECUTABLE).stat().st_size + sum(array.nbytes for array in weights)
        return read_executed(self._run, result, self._built.arm.target.device, stored)

    def stage(self, inputs: Arrays, slot: int) -> tuple[Any, ...]:  # noqa: ARG002 - each call makes new arrays
        """Pass the arrays as they are if a CPU arm reads their dtypes.

        The executable uses an aligned array in place, and copies another one faster than anything before it could.
        Otherwise a compiled program copies to the device, floats in the arm's dtype; `jax.device_put` takes six times
        as long for a small input.
        """
        check_inputs(self._exported.inputs, inputs)
        given = tuple(inputs[name] for name in self._names)
        if self._as_is:
            return given
        staged: tuple[Any, ...] = self._stage(given)
        self._pending = staged
        return staged

    def execute(self, staged: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the executable; on CUDA, JAX returns before the result is there."""
        result: tuple[Any, ...] = self._run(self._weights, staged)
        self._pending = result
        return result

    def synchronize(self) -> None:
        """Wait for what was last staged or computed, and so for all: the device does one thing after the other."""
        for array in self._pending:
            array.block_until_ready()

    def fetch(self, raw: tuple[Any, ...]) -> Arrays:
        """Return the outputs on the host: on the CPU, read-only views that keep their own memory alive."""
        pairs = zip(self._outputs, raw, strict=True)
        return {name: np.asarray(array).astype(dtype, copy=False) for (name, dtype), array in pairs}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:
        """Return what JAX's own profiler sees of some calls."""
        return profile_calls(call, calls)

    def close(self) -> None:
        """Drop the executable and its arrays."""
        self._pending = ()
        for name in ("_run", "_stage", "_weights"):
            self.__dict__.pop(name, None)


def _host_dtype(dtype: str) -> np.dtype[Any]:
    """Return a fetched output's dtype: float32 for floats; JAX's integers have 32 bits, the model's may have 64."""
    kind = np.dtype(dtype)
    return np.dtype(np.float32) if kind.kind == "f" else kind


def step_of(exported: ExportedModel, mode: str) -> Program:
    """Make the training step of a model: (trained weights, what else it needs, momenta; inputs) → (loss, all of
    these again).

    Args:
        exported: of the training step; the target and the learning rate are its last two inputs.
        mode: how the model is read (see `program_of`).
    """
    *own, target, _ = exported.inputs
    model = replace(exported, inputs=tuple(own), outputs=(replace(target, name="y"),), trained=())
    program, trained, count = program_of(model, mode), exported.trained, len(exported.trained)
    names = (*trained, *(name for name in program.names if name not in trained))

    def run(state: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        import jax
        import jax.numpy as jnp

        *given, target, rate = inputs
        weights, fixed, momenta = state[:count], state[count : len(names)], state[len(names) :]

        def loss_of(weights: Sequence[Any]) -> Any:
            named = dict(zip(names, (*weights, *fixed), strict=True))
            raw = program.run(tuple(named[name] for name in program.names), given)
            return jnp.mean((raw[0] - target) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        momenta = [MOMENTUM * momentum + gradient for momentum, gradient in zip(momenta, gradients, strict=True)]
        moved = [weight - rate * momentum for weight, momentum in zip(weights, momenta, strict=True)]
        return (loss, *moved, *fixed, *momenta)

    return Program(run=run, names=names, buffers=program.buffers)


def momenta_of(exported: ExportedModel, device: Any) -> tuple[Any, ...]:
    """Make a momentum of zero for each trained weight; none for a model that isn't trained, whose weights aren't
    read.
    """
    if not exported.trained:
        return ()
    import jax

    stored = exported.weights()
    zeros: tuple[Any, ...] = jax.device_put(tuple(np.zeros_like(stored[name]) for name in exported.trained), device)
    return zeros


class JaxTrainingSession(JaxSession):
    """A compiled step and the arrays it goes on from; a `TrainingSession`."""

    def __init__(self, built: Built) -> None:
        super().__init__(built)
        self._as_is = False  # a compiled program of its own copies to the device

    def _read_weights(self) -> None:
        super()._read_weights()
        self._weights += momenta_of(self._exported, self._device)
        self._pending = self._weights[-1:]

    def execute(self, staged: tuple[Any, ...]) -> tuple[Any, ...]:
        """Take one step; on CUDA, JAX returns before it is done."""
        loss, *state = self._run(self._weights, staged)
        self._weights, self._pending = tuple(state), (loss,)
        return self._pending

    def reset(self) -> None:
        """Read weights and momenta again: the old arrays may have been given up."""
        self._read_weights()

    def state(self) -> tuple[Arrays, Arrays]:
        """Copy weights and momenta."""
        count = len(self._exported.trained)
        return self._copy_named(self._weights[:count]), self._copy_named(self._weights[-count:])

    def _copy_named(self, arrays: Sequence[Any]) -> dict[str, Array]:
        return {name: np.array(array) for name, array in zip(self._exported.trained, arrays, strict=True)}
