"""A model compiled by Inductor, in the process that builds it and in each that loads it.

Compiling and loading are the same calls under the same configuration: whether the kernels come out of the cache is
Inductor's decision, so what it had to compile after all is a line in `fallbacks`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends._torch import gpu, quantize, static, training
from shootout.backends._torch import student as torch_student
from shootout.backends._torch.account import kernel_recorder
from shootout.backends._torch.gpu import COPIES, TorchGpuSession, session_on
from shootout.backends._torch.inductor import breaks, captured_graphs, inductor_with, keep, outside_graphs
from shootout.backends._torch.session import Account, TorchSession, example_of, module_of, weight_bytes
from shootout.backends._torch.trace import Tally
from shootout.contract import INTEGERS, Arm, Built, Precision
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

AOTI, GRAPHS = "aoti", "cudagraphs"
"""The modes beside the plain one."""
OPTIONS = {
    "": ("max_autotune", "cpp_wrapper", COPIES),
    AOTI: ("max_autotune", COPIES),
    GRAPHS: ("max_autotune", COPIES),
}
"""By mode: Inductor's switches, "0" or "1", and how inputs are copied to a GPU. AOTInductor's wrapper is always C++,
and Inductor captures no CUDA graph of a C++ wrapper. Not `freezing`: it is what quantized models need, and float ones
were slower with it.
"""
CACHE, PACKAGE = "inductor", "model.pt2"
CALLS_TO_CAPTURE = 3
"""Inductor runs a model once as it is, captures its CUDA graph in the second call, and replays it from the third on."""


def config(arm: Arm) -> dict[str, Any]:
    """Inductor's configuration for this arm.

    Raises:
        ValueError: an option that the mode doesn't have, or a value that it can't be.
    """
    gpu.check(arm, OPTIONS[arm.target.mode])
    given = {name: value for name, value in arm.options.items() if name != COPIES}
    for name, value in given.items():
        if value not in ("0", "1"):
            raise ValueError(f"option {name!r}: expected 0 or 1, got {value!r}")
    switches = {name: value == "1" for name, value in given.items()}
    if arm.target.mode == GRAPHS:
        switches["triton.cudagraphs"] = True
    return {**switches, "freezing": True} if arm.target.precision in INTEGERS else switches


def module_in(folder: Path, bundle: ModelBundle, arm: Arm) -> torch.nn.Module:
    """The quantized module that the build wrote into its folder, or the bundle's float one."""
    if arm.target.precision is Precision.INT8:
        return static.stored_module(folder)
    quantized = arm.target.precision in INTEGERS
    return quantize.stored_module(bundle, folder) if quantized else module_of(bundle, arm)


def compiled(module: torch.nn.Module, bundle: ModelBundle, arm: Arm) -> Any:
    """The module's compiled form after the first calls: compilation and capture happen there.

    The example is made outside inference mode, as staged tensors are: Dynamo's guards tell the two apart.
    """
    import torch

    example = example_of(bundle, arm)
    torch._dynamo.config.allow_rnn = True  # RNN, GRU and LSTM are traced step by step; without it they are refused
    run: Any = torch.compile(module, fullgraph=True, dynamic=False)
    with torch.inference_mode():
        for _ in range(CALLS_TO_CAPTURE if arm.target.mode == GRAPHS else 1):
            run(*example)
    return run


def load_cache(built: Built) -> TorchSession | TorchGpuSession:
    """The module, compiled again with its kernels out of the cache.

    Raises:
        RuntimeError: CUDA graphs were asked for, and Inductor captured none.
        SkippedArm: CUDA graphs of several sessions were asked for.
    """
    arm = built.arm
    if arm.target.mode == GRAPHS and arm.instances > 1:  # whoever calls next writes over the others' outputs
        reason = "the CUDA graphs of all sessions in a process share one pool of memory, so two can't run at once"
        raise SkippedArm(reason, "--instances 1, or torch-compile without +cudagraphs")
    cache = _cache_aside(built)
    recorder, tally, compiled_here = kernel_recorder(arm.target.device)
    before = captured_graphs() if arm.target.mode == GRAPHS else 0
    with inductor_with(cache, {**config(arm), "_post_fusion_custom_pass": recorder}):
        module = module_in(built.folder, built.bundle, arm)
        run = compiled(module, built.bundle, arm)
    keep(run)
    captured = _captured_since(before) if arm.target.mode == GRAPHS else 0

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        in_folder = arm.target.precision in INTEGERS
        artifact = _bytes(built.folder) + (0 if in_folder else weight_bytes(module.state_dict().values()))
        since = captured_graphs() - before - captured if captured else 0
        outside = outside_graphs(captured, since, built.facts["graph_parts"]) if captured else ()
        if built.facts["graph_cached"]:
            return _account(built.facts, artifact, (*_recompiled(compiled_here), *breaks(), *outside))
        return _account(tally.facts(), artifact, (*breaks(), *outside))

    session = session_on(run, arm, built.bundle, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def load_step(built: Built) -> training.TorchTrainingSession:
    """A training step, compiled again with its kernels out of the cache."""
    arm, cache = built.arm, _cache_aside(built)
    recorder, tally, compiled_here = kernel_recorder(arm.target.device)
    with inductor_with(cache, {**config(arm), "_post_fusion_custom_pass": recorder}):
        student = torch_student.compiled(built.bundle, arm)
    keep(student.module)

    def account(staged: list[Any]) -> Account:  # noqa: ARG001 - the compiler has already told
        artifact = _bytes(built.folder) + weight_bytes(student.module.state_dict().values())
        if built.facts["graph_cached"]:
            return _account(built.facts, artifact, (*_recompiled(compiled_here), *torch_student.fallbacks()))
        return _account(tally.facts(), artifact, torch_student.fallbacks())

    session = training.TorchTrainingSession(student, built, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def load_package(built: Built) -> TorchSession | TorchGpuSession:
    """AOTInductor's package as it is."""
    from torch._inductor import aoti_load_package

    cache = _cache_aside(built)
    with inductor_with(cache, {}):
        run: Any = aoti_load_package(str(built.folder / PACKAGE))
    shutil.rmtree(cache)
    artifact = (built.folder / PACKAGE).stat().st_size

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        return _account(built.facts, artifact, ())

    return session_on(run, built.arm, built.bundle, account)


def _captured_since(before: int) -> int:
    count = captured_graphs() - before
    if not count:  # the label would be a lie
        raise RuntimeError("Inductor captured no CUDA graph (TORCH_LOGS=cudagraphs says why): ask without +cudagraphs")
    return count


def _cache_aside(built: Built) -> Path:
    """A copy of the built cache: Inductor writes into the one it uses."""
    cache = Path(tempfile.mkdtemp(prefix="shootout-inductor-"))
    shutil.copytree(built.folder / CACHE, cache, dirs_exist_ok=True)
    return cache


def _account(facts: Mapping[str, Any], artifact_bytes: int, fallbacks: tuple[str, ...]) -> Account:
    told = {name: facts[name] for name in Tally().facts()}
    return Account(**told, artifact_bytes=artifact_bytes, fallbacks=fallbacks)


def _recompiled(kernels: Counter[str]) -> tuple[str, ...]:
    count = sum(kernels.values())
    return (f"Inductor compiled {count} kernels while loading: its cache didn't hold them",) if count else ()


def _bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sum(path.stat().st_size for path in files)
