"""Faults that are planted in what was built are found by the layer's name, and a sound build shows none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

import numpy as np
import pytest
from support.exports import obtain

from shootout.apps.explain import look
from shootout.apps.explain.measure import LayerPair, LayerSide, choose_floats
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Artifact, Precision, Target
from shootout.core.schemes import write_floats
from shootout.quantize.layer_errors import LayerError
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

LAYER = "layers.2"
Plant = Callable[[Path], None]
Plants = Sequence[Plant]


def sound(folder: Path) -> None:
    """Leave a build as it is."""


def break_onnx_weight(folder: Path) -> None:
    """Multiply the scales of one layer's weights."""
    _scale_onnx(folder, f"{LAYER}.weight_scale", 2.0)


def clip_onnx_activation(folder: Path) -> None:
    """Make the scale of one layer's result so small that nearly all is clipped."""
    _scale_onnx(folder, "relu_2_scale", 0.1)


def _scale_onnx(folder: Path, name: str, factor: float) -> None:
    import onnx
    from onnx import numpy_helper

    from shootout.backends._onnxruntime.quantize import QUANTIZED

    model = onnx.load(folder / QUANTIZED)
    (tensor,) = (one for one in model.graph.initializer if one.name == name)
    scaled = (numpy_helper.to_array(tensor) * factor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(scaled, name))
    onnx.save(model, folder / QUANTIZED)


def lose_onnx_names(folder: Path) -> None:
    """Call all values otherwise but the model's inputs and outputs."""
    import onnx

    from shootout.backends._onnxruntime.quantize import QUANTIZED

    model = onnx.load(folder / QUANTIZED)
    kept = {one.name for one in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [name if name in {*kept, ""} else f"renamed {name}" for name in names]
    del model.graph.value_info[:]
    onnx.save(model, folder / QUANTIZED)


def lose_ir_names(folder: Path) -> None:
    """Call all values otherwise but the model's inputs and outputs."""
    from shootout.backends._openvino.graph import IR

    _change_ir(folder, _rename_ports)
    assert "renamed" in (folder / IR).read_text()


def _rename_ports(model: Any) -> None:
    kept = {name for port in (*model.inputs, *model.outputs) for name in port.get_names()}
    for port in (port for one in model.get_ordered_ops() for port in one.outputs()):
        port.set_names({name if name in kept else f"renamed {name}" for name in port.get_names()})


def break_ir_weight(folder: Path) -> None:
    """Multiply the scales of one layer's weights."""
    _scale_ir(folder, "node_linear_2/WithoutBiases/fq_weights_1", (1,), 2.0)


def clip_ir_activation(folder: Path) -> None:
    """Make the range of one layer's result so small that nearly all is clipped."""
    _scale_ir(folder, "node_relu_2/fq_output_0", (1, 2, 3, 4), 0.1)


def _scale_ir(folder: Path, name: str, places: tuple[int, ...], factor: float) -> None:
    from openvino import opset13 as op

    def scale(model: Any) -> None:
        (node,) = (one for one in model.get_ops() if one.get_friendly_name() == name)
        for place in places:
            scaled = node.input(place).get_source_output().get_node().data * np.float32(factor)
            node.input(place).replace_source_output(op.constant(scaled.astype(np.float32)).output(0))

    _change_ir(folder, scale)


def _change_ir(folder: Path, change: Callable[[Any], None]) -> None:
    from shootout.backends._openvino.graph import IR, import_openvino

    openvino = import_openvino()
    model = openvino.Core().read_model(folder / IR)
    change(model)
    changed = folder / "changed"
    changed.mkdir()
    openvino.save_model(model, changed / IR, compress_to_fp16=False)
    del model
    for path in changed.iterdir():
        path.replace(folder / path.name)


def _find_beyond(backend: str, precision: Precision, plants: Plants, folder: Path, scheme: str = "") -> list[list[str]]:
    """Build once, plant each fault in a copy, and name the layers that err beyond what the precision explains."""
    model, parameters = ("digits", {}) if scheme else ("residual_mlp", {"d_model": 64, "n_layers": 4})
    plain = obtain(model, parameters, 2)
    exported = obtain(model, parameters, 2, variant=scheme) if scheme else plain
    target = Target(backend=backend, precision=precision, scheme=scheme)
    arm = Arm(target=target, model=model, parameters=exported.parameters, batch=2)
    (folder / "built").mkdir()
    built: Built = backends.get(backend).build(exported, arm, folder / "built")
    outline = look.describe_graph(plain.path(Artifact.ONNX))
    values = [value for some in outline["values"] for value in some]

    def find(plant: Plant) -> list[str]:
        copy = replace(built, folder=Path(shutil.copytree(built.folder, folder / plant.__name__)))
        plant(copy.folder)
        _, errors, _ = look.look_inside(copy, plain, (), values, frozenset(os.sched_getaffinity(0)))
        assert len(errors) == len(outline["layers"])
        found = [LayerError(**one) for one in errors]
        sides = {
            one.number: LayerSide(value=one.value, error=one.error, own=one.own, explained=one.explained)
            for one in found
        }
        return [outline["layers"][number]["name"] for number, side in sides.items() if side.is_beyond]

    return [find(plant) for plant in plants]


def find_beyond(backend: str, precision: Precision, *more: Any) -> list[list[str]]:
    """Do so in a process of its own, which may hold the backend's library already."""
    warm = warm_of(Target(backend=backend, precision=precision))
    found: list[list[str]] = run_fresh(_find_beyond, backend, precision, *more, warm=warm)
    return found


@pytest.mark.parametrize(
    ("backend", "plants"),
    [
        ("onnxruntime", (sound, lose_onnx_names, break_onnx_weight, clip_onnx_activation)),
        ("openvino", (sound, lose_ir_names, break_ir_weight, clip_ir_activation)),
    ],
    ids=["onnxruntime", "openvino"],
)
def test_a_broken_layer_is_found_by_name_and_a_sound_build_shows_no_fault(
    backend: str, plants: Plants, tmp_path: Path
) -> None:
    """In a graph that lost its names, layers are found by value."""
    assert find_beyond(backend, Precision.INT8, plants, tmp_path) == [[], [], [LAYER], [LAYER]]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "torch-eager", "litert"])
