"""`shootout explain`: two targets of a run side by side, layer by layer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from shootout.clock import Deadline
from shootout.commands.output import print_answer, show_progress, width
from shootout.commands.report import check_installed
from shootout.errors import UsageError
from shootout.explain.explanation import Explanation
from shootout.explain.measure import explain as explain_sides
from shootout.explain.node_data import as_node_data
from shootout.explain.screen import render
from shootout.explain.sides import choose_sides
from shootout.formats.data import json_text
from shootout.formats.files import check_file, write_file
from shootout.host.locks import machine_lock
from shootout.host.store import in_use
from shootout.units import size

PAGE, NODE_DATA = ".html", ".json"


def explain(
    run: Path,
    targets: Sequence[str],
    *,
    group: str | None,
    out: Path | None,
    full: bool,
    as_json: bool,
    max_time_s: float | None = None,
) -> int:
    """Compare the targets and print; return the exit code.

    Args:
        out: a file for a page (`.html`) or node data (`.json`); None: neither.
        max_time_s: stop after so long, with what was read so far; None: read all.

    Raises:
        OutOfTime: neither target was read in time.
        UsageError: see `choose_sides` and `measure.explain`; or `out` has another ending, or can't be written.
    """
    if out is not None:
        _check_out(out)
    sides = choose_sides(run, targets, group)
    # profiles have times, and both the builds and the float graph would disturb another run's
    with in_use(), show_progress() as progress, machine_lock(f"explain {run}", progress.wait):
        found = explain_sides(sides, progress, Deadline(max_time_s))
    if out is not None:
        content = _write_page(found) if out.suffix.lower() == PAGE else json_text(as_node_data(found)).encode()
        write_file(out, content)
        sys.stderr.write(f"{out}: {size(len(content))}\n")
    return print_answer(render(found, width(), full=full), asdict(found), as_json=as_json)


def _check_out(out: Path) -> None:
    ending = out.suffix.lower()
    if ending not in (PAGE, NODE_DATA):
        raise UsageError(f"-o {str(out)!r}: write a name that ends in {PAGE} (a page) or {NODE_DATA} (node data)")
    check_file(out)
    if ending == PAGE:
        check_installed(f"-o explained{NODE_DATA} needs nothing more")


def _write_page(found: Explanation) -> bytes:
    from shootout.explain import page  # altair and jinja2 take half a second, and may not be installed

    return page.render(found).encode()
