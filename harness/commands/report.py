"""`shootout report`: runs as a page, as Markdown, or their intervals alone; measures nothing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import expand_merged
from shootout.apps.judge.decide.page import PolicyAnswer
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.tune.results import is_tuning
from shootout.commands.output import print_written
from shootout.core.errors import UsageError
from shootout.core.install import install
from shootout.core.units import size
from shootout.tell.formats.files import check_file, write_file
from shootout.tell.page import markdown
from shootout.tell.page.sources import Front, MeasuredRun, read

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
        check_installed("-o report.md needs nothing more")
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


def render(runs: Sequence[MeasuredRun], ending: str, decided: Front | None = None) -> bytes:
    """Render the runs in one form; a figure alone is that of the policy, or of the first run.

    Raises:
        UsageError: nothing in the run has a time that could be drawn.
    """
    if ending == ".md":
        return markdown.render([run.document for run in runs], decided).encode()
    from shootout.tell.page import intervals, page

    if ending == ".html":
        return page.render(runs, decided).encode()
    document = runs[0].document
    if figure := decided.draw() if decided else intervals.draw_intervals(document):
        return figure.to_svg().encode()
    raise UsageError(f"nothing was timed in {document.run!r}: so there is nothing to draw: run it with more --max-time")


def check_installed(without: str) -> None:
    """Say what to install where a library that draws is missing.

    Args:
        without: what can be had without these.

    Raises:
        UsageError: one is.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"a figure needs {', '.join(missing)}: {install(EXTRA)}. {without}")
