"""A sweep whose groups chose settings: what confirms a choice is shown, what chose is told with it."""

from __future__ import annotations

from dataclasses import asdict, replace

from rich.table import Table
from rich.text import Text

from shootout.core.exported.fidelity import NOTHING
from shootout.tell import table
from shootout.tell.document import Control, Document, FidelityFigures, GroupSummary, Row, Timing

SIZES = (1, 2, 4, 8)
TIME = Timing(
    median_ns=2e6,
    low_ns=1e6,
    high_ns=3e6,
    confidence=0.9,
    p90_ns=None,
    p95_ns=None,
    p99_ns=None,
    samples=1,
    restarts=4,
    ratio=None,
)
BASE = {
    "backend": "a",
    "device": "cpu",
    "precision": "fp32",
    "scheme": "",
    "settings": "closed",
    "quantizer": "none",
    "model": "toy",
    "parameters": {},
    "threads": 1,
    "options": {},
    "scenario": "throughput",
}
HOLDS = Control(ratio=None, holds=True)


def chosen_and_confirmed() -> Document:
    """At each size a group that chose among settings, one of which was out, and one that measured the choice anew."""
    rows, groups = [], []
    for size in SIZES:
        name, again = f"toy, batch {size}", f"toy, batch {size}, anew"
        rows += [
            Row(**BASE, group=name, arm="a{x=1}", setting="x=1", batch=size, outcome="measured", end_to_end=TIME),
            Row(
                **BASE, group=name, arm="a{x=2}", setting="x=2", batch=size, outcome="skipped", reason="no room", fix=""
            ),
            Row(**BASE, group=again, arm="a{x=1}", setting="x=1", batch=size, outcome="measured", end_to_end=TIME),
        ]
        kept = {"control": HOLDS, "void_share": 0.0, "void_reasons": {}, "restarts": 4}
        groups += [
            GroupSummary(name=name, baseline=None, selects=True, **kept),
            GroupSummary(name=again, baseline="a{x=1}", confirms=name, **kept),
        ]
    return Document(
        schema_version=1,
        run="made",
        study="made",
        baseline="a{x=1}",
        complete=True,
        environment={},
        rows=rows,
        groups=groups,
        control=HOLDS,
        void_share=0.0,
        wall_s=1.0,
        spent_s={},
        warnings=(),
    )


def test_the_lowest_time_of_unchecked_outputs_is_not_green():
    found = chosen_and_confirmed()
    unchecked = replace(NOTHING, relative_l2=0.8, standing="not judged")
    figures = FidelityFigures(**{key: value for key, value in asdict(unchecked).items() if key != "right"})
    for fidelity, color in ((None, "green"), (figures, "yellow")):
        rows = [row.model_copy(update={"fidelity": fidelity}) for row in found.rows]
        run = found.model_copy(update={"rows": tuple(rows)})
        (line,) = table.find_sweeps(run)
        grid = next(part for part in table.render_sweep(line, run, 120) if isinstance(part, Table))
        best = [cell for column in grid.columns[1:] for cell in column.cells if isinstance(cell, Text)]
        assert {str(cell.style) for cell in best if cell.plain.endswith("*")} == {color}
