"""Build one Linear without bias.

The permutation probe's weight is a permutation: its output is its input moved about, exactly, unless precision was
lost. One row holds 1+2^-k for each k, so the rows that survive tell how many mantissa bits the backend's matmul kept;
the last row holds 2^17, which is beyond FP16's range. Every second column is 1.0, so a constant output can't pass.

The grid probe shows how many levels weights and activations are left with. The first rows carry evenly spaced numbers
from -1 to 1, which the first outputs copy; so many different ones as come out, so many levels do activations have. Each
of the last rows is a single 1, so that the last outputs read weights, evenly spaced as well. Every row, and every group
of 32 numbers of a ramp, holds a 1 (and a ramp's a -1): then whatever a quantizer scales by (a tensor, a row, a channel,
a group), all scales are the same, and 8 bits leave at most 256 levels, 4 bits 16, while bfloat16 leaves about 1,000.
FP8 (E4M3) leaves 8 levels between each number and its half, which no integers do. The permutation probe can't show it:
3 mantissa bits lose every one of its rows, and the row of 2^17 takes the scale of a whole tensor with it.

The identity, whose output is its input, is for the harness's own spin backend, and for tests that need no torch.

The artifacts are written without torch, so that a
machine with ONNX Runtime alone has its proof too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Array, Arrays, Artifact, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.model import FILES, WEIGHTS
from shootout.models.base import Call, Model, Parameters

if TYPE_CHECKING:
    from torch import nn

WIDTH = 256
ONNX, OPSET, IR = FILES[Artifact.ONNX], 18, 10
NAME = "linear.weight"
CALIBRATION_SETS = 32
"""Give the same set so often: quantizers want several, and it holds the whole range already."""
PROBE_ROWS = (5, 7, 8, 10, 12)
"""The k of the permutation probe's rows that hold 1+2^-k, in order; one more row holds OVERFLOW."""
OVERFLOW = 2.0**17
PROBE_BATCH = len(PROBE_ROWS) + 1
ORDER: Array = np.random.default_rng(17).permutation(WIDTH)
"""The permutation probe's output column j is input column ORDER[j]."""
COPIES = 128
"""The grid probe's outputs, and input columns, that carry the activations' ramp."""
RAMP_ROWS, WEIGHT_ROWS = 16, 16
GRID_BATCH = RAMP_ROWS + WEIGHT_ROWS
GROUP = 32
READ = tuple(column for column in range(COPIES, WIDTH) if column % GROUP >= 4)[::6][:WEIGHT_ROWS]
"""The columns whose weights are read."""
IDENTITY_WIDTH = 64
NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""An empty safetensors file: a header of two bytes."""


FP16_MAX = 65_504.0
ANSWERS: Mapping[tuple[str, bool | None], str] = {
    ("11111", False): "fp32",
    ("11110", False): "tf32",
    ("11110", True): "fp16",
    ("11000", False): "bf16",
}
"""The permutation probe's: which of PROBE_ROWS came out exactly, and whether the last row overflowed."""
MOST_LEVELS = {8: 256, 4: 16}
"""The most that so many bits can tell apart."""
LEVEL_GAP = 1e-4
"""The grid probe's steps are 1e-3 at least; what is nearer than this is float noise on one and the same level."""
OCTAVES = ((1 / 2, 1.0), (1 / 4, 1 / 2), (1 / 8, 1 / 4))
E4M3_LEVELS = range(7, 10)
"""In each octave 8, whatever the scale: 3 mantissa bits. Float noise may move one at an end. Integers have half as many
in each octave as in the one above.
"""
SHOWN = {
    ("int8", "int8"): "int8",
    ("float", "int8"): "int8-weights",
    ("float", "int4"): "int4",
    ("int8", "int4"): "int4-activations-8",
    ("float", "float"): "float",
    ("fp8", "fp8"): "fp8",
    ("float", "fp8"): "fp8-weights",
}
"""The grid probe's: by the levels of activations and of weights."""
COARSEST = 0.15
"""Half a step of 4 bits from -1 to 1, and as much again for a grid that doesn't reach both ends."""


def permutation_weight() -> Array:
    """Return the permutation matrix, (WIDTH, WIDTH): row j has its 1 in column ORDER[j]."""
    return np.eye(WIDTH, dtype=np.float32)[ORDER]


