"""A skip says what IREE can't do: operators, quantizers, pools."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pytest
from onnx import TensorProto, helper, save

from shootout.backends._iree import compiler
from shootout.backends._iree.compiler import compile_graph, import_onnx
from shootout.core import backends
from shootout.core.contract import Arm, Precision, Target
from shootout.core.errors import NotRun, NotRunKind, SkippedArm
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import OURS, exported_models
from shootout.testing.fresh import run_fresh

SMALL = Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 2}, batch=2)
ARM = Arm(target=Target(backend="iree"), model="residual_mlp")


def write_model(path: Path, operator: str, domain: str = "", **attributes: Any) -> None:
    """A file with one node."""
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 4, 4]) for name in "xy")
    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    save(
        helper.make_model(helper.make_graph([node], "other", [given], [made]), opset_imports=opsets, ir_version=9), path
    )


def compiled(path: Path, folder: Path) -> NotRun | None:
    """Why a file is refused."""
    try:
        compile_graph(import_onnx(path, folder), folder / "m.vmfb", ARM)
    except SkippedArm as error:
        return error.why
    except Exception as error:
        return backends.explain("iree", error)
    return None


def built(exported: ExportedModel, arm: Arm, folder: Path) -> NotRun | dict[str, Any]:
    """What an arm's build tells, or why there is none."""
    try:
        return dict(backends.get("iree").build(exported, arm, folder).facts)
    except SkippedArm as error:
        return error.why


def look(exported: ExportedModel) -> dict[str, Any]:
    int8 = Target(backend="iree", precision=Precision.INT8)
    with TemporaryDirectory() as place:
        for name, (operator, more) in MODELS.items():
            write_model(Path(place, name), operator, **more)
        found: dict[str, Any] = {name: compiled(Path(place, name), Path(place)) for name in MODELS}
        arms = {
            "int8": Arm(target=int8, model=exported.model, batch=exported.batch),
            "pools": Arm(target=ARM.target, model=exported.model, batch=exported.batch, threads=2, instances=2),
        }
        for name, arm in arms.items():
            Path(place, f"{name}.built").mkdir()
            found[name] = built(exported, arm, Path(place, f"{name}.built"))
    return found


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "LpPool": ("LpPool", {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    "NoSuch": ("NoSuch", {}),
    "BiasGelu": ("BiasGelu", {"domain": "com.microsoft"}),
}


@cache
def everything() -> dict[str, Any]:
    found: dict[str, Any] = run_fresh(look, *exported_models(SMALL), warm=OURS)
    return found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LpPool", "it has no way to write the operator LpPool"),
        ("NoSuch", "NoSuch isn't one of ONNX's own operators"),
        ("BiasGelu", "it has no way to write the operator BiasGelu"),
    ],
)
def test_an_operator_that_it_can_t_take_is_named(name: str, said: str):
    found = everything()[name]
    assert found.kind is NotRunKind.UNFIT
    assert said in found.reason
    assert found.fix


def test_what_other_arms_would_mean_is_told_with_what_can_be_had():
    assert "iree:cpu:int8/shared" in everything()["int8"].fix
    assert "one pool of threads" in everything()["pools"].reason


NO_WAY = """x:1: error: failed to legalize operation 'torch.operator' with name = "onnx.LpPool"\n"""
MISTYPED = {"vulkan-target": "rdna33"}


@pytest.mark.parametrize(
    ("code", "said", "options", "kind", "told"),
    [
        (1, "x:1: error: too many results", {}, SkippedArm, "can't take this model: too many results"),
        (1, NO_WAY, MISTYPED, SkippedArm, "no way to write the operator LpPool"),
        (1, "x:1: error: too many results", {"opt-level": "O3"}, SkippedArm, "can't take this model"),
        (1, "error: unknown target", MISTYPED, ValueError, "vulkan-target=rdna33: unknown target"),
        (-9, "", {}, RuntimeError, "compiler was killed by SIGKILL"),
        (-6, "Assertion failed", MISTYPED, RuntimeError, "killed by SIGABRT; its last words: Assertion failed"),
    ],
)
def test_only_what_the_compiler_says_of_a_model_is_the_model_s_fault(
    code: int, said: str, options: dict[str, str], kind: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compiler, "_find_program", lambda: "iree-compile")
    monkeypatch.setattr(compiler.subprocess, "run", lambda *_, **__: Mock(returncode=code, stderr=said.encode()))
    with pytest.raises(kind, match=re.escape(told)):
        compile_graph(Path("graph"), Path("module"), replace(ARM, options=options))
