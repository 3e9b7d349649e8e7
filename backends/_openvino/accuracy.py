"""NNCF's search for an INT8 model that stays within a limit of accuracy: layers go back to float until it does.

It looks at the calibration split's labels only, so the accuracy that the harness reports, on another split, is fair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.bundle.fidelity import rows
from shootout.contract import Array
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle, Report

MAX_DROP = 0.005
"""Accuracy that quantization may cost on the selection split, as a share of its rows."""
Item = tuple[dict[str, Array], Array]
"""One batch of inputs, filled up, and the labels of its first rows."""


def with_accuracy_control(nncf: Any, model: Any, bundle: ModelBundle, dataset: Any, settings: Mapping[str, Any]) -> Any:
    """`model` in INT8, except where that costs too much accuracy.

    Args:
        dataset: the calibration data as NNCF's.
        settings: keywords for NNCF.

    Raises:
        SkippedArm: the model comes without labels.
    """
    split = bundle.selection()
    if split is None:
        reason = f"accuracy-control needs labelled data to select by, and {bundle.model} has none"
        raise SkippedArm(reason, "choose a model with a task, such as digits, or another scheme")
    return nncf.quantize_with_accuracy_control(
        model,
        dataset,
        nncf.Dataset(_items(split, bundle.batch), lambda item: item[0]),
        _validate,
        max_drop=MAX_DROP,
        drop_type=nncf.DropType.ABSOLUTE,
        **settings,
    )


def _items(split: Report, batch: int) -> list[Item]:
    return [
        ({name: rows(array, first, batch) for name, array in split.inputs.items()}, split.labels[first : first + batch])
        for first in range(0, len(split.labels), batch)
    ]


def _validate(model: Any, items: Iterable[Item]) -> tuple[float, list[float]]:
    """The accuracy, and the share of right rows in each item, by which NNCF ranks the layers."""
    right = [model(inputs)[0][: len(labels)].argmax(axis=-1) == labels for inputs, labels in items]
    return float(np.concatenate(right).mean()), [float(one.mean()) for one in right]
