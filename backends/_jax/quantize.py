"""INT8 for linear layers of any JAX function: int8 x int8 products summed in int32, weights stored as int8.

No kept library quantizes a plain jitted function. Weights get one scale per output channel, or one for all. Activations
are symmetric too: XLA's CPU kernels multiply signed by signed, and without a zero point there is no correction term.
Static ranges are the largest magnitude over the calibration sets, one per product; dynamic ones the largest of each row
(torchao's default too): a row's result then doesn't depend on what else is in its batch. Convolutions, and products of
two activations, stay float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._jax.program import Program
from shootout.backends._jax.rewrite import (
    JaxprInterpreter,
    Weight,
    as_matrix,
    contracted,
    is_batched,
    multiply,
    result_of,
)
from shootout.backends.common import calibration_of
from shootout.core.contract import Arm, Array, Arrays, Precision
from shootout.core.schemes import parse

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from shootout.core.exported.model import ExportedModel

LEVELS = 127.0
"""Steps on each side of zero."""
Activation = Callable[[Any], tuple[Any, Any]]
"""(rows, terms) → the same in int8, and each row's scale; 1 where that is among the weight's scales already."""


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A product of an activation with a weight, which is its left (0) or right (1) operand."""

    weight: Weight
    side: int
    inner: tuple[int, ...]


def quantize_program(program: Program, exported: ExportedModel, arm: Arm) -> Program:
    """Return the same model with its linear layers in INT8; all that it needs is among its buffers, floats included.

    Raises:
        ValueError: it has no linear layer, or the calibration data can't be used.
    """
    scheme, stored = parse(arm.target.scheme), {**exported.weights(), **program.buffers}
    jaxpr, sites, floats = _find_linear_layers(
        program, stored, _in_input_order(exported, exported.input_buffers()[:1])[0]
    )
    if not sites:
        raise ValueError(f"nothing to quantize: {exported.model} has no linear layer, and here others stay float")
    activations: list[Activation] = [_scale_by_row] * len(sites)
    steps = [1.0] * len(sites)
    if arm.target.precision is Precision.INT8:
        sets = _in_input_order(exported, calibration_of(exported, scheme))
        steps = [float(largest) / LEVELS or 1.0 for largest in _observe_ranges(jaxpr, program, stored, sets)]
        activations = [_scale_by_step(step) for step in steps]
    buffers = {program.names[index]: stored[program.names[index]] for index in floats}
    for number, (site, step) in enumerate(zip(sites, steps, strict=True)):
        weight, scale = _quantize_weight(site, stored[program.names[site.weight.index]], scheme.granularity)
        buffers |= {f"{number}.int8": weight, f"{number}.scale": scale * np.float32(step)}
    return Program(run=_run_quantized(jaxpr, program, floats, activations), names=tuple(buffers), buffers=buffers)


def _find_linear_layers(
    program: Program, stored: Arrays, inputs: Sequence[Array]
) -> tuple[ClosedJaxpr, list[LinearLayer], list[int]]:
    """Return the program's jaxpr, its linear layers in order, and the weights that anything else reads."""
    import jax
    import jax.numpy as jnp

    jaxpr = jax.make_jaxpr(program.run)([stored[name] for name in program.names], inputs)
    sites, floats = list[LinearLayer](), set[int]()

    def product(step: JaxprEqn, *operands: Any) -> Any:
        if (site := _match_linear_layer(step, operands)) is None:
            return None
        sites.append(site)
        return jnp.zeros(result_of(step).shape, result_of(step).dtype)

    def array(weight: Weight) -> Any:
        floats.add(weight.index)
        return weight.laid_out(jnp.asarray(stored[program.names[weight.index]]))

    interpreter = JaxprInterpreter(product, array)
    jax.eval_shape(lambda x: interpreter.run(jaxpr, [*_weight_arguments(program), *x]), inputs)
    return jaxpr, sites, sorted(floats)


