"""Builds are forked: an import is made once for all of them, and each build still lives and dies by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console import state
from support.exports import bare_exported, obtain

from shootout.backends import PROGRAM_SHARED
from shootout.core.build import builder
from shootout.core.build.builder import Builder
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Device, Target
from shootout.core.errors import ArmFailed
from shootout.core.exported.model import sha256
from shootout.core.host.placement import Placement, allowed_cpus, child_environment
from shootout.core.worker.fork_server import ForkServer
from shootout.core.worker.process import WorkerProcess
from shootout.models.probes import PROBE_BATCH

CPUS = frozenset(allowed_cpus())
PLACE = Placement(parent=CPUS, arms=frozenset({max(CPUS)}), threads=1)
NOTES = """
import os
from pathlib import Path
with Path(__file__).with_name("imported").open("a") as file:
    print(__name__, file=file)
"""
MODULES = {
    "first": NOTES,
    "second": NOTES,
    "broken": "raise ImportError('no such library')",
    "sociable": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
    "endless": "import time\ntime.sleep(600)\n",
}
ENDLESS = Deadline(None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules to import, which note that they are."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


@pytest.fixture
def made(folder: Path) -> Iterator[Builder]:
    found = Builder(cache=folder, placement=PLACE, probes={}, machine="this", logs=folder / "logs")
    yield found
    found.close()


def fork_from(server: ForkServer | None, folder: Path) -> WorkerProcess:
    return WorkerProcess(child_environment(1, 0), CPUS, folder / "log", None, server)


def test_builds_share_imports_and_one_that_dies_takes_no_other_with_it(made: Builder, folder: Path):
    both, one = made.fork_server(("first", "second"), 1, CPUS, ENDLESS), made.fork_server(("first",), 1, CPUS, ENDLESS)
    assert both is made.fork_server(("first", "second"), 1, CPUS, ENDLESS) is not one
    workers = [fork_from(server, folder) for server in (both, both, one)]
    try:
        os.kill(workers[0].pid, signal.SIGKILL)
        with pytest.raises(ArmFailed, match="killed by SIGKILL"):
            workers[0].ask("memory", 60)
        assert all(worker.ask("memory", 60) > 0 for worker in workers[1:])
        assert (folder / "imported").read_text().split() == ["first", "second"], "each in one process"
        made.close()
        assert workers[1].ask("memory", 60) > 0, "a build outlives what it is forked from"
        assert [state(server.pid) for server in (both, one) if server] == ["", ""]
    finally:
        for worker in workers:
            worker.kill()


def test_nothing_is_forked_where_it_cannot_be(made: Builder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(builder, "can_fork", lambda: False)
    assert made.fork_server((), 1, CPUS, ENDLESS) is None


@pytest.mark.parametrize(
    ("target", "model", "modules"),
    [
        (Target(backend="numpy"), "residual_mlp", ()),
        (Target(backend="onnxruntime"), "model.onnx", ()),
        (Target(backend="torchscript"), "residual_mlp", ("torch",)),
        (Target(backend="torchscript"), "model.onnx", PROGRAM_SHARED),
        (Target(backend="jax-jit"), "residual_mlp", ()),
        (Target(backend="jax-jit"), "model.onnx", PROGRAM_SHARED),
        (Target(backend="torch-compile", device=Device.CUDA), "residual_mlp", ()),
        (Target(backend="somebody's"), "residual_mlp", ()),
    ],
)
def test_a_build_begins_with_what_it_needs_of_this_model(target: Target, model: str, modules: tuple[str, ...]):
    exported: Any = bare_exported({}, model=model)
    assert tuple(builder._list_shared(Arm(target=target, model=model), exported)) == modules


@pytest.mark.parametrize("name", [pytest.param("torchscript", marks=pytest.mark.long), "onnxruntime"])
def test_a_forked_build_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    arm = Arm(target=Target(backend=name), model="permutation_probe", threads=1)
    model, written = obtain("permutation_probe", {}, PROBE_BATCH), []
    for forks in (True, False):
        if not forks:
            monkeypatch.setattr(builder, "can_fork", lambda: False)
        own = Builder(cache=tmp_path / str(forks), placement=PLACE, probes={}, machine="this", logs=tmp_path)
        built = own.prepare(arm, model, "1")
        own.close()
        files = {file.name: sha256(file) for file in built.folder.iterdir() if file.name != "built.json"}
        written.append((files, {key: value for key, value in built.facts.items() if not key.endswith("_ns")}))
    assert written[0] == written[1]
    assert written[0][0]
