"""ncnn's files: what a `.param` lists, and whether a `.bin` stores matrices in float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.backends._ncnn.backend import _stores_weights
from shootout.backends._ncnn.convert import HALF_TAG, holds_halves, read_param

PARAM = """7767517
4 4
Input        in0  0 1 in0
InnerProduct fc   1 1 in0 1 0=3 1=1 2=15 -23310=1,2.0
PReLU        act  1 1 1 2 0=1
Convolution  conv 2 1 2 w out0 0=1 19=1
"""


def test_layers_have_their_parameters_by_number(tmp_path: Path):
    (tmp_path / "model.param").write_text(PARAM)
    layers = read_param(tmp_path / "model.param")
    assert [(one.kind, one.number(0)) for one in layers] == [
        ("Input", 0),
        ("InnerProduct", 3),
        ("PReLU", 1),
        ("Convolution", 1),
    ]
    assert [_stores_weights(layers[place]) for place in (1, 3)] == [True, False]


@pytest.mark.parametrize(("tag", "dtype"), [(HALF_TAG, np.float16), (bytes(4), np.float32)])
def test_a_file_of_halves_is_known_by_its_tag(tag: bytes, dtype: type, tmp_path: Path):
    (tmp_path / "model.bin").write_bytes(np.ones(3, np.float32).tobytes() + tag + np.ones(16, dtype).tobytes())
    assert holds_halves(tmp_path / "model.bin") is (dtype is np.float16)
