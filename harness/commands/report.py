"""`shootout report`: runs as a page, as Markdown, or their intervals alone; measures nothing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.tune.results import is_tuning
from shootout.commands.output import print_written
from shootout.core.errors import UsageError
from shootout.core.install import install
from shootout.core.units import size
from shootout.tell.formats import check_file, write_file
from shootout.tell.page import markdown
from shootout.tell.page.contents import MeasuredRun, lay_out, read, without_answer
from shootout.tell.report import Report

EXTRA = "report"
NEEDED = ("altair", "jinja2", "vl_convert")
"""The packages that draw; Markdown needs none of them."""


def report(
    folders: Sequence[Path],
    out: Path,
    policy: Path | None = None,
    group: str | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Write what is in these run folders to `out`, in the form that its name ends with.

    Args:
        policy: what it says of all runs together comes first.
        group: the cell to decide on, where the runs have several.
        as_json: print what was written.

    Raises:
        UsageError: another ending, a place that can't be written to, a folder that is no run, a group without a
            policy, or a library that isn't installed.
    """
    ending = out.suffix.lower()
    if ending not in (".html", ".md", ".svg"):
        raise UsageError(f"-o {str(out)!r}: write a name that ends in .html, .md or .svg")
    check_file(out)
    if group and policy is None:
        raise UsageError(f"--group {group!r} chooses the group that a policy decides on: add --policy FILE")
    if ending != ".md":
        _require_installed()
    if tuned := [str(folder) for folder in folders if is_tuning(folder)]:
        raise UsageError(f"{tuned[0]!r} is a tuning run: name a run in it, such as {tuned[0]}/confirmed")
    folders = expand_merged(folders)
    decided = PolicyAnswer.of_runs(folders, read_policy(policy, {}), group) if policy else None
    documents = decided.question.documents if decided else map(analyse, folders)
    runs = [read(folder, document) for folder, document in zip(folders, documents, strict=True)]
    content = render(runs, ending, decided)
    write_file(out, content)
    sys.stderr.write(f"{out}: {size(len(content))}\n")
    written = {"file": str(out), "size_bytes": len(content), "runs": [str(folder) for folder in folders]}
    return print_written(written, as_json=as_json)


def render(runs: Sequence[MeasuredRun], ending: str, decided: PolicyAnswer | None = None) -> bytes:
    """Render the runs in one form; what is decided comes first, and is the only answer.

    Raises:
        UsageError: nothing in the run has a time that could be drawn.
    """
    if ending == ".svg":
        return _draw(runs[0], decided).encode()
    if ending == ".md":
        first = [decided.lay_out()] if decided else []
        return markdown.render([*first, *_lay_out_below(first, map(lay_out, runs))]).encode()
    from shootout.tell.page import figures, page  # with the libraries that draw, which an extra installs

    first = [decided.lay_out(decided.draw())] if decided else []
    reports = (lay_out(run, figures.draw_all(run)) for run in runs)
    return page.render([*first, *_lay_out_below(first, reports)]).encode()


def _lay_out_below(first: Sequence[Report], runs: Iterable[Report]) -> Iterable[Report]:
    """Leave out the runs' own answers if one on all of them stands first."""
    return map(without_answer, runs) if first else runs


def _draw(run: MeasuredRun, decided: PolicyAnswer | None) -> str:
    """Draw the figure of the policy, or the intervals of a run."""
    from shootout.tell.page import charts, intervals  # likewise

    if figure := decided.draw() if decided else intervals.draw_intervals(run.document):
        return charts.to_svg(figure)
    told = f"nothing was timed in {run.document.run!r}: so there is nothing to draw"
    raise UsageError(f"{told}: run it with more --max-time")


def _require_installed() -> None:
    """Refuse to draw where a library for it is missing; say what to install."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"a figure needs {', '.join(missing)}: {install(EXTRA)}. -o report.md needs nothing more")
