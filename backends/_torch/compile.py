"""torch.compile with Inductor, whole graph and fixed shapes; `+aoti` for AOTInductor's package.

`build` compiles into a cache that is kept. `load` copies that cache aside and lets Dynamo trace the module again: its
guards belong to the process and to what a call costs. The kernels come from the cache. What had to be compiled while
loading is a line in `fallbacks`, never a silent 20 s.

AOTInductor has no guards, and a C++ wrapper instead of a Python one: its package is loaded as it is. `+cudagraphs` is
what torch calls `reduce-overhead`: the kernels of a call are captured as a CUDA graph and replayed, after a copy of the
inputs into the graph's own memory.

Compiling and loading are the same calls under the same configuration: whether the kernels come out of the cache is
Inductor's decision.

Quantized models are frozen, as torchao's flow for x86 asks: without it INT8 kernels aren't found, and sums over
constant weights are computed in every call.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shootout.backends._torch import quantize
from shootout.backends._torch.account import kernel_recorder
from shootout.backends._torch.inductor import (
    breaks,
    captured_graphs,
    graph_bypassed,
    graph_parts,
    inductor_with,
    keep,
    outside_graphs,
    require_cuda_headers,
    require_toolchain,
)
from shootout.backends._torch.session import (
    FLOATS,
    Facts,
    TorchSession,
    configure,
    count_graphs,
    example_of,
    held_bytes,
    module_of,
    session_on,
    shipped_settings,
)
from shootout.backends._torch.training import STEP_GRAPHS, TorchTrainingSession, compile_student
from shootout.backends.common import Tally, native_flags
from shootout.backends.cuda_memory import COPIES
from shootout.backends.optional import Shipment
from shootout.core.adapter import Built
from shootout.core.contract import (
    SCALED,
    Arm,
    Device,
    Option,
    Precision,
)
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.schemes import parse

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

AOTI, GRAPHS = "aoti", "cudagraphs"
"""The modes beside the plain one."""
FREEZING, AUTOTUNE = "freezing", "max_autotune"
ON, ON_CPU = "1", frozenset({Device.CPU})
OPTIONS = (
    Option(
        name=AUTOTUNE,
        help="time several kernels for each product; on a CPU that takes frozen weights, so these come with it",
        values=("0", "1"),
        tries=("1",),
    ),
    Option(
        name=FREEZING,
        help="weights as constants: normalizations folded into convolutions, weights packed (integers always are)",
        values=("0", "1"),
        devices=ON_CPU,
        modes=frozenset({"", AOTI}),
        precisions=FLOATS,
        tries=("1",),
    ),
    Option(
        name="cpp_wrapper",
        help="call the kernels from C++ (AOTInductor always does; of a C++ wrapper Inductor captures no CUDA graph)",
        values=("0", "1"),
        modes=frozenset({""}),
        tries=("1",),
    ),
    COPIES,
)
"""Freezing is no float model's default: it is torch's own to leave it off, and it gains on some and costs on others."""
CACHE, PACKAGE = "inductor", "model.pt2"
CALLS_TO_CAPTURE = 3
"""Inductor runs a model once as it is, captures its CUDA graph in the second call, and replays it from the third on."""
NO_STEP = {AOTI: "AOTInductor packages have no backward", GRAPHS: "a training step isn't captured as CUDA graphs here"}
"""The reason why a mode has no training step."""
FIXED = {AOTI: "an AOTInductor package is made for one size here", GRAPHS: "a CUDA graph is captured for one size"}
"""The reason why a mode takes no open shapes."""
Made = TypeVar("Made")


def build(exported: ExportedModel, arm: Arm, folder: Path) -> dict[str, Any]:
    """Compile into the kernels' cache or the package, and return what Inductor scheduled.

    Raises:
        ValueError: an option that does nothing here; nothing to quantize, or nothing to calibrate with.
        SkippedArm: a compiler or headers are missing; or the mode can't do what is asked.
    """
    config = inductor_config(arm)
    _refuse_request(exported, arm)
    require_toolchain()
    configure(arm)
    recorder, tally, kernels = kernel_recorder(arm.target.device)
    with inductor_with(folder / CACHE, {**config, "_post_fusion_custom_pass": recorder}):
        if arm.target.mode == AOTI:
            _build_package(_export_program(exported, arm), str(folder / PACKAGE))
        elif exported.trained:
            compile_student(exported, arm)
        else:
            _store_quantized(exported, arm, folder)
            module = stored_module(folder, exported, arm)
            _refuse_recompiling(module, compile_module(module, exported, arm), exported, arm)
        cached = not graph_bypassed()
    return {**tally.facts(), "kernels": dict(kernels), "graph_cached": cached, "graph_parts": graph_parts()}


def ship_package(built: Built, folder: Path) -> Shipment:
    """Copy the package: kernels that were compiled for this CPU, and the weights."""
    shutil.copyfile(built.folder / PACKAGE, folder / PACKAGE)
    return Shipment(template="load_package.txt", options=shipped_settings(built), isa=native_flags())


def inductor_config(arm: Arm) -> dict[str, Any]:
    """Return Inductor's configuration for this arm."""
    switches = {name: value == ON for name, value in arm.options.items() if name != COPIES.name}
    if arm.target.mode == GRAPHS:
        switches["triton.cudagraphs"] = True
    # The C++ template that a CPU's kernels are tuned with takes constant weights only; AOTInductor's always are.
    needed = arm.target.precision in SCALED or (switches.get(AUTOTUNE, False) and not arm.target.mode)
    return {FREEZING: True, **switches} if needed and arm.target.device is Device.CPU else switches


