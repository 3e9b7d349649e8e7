"""Operators that `onnx.reference` gets wrong, for its `new_ops`. Imports onnx: for models that are run by it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops import op_conv_transpose

from shootout.contract import Array


class ConvTranspose(op_conv_transpose.ConvTranspose):
    """Compute a transposed convolution group by group.

    onnx 1.23 gives each group the whole bias and one output channel: most shapes fail, and the others are wrong.
    """

    op_domain = ""

    def _run(self, *operands: Any, **attributes: Any) -> tuple[Array]:
        count = attributes.pop("group", None) or 1
        image, kernels, bias = operands if len(operands) == 3 else (*operands, None)
        biases = [None] * count if bias is None else np.split(bias, count)
        parts = zip(np.split(image, count, axis=1), np.split(kernels, count), biases, strict=True)
        run: Any = super()._run
        found = [run(*part, group=1, **attributes)[0] for part in parts]
        return (np.concatenate(found, axis=1),)


CORRECTED = (ConvTranspose,)
