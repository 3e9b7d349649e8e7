"""What is known of an arm stays in its row, whatever became of it; nothing that ran is shown as skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from support.races.made import (
    ARMS,
    COPY,
    EXACT,
    EXECUTED,
    GROUP,
    A,
    B,
    checked,
    ended,
    header,
    played,
    prepared,
    rounds,
)
from support.races.made import write as written

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.leader import UNCHECKED
from shootout.commands.report import render
from shootout.core.contract import NotRunKind, short
from shootout.core.errors import NotRun
from shootout.core.exported.fidelity import NOTHING
from shootout.core.journal.records import Line, Played, not_run
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.core.stats.verdicts import Verdict
from shootout.tell import table
from shootout.tell.document import Document, Row
from shootout.tell.page.contents import MeasuredRun
from shootout.tell.table import compare_rows

HEAVY = replace(EXECUTED, artifact_bytes=3_000_000)


def race(*, restarts: int = 6, **of_b: Any) -> list[Line]:
    return [
        line
        for g in range(restarts)
        for line in (
            played(A, g, 1_000 + g),
            played(COPY, g, 1_001 - g),
            played(B, g, 500 + g, executed=HEAVY, **of_b),
            rounds(g),
        )
    ]


def document(folder: Path, *lines: Line, scenario: str = "latency") -> Document:
    arms = [replace(arm, scenario=scenario) for arm in ARMS]
    return analyse(written(folder / "run", header(arms), prepared(A), prepared(B), *lines))


def row(found: Document) -> Row:
    return next(one for one in found.rows if one.arm == B.label)


def printed(found: Document, *, full: bool = True) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: PTH123, SIM115
    console.print(table.render(found, 160, full=full))
    return console.export_text()


def is_of(line: str, arm: str) -> bool:
    """Whether a line of a table is an arm's, whatever its mark."""
    return line.lstrip("▸× ").startswith(f"{short(arm)} ")


def test_an_overflow_in_one_restart_is_the_worst_error(tmp_path: Path):
    lines = race()
    place, broken = [(at, line) for at, line in enumerate(lines) if isinstance(line, Played) and line.arm == B.label][2]
    lines[place] = broken.model_copy(update={"fidelity": NOTHING})
    figures = row(document(tmp_path, *lines, ended())).fidelity
    assert figures is not None
    assert figures.relative_l2 is None


def test_the_agreement_is_the_least_of_all_restarts_and_not_that_of_the_worst_error(tmp_path: Path):
    lines = race()
    mine = [at for at, line in enumerate(lines) if isinstance(line, Played) and line.arm == B.label]
    for at, error, share in ((mine[0], 1e-3, 1.0), (mine[1], 1e-4, 0.9)):
        lines[at] = lines[at].model_copy(update={"fidelity": replace(EXACT, relative_l2=error, top1_agreement=share)})
    figures = row(document(tmp_path, *lines, ended())).fidelity
    assert figures is not None
    assert (figures.relative_l2, figures.top1_agreement) == (1e-3, 0.9)


def test_an_arm_that_failed_later_keeps_its_figures_but_no_verdict(tmp_path: Path):
    failure = not_run(GROUP, B, NotRun(NotRunKind.FAILED, "killed by SIGSEGV", during="a round"))
    document_ = document(tmp_path, *race(), failure, ended())
    found = row(document_)
    assert (found.outcome, found.reason, found.artifact_bytes) == ("failed", "killed by SIGSEGV", 3_000_000)
    assert found.end_to_end
    assert found.end_to_end.ratio
    assert found.end_to_end.ratio.verdict is Verdict.CANT_TELL
    assert found.fidelity
    text = printed(document_)
    assert any(is_of(line, B.label) and "failed" in line and "0.502 us" in line for line in text.splitlines())
    (answer,) = document_.answer
    assert answer.ship is None or answer.ship.arm == A.label
    assert [(one.arm, one.reason) for one in answer.passed] == [(B.label, "failed: killed by SIGSEGV")]
    assert not answer.not_raced


def test_an_arm_that_left_by_the_cap_keeps_its_time_and_is_not_shipped(tmp_path: Path):
    slow = not_run(GROUP, B, NotRun(NotRunKind.TOO_SLOW, "a call takes 9 s", "raise it"))
    document_ = document(tmp_path, *race(), slow, ended())
    assert (row(document_).outcome, row(document_).reason) == ("measured", "a call takes 9 s")
    assert f"left the race: {B.label}: a call takes 9 s. Fix: raise it" in printed(document_).splitlines()
    assert document_.answer[0].ship is None or document_.answer[0].ship.arm == A.label


