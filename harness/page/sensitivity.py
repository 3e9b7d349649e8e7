"""Draw what rounding each layer or block alone does to a model: a bar each, in the graph's order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from shootout.page.charts import BEHIND, CHOSEN, INK, SOFT, WIDE, cut, layer, marks, stack, to_svg
from shootout.page.intervals import fit_words, label_lines
from shootout.quantize.sensitivity import LayerSensitivity, PrecisionSensitivity
from shootout.report.sensitivity import tell_answer, tell_change, tell_decibels

FEW, TALL, LOW = 40, 20, 15
"""Up to so many parts a line is TALL pixels high, of more LOW."""
CAPTION = (
    "Bar: error of the model's outputs with that part alone rounded, relative to their size; brown: the largest.",
    "Circle: the same with its weights alone. Diamond: with its activations alone. From the model's input at the top.",
)


def render_svg(found: Sequence[PrecisionSensitivity], name: str) -> str:
    """Draw a panel for each precision as SVG on white.

    Args:
        name: of the model and its size, for people.
    """
    chart = stack([_draw_panel(one, name) for one in found], spacing=30)
    description = f"{name}: {' '.join(line for one in found for line in tell_answer(one))}"
    return to_svg(chart, background="white", description=description)


def _draw_panel(found: PrecisionSensitivity, name: str) -> alt.LayerChart:
    parts = sorted(found.parts, key=lambda part: part.layer.number)
    worst, width = found.parts[0].name, WIDE - 480
    errors = [_error_of(part.sqnr_db) for part in parts]
    most = max((error for error in errors if error is not None), default=0.0) or 1.0
    bars = [
        # what is no number has a bar of the whole width, and says so
        {
            "row": row,
            "from": 0.0,
            "to": most if error is None else error,
            "color": BEHIND if part.name == worst else CHOSEN,
        }
        for row, (part, error) in enumerate(zip(parts, errors, strict=True))
    ]
    dots: list[dict[str, Any]] = [
        {"row": row, "at": error, "shape": shape}
        for row, part in enumerate(parts)
        for shape, decibels in (("circle", part.weights_db), ("diamond", part.activations_db))
        if decibels is not None and (error := _error_of(decibels)) is not None
    ]
    texts = [
        {"row": row, **fit_words(part.name, tell_decibels(part.sqnr_db), _tell_part(part), narrow=False)}
        for row, part in enumerate(parts)
    ]
    domain = [0, 1.02 * max([most, *(dot["at"] for dot in dots)])]
    axis = alt.Axis(title="relative error of the outputs", format="~%", tickCount=6, orient="top")
    scale = alt.Scale(domain=domain, nice=False)
    y: dict[str, Any] = {"y": alt.Y("row:O", axis=None)}
    drawn = (
        marks(bars)
        .mark_bar(size=9)
        .encode(x=alt.X("from:Q", axis=axis, scale=scale), x2="to:Q", color=alt.Color("color:N", scale=None), **y)
    )
    points = (
        marks(dots)
        .mark_point(size=30, strokeWidth=1.5, opacity=1)
        .encode(x=alt.X("at:Q", scale=scale), shape=alt.Shape("shape:N", scale=None), color=alt.value(INK), **y)
    )
    step = alt.Step(TALL if len(parts) <= FEW else LOW)
    chart = layer(drawn, points, *label_lines(texts, narrow=False, width=width), width=width, height=step)
    title = alt.TitleParams(
        text=cut(f"{name}: {tell_answer(found)[0]}", 120), subtitle=[*CAPTION], subtitleColor=SOFT, offset=12
    )
    titled: alt.LayerChart = chart.properties(title=title)
    return titled


def _error_of(sqnr_db: float) -> float | None:
    """Return the noise relative to the outputs, both as root mean squares; None if it isn't finite."""
    return 10 ** (-sqnr_db / 20) if sqnr_db > -math.inf else None


def _tell_part(part: LayerSensitivity) -> str:
    share = "" if part.noise_share is None else f"{part.noise_share:.1%} of the error"
    return ", ".join(filter(None, (share, f"{part.score.name} {tell_change(part.score)}" if part.score else "")))
