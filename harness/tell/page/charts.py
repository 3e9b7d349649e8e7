"""All figures share this: their colors on light and on dark, their width, and the way from a chart to SVG.

A figure is drawn once. Its SVG fits a phone and a desktop, alone and on a page, and turns dark where the screen is.
Names from a stranger's run are data of a chart, never a field or an expression, and nothing is fetched.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert
from rich.cells import cell_len, set_cell_size

from shootout.core.errors import printable
from shootout.core.units import counted
from shootout.tell.report import Figure, clean_text

Chart = alt.LayerChart | alt.VConcatChart
PAPER, INK, SOFT, RULE, SHADE = "#ffffff", "#1b1f24", "#6a737d", "#d5dae0", "#e8eef6"
"""The background; text; what matters less; lines of a grid; a shaded range."""
CHOSEN, EVEN, BEHIND = "#0b5cad", "#0f7b6c", "#b4540a"
"""The arm to ship; arms that can't be distinguished from it; slower arms. Refused arms are `SOFT`."""
DARK = {
    PAPER: "#14171b",
    INK: "#e6e9ed",
    SOFT: "#98a2ae",
    RULE: "#3a414a",
    SHADE: "#232d3b",
    CHOSEN: "#62a8f5",
    EVEN: "#4cc2ae",
    BEHIND: "#f0a35e",
}
"""These colors on a dark screen; no other color depends on it."""
SERIES = (
    *("#2f7fd1", "#d1661f", "#159c79", "#bf5ba0", "#a58300", "#7f6bd6"),
    *("#4f9fb8", "#c0504d", "#808890", "#6b9e1f", "#8c6d4f", "#e07b91"),
)
"""Colors of curves and dots that a legend names, legible on light and on dark."""
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
WIDTH, SHOWN_WIDTH = 348, 480
"""Width of a figure in its own units, so that its letters can be read on a phone; and in pixels where there is room."""
_ENDLESS = 1e30
CONFIG: dict[str, Any] = {
    "view": {"stroke": None},
    "text": {"color": INK, "fontSize": 11.5},
    "concat": {"spacing": 20},
    "legend": {
        "orient": "bottom",
        "columns": 2,
        "title": None,
        "labelColor": INK,
        "labelFontSize": 11.5,
        "labelLimit": 160,
        "symbolBaseFillColor": INK,
        "symbolBaseStrokeColor": INK,
    },
    "title": {"color": INK, "fontSize": 12, "anchor": "start", "fontWeight": 600},
    "aria": False,
    "axis": {
        "gridColor": RULE,
        "domainColor": RULE,
        "tickColor": RULE,
        "labelColor": SOFT,
        "labelFontSize": 11.5,
        "labelSeparation": 6,
        "tickCount": 10,
        "titleColor": SOFT,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
    },
}


def layer(*parts: alt.Chart, **size: Any) -> alt.LayerChart:
    """Lay charts of one size on top of each other."""
    layered: alt.LayerChart = alt.LayerChart(layer=list(parts)).properties(**size)
    return layered


def make_figure(
    title: str, caption: str, panels: Sequence[Chart], *, more_panels: int, more_targets: int, description: str = ""
) -> Figure | None:
    """Stack panels below each other, each with its own legend; return None of none.

    Args:
        more_panels, more_targets: how many are left out, which the caption says; of none at most 0.
    """
    if not panels:
        return None
    chart = panels[0]
    if len(panels) > 1:
        chart = alt.vconcat(*panels).resolve_scale(color="independent", shape="independent")
    left = [counted(more_panels, "more panel")] if more_panels > 0 else []
    left += [counted(more_targets, "more target")] if more_targets > 0 else []
    caption += f" Not drawn: {' and '.join(left)}; the tables have all." if left else ""
    return Figure(title=title, caption=caption, chart=chart, description=description)


def marks(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Make a chart of inline data, without a mark yet."""
    return alt.Chart(alt.InlineData(values=[dict(point) for point in values]))


def to_svg(figure: Figure) -> str:
    """Draw a figure as one SVG for every width, light, dark and paper, whose text is text."""
    svg = printable(vl_convert.vegalite_to_svg(_write_spec(figure.chart), allowed_base_urls=[]))
    width, height = map(float, re.findall(r' (?:width|height)="([\d.]+)"', svg)[:2])
    told = html.escape(clean_text(f"{figure.title}. {figure.description}".strip()))
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" role="img" aria-label="{told}" '
        f'width="{SHOWN_WIDTH}" height="{SHOWN_WIDTH * height / width:.0f}" viewBox="0 0 {width:g} {height:g}" '
        f'style="display:block;max-width:100%;height:auto;font-family:{FONT}">{_write_style()}'
    )
    return opening + svg[svg.index(">") + 1 :]


def complete(chart: Chart) -> Chart:
    """Add our style, so that a chart can be shown and saved without us."""
    spec = _write_spec(chart) | {"config": {**CONFIG, "font": FONT}}
    completed: Chart = type(chart).from_dict(spec)
    return completed


def _write_style() -> str:
    """Write the style sheet with the colors of a dark screen; paper stays light."""
    rules = (
        f'.drawn [{part}="{light}"]{{{part}:{dark}}}' for light, dark in DARK.items() for part in ("fill", "stroke")
    )
    return f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"


def _write_spec(chart: Chart) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)  # the tests do that; it takes as long as drawing
    return {**_clean_texts(spec), "background": PAPER, "padding": 4, "config": CONFIG}


def can_show(*values: float) -> bool:
    """Return whether a logarithmic axis has a place for each of these; a stranger's journal can say anything."""
    return all(1 / _ENDLESS < value < _ENDLESS for value in values)


def cut(text: str, columns: int) -> str:
    """Cut text to one line of at most so many columns; Vega's own way splits letters beyond 16 bits in two."""
    line = " ".join(text.split())
    return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1).rstrip()}…"


def _clean_texts(part: Any) -> Any:
    """Clean all text of a chart: the renderer ends the whole process on a control character."""
    if isinstance(part, dict):
        return {name: _clean_texts(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_clean_texts(value) for value in part]
    return clean_text(part) if isinstance(part, str) else part