@pytest.mark.parametrize("failed", [False, True])
def test_an_arm_that_was_checked_and_never_timed_keeps_size_error_and_proof(tmp_path: Path, failed: bool):
    wrong = replace(EXACT, relative_l2=0.5)
    gate = [not_run(GROUP, B, NotRun(NotRunKind.FAILED, "its outputs are off", during="entering"))] if failed else []
    document_ = document(tmp_path, checked(A), checked(B, executed=HEAVY, fidelity=wrong), *gate)
    found = row(document_)
    assert found.outcome == ("failed" if failed else "not timed")
    assert (found.artifact_bytes, found.end_to_end) == (3_000_000, None)
    assert found.fidelity
    assert (found.fidelity.relative_l2, found.fidelity.probe) == (0.5, "fp32")
    text = printed(document_)
    assert "skipped" not in text
    assert any(is_of(line, B.label) and "50 %" in line for line in text.splitlines())


def test_an_error_that_the_user_tolerates_is_flagged_and_outputs_that_are_no_numbers_are_not_exact(tmp_path: Path):
    for name in ("off", "lost"):
        (tmp_path / name).mkdir()
    off = replace(EXACT, relative_l2=2e-4, error_bound=5e-5, standing="tolerated")
    document_ = document(tmp_path / "off", *race(fidelity=off), ended())
    assert row(document_).notes[0].startswith("error 2.0e-04 is above the error bound of fp32")
    lost = replace(EXACT, relative_l2=None, standing="not judged")
    document_ = document(tmp_path / "lost", *race(fidelity=lost), ended())
    assert any(is_of(line, B.label) and "NaN" in line for line in printed(document_).splitlines())
    assert document_.answer[0].ship is None or document_.answer[0].ship.arm == A.label


@pytest.mark.parametrize(("error", "told", "is_useless"), [(0.8, "80 %", True), (0.02, "2.0 %", False)])
def test_a_faster_row_whose_error_nothing_was_held_against_is_marked_and_not_green(
    tmp_path: Path, error: float, told: str, is_useless: bool
):
    """There was no time to predict what its precision explains, say."""
    unchecked = replace(EXACT, relative_l2=error, standing="not judged")
    found = document(tmp_path, *race(fidelity=unchecked), ended())
    timing = row(found).end_to_end
    assert timing
    assert timing.ratio
    assert timing.ratio.verdict is Verdict.FASTER
    text = printed(found)
    assert any(is_of(line, B.label) and f"{told} unchecked" in line for line in text.splitlines())
    assert ("is above 0.5: outputs of zeros alone would err by 1" in text) is is_useless
    assert styles(found, B.label) == {"yellow"}
    assert found.answer[0].ship
    assert found.answer[0].ship.arm == A.label
    assert UNCHECKED in " ".join(text.split())
    pages = {end: render([MeasuredRun(found)], end).decode() for end in (".html", ".md")}
    assert '<span class="yellow">' in pages[".html"]
    assert '<span class="green">' not in pages[".html"]
    assert f"{told} unchecked" in pages[".md"]


def styles(found: Document, arm: str) -> set[str]:
    """The colors of a row's verdicts."""
    (mine,) = (one for one in found.rows if one.arm == arm)
    cells = table.fill_cells(compare_rows(found.groups[0], found), mine, table.ALL)
    return {str(cell.style) for cell in cells.values() if isinstance(cell, Text) and cell.style} - {"bold"}


@pytest.mark.parametrize(("restarts", "voided", "holds"), [(2, 0, False), (1, 0, None), (2, 2, None)])
def test_who_breaks_a_limit_in_one_restart_or_on_a_busy_machine_is_unknown(
    tmp_path: Path, restarts: int, voided: int, holds: bool | None
):
    late = LoadTestResult(
        given_per_s=100.0,
        limit_ns=5e6,
        unloaded_ns=1e6,
        steps=(TriedRate(rate_per_s=100.0, requests=1_000, bound_ns=9e6, held=False),),
    )
    lines: list[Line] = []
    for g in range(restarts):
        lines += [played(A, g, 9e6, served=late), played(B, g, 9e6, served=late), rounds(g, voided=voided)]
    document_ = document(tmp_path, *lines, ended(), scenario="serve")
    found = row(document_)
    assert found.serve
    assert found.serve.holds is holds
    assert ("BREAKS 5 ms" if holds is False else "unknown: 5 ms") in printed(document_)
