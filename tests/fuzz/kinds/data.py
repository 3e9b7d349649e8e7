"""Data files: `--inputs`, `--labels`, `--calibration`."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis.strategies import SearchStrategy

from shootout.contract import TensorSpec
from shootout.exported import data_files
from tests.fuzz.edits import edited_bytes

SPECS = (TensorSpec(name="x", shape=(1, 4), dtype="float32"),)


@cache
def _wholes() -> tuple[bytes, ...]:
    def of(save: object = np.savez, **arrays: object) -> bytes:
        file = io.BytesIO()
        save(file, **arrays)  # type: ignore[operator]
        return file.getvalue()

    x, y = np.zeros((3, 4), np.float32), np.arange(3)
    plain = io.BytesIO()
    np.save(plain, x)
    packed = of(np.savez_compressed, x=x, labels=y)
    return of(x=x), of(x=x[:, None]), of(x=x, labels=y), packed, of(x=x.astype("<U4")), plain.getvalue()


def inputs() -> SearchStrategy[bytes]:
    return edited_bytes(_wholes())


def read(data: bytes, folder: Path) -> None:
    file = folder / "data.npz"
    file.write_bytes(data)
    data_files.check(file, SPECS)
