"""Runs of several machines as one document: what to ship everywhere, what flips, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.console import here
from support.kept_screen import hold
from support.plain import as_plain
from support.races import made
from support.races.candidates import analysed
from support.races.cells import row

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.compare import merged
from shootout.apps.judge.compare.merge import MergedCell, find_fate, merge, merge_runs
from shootout.apps.judge.compare.merged import NAME, expand_merged, write_merged
from shootout.apps.judge.compare.screen import render_merged
from shootout.core.errors import UsageError
from shootout.core.journal import samples
from shootout.core.stats.verdicts import Verdict

SMALL = analysed("small", row("a", 100), row("b", 200), row("c", 150), machine="1111aaaa2222")
LARGE = analysed("large", row("a", 300), row("b", 100), row("c", 130), machine="3333bbbb4444", cpus=8)


def ships(cell: MergedCell) -> list[str]:
    """What each place ships by itself."""
    return [one.ship.arm for one in cell.answers.values() if one.ship]


def test_everywhere_goes_what_costs_least_where_it_costs_most():
    """Neither place ships it by itself: `a` would take 3 times as long in the one, `b` twice in the other."""
    (found,) = merge([SMALL, LARGE]).cells
    assert ships(found) == ["a:cpu:fp32", "b:cpu:fp32"]
    assert found.everywhere
    assert found.everywhere.arm == "c:cpu:fp32"
    assert found.everywhere.place == "AMD EPYC, 2 CPUs"
    assert found.everywhere.ratio
    assert found.everywhere.ratio.value == pytest.approx(1.5)
    assert {arm: one.value for arm, one in found.worst.items()} == pytest.approx(
        {"a:cpu:fp32": 3, "b:cpu:fp32": 2, "c:cpu:fp32": 1.5}
    )


LIGHT = {"artifact_bytes": 500_000}
HERE, THERE = (
    analysed(name, row("a", a), row("b", b, **LIGHT), machine=name, within=0.1)
    for name, a, b in (("here", 100, 150), ("there", 97, 100))
)
VAGUE = analysed("vague", row("a", 300), row("b", 100), row("c", 130), machine="5", within=float("inf"))
ALIKE = tuple(
    analysed(name, row("a", ns), row("b", 1_000.0 + at), row("c", 2_000), machine=name, within=1e-4)
    for name, ns, at in (("small", 1_000, 0.2), ("large", 1_400, 0.0))
)


def renamed(one: Analysed, name: str) -> Analysed:
    """The same figures in another run."""
    again = replace(one, document=one.document.model_copy(update={"run": name}))
    return replace(again, history=analysed(name).history)


def test_screens_of_what_goes_everywhere_are_those_that_are_kept():
    found = {
        "one is as fast as the best of each place": (HERE, THERE),
        "what every place ships": (HERE, renamed(HERE, "elsewhere")),
        "it leads in one place": (SMALL, VAGUE),
        "a difference that no digit shows": ALIKE,
    }
    told = [
        f"=== {name}\n{as_plain(render_merged(merge(runs), 100, full=False), 100)}\n" for name, runs in found.items()
    ]
    hold("merged", "\n".join(told))


def test_the_best_of_one_place_that_another_does_not_ship_is_not_what_every_place_ships():
    """There it is as fast as what is shipped, which takes less room."""
    found = merge([HERE, THERE])
    (cell,) = found.cells
    assert ships(cell) == ["a:cpu:fp32", "b:cpu:fp32"]
    everywhere = cell.everywhere
    assert everywhere
    assert (everywhere.arm, everywhere.place) == ("a:cpu:fp32", found.places[0].name)
    assert everywhere.ratio
    assert (everywhere.ratio.value, everywhere.ratio.high) == (1.0, pytest.approx(0.97 * 1.1))


def test_the_worst_goes_as_far_as_that_of_any_place_and_names_who_may_cost_as_little():
    """`c` measured worst where it is known well, and may be worse where it isn't; `a` is no better for sure there."""
    pair = frozenset({"c:cpu:fp32", "b:cpu:fp32"})
    near = analysed("near", row("a", 100), row("b", 400), row("c", 171), machine="1", within=0.05)
    far = analysed("far", row("b", 100), row("c", 160), row("a", 400), machine="2", within=0.05, known={pair: 2.0})
    found = merge([near, far])
    everywhere = found.cells[0].everywhere
    assert everywhere
    assert everywhere.ratio
    assert (everywhere.arm, everywhere.place) == ("c:cpu:fp32", found.places[0].name)
    assert everywhere.ratio.low == pytest.approx(1.71 / 1.05)
    assert everywhere.ratio.high == pytest.approx(1.60 * 3)
    assert (everywhere.unsettled, everywhere.reason) == (("a:cpu:fp32",), None)


