"""OpenVINO's quantized arms: every word of a scheme, and what the runtime says of each."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from shootout.backends._openvino import quantize
from shootout.backends._openvino.graph import listed_precisions, properties_of, scheme_of
from shootout.backends._openvino.quantize import refuse_options
from shootout.core import backends
from shootout.core.contract import INTEGERS, Arm, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.host.environment import cpu_flags
from shootout.core.schemes import shown_as
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import OURS, call, exported_models, lacks, warm_of
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

WIDTH = 384
DIGITS = Request(model="digits", parameters={"hidden": WIDTH, "n_layers": 2}, batch=1)
RESIDUAL = Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2)
PRODUCTS = (64 * WIDTH, WIDTH * WIDTH, WIDTH * 10)
WORDED = ("int8/per-channel+minmax+samples-20", "int8/per-tensor+minmax+samples-20", "int8/percentile+samples-20")
"""Of few samples: NNCF's 300 take a second."""
LABELS = (
    "fp32", "int8", *WORDED, "int8/samples-3", "int8/accuracy-control", "int8/shared", "int8-dynamic", "int4",
    "int4/symmetric", "int4/activations-8", "int8/weights-only",
)  # fmt: skip


HALF_REST = "int8/minmax+rest-bf16+samples-20"
METHODS = ("int8/smoothquant", "int4/gptq+activations-8", "int4/awq+scale-estimation", "int4/ratio-0.5")


@dataclass(frozen=True)
class Ran:
    """What one arm came to: its account and error, or what it was told instead."""

    arm: Arm
    executed: Executed | None = None
    error: float = 0.0
    told: str = ""


def run_one(exported: ExportedModel, arm: Arm, folder: Path) -> Ran:
    adapter = backends.get("openvino")
    try:
        session = adapter.load(adapter.build(exported, arm, folder))
    except SkippedArm as skipped:
        return Ran(arm, told=f"{skipped.reason}; {skipped.fix}")
    outputs = [call(session, inputs) for inputs in exported.input_buffers()]
    found = fidelity.compare(outputs, exported.reference_outputs())
    if not arm.options and arm.target.scheme != "default":
        assert fidelity.gate(found, *exported.error_bound(arm.target)) is None
    assert found.relative_l2 is not None
    return Ran(arm, session.executed, found.relative_l2)


def run_all(work: list[tuple[ExportedModel, Arm]]) -> list[Ran]:
    found = []
    for exported, arm in work:
        with TemporaryDirectory() as folder:
            found.append(run_one(exported, arm, Path(folder)))
    return found


def target_of(label: str) -> Target:
    precision, _, scheme = label.partition("/")
    return Target(backend="openvino", precision=Precision(precision), scheme=scheme)


@cache
def everything() -> dict[str, Ran]:
    """All arms in one process (importing NNCF takes seconds); the key is model, label and options."""
    work = {f"digits {label}": (DIGITS, label, {}) for label in (*LABELS, "fp32/default", HALF_REST)}
    for label, size in (("int8-dynamic", "0"), ("int8-dynamic", "128"), ("int4", "32"), ("int4/activations-8", "0")):
        work[f"digits {label} {size}"] = (DIGITS, label, {"DYNAMIC_QUANTIZATION_GROUP_SIZE": size})
    for label in ("int8/symmetric+samples-20", "int8/asymmetric+samples-20", "int8/accuracy-control"):
        work[f"residual {label}"] = (RESIDUAL, label, {})
    return ran(work)


def ran(work: dict[str, tuple[Request, str, dict[str, str]]]) -> dict[str, Ran]:
    """By the same names, what each model, label and options came to."""
    arms = [
        Arm(target=target_of(label), model="", batch=request.batch, options=o) for request, label, o in work.values()
    ]
    asked = [
        replace(request, variant="shared" if label.endswith("shared") else "") for request, label, _ in work.values()
    ]
    found: list[Ran] = run_fresh(
        run_all, list(zip(exported_models(*asked), arms, strict=True)), warm=warm_of(target_of("int8"))
    )
    return dict(zip(work, found, strict=True))


def executed(label: str, model: str = "digits") -> Executed:
    ran = everything()[f"{model} {label}"]
    assert ran.executed is not None, ran.told
    return ran.executed


