"""What ExecuTorch's errors mean, where they speak of its own operators and numbers instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

_FIX = "another backend, or a model without that operation"
ERROR_HINTS = (
    ErrorHint(
        said=r"Operator torch\._ops\.(?P<operator>[\w.]+) is not in Core ATen opset",
        reason="ExecuTorch takes torch's core operators only, and {operator} isn't one",
        fix=_FIX,
    ),
    ErrorHint(
        said=r"Missing out variants: \{(?P<operators>[^}]*)\}",
        reason="ExecuTorch has no kernel for what XNNPACK leaves of this model: {operators}",
        fix=_FIX,
    ),
    ErrorHint(
        said=r"method->(?:init|load|execute)\(\) failed with error (?P<number>0x1[0-4])\b",
        reason="ExecuTorch's runtime refuses an operation of this model (error {number}; the worker's log names it)",
        fix=_FIX,
    ),
)
