"""PyTorch's three ways to run a module: call by call, compiled by Inductor, and as TorchScript.

Eager mode is what most people run: the module in inference mode, quantized by torchao where asked. What `torch.compile`
does here is told in `compile`.

TorchScript is deprecated by PyTorch, and still what many deploy. Its `build` scripts (or traces), freezes and saves.
`load` runs `optimize_for_inference`, because what that makes may hold oneDNN's packed tensors, which can't be saved.
The profiling executor specializes the graph in its first runs; `load` makes those runs, so that what is timed
afterwards no longer changes.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends._torch import compile, quantize, training  # noqa: A004 - that is the module's name
from shootout.backends._torch.account import count_operations
from shootout.backends._torch.compile import AOTI, GRAPHS, OPTIONS
from shootout.backends._torch.inductor import require_toolchain, require_triton
from shootout.backends._torch.session import (
    FLOATS,
    LAYOUT,
    MEMORY_FORMAT,
    NATIVE,
    RESTS,
    TARGETS,
    Facts,
    TorchSession,
    configure,
    example_of,
    held_bytes,
    module_of,
    require_torch,
    session_on,
    shipped_settings,
)
from shootout.backends.common import precision_of, trial
from shootout.backends.cuda_memory import COPIES
from shootout.backends.optional import Fixture, Gemm, Gemms, Inside, RanNode, Shipment
from shootout.core.adapter import Built, check_options
from shootout.core.contract import SCALED, Arm, Array, Arrays, Artifact, Availability, Capabilities, Device, Precision
from shootout.core.errors import SkippedArm

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel

FILE = "model.pt"
PROFILING_RUNS = 3
"""Torch specializes after one profiled run; two more show that it has settled."""


def _has_toolkit() -> bool:
    """Return whether CUDA's headers are where torch looks, found without torch."""
    return bool(os.environ.get("CUDA_HOME") or shutil.which("nvcc")) or Path("/usr/local/cuda").exists()


EAGER_FIXTURE = Fixture(
    elsewhere={Precision.INT8_DYNAMIC: Fixture(batch=32)},  # cuBLAS' integer product takes more than 16 rows
    lacks=quantize.is_missing_here,
    warm={"": ("torch", quantize.IMPORTED)},
)
_SMALL = Fixture(model="digits", parameters={"hidden": 64, "n_layers": 1})
COMPILE_FIXTURE = Fixture(
    # torchao's static INT8 dies on a Linear, ReLU and sum (an assertion of its own); dynamic INT8 compiles many kernels
    elsewhere=dict.fromkeys((Precision.INT8, Precision.INT8_DYNAMIC), _SMALL),
    # Each compiles for long: `make test` has static INT8, eager's, and the program that a package is made of.
    slow=frozenset((AOTI, one) for one in (Precision.FP16, Precision.BF16, *SCALED))
    | {("", one) for one in (Precision.FP16, Precision.BF16, Precision.INT8_DYNAMIC, Precision.INT4)}
    # Another package to compile: FP32's error bound refuses all other precisions, and the plain mode's kernels are
    # probed.
    | {(AOTI, Precision.FP32, "probe_agrees")},
    lacks=lambda one: (
        quantize.is_missing_here(one) or (one.mode == AOTI and one.device is Device.CUDA and not _has_toolkit())
    ),
    warm={"": (quantize.IMPORTED, quantize.IMPORTED)},  # one process for both
)
SCRIPT_FIXTURE = Fixture(warm={"": ("torch", "torch")})


class TorchEagerAdapter:
    """Eager PyTorch on CPU and CUDA."""

    name = "torch-eager"
    fixture = EAGER_FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=TARGETS | quantize.TARGETS,
        native=NATIVE,
        opens=FLOATS,
        schemes=quantize.SCHEMES,
        trains=True,
        options=(LAYOUT, COPIES),
        rest=RESTS,
    )

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer."""
        return trial("torch", lambda: _run_small_layer(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the quantized weights; for float precisions nothing: eager mode has no artifact of its own.

        Raises:
            ValueError: an option that eager mode doesn't have here, or nothing can be quantized.
            SkippedArm: this GPU can't multiply so, or not what this model multiplies.
        """
        check_options(arm, self.capabilities.options)
        if MEMORY_FORMAT in arm.options and exported.trained:
            raise ValueError(f"option {MEMORY_FORMAT!r} is for inference, not for a training step")
        if arm.target.precision in SCALED:
            module = quantize.quantize_module(exported, arm)
            if arm.target.device is Device.CUDA:
                tally = count_operations(module, list(example_of(exported, arm)), Device.CUDA)
                quantize.require_integers(tally.facts()["compute_nodes_by_precision"], arm)
            quantize.save_module(module, folder)
        return Built(
            arm=arm,
            exported=exported,
            folder=folder,
            facts={"notes": quantize.notes_of(arm) + quantize.notes_on_floats(exported, arm)},
        )

    def load(self, built: Built) -> TorchSession | training.TorchTrainingSession:
        """Load the module with its weights, on the arm's device and in its dtype; set the process's threads and
        flags.
        """
        arm, quantized = built.arm, built.arm.target.precision in SCALED
        configure(arm)
        if built.exported.trained:
            return training.eager_session(built)
        module = compile.stored_module(built.folder, built.exported, arm)

        def account(staged: list[torch.Tensor]) -> Facts:
            """Count the ATen operations of one run by the dtype of their operands and torch's own flags."""
            facts = count_operations(module, staged, arm.target.device).facts()
            stored = built.folder / quantize.WEIGHTS
            return {
                **facts,
                "fallbacks": quantize.replaced_integers(facts["compute_nodes_by_precision"], arm),
                "artifact_bytes": stored.stat().st_size if quantized else held_bytes(module),
            }

        return session_on(module, arm, built.exported, account)

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:  # noqa: ARG002
        """Run the module with its parts watched; modules know no values of a graph.

        Raises:
            SkippedArm: it ran on a GPU.
        """
        if built.arm.target.device is not Device.CPU:
            raise SkippedArm("torch is read on the CPU only", "explain an arm on the CPU")
        return _look_inside(built, sets)