def stored_module(folder: Path, exported: ExportedModel, arm: Arm) -> torch.nn.Module:
    """Return the quantized module that the build wrote into its folder, or the exported model's float one."""
    if arm.target.precision is Precision.INT8:
        return quantize.load_program(folder)
    quantized = arm.target.precision in SCALED
    return quantize.load_module(exported, folder) if quantized else module_of(exported, arm)


def compile_module(module: torch.nn.Module, exported: ExportedModel, arm: Arm) -> Any:
    """Compile the module and return it after the first calls, in which compilation and capture happen.

    The example is made in inference mode, as staged tensors are: Dynamo's guards tell it from others.
    """
    import torch

    torch._dynamo.config.allow_rnn = True  # RNN, GRU and LSTM are traced step by step; without it they are refused
    run: Any = torch.compile(module, fullgraph=True, dynamic=parse(arm.target.scheme).is_dynamic)
    with torch.inference_mode():
        example = example_of(exported, arm)
        for _ in range(CALLS_TO_CAPTURE if arm.target.mode == GRAPHS else 1):
            run(*example)
    return run


def _refuse_recompiling(module: torch.nn.Module, run: Any, exported: ExportedModel, arm: Arm) -> None:
    """Refuse a module that is compiled again in each of two more calls: it would be until Dynamo's limit.

    Raises:
        SkippedArm: it is; says which attributes the calls change.
    """
    import torch

    from shootout.models.programs import find_state

    with torch.inference_mode():
        example = example_of(exported, arm)
        for _ in range(2):
            before = count_graphs()
            run(*example)
            if count_graphs() == before:
                return
        state = find_state(module, lambda: run(*example))
    raise SkippedArm(
        f"torch.compile compiles this module anew in each call: an attribute changes with each call ({state})",
        "keep the number in a tensor, or leave it as it is if torch.compiler.is_compiling()",
        NotRunKind.UNFIT,
    )