def permutation_rows() -> Array:
    """Return the permutation probe's one input set, (PROBE_BATCH, WIDTH): nothing about it is random."""
    x = np.ones((PROBE_BATCH, WIDTH), np.float32)
    x[:, ::2] = np.array([*(1 + 2.0**-k for k in PROBE_ROWS), OVERFLOW], np.float32)[:, None]
    return x


def grid_weight() -> Array:
    """Return (WIDTH, WIDTH): the copies' identity; below it the weights' ramp, with a 1 and a -1 in each group."""
    found = np.zeros((WIDTH, WIDTH), np.float32)
    found[range(COPIES), range(COPIES)] = 1.0
    found[COPIES:, COPIES::GROUP] = 1.0
    found[COPIES:, COPIES + 1 :: GROUP] = -1.0
    found[COPIES:, READ] = _make_ramp(COPIES * WEIGHT_ROWS).reshape(COPIES, WEIGHT_ROWS)
    return found


def grid_rows() -> Array:
    """Return (GRID_BATCH, WIDTH): the ramp, then the single ones."""
    x = np.zeros((GRID_BATCH, WIDTH), np.float32)
    x[:RAMP_ROWS, :COPIES] = _make_ramp(RAMP_ROWS * COPIES).reshape(RAMP_ROWS, COPIES)
    x[:RAMP_ROWS, :COPIES:GROUP], x[:RAMP_ROWS, 1:COPIES:GROUP] = 1.0, -1.0
    x[range(RAMP_ROWS, GRID_BATCH), READ] = 1.0
    return x


def _make_ramp(count: int) -> Array:
    """Return values evenly spaced from -1 to 1, shuffled so that no group and no row has only neighbors."""
    return np.random.default_rng(23).permutation(np.linspace(-1, 1, count)).astype(np.float32)


def read_permutation(outputs: Arrays) -> str:
    """Name the float precision that the permutation probe's output shows.

    Returns:
        "fp32" (exact at 2^-12), "tf32" or "fp16" (lost there, exact at 2^-10; FP16 alone overflows at 2^17), "bf16"
        (lost at 2^-8, exact at 2^-7), or "unknown" for anything else.
    """
    wanted, got = permutation_rows()[:, ORDER].astype(np.float64), outputs["y"].astype(np.float64)
    exact = "".join("1" if np.array_equal(got[row], wanted[row]) else "0" for row in range(len(PROBE_ROWS)))
    lost = np.array([2.0**-k for k in PROBE_ROWS])[:, None]
    if got.shape != wanted.shape or not (np.abs(got - wanted)[:-1] <= lost).all():
        return "unknown"
    return ANSWERS.get((exact, _has_overflowed(got[-1], wanted[-1])), "unknown")


def read_grid(outputs: Arrays) -> str:
    """Name the precision that the levels in the grid probe's output show.

    Returns:
        "int8" (at most 256 levels of weights and of activations), "int8-weights" and "int4" (at most 256 and 16 of
        weights, activations unrounded), "int4-activations-8" (at most 16 and 256), "fp8" and "fp8-weights" (E4M3's
        levels), "float" (more than 256 of both), or "unknown" for anything else, wrong outputs among it.
    """
    y, wanted = outputs["y"].astype(np.float64), grid_rows() @ grid_weight().T
    if y.shape != wanted.shape:
        return "unknown"
    ramps, rights = _split_ramps(y), _split_ramps(wanted)
    if not all((np.abs(got - right) <= COARSEST).all() for got, right in zip(ramps, rights, strict=True)):
        return "unknown"
    activations, weights = map(_name_grid, ramps)
    return SHOWN.get((activations, weights), "unknown")


READERS: Mapping[str, Callable[[Arrays], str]] = {"permutation_probe": read_permutation, "grid_probe": read_grid}
"""By the probe's model."""


def _name_grid(ramp: Array) -> str:
    """Name the grid that the numbers of a ramp were rounded to."""
    ordered = np.sort(ramp, axis=None)
    levels = ordered[np.diff(ordered, prepend=-np.inf) > LEVEL_GAP]
    counts = [np.count_nonzero((levels > low) & (levels <= high)) for low, high in OCTAVES]
    if all(count in E4M3_LEVELS for count in counts):
        return "fp8"
    if len(levels) > MOST_LEVELS[8]:
        return "float"
    if counts[-1] >= counts[0]:  # other floats of few bits
        return "unknown"
    return "int4" if len(levels) <= MOST_LEVELS[4] else "int8"


def _split_ramps(y: Array) -> tuple[Array, Array]:
    """Return the activations' ramp and the weights'."""
    rows, copies = RAMP_ROWS, COPIES
    return y[:rows, :copies], y[rows:, copies:]


