"""Reports as one HTML file that opens anywhere: no script, no request, for a phone, the dark and paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup
from rich.text import Text

from shootout.backends import BASELINE_OF_FILES
from shootout.tell.columns import Cell
from shootout.tell.page.charts import to_svg
from shootout.tell.report import MEASURED, Report, clean_text, glue_parts

LEGEND = (
    ("target", f"What is measured: backend, device and precision, such as {BASELINE_OF_FILES}:cpu:fp32."),
    (
        "x slower",
        "1.7x slower (1.1 to 2.7): takes 1.7 times as long. In brackets: the interval, for all rows at 95 %.",
    ),
    ("open", "No verdict yet: the interval holds 1, or what the harness itself may be off by."),
    ("too few restarts", "Two restarts tell nothing below a doubling, and one tells nothing."),
    ("restart", "Every process was started afresh. The statistics count restarts, not calls."),
    ("control", "A hidden copy of the baseline. If the two differ, the page gives no verdict."),
    ("disturbed", "Rounds in which other work took CPU time."),
    ("error", "Distance of the outputs from those of the model in float64, relative to these."),
)
"""Terms, and what they mean; a page explains those that it uses."""
_BETWEEN_PARTS = re.compile(r"(?<=[+{/=_])(?=\w)|(?<=[:,])(?=[A-Za-z])|(?<=[A-Za-z]\.)(?=[A-Za-z])")


def render(reports: Sequence[Report]) -> str:
    """Render reports below each other, in the given order, as a page."""
    title = "; ".join(report.title for report in reports)
    return load_template().render(reports=reports, title=title)


def render_answer(report: Report) -> str:
    """Render a report's answer, as a heading of the third level and its lines, for a part of another page."""
    macros: Any = load_template().module
    told = str(macros.answer(report, "h3"))
    return "\n".join(line for line in told.splitlines() if line.strip())  # in Markdown a blank line may end HTML


def load_template() -> jinja2.Template:
    """Load the template of a page."""
    loader = jinja2.PackageLoader("shootout.tell.page", ".")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_clean_value
    )
    environment.filters.update(mark=mark, svg=to_svg, clean=clean_text)
    environment.globals.update(reports=(), legend=LEGEND, measured=MEASURED)
    return environment.get_template("page.html")


def _clean_value(value: object) -> object:
    """Clean what a template writes; what is markup already was cleaned when it was made."""
    return clean_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def mark(value: Cell) -> Markup:
    """Turn text into HTML: its style into a class, words between backticks into code.

    A narrow window breaks a long name between its parts, not inside a word.
    """
    parts = re.split(r"`([a-z][\w .-]*)`", clean_text(str(value)))
    marked = [Markup("<wbr>").join(_BETWEEN_PARTS.split(glue_parts(part))) for part in parts]
    marked[1::2] = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    style = str(value.style) if isinstance(value, Text) and value.plain.strip() else ""
    text = Markup("").join(marked)
    return Markup('<span class="{}">{}</span>').format(style, text) if style else text