def error(label: str, model: str = "digits") -> float:
    return everything()[f"{model} {label}"].error


ROUNDING = ("int8-dynamic", "int4/activations-8")
"""What rounds activations at run time, for which OpenVINO wants VNNI."""
NOT_ROUNDED = "none of its 3 products as dynamically quantized"


@cache
def rounds_here() -> bool:
    return not run_fresh(lacks, target_of("int8-dynamic"), warm=OURS)


@pytest.mark.skipif("avx512_vnni" not in cpu_flags(), reason="this CPU has no AVX-512 with VNNI")
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="a variable limits the CPU")
def test_a_cpu_with_vnni_rounds_activations() -> None:
    """Fixture and adapter read the same log: if its words changed, both would say that this CPU lacks it."""
    assert rounds_here()


@pytest.mark.parametrize("label", LABELS)
def test_every_scheme_computes_in_its_precision(label: str) -> None:
    if label in ROUNDING and not rounds_here():
        assert NOT_ROUNDED in everything()[f"digits {label}"].told
        return
    found, target = executed(label), target_of(label)
    name = shown_as(target.precision, target.scheme)
    assert found.compute_nodes_by_precision == {name: len(PRODUCTS)}
    assert executed_fault(found, everything()[f"digits {label}"].arm) is None


def test_weights_are_stored_in_few_bits() -> None:
    ran = [label for label in LABELS if rounds_here() or label not in ROUNDING]
    sizes = {label: executed(label).artifact_bytes for label in ran}
    float_bytes = 4 * sum(PRODUCTS)
    assert sizes["fp32"] > float_bytes
    for label, size in sizes.items():
        if (precision := target_of(label).precision) in INTEGERS:
            assert size < float_bytes * (0.18 if precision == "int4" else 0.32), label


def test_words_make_a_difference() -> None:
    """Each is another model: the same error would be the same arithmetic."""
    distinct = ("int8", *WORDED, "int8/samples-3")
    assert len({error(label) for label in distinct}) == len(distinct)
    assert error("int4") != error("int4/symmetric")
    if rounds_here():
        assert error("int4/activations-8") not in (error("int4"), error("int4/symmetric"))
        assert error("int8/weights-only") != error("int8-dynamic")
    assert error(WORDED[0]) < error("int8"), "NNCF's default clips"


def test_conversions_are_counted_apart() -> None:
    assert executed("fp32").conversion_nodes == 0
    assert executed("int8").conversion_nodes == 1, "only the input is quantized: the rest is fused"
    assert executed("int8-dynamic" if rounds_here() else "int8/weights-only").conversion_nodes == 0
    left = executed("int8/symmetric+samples-20", "residual")
    assert left.conversion_nodes == 1
    assert sum(left.other_nodes_by_precision.values()) == 1 + RESIDUAL.parameters["n_layers"], "and the sums"


def test_dynamic_quantization_that_does_not_happen_is_skipped() -> None:
    """With group size 0 the plugin keeps activations float; its graph looks the same."""
    assert NOT_ROUNDED in everything()["digits int8-dynamic 0"].told
    assert NOT_ROUNDED in everything()["digits int4/activations-8 0"].told
    if not rounds_here():
        assert NOT_ROUNDED in everything()["digits int8-dynamic 128"].told
        return
    mixed = executed("int8-dynamic 128").compute_nodes_by_precision
    assert mixed == {"int8": 2, "int8-weights": 1}, "the first layer has only 64 inputs"


def test_int4_with_rounded_activations_is_not_int4() -> None:
    found = everything()["digits int4 32"]
    if not rounds_here():
        assert executed("int4 32").compute_nodes_by_precision == {"int4": 3}
        return
    fault = executed_fault(executed("int4 32"), found.arm)
    assert "labeled int4, but openvino ran its compute nodes elsewhere: 3 in int4-activations-8" in str(fault)


def test_accuracy_control_needs_labels() -> None:
    told = everything()["residual int8/accuracy-control"].told
    assert "accuracy-control needs labeled data to select by, and residual_mlp has none" in told


