"""Models that this project did not make, from the installed `onnx` package, on both backends that take a file.

Twenty of them must run and agree with the reference outputs and with the outputs that the package expects, six of these
in each `make test`; four others must be turned down, each for its reason. `make bench` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.onnx_cases import AGREES, BACKENDS, Result, run, stored_cases
from shootout.core.host.placement import place

AGREED = {
    "test_Conv1d_dilated",
    "test_Conv2d_depthwise_padded",
    "test_Conv2d_groups",
    "test_Conv3d_stride_padding",
    "test_ConvTranspose2d",
    "test_ELU",
    "test_Embedding",
    "test_LogSoftmax",
    "test_MaxPool1d_stride_padding_dilation",
    "test_PixelShuffle",
    "test_ReflectionPad2d",
    "test_Softplus",
    "test_operator_chunk",
    "test_operator_concat2",
    "test_operator_conv",
    "test_operator_convtranspose",
    "test_operator_reduced_mean_keepdim",
    "test_sequence_model4",
    "test_shrink",
    "test_single_relu_model",
}
REFUSED = {
    "test_AvgPool1d": "Could not find an implementation for AveragePool(1)",
    "test_expand_shape_model1": "is constant",
    "test_strnorm_model_monday_empty_output": "can't hold",
}


QUICK = {
    "test_Conv3d_stride_padding",
    "test_ConvTranspose2d",
    "test_Embedding",
    "test_PixelShuffle",
    "test_operator_reduced_mean_keepdim",
    "test_shrink",
}


def ran(names: set[str], folder: Path) -> dict[str, Result]:
    found = run([case for case in stored_cases() if case.name in names], folder, place(None), builders=())
    assert {one.name for one in found} == names, "all are in the package"
    return {one.name: one for one in found}


def require_agreement(names: set[str], folder: Path) -> None:
    found = {name: (one.file, dict(one.backends)) for name, one in ran(names, folder).items()}
    assert found == dict.fromkeys(names, (AGREES, dict.fromkeys(BACKENDS, AGREES)))


def test_foreign_models_run_and_agree(tmp_path: Path):
    require_agreement(QUICK, tmp_path)


@pytest.mark.slow
def test_more_foreign_models_run_and_agree(tmp_path: Path):
    require_agreement(AGREED - QUICK, tmp_path)


def test_foreign_models_that_prove_nothing_are_refused(tmp_path: Path):
    for name, result in ran(set(REFUSED), tmp_path).items():
        assert REFUSED[name] in result.file
        assert not result.backends
