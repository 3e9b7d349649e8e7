"""Read the reference graph, look inside a target, and compare the two, each in a worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from shootout import backends
from shootout.backends.adapter import Built, TransparentAdapter
from shootout.contract import Array, Arrays, Inside
from shootout.errors import SkippedArm
from shootout.exported.fidelity import larger, worst_error
from shootout.exported.model import ExportedModel
from shootout.worker.verification import call_once

SETS = 3
"""So many input sets are run: their tensors are all in memory."""


def describe_graph(graph: Path) -> dict[str, Any]:
    """Return the fields of a graph's `Outline`."""
    from shootout.explain.graph import read_outline
    from shootout.exported import onnx_files

    return asdict(read_outline(onnx_files.header(graph)))


def look_inside(
    built: Built, reference: ExportedModel, values: Collection[str], keep: Path
) -> tuple[Inside, float | None]:
    """Return what is known of a target's inside, and how far its outputs are from the raced artifact's.

    Args:
        reference: whose inputs are run.
        keep: a file for its tensors and outputs, which the answer leaves out.

    Raises:
        SkippedArm: its adapter can't show that.
    """
    name = built.arm.target.backend
    adapter = backends.get(name)
    if not backends.shows_inside(name):
        others = [other for other in backends.names() if backends.shows_inside(other)]
        raise SkippedArm(f"{name}'s adapter doesn't show what is inside", f"explain a target of {', '.join(others)}")
    sets = reference.input_buffers()[:SETS]
    session = adapter.load(built)
    raced = [dict(call_once(session, one, slot)) for slot, one in enumerate(sets)]
    session.close()
    inside = cast("TransparentAdapter", adapter).look_inside(built, sets, values)
    _save(keep, inside)
    return replace(inside, tensors={}, outputs=()), differ_by(inside.outputs, raced)


def differ_by(outputs: Sequence[Arrays], raced: Sequence[Arrays]) -> float | None:
    """Return how far outputs are from the raced ones: relative L2, or the share of unequal whole numbers if larger.

    What isn't finite in both is alike. What isn't in one alone has no distance: None.
    """
    pairs = [_hide_unfit(one, other) for one, other in zip(outputs, raced, strict=True)]
    error = worst_error([one for one, _ in pairs], [other for _, other in pairs])
    return larger(error, share_unequal(outputs, raced) or 0.0)


def _hide_unfit(one: Arrays, other: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the float outputs of both, with zeros where neither is finite."""
    names = [name for name, array in other.items() if array.dtype.kind == "f"]
    unfit = {name: ~(np.isfinite(one[name]) | np.isfinite(other[name])) for name in names}
    first, second = ({name: np.where(unfit[name], 0, some[name]) for name in names} for some in (one, other))
    return first, second


def share_unequal(outputs: Sequence[Arrays], reference_outputs: Sequence[Arrays]) -> float | None:
    """Return the share of the whole numbers and booleans in outputs that differ; None if all outputs are floats."""
    pairs = [
        (one[name], right)
        for one, wanted in zip(outputs, reference_outputs, strict=True)
        for name, right in wanted.items()
        if right.dtype.kind != "f"
    ]
    count = sum(right.size for _, right in pairs)
    return sum(int(np.count_nonzero(one != right)) for one, right in pairs) / count if count else None


def compare(
    graph: Path, reference: ExportedModel, inside: Inside, kept: Path, precision: str
) -> tuple[list[dict[str, Any]], float | None, float | None]:
    """Return the fields of each layer's `LayerError`, and a `SideSummary`'s `output_error` and `unequal`.

    Args:
        reference: whose inputs and right outputs count.
        kept: the file with the tensors and outputs of `inside`.
        precision: a key of `ExportedModel.error_bounds`.
    """
    from shootout.explain.errors import measure_errors

    sets, right = reference.input_buffers()[:SETS], reference.reference_outputs()[:SETS]
    whole = _load(kept, inside)
    are_floats = any(array.dtype.kind == "f" for array in right[0].values())
    error = worst_error(whole.outputs, right) if are_floats else None
    unequal = None if are_floats and error is None else share_unequal(whole.outputs, right)
    return measure_errors(graph, sets, whole, precision), error, unequal


def _save(path: Path, inside: Inside) -> None:
    arrays = {f"tensor {at} {name}": one for name, some in inside.tensors.items() for at, one in enumerate(some)}
    arrays |= {f"output {at} {name}": y for at, one in enumerate(inside.outputs) for name, y in one.items()}
    numbered: dict[str, Any] = {str(number): array for number, array in enumerate(arrays.values())}
    np.savez(path, names=np.array([*arrays]), **numbered)


def _load(path: Path, inside: Inside) -> Inside:
    tensors, outputs = dict[str, list[Array]](), list[dict[str, Array]]()
    with np.load(path, allow_pickle=False) as stored:
        for number, told in enumerate(stored["names"]):
            kind, at, name = str(told).split(" ", 2)
            if kind == "tensor":
                tensors.setdefault(name, []).append(stored[str(number)])
                continue
            outputs += [{}] * (int(at) == len(outputs))
            outputs[int(at)] = {**outputs[int(at)], name: stored[str(number)]}
    return replace(inside, tensors={name: tuple(some) for name, some in tensors.items()}, outputs=tuple(outputs))


def precision_of_file(graph: Path) -> str:
    """Return what an ONNX file in its own precisions rounds most, a key of `ExportedModel.error_bounds`."""
    from shootout.contract import Precision
    from shootout.exported import onnx_files

    own = onnx_files.own_precisions(onnx_files.header(graph))
    order = (Precision.INT4, Precision.FP8, Precision.INT8, Precision.BF16, Precision.FP16)
    return next((str(one) for one in order if one in own), str(Precision.FP32))
