"""`shootout sensitivity`: what quantizing each layer alone does to a model."""

from __future__ import annotations

from shootout.commands.output import print_answer, show_progress
from shootout.errors import UsageError
from shootout.export.sensitivity import rank_layers
from shootout.report import layers_table
from shootout.study import points, schema
from shootout.study.options import ModelOptions


def sensitivity(options: ModelOptions, *, as_json: bool) -> int:
    """Measure each layer and print; returns the exit code.

    Raises:
        UsageError: more than one model is asked for.
    """
    chosen = schema.choose("shootout", options)
    (point, *more) = points.points(chosen)
    if more:
        raise UsageError(
            f"sensitivity looks at one model at a time: give one value for each --set, got {len(more) + 1} models"
        )
    with show_progress() as progress:
        progress.stage(f"quantizing each layer of {points.group_name(point)} alone")
        found = rank_layers(points.request(chosen, point))
    return print_answer(layers_table.render(found), layers_table.as_data(found), as_json=as_json)