def _look_inside(built: Built, sets: Sequence[Arrays]) -> Inside:
    """Run the input sets with every module or operation watched.

    A module shows its result by a hook. A user's file comes as one graph without modules: each of its operations shows
    its result, and none has a name that the file knows.
    """
    import torch

    arm = built.arm
    configure(arm)
    module = compile.stored_module(built.folder, built.exported, arm)
    seen, outputs = list[dict[str, Array]](), list[Arrays]()
    is_graph = isinstance(module, torch.fx.GraphModule)
    run, close = (_watch_graph if is_graph else _watch_modules)(module, seen)
    session = session_on(run, arm, built.exported, lambda _: {})
    for one in sets:
        seen.append({})
        outputs.append(dict(session.fetch(session.execute(session.stage(one, 0)))))
    session.close()
    close()
    names = [name for name in seen[0] if all(name in one for one in seen)]
    return Inside(
        tensors={name: tuple(one[name] for one in seen) for name in names},
        names="lost" if is_graph else "modules",
        outputs=tuple(outputs),
        nodes=() if is_graph else tuple(_list_layers(module, arm)),
    )


def _list_layers(module: torch.nn.Module, arm: Arm) -> Iterator[RanNode]:
    """Yield each module with a weight and what it computes in, without a time."""
    import torch

    for name, part in module.named_modules():
        if (weight := getattr(part, "weight", None)) is not None:
            scaled = type(weight) not in (torch.nn.Parameter, torch.Tensor)
            precision = arm.target.precision.value if scaled else precision_of(str(weight.dtype).removeprefix("torch."))
            yield RanNode(kind=type(part).__name__, ns=None, names=(name, f"{name}.weight"), precision=precision)


