"""What a folder takes along of the run and of its machine, and what stays: variables, times, packages, CPUs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.exports import obtain
from support.races.shipping import source_of

from shootout.apps.ship import folder
from shootout.backends._onnxruntime import backend as onnxruntime
from shootout.backends.optional import Shipment
from shootout.backends.shipped import CHECK, LOAD, ShippedFolder, open_shipped, seal_shipped
from shootout.commands import ship as command
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Target
from shootout.core.errors import ArmFailed
from shootout.core.plugins import BACKENDS, folder_of
from shootout.tell.run_folder import RacedArm

ARM = Arm(target=Target(backend="numpy"), model="identity")
OF_ONE_MACHINE = {
    "CUDA_VISIBLE_DEVICES": "1",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "SHOOTOUT_GPU": "0",
    "VK_ICD_FILENAMES": "a.json",
    "LD_PRELOAD": "libjemalloc.so",
    "TORCHINDUCTOR_CACHE_DIR": "/home/alice/cache",
}
ANSWERS_NOTHING = "def load():\n    pass\n\ndef predict(inputs):\n    return {}\n"


def with_variables(variables: dict[str, str]) -> RacedArm:
    found = source_of(ARM)
    environment = {**found.document.environment, "variables": variables}
    return replace(found, document=found.document.model_copy(update={"environment": environment}))


def written(
    source: RacedArm, place: Path, monkeypatch: pytest.MonkeyPatch, shipment: Shipment | None = None
) -> ShippedFolder:
    """A folder whose adapter puts nothing into it."""
    built = Built(arm=source.arm, exported=obtain("identity", {}, 1), folder=place, facts={})
    templates = folder_of(BACKENDS) / "_numpy"
    monkeypatch.setattr(folder, "shipping", lambda _, **how: (lambda *_: shipment or Shipment(), templates))
    return folder.write_folder(source, built, place / "out")


def test_variables_of_one_machine_and_secrets_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept = {"OMP_WAIT_POLICY": "active", "MALLOC_ARENA_MAX": "1"}
    source = with_variables({**kept, **OF_ONE_MACHINE, "NVIDIA_API_KEY": "k"})
    shipped = written(source, tmp_path, monkeypatch)
    found = open_shipped(shipped.folder).runtime.environment
    assert kept.items() <= found.items()
    assert not {*OF_ONE_MACHINE, "NVIDIA_API_KEY"} & found.keys()


@pytest.mark.parametrize(
    ("arm", "median_ns"),
    [
        (ARM, 1e6),
        (replace(ARM, scenario="throughput", instances=4, threads=2), None),
        (replace(ARM, scenario="serve"), None),
    ],
)
def test_only_a_call_after_the_other_is_a_time_to_check_against(
    arm: Arm, median_ns: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of several instances the folder is one, on the CPUs of one."""
    written(source_of(arm), tmp_path, monkeypatch)
    found = open_shipped(tmp_path / "out")
    assert found.median_ns == median_ns
    assert (found.arm.scenario, found.arm.instances) == (arm.scenario, arm.instances)
    assert found.runtime.affinity == arm.threads
    assert found.group == "toy, batch 1"


def test_the_user_s_home_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/alice")
    source = source_of(ARM)
    document = source.document.model_copy(update={"run": "/home/alice/runs/first"})
    assert written(replace(source, document=document), tmp_path, monkeypatch).run == "~/runs/first"


def test_requirements_are_those_of_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An arm's process may need more: what reads the weights that the folder holds in another form."""
    assert "safetensors" in backends.entry("numpy").installed(ARM.target)
    shipped = written(source_of(ARM), tmp_path, monkeypatch, Shipment(installs=("numpy",)))
    assert [*shipped.versions] == ["numpy"]


@pytest.mark.parametrize(
    ("name", "version", "line"),
    [
        ("torch", "2.13.0+cpu", "--extra-index-url https://download.pytorch.org/whl/cpu"),
        ("torch", "2.13.0+cu130", "--extra-index-url https://download.pytorch.org/whl/cu130"),
        ("torch", "2.14.0.dev20261101+xpu", "--extra-index-url https://download.pytorch.org/whl/nightly/xpu"),
        ("torch", "2.13.0a0+git1234", "# a build of its own, which no package index has:"),
        ("onnxruntime", "1.31.0+mine", "# a build of its own, which no package index has:"),
    ],
)
def test_pip_is_told_where_a_build_is_or_people_that_it_is_nowhere(name: str, version: str, line: str):
    lines = folder.requirements_text({"numpy": "2.3.0", name: version}).splitlines()
    assert line in lines
    assert f"{name}=={version}" in lines
    assert sum(one.startswith(("--", "# a build")) for one in lines) == 1
    assert "--" not in folder.requirements_text({"numpy": "2.3.0"})


@pytest.mark.parametrize(
    ("machine", "flags", "needs"),
    [
        ("x86_64", {"avx512f", "sse2"}, ("avx512f",)),
        ("x86_64", {"avx2", "sse2"}, ("sse2", "!avx512f")),
        ("aarch64", {"asimd"}, ("asimd",)),
    ],
)
def test_a_blocked_graph_is_for_its_own_kind_of_cpu(
    machine: str, flags: set[str], needs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """That a CPU has no AVX-512 holds for one of another maker's too."""
    monkeypatch.setattr(onnxruntime.platform, "machine", lambda: machine)
    monkeypatch.setattr(onnxruntime, "cpu_flags", lambda: frozenset(flags))
    graph = tmp_path / "model.onnx"
    graph.write_bytes(b"plain")
    assert onnxruntime._required_isa(graph) == ()
    graph.write_bytes(onnxruntime.BLOCKED)
    assert onnxruntime._required_isa(graph) == needs


def test_a_check_that_can_t_be_made_is_not_a_wrong_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shipped = written(source_of(ARM), tmp_path, monkeypatch)
    (shipped.folder / LOAD).write_text(ANSWERS_NOTHING)
    seal_shipped(shipped)
    done = subprocess.run([sys.executable, "-I", shipped.folder / CHECK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "can't run here: 'y'" in done.stderr


def test_a_check_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch):
    hangs: Any = Mock(side_effect=subprocess.TimeoutExpired("check.py", 600))
    monkeypatch.setattr(command.subprocess, "run", hangs)
    with pytest.raises(ArmFailed, match=r"out was written, but its check.py didn't end within 600 s"):
        command.check_folder(Mock(folder=Path("out")))
