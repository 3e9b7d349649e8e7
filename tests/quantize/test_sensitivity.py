from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.apps.sensitivity import Wanted, measure, measure_sensitivity
from shootout.core.contract import Artifact
from shootout.core.errors import NothingMeasured, UsageError
from shootout.core.exported.client import Request, obtain
from shootout.core.exported.fidelity import compare
from shootout.models.onnx import onnx_files
from shootout.quantize import qdq
from shootout.testing.checks import exported_models

DIGITS = Request(model="digits", batch=9)


def test_sensitivity_is_asked_of_a_float_model():
    with pytest.raises(UsageError, match="'shared' is quantized already"):
        measure_sensitivity(Request(model="digits", variant="shared"), Wanted())


def test_the_time_holds_for_the_whole_command():
    """The process is ended at the limit, whatever it does."""
    obtain(DIGITS)
    with pytest.raises(NothingMeasured, match="--max-time 0 s was over before what one layer does to digits was"):
        measure_sensitivity(DIGITS, Wanted(limit_s=0.05))


def test_calibration_data_that_cannot_be_used_are_an_error(tmp_path: Path):
    np.savez(tmp_path / "one.npz", x=np.ones((6, 256), np.float32))
    with pytest.raises(UsageError, match="1 calibration set"):
        measure_sensitivity(Request(model="permutation_probe", batch=6, calibration_npz=tmp_path / "one.npz"), Wanted())


@pytest.mark.parametrize("reduced", [False, True])
def test_layers_are_rounded_to_as_many_bits_as_the_shared_file_gets(reduced: bool, tmp_path: Path):
    (exported,) = exported_models(Request(model="digits", batch=2))
    found = measure(exported, Wanted(), reduced=reduced)
    for one in found.parts:
        others = [other.layer.number for other in found.parts if other is not one]
        source, target = exported.path(Artifact.ONNX), tmp_path / "one.onnx"
        qdq.write_shared(source, exported.calibration(), target, reduced=reduced, floats=others)
        outputs = onnx_files.run(target, exported.input_buffers(), "digits")
        assert one.sqnr_db == pytest.approx(compare(outputs, exported.reference_outputs()).sqnr_db, abs=0.3)
