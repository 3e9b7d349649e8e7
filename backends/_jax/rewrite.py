"""Run a function's jaxpr with its products replaced: to quantize it, to sum wider, to lay its weights out again.

Calls inside the function are run inline. So a product in a jitted part, or in one with a derivative of its own, is
found as well.

Weights are laid out once, at build, as XLA's kernels read them. Torch stores a matrix as (out, in) and a filter as
(out, in, height, width). XLA can't fold what turns them round into an argument: its CPU compiler copies them in every
call, or takes a slower product. So a weight that all its readers read alike is stored as they do: matrices (in, out),
filters (height, width, in, out), as Flax and Haiku store theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._jax.program import Program
from shootout.core.contract import Array

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from shootout.core.exported.model import ExportedModel

CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call"}
)
"""Primitives that only call a jaxpr of their own; loops and branches are not among them: they run as they are."""
LAYOUTS = frozenset({"transpose", "reshape", "squeeze", "copy"})
"""Primitives that leave a weight's numbers what they are."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that nothing was computed with yet: its place among the weights, and its layout steps so far."""

    index: int
    steps: tuple[JaxprEqn, ...] = ()

    def laid_out(self, stored: Any) -> Any:
        """Return the weight as the function sees it here, from how it is stored."""
        for step in self.steps:
            stored = bind(step, [stored])
        return stored


