"""torch.compile, AOTInductor and TorchScript: what the suite's plain targets don't show (modes, caches, refusals)."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shootout.backends._torch.backend import FILE
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Availability, Device, Precision, Target
from shootout.testing.checks import ConformanceCase, build_in, case_of, warm_of
from shootout.testing.fresh import run_fresh

PLAIN = Target(backend="torch-compile")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What torch.compile makes of the fixture's model."""
    made: Built = run_fresh(build_in, case_of(PLAIN), tmp_path_factory.mktemp("built"), warm=warm_of(PLAIN))
    return made


@dataclass(frozen=True)
class Loaded:
    """What a process that only loads sees: what fell back, operations, Inductor's caches, and what it does in later
    calls.
    """

    fallbacks: tuple[str, ...]
    caches: dict[str, int]
    compiled_later: dict[str, int]


def loaded_from(built: Built) -> Loaded:
    """Loads twice, and calls both sessions when both are there."""
    from torch._dynamo.utils import counters

    adapter, inputs = backends.get(built.arm.target.backend), built.exported.input_buffers()[0]
    first = adapter.load(built)
    executed, counted = first.executed, {**counters["inductor"], **counters["aot_autograd"]}
    second = adapter.load(built)
    counters.clear()
    caches = {name: count for name, count in counted.items() if name.endswith(("_hit", "_miss"))}
    for session in (first, second):
        session.fetch(session.execute(session.stage(inputs, 0)))
    return Loaded(executed.fallbacks, caches, dict(counters["stats"]))


@pytest.fixture(scope="module")
def loaded(built: Built) -> Loaded:
    found: Loaded = run_fresh(loaded_from, built, warm=warm_of(PLAIN))
    return found


def fallbacks_of(built: Built) -> tuple[str, ...]:
    return backends.get(built.arm.target.backend).load(built).executed.fallbacks


def test_load_takes_the_kernels_from_the_cache_and_says_when_it_cannot(built: Built, loaded: Loaded, tmp_path: Path):
    assert loaded.fallbacks == ()
    assert loaded.caches == {"fxgraph_cache_hit": 1, "autograd_cache_hit": 1}
    (tmp_path / "inductor").mkdir()
    told = run_fresh(fallbacks_of, replace(built, folder=tmp_path), warm=warm_of(PLAIN))
    assert len(told) == 1
    assert "while loading" in told[0]


def test_a_second_session_in_a_process_takes_nothing_from_the_first(loaded: Loaded):
    assert loaded.compiled_later == {}


def recorded(dtype_name: str, folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What Inductor makes of two products on one narrow row: loops, not library calls."""
    import torch

    from shootout.backends._torch.account import kernel_recorder
    from shootout.backends._torch.inductor import inductor_with

    dtype = getattr(torch, dtype_name)
    layers = OrderedDict(wide=torch.nn.Linear(16, 16), act=torch.nn.ReLU(), dot=torch.nn.Linear(16, 1))
    net = torch.nn.Sequential(layers).eval().requires_grad_(False).to(dtype)
    recorder, tally, kernels = kernel_recorder(Device.CPU)
    with inductor_with(folder, {"_post_fusion_custom_pass": recorder, "force_disable_caches": True}), torch.no_grad():
        torch.compile(net, fullgraph=True, dynamic=False)(torch.ones(1, 16, dtype=dtype))
    return tally.facts(), dict(kernels)


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "precision"), [("float32", "fp32"), ("bfloat16", "bf16")])
def test_products_that_became_loops_are_counted_too(dtype: str, precision: str, tmp_path: Path):
    told, kernels = run_fresh(recorded, dtype, tmp_path, warm=warm_of(PLAIN))
    assert told["compute_nodes_by_precision"] == {precision: 2}
    assert "library" not in kernels


def refusal(name: str) -> str:
    """The compiler's words for a model whose control flow depends on its data, or that breaks the graph."""
    import torch

    def depends(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    from shootout.backends._torch.compile import compile_module

    case = case_of(PLAIN)
    module: Any = {"depends": depends, "breaks": breaks}[name]
    try:
        compile_module(module, case.exported, case.arm)
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "words"), [("depends", "Data-dependent"), ("breaks", "graph_break")])
def test_a_model_that_is_not_one_graph_fails_with_the_compiler_s_words(name: str, words: str):
    assert words in run_fresh(refusal, name, warm=warm_of(PLAIN))


def with_compiler(command: str) -> Availability:
    os.environ["CXX"] = command
    return backends.get("torch-compile").probe(Device.CPU)


def test_a_missing_compiler_is_named():
    found = run_fresh(with_compiler, "no-such-compiler", warm=warm_of(PLAIN))
    assert not found.ok
    assert "no-such-compiler" in found.reason
    assert "g++" in found.fix


def captured_by(case: ConformanceCase, folder: Path, scriptable: bool) -> tuple[Any, dict[str, int]]:
    import torch

    if not scriptable:

        def refuse(*_: Any) -> None:
            raise RuntimeError("can't script this")

        torch.jit.script = refuse
    adapter = backends.get("torchscript")
    built = adapter.build(case.exported, case.arm, folder)
    assert FILE in {path.name for path in folder.iterdir()}
    return built.facts["captured_by"], dict(adapter.load(built).executed.compute_nodes_by_precision)


@pytest.mark.parametrize(("scriptable", "how"), [(True, "script"), (False, "trace")])
def test_torchscript_says_how_it_captured_the_module(scriptable: bool, how: str, tmp_path: Path):
    case = case_of(Target(backend="torchscript", precision=Precision.BF16))
    told = run_fresh(captured_by, case, tmp_path, scriptable, warm=warm_of(case.arm.target))
    assert told == (how, {"bf16": 4})
