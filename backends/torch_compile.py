"""torch.compile with Inductor, whole graph and fixed shapes; `+aoti` for AOTInductor's package.

`build` compiles into a cache that is kept; `load` copies that cache aside, lets Dynamo trace the module again (its
guards belong to the process and to what a call costs) and takes the kernels from the cache. What had to be compiled
while loading is a line in `fallbacks`, never a silent 20 s. AOTInductor has no guards, and a C++ wrapper instead of
a Python one: its package is loaded as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends.common import check_options, trial
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
from shootout.contract import Arm, Artifact, Availability, Built, Capabilities, Device

if TYPE_CHECKING:
    import torch

    from shootout.bundle import ModelBundle

OPTIONS = {"": ("max_autotune", "cpp_wrapper"), "aoti": ("max_autotune",)}
"""Inductor's switches, "0" or "1", by mode: AOTInductor's wrapper is always C++. Not `freezing`: Inductor doesn't take
frozen graphs out of its cache, so each load would compile again.
"""
SETTINGS: dict[str, Any] = {"cpp_cache_precompile_headers": False, "compile_threads": 1}
"""Precompiled headers lie outside the cache that we keep: each load would compile them again, 6 s. More than one thread
would mean helper processes that live on beside the timed calls.
"""
CACHE, PACKAGE = "inductor", "model.pt2"
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


class TorchCompileAdapter:
    """Inductor on CPU and CUDA."""

    name = "torch-compile"
    capabilities = Capabilities(consumes=(Artifact.MODULE,), targets=TARGETS, modes=frozenset(OPTIONS))

    def probe(self, device: Device) -> Availability:
        """Ask for torch, the compiler and the headers; Inductor itself shows in the build."""
        return trial("torch", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The compiled kernels (or the package), and what Inductor scheduled.

        Raises:
            ValueError: an unknown option, or one that is neither "0" nor "1".
            SkippedArm: no C++ compiler, or no Python headers.
        """
        config = _config(arm)
        require_toolchain()
        configure(arm)
        recorder, products, kernels = kernel_recorder(arm.target.device)
        compile_ = _build_package if arm.target.mode == "aoti" else _build_cache
        with _inductor(folder / CACHE, {**config, "_post_fusion_custom_pass": recorder}):
            compile_(bundle, arm, folder)
        facts = {"compute_nodes_by_precision": dict(products), "kernels": dict(kernels)}
        return Built(arm=arm, bundle=bundle, folder=folder, facts=facts)

    def load(self, built: Built) -> TorchSession:
        """The package, or the module with its kernels out of the cache, called once."""
        configure(built.arm)
        return _load_package(built) if built.arm.target.mode == "aoti" else _load_cache(built)


def _config(arm: Arm) -> dict[str, Any]:
    known = OPTIONS[arm.target.mode]
    check_options(arm.options, known)
    for name, value in arm.options.items():
        if value not in ("0", "1"):
            raise ValueError(f"option {name!r}: expected 0 or 1, got {value!r}")
    return {name: value == "1" for name, value in arm.options.items()}


@contextmanager
def _inductor(cache: Path, config: dict[str, Any]) -> Iterator[None]:
    """Inductor with this configuration, its cache in `cache`, and nothing left from an earlier compilation."""
    import torch._dynamo.utils
    import torch._inductor.config as inductor

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    before = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(cache)
    try:
        with inductor.patch({**SETTINGS, **config}):
            yield
    finally:
        os.environ.pop(CACHE_VARIABLE)
        if before is not None:
            os.environ[CACHE_VARIABLE] = before


def _compiled(bundle: ModelBundle, arm: Arm) -> tuple[Any, Any]:
    """The module, and its compiled form after the first call: compilation happens there.

    The example is made outside inference mode, as staged tensors are: Dynamo's guards tell the two apart.
    """
    import torch

    module, example = module_of(bundle, arm), example_of(bundle, arm)
    run: Any = torch.compile(module, fullgraph=True, dynamic=False)
    with torch.inference_mode():
        run(*example)
    return module, run


def _build_cache(bundle: ModelBundle, arm: Arm, folder: Path) -> None:  # noqa: ARG001 - the same call as the package's
    _compiled(bundle, arm)


def _build_package(bundle: ModelBundle, arm: Arm, folder: Path) -> None:
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with torch.no_grad():
        program = torch.export.export(module_of(bundle, arm), example_of(bundle, arm))
        aoti_compile_and_package(program, package_path=str(folder / PACKAGE))
    aoti_load_package(
        str(folder / PACKAGE)
    )  # leaves in the cache what loading compiles: tests of the vector units, 30 s


def _load_cache(built: Built) -> TorchSession:
    arm, cache = built.arm, _cache_aside(built)
    recorder, _, compiled_here = kernel_recorder(arm.target.device)
    with _inductor(cache, {**_config(arm), "_post_fusion_custom_pass": recorder}):
        module, run = _compiled(built.bundle, arm)

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        artifact = weight_bytes(module.state_dict().values()) + _bytes(built.folder)
        return _account(built, artifact, (*_recompiled(compiled_here), *_breaks()))

    session = TorchSession(run, arm, built.bundle, account)
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
    with _inductor(cache, {}):
        run: Any = aoti_load_package(str(built.folder / PACKAGE))
    shutil.rmtree(cache)
    artifact = (built.folder / PACKAGE).stat().st_size

    def account(staged: list[torch.Tensor]) -> Account:  # noqa: ARG001 - the compiler has already told
        return _account(built, artifact, ())

    return TorchSession(run, built.arm, built.bundle, account)


def _account(built: Built, artifact_bytes: int, fallbacks: tuple[str, ...]) -> Account:
    counts = built.facts["compute_nodes_by_precision"]
    return Account(compute_nodes_by_precision=counts, artifact_bytes=artifact_bytes, fallbacks=fallbacks)


def _recompiled(kernels: Counter[str]) -> tuple[str, ...]:
    count = sum(kernels.values())
    return (f"Inductor compiled {count} kernels while loading: its cache didn't hold them",) if count else ()


def _breaks() -> tuple[str, ...]:
    """Graph breaks, and graphs beyond the first (recompilations), since this process last compiled anew."""
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    again = (f"Dynamo compiled {graphs} graphs for one model",) if graphs > 1 else ()
    return (*(f"graph break: {reason}" for reason in counters["graph_break"]), *again)


def _bytes(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sum(path.stat().st_size for path in files)


def _try(device: Device) -> str:
    return f"{require_torch(device)}, {require_toolchain()}"
