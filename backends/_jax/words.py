"""What JAX's errors mean that speak of its own tracing instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

ERROR_HINTS = (
    ErrorHint(
        said="ConcretizationTypeError: Abstract tracer value",
        reason="the model computes a shape or an index from its inputs' values, and JAX compiles for fixed shapes",
        fix="export the model with those sizes fixed, or take another backend",
    ),
    ErrorHint(
        said=r"OperatorNotFound: Operator with name (?P<operator>\S+) has no lowering",
        reason="torchax, which translates the model for JAX, has no {operator}",
        fix="take another backend, or a model without that operation",
    ),
    ErrorHint(
        said="TracerArrayConversionError: The numpy.ndarray conversion method",
        reason="an operation, or torchax's translation of it, needs numbers that only a compiled call computes",
        fix="take another backend, or a model without that operation",
    ),
)
