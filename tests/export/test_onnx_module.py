"""A user's ONNX file as a torch module, for those who run nothing else; or why it can't be one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from support.onnx_made import WEIGHT, linear, value, write

from shootout.backends.common_torch import core_module, float32_module
from shootout.core.contract import Arm, Artifact, Target
from shootout.core.errors import ModelError, ShootoutError
from shootout.core.exported.client import obtain_all
from shootout.core.exported.fidelity import compare, gate
from shootout.core.exported.model import ExportedModel, open_exported, sha256
from shootout.core.exported.request import Content, Request
from shootout.core.study import feasibility
from shootout.models.onnx.effort import Effort
from shootout.models.sources import onnx_module, user_onnx
from shootout.quantize.retyping import retyped

EAGER = Arm(target=Target(backend="torch-eager"), model="m.onnx")


def taken(path: Path, folder: Path, batch: int = 1, *, module: bool = True) -> ExportedModel:
    (folder / "out").mkdir()
    asked = Request(model=path.name, batch=batch, module=module, content=Content(file=str(path)), folder=folder / "out")
    user_onnx.take(asked, Effort()).seal()
    return open_exported(folder / "out")


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def branches(of: str, kinds: tuple[str, str]) -> dict[str, onnx.GraphProto]:
    made = [helper.make_graph([node(kind, of, kind)], kind, [], [value(kind, (2, 3))]) for kind in kinds]
    return dict(zip(("then_branch", "else_branch"), made, strict=True))


def odd(path: Path) -> Path:
    """A weight in a constant node, shape arithmetic, bounds as tensors, a cast, a branch that the shapes choose."""
    nodes = [
        node("Constant", "", "k", value=numpy_helper.from_array(WEIGHT)),
        node("MatMul", "x k", "h"),
        node("Shape", "h", "s"),
        node("Slice", "s zero one", "rows"),
        node("Concat", "rows minus", "to", axis=0),
        node("Reshape", "h to", "r"),
        node("Clip", "r low high", "c"),
        node("Cast", "c", "f", to=TensorProto.FLOAT),
        node("Greater", "rows zero", "many"),
        node("Squeeze", "many", "yes"),
        node("If", "yes", "y", **branches("f", ("Tanh", "Neg"))),
    ]
    ints = {name: np.array([number], np.int64) for name, number in (("zero", 0), ("one", 1), ("minus", -1))}
    bounds = {"low": np.asarray(-2, np.float32), "high": np.asarray(2, np.float32)}
    return write(path, nodes, [value("x", ("batch", 4))], [value("y", ("batch", 3))], {**ints, **bounds})


def outputs(
    module: torch.nn.Module, exported: ExportedModel, dtype: torch.dtype = torch.float32
) -> list[dict[str, Any]]:
    with torch.no_grad():
        found = [module(torch.from_numpy(one["x"]).to(dtype)) for one in exported.input_buffers()]
    return [{"y": one.float().numpy()} for one in found]


def test_a_file_becomes_a_program_with_the_references_outputs_in_every_dtype(tmp_path: Path):
    exported = taken(odd(tmp_path / "m.onnx"), tmp_path, batch=2)
    assert exported.unmade == ""
    assert exported.artifacts == (Artifact.ONNX, Artifact.MODULE, Artifact.PT2)
    assert feasibility.check_export(EAGER, exported) is None
    module = float32_module(exported)
    assert not module.training
    weights = {name: weight.numpy() for name, weight in module.state_dict().items()}
    assert weights.keys() == exported.weights().keys()
    (weight,) = weights.values()  # sizes and bounds are numbers, or an empty one couldn't be stored
    assert np.array_equal(weight, WEIGHT)
    reference_outputs = exported.reference_outputs()
    for made in (module, core_module(exported)):
        assert gate(compare(outputs(made, exported), reference_outputs), exported.error_bounds["fp32"]) is None
    half = compare(
        outputs(retyped(module, torch.bfloat16, torch.device("cpu")), exported, torch.bfloat16), reference_outputs
    )
    assert gate(half, exported.error_bounds["bf16"], least=exported.error_bounds["fp32"] or 0) is None


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (node("MaxRoiPool", "x4 x", "y", pooled_shape=(1, 1)), "Unsupported ONNX operator: MaxRoiPool"),
        (node("If", "c", "y", **branches("x", ("Tanh", "Neg"))), "its If 'node_2' goes by the values of inputs"),
    ],
)
def test_what_cannot_be_converted_is_a_skip_in_the_converters_words(last: onnx.NodeProto, why: str, tmp_path: Path):
    nodes = [node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m zero", "c"), node("Reshape", "x four", "x4")]
    zeros = {"zero": np.asarray(0, np.float32), "four": np.array([1, 1, 2, 3], np.int64)}
    write(tmp_path / "m.onnx", [*nodes, last], [value("x", (2, 3))], [value("y", None)], zeros)
    with pytest.raises(ModelError, match=f"^onnx2fx can't take this file: .*{why}"):
        onnx_module.module_of(tmp_path / "m.onnx", (torch.ones(2, 3),))


def test_another_model_is_not_taken_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wrong = torch.nn.Linear(4, 3).eval()
    monkeypatch.setattr(onnx_module, "module_of", lambda path, example: wrong)
    exported = taken(linear(tmp_path / "m.onnx"), tmp_path)
    assert exported.artifacts == (Artifact.ONNX,)
    skip = feasibility.check_export(EAGER, exported)
    assert skip is not None
    made = "what onnx2fx makes of this file isn't the same model, as far as can be told: relative L2 error"
    assert skip.reason.startswith(made)
    assert skip.fix == "bring the torch module, as in `shootout run net.py:make`"
    beside = replace(exported, artifacts=())  # as the export of a module beside that of the file
    assert feasibility.check_export(EAGER, beside) == skip
    others = ("torch-compile", "torchscript", "jax-jit", "litert", "executorch")
    arms = [replace(EAGER, target=Target(backend=name)) for name in others]
    assert {feasibility.check_export(arm, exported) for arm in arms} == {skip}, "one line and one fix for all"


def test_a_file_and_its_module_are_two_exports_on_the_same_inputs(tmp_path: Path):
    request = Request(model=str(linear(tmp_path / "m.onnx")))
    of_file, module = obtain_all([request, replace(request, module=True)])
    assert not isinstance(of_file, ShootoutError)
    assert not isinstance(module, ShootoutError)
    assert (of_file.artifacts, module.artifacts) == ((Artifact.ONNX,), (Artifact.MODULE, Artifact.PT2))
    for one in ("inputs.npz", "reference.npz", "unseen.npz"):
        assert sha256(of_file.folder / one) == sha256(module.folder / one)
    assert not (module.folder / "model.onnx").exists(), "the weights would lie there twice"
    assert (module.work, module.error_bounds) == (of_file.work, of_file.error_bounds)
    assert gate(compare(outputs(float32_module(module), module), of_file.reference_outputs()), 1e-5) is None
