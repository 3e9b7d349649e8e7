"""Hold a model with the data that its user has, and the measure computed by hand, apart from the product's metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array, Arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model with data.

    Attributes:
        model: the file, which each run gets a copy of.
        inputs: by name, rows along axis 0.
        truth: an array, one by name, or a list with an entry a row; None: the model's own FP32 outputs are the truth.
        measure: the command's words about it: `--metric`, `--scores`, `--max-drop`.
        sizes: of free axes, as `--set` takes them.
        files: what else lies in the folder, by name: a metric's source.
        score: takes the outputs of one call with one row, and what is right for it.
        lower_is_better: the score is an error.
        source: where inputs and truth come from.
    """

    model: Path
    inputs: Arrays
    truth: Any
    measure: Sequence[str]
    score: Callable[[Arrays, Any], float]
    source: str
    lower_is_better: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))


def measure_iou(mask: Array, right: Array) -> float:
    """Return the overlap of two masks."""
    either = (mask | right).sum()
    return float((mask & right).sum() / either) if either else 1.0


def read_ctc(scores: Array) -> list[int]:
    """Return the text of (steps, classes) by greedy decoding; class 0 is the blank."""
    found, last = [], 0
    for best in scores.argmax(axis=1).tolist():
        if best not in (0, last):
            found.append(best)
        last = best
    return found


def measure_text(found: Sequence[int], right: Sequence[int]) -> float:
    """Return 1 minus the edit distance, per symbol of the longer text."""
    table = [list(range(len(right) + 1))]
    for at, symbol in enumerate(found, 1):
        above = table[-1]
        line = [at]
        for place, other in enumerate(right):
            line.append(min(above[place + 1] + 1, line[place] + 1, above[place] + (symbol != other)))
        table.append(line)
    return 1 - table[-1][-1] / max(len(found), len(right), 1)


def measure_boxes(found: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> float:
    """Return the F1 of boxes (x1, y1, x2, y2, score, class), matched at an overlap of 0.5, the surest first."""
    if not len(found) or not len(right):
        return float(len(found) == len(right))
    free, hits = list(right), 0
    for box in sorted(found, key=lambda one: -one[4]):
        overlaps = [measure_overlap(box, other) if box[5] == other[5] else 0.0 for other in free]
        if overlaps and max(overlaps) >= 0.5:
            hits += 1
            free.pop(int(np.argmax(overlaps)))
    return 2 * hits / (len(found) + len(right))


def measure_overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    common = max(width, 0.0) * max(height, 0.0)
    areas = [max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0) for box in (one, other)]
    return common / (sum(areas) - common) if common else 0.0
