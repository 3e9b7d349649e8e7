"""torch.compile with Inductor, whole graph and fixed shapes; `+aoti` for AOTInductor's package.

`build` compiles into a cache that is kept; `load` copies that cache aside, lets Dynamo trace the module again (its
guards belong to the process and to what a call costs) and takes the kernels from the cache. What had to be compiled
while loading is a line in `fallbacks`, never a silent 20 s. AOTInductor has no guards, and a C++ wrapper instead of
a Python one: its package is loaded as it is. `+cudagraphs` is what torch calls `reduce-overhead`: the kernels of a call
are captured as a CUDA graph and replayed, after a copy of the inputs into the graph's own memory.

Quantized models are frozen, as torchao's flow for x86 asks: without it INT8 kernels aren't found, and sums over
constant weights are computed in every call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._torch import compiled, quantize, static, student, training
from shootout.backends._torch.account import kernel_recorder
from shootout.backends._torch.compiled import AOTI, CACHE, GRAPHS, OPTIONS, PACKAGE
from shootout.backends._torch.gpu import TorchGpuSession
from shootout.backends._torch.inductor import graph_bypassed, graph_parts, inductor_with
from shootout.backends._torch.session import TARGETS, TorchSession, configure, example_of, module_of, require_torch
from shootout.backends._torch.toolchain import require_cuda_headers, require_toolchain, require_triton
from shootout.backends.common import trial
from shootout.contract import (
    INFERENCE,
    INTEGERS,
    Arm,
    Artifact,
    Availability,
    Built,
    Capabilities,
    Device,
    Precision,
    Scenario,
)
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

NO_STEP = {
    AOTI: "AOTInductor packages have no backward",
    GRAPHS: "a training step isn't captured as CUDA graphs here",
}
"""Why a mode has no training step."""


class TorchCompileAdapter:
    """Inductor on CPU and CUDA, there also with CUDA graphs; integers, through torchao, on CPU."""

    name = "torch-compile"
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=TARGETS | quantize.TARGETS | static.TARGETS,
        needs_calibration=True,
        scenarios=INFERENCE | {Scenario.TRAIN_STEP},
        modes=frozenset(OPTIONS),
        cuda_modes=frozenset({GRAPHS}),
        schemes={**quantize.SCHEMES, **static.SCHEMES},
    )

    def probe(self, device: Device) -> Availability:
        """Ask for torch, the compiler and the headers, on a GPU for Triton too; Inductor itself shows in the build."""
        return trial("torch", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The compiled kernels (or the package), and what Inductor scheduled.

        Raises:
            ValueError: an unknown option or value; nothing to quantize, or nothing to calibrate with.
            SkippedArm: a compiler or headers are missing; or the mode can't do what is asked.
        """
        config = compiled.config(arm)
        _refuse(bundle, arm)
        require_toolchain()
        configure(arm)
        recorder, tally, kernels = kernel_recorder(arm.target.device)
        with inductor_with(folder / CACHE, {**config, "_post_fusion_custom_pass": recorder}):
            if arm.target.mode == AOTI:
                _build_package(_program(bundle, arm), str(folder / PACKAGE))
            elif bundle.trained:
                student.compiled(bundle, arm)
            else:
                _store(bundle, arm, folder)
                compiled.compiled(compiled.module_in(folder, bundle, arm), bundle, arm)
            cached = not graph_bypassed()
        facts = {**tally.facts(), "kernels": dict(kernels), "graph_cached": cached, "graph_parts": graph_parts()}
        return Built(arm=arm, bundle=bundle, folder=folder, facts=facts)

    def load(self, built: Built) -> TorchSession | TorchGpuSession | training.TorchTrainingSession:
        """The package, or the module with its kernels out of the cache, called once (to capture it, three times).

        Raises:
            RuntimeError: CUDA graphs were asked for, and Inductor captured none.
            SkippedArm: CUDA graphs of several sessions were asked for.
        """
        configure(built.arm)
        if built.bundle.trained:
            return compiled.load_step(built)
        is_package = built.arm.target.mode == AOTI
        return compiled.load_package(built) if is_package else compiled.load_cache(built)


def _refuse(bundle: ModelBundle, arm: Arm) -> None:
    """What a mode can't do.

    Raises:
        SkippedArm: with the reason and the fix.
    """
    mode = arm.target.mode
    if bundle.trained and mode:
        raise SkippedArm(NO_STEP[mode], "ask for torch-compile")
    if mode == AOTI and arm.target.device is Device.CUDA:
        require_cuda_headers()


def _store(bundle: ModelBundle, arm: Arm, folder: Path) -> None:
    """Write the quantized model; a float one is in the bundle."""
    if arm.target.precision is Precision.INT8:
        static.save(static.quantized_program(bundle, arm), folder)
    elif arm.target.precision in INTEGERS:
        quantize.save(quantize.quantized_module(bundle, arm), folder)


def _program(bundle: ModelBundle, arm: Arm) -> torch.export.ExportedProgram:
    """The exported model, quantized where asked."""
    import torch

    if arm.target.precision is Precision.INT8:
        return static.quantized_program(bundle, arm)
    quantized = arm.target.precision in INTEGERS
    module = quantize.quantized_module(bundle, arm) if quantized else module_of(bundle, arm)
    with torch.no_grad():
        return torch.export.export(module, example_of(bundle, arm))


def _build_package(program: torch.export.ExportedProgram, path: str) -> None:
    """Write the package, and load it once: what loading compiles (tests of the vector units, 30 s) is then cached."""
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad():
        aoti_compile_and_package(program, package_path=path)
    aoti_load_package(path)


def _try(device: Device) -> str:
    version = require_torch(device)
    if device is Device.CUDA:
        require_triton()
    return f"{version}, {require_toolchain()}"
