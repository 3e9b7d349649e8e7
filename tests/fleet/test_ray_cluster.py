"""A real cluster on this machine: three nodes with two labels, and one that is killed in the middle."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console import TESTS, here
from support.fleets.deaf_node import NICE, STOPS

from shootout.apps.fleet.ray_cluster import LABEL
from shootout.commands import fleet
from shootout.commands.fleet import find_runs, run_on_fleet
from shootout.core.host.store import cache_folder
from shootout.core.journal import journal
from shootout.core.journal.records import Setback

GROUPS = ["identity, batch 1", "identity, batch 2", "identity, batch 3"]
STUDY = """
model = "identity"
targets = ["spin", "spin"]
max_restarts = 2
batch = [1, 2, 3]
[options.spin]
work = "20"
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one label, and one, where the driver is, of another."""
    monkeypatch.setattr(fleet, "NODE", "support.fleets.deaf_node")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    logging.getLogger("ray").setLevel(logging.ERROR)
    sockets = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the path of a socket has 107 bytes
    monkeypatch.setenv("RAY_TMPDIR", sockets)
    made = cluster_utils.Cluster()
    try:
        made.add_node(num_cpus=1, labels={LABEL: "large"}, include_dashboard=False)
        for _ in range(2):
            made.add_node(num_cpus=1, labels={LABEL: "small"})
        yield made
    finally:
        made.shutdown()
        shutil.rmtree(sockets, ignore_errors=True)


def raylet_of(node: Any) -> int:
    """The process id of a node's own process."""
    return int(node.all_processes["raylet"][0].process.pid)


def kill_the_stopped(cluster: Any, told: Path) -> None:
    """Wait until a node has stopped itself, and kill that node."""
    while not (told.exists() and (words := told.read_text())):
        time.sleep(0.1)
    lost = next(one for one in cluster.worker_nodes if raylet_of(one) == int(words))
    cluster.remove_node(lost, allow_graceful=False)


@pytest.mark.slow  # half a minute, most of it waiting; CI asks it by itself
@pytest.mark.timeout(280)
def test_a_node_is_killed_and_another_one_of_its_label_goes_on(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    study, out = tmp_path / "tiny.toml", tmp_path / "out"
    study.write_text(STUDY)
    (cache_folder() / STOPS).write_text(str(raylet_of(cluster.head_node)))
    told = (cache_folder() / STOPS).with_suffix(".by")
    killer = threading.Thread(target=kill_the_stopped, args=(cluster, told), daemon=True)
    killer.start()
    how: dict[str, Any] = {"address": f"ray:{cluster.address}", "full": False}
    assert run_on_fleet(str(study), {"out": out}, dry_run=False, as_json=True, **how) == 0

    shown = capsys.readouterr()
    runs = find_runs(out)
    assert sorted(run.name.partition("-")[0] for run in runs) == ["large", "small"]
    for run in runs:
        history = journal.read(run)
        assert [group.name for group in history.groups] == GROUPS
        assert history.played_out
        assert not [line for line in history.lines if isinstance(line, Setback) and line.kind == "failure"]
    assert not killer.is_alive(), "a node was killed in the middle"
    assert {*(cache_folder() / NICE).read_text().split()} == {"0"}, "as nice as if it were typed there"
    merged = here("merge", *runs, "--json", cwd=tmp_path).data
    assert json.loads(shown.out) == merged, "and stdout holds nothing else, whatever Ray says of the lost node"
    assert here("show", out, "--json", cwd=tmp_path).data == merged
