"""`run … --on` on a cluster without Ray: what it refuses, what each node gets, what is kept when nodes are lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fleets.cluster import FakeCluster
from support.fleets.nodes import GROUPS, node

from shootout.commands import fleet
from shootout.contract import Device, Precision, Target
from shootout.errors import ExitCode, NotRunKind, UsageError
from shootout.export.delivery import Delivery
from shootout.fleet.node_kinds import NodeKind
from shootout.fleet.parcel import Parcel, _zip_contents
from shootout.fleet.parts import find_parts, find_settled
from shootout.fleet.ray_cluster import check_address
from shootout.host.store import cache_folder
from shootout.journal import journal
from shootout.journal.merged import is_merged
from shootout.journal.records import Failure, Skip
from shootout.study import points, selection
from shootout.study.group import confirming_name
from shootout.study.plan import PlannedGroup

NODES = [node("a1", label="a"), node("a2", label="a"), node("b1", label="b")]
SENT = Parcel(package=b"p" * 3_000, files=b"f", fields={}, names=("net.py",))
DELIVER = fleet._deliver
Use = Callable[..., FakeCluster]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a cluster of nodes, which the command finds from then on."""
    monkeypatch.setattr(fleet, "pack", lambda *_, **__: SENT)
    monkeypatch.setattr(fleet, "_deliver", lambda *_: Delivery(made_on="it", models={}))
    monkeypatch.setattr(fleet, "print_runs", lambda *_, **__: ExitCode.OK)
    monkeypatch.setattr(fleet, "STOP_S", 0.1)

    def make(*nodes: Any, **how: Any) -> FakeCluster:
        made = FakeCluster(nodes or NODES, tmp_path / f"nodes{len([*tmp_path.iterdir()])}", **how)

        @contextmanager
        def reach(*_: object) -> Iterator[FakeCluster]:
            yield made

        monkeypatch.setattr(fleet, "reach", reach)
        return made

    return make


def run(out: Path, *, dry_run: bool = False, as_json: bool = False, **options: Any) -> int:
    asked: Any = {"backends": ["numpy"], "out": out, **options}
    return fleet.run_on_fleet("mlp", asked, address="x:1", dry_run=dry_run, full=False, as_json=as_json)


def settled(out: Path, *, of: str = "") -> list[str]:
    """The groups that are measured, in all parts of a kind."""
    runs = [journal.read(folder) for folder in find_parts(out) if folder.name.startswith(of)]
    return sorted(name for run in runs for name in find_settled(run))


def failed(folder: Path) -> list[tuple[str, NotRunKind]]:
    lines = journal.read(folder).lines
    return sorted({(line.group, line.cause) for line in lines if isinstance(line, Failure)})


def asked(cluster: FakeCluster) -> list[tuple[str, list[str]]]:
    return [(name, job.words["groups"]) for name, job in cluster.begun]


