"""ONNX Runtime's quantized arms: every scheme runs, what it ran is counted, and the S8S8 trap shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from quantized_arms import DIGITS, RESIDUAL, Ran, arm_of, gated, run_arm, run_pairs

from shootout.backends._onnxruntime import shared
from shootout.backends._onnxruntime.account import open_session
from shootout.backends._onnxruntime.shared import recode
from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.schemes import shown_as
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import OURS, exported_models
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

CNN = Request(model="digits_cnn", batch=2)
INT8 = ["", "per-tensor", "symmetric", "asymmetric+minmax", "entropy", "percentile", "samples-8", "s8s8"]
OTHERS = [
    (Precision.INT8_DYNAMIC, ""),
    (Precision.INT8_DYNAMIC, "per-tensor"),
    (Precision.INT4, ""),
    (Precision.INT4, "symmetric"),
    (Precision.INT4, "activations-8"),
    (Precision.INT8, "weights-only"),
    (Precision.INT8_DYNAMIC, "matmul-nbits"),
]
SCHEMES = [*((Precision.INT8, scheme) for scheme in INT8), *OTHERS]
PLAIN = [(Precision.INT8, ""), (Precision.INT8_DYNAMIC, ""), (Precision.INT4, "")]
ORT = Arm(target=Target(backend="onnxruntime"), model="file")


Group = tuple[ExportedModel, list[Ran]]
"""A model and its arms, in the order asked."""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Group]:
    """All arms in one process, since importing the quantizers takes as long as several of them; by the model's name."""
    folder = tmp_path_factory.mktemp("all")
    weight = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    files = {
        "tanh": file_of(folder / "tanh.onnx", [helper.make_node("Tanh", ["x"], ["y"])]),
        "square": file_of(
            folder / "square.onnx",
            [
                helper.make_node("Transpose", ["x"], ["turned"]),
                helper.make_node("MatMul", ["x", "turned"], ["square"]),
                helper.make_node("MatMul", ["square", "x"], ["y"]),
            ],
        ),
        "old": file_of(folder / "old.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], w=weight),
    }
    requests = {"digits": DIGITS, "residual": RESIDUAL, "cnn": CNN}
    requests |= {name: Request(model=str(path), batch=2) for name, path in files.items()}
    schemes = {
        "digits": [(Precision.FP32, ""), *SCHEMES],
        "residual": [(Precision.INT8, scheme) for scheme in ("", "s8s8", "symmetric")],
        "cnn": PLAIN,
        "tanh": PLAIN,
        "square": PLAIN[1:],
        "old": PLAIN,
    }
    made = dict(zip(requests, exported_models(*requests.values()), strict=True))
    work = [(made[name], arm_of(made[name], *one)) for name, several in schemes.items() for one in several]
    found = iter(run_fresh(run_pairs, work, folder, warm=OURS))
    return {name: (made[name], [next(found) for _ in several]) for name, several in schemes.items()}


def test_every_scheme_runs_as_labeled_and_ships_less(everything: dict[str, Group]):
    exported, (plain, *quantized) = everything["digits"]
    assert plain.executed is not None
    products = sum(plain.executed.compute_nodes_by_precision.values())
    for one in quantized:
        assert one.executed is not None, one.said
        label = shown_as(one.arm.target.precision, one.arm.target.scheme)
        assert one.executed.compute_nodes_by_precision == {label: products}, one.arm.label
        assert executed_fault(one.executed, one.arm) is None
        assert gated(exported, one) is None, one.arm.label
        bits = 4 if "int4" in label else 8
        assert one.executed.artifact_bytes < plain.executed.artifact_bytes * (bits + 4) / 32, one.arm.label


def test_words_make_a_difference(everything: dict[str, Group]):
    _, (_, *found) = everything["digits"]
    by_scheme = {str(one.arm.target).removeprefix("onnxruntime:cpu:"): one.outputs[0]["y"] for one in found}
    plain = by_scheme["int8"]
    np.testing.assert_array_equal(by_scheme["int8/asymmetric+minmax"], plain)
    for scheme in ("per-tensor", "symmetric", "entropy", "percentile", "samples-8"):
        assert not np.array_equal(by_scheme[f"int8/{scheme}"], plain), scheme
    assert not np.array_equal(by_scheme["int8-dynamic"], by_scheme["int8-dynamic/per-tensor"])
    assert not np.array_equal(by_scheme["int8-dynamic"], by_scheme["int8-dynamic/matmul-nbits"])
    for scheme in ("symmetric", "activations-8"):
        assert not np.array_equal(by_scheme["int4"], by_scheme[f"int4/{scheme}"]), scheme


def test_s8s8_runs_no_int8_product_where_activations_have_two_readers(everything: dict[str, Group]):
    _, (u8s8, s8s8, _) = everything["residual"]
    assert u8s8.executed is not None
    assert u8s8.executed.compute_nodes_by_precision == {"int8": 4}
    assert u8s8.executed.conversion_nodes == 2
    assert s8s8.executed is not None
    assert s8s8.executed.compute_nodes_by_precision == {"fp32": 4}
    conversions = {"QuantizeLinear", "DequantizeLinear"}
    assert s8s8.executed.conversion_nodes == sum(one in conversions for one in s8s8.operations) > 20
    assert "labeled int8, but onnxruntime ran its compute nodes elsewhere: 4 in fp32" in str(
        executed_fault(s8s8.executed, s8s8.arm)
    )


def test_convolutions_run_in_int8_and_4_bits_leave_them_in_float(everything: dict[str, Group]):
    exported, (static, dynamic, four) = everything["cnn"]
    assert static.executed is not None
    assert dynamic.executed is not None
    assert four.executed is not None
    assert static.executed.compute_nodes_by_precision == dynamic.executed.compute_nodes_by_precision == {"int8": 4}
    assert four.executed.compute_nodes_by_precision == {"fp32": 3, "int4": 1}
    assert [gated(exported, one) for one in (static, dynamic, four)] == [None] * 3


def test_kernel_times_name_every_kind(everything: dict[str, Group]):
    _, (*_, found) = everything["residual"]
    assert found.executed is not None
    assert set(found.executed.kernel_ns) == {"int8", "conversion", "other"}
    assert found.executed.kernel_ns["int8"] > 0
    assert found.executed.other_nodes_by_precision


def largest_difference(first: Path, second: Path, exported: ExportedModel) -> float:
    """Of the outputs, as a share of the largest; both graphs as they are."""
    left, right = (open_session(path, ORT) for path in (first, second))
    runs = [(left.run(None, dict(one))[0], right.run(None, dict(one))[0]) for one in exported.input_buffers()]
    return max(float(np.abs(one - other).max() / np.abs(other).max()) for one, other in runs)


def pairs_in(path: Path) -> int:
    return sum(node.op_type == "QuantizeLinear" for node in onnx.load(path).graph.node)


@pytest.mark.parametrize("request_", [DIGITS, RESIDUAL, CNN], ids=lambda one: one.model)
def test_the_shared_model_fuses_and_says_the_same(request_: Request, tmp_path: Path):
    (exported,) = exported_models(replace(request_, variant="shared"))
    source = exported.path(Artifact.ONNX)
    recoded, added = recode(source, tmp_path)
    recoded_error = largest_difference(recoded, source, exported)
    # A bias that is rounded now can tip an activation over to the next of its levels; sums are rounded anew.
    assert recoded_error < (0.1 if request_ is RESIDUAL else 0.01)
    found = run_arm(exported, arm_of(exported, Precision.INT8, "shared"), tmp_path / "arm")
    assert found.executed is not None
    assert set(found.executed.compute_nodes_by_precision) == {"int8"}
    assert found.executed.conversion_nodes <= 3, "the inputs', and around one last sum"
    assert "Relu" not in found.operations
    pairs = [pairs_in(path) for path in (source, recoded)]
    assert pairs[1] - pairs[0] == added
    assert (added > 0) == (request_ is not DIGITS)
    assert found.notes == (shared.ADDED.format(added),) * bool(added)
    assert gated(exported, found) is None
    error = fidelity.compare(found.outputs, exported.reference_outputs())
    error = replace(error, shared_l2=fidelity.compare(found.outputs, exported.shared_outputs() or []).relative_l2)
    assert fidelity.disagreement(error, exported.error_bound(found.arm.target)[0]) is None
    assert largest_difference(tmp_path / "arm" / "model.onnx", recoded, exported) < 0.01


def file_of(path: Path, nodes: list[Any], opset: int = 11, **weights: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes,
        "own",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def test_without_products_there_is_nothing_to_quantize(everything: dict[str, Group]):
    _, found = everything["tanh"]
    for one in found:
        assert one.said.startswith("nothing to quantize: "), one.arm.label


def test_products_of_activations_are_nothing_for_weight_quantizers(everything: dict[str, Group]):
    _, found = everything["square"]
    for one in found:
        assert "quantizer left every node as it was" in one.said, one.arm.label


def test_a_file_of_an_old_opset_whose_nodes_have_no_names_is_quantized(everything: dict[str, Group]):
    exported, found = everything["old"]
    for one in found:
        assert one.executed is not None, one.said
        assert one.executed.compute_nodes_by_precision == {one.arm.target.precision.partition("-")[0]: 1}
        assert gated(exported, one) is None, one.arm.label


def test_no_cpu_kernel_has_a_half_rest(tmp_path: Path):
    arm = replace(ORT, target=replace(ORT.target, precision=Precision.INT8, scheme="shared+rest-fp16"))
    with pytest.raises(SkippedArm, match="CPU kernels compute in FP32 beside INT8"):
        backends.get("onnxruntime").build(exported_models(DIGITS)[0], arm, tmp_path)


def test_a_float_model_is_no_shared_model(tmp_path: Path):
    (exported,) = exported_models(DIGITS)
    with pytest.raises(ValueError, match="is not a quantized model: none of its activations has a Q/DQ pair"):
        recode(exported.path(Artifact.ONNX), tmp_path)
