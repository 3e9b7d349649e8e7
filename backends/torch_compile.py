"""torch.compile with Inductor, whole graph and fixed shapes; `+aoti` for AOTInductor's package.

`build` compiles into a cache that is kept; `load` copies that cache aside, lets Dynamo trace the module again (its
guards belong to the process and to what a call costs) and takes the kernels from the cache. What had to be compiled
while loading is a line in `fallbacks`, never a silent 20 s. AOTInductor has no guards, and a C++ wrapper instead of
a Python one: its package is loaded as it is.

Quantized models are frozen, as torchao's flow for x86 asks: without it INT8 kernels aren't found, and sums over
constant weights are computed in every call.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends import torch_quantize, torch_static, torch_student, torch_training
from shootout.backends.common import check_options, trial
from shootout.backends.torch_inductor import breaks, graph_bypassed, inductor_with
from shootout.backends.torch_nodes import kernel_recorder
from shootout.backends.torch_session import (
    TARGETS,
    Account,
    TorchSession,
    configure,
    example_of,
    module_of,
    require_torch,
    weight_bytes,
)
from shootout.backends.torch_toolchain import require_toolchain
from shootout.backends.torch_trace import Tally
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

    from shootout.bundle import ModelBundle

OPTIONS = {"": ("max_autotune", "cpp_wrapper"), "aoti": ("max_autotune",)}
"""Inductor's switches, "0" or "1", by mode: AOTInductor's wrapper is always C++. Not `freezing`: it is what
quantized models need, and float ones were slower with it.
"""
CACHE, PACKAGE = "inductor", "model.pt2"


class TorchCompileAdapter:
    """Inductor on CPU and CUDA; integers, through torchao, on CPU."""

    name = "torch-compile"
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=TARGETS | torch_quantize.TARGETS | torch_static.TARGETS,
        needs_calibration=True,
        scenarios=INFERENCE | {Scenario.TRAIN_STEP},
        modes=frozenset(OPTIONS),
        schemes={**torch_quantize.SCHEMES, **torch_static.SCHEMES},
    )

    def probe(self, device: Device) -> Availability:
        """Ask for torch, the compiler and the headers; Inductor itself shows in the build."""
        return trial("torch", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The compiled kernels (or the package), and what Inductor scheduled.

        Raises:
            ValueError: an unknown option, or one that is neither "0" nor "1"; nothing to quantize, or nothing to
                calibrate with.
            SkippedArm: no C++ compiler, or no Python headers; a training step is asked of AOTInductor.
        """
        config = _config(arm)
        if bundle.trained and arm.target.mode:
            raise SkippedArm("AOTInductor packages have no backward", "ask for torch-compile")
        require_toolchain()
        configure(arm)
        recorder, tally, kernels = kernel_recorder(arm.target.device)
        with inductor_with(folder / CACHE, {**config, "_post_fusion_custom_pass": recorder}):
            if arm.target.mode == "aoti":
                _build_package(_program(bundle, arm), str(folder / PACKAGE))
            elif bundle.trained:
                torch_student.compiled(bundle, arm)
            else:
                _store(bundle, arm, folder)
                _compiled(_module(bundle, arm, folder), bundle, arm)
            cached = not graph_bypassed()
        facts = {**tally.facts(), "kernels": dict(kernels), "graph_cached": cached}
        return Built(arm=arm, bundle=bundle, folder=folder, facts=facts)

    def load(self, built: Built) -> TorchSession | torch_training.TorchTrainingSession:
        """The package, or the module with its kernels out of the cache, called once."""
        configure(built.arm)
        if built.bundle.trained:
            return _load_step(built)
        return _load_package(built) if built.arm.target.mode == "aoti" else _load_cache(built)


def _config(arm: Arm) -> dict[str, Any]:
    known = OPTIONS[arm.target.mode]
    check_options(arm.options, known)
    for name, value in arm.options.items():
        if value not in ("0", "1"):
            raise ValueError(f"option {name!r}: expected 0 or 1, got {value!r}")
    switches = {name: value == "1" for name, value in arm.options.items()}
    return {**switches, "freezing": True} if arm.target.precision in INTEGERS else switches


def _store(bundle: ModelBundle, arm: Arm, folder: Path) -> None:
    """Write the quantized model; a float one is in the bundle."""
    if arm.target.precision is Precision.INT8:
        torch_static.save(torch_static.quantized_program(bundle, arm), folder)
    elif arm.target.precision in INTEGERS:
        torch_quantize.save(torch_quantize.quantized_module(bundle, arm), folder)


