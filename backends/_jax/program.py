"""Programs that `jax-jit` compiles, and their way to disk and back.

The executable itself is stored (`serialize_executable`): reading it back needs no tracing, no compiling and no torch,
where XLA's compilation cache traces again to find its key, and `jax.export` compiles again.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import DTYPES
from shootout.backends.common_torch import core_module
from shootout.backends.cuda_memory import STAGED
from shootout.core.adapter import GpuSide
from shootout.core.contract import Arm, Array, Arrays, Artifact, Device, Option, Precision, TensorSpec
from shootout.core.exported.request import find_model

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

PRODUCTS = {Precision.FP32: "highest", Precision.NATIVE: "highest", Precision.TF32: "tensorfloat32"}
"""`jax_default_matmul_precision` by target; it says nothing about products of reduced-precision operands."""
PLATFORMS = {Device.CPU: "cpu", Device.CUDA: "cuda,cpu"}
"""CUDA keeps the host's CPU, where torchax reads a module's weights; asking for a device is always by name."""
ASYNC_DISPATCH = "jax_cpu_enable_async_dispatch"
XLA_OPTION = "xla_"
ON_CPU, ON_CUDA = frozenset({Device.CPU}), frozenset({Device.CUDA})
COMMAND_BUFFERS = "xla_gpu_enable_command_buffer"
EXECUTABLE, BUFFERS = "executable.pickle", "buffers.safetensors"
SWITCHES = {"true": True, "false": False}
OPTIONS = (
    Option(
        name=ASYNC_DISPATCH,
        help="hand each call over to another thread, as JAX does by default",
        form="(?i)true|false",
        takes="true or false",
        devices=ON_CPU,
        tries=("true",),
    ),
    Option(
        name="xla_cpu_prefer_vector_width", help="bits of the vectors that XLA makes", devices=ON_CPU, tries=("512",)
    ),
    Option(
        name="xla_cpu_experimental_ynn_fusion_type",
        help="what YNNPACK computes, products unless told otherwise; nothing: XLA's own code computes all",
        devices=ON_CPU,
        precisions=frozenset({Precision.FP32}),  # without it XLA widens all others
        tries=("",),
    ),
    Option(
        name=COMMAND_BUFFERS,
        help="what XLA puts into CUDA graphs by itself; empty: nothing",
        devices=ON_CUDA,
        tries=("",),
    ),
    Option(name=f"{XLA_OPTION}*", help="any other compile option of XLA's, which checks name and value itself"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A model as a function of JAX arrays.

    Attributes:
        run: (weights in the order of `names`, inputs in the model's order) → the outputs in the model's order.
        buffers: what the function needs beside the exported model's weights; all that it needs, where it was quantized.
    """

    run: Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]
    names: tuple[str, ...]
    buffers: Arrays = field(default_factory=dict)


