"""Call the rows that a metric scores as a service does: each at the least size that holds it.

So every session of a mix is scored, and not that of the largest size alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from shootout.core.adapter import Session
from shootout.core.contract import Array, Arrays
from shootout.core.exported.calls import saving
from shootout.core.exported.model import REPORT, REPORT_OUTPUTS, ROWS, SPANS, ExportedModel, aligned
from shootout.core.worker.verification import call_once


def can_call(largest: ExportedModel) -> bool:
    """Return whether rows may have their own sizes: it is known where they end, and a mask tells the model."""
    is_masked = any("mask" in spec.name.lower() for spec in largest.inputs)
    return is_masked and largest.has_report and _read_spans(largest) is not None


def keep_outputs(session: Session, sizes: Mapping[int, ExportedModel], folder: Path, slot: int) -> None:
    """Leave the outputs for the rows of the report split in a folder, in the shapes of the largest size.

    What the call of a smaller size leaves out there is padding. It has the model's own outputs if these are known, and
    else zeros. A metric that counts places counts such padding as right.

    Args:
        session: takes the inputs of each size.
        sizes: the models by size, rising; the rows lie in the last.
        slot: that keeps no timed inputs.
    """
    largest = [*sizes.values()][-1]
    report, spans, own = largest.report(), _read_spans(largest), _read_own(largest)
    assert report, "as `can_call` found"
    assert spans is not None, "likewise"
    (begins, ends), count = spans.T, len(report.rows)
    is_left = bool(begins.any())

    def answer(given: Arrays) -> Arrays:
        rows = given[ROWS]
        model = next(one for size, one in sizes.items() if size >= (ends - begins)[rows].max())
        whole = report.take(rows)
        inputs = {
            spec.name: aligned(whole[spec.name][_corner(spec.shape, whole[spec.name].shape, is_left=is_left)])
            for spec in model.inputs
        }
        outputs, shapes = call_once(session, inputs, slot), {spec.name: spec.shape for spec in largest.outputs}
        return {
            name: array if array.shape == shapes[name] else _widen(array, shapes[name], own.get(name), rows, is_left)
            for name, array in outputs.items()
        }

    run = saving(answer, folder, calls=-(-count // largest.batch))
    for first in range(0, count, largest.batch):
        run({ROWS: np.arange(first, first + largest.batch) % count})


def _read_spans(model: ExportedModel) -> Array | None:
    with np.load(model.folder / REPORT, allow_pickle=False) as stored:
        return stored[SPANS] if SPANS in stored.files else None


def _read_own(model: ExportedModel) -> dict[str, Array]:
    """Return the model's own outputs for the rows of its report split; none if a metric asked for none."""
    if not (model.folder / REPORT_OUTPUTS).exists():
        return {}
    with np.load(model.folder / REPORT_OUTPUTS, allow_pickle=False) as stored:
        return {spec.name: stored[str(index)] for index, spec in enumerate(model.outputs)}


def _corner(shape: Sequence[int], whole: Sequence[int], *, is_left: bool) -> tuple[slice, ...]:
    """Return what cuts an array of this shape out of a larger one, from the end if the beginning is padding."""
    return tuple(
        slice(large - size if is_left else 0, large if is_left else size)
        for size, large in zip(shape, whole, strict=True)
    )


def _widen(array: Array, shape: Sequence[int], own: Array | None, rows: Array, is_left: bool) -> Array:
    wide = np.zeros(shape, array.dtype) if own is None else own[rows].astype(array.dtype)
    wide[_corner(array.shape, shape, is_left=is_left)] = array
    return wide
