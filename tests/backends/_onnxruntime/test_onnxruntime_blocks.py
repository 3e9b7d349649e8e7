"""Weights in blocks (MatMulNBits), by each of ONNX Runtime's methods, and models that are too big for one file."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from quantized_arms import DIGITS, RESIDUAL, arm_of, gated, run_arm, run_arms, run_pairs

from shootout.backends._onnxruntime.quantize import QUANTIZED
from shootout.core import backends
from shootout.core.contract import Arm, Artifact, Precision
from shootout.core.exported import fidelity
from shootout.core.exported.model import ExportedModel
from shootout.core.host.environment import saturates
from shootout.core.schemes import shown_as
from shootout.models.onnx import onnx_files
from shootout.quantize import qdq
from shootout.testing.checks import OURS, call, exported_models
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

LIMIT = 20_000
"""Bytes of a file, in place of 2 GB."""


def test_a_block_size_is_for_blocks_and_makes_a_difference(tmp_path: Path):
    (exported,) = exported_models(DIGITS)
    arms = [arm_of(exported, Precision.INT4, "activations-8"), arm_of(exported, Precision.INT8, "")]
    finer = [replace(arm, options={"block_size": "32"}) for arm in arms]
    plain, blocked, static = run_fresh(run_arms, exported, [arms[0], *finer], tmp_path, warm=OURS)
    sqnr_db = [fidelity.compare(one.outputs, exported.reference_outputs()).sqnr_db or 0.0 for one in (plain, blocked)]
    assert sqnr_db[1] > sqnr_db[0]
    assert static.said == "option 'block_size' is MatMulNBits' own, for int4 and int8/weights-only, not for int8"


def test_methods_are_onnxruntime_s_own_and_say_what_they_cannot_take(tmp_path: Path):
    exported, digits = exported_models(RESIDUAL, DIGITS)
    narrow = (digits, arm_of(digits, Precision.INT4, "gptq"))
    words = ["", "hqq", "k-quant", "gptq", "gptq+activations-8", "hqq+activations-8"]
    arms = [replace(arm_of(exported, Precision.INT4, word), options={"block_size": "32"}) for word in words]
    *found, refused, unfit = run_fresh(
        run_pairs, [*((exported, arm) for arm in arms), narrow], tmp_path, warm=f"{OURS},torch"
    )
    for one in found:
        assert one.executed is not None, one.said
        name = shown_as(Precision.INT4, one.arm.target.scheme)
        assert one.executed.compute_nodes_by_precision == {name: 4}
        assert gated(exported, one) is None, one.arm.label
    assert len({one.outputs[0]["y"].tobytes() for one in found}) == len(found)
    assert "HQQ's zero points are fractions" in refused.said
    assert unfit.said.startswith("ONNX Runtime's gptq packs only layers whose inputs divide into blocks of 128")


def run_big(exported_models: list[ExportedModel], arms: list[Arm], folder: Path) -> list[tuple[set[str], bool]]:
    """Every arm on its exported model with weights beside the graphs, and files of less than LIMIT: which it wrote, and
    whether it answers as without the limit. The shared model is also written anew, for the last arm.
    """
    writer = type(onnx.serialization.registry.get("protobuf"))
    write, found = writer.serialize_proto, []

    def limited(self: Any, proto: Any) -> Any:
        assert proto.ByteSize() < LIMIT, "too big for one file"
        return write(self, proto)

    plain = [
        run_arm(*one, folder / f"plain{index}") for index, one in enumerate(zip(exported_models, arms, strict=True))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_files, "INLINE_BYTES", LIMIT // 2)
        patch.setattr(writer, "serialize_proto", limited)
        exported_models[-1] = replace(
            exported_models[-1], folder=Path(shutil.copytree(exported_models[-1].folder, folder / "shared"))
        )
        base, shared = exported_models[0], exported_models[-1].path(Artifact.ONNX)
        qdq.write_shared(base.path(Artifact.ONNX), base.calibration(), shared, reduced=saturates())
        for index, (exported, arm) in enumerate(zip(exported_models, arms, strict=True)):
            (place := folder / str(index)).mkdir()
            adapter = backends.get("onnxruntime")
            session = adapter.load(adapter.build(exported, arm, place))
            outputs = [call(session, inputs, slot) for slot, inputs in enumerate(exported_models[0].input_buffers())]
            same = [np.array_equal(one["y"], y["y"]) for one, y in zip(outputs, plain[index].outputs, strict=True)]
            found.append(({path.name for path in place.iterdir() if QUANTIZED not in path.name}, all(same)))
    return found


def test_a_model_that_no_file_holds_is_quantized_with_its_weights_beside_it(tmp_path: Path):
    """One protobuf ends at 2 GB; here at a fifth of this model."""
    exported, shared = exported_models(DIGITS, replace(DIGITS, variant="shared"))
    kinds = [(Precision.INT8, ""), (Precision.INT8_DYNAMIC, ""), (Precision.INT4, ""), (Precision.INT8, "shared")]
    arms = [arm_of(exported, *one) for one in kinds]
    found = run_fresh(run_big, [exported] * 3 + [shared], arms, tmp_path, warm=OURS)
    assert found == [({"model.onnx", "model.onnx.data"}, True)] * len(arms)
