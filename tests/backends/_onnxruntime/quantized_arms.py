"""What the tests of ONNX Runtime's quantized arms share: an arm built and run, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from shootout.backends._onnxruntime.quantize import QUANTIZED
from shootout.core import backends
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import call

DIGITS = Request(model="digits", batch=2)
RESIDUAL = Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2)


@dataclass(frozen=True)
class Ran:
    """One arm: its account, its outputs for every buffer, the operations in its graph, its notes; or what it said."""

    arm: Arm
    executed: Executed | None = None
    outputs: tuple[dict[str, np.ndarray], ...] = ()
    operations: tuple[str, ...] = ()
    said: str = ""
    notes: tuple[str, ...] = ()


def arm_of(exported: ExportedModel, precision: Precision, scheme: str) -> Arm:
    target = Target(backend="onnxruntime", precision=precision, scheme=scheme)
    return Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)


def run_arms(exported: ExportedModel, arms: list[Arm], folder: Path) -> list[Ran]:
    return run_pairs([(exported, arm) for arm in arms], folder)


def run_pairs(work: list[tuple[ExportedModel, Arm]], folder: Path) -> list[Ran]:
    return [run_arm(exported, arm, folder / str(index)) for index, (exported, arm) in enumerate(work)]


def run_arm(exported: ExportedModel, arm: Arm, folder: Path) -> Ran:
    folder.mkdir()
    adapter = backends.get("onnxruntime")
    try:
        built = adapter.build(exported, arm, folder)
    except (ValueError, SkippedArm) as error:
        return Ran(arm, said=str(error))
    assert {path.name for path in folder.iterdir()} - {QUANTIZED} == {"model.onnx"}
    session = adapter.load(built)
    outputs = tuple(dict(call(session, inputs, slot)) for slot, inputs in enumerate(exported.input_buffers()))
    operations = tuple(node.op_type for node in onnx.load(folder / "model.onnx").graph.node)
    return Ran(arm, session.executed, outputs, operations, notes=tuple(built.facts["notes"]))


def gated(exported: ExportedModel, found: Ran) -> str | None:
    error = fidelity.compare(found.outputs, exported.reference_outputs())
    return fidelity.gate(error, *exported.error_bound(found.arm.target))