@pytest.mark.parametrize("width", [60, 120])
def test_no_width_breaks_a_target_s_name(width: int):
    names = "torch-eager", "jax-jit", "openvino"
    times = [(100, 105, 300), (300, 105, 100)]
    runs = [
        analysed(str(number), *map(row, names, ns), machine=str(number), within=0.04) for number, ns in enumerate(times)
    ]
    told = as_plain(render_merged(merge(runs), width, full=False), width)
    firsts = {line.split(" ")[0] for line in told.splitlines()}
    assert {*names, "target"} <= firsts
    assert max(map(len, told.splitlines())) <= width


@pytest.mark.parametrize(
    ("unsteady", "best", "others"),
    [("a", "b:cpu:int8", {"b:cpu:int8", "c:cpu:int8"}), ("abc", "a:cpu:fp32", {"a:cpu:fp32"})],
)
def test_what_a_place_ships_may_be_shipped_there(unsteady: str, best: str, others: set[str]):
    """Its FP32 is unsteady, so that it ships an INT8: an FP32 that doesn't count mustn't forbid that. Or all are."""
    rows = row("a", 100), row("b:cpu:int8", 50), row("c:cpu:int8", 60)
    here, there = (
        analysed(name, *rows, machine=name, withheld=lambda arm: "unsteady" if arm[0] in unsteady else None)
        for name in ("here", "there")
    )
    (found,) = merge([here, there]).cells
    assert found.everywhere
    assert found.everywhere.arm == best
    assert found.worst.keys() == others


def test_nothing_is_said_of_a_pair_by_a_place_without_a_verdict():
    faster, same, slower, open_ = Verdict.FASTER, Verdict.SAME, Verdict.SLOWER, Verdict.CANT_TELL
    assert find_fate([faster, faster]) == "holds"
    assert find_fate([faster, same]) == "unknown"
    assert find_fate([faster, open_]) == "unknown"
    assert find_fate([faster, open_, slower]) == "flips"


def test_a_target_that_one_place_has_no_time_of_goes_nowhere():
    """Though it is the best of the other; nor does one that broke there."""
    without = analysed("large", row("a", None), row("b", 100), row("c", 130), machine="3")
    (found,) = merge([SMALL, without]).cells
    assert found.everywhere
    assert found.everywhere.arm == "c:cpu:fp32"
    assert "a:cpu:fp32" not in found.worst


def test_a_place_whose_figures_do_not_count_leaves_none():
    broken = analysed("large", row("a", 300), row("b", 100), machine="3", control_holds=False, unvouched="no")
    (found,) = merge([SMALL, broken]).cells
    assert found.everywhere is None
    assert found.reason
    assert found.reason.startswith("no answer on AMD EPYC, 2 CPUs (3):")
    assert {one.fate for one in found.pairs} == {"unknown"}


def test_nothing_holds_of_a_pair_that_a_place_has_no_time_of():
    """Unless it flips among the others."""
    without = analysed("without", row("a", 100), row("b", None), row("c", 150), machine="6")
    again = renamed(SMALL, "again")
    for runs, fate in (([SMALL, again], "holds"), ([SMALL, again, without], "unknown")):
        fates = {frozenset((one.a[0], one.b[0])): one.fate for one in merge(runs).cells[0].pairs}
        assert fates[frozenset("ab")] == fate
    fates = {frozenset((one.a[0], one.b[0])): one.fate for one in merge([SMALL, LARGE, without]).cells[0].pairs}
    assert fates[frozenset("ab")] == "flips"


