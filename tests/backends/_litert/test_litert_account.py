"""What LiteRT's arms say of themselves: nodes by their operands, words of schemes, threads, types on the way in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shootout.backends._litert.account import LiteRtNode, _product_label
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.schemes import shown_as
from shootout.core.worker.verification import executed_fault
from shootout.testing.checks import call, exported_models, fixture, warm_of
from shootout.testing.fresh import run_fresh

FIXTURE = fixture("litert")
MODEL = Request(model=FIXTURE.model, parameters=FIXTURE.parameters, batch=FIXTURE.batch)
"""The conformance suite's, whose conversion is kept: converting anew takes seconds."""
LABELS = ("fp32", "int8/minmax+per-tensor", "int8/samples-3", "int8/weights-only", "int4", "int4/activations-8")
GROUPED = "int4/activations-8+per-channel"
"""With a group size."""
OWN = "fp32/"
"""FP32 in LiteRT's own kernels."""


@dataclass(frozen=True)
class Ran:
    arm: Arm
    executed: Executed
    error: float
    notes: list[str]


def run_all(exported: ExportedModel, arms: list[Arm]) -> list[Ran]:
    return [run_one(exported, arm) for arm in arms]


def run_one(exported: ExportedModel, arm: Arm) -> Ran:
    adapter = backends.get("litert")
    with TemporaryDirectory() as folder:
        built: Built = adapter.build(exported, arm, Path(folder))
        session = adapter.load(built)
        outputs = [call(session, inputs, slot) for slot, inputs in enumerate(exported.input_buffers())]
        found = fidelity.compare(outputs, exported.reference_outputs())
        assert found.relative_l2 is not None
        return Ran(arm, session.executed, found.relative_l2, built.facts["notes"])


@cache
def ran() -> dict[str, Ran]:
    (exported,) = exported_models(MODEL)
    arms = []
    for label in (*LABELS, GROUPED, OWN):
        precision, _, scheme = label.partition("/")
        target = Target(backend="litert", precision=Precision(precision), scheme=scheme)
        options = {GROUPED: {"group_size": "32"}, OWN: {"kernels": "builtin"}}.get(label, {})
        arms.append(Arm(target=target, model=exported.model, batch=exported.batch, options=options, threads=2))
    found = run_fresh(run_all, exported, arms, warm=warm_of(replace(arms[0].target, precision=Precision.INT8)))
    return dict(zip((*LABELS, GROUPED, OWN), found, strict=True))


@pytest.mark.parametrize("label", [*LABELS, GROUPED])
def test_each_word_is_what_the_file_holds_and_the_error_agrees(label: str) -> None:
    found = ran()[label]
    target, (exported,) = found.arm.target, exported_models(MODEL)
    assert found.executed.compute_nodes_by_precision == {shown_as(target.precision, target.scheme): 4}
    error_bound, least = exported.error_bound(target)
    assert error_bound is not None
    assert least < found.error <= error_bound
    assert found.executed.threads == 2


def test_only_int4_weights_that_are_unpacked_first_leave_the_delegate() -> None:
    told = {label: one.executed.fallbacks for label, one in ran().items() if one.executed.fallbacks}
    assert told == {"int4": ("not in XNNPACK but in LiteRT's own kernels: 4 FULLY_CONNECTED",)}


def test_threads_that_begin_in_a_call_are_not_counted_as_if_there_were_none() -> None:
    found = ran()[OWN]
    assert found.executed.threads is None
    assert executed_fault(found.executed, found.arm) is None


def test_groups_have_scales_of_their_own() -> None:
    assert ran()[GROUPED].executed.artifact_bytes != ran()["int4/activations-8"].executed.artifact_bytes


def node(kind: str, shapes: list[tuple[int, ...]], types: list[str], **how: Any) -> LiteRtNode:
    settings = {"unpacked": False, **how}
    return LiteRtNode(kind, (0, 1), (2,), tuple(shapes), tuple(types), **settings)


@pytest.mark.parametrize(
    ("types", "unpacked", "label"),
    [
        (["FLOAT32", "FLOAT32"], False, "fp32"),
        (["FLOAT32", "FLOAT16"], False, "fp32"),
        (["FLOAT32", "INT8"], False, "int8"),
        (["FLOAT32", "INT8"], True, "int8-weights"),
        (["FLOAT32", "INT4"], True, "int4"),
        (["INT8", "FLOAT32"], True, "int8-weights"),
        (["INT4", "FLOAT32"], True, "int4"),
        (["FLOAT32", "INT4"], False, "int4-activations-8"),
        (["INT8", "INT8"], False, "int8"),
        (["INT16", "FLOAT32"], False, "int16"),
    ],
)
def test_a_product_is_named_by_its_operands(types: list[str], unpacked: bool, label: str) -> None:
    assert _product_label(node("FULLY_CONNECTED", [(1, 2), (3, 2), (1, 3)], types, unpacked=unpacked)) == label
