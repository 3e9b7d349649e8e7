"""What was raced is shipped, or nothing: another machine, other versions and another model are named."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.races.cells import fidelity
from support.races.made import header, prepared
from support.races.shipping import source_of

from shootout import models
from shootout.apps.ship import folder
from shootout.apps.ship.folder import error_limit, shipping
from shootout.backends._numpy import backend
from shootout.core.contract import Arm, Availability, Device, Precision, Target
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.host import environment
from shootout.core.results.run import Result
from shootout.tell.run_folder import RacedArm

ARM = Arm(target=Target(backend="numpy"), model="mlp", parameters=models.get("mlp").defaults, batch=1)


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return environment.facts()


def raced(arm: Arm, facts: dict[str, Any], key: str = "0") -> RacedArm:
    """An arm that was raced in this environment, on the export of this key."""
    found, line = source_of(arm), header((arm,), environment=facts)
    document = found.document.model_copy(update={"environment": facts})
    run = Mock(folder=found.folder, facts=line, history=Mock(header=line, of_group=Mock(return_value=[])))
    made = prepared(arm).model_copy(update={"exported": key})
    mine = Result(group=Mock(record=line.groups[0]), arm=arm)
    return replace(found, run=run, document=document, mine=mine, prepared=made)


DIFFERENT: list[tuple[Arm, dict[str, Any], str]] = [
    (ARM, {"machine": "other"}, r"on another machine.*shootout run --model mlp"),
    (ARM, {"libraries": {"numpy": "0.1"}}, r"with numpy 0\.1 \(.* here\): ship it there"),
    (ARM, {"python": {"version": "3.1.4"}}, r"with Python 3\.1\.4 \(.* here\): ship it there"),
    (ARM, {"cpu": {"model": "another"}}, "with another model of the CPU, another flags of the CPU: ship it there"),
    (
        replace(ARM, target=Target(backend="onnxruntime")),
        {"libraries": {"onnxruntime-gpu": "0.1"}},
        r"with onnxruntime-gpu 0\.1 \(not installed here\)",
    ),
    (replace(ARM, target=Target(backend="numpy", python="new")), {}, "under another interpreter"),
]


@pytest.mark.parametrize(("arm", "changed", "told"), DIFFERENT)
def test_what_differs_is_named(arm: Arm, changed: dict[str, Any], told: str, here: dict[str, Any]):
    if "libraries" in changed:
        changed = {"libraries": here["libraries"] | changed["libraries"]}
    with pytest.raises(UsageError, match=told):
        folder.find_built(raced(arm, here | changed), Mock())


def test_the_command_that_races_again_names_all_that_go_along_on_as_many_threads_as_there_are_cpus(
    here: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folder, "allowed_cpus", lambda: (0, 1))
    arm, other = replace(ARM, threads=15), replace(ARM, threads=15, target=Target(backend="openvino"))
    with pytest.raises(UsageError, match=rf"--backends {ARM.target},openvino:cpu:fp32 --threads 2$"):
        folder.find_built(raced(arm, here | {"machine": "other"}), Mock(), beside=[arm, other])
    with pytest.raises(UsageError, match=r"measured on 15 threads, and 2 CPUs may be used here: .* --threads 2$"):
        folder.find_built(raced(arm, here), Mock())


def test_a_number_of_threads_that_was_not_set_is_refused_with_the_one_that_was_taken(here: dict[str, Any]):
    source = raced(replace(ARM, threads=0), here)
    source = replace(source, row=source.row.model_copy(update={"executed": {"threads": 2}}))
    with pytest.raises(UsageError, match=r"its library's own number of threads, .* race it with --threads 2"):
        folder.find_built(source, Mock())


def test_what_the_arm_does_not_rest_on_is_no_matter(here: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """A package that was installed after the run, a kernel, other CPUs that may be used."""
    cpu, system = here["cpu"] | {"allowed_cpus": [99]}, here["os"] | {"kernel": "1"}
    monkeypatch.setattr(folder, "_find_exported", Mock(side_effect=UsageError("so far it came")))
    with pytest.raises(UsageError, match="so far it came"):
        folder.find_built(
            raced(ARM, here | {"libraries": here["libraries"] | {"rich": "0"}, "cpu": cpu, "os": system}), Mock()
        )


def test_what_is_built_is_shipped_under_other_variables_and_what_is_gone_is_not(
    here: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    builder = Mock()
    monkeypatch.setattr(folder, "_find_exported", Mock())
    monkeypatch.setattr(folder, "probe_key", Mock(return_value=None))
    monkeypatch.setattr(folder, "Builder", Mock(return_value=builder))
    monkeypatch.setattr(folder.availability, "find_available", lambda pairs: dict.fromkeys(pairs, Availability()))
    source = raced(ARM, here | {"variables": {"OMP_WAIT_POLICY": "active"}})
    assert folder.find_built(source, Mock()) is builder.prepare.return_value
    builder.holds.return_value = False
    with pytest.raises(UsageError, match=r"gone from the cache, and it was measured with .*OMP_WAIT_POLICY=active"):
        folder.find_built(source, Mock())


def test_another_export_is_refused(here: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Its inputs, weights or exporter would be others than those that were raced."""
    monkeypatch.setattr(folder.client, "obtain", lambda request: Mock(key="1", model=request.model))
    with pytest.raises(UsageError, match=r"mlp is no longer what was measured.*shootout run"):
        folder.find_built(raced(ARM, here), Mock())


def test_a_file_that_is_gone_is_named(here: dict[str, Any], tmp_path: Path):
    file = replace(ARM, model=str(tmp_path / "gone.onnx"), parameters={})
    with pytest.raises(UsageError, match=r"model that was raced is gone.*gone\.onnx"):
        folder.find_built(raced(file, here), Mock())


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(backend="torch-eager"), "ship torch-compile"),
        (Target(backend="torch-compile"), "ship torch-compile+aoti"),
        (Target(backend="onnxruntime", device=Device.CUDA), "a target on the CPU"),
        (Target(backend="tensorrt", device=Device.CUDA, precision=Precision.FP16), "a target on the CPU"),
        (Target(backend="spin"), "its adapter doesn't say how"),
        (Target(backend="onnxruntime", folder="/a/b"), "copy /a/b"),
    ],
)
def test_what_can_t_be_shipped_says_why(target: Target, words: str):
    with pytest.raises(SkippedArm) as found:
        shipping(target)
    assert words in f"{found.value.reason} {found.value.fix}"


def test_what_the_gate_did_not_judge_is_held_to_its_own_error():
    assert error_limit(fidelity(1e-7, error_bound=1e-5, standing="met")) == 1e-5
    assert error_limit(fidelity(0.1, error_bound=0.01, standing="tolerated")) == pytest.approx(0.4)
    assert error_limit(fidelity(0.1, error_bound=0.9, standing="not judged")) == pytest.approx(0.4)
    with pytest.raises(UsageError, match="isn't known"):
        error_limit(None)
    with pytest.raises(UsageError, match=r"error of 0\.8 is above 0\.5, the limit for any precision"):
        error_limit(fidelity(0.8, error_bound=0.9, standing="not judged"))


@pytest.mark.parametrize("name", [name for name in models.names() if models.get(name).forward])
def test_a_forward_is_a_program_of_its_own(name: str):
    forward: Any = models.get(name).forward
    text = backend.source_of(forward)
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert not [node for node in imported if str(node.module).startswith("shootout")]
    names: dict[str, Any] = {}
    exec(compile(text, name, "exec"), names)
    assert callable(names[forward.__name__])