def test_a_sound_float_build_shows_no_fault(backend: str, tmp_path: Path) -> None:
    """ONNX Runtime's and OpenVINO's layers are read by names, torch's by modules, LiteRT's by values."""
    assert find_beyond(backend, Precision.FP32, [sound], tmp_path) == [[]]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_sound_q_dq_file_shows_no_fault(backend: str, tmp_path: Path) -> None:
    """Its scales are nodes of their own: a tensor before them holds integers."""
    assert find_beyond(backend, Precision.INT8, [sound], tmp_path, "shared") == [[]]


def _find_profiles(folder: Path) -> list[bool]:
    """Look inside a build; tell of each profile that ONNX Runtime wrote whether it lay in the build."""
    from shootout.backends._onnxruntime import account

    exported, written, opens = (
        obtain("residual_mlp", {"d_model": 64, "n_layers": 4}, 2),
        list[Path](),
        account.open_session,
    )

    def watch(path: Path, arm: Arm, profile: Path | None = None) -> Any:
        written.extend([profile] if profile else [])
        return opens(path, arm, profile)

    arm = Arm(target=Target(backend="onnxruntime"), model="residual_mlp", parameters=exported.parameters, batch=2)
    built: Built = backends.get("onnxruntime").build(exported, arm, folder)
    with mock.patch.object(account, "open_session", watch):
        look.look_inside(built, exported, (), (), frozenset(os.sched_getaffinity(0)))
    return [folder in one.parents for one in written]


def test_a_profile_is_not_written_into_the_build(tmp_path: Path) -> None:
    """Several processes may read one build at a time."""
    folder = tmp_path / "build"
    folder.mkdir()
    assert run_fresh(_find_profiles, folder, warm=warm_of(Target(backend="onnxruntime"))) == [False]


def _write_attention(path: Path) -> None:
    """Write a net whose 1,500 weights of a softmax are about equal: each is a sixth of INT8's step of 1/255."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rows, width = 1500, 8
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 1e-3, (width, width)), "u": rng.normal(0, 1, (width, width)), "one": np.ones(1)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "t"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("Add", ["x", "one"], ["v"]),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "u"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, width]) for name in "xy"]
    stored = [numpy_helper.from_array(one.astype(np.float32), name) for name, one in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _leave_in_float(folder: Path) -> tuple[list[int], tuple[int, ...], list[float]]:
    """Return the layers that are marked, those to leave in float, and the outputs' errors without and with that."""
    path = folder / "attention.onnx"
    _write_attention(path)
    exported = obtain(str(path), {}, 1)
    outline = look.describe_graph(exported.path(Artifact.ONNX))
    values = [value for some in outline["values"] for value in some]

    def read(scheme: str) -> tuple[list[LayerPair], float]:
        target = Target(backend="onnxruntime", precision=Precision.INT8, scheme=scheme)
        arm = Arm(target=target, model=str(path), parameters=exported.parameters, batch=1)
        built = backends.get("onnxruntime").build(exported, arm, Path(mkdtemp(dir=folder)))
        _, errors, told = look.look_inside(built, exported, (), values, frozenset(os.sched_getaffinity(0)))
        sides = {
            one["number"]: LayerSide(value=one["value"], own=one["own"], explained=one["explained"]) for one in errors
        }
        pairs = [
            LayerPair(
                **{name: layer[name] for name in ("number", "name", "block", "operator", "output")},
                sides=(LayerSide(), sides[layer["number"]]),
                before=outline["before"][layer["number"]],
            )
            for layer in outline["layers"]
        ]
        error = told["read_error"]
        assert error is not None
        return pairs, error

    pairs, plain = read("")
    floats = choose_floats(pairs, keeps_tails=True)
    assert choose_floats(pairs, keeps_tails=False) == (2,), "others leave what lies between as it was"
    return [one.number for one in pairs if one.sides[1].is_beyond], floats, [plain, read(write_floats(floats))[1]]


@pytest.mark.long
def test_what_is_named_to_leave_in_float_takes_what_lies_between_with_it(tmp_path: Path) -> None:
    warm = warm_of(Target(backend="onnxruntime", precision=Precision.INT8))
    marked, floats, errors = run_fresh(_leave_in_float, tmp_path, warm=warm)
    assert (marked, floats) == ([2], (1, 2))
    assert errors[0] > 0.5
    assert errors[1] < 0.05