def _observe_ranges(jaxpr: ClosedJaxpr, program: Program, stored: Arrays, sets: Sequence[Sequence[Array]]) -> Array:
    """Find the largest magnitude that the float model gives each linear layer on all the calibration sets."""
    import jax
    import jax.numpy as jnp

    def observe(weights: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        seen: list[Any] = []

        def product(step: JaxprEqn, *operands: Any) -> None:
            if (site := _match_linear_layer(step, operands)) is not None:
                seen.append(jnp.max(jnp.abs(operands[1 - site.side])))

        JaxprInterpreter(product, lambda weight: weight.laid_out(weights[weight.index])).run(
            jaxpr, [*_weight_arguments(program), *inputs]
        )
        return seen

    run, weights = jax.jit(observe), [stored[name] for name in program.names]
    return np.max([run(weights, one) for one in sets], axis=0)  # type: ignore[no-any-return]


def _run_quantized(
    jaxpr: ClosedJaxpr, program: Program, floats: Sequence[int], activations: Sequence[Activation]
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """Return a function of the float weights, then an int8 weight and its scales for each linear layer."""

    def run(weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        arrays = dict(zip(floats, weights, strict=False))
        integers = iter(weights[len(floats) :])
        layers = zip(activations, integers, integers, strict=True)
        interpreter = JaxprInterpreter(
            _multiply_quantized(layers), lambda weight: weight.laid_out(arrays[weight.index])
        )
        return tuple(interpreter.run(jaxpr, [*_weight_arguments(program), *inputs]))

    return run


def _multiply_quantized(layers: Iterator[tuple[Activation, Any, Any]]) -> Callable[..., Any]:
    """Compute each linear layer in turn: the activation to int8, the product in int32, the scales in float32."""

    def product(step: JaxprEqn, *operands: Any) -> Any:
        if (site := _match_linear_layer(step, operands)) is None:
            return None
        activation, weight, scale = next(layers)
        x, x_scale = activation(as_matrix(operands[1 - site.side], contracted(step, 1 - site.side)))
        y = multiply(x, weight, "int32").astype("float32") * (x_scale * scale)
        return (y if site.side else y.T).reshape(result_of(step).shape)

    return product


def _match_linear_layer(step: JaxprEqn, operands: Sequence[Any]) -> LinearLayer | None:
    sides = [side for side, operand in enumerate(operands) if isinstance(operand, Weight)]
    if len(sides) != 1 or is_batched(step) or result_of(step).dtype != np.float32:
        return None
    return LinearLayer(operands[sides[0]], sides[0], contracted(step, sides[0]))


def _weight_arguments(program: Program) -> list[Weight]:
    return [Weight(index) for index in range(len(program.names))]


def _in_input_order(exported: ExportedModel, sets: Sequence[Arrays]) -> list[list[Array]]:
    return [[one[spec.name] for spec in exported.inputs] for one in sets]


def _quantize_weight(site: LinearLayer, stored: Array, granularity: str) -> tuple[Array, Array]:
    """Return the weight (channels, terms) in int8, and its scales: (channels,), or a single one."""
    matrix = np.asarray(as_matrix(np.asarray(site.weight.laid_out(stored)), site.inner))
    largest = np.abs(matrix).max(axis=None if granularity == "per-tensor" else 1, keepdims=True)
    scale = np.where(largest > 0, largest / LEVELS, 1).astype(np.float32)
    # In row-major order: safetensors writes the bytes of any other array in the wrong one.
    return np.ascontiguousarray(np.round(matrix / scale).astype(np.int8)), scale.reshape(-1)


def _scale_by_step(step: float) -> Activation:
    return lambda x: (_round_to_int8(x / step), 1.0)


def _scale_by_row(x: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    largest = jnp.max(jnp.abs(x), axis=1, keepdims=True)
    scale = jnp.where(largest > 0, largest / LEVELS, 1.0)
    return _round_to_int8(x / scale), scale


def _round_to_int8(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.clip(jnp.round(x), -LEVELS, LEVELS).astype(jnp.int8)
