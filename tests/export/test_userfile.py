from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.exports import obtain
from support.onnx_made import F32, I64, WEIGHT, Shape, linear, value, write

from shootout.core.contract import Artifact, Precision, TensorSpec
from shootout.core.errors import ModelError, UsageError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Content
from shootout.models.onnx.effort import Effort
from shootout.models.sources import user_onnx
from shootout.models.sources.user_onnx import FileExport


def prepare(path: Path, folder: Path, effort: Effort | None = None, **asked: Any) -> FileExport:
    (folder / "out").mkdir(exist_ok=True)
    request = Request(model=str(path), content=Content(file=str(path)), folder=folder / "out", **asked)
    export = FileExport(request, effort or Effort())
    export.prepare()
    return export


def take(path: Path, folder: Path, **asked: Any) -> ExportedModel:
    return prepare(path, folder, **asked).found


def test_a_users_file_becomes_a_exported_and_is_cached(tmp_path: Path):
    path = linear(tmp_path / "mine.onnx")
    exported = obtain(str(path), {}, 2)
    assert (exported.model, exported.batch, exported.parameters) == ("mine.onnx", 2, {"batch": 2})
    assert exported.artifacts == (Artifact.ONNX,)
    assert exported.parameter_count == 12
    assert exported.inputs == (TensorSpec(name="x", shape=(2, 4), dtype="float32"),)
    assert exported.outputs == (TensorSpec(name="y", shape=(2, 3), dtype="float32"),)
    buffers, reference_outputs = exported.input_buffers(), exported.reference_outputs()
    assert len({one["x"].tobytes() for one in buffers}) == 8
    assert reference_outputs[0]["y"].dtype == np.float64
    for one, right in [*zip(buffers, reference_outputs, strict=True), *exported.unseen()]:
        np.testing.assert_allclose(one["x"] @ WEIGHT, right["y"], rtol=1e-5, atol=1e-6)
    assert [right["y"].dtype for _, right in exported.unseen()] == [np.float64] * 2
    assert exported.error_bounds["fp32"] == 1e-5
    assert set(exported.error_bounds) >= {precision.value for precision in Precision}
    assert all(exported.inputs[0].matches(one["x"]) for one in exported.calibration())
    assert exported.report() is None
    with pytest.raises(ModelError, match=r"mine\.onnx has no module artifact; it has onnx"):
        exported.weights()
    stored = onnx.load(exported.path(Artifact.ONNX)).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in stored] == [2, 4]
    made = exported.path(Artifact.ONNX).stat()
    again = obtain(str(path), {}, 2).path(Artifact.ONNX).stat()
    assert (again.st_ino, again.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


def test_the_gate_of_a_file_is_the_widest_error_bound_of_what_it_holds():
    error_bounds: dict[str, float | None] = {
        "fp32": 1e-5,
        "fp16": 1e-3,
        "bf16": None,
        "int8": 0.02,
        "int8-dynamic": 0.03,
    }
    wanted = {(): 1e-5, ("fp16",): 1e-3, ("fp16", "int8"): 0.03, ("bf16",): None, ("int4",): None}
    assert {holds: user_onnx.native_error_bound(holds, error_bounds) for holds in wanted} == wanted
    products_of_integers = {"fp32": 1e-5, "bf16": 0.01}
    assert user_onnx.native_error_bound((Precision.INT8,), products_of_integers) == 0.01, (
        "so that drawn inputs can judge it"
    )
    assert user_onnx.native_error_bound((Precision.INT8,), error_bounds, ["int8-dynamic"]) is None, (
        "the tighter one alone"
    )
    assert user_onnx.native_error_bound((Precision.FP16,), error_bounds, ["int8-dynamic"]) == 1e-3


def external(path: Path, location: str = "w.bin", **entries: Any) -> Path:
    """`linear` with its weight in a file beside it."""
    linear(path)
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, "offset": "0", "length": str(WEIGHT.nbytes), **entries}.items():
        tensor.external_data.add(key=key, value=str(text))
    onnx.save(model, path)
    return path