def test_the_default_precision_hint_is_left_alone() -> None:
    """On a CPU with bfloat16 (on ARM with float16) OpenVINO then runs in it, under a label that says fp32."""
    found = executed("fp32/default")
    (ran,) = found.compute_nodes_by_precision
    assert ran in run_fresh(listed_precisions, warm=OURS) - {"int8"}
    assert (executed_fault(found, everything()["digits fp32/default"].arm) is None) is (ran == "fp32")


def test_the_rest_of_int8_may_be_bf16_where_the_cpu_has_it() -> None:
    hints = [
        properties_of(Arm(target=target_of(one), model=""))["INFERENCE_PRECISION_HINT"] for one in (HALF_REST, "int8")
    ]
    assert hints == ["bf16", "f32"]
    ran = everything()[f"digits {HALF_REST}"]
    if ran.executed is None:
        assert "OpenVINO has no bf16 arithmetic for this CPU" in ran.told
    else:
        assert ran.executed.compute_nodes_by_precision == {"int8": len(PRODUCTS)}


def largest_weights(exported: ExportedModel, folder: Path) -> list[list[int]]:
    """The largest 8-bit weight of each product, on a CPU with VNNI and on one without."""
    from shootout.backends._openvino.graph import IR, import_openvino

    found = []
    for answer in (False, True):
        quantize.saturates = lambda answer=answer: answer  # type: ignore[attr-defined,misc]
        arm = Arm(target=target_of("int8/samples-3"), model="", batch=exported.batch)
        backends.get("openvino").build(exported, arm, folder)
        model = import_openvino().Core().read_model(folder / IR)
        stored = [op.data for op in model.get_ops() if op.get_type_name() == "Constant" and op.data.dtype == np.int8]
        found.append([int(np.abs(one.astype(int)).max()) for one in stored])
    return found


def test_weights_of_7_bits_leave_room_for_two_products_in_16(tmp_path: Path) -> None:
    """Not of the first convolutions alone, as is NNCF's default: this model has none."""
    (exported,) = exported_models(DIGITS)
    whole, reduced = run_fresh(largest_weights, exported, tmp_path, warm=warm_of(target_of("int8")))
    assert len(whole) == len(reduced) == len(PRODUCTS)
    assert min(whole) > 100
    assert max(reduced) <= 64


@pytest.mark.parametrize(
    ("label", "option", "refused"),
    [
        ("int8", "DYNAMIC_QUANTIZATION_GROUP_SIZE", True),
        ("int8/shared", "DYNAMIC_QUANTIZATION_GROUP_SIZE", True),
        ("int8/weights-only", "DYNAMIC_QUANTIZATION_GROUP_SIZE", False),
        ("int8/shared", "model_type", True),
        ("int8/minmax", "model_type", False),
    ],
)
def test_an_option_of_another_way_to_quantize_is_refused(label: str, option: str, refused: bool) -> None:
    arm = Arm(target=target_of(label), model="", options={option: "32"})
    with pytest.raises(ValueError, match=f"'{option}' is .* not for {label}$") if refused else nullcontext():
        refuse_options(arm, scheme_of(arm))


@pytest.mark.slow
def test_methods_are_nncf_s_own() -> None:
    found = ran({label: (RESIDUAL, label, {}) for label in METHODS})
    assert len({one.error for one in found.values()}) == len(METHODS)
    counts = {label: one.executed.compute_nodes_by_precision for label, one in found.items() if one.executed}
    assert counts["int4/gptq+activations-8"] == {"int4-activations-8": 4}
    assert counts["int4/ratio-0.5"] == {"int4": 1, "int8-weights": 3}


def profile(exported: ExportedModel, arm: Arm, folder: Path) -> tuple[Executed, dict[str, float]]:
    adapter = backends.get("openvino")
    built = adapter.build(exported, arm, folder)
    return adapter.load(built).executed, built.facts["node_ns"]


def test_times_are_given_where_the_counters_are_fine_enough(tmp_path: Path) -> None:
    (exported,) = exported_models(Request(model="residual_mlp", parameters={"d_model": 512, "n_layers": 2}, batch=64))
    found, nodes = run_fresh(profile, exported, Arm(target=target_of("fp32"), model="residual_mlp", batch=64), tmp_path)
    assert set(found.kernel_ns) == {"fp32", "other"}
    assert np.isclose(sum(found.kernel_ns.values()), sum(nodes.values()))
