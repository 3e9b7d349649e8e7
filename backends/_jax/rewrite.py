"""Runs a function's jaxpr with its matrix products replaced: what it takes to quantize a plain JAX function.

Calls inside the function are run inline, so that a product in a jitted part, or in one with a derivative of its own, is
found as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, JaxprEqn

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
        """The weight as the function sees it here, from how it is stored."""
        for step in self.steps:
            stored = bind(step, [stored])
        return stored


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Evaluates a jaxpr whose arguments are arrays or `Weight`s.

    Attributes:
        product: asked at each dot_general with its operands; gives its result, or None to leave it as it is.
        array: gives the array of a weight that anything else wants to read.
        convolution: the same as `product` for each conv_general_dilated; None leaves all of them.
    """

    product: Callable[[JaxprEqn, Any, Any], Any]
    array: Callable[[Weight], Any]
    convolution: Callable[[JaxprEqn, Any, Any], Any] | None = None

    def run(self, jaxpr: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        """The outputs, as arrays."""
        return [self._plain(value) for value in self._run(jaxpr, arguments)]

    def _run(self, closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
        from jax.extend.core import Literal

        jaxpr: Any = closed.jaxpr  # its lists are not annotated
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for step in jaxpr.eqns:
            values.update(zip(step.outvars, self._step(step, [read(atom) for atom in step.invars]), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, step: JaxprEqn, given: list[Any]) -> list[Any]:
        name = step.primitive.name
        if name in CALLS:
            return self._run(_callee(step), given)
        if name in LAYOUTS and isinstance(given[0], Weight):
            return [replace(given[0], steps=(*given[0].steps, step))]
        hook = {"dot_general": self.product, "conv_general_dilated": self.convolution}.get(name)
        if hook and (found := hook(step, given[0], given[1])) is not None:
            return [found]
        result = bind(step, map(self._plain, given))
        return list(result) if step.primitive.multiple_results else [result]

    def _plain(self, value: Any) -> Any:
        return self.array(value) if isinstance(value, Weight) else value


def result_of(step: JaxprEqn) -> Any:
    """Shape and dtype of what a product gives."""
    return step.outvars[0].aval


def is_batched(step: JaxprEqn) -> bool:
    """Whether a dot_general is many products at once, as in attention."""
    return bool(step.params["dimension_numbers"][1][0])


def contracted(step: JaxprEqn, side: int) -> tuple[int, ...]:
    """The axes that a dot_general sums over, of its left (0) or right (1) operand."""
    return tuple(step.params["dimension_numbers"][0][side])


def as_matrix(array: Any, inner: Sequence[int]) -> Any:
    """(rows, terms to sum over), the axes `inner` last."""
    outer = [axis for axis in range(array.ndim) if axis not in inner]
    return array.transpose(*outer, *inner).reshape(-1, prod(array.shape[axis] for axis in inner))


def multiply(x: Any, weight: Any, accumulator: str) -> Any:
    """x weightᵀ of two matrices, summed in the dtype `accumulator`.

    XLA's CPU kernels for narrow types take no vectors: both operands of a product with one row, it widens in memory at
    each call. A second row of zeros costs less than that (512 x 512 in int8: 16 us against 93).
    """
    from jax import lax

    sides = (((1,), (1,)), ((), ()))
    y = lax.dot_general(_two_rows(x), _two_rows(weight), sides, preferred_element_type=np.dtype(accumulator))
    return y[: x.shape[0], : weight.shape[0]]


def bind(step: JaxprEqn, arrays: Iterable[Any], **changed: Any) -> Any:
    """What a step gives for these arrays, with some of its parameters changed."""
    primitive: Any = step.primitive
    return primitive.bind(*arrays, **{**primitive.get_bind_params(step.params), **changed})


def with_wide_sums(run: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The same function, its reduced-precision products summed in float32 and rounded afterwards.

    That is how XLA's CPU kernels for bfloat16 work: asked for a bfloat16 sum, XLA widens both operands to float32.
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
        interpreter = Interpreter(product, lambda weight: weight.laid_out(weights[weight.index]))
        return tuple(interpreter.run(jaxpr, [*weights, *inputs]))

    return wide


def _two_rows(matrix: Any) -> Any:
    import jax.numpy as jnp

    return jnp.pad(matrix, ((0, 1), (0, 0))) if matrix.shape[0] == 1 else matrix


def _callee(step: JaxprEqn) -> ClosedJaxpr:
    from jax.extend.core import ClosedJaxpr

    found = step.params["jaxpr"] if "jaxpr" in step.params else step.params["call_jaxpr"]
    return found if isinstance(found, ClosedJaxpr) else ClosedJaxpr(found, ())