def from_forward(exported: ExportedModel) -> Program:
    """Make a program of the model's own `forward` in jax.numpy."""
    import jax.numpy as jnp

    forward, names = find_model(exported.model).forward, tuple(exported.weights())
    assert forward is not None, f"{exported.model} has a FORWARD artifact but no forward"

    def run(weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        named = {spec.name: array for spec, array in zip(exported.inputs, inputs, strict=True)}
        outputs = forward(jnp, dict(zip(names, weights, strict=True)), exported.parameters)(named)
        return tuple(outputs[spec.name] for spec in exported.outputs)

    return Program(run=run, names=names)


def from_module(exported: ExportedModel, floats: str = "float32") -> Program:
    """Translate the torch module on floats of this dtype ("": as they are) by torchax.

    A user's module that makes a constant in forward can't mix it with traced arrays: its program holds it as a buffer.
    """
    as_program = bool(exported.source_sha256) and Artifact.PT2 in exported.artifacts
    return _translate(core_module(exported, floats, as_program=as_program), exported)


def _translate(module: Any, exported: ExportedModel) -> Program:
    """Translate a module by torchax; buffers outside the module's state come along."""
    import torch
    import torchax

    from shootout.quantize.retyping import place_programs

    place_programs(module, torch.device("jax"))  # a program names the CPU, where no traced array can go
    states, call = torchax.extract_jax(module)
    names, stored = tuple(states), exported.weights()

    def run(weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        raw = call(dict(zip(names, weights, strict=True)), tuple(inputs))
        return tuple(raw) if isinstance(raw, tuple | list) else (raw,)

    buffers = {name: np.asarray(array) for name, array in states.items() if name not in stored}
    return Program(run=run, names=names, buffers=buffers)


def open_device(device: Device, threads: int, options: Mapping[str, str]) -> Any:
    """Open the arm's JAX device, and no other: a CPU arm never opens the GPU.

    XLA's CPU client reads its thread count from PJRT_NPROC when it starts, so the first call in a process settles it.
    """
    if threads:
        os.environ["PJRT_NPROC"] = str(threads)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    from jax.extend.backend import clear_backends

    config: Any = jax.config  # its flags are attributes that no type checker knows
    config.update("jax_enable_compilation_cache", False)  # a user's own one would warm the build, and be written to
    config.update(ASYNC_DISPATCH, is_async(options))
    if config.jax_platforms != PLATFORMS[device]:
        config.update("jax_platforms", PLATFORMS[device])
        config.update("jax_cuda_visible_devices", "0")  # or JAX takes a context on each GPU that it sees
        clear_backends()  # type: ignore[no-untyped-call]
    return jax.devices(device.value)[0]


def is_async(options: Mapping[str, str]) -> bool:
    """Return whether calls are handed to another thread, as is JAX's default.

    It isn't ours: an arm of one thread has one CPU, on which the two would take turns. That is a context switch per
    call, more scatter, and no gain.
    """
    return SWITCHES[options.get(ASYNC_DISPATCH, "false").lower()]


def compile_program(
    program: Program, exported: ExportedModel, arm: Arm, device: Any, folder: Path, *, state: Sequence[Any] = ()
) -> str:
    """Compile the model and what stages its inputs, and write both into `folder`.

    Args:
        program: what to compile.
        exported, arm, device: what it is compiled for.
        folder: where it goes.
        state: of a training step, arrays behind the weights; each call is given all of them for good, and returns all.

    Returns:
        The HLO of the compiled model.

    Raises:
        ValueError: an option that XLA doesn't know.
    """
    import jax
    import jax.numpy as jnp
    from jax.experimental.serialize_executable import serialize
    from safetensors.numpy import save_file

    def staging(inputs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(jnp.array(array, _computed_dtype(array, arm), copy=True) for array in inputs)

    save_file(dict(program.buffers), folder / BUFFERS)
    host = tuple(exported.input_buffers()[0][spec.name] for spec in exported.inputs)
    with jax.default_device(device), jax.default_matmul_precision(PRODUCTS.get(arm.target.precision, "default")):
        stage = jax.jit(staging).lower(host).compile()
        weights = (*read_weights(exported, arm, program.names, device, folder), *state)
        lowered = jax.jit(program.run, donate_argnums=(0,) if state else ()).lower(weights, stage(host))
        compiled = _compile_lowered(lowered, arm)
    (folder / EXECUTABLE).write_bytes(pickle.dumps([serialize(compiled), serialize(stage)]))
    return str(compiled.as_text())


def read_program(folder: Path, device: Any) -> tuple[Any, Any]:
    """Read the compiled model and its staging program from the harness's own hash-checked folder."""
    from jax.experimental.serialize_executable import deserialize_and_load

    stored = pickle.loads((folder / EXECUTABLE).read_bytes())  # noqa: S301
    where = {"backend": device.client, "execution_devices": [device]}
    compiled, stage = (deserialize_and_load(code, ins, outs, **where) for code, ins, outs in stored)
    return compiled, stage


def read_weights(exported: ExportedModel, arm: Arm, names: Sequence[str], device: Any, folder: Path) -> tuple[Any, ...]:
    """Read the weights onto the device, floats in the arm's dtype, in the order of `names`."""
    import jax
    from safetensors.numpy import load_file

    stored: dict[str, Array] = load_file(folder / BUFFERS)
    if absent := set(names) - stored.keys():  # a quantized program brings all of its own
        stored |= exported.weights(absent)
    host = tuple(stored[name].astype(_computed_dtype(stored[name], arm), copy=False) for name in names)
    weights: tuple[Any, ...] = jax.device_put(host, device)
    return weights


def notes_of(arm: Arm) -> list[str]:
    """Return the notes of an arm's row."""
    if arm.target.device is Device.CPU or arm.options.get(COMMAND_BUFFERS) == "":
        return []
    return [
        f"XLA replays CUDA graphs by itself, other backends where they are told to: {COMMAND_BUFFERS}= leaves them out"
    ]


def program_of(exported: ExportedModel, mode: str, floats: str = "float32") -> Program:
    """Return the exported model as a function of floats of this dtype, as the target's mode says."""
    plain = not mode and Artifact.FORWARD in exported.artifacts
    return from_forward(exported) if plain else from_module(exported, floats)


def _compile_lowered(lowered: Any, arm: Arm) -> Any:
    from jax.errors import JaxRuntimeError

    chosen = {name: value for name, value in arm.options.items() if name.startswith(XLA_OPTION)}
    try:
        return lowered.compile({name: SWITCHES.get(value.lower(), value) for name, value in chosen.items()})
    except JaxRuntimeError as error:
        if any(name in str(error) for name in chosen):
            raise ValueError(f"XLA refuses an option: {error}") from error
        raise


def _computed_dtype(array: Any, arm: Arm) -> Any:
    """Return the arm's dtype for floats; other dtypes stay."""
    import jax.numpy as jnp

    floating = jnp.issubdtype(array.dtype, jnp.floating) and arm.target.precision is not Precision.NATIVE
    return jnp.dtype(DTYPES.get(arm.target.precision, "float32")) if floating else array.dtype


def is_read_as_is(arm: Arm, spec: TensorSpec) -> bool:
    """Return whether the compiled model reads an input's dtype: JAX's own integers are 32 bits wide."""
    from jax.dtypes import canonicalize_dtype

    given = np.dtype(spec.dtype)
    return bool(canonicalize_dtype(_computed_dtype(np.empty(0, given), arm)) == given)


def gpu_side(arm: Arm, device: Any) -> GpuSide | None:
    """Return what a session tells of its GPU; None on a CPU. There are no events: JAX shows no stream of XLA's."""
    if arm.target.device is Device.CPU:
        return None
    return GpuSide(copies=STAGED, allocator=partial(allocated_bytes, device))


def allocated_bytes(device: Any) -> tuple[int, int]:
    """Return the bytes in use now and at most, by JAX's own account: arrays, and what running programs need.

    Raises:
        RuntimeError: JAX keeps no account on this device (`XLA_PYTHON_CLIENT_ALLOCATOR=platform`, say).
    """
    stats = device.memory_stats()
    if not stats:
        raise RuntimeError(f"JAX keeps no account of memory on {device}")
    return int(stats["bytes_in_use"]), int(stats["peak_bytes_in_use"])
