"""Weights laid out once, at build, as XLA's kernels read them and as JAX's own layers store them.

Torch stores a matrix as (out, in) and a filter as (out, in, height, width). XLA can't fold what turns them round into
an argument: its CPU compiler copies them in every call, or takes a slower product. So a weight that all its readers
read alike is stored as they do: matrices (in, out), filters (height, width, in, out), as Flax and Haiku store theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._jax.rewrite import Interpreter, Weight, bind, contracted, is_batched, result_of
from shootout.backends._jax.session import Program
from shootout.contract import Array

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn

    from shootout.exported.model import ExportedModel


@dataclass(frozen=True, slots=True)
class Read:
    """How a product reads a weight: after its layout steps, and in which order of the axes it would rather."""

    weight: Weight
    order: tuple[int, ...]

    @property
    def turns(self) -> bool:
        """Whether the weight is to be stored in another form than it is."""
        return bool(self.order) and (bool(self.weight.steps) or self.order != tuple(range(len(self.order))))

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for reads that one stored array serves."""
        return (*((step.primitive.name, str(step.params)) for step in self.weight.steps), self.order)

    def stored(self, array: Array) -> Array:
        """The weight in that order."""
        return np.ascontiguousarray(np.asarray(self.weight.laid_out(array)).transpose(self.order))


def laid_out(program: Program, exported: ExportedModel) -> Program:
    """The same program on weights stored as it reads them; those it then has among its buffers, no others."""
    stored = {**exported.weights(), **program.buffers}
    reads = _survey(program, [stored[name] for name in program.names], exported)
    if not reads:
        return program
    shapes = [stored[name].shape for name in program.names]
    turned = {program.names[index]: read.stored(stored[program.names[index]]) for index, read in reads.items()}
    return replace(program, run=_runner(program, shapes, reads), buffers={**program.buffers, **turned})


def _survey(program: Program, weights: Sequence[Array], exported: ExportedModel) -> dict[int, Read]:
    """By a weight's index: how its readers read it, where that is alike and not as it is stored."""
    import jax
    import jax.numpy as jnp

    inputs = [exported.input_buffers()[0][spec.name] for spec in exported.inputs]
    found: dict[int, dict[object, Read]] = {}

    def note(read: Read) -> None:
        found.setdefault(read.weight.index, {})[read.form] = read

    def array(weight: Weight) -> Any:
        note(Read(weight, ()))
        return weight.laid_out(jnp.asarray(weights[weight.index]))

    def noting(order_of: Callable[[JaxprEqn], tuple[int, ...]]) -> Callable[[JaxprEqn, Any, Any], Any]:
        def product(step: JaxprEqn, left: Any, right: Any) -> Any:
            if isinstance(left, Weight) or not isinstance(right, Weight) or not (order := order_of(step)):
                return None
            note(Read(right, order))
            return jnp.zeros(result_of(step).shape, result_of(step).dtype)

        return product

    jaxpr = jax.make_jaxpr(program.run)(weights, inputs)
    interpreter = Interpreter(noting(_matrix_order), array, noting(_filter_order))
    jax.eval_shape(lambda x: interpreter.run(jaxpr, [*map(Weight, range(len(weights))), *x]), inputs)
    single = {index: next(iter(forms.values())) for index, forms in found.items() if len(forms) == 1}
    return {index: read for index, read in single.items() if read.turns}


def _runner(
    program: Program, shapes: Sequence[tuple[int, ...]], reads: Mapping[int, Read]
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """The function over weights of which those in `reads` are stored as they are read."""
    import jax

    shaped: Any = jax.ShapeDtypeStruct

    def run(weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        def reading(axes_of: Callable[[JaxprEqn], Any]) -> Callable[[JaxprEqn, Any, Any], Any]:
            def product(step: JaxprEqn, left: Any, right: Any) -> Any:
                if not isinstance(right, Weight) or right.index not in reads:
                    return None
                return bind(step, (left, weights[right.index]), dimension_numbers=axes_of(step))

            return product

        given = [shaped(shape, weight.dtype) for shape, weight in zip(shapes, weights, strict=True)]
        jaxpr = jax.make_jaxpr(program.run)(given, inputs)
        interpreter = Interpreter(
            reading(_matrix_axes), lambda weight: weight.laid_out(weights[weight.index]), reading(_filter_axes)
        )
        return tuple(interpreter.run(jaxpr, [*map(Weight, range(len(weights))), *inputs]))

    return run


def _matrix_order(step: JaxprEqn) -> tuple[int, ...]:
    """(in, out) of a product's right operand; nothing where there are many products at once."""
    inner, right = contracted(step, 1), step.invars[1].aval
    outer = (axis for axis in range(len(right.shape)) if axis not in inner)  # type: ignore[attr-defined]
    return () if is_batched(step) else (*inner, *outer)


def _matrix_axes(step: JaxprEqn) -> Any:
    """The product's axes where its right operand is (in, out)."""
    inner = contracted(step, 0)
    return (inner, tuple(range(len(inner)))), ((), ())


def _filter_order(step: JaxprEqn) -> tuple[int, ...]:
    """(height, width, in, out) of a convolution's filters."""
    channels_out, channels_in, *window = step.params["dimension_numbers"].rhs_spec
    return (*window, channels_in, channels_out)


def _filter_axes(step: JaxprEqn) -> Any:
    """The convolution's axes where its filters are (height, width, in, out)."""
    axes = step.params["dimension_numbers"]
    *window, channels_in, channels_out = range(len(axes.rhs_spec))
    return axes._replace(rhs_spec=(channels_out, channels_in, *window))
