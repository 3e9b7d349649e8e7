"""What all figures share: colours that a page can darken, the width, and the way from a chart to SVG.

Whatever a stranger named is data of a chart, never a field or an expression, and nothing is fetched.
"""

from __future__ import annotations

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

Chart = alt.LayerChart | alt.VConcatChart | alt.HConcatChart
INK, SOFT, RULE, SHADE = "#1b1f24", "#6a737d", "#d5dae0", "#e8eef6"
"""Text; what matters less; lines of a grid; a shaded range."""
CHOSEN, EVEN, BEHIND = "#0b5cad", "#0f7b6c", "#b4540a"
"""The arm to ship; what isn't distinguished from it; what is slower. Who is refused is as soft as what matters less."""
DARK = {
    INK: "#e6e9ed",
    SOFT: "#98a2ae",
    RULE: "#3a414a",
    SHADE: "#232d3b",
    CHOSEN: "#62a8f5",
    EVEN: "#4cc2ae",
    BEHIND: "#f0a35e",
}
"""What each of these becomes on a dark page, whose style sheet says so; no other colour depends on the page."""
SERIES = ("#2f7fd1", "#d1661f", "#159c79", "#bf5ba0", "#a58300", "#7f6bd6", "#4f9fb8", "#c0504d", "#808890")
"""Lines of arms, legible on light and on dark; from the tenth on they come again, and the labels tell them apart."""
FONT = "Arial, 'Liberation Sans', Helvetica, sans-serif"
WIDE, NARROW = 960, 350
"""Pixels of a figure, on a desktop and on a phone."""
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
    """Charts on top of each other, of one size."""
    found: alt.LayerChart = alt.LayerChart(layer=list(parts)).properties(**size)
    return found


def stack(panels: Sequence[Chart], *, spacing: int) -> Chart:
    """Panels below each other, so many pixels apart; one alone as it is."""
    return panels[0] if len(panels) == 1 else alt.vconcat(*panels, spacing=spacing)


def marks(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of inline data, without a mark yet."""
    return alt.Chart(alt.InlineData(values=[dict(one) for one in values]))


def to_svg(chart: Chart, *, background: str | None = None) -> str:
    """A chart as SVG whose text is text; without a background it lies on the page's own."""
    _check_room()
    svg = vl_convert.vegalite_to_svg(_spec(chart, background), allowed_base_urls=[])
    return printable(svg).replace("<svg ", f'<svg style="font-family:{FONT}" ', 1)


@cache
def _check_room() -> None:
    """Where addresses are limited, draw nothing in a process of its own first: the renderer reserves tens of GB.

    It takes no memory, but where it gets none of them it ends the whole process.

    Raises:
        UsageError: it did.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return
    command = [sys.executable, "-c", "import vl_convert; vl_convert.vega_to_svg({})"]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603
        raise UsageError(
            "a figure takes 80 GB of addresses, though no memory, and ulimit -v gives fewer: ulimit -v unlimited"
        )


def complete(chart: Chart) -> Chart:
    """The same with our style in it, on white, to be shown and saved without us."""
    room = {"top": 4, "right": 60, "bottom": 4, "left": 30}  # where the font isn't there, another may be wider
    spec = _spec(chart, "white") | {"config": {**CONFIG, "font": FONT}, "padding": room}
    found: Chart = type(chart).from_dict(spec)
    return found


def _spec(chart: Chart, background: str | None) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)  # the tests do that; it takes as long as drawing
    return {
        **_printable(spec),
        "background": background,
        "padding": {"left": 12, "top": 4, "right": 4, "bottom": 4},
        "config": CONFIG,
    }


def can_show(*values: float) -> bool:
    """Whether a logarithmic axis has a place for each of these; a journal may be a stranger's, and say anything."""
    return all(1 / _ENDLESS < value < _ENDLESS for value in values)


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers of a logarithmic axis; of a short one, steps that are as wide as each other."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in (_TICKS, (1, 3), (1,)):
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) < 3:
            return _even_ticks(low, high, most)
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    decade = 10.0 ** math.floor(math.log10(rough))
    step = decade * next(one for one in (1, 2, 5, 10) if one * decade >= rough)
    return [float(f"{count * step:.6g}") for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def widened(values: Iterable[float], by: float = 1.08) -> tuple[float, float]:
    """The range of a logarithmic axis, with some room at both ends."""
    every = list(values)
    return min(every) / by, max(every) * by


def cut(text: str, columns: int) -> str:
    """Text on one line in at most so many columns; Vega's own way to cut it breaks letters beyond 16 bits in two."""
    line = " ".join(text.split())
    return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1).rstrip()}…"


def _printable(part: Any) -> Any:
    """The same without letters that steer anything: the renderer aborts the whole process on a control character."""
    if isinstance(part, dict):
        return {name: _printable(one) for name, one in part.items()}
    if isinstance(part, list):
        return [_printable(one) for one in part]
    return printable(part) if isinstance(part, str) else part


def apart(wanted: Mapping[str, float], gap: float, height: float) -> dict[str, float]:
    """Where labels stand so that none lies upon another, each as near as may be to the place that it wants; pixels."""
    found: dict[str, float] = {}
    for name, place in sorted(wanted.items(), key=lambda one: one[1]):
        found[name] = max(place, max(found.values(), default=-gap) + gap)
    lowest = height
    for name in reversed(found):
        found[name] = min(found[name], lowest)
        lowest = found[name] - gap
    return found


def beside(last: Mapping[str, float], ends: tuple[float, float], height: float) -> dict[str, float]:
    """Where on a logarithmic axis the labels of lines stand, by what each line ends at, so that all can be read.

    Args:
        ends: the least and the largest value of the axis, so many pixels high.
    """
    span = math.log(ends[1] / ends[0])
    wanted = {name: height * math.log(ends[1] / value) / span for name, value in last.items()}
    return {name: ends[1] * math.exp(-span * place / height) for name, place in apart(wanted, 13.0, height).items()}