def _watch_modules(
    module: torch.nn.Module, seen: list[dict[str, Array]]
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Keep each module's result in the last of `seen`, unless it is called several times; return what undoes that."""
    counts = Counter[tuple[int, str]]()

    def keep(name: str) -> Callable[..., None]:
        def hook(_: Any, __: Any, result: Any) -> None:
            counts[len(seen), name] += 1
            if counts[len(seen), name] > 1:
                seen[-1].pop(name, None)
            elif (array := _as_array(result)) is not None:
                seen[-1][name] = array

        return hook

    handles = [part.register_forward_hook(keep(name)) for name, part in module.named_modules() if name]

    def close() -> None:
        for handle in handles:
            handle.remove()

    return module, close


def _watch_graph(module: Any, seen: list[dict[str, Array]]) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Run a graph operation by operation, and keep each result in the last of `seen`."""
    import torch

    class Watcher(torch.fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if n.op == "call_function" and (array := _as_array(result)) is not None:
                seen[-1][n.name] = array
            return result

    return Watcher(module).run, lambda: None


def _as_array(result: Any) -> Array | None:
    import torch

    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return None
    array: Array = result.detach().float().cpu().numpy().copy()
    return array


class TorchCompileAdapter:
    """Inductor on CPU and CUDA, there also with CUDA graphs; what torchao quantizes on both."""

    name = "torch-compile"
    fixture = COMPILE_FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=TARGETS | quantize.TARGETS | quantize.STATIC_TARGETS,
        native=frozenset({Device.CPU}),
        opens=FLOATS,
        trains=True,
        modes=frozenset({"", AOTI, GRAPHS}),
        cuda_modes=frozenset({GRAPHS}),
        schemes={**quantize.SCHEMES, **quantize.STATIC_SCHEMES},
        options=OPTIONS,
        rest=RESTS,
    )

    def probe(self, device: Device) -> Availability:
        """Ask for torch, the compiler and the headers, on a GPU for Triton too; Inductor itself shows in the build."""
        return trial("torch", lambda: _check_device(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Compile into the kernels' cache or the package, and count what Inductor scheduled.

        Raises:
            ValueError: an unknown option or value; nothing to quantize, or nothing to calibrate with.
            SkippedArm: a compiler or headers are missing; or the mode can't do what is asked.
        """
        check_options(arm, self.capabilities.options)
        facts = compile.build(exported, arm, folder)
        notes = quantize.notes_of(arm) + quantize.notes_on_floats(exported, arm)
        return Built(arm=arm, exported=exported, folder=folder, facts={**facts, "notes": notes})

    def load(self, built: Built) -> TorchSession | training.TorchTrainingSession:
        """Load the package, or the module with its kernels out of the cache, called once (to capture it, three times).

        Raises:
            RuntimeError: CUDA graphs were asked for, and Inductor captured none.
            SkippedArm: CUDA graphs of several sessions were asked for.
        """
        configure(built.arm)
        if built.exported.trained:
            return compile.load_step(built)
        is_package = built.arm.target.mode == AOTI
        return compile.load_package(built) if is_package else compile.load_cache(built)


class TorchScriptAdapter:
    """A frozen TorchScript module on CPU and CUDA."""

    name = "torchscript"
    fixture = SCRIPT_FIXTURE
    capabilities = Capabilities(consumes=(Artifact.MODULE,), targets=TARGETS, native=NATIVE, options=(LAYOUT, COPIES))

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer, scripted and optimized."""
        return trial("torch", lambda: _run_small_script(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the frozen module to a file; the facts say whether it was scripted or traced.

        Raises:
            ValueError: an option that TorchScript doesn't have here.
        """
        check_options(arm, self.capabilities.options)
        import torch

        configure(arm)
        module = module_of(exported, arm)
        scripted, how = _script_or_trace(module, example_of(exported, arm))
        torch.jit.save(torch.jit.freeze(scripted), str(folder / FILE))
        return Built(arm=arm, exported=exported, folder=folder, facts=how)

    def load(self, built: Built) -> TorchSession:
        """Load the saved module, optimize it for inference and run it until its executor has specialized."""
        import torch

        arm, path = built.arm, built.folder / FILE
        configure(arm)
        jit: Any = torch.jit
        saved = jit.load(str(path), map_location=str(arm.target.device))
        module, example = jit.optimize_for_inference(saved), example_of(built.exported, arm)
        with torch.inference_mode():
            for _ in range(PROFILING_RUNS):
                module(*example)

        def account(staged: list[torch.Tensor]) -> Facts:
            """Count what the interpreter dispatches in one run of the specialized graph."""
            facts = count_operations(module, staged, arm.target.device).facts()
            return {**facts, "artifact_bytes": path.stat().st_size}

        return session_on(module, arm, built.exported, account)


def ship_script(built: Built, folder: Path) -> Shipment:
    """Copy the file; `optimize_for_inference` optimizes it for whatever CPU loads it."""
    shutil.copyfile(built.folder / FILE, folder / FILE)
    return Shipment(template="load_script.txt", options={**shipped_settings(built), "first_calls": PROFILING_RUNS})


def _script_or_trace(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> tuple[Any, dict[str, str]]:
    """Script the module, or trace it if the script compiler can't take it, with the compiler's reason."""
    import torch

    jit: Any = torch.jit
    try:
        return jit.script(module), {"captured_by": "script"}
    except Exception as error:  # of any kind, for a user's own module: the compiler's errors have no common root
        with torch.no_grad():
            traced = jit.trace(module, example)
        return traced, {"captured_by": "trace", "script_error": str(error).strip()[:500]}


def gemms(threads: int) -> Gemms:
    """Make PyTorch's products, so MKL's and oneDNN's; without hardware for it a narrow precision is slow, but true."""
    import torch

    torch.set_num_threads(threads)

    def floating(dtype: torch.dtype) -> Callable[[int], Gemm]:
        def make(size: int) -> Gemm:
            left, right = (torch.ones((size, size), dtype=dtype) for _ in range(2))
            result = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=result)

        return make

    def eight_bit(size: int) -> Gemm:
        left, right = (torch.ones((size, size), dtype=torch.int8) for _ in range(2))
        return lambda: torch._int_mm(left, right.t())

    floats = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
    return {**{name: floating(dtype) for name, dtype in floats.items()}, Precision.INT8: eight_bit}


def _run_small_layer(device: Device) -> str:
    version = require_torch(device)
    import torch

    with torch.inference_mode():
        layer = torch.nn.Linear(4, 4).to(device)
        layer(torch.ones(1, 4, device=str(device))).cpu()
    return version


def _check_device(device: Device) -> str:
    version = require_torch(device)
    if device is Device.CUDA:
        require_triton()
    return f"{version}, {require_toolchain()}"


def _run_small_script(device: Device) -> str:
    version = require_torch(device)
    import torch

    layer = torch.jit.freeze(torch.jit.script(torch.nn.Linear(4, 4).eval().to(device)))
    with torch.inference_mode():
        torch.jit.optimize_for_inference(layer)(torch.ones(1, 4, device=str(device))).cpu()
    return version
