"""Read the reference graph, and look inside a target and compare it with that graph, each in a worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from shootout.backends.optional import Inside, TransparentAdapter
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Artifact
from shootout.core.errors import SkippedArm
from shootout.core.exported.fidelity import worst_error
from shootout.core.exported.model import ExportedModel
from shootout.core.host.placement import on_cpus
from shootout.core.worker.verification import call_once
from shootout.tell import registered

SETS = 3
"""Input sets that are run: their tensors are all in memory."""


def describe_graph(graph: Path) -> dict[str, Any]:
    """Return the fields of a graph's `Outline`."""
    from shootout.quantize import layer_errors

    return layer_errors.describe_graph(graph)


def look_inside(
    built: Built, reference: ExportedModel, rows: Sequence[int], values: Collection[str], cpus: frozenset[int]
) -> tuple[Inside, list[dict[str, Any]], dict[str, float | None]]:
    """Read a target's tensors, and compare them with the float graph's.

    Args:
        reference: whose graph, inputs and right outputs count.
        rows: the numbers of those that have to be among the input sets (see `OutputError.row`).
        cpus: for the float graph, which runs after the target is done.

    Returns:
        What the adapter shows, without tensors and outputs; the fields of each layer's `LayerError`; and those of a
        `SideSummary` that tell of the outputs.

    Raises:
        SkippedArm: its adapter can't show that.
    """
    from shootout.quantize.layer_errors import measure_errors, name_precision

    name = built.arm.target.backend
    adapter = backends.get(name)
    if not registered.shows_inside(name):
        others = [other for other in backends.names() if registered.shows_inside(other)]
        raise SkippedArm(f"{name}'s adapter doesn't show what is inside", f"explain a target of {', '.join(others)}")
    buffers, outputs = reference.input_buffers(), reference.reference_outputs()
    chosen = choose_sets(reference, rows, len(buffers))
    sets, right = [buffers[number] for number in chosen], [outputs[number] for number in chosen]
    session = adapter.load(built)
    raced = [dict(call_once(session, one, slot)) for slot, one in enumerate(sets)]
    session.close()
    inside = cast("TransparentAdapter", adapter).look_inside(built, sets, values)
    with on_cpus(cpus):
        errors = measure_errors(reference.path(Artifact.ONNX), sets, inside, name_precision(built))
    told = {"read_error": worst_error(inside.outputs, right), "instrumented": worst_error(inside.outputs, raced)}
    return replace(inside, tensors={}, outputs=()), errors, told


def choose_sets(reference: ExportedModel, rows: Sequence[int], count: int) -> list[int]:
    """Choose up to `SETS` of so many input sets: those that hold these rows, and the first of all."""
    numbers = [reference.number_row(at) for at in range(count * reference.batch)]
    holding = [numbers.index(row) // reference.batch for row in rows if row in numbers]
    return sorted([*dict.fromkeys([*holding, *range(count)])][:SETS])
