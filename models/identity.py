"""A model that is only its interface: for the harness's own spin backend, and for tests that need no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.contract import Array, Arrays, Artifact, TensorSpec
from shootout.exported.model import WEIGHTS
from shootout.models.base import Call, Model, Parameters

if TYPE_CHECKING:
    from torch import nn

WIDTH = 64
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""An empty safetensors file: a header of two bytes."""


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
    """One input `x`, (batch, 64)."""
    return (TensorSpec(name="x", shape=(batch, WIDTH), dtype="float32"),)


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """`y = x`, in an array of its own."""
    return lambda x: {"y": xp.array(x["x"])}


def module(parameters: Parameters) -> nn.Module:
    """There is none; an exported model of this model never claims the MODULE artifact."""
    raise NotImplementedError(f"identity has no torch module (parameters {dict(parameters)})")


def write(folder: Path) -> dict[str, Array]:
    """No weights."""
    (folder / WEIGHTS).write_bytes(NO_WEIGHTS)
    return {}


MODEL = Model(
    name="identity",
    description="output = input",
    parameters={},
    parameter_count=lambda _: 0,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=module,
    artifacts=(Artifact.FORWARD, Artifact.NONE),
    write=write,
)
