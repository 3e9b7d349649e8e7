"""What JAX's errors mean that speak of its own tracing instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import Words

WORDS = (
    Words(
        said="ConcretizationTypeError: Abstract tracer value",
        reason="the model computes a shape or an index from its inputs' values, and JAX compiles for fixed shapes",
        fix="export the model with those sizes fixed, or take another backend",
    ),
)
