"""What is built is kept, and taken again only as it was: the same files, by the same code, proven for its label."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.building import built_by

from shootout.core import scenario
from shootout.core.adapter import Built
from shootout.core.backends import code_of
from shootout.core.build import builder
from shootout.core.build.builder import Builder, name_build, probe_key
from shootout.core.contract import Arm, Target
from shootout.core.errors import ArmFailed, NotRunKind
from shootout.core.host.placement import Placement

ARM = Arm(target=Target(backend="numpy"), model="m")
MODEL: Any = SimpleNamespace(key="k")


class Maker:
    """A worker that writes one file for each build, and counts them."""

    def __init__(self, probed: str = "fp32", facts: dict[str, str] | None = None) -> None:
        self.builds, self.probed, self.facts = 0, probed, facts or {}

    def ask(self, command: str, *limits_s: float, **given: Any) -> Any:
        if command == "probe":
            return self.probed
        (given["folder"] / "engine").write_bytes(b"made")
        self.builds += given["exported"] is MODEL
        return self.facts, 0.5


def prepare(folder: Path, maker: Any, *, version: str = "1", progress: Any = None, arm: Arm = ARM) -> Built:
    placement = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
    probes: Any = {probe_key(ARM): SimpleNamespace(key="p")}
    arm_builder = Builder(
        cache=folder, placement=placement, probes=probes, machine="this", logs=folder, progress=progress
    )
    with built_by(maker):
        return arm_builder.prepare(arm, MODEL, version)


def test_a_build_is_taken_again_only_as_it_was(tmp_path: Path):
    maker = Maker()
    first, again = prepare(tmp_path, maker), prepare(tmp_path, maker)
    assert (first.cached, again.cached, maker.builds) == (False, True, 1)
    (first.folder / "engine").write_bytes(b"changed")
    assert not prepare(tmp_path, maker).cached
    assert (first.folder / "engine").read_bytes() == b"made"
    assert not prepare(tmp_path, maker, version="2").cached
    assert maker.builds == 3


@pytest.mark.parametrize("change", ["probe", "facts", "files", "build_s", "torn", "list"])
def test_what_is_noted_of_a_build_is_believed_only_as_it_was_written(tmp_path: Path, change: str):
    maker, said = Maker(probed="bf16"), list[str]()
    with pytest.raises(ArmFailed):
        prepare(tmp_path, maker)
    record = next(tmp_path.rglob("built.json"))
    facts = json.loads(record.read_text())
    edited = {**facts, "probe": "fp32"} if change == "probe" else {**facts, change: None}
    record.write_text({"torn": record.read_text()[:40], "list": "[1]"}.get(change, json.dumps(edited)))
    with pytest.raises(ArmFailed, match="the permutation probe finds bf16"):
        prepare(tmp_path, maker, progress=SimpleNamespace(say=said.append))
    assert maker.builds == 2
    assert said[0].startswith(f"{record.parent} is not a whole build of numpy:cpu:fp32: built.json ")
    assert said[0].endswith(": it is made again")


@pytest.mark.parametrize(("kills", "builds"), [(1, True), (2, False)])
def test_a_build_whose_process_was_killed_is_begun_anew_once(tmp_path: Path, kills: int, builds: bool):
    class Killed(Maker):
        def ask(self, *given: Any, **more: Any) -> Any:
            nonlocal kills
            if kills:
                kills -= 1
                raise ArmFailed("killed by SIGKILL", NotRunKind.KILLED)
            return super().ask(*given, **more)

    if builds:
        assert not prepare(tmp_path, Killed()).cached
    else:
        with pytest.raises(ArmFailed, match="killed by SIGKILL"):
            prepare(tmp_path, Killed())


def test_a_build_of_another_precision_than_its_label_is_out_each_time(tmp_path: Path):
    maker = Maker(probed="bf16")
    for _ in range(2):
        with pytest.raises(ArmFailed, match="labeled fp32, but the permutation probe finds bf16"):
            prepare(tmp_path, maker)
    assert maker.builds == 1


def test_other_code_of_the_adapter_makes_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    maker, own = Maker(), builder._code_of(Target(backend="numpy"))
    assert {"session.py", "backend.py", "adapter.py", "common_numpy.py"} <= {file.name for file in own}
    assert {"qdq.py", "ort.py"} <= {file.name for file in own}, "quantizers decide artifacts too"
    later = {file.name for file in builder._code_of(Target(backend="onnxruntime"))}
    assert not later & {"shipping.py", "servers.py", "load.txt"}, "they come after a build"
    code = tmp_path / "adapter.py"
    monkeypatch.setattr(builder, "_code_of", lambda adapter: [code])
    for text in ("one", "other", "one"):
        code.write_text(text)
        prepare(tmp_path, maker)
    assert maker.builds == 2


OWN_BUILD = """
from shootout.core.scenario import Scenario
class Calls(Scenario): ...
class Builds(Scenario):
    def build(self, runner, exported, arm, folder): ...
"""


def test_a_scenario_with_a_build_of_its_own_has_builds_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code, maker = tmp_path / "own_building.py", Maker()
    code.write_text(OWN_BUILD)
    monkeypatch.syspath_prepend(tmp_path)
    own = import_module("own_building")
    monkeypatch.setitem(sys.modules, "own_building", own)
    made = {"calls": own.Calls(), "builds": own.Builds()}
    monkeypatch.setattr(scenario, "find_scenario", lambda name: made.get(name) or FIND(name))
    usual, calls, builds = ARM, replace(ARM, scenario="calls"), replace(ARM, scenario="builds")
    assert [prepare(tmp_path, maker, arm=arm).cached for arm in (usual, calls, builds, builds)] == [False, True] * 2
    assert name_build("k", usual) == name_build("k", calls) != name_build("k", builds), "as sent to another machine"
    code.write_text(f"{OWN_BUILD}# changed")
    assert [prepare(tmp_path, maker, arm=arm).cached for arm in (calls, builds)] == [True, False]


FIND = scenario.find_scenario


OWN_CODE = {
    "wide/__init__.py": "",
    "wide/helper.py": "",
    "wide/deep/__init__.py": "",
    "wide/deep/adapter.py": "class Adapter: ...",
    "wide/deep/kernels/tables.py": "",
    "narrow.py": "from base import Base\nimport narrow_helper\nclass Adapter(Base): ...",
    "narrow_helper.py": "",
    "base.py": "import typing\nclass Base(typing.Protocol): ...",
    "stranger.py": "",
}


def test_a_third_party_s_helpers_are_its_adapter_s_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, text in OWN_CODE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def own(module: str) -> set[str]:
        files = code_of(import_module(module).Adapter())
        return {str(file.relative_to(tmp_path)) for file in files if file.is_relative_to(tmp_path)}

    try:
        assert own("wide.deep.adapter") == {name for name in OWN_CODE if name.startswith("wide/")}
        assert own("narrow") == {"narrow.py", "narrow_helper.py", "base.py", "stranger.py"}, "its folder"
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
