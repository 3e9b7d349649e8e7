"""JAX: one function, compiled ahead of time by XLA with its weights as arguments.

Models that have a `forward` run in jax.numpy, without torch; any other torch module goes through torchax, as do all
in the mode `torchax`. On the CPU, XLA has kernels for bfloat16 and int8 matrix products if they are asked for in the
one way it knows. Float16 it turns into float32 on most CPUs, which is a skip that says so; float8 and int4 on all, so
these aren't offered.
"""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.backends._jax import quantize
from shootout.backends._jax.account import count_nodes
from shootout.backends._jax.program import (
    ASYNC_DISPATCH,
    BUFFERS,
    EXECUTABLE,
    OPTIONS,
    PLATFORMS,
    Program,
    compile_program,
    is_async,
    notes_of,
    open_device,
    program_of,
)
from shootout.backends._jax.rewrite import laid_out, multiply, with_wide_sums
from shootout.backends._jax.session import JaxSession, JaxTrainingSession, momenta_of, step_of
from shootout.backends.common import DTYPES, native_flags, require_device, trial
from shootout.backends.optional import ErrorHint, Fixture, Shipment
from shootout.core.adapter import Built, check_options
from shootout.core.contract import (
    Arm,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Precision,
    Target,
)
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import pip_install

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
REDUCED = (Precision.BF16, Precision.FP16)
QUANTIZED = (Precision.INT8, Precision.INT8_DYNAMIC)
"""XLA's CPU compiler has no product that reads 4-bit weights or E4M3: at every call it turns whole operands into
float32 arrays in memory, and multiplies those.
"""
WEIGHTS = frozenset({"per-channel", "per-tensor", "symmetric"})
ERROR_HINTS = (
    ErrorHint(
        said="ConcretizationTypeError: Abstract tracer value",
        reason="the model computes a shape or an index from its inputs' values, and JAX compiles for fixed shapes",
        fix="export the model with those sizes fixed, or take another backend",
    ),
    ErrorHint(
        said=r"OperatorNotFound: Operator with name (?P<operator>\S+) has no lowering",
        reason="torchax, which translates the model for JAX, has no {operator}",
    ),
    ErrorHint(
        said="TracerArrayConversionError: The numpy.ndarray conversion method",
        reason="an operation, or torchax's translation of it, needs numbers that only a compiled call computes",
    ),
)
SHIPPED_WEIGHTS = "weights.npz"


def _is_missing_here(target: Target) -> bool:
    """Return whether XLA has no product of the precision on this CPU, by what it makes of a small one."""
    if target.device is not Device.CPU or target.precision not in REDUCED:
        return False
    return target.precision not in count_nodes(_small_product(target.precision), Device.CPU)[0]


def _small_product(precision: Precision) -> str:
    """Compile a product and return its HLO; XLA makes a loop in float32 of a much smaller one."""
    import jax

    square = np.eye(64, dtype=DTYPES[precision])
    return str(jax.jit(lambda x: multiply(x, x, "float32")).lower(square).compile().as_text())


FIXTURE = Fixture(
    lacks=_is_missing_here,
    # Torchax only gives another jaxpr: what precisions make of it is the other mode's code.
    slow=frozenset(("torchax", one) for one in (*REDUCED, *QUANTIZED)),
    warm={"": ("jax", "jax"), "torchax": ("jax,torchax", "jax,torchax")},
)


