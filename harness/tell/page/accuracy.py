"""Accuracy against time: what a lower precision, or another model, costs and gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shootout.core.contract import Precision, short
from shootout.core.schemes import is_exact
from shootout.tell.document import Document, Row
from shootout.tell.grid import name_groups
from shootout.tell.page.charts import can_show
from shootout.tell.page.points import ERROR_FORMAT, Ends, Point, PointPanel, bound_time, draw_points
from shootout.tell.report import Figure
from shootout.tell.table import compare_rows
from shootout.tell.wording import bound_metric, name_metric

ERROR = "relative error (log)"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Of precisions, of which FP32 is the first."""
CAPTION = (
    "Further left is faster. The color is the backend's or the model's, the shape the precision's. Filled: may be "
    "shipped. Hollow: not shown to keep the accuracy. Bars are 95 % intervals, of an accuracy those of its change."
)
OF_ERRORS = " Where no accuracy is known, the error stands in its place: lower is better."


def draw_accuracy(document: Document) -> Figure | None:
    """Draw the panels of a run below each other; return None if no precision or model can be compared."""
    panels = [*find_panels(document)]
    caption = CAPTION + (OF_ERRORS if any(panel.y_title == ERROR for panel in panels) else "")
    return draw_points("Accuracy against time", caption, panels)


def find_panels(document: Document) -> Iterator[PointPanel]:
    """List the groups with a lower precision; models with one metric are one panel at each batch and thread count."""
    panels: dict[tuple[object, ...], list[tuple[Row, bool]]] = {}
    for summary in document.groups:
        found = compare_rows(summary, document)
        timed = [row for row in found.rows if row.end_to_end and can_show(row.end_to_end.median_ns)]
        best = next((name for row in timed if (name := _name_quality(row)) not in ("", ERROR)), ERROR)
        for row in timed if found.answer else ():
            if _name_quality(row) == best:
                place = (row.scenario, row.batch, row.threads) if best != ERROR else (summary.name,)
                panels.setdefault((best, *place), []).append((row, not found.is_refused(row)))
    names = name_groups(document)
    for (quality, *_), rows in panels.items():
        is_of_models = len({row.group for row, _ in rows}) > 1
        if is_of_models or any(not is_exact(row.precision, row.scheme, row.file) for row, _ in rows):
            yield _lay_out_panel(str(quality), rows, names, is_of_models=is_of_models)


def _lay_out_panel(
    quality: str, rows: Sequence[tuple[Row, bool]], names: Mapping[str, str], *, is_of_models: bool
) -> PointPanel:
    """Lay out rows whose outputs are judged in the same way, and whether each may be shipped."""
    first, is_error = rows[0][0], quality == ERROR
    precisions = [precision for precision in Precision if any(row.precision == precision for row, _ in rows)]
    return PointPanel(
        title=f"{len({row.group for row, _ in rows})} models" if is_of_models else names[first.group],
        x_title="time per call or item, ms (log)",
        y_title=quality,
        points=[
            _place_row(row, names[row.group] if is_of_models else _name_backend(row), may_ship=may_ship)
            for row, may_ship in rows
        ],
        shapes={str(precision): SHAPES[number % len(SHAPES)] for number, precision in enumerate(precisions)},
        y_format=ERROR_FORMAT if is_error else ".3~g",
        is_log=is_error,
    )


def _name_backend(row: Row) -> str:
    """Name a row's backend and device, with its file or interpreter, for all precisions."""
    own, _, _ = row.arm.rpartition(f":{row.device}:")
    return short(f"{own}:{row.device}:fp32")


def _place_row(row: Row, name: str, *, may_ship: bool) -> Point:
    assert row.end_to_end is not None, "only rows with a time have a place"
    value, ends = _place_quality(row)
    x, x_ends = row.end_to_end.median_ns / 1e6, bound_time(row.end_to_end)
    return Point(name=name, x=x, y=value, x_ends=x_ends, y_ends=ends, kind=row.precision, is_filled=may_ship)


def _name_quality(row: Row) -> str:
    """Name what tells how good a row's outputs are; "" if nothing does."""
    fidelity = row.fidelity
    if fidelity is None:
        return ""
    if fidelity.metric:
        return f"{name_metric(fidelity.metric)}{', lower is better' if fidelity.metric.lower_is_better else ''}"
    return ERROR if can_show(fidelity.relative_l2 or 0.0) else ""


def _place_quality(row: Row) -> tuple[float, Ends | None]:
    """Return the place of a row, and the ends of its interval: that which decides."""
    assert row.fidelity is not None, "rows without a quality are left out"
    if metric := row.fidelity.metric:
        return metric.value, bound_metric(metric)
    return row.fidelity.relative_l2 or 0.0, None
