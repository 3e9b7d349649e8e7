"""The laboratory: its commands start, and what it concludes from runs is right."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from support.races.made import COPY, A, B, ended, header, played, rounds, write

from lab import __main__ as bench
from lab import arm, quota, simulate
from lab.metrics_simulated import HARMLESS
from lab.whole_runs import shipped
from shootout.apps.judge.analysis import analyse
from shootout.core.host import placement


@pytest.mark.parametrize("name", bench.EVERY)
def test_each_section_is_where_the_list_says(name: str):
    module, function = bench.EVERY[name].made_by.split(":")
    assert callable(getattr(importlib.import_module(f"lab.{module}"), function))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_every_simulated_target_of_the_documents_holds_at_full_size():
    assert [figure.name for figure in simulate.figures(4_000) if not figure.holds] == []


@pytest.mark.parametrize(("restarts", "answer"), [(1, None), (5, B.label)])
def test_the_fastest_so_far_is_no_answer(restarts: int, answer: str | None, tmp_path: Path):
    race = [
        line
        for g in range(restarts)
        for line in (played(A, g, 1_000 + g), played(COPY, g, 1_001 + g), played(B, g, 500 + g), rounds(g))
    ]
    found = analyse(write(tmp_path / "run", header(), *race, ended()))
    assert found.answer[0].ship
    assert shipped(found) == answer


def test_the_page_of_metrics_has_the_figures_of_its_simulation():
    root = Path(__file__).resolve().parents[1]
    tables = json.loads((root / "results/reference/metrics.json").read_text())["sections"]["metrics"]["tables"]
    false, right = tables.values()
    shares = [row["admitted"] for row in false]
    page = " ".join((root / "docs/evidence/metrics.md").read_text().split())
    assert f"in {len(shares)} settings" in page
    assert f"in at most {max(shares):.1%}".replace("%", " %") in page
    assert max(shares) <= 0.05
    known = {(row["change"], row["rows"]): f"{row['admitted at 1 %']:.0%}".replace("%", " %") for row in right}
    noisy, changed = ([known[name, rows] for rows in (300, 400, 1_000)] for name in list(HARMLESS)[::2])
    assert f"in {noisy[0]} of runs with 300 rows, in {noisy[1]} with 400 and in {noisy[2]} with 1,000." in page
    assert f"it is {changed[1]} with 400 rows and {changed[2]} with 1,000." in page
    (errors,) = [row for row in right if (row["change"], row["rows"]) == ("errors change by 5 %", 3_000)]
    at_1, at_3 = (f"{errors[f'admitted at {limit} %']:.0%}".replace("%", " %") for limit in (1, 3))
    assert f"prove a limit of 1 % in {at_1} of runs, and one of 3 % in {at_3}." in page


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_is_set_in_a_group_of_its_own(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make, files = Path.mkdir, ("cpu.max",) if version == 2 else ("cpu.cfs_period_us", "cpu.cfs_quota_us")

    def as_the_kernel_does(folder: Path) -> None:
        make(folder)
        for name in files:
            (folder / name).touch()

    if version == 1:
        make(tmp_path / "cpu")
    monkeypatch.setattr(Path, "mkdir", as_the_kernel_does)
    group = quota.make_group(1.5, tmp_path)
    assert group.parent == (tmp_path / "cpu" if version == 1 else tmp_path)
    assert [(group / name).read_text() for name in files] == (
        ["150000 100000"] if version == 2 else ["100000", "150000"]
    )
    assert placement.cpu_quota([group]) == 1.5


def test_a_userland_is_not_removed_while_something_is_mounted_below_it(tmp_path: Path):
    mounts, board = tmp_path / "mounts", tmp_path / "arm"
    mounts.write_text(f"proc /proc proc rw 0 0\nproc {board}-other/root/proc proc rw 0 0\n")
    arm.refuse_mounted(board, mounts)
    with mounts.open("a") as more:
        more.write(f"proc {board}/root/proc proc rw 0 0\nudev {board}/root/proc/sys/x devtmpfs rw 0 0\n")
    with pytest.raises(SystemExit, match=f"umount {board}/root/proc/sys/x {board}/root/proc$"):
        arm.refuse_mounted(board, mounts)
