"""From hand-made journals to the document: what counts, what is withheld, and the keys that other programs read."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from support.races import cells
from support.races.made import COPY, GROUP, A, B, ended, header, played, prepared, rounds, write

from shootout.apps.judge.analysis import analyse, list_open
from shootout.core.errors import NotRun, NotRunKind
from shootout.core.host.noise import Disturbance
from shootout.core.journal import journal, samples
from shootout.core.journal.records import Line, Rounds, not_run
from shootout.core.messages import SCOPES, Turn
from shootout.core.race.race import Race
from shootout.core.results.group import Group, copy_holds, group_of
from shootout.core.stats.goals import Goal
from shootout.core.stats.verdicts import Verdict
from shootout.tell import table
from shootout.tell.document import Document, Row

NOISE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)
"""Between restarts, the same for all arms but shifted by one, so that ratios have some spread."""


def race(*, b: float = 0.8, control: float = 1.0, restarts: int = 6, voided: int = 0, **of_b: Any) -> list[Line]:
    """A race of A, B (its time is `b` times A's) and A's hidden copy; `voided` of the 3 rounds are flagged."""
    lines: list[Line] = []
    for g in range(restarts):
        noise = [NOISE[(g + shift) % len(NOISE)] for shift in range(3)]
        lines += [played(A, g, 1_000 * noise[0]), played(COPY, g, 1_000 * control * noise[1])]
        lines += [played(B, g, 1_000 * b * noise[2], **of_b), rounds(g, voided=voided)]
    return lines


def document(folder: Path, *lines: Line) -> Document:
    return analyse(write(folder / "run", header(), *lines))


def row(found: Document, arm: str = B.label) -> Row:
    (only,) = [row for row in found.rows if row.arm == arm]
    return only


def ratio(found: Document) -> Any:
    timing = row(found).end_to_end
    assert timing is not None
    return timing.ratio


@pytest.mark.parametrize(("copy_ns", "verdict", "floor"), [(1_002, "faster", 0.005), (2_000, "can't tell", 0.41)])
def test_a_verdict_stands_on_the_whole_group(tmp_path: Path, copy_ns: float, verdict: str, floor: float):
    """B itself is as calm as ever: what its group's copy does widens its interval, and raises the floor.

    B is 2.5 times as fast, because two restarts never tell less than a doubling and the floor.
    """
    first = played(A, 0, 1_000), played(COPY, 0, 1_000), played(B, 0, 400), rounds(0)
    second = played(A, 1, 1_000), played(COPY, 1, copy_ns), played(B, 1, 401), rounds(1)
    found = document(tmp_path, *first, *second, ended())
    assert ratio(found).verdict == verdict
    assert (ratio(found).high > 1 / (1 + floor)) == (verdict == "can't tell")
    assert found.groups[0].bias_floor == pytest.approx(floor, rel=0.02)


@pytest.mark.parametrize(
    ("low", "high", "holds"), [(0.92, 1.08, True), (0.8, 1.02, None), (None, 1.05, None), (None, None, None)]
)
def test_a_control_has_passed_only_if_it_is_known_closely(low: float | None, high: float | None, holds: bool | None):
    found = replace(cells.comparison(1.0, 0.1), low=low, high=high)
    assert copy_holds(cast(Group, None), found) is holds


def test_a_clear_difference_is_a_verdict(tmp_path: Path):
    found = document(tmp_path, prepared(A), prepared(B), *race(), ended())
    assert (ratio(found).verdict, ratio(found).reason) == (Verdict.FASTER, None)
    assert ratio(found).value == pytest.approx(0.8, rel=0.01)
    assert ratio(found).low < 0.8 < ratio(found).high
    assert found.control.holds
    assert found.control.ratio is not None
    assert (found.complete, found.wall_s, found.void_share) == (True, 7.0, 0.0)


def withheld(found: Document) -> str:
    assert ratio(found).verdict is Verdict.CANT_TELL
    assert ratio(found).value == pytest.approx(0.8, rel=0.01), "the figures stand all the same"
    return str(ratio(found).reason)


def test_a_control_that_differs_withholds_every_verdict(tmp_path: Path):
    found = document(tmp_path, *race(control=1.05), ended())
    assert "different from its control" in withheld(found)
    assert not found.control.holds


def test_a_control_that_never_ran_or_crashed_withholds_every_verdict(tmp_path: Path):
    lines = [line for line in race() if getattr(line, "arm", None) != COPY.label]
    assert "different from its control" in withheld(document(tmp_path, *lines, ended()))
    crash = not_run(GROUP, COPY, NotRun(NotRunKind.FAILED, "killed by SIGSEGV", during="a round"))
    assert "failed: " in withheld(document(tmp_path, *race(), crash, ended()))


def test_how_often_a_quota_held_the_race_back_is_summed_over_rounds(tmp_path: Path):
    held = [Disturbance("cgroup throttled", 7), Disturbance("steal", 0.1)]
    lines = [
        line.model_copy(update={"voided": ((0, tuple(held)), (2, (held[0],)))}) if isinstance(line, Rounds) else line
        for line in race()
    ]
    found = document(tmp_path, *lines, ended()).groups[0]
    restarts = found.restarts
    assert (found.throttled, found.void_reasons["cgroup throttled"]) == (14 * restarts, 2 * restarts)


@pytest.mark.parametrize("voided", [1, 3])
def test_flagged_rounds_withhold_nothing_and_are_counted(tmp_path: Path, voided: int):
    found = document(tmp_path, *race(voided=voided), ended())
    assert (ratio(found).verdict, ratio(found).reason) == (Verdict.FASTER, None)
    assert found.void_share == voided / 3
    assert found.groups[0].void_reasons == {"steal": 6 * voided}
    told = " ".join(printed(found).split())  # a line may end within it
    assert f"{100 * voided / 3:.0f} % of the rounds disturbed" in told


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_proposed_is_the_race_of_the_two_alone_unless_the_race_itself_goes_on(
    tmp_path: Path, *, complete: bool
):
    """Alone they have α to themselves, so that it takes less."""
    record = header().groups[0].model_copy(update={"goal": Goal(aim="best"), "comparisons": 40})
    lines: list[Line] = []
    for g in range(5):
        lines += [played(A, g, 1_000), played(COPY, g, 1_001), played(B, g, 900 + 60 * (g % 2)), rounds(g)]
    words: dict[str, Any] = {
        "command": ("run", "~/my net.py:make", "--batch", "1,8"),
        "given": {"inputs": "~/my data.npz"},
    }
    folder = write(tmp_path / "run", header(groups=(record,), **words), *lines, ended(complete=complete))
    sure = analyse(folder).answer[0].sure
    alone = "--model identity --batch 1 --backends b:cpu:fp32,a:cpu:fp32 --threads 1 --inputs '~/my data.npz'"
    told = f"{alone} --goal best" if complete else f"'~/my net.py:make' --batch 1,8 --out {folder}"
    assert (sure.nearest, sure.restarts_needed) == (A.label, 6 if complete else 10)
    assert sure.command == f"shootout run {told} --max-time 1m".replace("'~/my", "~/'my")


def test_the_sd_between_restarts_is_pooled_over_the_arms(tmp_path: Path):
    """B and the copy, each 3 restarts against A: the mean of two variances; one restart alone has none."""
    lines: list[Line] = []
    for g, ns in enumerate((100.0, 110.0, 121.0)):
        lines += [played(A, g, 100.0), played(B, g, ns), played(COPY, g, 100.0), rounds(g)]
    assert document(tmp_path, *lines, ended()).groups[0].sd == pytest.approx(math.log(1.1) / math.sqrt(2))
    (tmp_path / "one").mkdir()
    assert document(tmp_path / "one", *lines[:4], ended()).groups[0].sd is None


@pytest.mark.parametrize(
    ("flagged", "median_ns"), [((), 200.0), ((0,), 250.0), ((0, 1), 200.0)], ids=["none", "one of three", "most"]
)
def test_a_restart_counts_by_its_unflagged_rounds_if_they_are_half(
    tmp_path: Path, flagged: tuple[int, ...], median_ns: float
):
    blocks = dict.fromkeys(SCOPES, (100.0, 200.0, 300.0))
    lines = [played(arm, 0, 1.0, block_median_ns=blocks, flagged=flagged) for arm in (A, B, COPY)]
    timing = row(document(tmp_path, *lines, rounds(0, voided=len(flagged)), ended())).end_to_end
    assert timing is not None
    assert timing.median_ns == median_ns


def test_no_steady_state_in_most_restarts_withholds_the_verdict(tmp_path: Path):
    found = document(tmp_path, *race(steady_from=None), ended())
    assert withheld(found) == f"{B.label} found no steady state in 6 of 6 restarts"


def test_the_answer_waits_for_no_arm_without_a_steady_state(tmp_path: Path):
    """As the race did: B might lead, and is no answer. What a resumed race goes on from is the same."""
    plain = header()
    asked = plain.model_copy(update={"groups": (plain.groups[0].model_copy(update={"goal": Goal(aim="best")}),)})
    for steady_from, open_ in ((0, [(A.label, B.label)]), (None, [])):
        lines = [*race(b=1.01, restarts=2, steady_from=steady_from), ended()]
        history = journal.read(write(tmp_path / f"{steady_from}", asked, *lines))
        (group,) = (group_of(history, one) for one in history.groups)
        assert list_open(group) == open_
        resumed = Race(arms={arm.label: arm for arm in group.record.arms}, group=group, seed="0")
        assert list(resumed.open_pairs()) == open_


def with_samples(folder: Path, readings: int) -> None:
    turn = Turn(latency_ns={scope: np.linspace(900, 1_100, readings) for scope in SCOPES})
    for g in range(6):
        samples.write(folder, f"samples/g0-{g:03}.npz", [(A.label, [turn]), (B.label, [turn])])


def test_percentiles_come_from_the_raw_samples_where_there_are_enough(tmp_path: Path):
    folder = write(tmp_path / "run", header(), *race(), ended())
    with_samples(folder, 30)
    timing = row(analyse(folder)).end_to_end
    assert timing is not None
    assert timing.samples == 180
    assert timing.p99_ns is None, "that takes 662"
    with_samples(folder, 800)
    timing = row(analyse(folder)).end_to_end
    assert timing is not None
    assert 1_090 < timing.p99_low_ns <= timing.p99_ns <= 1_100  # type: ignore[operator]


def test_lines_that_could_not_be_read_are_warned_of(tmp_path: Path):
    folder = write(tmp_path / "run", header(), *race(), ended())
    path = folder / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b"garbage\n" + b"{}\n")
    found = analyse(folder)
    unread, lost = found.warnings
    assert "garbage" not in unread
    assert lost.startswith("samples/g0-000.npz and 5 more files are gone or damaged")
    assert ratio(found).verdict is Verdict.FASTER
    assert "garbage" not in printed(found)
    assert unread.endswith(": 27 (lines)")


def printed(found: Document, *, full: bool = False) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: PTH123, SIM115
    console.print(table.render(found, 200, full=full))
    return console.export_text()