def test_external_weights_are_read_copied_and_part_of_the_key(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    path, weights = external(tmp_path / "mine.onnx", "sub/w.bin"), tmp_path / "sub" / "w.bin"
    weights.write_bytes(WEIGHT.tobytes())
    exported = obtain(str(path), {}, 1)
    np.testing.assert_allclose(
        exported.input_buffers()[0]["x"] @ WEIGHT, exported.reference_outputs()[0]["y"], rtol=1e-5, atol=1e-6
    )
    weights.write_bytes((2 * WEIGHT).tobytes())
    other = obtain(str(path), {}, 1)
    assert other.key != exported.key
    assert other.weights_sha256 != exported.weights_sha256
    weights.unlink()
    assert onnx.load(exported.path(Artifact.ONNX)).graph.initializer[0].raw_data == WEIGHT.tobytes()


@pytest.mark.parametrize("location", ["/etc/passwd", "../w.bin", "sub/../../w.bin", ".."])
def test_external_data_outside_the_folder_is_refused_before_it_is_opened(tmp_path: Path, location: str):
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (error,) = obtain_all([Request(model=str(external(folder / "m.onnx", location)))])
    assert isinstance(error, ModelError)
    assert (
        str(error)
        == f"m.onnx reads its weights from {location!r}, outside its own folder, which is refused: copy them beside it"
    )


def test_external_data_that_is_missing_or_short_is_named(tmp_path: Path):
    path = external(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m\.onnx needs 'w\.bin' beside it, which is missing"):
        obtain(str(path), {}, 1)
    (tmp_path / "w.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match=r"w\.bin is shorter than m\.onnx says"):
        obtain(str(path), {}, 1)


def test_a_model_that_the_runtime_cannot_load_says_why(tmp_path: Path):
    nodes = [helper.make_node("NoSuchOperator", ["x"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [value("x", (1, 4))], [value("y", (1, 4))])
    with pytest.raises(ModelError, match=r"ONNX Runtime can't load m\.onnx: .*NoSuchOperator"):
        obtain(str(path), {}, 1)


@pytest.mark.parametrize(
    ("shape", "batch", "sets", "expected"),
    [
        ((2, 4), 1, {}, ((2, 4), {}, 1)),
        (("batch", 4), 3, {}, ((3, 4), {"batch": 3}, 3)),
        (("batch_size", 4), 3, {}, ((3, 4), {"batch_size": 3}, 3)),
        (("N", 4), 3, {}, ((3, 4), {"N": 3}, 3)),
        (("batch", 4), 1, {"batch": 5}, ((5, 4), {"batch": 5}, 5)),
        (("batch", 4), 5, {"batch": 5}, ((5, 4), {"batch": 5}, 5)),
        (("rows", 4), 1, {"rows": 5}, ((5, 4), {"rows": 5}, 5)),
        ((None, 4), 1, {"x.0": 5}, ((5, 4), {"x.0": 5}, 5)),
        (("rows", 4), 3, {}, ((3, 4), {"rows": 3}, 3)),
        (("?", 4), 3, {}, ((3, 4), {"x.0": 3}, 3)),
        ((2, "batch", 4), 3, {}, ((2, 3, 4), {"batch": 3}, 3)),
        (("batch", "N", 4), 2, {"N": 8}, ((2, 8, 4), {"batch": 2, "N": 8}, 2)),
    ],
)
def test_symbolic_axes_get_their_sizes(tmp_path: Path, shape: Shape, batch: int, sets: Any, expected: Any):
    taken = take(linear(tmp_path / "m.onnx", shape, None), tmp_path, batch=batch, parameters=sets)
    assert (taken.inputs[0].shape, taken.parameters, taken.batch) == expected
    assert taken.outputs[0].shape == (*expected[0][:-1], 3)


@pytest.mark.parametrize(
    ("shape", "batch", "sets", "says"),
    [
        (("batch", "seq", 4), 1, {}, "m.onnx has axes without a size: seq. Its inputs:\n  x float32[batch, seq, 4]\n"),
        ((2, None, 4), 1, {}, "\n  --set x.1=128"),
        (("n", 3, "h", "w"), 2, {}, "\n  --set h=224 --set w=224"),
        (("rows", 4), 1, {"row": 3}, "unknown symbolic axis 'row': did you mean 'rows'"),
        ((2, 4), 1, {"batch": 3}, "unknown symbolic axis 'batch': known: none"),
        ((2, 4), 1, {"x": 3}, "x is an input: give its whole shape, as in --shape x="),
        (("batch", 4), 2, {"batch": 3}, "batch 2 and batch=3 are the same axis"),
        ((2, 4), 8, {}, "batch 8: no input's first axis is free: x float32[2, 4]; leave the batch out"),
    ],
)
def test_an_axis_without_one_clear_size_is_an_error(tmp_path: Path, shape: Shape, batch: int, sets: Any, says: str):
    with pytest.raises(UsageError) as error:
        take(linear(tmp_path / "m.onnx", shape, None), tmp_path, batch=batch, parameters=sets)
    assert says in str(error.value)


def test_weights_listed_as_inputs_are_not_inputs(tmp_path: Path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    both = [value("x", (1, 4)), value("w", (4, 3))]
    path = write(tmp_path / "m.onnx", nodes, both, [value("y", (1, 3))], {"w": WEIGHT})
    found = take(path, tmp_path)
    assert [spec.name for spec in found.inputs] == ["x"]


def unary(path: Path, op: str, dtype: int, out: int, shape: Shape = (3, 50), **attributes: Any) -> Path:
    nodes = [helper.make_node(op, ["x"], ["y"], **attributes)]
    return write(path, nodes, [value("x", shape, dtype)], [value("y", None, out)])


def test_what_is_not_a_numeric_tensor_is_refused(tmp_path: Path):
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["y"])]
    sequence = helper.make_tensor_sequence_value_info("y", F32, None)
    with pytest.raises(ModelError, match="output 'y' is a sequence; only tensors can be measured"):
        take(write(tmp_path / "s.onnx", nodes, [value("x", (1,))], [sequence]), tmp_path)
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0])
    with pytest.raises(ModelError, match=r"output 'y' is a list of maps \(ZipMap\).*\{\"zipmap\": False\}"):
        take(write(tmp_path / "z.onnx", [zipped], [value("x", (1, 1))], [sequence]), tmp_path)
    with pytest.raises(ModelError, match="output 'y' has type STRING; supported: bool, double, float,"):
        take(unary(tmp_path / "t.onnx", "Cast", F32, TensorProto.STRING, to=TensorProto.STRING), tmp_path)
    with pytest.raises(ModelError, match="input 'x' has type STRING"):
        take(unary(tmp_path / "u.onnx", "Identity", TensorProto.STRING, F32), tmp_path)
    with pytest.raises(ModelError, match="input 'x' has no shape in the file"):
        take(unary(tmp_path / "v.onnx", "Relu", F32, F32, None), tmp_path)


def test_a_model_without_inputs_is_refused(tmp_path: Path):
    nodes = [helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(WEIGHT))]
    with pytest.raises(ModelError, match="the model has no inputs"):
        take(write(tmp_path / "m.onnx", nodes, [], [value("y", (4, 3))]), tmp_path)


def test_missing_values_are_inputs_of_a_graph_that_looks_for_them_alone(tmp_path: Path):
    """INT8's ranges are those of the rows that are whole."""
    nodes = [
        helper.make_node("IsNaN", ["x"], ["missing"]),
        helper.make_node("Where", ["missing", "fill", "x"], ["whole"]),
        helper.make_node("MatMul", ["whole", "w"], ["y"]),
    ]
    weights = {"fill": np.full(4, 0.5, np.float32), "w": WEIGHT}
    path = write(tmp_path / "m.onnx", nodes, [value("x", ("batch", 4))], [value("y", ("batch", 3))], weights)
    rows = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    rows[::2, 1] = np.nan
    np.savez(tmp_path / "rows.npz", x=rows)
    exported = obtain(str(path), {}, 1, inputs_npz=tmp_path / "rows.npz")
    np.testing.assert_array_equal([one["x"][0] for one in exported.input_buffers()], rows)
    right = np.where(np.isnan(rows), 0.5, rows) @ WEIGHT
    np.testing.assert_allclose([one["y"][0] for one in exported.reference_outputs()], right, rtol=1e-5)
    np.testing.assert_array_equal([one["x"][0] for one in exported.calibration()], rows[1::2])
    with pytest.raises(UsageError, match=r"got NaN in 3 places, the first in row 0: fill them in"):
        obtain(str(linear(tmp_path / "plain.onnx")), {}, 1, inputs_npz=tmp_path / "rows.npz")
    rows[1:, 1] = np.nan
    np.savez(tmp_path / "rows.npz", x=rows)
    bare = obtain(str(path), {}, 1, inputs_npz=tmp_path / "rows.npz")
    assert bare.calibration_fault.startswith("6 of 6 calibration sets hold NaN")
    assert bare.error_bounds[Precision.FP32], "floats race on"


def test_a_random_model_is_refused(tmp_path: Path):
    path = unary(tmp_path / "m.onnx", "RandomNormalLike", F32, F32)
    with pytest.raises(ModelError, match=r"m\.onnx gives different outputs .*: an operator in it draws"):
        take(path, tmp_path)


def test_a_shape_that_depends_on_values_is_refused(tmp_path: Path):
    path = unary(tmp_path / "m.onnx", "NonZero", TensorProto.BOOL, I64)
    with pytest.raises(ModelError, match="the shape of output 'y' depends on the input values"):
        take(path, tmp_path)


def test_drawn_inputs_that_do_not_fit_point_to_real_ones(tmp_path: Path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [value("x", (2, 6)), value("shape", (2,), I64)], [value("y", None)])
    with pytest.raises(ModelError, match=r"(?s)can't run m\.onnx: .*give real ones with --inputs data\.npz"):
        take(path, tmp_path)
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2, 6), np.float32), shape=np.array([[4, 3]] * 3))
    assert take(path, tmp_path, inputs_npz=tmp_path / "d.npz").outputs[0].shape == (4, 3)
    np.savez(tmp_path / "d.npz", x=np.ones((3, 2, 6), np.float32), shape=np.array([[5, 3]] * 3))
    with pytest.raises(ModelError, match=r"can't run m\.onnx") as error:
        take(path, tmp_path, inputs_npz=tmp_path / "d.npz")
    assert "drawn" not in str(error.value), "they were given"


