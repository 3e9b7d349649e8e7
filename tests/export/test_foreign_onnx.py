"""Models that this project did not make, from the installed `onnx` package, on both backends that take a file.

Twenty of them must run and agree with the reference outputs and with the outputs that the package expects; four others
must be turned down, each for its reason. `make bench` runs all of them.
"""

from __future__ import annotations

import pytest

from lab.onnx_cases import AGREES, BACKENDS, Result, run, stored_cases
from shootout.host.placement import place

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
    "test_operator_sqrt": "has NaN or infinity",
    "test_strnorm_model_monday_empty_output": "can't hold",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    chosen = [case for case in stored_cases() if case.name in AGREED | set(REFUSED)]
    return {one.name: one for one in run(chosen, tmp_path_factory.mktemp("onnx"), place(None), builders=())}


def test_all_chosen_models_are_in_the_package(results: dict[str, Result]):
    assert set(results) == AGREED | set(REFUSED)


@pytest.mark.parametrize("name", sorted(AGREED))
def test_a_foreign_model_runs_and_agrees(results: dict[str, Result], name: str):
    assert (results[name].file, dict(results[name].backends)) == (AGREES, dict.fromkeys(BACKENDS, AGREES))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_foreign_model_that_proves_nothing_is_refused(results: dict[str, Result], name: str):
    assert REFUSED[name] in results[name].file
    assert not results[name].backends
