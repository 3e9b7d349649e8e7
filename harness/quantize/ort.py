"""Prepare ONNX Runtime's quantizers: a graph as they need it, calibration sets, and silence.

Adapters import this too, so ONNX and its runtime are imported at the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from shootout.core.contract import Arrays

PER_CHANNEL_OPSET = 13
"""Older files have no DequantizeLinear with one scale for each channel."""


class CalibrationReader:
    """Calibration sets as ONNX Runtime reads them: in turn, from a part of them that it chooses."""

    def __init__(self, sets: Sequence[Arrays]) -> None:
        self._sets = sets
        self._left = iter(sets)

    def __len__(self) -> int:
        return len(self._sets)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Go on with these sets."""
        self._left = iter(self._sets[start_index:end_index])

    def get_next(self) -> dict[str, Any] | None:
        """Return the next set; None after the last."""
        found = next(self._left, None)
        return None if found is None else dict(found)


def prepared(source: Path, folder: Path) -> Path:
    """Prepare the model at `source` for quantizers: constants folded, BatchNorm inside convolutions, shapes known."""
    import onnx
    from onnx import version_converter
    from onnxruntime.quantization import quant_pre_process

    from shootout.models.onnx import onnx_files

    path = folder / "prepared.onnx"
    model = onnx.load(source, load_external_data=False)
    opset = next((used.version for used in model.opset_import if used.domain in {"", "ai.onnx"}), PER_CHANNEL_OPSET)
    if opset < PER_CHANNEL_OPSET:
        converted = version_converter.convert_version(onnx.load(source), PER_CHANNEL_OPSET)
        source = folder / "converted.onnx"
        onnx_files.save(converted, source)
    quant_pre_process(
        source,
        path,
        skip_symbolic_shape=True,
        save_as_external_data=onnx_files.is_big(source),
        all_tensors_to_one_file=True,
        external_data_location=f"{path.name}.data",
    )
    return path


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the quantizers, which log advice to the root logger and print their progress to stdout."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