def test_the_error_bound_follows_the_models_sensitivity(tmp_path: Path):
    prepared = prepare(linear(tmp_path / "calm.onnx"), tmp_path)
    assert prepared.error_bound == 1e-5
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["x", "b"], ["xb"]),
        helper.make_node("Sub", ["xa", "xb"], ["y"]),
    ]
    b = np.full((50, 50), 1e4, np.float32)
    a = b + np.random.default_rng(0).standard_normal((50, 50)).astype(np.float32)
    path = write(tmp_path / "cancel.onnx", nodes, [value("x", (3, 50))], [value("y", (3, 50))], {"a": a, "b": b})
    assert 1e-3 < prepare(path, tmp_path).error_bound < 0.1


def test_a_chaotic_model_is_taken_with_a_error_bound_that_proves_nothing(tmp_path: Path):
    nodes = [helper.make_node("Mul", ["x", "big"], ["a"]), helper.make_node("Sin", ["a"], ["y"])]
    big = {"big": np.array(1e6, np.float32)}
    path = write(tmp_path / "m.onnx", nodes, [value("x", (3, 50))], [value("y", (3, 50))], big)
    assert prepare(path, tmp_path).error_bound >= 0.5


def test_calibration_sets_stand_in_for_inputs_that_are_not_given(tmp_path: Path):
    path, npz = linear(tmp_path / "mine.onnx"), tmp_path / "data.npz"
    x = np.random.default_rng(1).standard_normal((10, 2, 4)).astype(np.float32)
    np.savez(npz, x=x)
    for name in ("all", "few"):
        (tmp_path / name).mkdir()
    prepared = prepare(path, tmp_path / "all", batch=2, calibration_npz=npz)
    assert np.array_equal([one["x"] for one in prepared.buffers], x[:8])
    assert not prepared.ways
    np.savez(npz, x=x[:1])  # too few to calibrate with: floats go on as without them
    assert prepare(path, tmp_path / "few", batch=2, calibration_npz=npz).ways