def _module(bundle: ModelBundle, arm: Arm, folder: Path) -> torch.nn.Module:
    """What `_store` wrote, or the bundle's float module."""
    if arm.target.precision is Precision.INT8:
        return torch_static.stored_module(folder)
    quantized = arm.target.precision in INTEGERS
    return torch_quantize.stored_module(bundle, folder) if quantized else module_of(bundle, arm)


def _compiled(module: torch.nn.Module, bundle: ModelBundle, arm: Arm) -> Any:
    """The module's compiled form after the first call: compilation happens there.

    The example is made outside inference mode, as staged tensors are: Dynamo's guards tell the two apart.
    """
    import torch

    example = example_of(bundle, arm)
    torch._dynamo.config.allow_rnn = True  # RNN, GRU and LSTM are traced step by step; without it they are refused
    run: Any = torch.compile(module, fullgraph=True, dynamic=False)
    with torch.inference_mode():
        run(*example)
    return run


def _program(bundle: ModelBundle, arm: Arm) -> torch.export.ExportedProgram:
    """The exported model, quantized where asked."""
    import torch

    if arm.target.precision is Precision.INT8:
        return torch_static.quantized_program(bundle, arm)
    quantized = arm.target.precision in INTEGERS
    module = torch_quantize.quantized_module(bundle, arm) if quantized else module_of(bundle, arm)
    with torch.no_grad():
        return torch.export.export(module, example_of(bundle, arm))


def _build_package(program: torch.export.ExportedProgram, path: str) -> None:
    """Write the package, and load it once: what loading compiles (tests of the vector units, 30 s) is then cached."""
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad():
        aoti_compile_and_package(program, package_path=path)
    aoti_load_package(path)


def _load_cache(built: Built) -> TorchSession:
    arm, cache = built.arm, _cache_aside(built)
    recorder, tally, compiled_here = kernel_recorder(arm.target.device)
    with inductor_with(cache, {**_config(arm), "_post_fusion_custom_pass": recorder}):
        module = _module(built.bundle, arm, built.folder)
        run = _compiled(module, built.bundle, arm)

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        in_folder = arm.target.precision in INTEGERS
        artifact = _bytes(built.folder) + (0 if in_folder else weight_bytes(module.state_dict().values()))
        if built.facts["graph_cached"]:
            return _account(built.facts, artifact, (*_recompiled(compiled_here), *breaks()))
        return _account(tally.facts(), artifact, breaks())

    session = TorchSession(run, arm, built.bundle, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def _load_step(built: Built) -> torch_training.TorchTrainingSession:
    arm, cache = built.arm, _cache_aside(built)
    recorder, tally, compiled_here = kernel_recorder(arm.target.device)
    with inductor_with(cache, {**_config(arm), "_post_fusion_custom_pass": recorder}):
        student = torch_student.compiled(built.bundle, arm)

    def account(staged: list[Any]) -> Account:  # noqa: ARG001 - the compiler has already told
        artifact = _bytes(built.folder) + weight_bytes(student.module.state_dict().values())
        if built.facts["graph_cached"]:
            return _account(built.facts, artifact, (*_recompiled(compiled_here), *torch_student.fallbacks()))
        return _account(tally.facts(), artifact, torch_student.fallbacks())

    session = torch_training.TorchTrainingSession(student, built, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def _cache_aside(built: Built) -> Path:
    """A copy of the built cache: Inductor writes into the one it uses."""
    cache = Path(tempfile.mkdtemp(prefix="shootout-inductor-"))
    shutil.copytree(built.folder / CACHE, cache, dirs_exist_ok=True)
    return cache


def _load_package(built: Built) -> TorchSession:
    from torch._inductor import aoti_load_package

    cache = _cache_aside(built)
    with inductor_with(cache, {}):
        run: Any = aoti_load_package(str(built.folder / PACKAGE))
    shutil.rmtree(cache)
    artifact = (built.folder / PACKAGE).stat().st_size

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        return _account(built.facts, artifact, ())

    return TorchSession(run, built.arm, built.bundle, account)


def _account(facts: Mapping[str, Any], artifact_bytes: int, fallbacks: tuple[str, ...]) -> Account:
    told = {name: facts[name] for name in Tally().facts()}
    return Account(**told, artifact_bytes=artifact_bytes, fallbacks=fallbacks)


def _recompiled(kernels: Counter[str]) -> tuple[str, ...]:
    count = sum(kernels.values())
    return (f"Inductor compiled {count} kernels while loading: its cache didn't hold them",) if count else ()


def _bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sum(path.stat().st_size for path in files)


def _try(device: Device) -> str:
    return f"{require_torch(device)}, {require_toolchain()}"
