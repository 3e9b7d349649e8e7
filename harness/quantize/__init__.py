"""Round, predict error bounds, write Q/DQ models, count operations: a library of sources, backends and apps.

In: a model's graph and calibration data. Out: quantized files, and the error that they predict.
"""

from __future__ import annotations

INT8_LEVELS = 127
"""Steps on each side of zero of a symmetric 8-bit grid."""
INT4_LEVELS = 7
"""Likewise of a 4-bit grid."""
E4M3_MAX = 448.0
"""FP8's largest number."""
INT4_GROUP = 128
"""Inputs of a channel that share a scale in the predicted INT4; vendors' groups are as large or smaller."""
RANGE_SETS = 64
"""Calibration sets that give the predicted INT8 its ranges, beside the input buffers."""