def load_cache(built: Built) -> TorchSession:
    """Compile the module again, with its kernels out of the cache.

    Raises:
        RuntimeError: CUDA graphs were asked for, and Inductor captured none.
        SkippedArm: CUDA graphs of several sessions were asked for.
    """

    arm, graphs = built.arm, built.arm.target.mode == GRAPHS
    if graphs and arm.instances > 1:  # the next call writes over the others' outputs
        reason = "the CUDA graphs of all sessions in a process share one pool of memory, so two can't run at once"
        raise SkippedArm(reason, "--instances 1, or torch-compile without +cudagraphs")

    def compile_again() -> tuple[torch.nn.Module, Any, int]:
        module = stored_module(built.folder, built.exported, arm)
        before = captured_graphs() if graphs else 0  # here: `inductor_with` has dropped those of the build by now
        return module, compile_module(module, built.exported, arm), before

    (module, run, before), facts_with, cache = _with_cache(built, compile_again)
    keep(run)
    captured = _captured_since(before) if graphs else 0

    def account(staged: list[Any]) -> Facts:  # noqa: ARG001 - the compiler has already told
        in_folder = arm.target.precision in SCALED
        artifact = _size_bytes(built.folder) + (0 if in_folder else held_bytes(module))
        since = captured_graphs() - before - captured if captured else 0
        outside = outside_graphs(captured, since, built.facts["graph_parts"]) if captured else ()
        return {**facts_with(*breaks(), *outside), "artifact_bytes": artifact}

    session = session_on(run, arm, built.exported, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def load_step(built: Built) -> TorchTrainingSession:
    """Compile a training step again, with its kernels out of the cache."""
    student, facts_with, cache = _with_cache(built, lambda: compile_student(built.exported, built.arm))
    keep(student.module)

    def account(staged: list[Any]) -> Facts:  # noqa: ARG001 - the compiler has already told
        artifact = _size_bytes(built.folder) + held_bytes(student.module)
        return {**facts_with(*breaks("step", STEP_GRAPHS)), "artifact_bytes": artifact}

    session = TorchTrainingSession(student, built, account)
    weakref.finalize(session, shutil.rmtree, str(cache), True)
    return session


def load_package(built: Built) -> TorchSession:
    """Load AOTInductor's package as it is."""
    from torch._inductor import aoti_load_package

    cache = _cache_aside(built)
    with inductor_with(cache, {}):
        run: Any = aoti_load_package(str(built.folder / PACKAGE))
    shutil.rmtree(cache)
    facts = {**_built_facts(built), "artifact_bytes": (built.folder / PACKAGE).stat().st_size}
    return session_on(run, built.arm, built.exported, lambda _: facts)


def _with_cache(built: Built, compile_again: Callable[[], Made]) -> tuple[Made, Callable[..., Facts], Path]:
    """Compile under the build's configuration and a copy of its cache.

    Returns:
        What was made; by what else fell back, Inductor's account of it; the copy.
    """
    cache = _cache_aside(built)
    recorder, tally, kernels = kernel_recorder(built.arm.target.device)
    with inductor_with(cache, {**inductor_config(built.arm), "_post_fusion_custom_pass": recorder}):
        made = compile_again()

    def facts_with(*fallbacks: str) -> Facts:
        if not built.facts["graph_cached"]:
            return {**tally.facts(), "fallbacks": fallbacks}
        count = sum(kernels.values())
        again = f"Inductor compiled {count} kernels while loading: its cache didn't hold them"
        return {**_built_facts(built), "fallbacks": (again, *fallbacks) if count else fallbacks}

    return made, facts_with, cache


def _cache_aside(built: Built) -> Path:
    """Copy the built cache: Inductor writes into the one it uses."""
    cache = Path(tempfile.mkdtemp(prefix="shootout-inductor-"))
    shutil.copytree(built.folder / CACHE, cache, dirs_exist_ok=True)
    return cache


def _built_facts(built: Built) -> dict[str, Any]:
    """Return what was counted during the build."""
    return {name: built.facts[name] for name in Tally().facts()}


def _captured_since(before: int) -> int:
    count = captured_graphs() - before
    if not count:  # the label would be a lie
        raise RuntimeError("Inductor captured no CUDA graph (TORCH_LOGS=cudagraphs says why): leave +cudagraphs out")
    return count


def _size_bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sum(path.stat().st_size for path in files)


def _refuse_request(exported: ExportedModel, arm: Arm) -> None:
    """Refuse what a mode can't do, and options that would do nothing.

    Raises:
        SkippedArm: with the reason and the fix.
        ValueError: such an option.
    """
    mode = arm.target.mode
    if mode and parse(arm.target.scheme).is_dynamic:
        raise SkippedArm(FIXED[mode], "use torch-compile")
    if exported.trained and mode:
        raise SkippedArm(NO_STEP[mode], "use torch-compile")
    frozen = arm.options.get(FREEZING) != "0" and not exported.trained
    if arm.options.get(AUTOTUNE) == ON and arm.target.device is Device.CPU and not (mode or frozen):
        raise ValueError(f"option {AUTOTUNE!r}: the kernels that are tuned for a CPU take frozen weights only")
    if exported.trained and FREEZING in arm.options:
        raise ValueError(f"option {FREEZING!r} is for inference, not for a training step")
    if mode == AOTI and arm.target.device is Device.CUDA:
        require_cuda_headers()


def _store_quantized(exported: ExportedModel, arm: Arm, folder: Path) -> None:
    """Write the quantized model; a float one is in the exported model."""
    if arm.target.precision is Precision.INT8:
        quantize.save_program(quantize.quantize_program(exported, arm), folder)
    elif arm.target.precision in SCALED:
        quantize.save_module(quantize.quantize_module(exported, arm), folder)


def _export_program(exported: ExportedModel, arm: Arm) -> torch.export.ExportedProgram:
    """Return the exported model, quantized if the arm asks for it."""
    import torch

    if arm.target.precision is Precision.INT8:
        return quantize.quantize_program(exported, arm)
    quantized = arm.target.precision in SCALED
    module = quantize.quantize_module(exported, arm) if quantized else module_of(exported, arm)
    with torch.no_grad():
        return torch.export.export(module, example_of(exported, arm))


def _build_package(program: torch.export.ExportedProgram, path: str) -> None:
    """Write the package, and load it once: what loading compiles is then cached."""
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad():
        aoti_compile_and_package(program, package_path=path)
    aoti_load_package(path)
