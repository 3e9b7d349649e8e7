"""What each layer of planted networks does in a precision is found, layer by layer and block by block."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.onnx_made import value, write

from shootout.apps.sensitivity import PrecisionSensitivity, Wanted, measure, tell_answer
from shootout.core.contract import Array, Artifact, Precision
from shootout.core.errors import ModelError
from shootout.core.exported.client import Request, obtain
from shootout.core.exported.model import ExportedModel
from shootout.quantize.error_bounds import by_channel
from shootout.quantize.layer_rounding import RoundableModel

ROWS, WIDTH, CLASSES, BATCH = 80, 32, 4, 4
LARGE = 300.0
"""So many times larger than the others is one channel of what layer 2 reads."""


def planted(folder: Path, *, precise: bool = True, largest: float = LARGE) -> Path:
    """A file of four layers in two blocks; the third reads a channel with outliers, which its weight undoes."""
    rng = np.random.default_rng(5)
    scale = np.ones(WIDTH)
    scale[3] = largest
    weights = {
        f"body.{number // 2}.fc{number}.weight": rng.standard_normal((WIDTH, CLASSES if number == 3 else WIDTH)) / 6
        for number in range(4)
    }
    weights["body.1.fc2.weight"] /= scale[:, None]
    stored = {name: array.astype(np.float32) for name, array in {**weights, "scale": scale}.items()}
    if not precise:  # the upper half of a float32 is a BF16
        stored = {name: (array.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, array in stored.items()}
    names = [*weights]
    nodes = [
        helper.make_node("MatMul", ["x", names[0]], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", names[1]], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "scale"], ["e"]),
        helper.make_node("MatMul", ["e", names[2]], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", names[3]], ["y"]),
    ]
    return write(folder / "planted.onnx", nodes, [value("x", (BATCH, WIDTH))], [value("y", (BATCH, CLASSES))], stored)


@pytest.fixture
def net(tmp_path: Path) -> ExportedModel:
    return obtain(Request(model=str(planted(tmp_path)), inputs_npz=data(tmp_path)))


def data(folder: Path) -> Path:
    np.savez(folder / "x.npz", x=rows())
    return folder / "x.npz"


@cache
def rows() -> Array:
    return np.random.default_rng(6).standard_normal((ROWS, WIDTH)).astype(np.float32)


def one_of(exported: ExportedModel, precision: Precision, **how: object) -> PrecisionSensitivity:
    return measure(exported, Wanted(precision=precision, is_detailed=True, **how))  # type: ignore[arg-type]


def test_a_layer_with_an_outlier_channel_is_the_worst_in_int8_by_what_it_reads(net: ExportedModel):
    found = one_of(net, Precision.INT8)
    worst = found.parts[0]
    assert (worst.name, worst.layer.number, worst.layer.block) == ("body.1.fc2", 2, "body.1")
    assert worst.noise_share is not None
    assert worst.noise_share > 0.9
    assert worst.weights_db is not None
    assert worst.activations_db is not None
    assert worst.activations_db < worst.weights_db - 10
    assert found.without_worst is not None
    assert found.without_worst.sqnr_db > found.whole.sqnr_db + 10
    assert (
        tell_answer(found)[0]
        == "Leave layer body.1.fc2 (int8/float-2) in float first: it alone causes 100% of INT8's error."
    )


def test_a_precision_that_rounds_by_size_does_not_mind_the_outliers(net: ExportedModel):
    for precision in (Precision.BF16, Precision.FP16, Precision.FP8):
        shares = {part.name: part.noise_share or 0.0 for part in one_of(net, precision).parts}
        assert shares["body.1.fc2"] < 0.6, precision


def test_weights_are_rounded_by_output_channel_and_nothing_else_is(net: ExportedModel):
    """Worked out beside the graph, in NumPy."""
    stored = {tensor.name: tensor for tensor in onnx.load(net.path(Artifact.ONNX)).graph.initializer}
    weights = [numpy_helper.to_array(stored[f"body.{number // 2}.fc{number}.weight"]) for number in range(4)]
    scale = numpy_helper.to_array(stored["scale"])

    def forward(x: Array, rounded: int | None) -> Array:
        for number, weight in enumerate(weights):
            x = x * scale if number == 2 else x
            x = x @ (by_channel(weight, 1) if number == rounded else weight).astype(np.float64)
            x = np.maximum(x, 0) if number < 3 else x
        return x

    inputs = [one["x"].astype(np.float64) for one in net.input_buffers()]
    for part in one_of(net, Precision.INT8).parts:
        right = [forward(x, None) for x in inputs]
        noise = sum(
            float(np.square(forward(x, part.layer.number) - y).sum()) for x, y in zip(inputs, right, strict=True)
        )
        signal = sum(float(np.square(y).sum()) for y in right)
        assert part.weights_db == pytest.approx(10 * math.log10(signal / noise), abs=0.1)


def test_int4_rounds_weights_alone(net: ExportedModel):
    for part in one_of(net, Precision.INT4).parts:
        assert part.activations_db is None
        assert part.weights_db == part.sqnr_db


def test_the_layers_of_a_block_are_rounded_at_once(net: ExportedModel):
    layers, blocks = (one_of(net, Precision.INT8, by=by).parts for by in ("layer", "block"))
    assert {part.name: len(part.layers) for part in blocks} == {"body.0": 2, "body.1": 2}
    rounded = RoundableModel(net, Precision.INT8)
    right = rounded.run()
    for block in blocks:
        inside = [part for part in layers if part.layer in block.layers]
        assert block.weight_bytes == sum(part.weight_bytes for part in inside)
        assert block.flops_share == pytest.approx(math.fsum(part.flops_share for part in inside))
        together = [one for one in rounded.layers if one.layer in block.layers]
        noise = [
            (a["y"] - b["y"]).astype(np.float64) for a, b in zip(rounded.run(together, together), right, strict=True)
        ]
        signal = math.fsum(float(np.square(one["y"].astype(np.float64)).sum()) for one in right)
        ratio = signal / math.fsum(float(np.square(one).sum()) for one in noise)
        assert block.sqnr_db == pytest.approx(10 * math.log10(ratio), abs=1e-6)
        assert block.sqnr_db < min(part.sqnr_db for part in inside) + 0.1
    assert math.fsum(block.flops_share for block in blocks) == pytest.approx(1)


def test_a_weight_that_others_read_too_is_rounded_for_its_layer_alone(tmp_path: Path):
    """One is read by two layers, one is transposed by the graph first."""
    rng = np.random.default_rng(7)
    stored = {name: rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 6 for name in ("tied", "turned")}
    nodes = [
        helper.make_node("MatMul", ["x", "tied"], ["a"]),
        helper.make_node("MatMul", ["a", "tied"], ["b"]),
        helper.make_node("Transpose", ["turned"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["b", "t"], ["y"]),
    ]
    shape = (BATCH, WIDTH)
    exported = obtain(
        Request(model=str(write(tmp_path / "tied.onnx", nodes, [value("x", shape)], [value("y", shape)], stored)))
    )
    rounded = RoundableModel(exported, Precision.INT8)
    first, second, third = rounded.layers
    assert [len(one.weights) for one in rounded.layers] == [1, 1, 1]
    (x,) = exported.input_buffers()[0].values()
    tied, turned = stored["tied"], stored["turned"].T
    rounding = by_channel(tied, 1), by_channel(turned, 1)
    wanted = (
        (first, x @ rounding[0] @ tied @ turned),
        (second, x @ tied @ rounding[0] @ turned),
        (third, x @ tied @ tied @ rounding[1]),
    )
    for one, right in wanted:
        assert np.allclose(rounded.run([one])[0]["y"], right, atol=1e-5)


def test_a_state_carries_the_error_on(tmp_path: Path):
    weight = np.random.default_rng(10).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8
    nodes = [
        helper.make_node("Add", ["x", "h"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["hn"]),
        helper.make_node("Identity", ["hn"], ["y"]),
    ]
    ends = ([value(name, (1, WIDTH)) for name in names] for names in (("x", "h"), ("y", "hn")))
    path = write(tmp_path / "state.onnx", nodes, *ends, {"w": weight})
    exported = obtain(Request(model=str(path), state={"h": "hn"}, steps=10))
    (part,) = one_of(exported, Precision.INT8).parts
    rounded = by_channel(weight, 1)
    state, errors = {True: np.zeros((1, WIDTH)), False: np.zeros((1, WIDTH))}, [0.0, 0.0]
    for at, one in enumerate(exported.input_buffers()):
        for is_rounded in state:
            begun = one["h"] if at % 10 == 0 else state[is_rounded]
            state[is_rounded] = (one["x"] + begun).astype(np.float64) @ (rounded if is_rounded else weight)
        errors[0] += 2 * float(np.square(state[False]).sum())  # y and hn
        errors[1] += 2 * float(np.square(state[True] - state[False]).sum())
    assert part.weights_db == pytest.approx(10 * math.log10(errors[0] / errors[1]), abs=0.1)


def test_the_time_limit_leaves_parts_out_and_counts_them(net: ExportedModel):
    found = measure(net, Wanted(limit_s=0.0, is_detailed=True))
    assert len(found.parts) == 1
    assert found.unmeasured == 3
    assert found.without_worst is None
    assert found.parts[0].noise_share is None, "a share of one in four tells nothing"


def test_what_has_nothing_to_round_is_refused(tmp_path: Path):
    shape = (BATCH, WIDTH)
    nodes = [helper.make_node("Sigmoid", ["x"], ["y"])]
    path = write(tmp_path / "plain.onnx", nodes, [value("x", shape)], [value("y", shape)], {})
    with pytest.raises(ModelError, match="has nothing to round to int8: no matrix product or convolution"):
        one_of(obtain(Request(model=str(path))), Precision.INT8)
    square = (WIDTH, WIDTH)
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"])]
    path = write(tmp_path / "activations.onnx", nodes, [value("x", square)], [value("y", square)], {})
    with pytest.raises(ModelError, match="has nothing to round to int4"):
        one_of(obtain(Request(model=str(path))), Precision.INT4)