class JaxJitAdapter:
    """`jax.jit` on CPU and CUDA."""

    name = "jax-jit"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.FORWARD, Artifact.MODULE),
        targets=frozenset(
            [(Device.CPU, precision) for precision in (Precision.FP32, *REDUCED, *QUANTIZED)]
            + [(Device.CUDA, precision) for precision in DTYPES]
        ),
        native=frozenset({Device.CPU}),
        trains=True,
        modes=frozenset({"", "torchax"}),
        schemes={Precision.INT8: WEIGHTS | {"minmax", "samples-*"}, Precision.INT8_DYNAMIC: WEIGHTS},
        options=OPTIONS,
    )

    def probe(self, device: Device) -> Availability:
        """Compile and run a small product."""
        return trial("jax", lambda: _try_device(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Trace and compile; the executable goes into the folder.

        Raises:
            ValueError: an option that is neither XLA's nor JAX's dispatch switch; nothing to quantize, or no data to.
            SkippedArm: XLA widens every product of this precision; or a training step in it is asked for.
        """
        check_options(arm, self.capabilities.options)
        if exported.trained and arm.target.precision in REDUCED:
            raise SkippedArm("a training step of jax-jit has no mixed precision here", "use fp32, or torch-eager")
        device = open_device(arm.target.device, arm.threads, arm.options)
        program = _make_program(exported, arm)
        state = momenta_of(exported, device)
        hlo = compile_program(program, exported, arm, device, folder, state=state)
        _refuse_widened(hlo, arm)
        return Built(
            arm=arm, exported=exported, folder=folder, facts={"weights": program.names, "notes": notes_of(arm)}
        )

    def load(self, built: Built) -> JaxSession | JaxTrainingSession:
        """Load the stored executable, and the weights onto the device."""
        return JaxTrainingSession(built) if built.exported.trained else JaxSession(built)


def _make_program(exported: ExportedModel, arm: Arm) -> Program:
    if exported.trained:
        return step_of(exported, arm.target.mode)
    target = arm.target
    floats = "" if target.precision is Precision.NATIVE else DTYPES.get(target.precision, "float32")
    program = program_of(exported, target.mode, floats)
    if target.device is not Device.CPU:
        return program
    if target.precision in REDUCED:
        return replace(program, run=with_wide_sums(program.run))
    program = laid_out(program, exported)
    return quantize.quantize_program(program, exported, arm) if target.precision in QUANTIZED else program


def _refuse_widened(hlo: str, arm: Arm) -> None:
    """Skip a CPU arm whose products XLA widened; a GPU multiplies both reduced precisions, so a missing one is a
    fault.
    """
    precision, (counts, _) = arm.target.precision, count_nodes(hlo, arm.target.device)
    if arm.target.device is Device.CPU and precision in REDUCED and counts and precision not in counts:
        became = " and ".join(f"{count} {name}" for name, count in counts.items())
        reason = f"XLA's CPU compiler turned all {precision} products of this model into {became} ones"
        raise SkippedArm(reason, "use fp32, or this precision on cuda or from another backend")


def ship(built: Built, folder: Path) -> Shipment:
    """Copy XLA's executable as it was raced, and write the weights in its order; it needs no tracing and no torch.

    `jax.export` would ship StableHLO, which XLA compiles again when it is loaded: another program, and seconds later.
    """
    from safetensors.numpy import load_file

    arm, names = built.arm, list(built.facts["weights"])
    shutil.copyfile(built.folder / EXECUTABLE, folder / EXECUTABLE)
    stored = dict(load_file(built.folder / BUFFERS))
    if absent := set(names) - stored.keys():
        stored |= built.exported.weights(absent)
    np.savez(folder / SHIPPED_WEIGHTS, *(stored[name] for name in names))  # without names: arr_0, arr_1 …
    native = arm.target.precision is Precision.NATIVE
    options = {
        "config": {
            "jax_enable_compilation_cache": False,
            ASYNC_DISPATCH: is_async(arm.options),
            "jax_platforms": PLATFORMS[arm.target.device],
        },
        "weights": len(names),
        "floats": None if native else DTYPES.get(arm.target.precision, "float32"),
    }
    return Shipment(options=options, isa=native_flags(), installs=("jax",))


def _try_device(device: Device) -> str:
    require_device(device, (Device.CPU, Device.CUDA))
    import jax

    if device is Device.CUDA and not any(map(importlib.util.find_spec, CUDA_PLUGINS)):
        reason = f"jax {jax.__version__} is installed without its CUDA plugin"
        raise SkippedArm(reason, pip_install("jax[cuda13]"), NotRunKind.NOT_INSTALLED)
    chosen = open_device(device, 1, {})
    square = jax.device_put(np.eye(2, dtype=np.float32), chosen)
    result = jax.jit(lambda x: x @ x)(square)
    if not np.array_equal(np.asarray(result), np.eye(2)):
        raise ArithmeticError("a 2x2 matrix product came out wrong")
    return str(jax.__version__)
