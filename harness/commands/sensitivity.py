"""`shootout sensitivity`: what quantizing each layer alone does to a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.commands.output import print_answer, show_progress
from shootout.errors import UsageError
from shootout.export.sensitivity import rank_layers
from shootout.host.store import in_use
from shootout.quantize.sensitivity import LayerSensitivity
from shootout.report.columns import Cell, make_table
from shootout.study import points, selection
from shootout.study.options import InputOptions
from shootout.units import size

HEADERS = ("layer", "operator", "SQNR", "weights", "operations")


def sensitivity(model: str, options: InputOptions, *, as_json: bool) -> int:
    """Measure each layer and print; return the exit code.

    Raises:
        UsageError: more than one model is asked for.
    """
    chosen = selection.choose(selection.DEFAULT, {"model": model, **options})
    (point, *more) = points.points(chosen)
    if more:
        raise UsageError(
            f"sensitivity looks at one model at a time: give one value for each --set, got {len(more) + 1} models"
        )
    with in_use(), show_progress() as progress:
        progress.stage(f"quantizing each layer of {points.group_name(point)} alone")
        layers = rank_layers(points.request(chosen, point))
    return print_answer(render(layers), as_data(layers), as_json=as_json)


def render(layers: Sequence[LayerSensitivity]) -> RenderableType:
    """Render a table, the worst layer first, and that layer's name."""
    table = make_table(HEADERS, [_layer_line(layer) for layer in layers], left=("layer", "operator"))
    worst = layers[0]
    note = f"Worst: {worst.name}. SQNR: of the model's outputs, with this layer alone in INT8; more is better."
    return Group(table, Text(note))


def _layer_line(layer: LayerSensitivity) -> dict[str, Cell]:
    decibels = f"{layer.sqnr_db:.1f} dB" if math.isfinite(layer.sqnr_db) else "exact" if layer.sqnr_db > 0 else "NaN"
    weights = size(layer.weight_bytes) if layer.weight_bytes else ""
    cells: tuple[Cell, ...] = (layer.name, layer.operator, decibels, weights, f"{layer.flops_share:.1%}")
    return dict(zip(HEADERS, cells, strict=True))


def as_data(found: Sequence[LayerSensitivity]) -> dict[str, Any]:
    """Return the layers as JSON values; `sqnr_db` is null without error, or with NaN outputs (`finite` false)."""
    return {
        "layers": [
            {
                **asdict(layer),
                "sqnr_db": layer.sqnr_db if math.isfinite(layer.sqnr_db) else None,
                "finite": layer.sqnr_db > -math.inf,
            }
            for layer in found
        ]
    }
