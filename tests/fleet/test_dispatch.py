"""Nodes are lost, busy or interrupted, and nothing that was measured is: on a cluster without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fleets.cluster import FakeCluster
from support.fleets.nodes import GROUPS, node

from shootout.clock import Deadline
from shootout.commands.fleet import exit_code
from shootout.errors import ExitCode, Interrupted, NotRunKind
from shootout.fleet import dispatch
from shootout.fleet.dispatch import Dispatch
from shootout.fleet.folders import find_finished, find_held, find_parts
from shootout.fleet.nodes import find_kinds
from shootout.fleet.plan import deal
from shootout.journal import journal
from shootout.journal.merged import expand_merged, is_merged
from shootout.journal.records import Failure, Skip


class Silent:
    """Nobody listens."""

    def say(self, text: str) -> None:
        pass

    def stage(self, headline: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "LOOK_S", 0.0)


def prepared(cluster: FakeCluster, out: Path, *, together: bool = False, limit: Deadline | None = None) -> Dispatch:
    kinds, held = find_kinds(cluster.nodes), find_held(out)
    by_kind = {kind.key: [one for one in held if one.kind == kind.key] for kind in kinds}
    parts = [part for kind in kinds for part in deal(kind, by_kind[kind.key], together=together)]
    out.mkdir(exist_ok=True)
    progress: Any = Silent()
    return Dispatch(
        cluster=cluster,
        out=out,
        told={"study": {}},
        progress=progress,
        limit=limit or Deadline(None),
        together=together,
        kinds=kinds,
        parts=parts,
        held=held,
    )


def finished(out: Path, *, of: str = "") -> list[str]:
    """The groups that are measured, in all parts of a kind."""
    runs = [journal.read(folder) for folder in find_parts(out) if folder.name.startswith(of)]
    return sorted(name for run in runs for name in find_finished(run))


def failed(folder: Path) -> list[tuple[str, NotRunKind]]:
    lines = journal.read(folder).lines
    return sorted({(line.group, line.cause) for line in lines if isinstance(line, Failure)})


def asked(cluster: FakeCluster) -> list[tuple[str, Sequence[str]]]:
    return [(name, job.told["groups"]) for name, job in cluster.begun]


def test_every_kind_measures_every_group_and_its_nodes_share_them(tmp_path: Path):
    cluster = FakeCluster([node("a1", label="a"), node("a2", label="a"), node("b1", label="b")], tmp_path / "nodes")
    work = prepared(cluster, tmp_path / "out")
    work.run()
    assert finished(tmp_path / "out", of="a-") == finished(tmp_path / "out", of="b-") == sorted(GROUPS)
    assert asked(cluster) == [("a1", ["g1", "g3", "g5"]), ("a2", ["g2", "g4"]), ("b1", [*GROUPS])]
    assert sorted(cluster.released) == ["a1", "a2", "b1"]
    assert exit_code(work) == 0
    assert all(job.claims for _, job in cluster.begun)


def test_a_lost_node_leaves_what_it_measured_and_failed_rows_and_others_measure_the_rest(tmp_path: Path):
    cluster = FakeCluster([node("one"), node("other")], tmp_path / "nodes", dies_after={"one": 1})
    work = prepared(cluster, tmp_path / "out")
    work.run()
    first, second, third = find_parts(tmp_path / "out")
    assert find_finished(journal.read(first)) == ["g1"]
    assert failed(first) == [("g3", NotRunKind.KILLED), ("g5", NotRunKind.KILLED)]
    assert (find_finished(journal.read(second)), find_finished(journal.read(third))) == (["g2", "g4"], ["g3", "g5"])
    assert finished(tmp_path / "out") == sorted(GROUPS)
    assert asked(cluster)[2] == ("other", ["g3", "g5"])
    assert exit_code(work) == 0


def test_a_node_that_is_lost_before_its_first_line_leaves_failed_rows_too(tmp_path: Path):
    cluster = FakeCluster([node("one")], tmp_path / "nodes", dies_after={"one": 0})
    work = prepared(cluster, tmp_path / "out")
    work.run()
    (only,) = find_parts(tmp_path / "out")
    assert failed(only) == [(name, NotRunKind.KILLED) for name in GROUPS]
    assert len(work.abandoned) == len(GROUPS)
    assert exit_code(work) == ExitCode.FAILED


def test_what_two_nodes_were_lost_with_is_not_begun_again(tmp_path: Path):
    names = ["n1", "n2", "n3"]
    nodes = [node(name, groups=["g1"]) for name in names]
    cluster = FakeCluster(nodes, tmp_path / "nodes", dies_after=dict.fromkeys(names, 0))
    work = prepared(cluster, tmp_path / "out")
    work.run()
    assert asked(cluster) == [("n1", ["g1"]), ("n2", ["g1"])]
    assert exit_code(work) == ExitCode.FAILED


def test_a_node_that_others_hold_is_given_up_and_another_measures_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatch, "CLAIM_S", 0.0)
    cluster = FakeCluster([node("held"), node("free")], tmp_path / "nodes", busy=["held"])
    prepared(cluster, tmp_path / "out").run()
    assert finished(tmp_path / "out") == sorted(GROUPS)
    skips = [line for line in journal.read(find_parts(tmp_path / "out")[0]).lines if isinstance(line, Skip)]
    assert {line.cause for line in skips} == {NotRunKind.NOT_REACHED}
    assert "others' tasks hold" in skips[0].reason


def test_a_node_that_was_busy_before_begins_its_part_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "CLAIM_S", 0.0)
    work = prepared(FakeCluster([node("held")], tmp_path / "nodes", busy=["held"]), tmp_path / "out")
    work.run()
    assert exit_code(work) == ExitCode.FAILED
    free = FakeCluster([node("held")], tmp_path / "again")
    prepared(free, tmp_path / "out").run()
    (folder,) = find_parts(tmp_path / "out")
    assert finished(tmp_path / "out") == sorted(GROUPS)
    assert (folder / journal.NAME).read_bytes() == next((tmp_path / "again").glob(f"*/{journal.NAME}")).read_bytes()
    assert not journal.read(folder).damaged


def test_two_busy_nodes_are_no_reason_to_leave_out_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "CLAIM_S", 0.0)
    nodes = [node(name, groups=["g1"]) for name in ("n1", "n2", "n3")]
    work = prepared(FakeCluster(nodes, tmp_path / "nodes", busy=["n1", "n2"]), tmp_path / "out")
    work.run()
    assert finished(tmp_path / "out") == ["g1"]
    assert exit_code(work) == 0


def test_who_was_busy_until_the_time_was_over_has_measured_nothing_and_nobody_failed(tmp_path: Path):
    cluster = FakeCluster([node("held"), node("other")], tmp_path / "nodes", busy=["held", "other"])
    work = prepared(cluster, tmp_path / "out", limit=Deadline(0.0))
    work.run()
    assert exit_code(work) == ExitCode.NOTHING


def test_a_process_that_fails_leaves_failed_rows_and_another_node_measures_the_rest(tmp_path: Path):
    cluster = FakeCluster([node("one"), node("other")], tmp_path / "nodes", fails_after={"one": 1})
    work = prepared(cluster, tmp_path / "out")
    work.run()
    first = find_parts(tmp_path / "out")[0]
    assert failed(first) == [("g3", NotRunKind.KILLED), ("g5", NotRunKind.KILLED)]
    reasons = {line.reason for line in journal.read(first).lines if isinstance(line, Failure)}
    assert reasons == {"the process on the node one ended: no memory was left"}
    assert asked(cluster)[2:] == [("other", ["g3", "g5"])]
    assert finished(tmp_path / "out") == sorted(GROUPS)
    assert exit_code(work) == 0


def test_a_process_that_fails_where_there_is_no_other_node_is_told(tmp_path: Path):
    cluster = FakeCluster([node("one")], tmp_path / "nodes", fails_after={"one": 0})
    work = prepared(cluster, tmp_path / "out")
    work.run()
    assert failed(find_parts(tmp_path / "out")[0]) == [(name, NotRunKind.KILLED) for name in GROUPS]
    assert exit_code(work) == ExitCode.FAILED


def test_what_spans_groups_begins_whole_on_another_node(tmp_path: Path):
    cluster = FakeCluster([node("one"), node("other")], tmp_path / "nodes", dies_after={"one": 3})
    prepared(cluster, tmp_path / "out", together=True).run()
    assert asked(cluster) == [("one", [*GROUPS]), ("other", [*GROUPS])]
    assert find_finished(journal.read(find_parts(tmp_path / "out")[1])) == [*GROUPS]


def test_what_has_come_can_be_shown_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out, seen = tmp_path / "out", list[int]()

    def sleep(_: float) -> None:
        seen.append(is_merged(out) and len(expand_merged([out])))

    monkeypatch.setattr(dispatch, "sleep", sleep)
    prepared(FakeCluster([node("one"), node("other")], tmp_path / "nodes"), out).run()
    assert set(seen) == {2}


def test_a_folder_that_no_line_came_into_yet_is_no_obstacle(tmp_path: Path):
    cluster = FakeCluster([node("one")], tmp_path / "nodes")
    (part,) = prepared(cluster, tmp_path / "out").parts
    (tmp_path / "out" / part.name / "samples").mkdir(parents=True)
    prepared(cluster, tmp_path / "out").run()
    assert finished(tmp_path / "out") == sorted(GROUPS)


def test_samples_that_no_line_names_are_not_sent(tmp_path: Path):
    one = node("one")
    prepared(FakeCluster([one], tmp_path / "nodes", dies_after={"one": 2}), tmp_path / "out").run()
    (folder,) = find_parts(tmp_path / "out")
    (folder / "samples").mkdir()
    (folder / "samples" / "g3-0.parquet").write_bytes(b"its lines never came")
    again = FakeCluster([one], tmp_path / "again")
    prepared(again, tmp_path / "out").run()
    assert [*again.begun[0][1].folder] == [journal.NAME]
    assert not [*(folder / "samples").iterdir()]


def test_an_interrupt_ends_the_nodes_and_keeps_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cluster = FakeCluster([node("one"), node("other")], tmp_path / "nodes")
    looks = iter([None, KeyboardInterrupt()])

    def sleep(_: float) -> None:
        if raised := next(looks, None):
            raise raised

    monkeypatch.setattr(dispatch, "sleep", sleep)
    with pytest.raises(Interrupted):
        prepared(cluster, tmp_path / "out").run()
    assert finished(tmp_path / "out") == ["g1", "g2", "g3", "g4"]
    assert sorted(cluster.stopped) == sorted(cluster.released) == ["one", "other"]

    again = FakeCluster(cluster.nodes, tmp_path / "again")
    prepared(again, tmp_path / "out").run()
    assert finished(tmp_path / "out") == sorted(GROUPS)
    assert asked(again) == [("one", ["g1", "g3", "g5"])]  # the other was done with its own
    assert len(find_parts(tmp_path / "out")) == 2


def test_the_same_command_goes_on_from_the_last_whole_fact(tmp_path: Path):
    one = node("one")
    cluster = FakeCluster([one], tmp_path / "nodes", dies_after={"one": 2})
    prepared(cluster, tmp_path / "out").run()
    (folder,) = find_parts(tmp_path / "out")
    with (folder / journal.NAME).open("ab") as file:
        file.write(b'{"kind":"pla')
    again = FakeCluster([one], tmp_path / "again")
    prepared(again, tmp_path / "out").run()
    assert finished(tmp_path / "out") == sorted(GROUPS)
    assert len(find_parts(tmp_path / "out")) == 1
    assert not journal.read(folder).damaged
    assert b'{"kind":"pla' not in again.begun[0][1].folder[journal.NAME][-12:]


def test_a_finished_run_begins_nothing(tmp_path: Path):
    cluster = FakeCluster([node("one")], tmp_path / "nodes")
    prepared(cluster, tmp_path / "out").run()
    again = FakeCluster(cluster.nodes, tmp_path / "again")
    work = prepared(again, tmp_path / "out")
    work.run()
    assert again.begun == []
    assert exit_code(work) == 0
