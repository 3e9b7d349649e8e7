"""All figures share this: colors that a page can darken, the width, and the way from a chart to SVG.

Names from a stranger's run are data of a chart, never a field or an expression, and nothing is fetched.
"""

from __future__ import annotations

import html
import math
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt
import vl_convert
from rich.cells import cell_len, set_cell_size

from shootout.errors import UsageError, printable
from shootout.page.text import clean_text

Chart = alt.LayerChart | alt.VConcatChart | alt.HConcatChart
INK, SOFT, RULE, SHADE = "#1b1f24", "#6a737d", "#d5dae0", "#e8eef6"
"""Text; what matters less; lines of a grid; a shaded range."""
CHOSEN, EVEN, BEHIND = "#0b5cad", "#0f7b6c", "#b4540a"
"""The arm to ship; arms that can't be distinguished from it; slower arms. Refused arms are `SOFT`."""
DARK = {
    INK: "#e6e9ed",
    SOFT: "#98a2ae",
    RULE: "#3a414a",
    SHADE: "#232d3b",
    CHOSEN: "#62a8f5",
    EVEN: "#4cc2ae",
    BEHIND: "#f0a35e",
}
"""These colors on a dark page, whose style sheet replaces them; no other color depends on the page."""
SERIES = ("#2f7fd1", "#d1661f", "#159c79", "#bf5ba0", "#a58300", "#7f6bd6", "#4f9fb8", "#c0504d", "#808890")
"""Curves of arms, legible on light and on dark; they repeat from the tenth on, and labels name the curves."""
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
WIDE, NARROW = 960, 350
"""Width of a figure on a desktop and on a phone, in pixels."""
_TICKS = (1, 2, 5)
_ENDLESS = 1e30
CONFIG: dict[str, Any] = {
    "view": {"stroke": None},
    "text": {"color": INK, "fontSize": 12},
    "title": {"color": INK, "fontSize": 13, "anchor": "start", "fontWeight": 600},
    "aria": False,
    "axis": {
        "gridColor": RULE,
        "domainColor": RULE,
        "tickColor": RULE,
        "labelColor": SOFT,
        "labelFontSize": 11,
        "titleColor": SOFT,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
}


def layer(*parts: alt.Chart, **size: Any) -> alt.LayerChart:
    """Lay charts of one size on top of each other."""
    layered: alt.LayerChart = alt.LayerChart(layer=list(parts)).properties(**size)
    return layered


def stack(panels: Sequence[Chart], *, spacing: int) -> Chart:
    """Stack panels below each other, so many pixels apart; return a single one as it is."""
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels, spacing=spacing)


def marks(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Make a chart of inline data, without a mark yet."""
    return alt.Chart(alt.InlineData(values=[dict(point) for point in values]))


def to_svg(chart: Chart, *, background: str | None = None, description: str = "") -> str:
    """Draw a chart as SVG whose text is text.

    Args:
        background: its color; None: that of the page shows.
        description: what a file that stands alone shows, for a reader who can't see it.
    """
    _check_room()
    svg = vl_convert.vegalite_to_svg(_write_spec(chart, background), allowed_base_urls=[])
    alone = f' role="img" aria-label="{html.escape(clean_text(description))}"' if description else ""
    return printable(svg).replace("<svg ", f'<svg style="font-family:{FONT}"{alone} ', 1)


@cache
def _check_room() -> None:
    """Draw nothing in a process of its own if addresses are limited: the renderer reserves tens of GB of them.

    It takes no memory, but without these addresses it ends the whole process.

    Raises:
        UsageError: it ended the process.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    command = [sys.executable, "-c", "import vl_convert; vl_convert.vega_to_svg({})"]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603
        raise UsageError(
            "a figure takes 80 GB of addresses, though no memory, and ulimit -v gives fewer: ulimit -v unlimited"
        )


def complete(chart: Chart) -> Chart:
    """Add our style and a white background, so that a chart can be shown and saved without us."""
    room = {"top": 4, "right": 60, "bottom": 4, "left": 30}  # where the font isn't there, another may be wider
    spec = _write_spec(chart, "white") | {"config": {**CONFIG, "font": FONT}, "padding": room}
    completed: Chart = type(chart).from_dict(spec)
    return completed


def _write_spec(chart: Chart, background: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)  # the tests do that; it takes as long as drawing
    return {
        **_clean_texts(spec),
        "background": background,
        "padding": {"left": 12, "top": 4, "right": 4, "bottom": 4},
        "config": CONFIG,
    }


def can_show(*values: float) -> bool:
    """Return whether a logarithmic axis has a place for each of these; a stranger's journal can say anything."""
    return all(1 / _ENDLESS < value < _ENDLESS for value in values)


def choose_ticks(low: float, high: float, most: int) -> list[float]:
    """Choose at most so many round numbers of a logarithmic axis; on a short one the steps are even."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in (_TICKS, (1, 3), (1,)):
        choice = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(choice) < 3:
            return _even_ticks(low, high, most)
        if len(choice) <= most:
            return choice
    return choice[:: math.ceil(len(choice) / most)]


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    decade = 10.0 ** math.floor(math.log10(rough))
    step = decade * next(factor for factor in (1, 2, 5, 10) if factor * decade >= rough)
    return [float(f"{count * step:.6g}") for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def widen_range(values: Iterable[float], by: float = 1.08) -> tuple[float, float]:
    """Return the range of a logarithmic axis, with some room at both ends."""
    every = list(values)
    return min(every) / by, max(every) * by


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


def spread_labels(wanted: Mapping[str, float], gap: float, height: float) -> dict[str, float]:
    """Place labels so that none overlaps another, each as near as possible to its wanted place, in pixels."""
    places: dict[str, float] = {}
    for name, place in sorted(wanted.items(), key=lambda item: item[1]):
        places[name] = max(place, max(places.values(), default=-gap) + gap)
    lowest = height
    for name in reversed(places):
        places[name] = min(places[name], lowest)
        lowest = places[name] - gap
    return places


def place_curve_labels(last: Mapping[str, float], ends: tuple[float, float], height: float) -> dict[str, float]:
    """Place the labels of curves beside their last points on a logarithmic axis, so that all can be read.

    Args:
        ends: the least and the largest value of the axis, which is `height` pixels high.
    """
    span = math.log(ends[1] / ends[0])
    wanted = {name: height * math.log(ends[1] / value) / span for name, value in last.items()}
    return {
        name: ends[1] * math.exp(-span * place / height) for name, place in spread_labels(wanted, 13.0, height).items()
    }