def test_a_dry_run_tells_what_each_node_would_measure(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster = use()
    assert run(tmp_path / "out", dry_run=True, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["sent_bytes"]) == (["net.py"], 3_001)
    assert [kind["nodes"] for kind in told["kinds"]] == [["a1", "a2"], ["b1"]]
    first, second = told["kinds"][0]["parts"]
    assert (first["node"], first["groups"], first["cells"], first["estimate_s"]) == ("a1", ["g1", "g3", "g5"], 6, 6.0)
    assert (second["node"], second["groups"]) == ("a2", ["g2", "g4"])
    assert not (tmp_path / "out").exists()
    assert not cluster.begun

    assert run(tmp_path / "out", dry_run=True) == 0
    shown = capsys.readouterr().out
    assert "this package and net.py." in shown
    assert "a1: 3 groups, 6 cells, at least" in shown
    assert "g1; g2; g3; g4 and 1 more" in shown, "b1's"


def test_every_kind_measures_every_group_and_its_nodes_share_them(use: Use, tmp_path: Path):
    cluster = use()
    assert run(tmp_path / "out") == 0
    assert settled(tmp_path / "out", of="a-") == settled(tmp_path / "out", of="b-") == sorted(GROUPS)
    assert asked(cluster) == [("a1", ["g1", "g3", "g5"]), ("a2", ["g2", "g4"]), ("b1", [*GROUPS])]
    assert is_merged(tmp_path / "out")
    assert {*cluster.released} == {"a1", "a2", "b1"}


def test_nodes_that_get_exports_get_those_of_their_kind(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = tmp_path / ("d" * 64)
    made.mkdir()
    (made / "engine").touch()
    models = {("g1", "m", "", 1, Device.CPU, False): "a" * 64}
    files, asked_for = {"a" * 64: ["model.onnx"]}, list[str]()

    def deliver(_study: object, _parcel: object, kind: NodeKind, *_: object) -> Delivery:
        asked_for.append(kind.nodes[0].place.name)
        return Delivery(made_on=f"for {kind.nodes[0].place.name}", models=models, builds={"one": made}, files=files)

    monkeypatch.setattr(fleet, "_deliver", deliver)
    cluster = use(were_named=True)
    assert run(tmp_path / "out") == 0
    assert asked_for == ["a1", "b1"], "once a kind"
    words = [job.words["delivery"] for _, job in cluster.begun]
    assert [one["made_on"] for one in words] == ["for a1", "for a1", "for b1"]
    assert words[0]["builds"] == {"one": {"folder": made.name}}
    places = {
        f"exported/{'a' * 64}": {"model.onnx": cache_folder() / ("a" * 64) / "model.onnx"},
        f"fleet/{made.name}": {"engine": made / "engine"},
    }
    assert cluster.delivered == [places] * 3
    assert run(tmp_path / "out") == 0
    assert len(asked_for) == 2, "nothing is made for what is measured"


def test_a_node_that_adds_groups_gets_their_exports_and_none_of_another_model_s(
    use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = list[tuple[list[tuple[str, str, int]], bool]]()

    def deliver(groups: Sequence[PlannedGroup], needs: Collection[str], *_: object) -> Delivery:
        asked = [(group.record.name, group.request.model, group.request.batch) for group in groups]
        made.append((asked, "fp32" in needs))
        return Delivery(made_on="it", models={(asked[0][0], "mlp", "", 8, Device.CPU): "a" * 64})

    monkeypatch.setattr(fleet, "deliver", deliver)
    monkeypatch.setattr(fleet, "_deliver", DELIVER)
    monkeypatch.setattr(fleet, "pack", lambda *_, **__: replace(SENT, fields={"model": ["identity"]}))
    asked: Any = {"backends": ["spin"], "out": tmp_path / "out"}
    (point,) = points.points(selection.choose("mlp", asked))
    cluster = use(node("one", groups=[points.group_name(point)]), were_named=True)
    fleet.run_on_fleet("mlp", asked, address="x:1", dry_run=False, full=False, as_json=False)
    (supply,) = cluster.supplies
    assert supply
    (record,) = cluster.fleet[0].header.groups
    arms = [replace(arm, batch=8) for arm in record.arms]
    further = record.model_copy(update={"name": "mlp (batch=8)", "arms": tuple(arms)})
    found = supply([further.model_dump(mode="json")])
    assert made[1:] == [([("mlp (batch=8)", "mlp", 8)], True)]
    names = ("mlp (batch=8)", confirming_name("mlp (batch=8)"))
    assert [*found.models] == [(name, "identity", "", 8, Device.CPU) for name in names], "as the node calls the model"
    other = further.model_copy(update={"arms": tuple(replace(arm, model="/etc/x.onnx") for arm in arms)})
    with pytest.raises(UsageError, match="isn't of this study"):
        supply([other.model_dump(mode="json")])
    with pytest.raises(UsageError, match="what is no group"):
        supply([{"name": 1}])


def test_a_finished_run_begins_nothing(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    use()
    run(tmp_path / "out")
    again = use()
    assert run(tmp_path / "out") == 0
    assert again.begun == []
    capsys.readouterr()
    run(tmp_path / "out", dry_run=True)
    assert "nothing is left for a1, a2" in capsys.readouterr().out


def test_a_lost_node_leaves_rows_that_say_so_and_the_same_command_measures_them(use: Use, tmp_path: Path):
    use(node("one"), node("other"), lost=["one"])
    assert run(tmp_path / "out") == ExitCode.FAILED
    first, second = find_parts(tmp_path / "out")
    assert failed(first) == [(name, NotRunKind.KILLED) for name in ("g1", "g3", "g5")]
    assert find_settled(journal.read(second)) == ["g2", "g4"]
    reasons = {line.reason for line in journal.read(first).lines if isinstance(line, Failure)}
    assert reasons == {"no result came from the node: it is gone"}

    cluster = use(node("one"), node("other"))
    assert run(tmp_path / "out") == 0
    assert asked(cluster) == [("one", ["g1", "g3", "g5"])]
    assert settled(tmp_path / "out") == sorted(GROUPS)


def test_a_process_that_fails_keeps_what_it_measured(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    use(node("one"), fails=["one"])
    assert run(tmp_path / "out") == ExitCode.FAILED
    (only,) = find_parts(tmp_path / "out")
    assert find_settled(journal.read(only)) == ["g1"]
    assert failed(only) == [(name, NotRunKind.KILLED) for name in ("g2", "g3", "g4", "g5")]
    reasons = {line.reason for line in journal.read(only).lines if isinstance(line, Failure)}
    assert reasons == {"the process on the node ended: no memory was left"}
    assert "no memory was left" in capsys.readouterr().err


def test_a_node_that_never_was_free_has_measured_nothing_and_nothing_failed(use: Use, tmp_path: Path):
    cluster = use(node("held"), busy=["held"])
    cluster.stop = lambda _: None  # type: ignore[method-assign]
    assert run(tmp_path / "out", max_time_s=0.0) == ExitCode.NOTHING
    skips = [line for line in journal.read(find_parts(tmp_path / "out")[0]).lines if isinstance(line, Skip)]
    assert {line.cause for line in skips} == {NotRunKind.NOT_REACHED}
    assert "others' tasks hold" in skips[0].reason

    use(node("held"))
    assert run(tmp_path / "out") == 0
    assert settled(tmp_path / "out") == sorted(GROUPS)


def test_a_named_host_that_is_late_failed_and_the_same_command_fetches_its_result(use: Use, tmp_path: Path):
    cluster = use(node("late"), busy=["late"], were_named=True)
    cluster.stop = lambda _: None  # type: ignore[method-assign]
    assert run(tmp_path / "out", max_time_s=0.0) == ExitCode.FAILED
    (only,) = find_parts(tmp_path / "out")
    assert failed(only) == [(name, NotRunKind.KILLED) for name in GROUPS]
    reasons = {line.reason for line in journal.read(only).lines if isinstance(line, Failure)}
    assert reasons == {"--max-time was over before its result came; the same command fetches it"}


def test_a_lost_part_goes_to_the_host_that_has_it(use: Use, tmp_path: Path):
    use(node("one"), node("other"), lost=["other"])
    assert run(tmp_path / "out") == ExitCode.FAILED
    machines = [journal.read(folder).header.environment["machine"] for folder in find_parts(tmp_path / "out")]
    assert machines == ["one", "other"]

    cluster = use(node("one"), node("other"))
    assert run(tmp_path / "out") == 0
    assert asked(cluster) == [("other", ["g2", "g4"])]


@pytest.mark.parametrize(
    "strange", [{"code": 0, "folder": b"no zip"}, {"code": 0}, {"code": None, "folder": _zip_contents({})}]
)
def test_a_strange_answer_is_that_node_s_fault_and_the_others_go_on(
    use: Use, tmp_path: Path, strange: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    cluster = use(node("one"), node("other"))
    result = cluster.result
    is_strange = lambda job: job.words["groups"] and job.node.place.name == "one"  # noqa: E731
    cluster.result = lambda job: strange if is_strange(job) else result(job)  # type: ignore[method-assign]
    assert run(tmp_path / "out") == ExitCode.FAILED
    first, second = find_parts(tmp_path / "out")
    assert failed(first) == [(name, NotRunKind.KILLED) for name in ("g1", "g3", "g5")]
    assert find_settled(journal.read(second)) == ["g2", "g4"]
    assert "the node's answer can't be read" in capsys.readouterr().err


def test_a_node_whose_plan_cannot_be_read_is_left_out(use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    cluster = use()
    result = cluster.result
    cluster.result = lambda job: {"header": 5} if job.node.place.name == "a1" else result(job)  # type: ignore[method-assign]
    assert run(tmp_path / "out", dry_run=True) == 0
    assert "left out: a1: the node's answer can't be read" in capsys.readouterr().err


def test_an_interrupt_keeps_what_the_nodes_return_and_the_same_command_goes_on(use: Use, tmp_path: Path):
    cluster = use(node("one"), node("other"), busy=["one", "other"], interrupts=1)
    assert run(tmp_path / "out") == ExitCode.INTERRUPTED
    assert settled(tmp_path / "out") == ["g1", "g2"]
    assert not any(failed(folder) for folder in find_parts(tmp_path / "out"))

    again = use(*cluster.fleet)
    assert run(tmp_path / "out") == 0
    assert settled(tmp_path / "out") == sorted(GROUPS)
    assert sorted(asked(again)) == [("one", ["g1", "g3", "g5"]), ("other", ["g2", "g4"])]
    assert len(find_parts(tmp_path / "out")) == 2


def test_a_folder_that_nothing_came_into_is_no_obstacle_and_another_one_is(use: Use, tmp_path: Path):
    use(node("one"))
    (kind,) = fleet.find_kinds([node("one")])
    (tmp_path / "out" / f"{kind.key}-1" / "samples").mkdir(parents=True)
    assert run(tmp_path / "out") == 0
    (tmp_path / "other" / "photos").mkdir(parents=True)
    with pytest.raises(UsageError, match="not the folder of a fleet's run"):
        run(tmp_path / "other")


@pytest.mark.parametrize("name", ["policy", "trace"])
def test_what_is_for_one_machine_is_refused(use: Use, tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=f"--{name} is for a run on this machine"):
        run(tmp_path / "out", **{name: "given"})


def test_nothing_is_removed_for_a_fresh_run(use: Use, tmp_path: Path):
    with pytest.raises(UsageError, match="--fresh with --on: remove"):
        run(tmp_path, fresh=True)


def test_a_shipped_folder_is_refused(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shipped = Target(backend="numpy", device=Device.CPU, precision=Precision.FP32, folder="/somewhere/mine")
    monkeypatch.setattr(fleet.points, "targets_of", lambda _: [shipped])
    with pytest.raises(UsageError, match="shipped:mine: the folder isn't sent to nodes"):
        run(tmp_path / "out")


def test_a_node_that_cannot_plan_the_study_is_left_out_and_said(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cluster = use(refuses={"a1": "no net.py"})
    assert run(tmp_path / "out", dry_run=True) == 0
    assert "left out: a1: no net.py" in capsys.readouterr().err
    assert sorted(cluster.released) == ["a1", "a2", "b1"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_named_host_that_is_left_out_is_a_failure(use: Use, tmp_path: Path, *, dry_run: bool):
    use(refuses={"a1": "no net.py"}, were_named=True)
    assert run(tmp_path / "out", dry_run=dry_run) == ExitCode.FAILED
    use(were_named=True)
    assert run(tmp_path / "all", dry_run=dry_run) == 0


def test_where_no_node_can_plan_the_study_the_first_says_why(use: Use, tmp_path: Path):
    use(NODES[0], refuses={"a1": "no such model"})
    with pytest.raises(UsageError, match="a1: no such model"):
        run(tmp_path / "out")
    use().fleet = []
    with pytest.raises(UsageError, match="no node of the cluster offers CPUs: start one with `ray start`"):
        run(tmp_path / "out")


@pytest.mark.parametrize(
    ("codes", "code"), [([], 0), ([0, 3], 0), ([3, 3], 3), ([0, 4, 6], 6), ([7, 4], 4), ([0, 130, 6], 130)]
)
def test_of_several_exit_codes_the_weightiest_counts(codes: list[int], code: int):
    assert fleet.combine_codes(codes) == code


def test_where_nothing_answers_it_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_address(f"127.0.0.1:{port}")
    with pytest.raises(UsageError, match=f"nothing answers there .*ray start --head --port={port}"):
        check_address(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", "host", "host:", ":6379", "ray://host:10001", "host:http"])
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(UsageError, match="is neither ray:HOST:PORT"):
        check_address(address)