def test_what_is_no_other_machine_s_run_of_the_same_is_refused():
    with pytest.raises(UsageError, match="small and small are the same run"):
        merge([SMALL, SMALL])
    other = analysed("other", row("a", 1), machine="3", facts={"arm": replace(made.A, model="digits")})
    with pytest.raises(UsageError, match="model differs: identity and digits"):
        merge([SMALL, other])
    copied = replace(SMALL, document=SMALL.document.model_copy(update={"run": "copied"}))
    with pytest.raises(UsageError, match="small and copied are the same run"):
        merge([SMALL, copied])
    with pytest.raises(UsageError, match=r"small and given can't be merged: inputs differs: None and mine\.npz"):
        merge([SMALL, analysed("given", row("a", 1), given={"inputs": "mine.npz"})])


def test_parts_of_one_study_need_have_no_cell_in_common():
    """A grid that several machines of one kind share."""
    mine, others = (
        analysed(name, row("a", 1), machine=name, facts={"study": "grid", "arm": replace(made.A, batch=batch)})
        for name, batch in (("one", 1), ("two", 8))
    )
    assert [len(cell.answers) for cell in merge([mine, others]).cells] == [1, 1]


def test_two_nodes_that_begin_in_the_same_second_are_two_runs():
    """Of one image, whose key is one; and so are two that were given up before they had a figure."""
    for times in ((1.25, 1.5), (None, None)):
        one, other = (
            analysed(name, row("a", 1), facts={"took_s": took_s})
            for name, took_s in zip(("x", "y"), times, strict=True)
        )
        assert len(merge([one, replace(other, history=one.history)]).places) == 2


def test_other_threads_are_told():
    """What flips may be due to them."""
    many = analysed("many", row("a", 1, threads=8), row("b", 2, threads=8), machine="8")
    (warning,) = merge([SMALL, many]).warnings
    assert "threads differs: 1 and 8" in warning


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Of two machines, each of which has another best."""
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    return [made.raced(tmp_path / "one", "one", 1_000, 2_000), made.raced(tmp_path / "two", "two", 3_000, 2_000)]


def test_a_merged_folder_is_shown_decided_on_and_written_as_its_runs_are(runs: list[Path], tmp_path: Path):
    made_of = here("merge", *runs, "-o", "both", "--json", cwd=tmp_path)
    assert made_of.code == 0, made_of.err
    shown = here("show", "both", "--json", "--to", "all.csv", cwd=tmp_path)
    for one in (made_of.data, shown.data):
        assert [place["name"] for place in one["places"]] == ["CPU of one, 1 CPU", "CPU of two, 1 CPU"]
    assert shown.data["cells"][0]["pairs"] == made_of.data["cells"][0]["pairs"]
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert {"place", "machine", "run"} <= set(lines[0].split(","))
    assert len(lines) == 1 + len(shown.data["rows"])
    assert len(here("decide", "both", "--json", cwd=tmp_path).data["runs"]) == 2
    alone = here("merge", runs[0], cwd=tmp_path)
    assert (alone.code, "two runs or more" in alone.err) == (2, True)
    shipped = here("ship", "both", "-o", "model-1", cwd=tmp_path)
    assert (shipped.code, "name one of them, e.g. both/runs/" in shipped.err) == (2, True)
    refused = here("show", "both", "--to", "all.xml", cwd=tmp_path)
    assert (refused.code, "format for one run" in refused.err) == (2, True)


def test_a_merged_folder_that_broke_midway_can_be_made_again(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(run: Path, place: Path) -> None:
        place.mkdir(parents=True)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(merged, "pack", full)
        with pytest.raises(UsageError, match="No space left"):
            write_merged(runs, tmp_path / "both")
    write_merged(runs, tmp_path / "both")
    assert len(expand_merged([tmp_path / "both"])) == 2


def test_an_index_of_a_stranger_is_refused(runs: list[Path], tmp_path: Path):
    write_merged(runs, tmp_path / "both")
    index = tmp_path / "both" / NAME
    data = json.loads(index.read_text())
    for changed in ({"runs": ["../elsewhere"]}, {"format": "shootout.merged/9"}, {"more": 1}, {"runs": []}):
        index.write_text(json.dumps(data | changed))
        with pytest.raises(UsageError, match="is damaged, of another version, or names no run in its folder"):
            expand_merged([tmp_path / "both"])
    shutil.rmtree(tmp_path / "both" / "runs")
    index.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="no run in"):
        merge_runs([tmp_path / "both"])
