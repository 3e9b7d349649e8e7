"""Read the reference graph, look inside a target, and compare the two, each in a worker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from shootout import backends
from shootout.backends.adapter import Built, TransparentAdapter
from shootout.contract import Array, Inside
from shootout.errors import SkippedArm
from shootout.exported.fidelity import worst_error
from shootout.exported.model import ExportedModel
from shootout.worker.verification import call_once

SETS = 3
"""So many input sets are run: their tensors are all in memory."""


def describe_graph(graph: Path) -> dict[str, Any]:
    """Return the fields of a graph's `Outline`."""
    from shootout.explain.graph import read_outline
    from shootout.exported import onnx_files

    return asdict(read_outline(onnx_files.header(graph)))


def look_inside(built: Built, values: Collection[str], keep: Path) -> tuple[Inside, float | None]:
    """Return what is known of a target's inside, and how far its outputs are from the raced artifact's, relative L2.

    Args:
        keep: a file for its tensors and outputs, which the answer leaves out.

    Raises:
        SkippedArm: its adapter can't show that.
    """
    adapter = backends.get(built.arm.target.backend)
    if not hasattr(adapter, "look_inside"):
        reason = f"{built.arm.target.backend}'s adapter doesn't show what is inside"
        raise SkippedArm(reason, "explain a target of onnxruntime, openvino, torch-eager or litert")
    sets = built.exported.input_buffers()[:SETS]
    session = adapter.load(built)
    raced = [dict(call_once(session, one, slot)) for slot, one in enumerate(sets)]
    session.close()
    inside = cast("TransparentAdapter", adapter).look_inside(built, sets, values)
    floats = [{name: y for name, y in one.items() if y.dtype.kind == "f"} for one in raced]
    _save(keep, inside)
    return replace(inside, tensors={}, outputs=()), worst_error(inside.outputs, floats)


def compare(
    graph: Path, reference: ExportedModel, inside: Inside, kept: Path, precision: str
) -> tuple[list[dict[str, Any]], float | None]:
    """Return the fields of each layer's `LayerError`, and the error of the model's outputs.

    Args:
        reference: whose inputs and right outputs count.
        kept: the file with the tensors and outputs of `inside`.
        precision: a key of `ExportedModel.error_bounds`.
    """
    from shootout.explain.errors import measure_errors

    sets, outputs = reference.input_buffers()[:SETS], reference.reference_outputs()[:SETS]
    floats = [{name: y for name, y in one.items() if y.dtype.kind == "f"} for one in outputs]
    whole = _load(kept, inside)
    return measure_errors(graph, sets, whole, precision), worst_error(whole.outputs, floats)


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
