"""ncnn's files: what a `.bin` stores is read by its `.param`; one that does not fit it proves nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.backends._ncnn.convert import read_param, read_storage
from shootout.core.errors import SkippedArm

PARAM = """7767517
4 4
Input        in0  0 1 in0
InnerProduct fc   1 1 in0 1 0=3 1=1 2=15 -23310=1,2.0
PReLU        act  1 1 1 2 0=1
GRU          gru  1 1 2 out0 0=1 1=9
"""
HALF, WHOLE = (0x01306B47).to_bytes(4, "little"), bytes(4)


def numbers(count: int, dtype: type = np.float32) -> bytes:
    return np.ones(count, dtype).tobytes()


def written(folder: Path, whole: bytes) -> list[set[str]]:
    (folder / "model.param").write_text(PARAM)
    (folder / "model.bin").write_bytes(whole)
    return read_storage(folder / "model.bin", read_param(folder / "model.param"))


DENSE = HALF + numbers(15, np.float16) + bytes(2) + numbers(3) + numbers(1)
GRU = WHOLE + numbers(9) + WHOLE + numbers(4) + WHOLE + numbers(3)


def test_each_layer_s_matrices_are_told_by_their_tags(tmp_path: Path):
    assert written(tmp_path, DENSE + GRU) == [set(), {"fp16"}, set(), {"fp32"}]


@pytest.mark.parametrize("whole", [DENSE, DENSE + GRU + numbers(1), b"what" + DENSE[4:] + GRU], ids=len)
def test_a_file_that_holds_something_else_is_a_skip(tmp_path: Path, whole: bytes):
    with pytest.raises(SkippedArm, match=r"nothing tells in what precision model\.bin holds its weights"):
        written(tmp_path, whole)
