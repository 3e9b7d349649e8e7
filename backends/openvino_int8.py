"""Static INT8 for OpenVINO by NNCF, its vendor's own quantizer: ranges come from the model's calibration split.

Only `build` needs NNCF (which imports torch where that is installed); a session reads the finished file.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from shootout.backends.openvino_graph import PRODUCTS, import_openvino
from shootout.contract import Arrays
from shootout.errors import SkippedArm

OPTIONS = ("model_type", "preset", "range_estimator", "subset_size")
"""NNCF's own knobs that an INT8 arm may set."""
SUBSET_SIZE = 300
"""NNCF's default number of calibration samples, where the split has as many."""


def quantize(model: Any, samples: Sequence[Arrays], options: Mapping[str, str]) -> Any:
    """`model` with its products and convolutions in INT8.

    Args:
        model: an OpenVINO model with float weights.
        samples: the calibration split, one input set each.
        options: of OPTIONS: `model_type=transformer`, `preset=performance|mixed`, `subset_size=N`, and
            `range_estimator=minmax` or another of NNCF's. Its default, the mean of the samples' extremes, clips.

    Raises:
        SkippedArm: NNCF is not installed.
        ValueError: nothing can be quantized, the calibration data isn't finite, or an option's value is wrong.
    """
    if not any(re.search(PRODUCTS, op.get_type_name()) for op in model.get_ops()):
        raise ValueError("nothing to quantize: the model has no matrix product and no convolution")
    _check_finite(samples)
    nncf = _import_nncf()
    settings = {
        "subset_size": _subset_size(options, len(samples)),
        "preset": _chosen(nncf.QuantizationPreset, "preset", options),
        "model_type": _chosen(nncf.ModelType, "model_type", options),
        "advanced_parameters": _advanced(options),
    }
    # It draws its progress bars on stdout; what it has to say about a failure is in its exceptions.
    with redirect_stdout(io.StringIO()):
        return nncf.quantize(
            model, nncf.Dataset([dict(one) for one in samples]), target_device=nncf.TargetDevice.CPU, **settings
        )


def _import_nncf() -> Any:
    import_openvino()
    try:
        import nncf
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed, and NNCF quantizes for OpenVINO"
        raise SkippedArm(reason, "pip install 'shootout[openvino]'") from None
    nncf.set_log_level(logging.ERROR)
    return nncf


def _check_finite(samples: Sequence[Arrays]) -> None:
    for index, sample in enumerate(samples):
        for name, array in sample.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"calibration sample {index}: input {name!r} has NaN or infinity")


def _subset_size(options: Mapping[str, str], available: int) -> int:
    asked = options.get("subset_size", str(min(SUBSET_SIZE, available)))
    if not asked.isdecimal() or not 1 <= int(asked) <= available:
        raise ValueError(f"subset_size must be 1 to {available} (the calibration split's samples), got {asked!r}")
    return int(asked)


def _advanced(options: Mapping[str, str]) -> Any:
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    known = {name.lower(): value for name, value in vars(RangeEstimatorParametersSet).items() if name.isupper()}
    asked = options.get("range_estimator")
    if asked is None:
        return None
    if asked not in known:
        raise ValueError(f"range_estimator must be {' or '.join(sorted(known))}, got {asked!r}")
    return AdvancedQuantizationParameters(activations_range_estimator_params=known[asked])


def _chosen(kinds: Any, name: str, options: Mapping[str, str]) -> Any:
    """The member of one of NNCF's enums; None, NNCF's own choice, where the option isn't given."""
    known = {str(kind.value): kind for kind in kinds}
    if (asked := options.get(name)) is not None and asked not in known:
        raise ValueError(f"{name} must be {' or '.join(sorted(known))}, got {asked!r}")
    return known[asked] if asked is not None else None