@dataclass(frozen=True, slots=True)
class JaxprInterpreter:
    """Evaluate a jaxpr whose arguments are arrays or `Weight`s.

    Attributes:
        product: asked at each dot_general with its operands; gives its result, or None to leave it as it is.
        array: gives the array of a weight that anything else wants to read.
        convolution: the same as `product` for each conv_general_dilated; None leaves all of them.
    """

    product: Callable[[JaxprEqn, Any, Any], Any]
    array: Callable[[Weight], Any]
    convolution: Callable[[JaxprEqn, Any, Any], Any] | None = None

    def run(self, jaxpr: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        """Evaluate to the outputs, as arrays."""
        return [self._as_array(value) for value in self._evaluate_jaxpr(jaxpr, arguments)]

    def _evaluate_jaxpr(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        from jax.extend.core import Literal

        jaxpr: Any = closed.jaxpr  # its lists are not annotated
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for step in jaxpr.eqns:
            values.update(
                zip(step.outvars, self._evaluate_step(step, [read(atom) for atom in step.invars]), strict=True)
            )
        return [read(atom) for atom in jaxpr.outvars]

    def _evaluate_step(self, step: JaxprEqn, given: list[Any]) -> list[Any]:
        name = step.primitive.name
        if name in CALLS:
            return self._evaluate_jaxpr(_called_jaxpr(step), given)
        if name in LAYOUTS and isinstance(given[0], Weight):
            return [replace(given[0], steps=(*given[0].steps, step))]
        hook = {"dot_general": self.product, "conv_general_dilated": self.convolution}.get(name)
        if hook and (replaced := hook(step, given[0], given[1])) is not None:
            return [replaced]
        result = bind(step, map(self._as_array, given))
        return list(result) if step.primitive.multiple_results else [result]

    def _as_array(self, value: Any) -> Any:
        return self.array(value) if isinstance(value, Weight) else value


def result_of(step: JaxprEqn) -> Any:
    """Return the shape and dtype of a product's result."""
    return step.outvars[0].aval


def is_batched(step: JaxprEqn) -> bool:
    """Return whether a dot_general is many products at once, as in attention."""
    return bool(step.params["dimension_numbers"][1][0])


def contracted(step: JaxprEqn, side: int) -> tuple[int, ...]:
    """Return the axes that a dot_general sums over, of its left (0) or right (1) operand."""
    return tuple(step.params["dimension_numbers"][0][side])


def as_matrix(array: Any, inner: Sequence[int]) -> Any:
    """Return (rows, terms to sum over), the axes `inner` last."""
    outer = [axis for axis in range(array.ndim) if axis not in inner]
    return array.transpose(*outer, *inner).reshape(-1, prod(array.shape[axis] for axis in inner))


def multiply(x: Any, weight: Any, accumulator: str) -> Any:
    """Multiply x by the transposed weight, two matrices, and sum in the dtype `accumulator`.

    XLA's CPU kernels for narrow types take no vectors: if a product has one row, XLA widens both operands in memory at
    each call. A second row of zeros costs less than that (512 x 512 in int8: 16 us against 93).
    """
    from jax import lax

    sides = (((1,), (1,)), ((), ()))
    y = lax.dot_general(_two_rows(x), _two_rows(weight), sides, preferred_element_type=np.dtype(accumulator))
    return y[: x.shape[0], : weight.shape[0]]


def bind(step: JaxprEqn, arrays: Iterable[Any], **changed: Any) -> Any:
    """Evaluate a step for these arrays, with some of its parameters changed."""
    primitive: Any = step.primitive
    return primitive.bind(*arrays, **{**primitive.get_bind_params(step.params), **changed})


def with_wide_sums(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Return the same function, its reduced-precision products summed in float32 and rounded afterwards.

    XLA's CPU kernels for bfloat16 work so: asked for a bfloat16 sum, XLA widens both operands to float32.
    """
    import jax

    def product(step: JaxprEqn, left: Any, right: Any) -> Any:
        out = result_of(step)
        if out.dtype == "float32":
            return None
        if is_batched(step):
            y = bind(step, (left, right), preferred_element_type=np.dtype(np.float32))
        else:
            y = multiply(as_matrix(left, contracted(step, 0)), as_matrix(right, contracted(step, 1)), "float32")
        return y.reshape(out.shape).astype(out.dtype)

    def wide(weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        jaxpr = jax.make_jaxpr(run)(weights, inputs)
        interpreter = JaxprInterpreter(product, lambda weight: weight.laid_out(weights[weight.index]))
        return tuple(interpreter.run(jaxpr, [*weights, *inputs]))

    return wide


def _two_rows(matrix: Any) -> Any:
    import jax.numpy as jnp

    return jnp.pad(matrix, ((0, 1), (0, 0))) if matrix.shape[0] == 1 else matrix


def _called_jaxpr(step: JaxprEqn) -> ClosedJaxpr:
    from jax.extend.core import ClosedJaxpr

    jaxpr = step.params["jaxpr"] if "jaxpr" in step.params else step.params["call_jaxpr"]
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


@dataclass(frozen=True, slots=True)
class Read:
    """Hold how a product reads a weight: after its layout steps, and in which order of the axes it would rather."""

    weight: Weight
    order: tuple[int, ...]

    @property
    def turns(self) -> bool:
        """Return whether the weight is to be stored in another form than it is."""
        return bool(self.order) and (bool(self.weight.steps) or self.order != tuple(range(len(self.order))))

    @property
    def form(self) -> tuple[object, ...]:
        """Return a key that is equal for reads that one stored array serves."""
        return (*((step.primitive.name, str(step.params)) for step in self.weight.steps), self.order)

    def stored(self, array: Array) -> Array:
        """Return the weight in that order."""
        return np.ascontiguousarray(np.asarray(self.weight.laid_out(array)).transpose(self.order))


def laid_out(program: Program, exported: ExportedModel) -> Program:
    """Return the same program on weights stored as it reads them; its buffers hold those, and no others."""
    stored = {**exported.weights(), **program.buffers}
    reads = _find_reads(program, [stored[name] for name in program.names], exported)
    if not reads:
        return program
    shapes = [stored[name].shape for name in program.names]
    turned = {program.names[index]: read.stored(stored[program.names[index]]) for index, read in reads.items()}
    return replace(program, run=_run_laid_out(program, shapes, reads), buffers={**program.buffers, **turned})


def _find_reads(program: Program, weights: Sequence[Array], exported: ExportedModel) -> dict[int, Read]:
    """Return by a weight's index how its readers read it, if they do so alike and not as it is stored."""
    import jax
    import jax.numpy as jnp

    inputs = [exported.input_buffers()[0][spec.name] for spec in exported.inputs]
    reads: dict[int, dict[object, Read]] = {}

    def note(read: Read) -> None:
        reads.setdefault(read.weight.index, {})[read.form] = read

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
    interpreter = JaxprInterpreter(noting(_matrix_order), array, noting(_filter_order))
    jax.eval_shape(lambda x: interpreter.run(jaxpr, [*map(Weight, range(len(weights))), *x]), inputs)
    single = {index: next(iter(forms.values())) for index, forms in reads.items() if len(forms) == 1}
    return {index: read for index, read in single.items() if read.turns}


def _run_laid_out(
    program: Program, shapes: Sequence[tuple[int, ...]], reads: Mapping[int, Read]
) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]:
    """Return the function of weights of which those in `reads` are stored as they are read."""
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
        interpreter = JaxprInterpreter(
            reading(_matrix_axes), lambda weight: weight.laid_out(weights[weight.index]), reading(_filter_axes)
        )
        return tuple(interpreter.run(jaxpr, [*map(Weight, range(len(weights))), *inputs]))

    return run


def _matrix_order(step: JaxprEqn) -> tuple[int, ...]:
    """Return (in, out) of a product's right operand; nothing if there are many products at once."""
    inner, right = contracted(step, 1), step.invars[1].aval
    outer = (axis for axis in range(len(right.shape)) if axis not in inner)  # type: ignore[attr-defined]
    return () if is_batched(step) else (*inner, *outer)


def _matrix_axes(step: JaxprEqn) -> Any:
    """Return the product's axes for a right operand that is (in, out)."""
    inner = contracted(step, 0)
    return (inner, tuple(range(len(inner)))), ((), ())


def _filter_order(step: JaxprEqn) -> tuple[int, ...]:
    """Return (height, width, in, out) of a convolution's filters."""
    channels_out, channels_in, *window = step.params["dimension_numbers"].rhs_spec
    return (*window, channels_in, channels_out)


def _filter_axes(step: JaxprEqn) -> Any:
    """Return the convolution's axes for filters that are (height, width, in, out)."""
    axes = step.params["dimension_numbers"]
    *window, channels_in, channels_out = range(len(axes.rhs_spec))
    return axes._replace(rhs_spec=(channels_out, channels_in, *window))