def _has_overflowed(got: Array, wanted: Array) -> bool | None:
    """Return whether the 2^17 row left FP16's range; None if it is neither exact nor out of range.

    Infinity times the weight's zeros is NaN.
    """
    if np.array_equal(got, wanted):
        return False
    return True if not np.isfinite(got).all() or np.max(np.abs(got)) == FP16_MAX else None


def _make_probe(name: str, description: str, weight: Callable[[], Array], rows: Callable[[], Array]) -> Model:
    """Make a model with the weight `weight()`, (WIDTH, WIDTH), and the only input set `rows()`, (batch, WIDTH)."""

    def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:  # noqa: ARG001 (the Model's signature)
        if batch != (own := len(rows())):
            raise UsageError(f"{name} has batch {own}, one row for each question; got {batch}")
        return (TensorSpec(name="x", shape=(batch, WIDTH), dtype="float32"),)

    def trained(parameters: Parameters) -> nn.Module:
        import torch

        model = module(parameters)
        model.load_state_dict({NAME: torch.from_numpy(weight())})
        return model

    return Model(
        name=name,
        description=description,
        parameters={},
        parameter_count=lambda _: WIDTH * WIDTH,
        inputs=inputs,
        forward=forward,
        module=module,
        trained=trained,
        draw=lambda _, __: [{"x": rows()}],
        calibration=lambda _, __: [{"x": rows()}] * CALIBRATION_SETS,
        artifacts=(Artifact.FORWARD, Artifact.MODULE, Artifact.ONNX),
        write=lambda folder: _write_probe(name, weight(), len(rows()), folder),
    )


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:  # noqa: ARG001 - a `Forward`
    """Return `y = x W^T`."""
    matrix = weights[NAME].T
    return lambda x: {"y": x["x"] @ matrix}


def module(parameters: Parameters) -> nn.Module:  # noqa: ARG001
    """Build one Linear without bias."""
    from collections import OrderedDict

    from torch import nn

    return nn.Sequential(OrderedDict(linear=nn.Linear(WIDTH, WIDTH, bias=False))).eval()


def _write_probe(name: str, weight: Array, batch: int, folder: Path) -> dict[str, Array]:
    from onnx import TensorProto, helper, numpy_helper, save
    from safetensors.numpy import save_file

    weights = {NAME: np.ascontiguousarray(weight)}
    save_file(weights, folder / WEIGHTS)
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [batch, WIDTH]) for end in ("x", "y")]
    node = helper.make_node("Gemm", ["x", NAME], ["y"], transB=1)
    graph = helper.make_graph([node], name, ends[:1], ends[1:], [numpy_helper.from_array(weights[NAME], NAME)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR), folder / ONNX)
    return weights


def _no_module(parameters: Parameters) -> nn.Module:
    """Refuse: there is none; an exported model of this model never claims the MODULE artifact."""
    raise NotImplementedError(f"identity has no torch module (parameters {dict(parameters)})")


def _write_identity(folder: Path) -> dict[str, Array]:
    (folder / WEIGHTS).write_bytes(NO_WEIGHTS)
    return {}


PERMUTATION = _make_probe(
    "permutation_probe",
    "tells which float precision a backend really computes in",
    permutation_weight,
    permutation_rows,
)
GRID = _make_probe(
    "grid_probe", "tells how many levels a backend leaves weights and activations", grid_weight, grid_rows
)
IDENTITY = Model(
    name="identity",
    description="output = input",
    parameters={},
    parameter_count=lambda _: 0,
    inputs=lambda _, batch: (TensorSpec(name="x", shape=(batch, IDENTITY_WIDTH), dtype="float32"),),
    forward=lambda xp, _, __: lambda x: {"y": xp.array(x["x"])},
    module=_no_module,
    trained=_no_module,
    artifacts=(Artifact.FORWARD, Artifact.NONE),
    write=_write_identity,
)
IDENTITY_OF_ONE = replace(
    IDENTITY,
    name="identity_of_one",
    description="output = input, of one set: a call to verify, where each may take seconds",
    draw=lambda _, batch: [{"x": np.arange(batch * IDENTITY_WIDTH, dtype=np.float32).reshape(batch, -1)}],
)
BATCHES = {"permutation_probe": PROBE_BATCH, "grid_probe": GRID_BATCH}
"""The rows of each probe's one set of inputs, by its name."""
