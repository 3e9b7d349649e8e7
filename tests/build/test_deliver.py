"""What one machine exports and builds for another is what that one measures: files, the probe's too, or a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.building import built_by
from support.exports import bare_exported

from shootout.apps.fleet import parcel as deliver
from shootout.core.adapter import Built
from shootout.core.build.builder import Builder, Exports, as_probe, name_build, probe_key
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Artifact, Availability, Device, Precision, Target
from shootout.core.errors import ArmFailed, NotRun, NotRunKind, SkippedArm, UsageError
from shootout.core.exported.client import DELIVERY, Delivery
from shootout.core.host.placement import Placement
from shootout.core.host.store import cache_folder
from shootout.core.study.group import GroupRecord
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.target import provider
from shootout.tell.delivery import contents, read_delivery, to_json

FILES_HELD = {
    *("manifest.json", "inputs.npz", "reference.npz", "calibration.npz", "params.safetensors"),
    *("model.onnx", "model.onnx.data", "model.pt2"),
}
"""The files of an exported model with big weights."""
FORMS = (Artifact.FORWARD, Artifact.MODULE, Artifact.ONNX, Artifact.PT2)
MODEL, PROBE = (
    bare_exported({}, key="a" * 64, artifacts=FORMS),
    bare_exported({}, key="b" * 64, model="permutation_probe"),
)
PORTABLE, LOCAL, READER = (
    Arm(target=Target(backend=name), model="m", threads=4) for name in ("litert", "numpy", "onnxruntime")
)
QUANTIZED = replace(READER, target=replace(READER.target, precision=Precision.INT8))
OWN, OF_PROBE = name_build(MODEL.key, PORTABLE), name_build(PROBE.key, as_probe(PORTABLE))
BOTH = {OWN, OF_PROBE}
QUIET: Any = SimpleNamespace(stage=lambda _: None, detail=lambda _: None, say=lambda _: None)


class Maker:
    """A worker that writes a file for each build, and reads it when it is asked to probe."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.built, self.probed, self.breaks = list[str](), list[bytes](), breaks

    def ask(self, command: str, *limits_s: float, **given: Any) -> Any:
        if command == "probe":
            self.probed.append((given["built"].folder / "engine").read_bytes())
            return "fp32"
        if self.breaks:
            raise ArmFailed("the converter broke")
        self.built.append(given["exported"].model)
        (given["folder"] / "engine").write_bytes(given["exported"].model.encode())
        return {"kernels": "theirs"}, 0.5


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of the test's own, and exports, libraries and builds without either."""
    for made in (MODEL, PROBE):
        (tmp_path / made.key).mkdir()
        for name in FILES_HELD:
            (tmp_path / made.key / name).touch()
    model, probe = (replace(made, folder=tmp_path / made.key) for made in (MODEL, PROBE))
    exports = Exports(models={("g", "m", "", 1, Device.CPU, False, 0): model}, probes={probe_key(PORTABLE): probe})  # type: ignore[dict-item]
    request = SimpleNamespace(model="m", variant="", batch=1, device=Device.CPU, module=False)
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(deliver, "export_all", lambda *_, **__: exports)
    monkeypatch.setattr(PlannedGroup, "request_of", lambda *_: request)


def delivered(
    monkeypatch: pytest.MonkeyPatch,
    maker: Maker,
    *,
    works: Availability | None = None,
    arms: tuple[Arm, ...] = (PORTABLE,),
) -> Delivery:
    """What is delivered for a group of these arms."""
    found = works or Availability(version="1")
    monkeypatch.setattr(deliver, "known_available", lambda _: {provider(arm.target): found for arm in arms})
    record = GroupRecord(name="g", baseline=arms[0].label, comparisons=1, arms=arms)
    group = PlannedGroup(record=record, request=SimpleNamespace(), skips={})  # type: ignore[arg-type]
    with built_by(maker):
        return deliver.deliver([group], {"fp32"}, QUIET, Deadline(None))


def folders_of(delivery: Delivery) -> list[Path]:
    """The folders of its builds."""
    return [made for made in delivery.builds.values() if isinstance(made, Path)]


def prepared(folder: Path, maker: Maker, delivery: Delivery | None) -> Built:
    """The arm, as the other machine makes it ready."""
    builder = Builder(
        cache=folder,
        placement=Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1),
        probes={probe_key(PORTABLE): PROBE},  # type: ignore[dict-item]
        machine="another",
        logs=folder,
        delivery=delivery,
    )
    assert builder.holds(PORTABLE, MODEL, "2", runs=True) == (delivery is not None)
    with built_by(maker):
        return builder.prepare(PORTABLE, MODEL, "2")


def test_what_any_cpu_runs_is_built_here_with_its_probe_and_the_rest_is_not(monkeypatch: pytest.MonkeyPatch):
    maker = Maker()
    made = delivered(monkeypatch, maker, arms=(PORTABLE, LOCAL))
    assert {*made.builds} == BOTH
    assert sorted(maker.built) == ["m", "permutation_probe"]
    assert maker.probed == [], "this machine isn't the one that the probe is about"
    assert {*made.files} == {MODEL.key, PROBE.key}
    assert len(folders_of(made)) == 2


@pytest.mark.parametrize(
    ("arms", "works", "unread"),
    [
        ((PORTABLE,), True, {"params.safetensors", "model.onnx", "model.onnx.data", "model.pt2", "calibration.npz"}),
        ((PORTABLE,), False, {"model.onnx", "model.onnx.data", "model.pt2", "calibration.npz"}),
        ((LOCAL,), True, {"model.onnx", "model.onnx.data", "model.pt2", "calibration.npz"}),
        ((READER,), True, {"params.safetensors", "model.pt2", "calibration.npz"}),
        ((PORTABLE, LOCAL, QUANTIZED), True, {"model.pt2"}),
    ],
    ids=["built here", "built there", "weights", "ONNX", "all"],
)
def test_only_files_that_are_read_there_are_sent(
    monkeypatch: pytest.MonkeyPatch, arms: tuple[Arm, ...], works: bool, unread: set[str]
):
    lacks = None if works else Availability(why=NotRun(NotRunKind.NOT_INSTALLED, "LiteRT is not installed"))
    made = delivered(monkeypatch, Maker(), works=lacks, arms=arms)
    assert {*made.files[MODEL.key]} == FILES_HELD - unread
    sent = contents(made)[f"exported/{MODEL.key}"]
    assert sent["inputs.npz"] == cache_folder() / MODEL.key / "inputs.npz"
    assert {*sent} == {*made.files[MODEL.key]}


def test_the_other_machine_builds_nothing_and_says_where_it_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    made, maker = delivered(monkeypatch, Maker()), Maker()
    found = prepared(tmp_path / "there", maker, made)
    assert maker.built == []
    assert maker.probed == [b"permutation_probe"], "on the probe's build that was sent"
    assert (found.folder / "engine").read_bytes() == b"m"
    assert (found.probe, found.build_s, found.cached) == ("fp32", 0.5, False)
    assert found.facts == {"kernels": "theirs", "notes": [f"built on {made.made_on}, and sent"]}
    assert prepared(tmp_path / "there", maker, made).cached


@pytest.mark.parametrize("damage", ["changed", "gone", "no record"])
@pytest.mark.parametrize("name", [OWN, OF_PROBE], ids=["the model's", "the probe's"])
def test_a_delivered_build_that_is_damaged_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str, name: str
):
    made = delivered(monkeypatch, Maker())
    folder = made.builds[name]
    assert isinstance(folder, Path)
    if damage == "changed":
        (folder / "engine").write_bytes(b"other")
    else:
        (folder / ("engine" if damage == "gone" else "built.json")).unlink()
    maker = Maker()
    with pytest.raises(ArmFailed, match=r"built and sent is damaged here: .*; remove .* and run again") as error:
        prepared(tmp_path / "there", maker, made)
    assert str(folder) in str(error.value)
    assert ("engine was changed after it was written" in str(error.value)) == (damage == "changed")
    assert maker.built == []


def test_a_delivery_is_read_as_it_was_written(tmp_path: Path):
    lacks = SkippedArm("it has no such variant", "another scheme", NotRunKind.UNFIT)
    why = NotRun(NotRunKind.FAILED, "the converter broke", during="build")
    fleet = tmp_path / "cache" / "fleet"
    made = Delivery(
        made_on="Some CPU (x86_64)",
        models={("g", "m", "", 1, Device.CPU, False, 0): MODEL.key, ("g", "m", "v", 1, Device.CPU, False, 0): lacks},
        probes={("permutation_probe", "", Device.CPU): PROBE.key},
        builds={OWN: tmp_path / ("d" * 64), OF_PROBE: why},
    )
    (tmp_path / DELIVERY).write_text(json.dumps(to_json(made)))
    read = read_delivery(tmp_path)
    assert read is not None
    assert (read.made_on, read.probes) == (made.made_on, made.probes)
    assert read.models["g", "m", "", 1, Device.CPU, False, 0] == MODEL.key
    assert read.builds == {OWN: fleet / ("d" * 64), OF_PROBE: why}, "where it was sent to"
    refused = read.models["g", "m", "v", 1, Device.CPU, False, 0]
    assert isinstance(refused, SkippedArm)
    assert refused.why == lacks.why
    assert read_delivery(tmp_path / "of a run here") is None


@pytest.mark.parametrize(
    "stored",
    [
        "no JSON",
        "[]",
        "{}",
        *(
            json.dumps({"made_on": "it", "models": [], "probes": [], "builds": {}, **part})
            for part in (
                {"models": [["g", "m", "", 1, "cpu", {"key": "../" * 20 + "etc"}]]},
                {"models": [["g", "m", "", 1, "cpu", {"key": 1}]]},
                {"models": [["g", "m", "", 1, "no device", {"key": "a" * 64}]]},
                {"probes": [["p", "", "cpu", "/etc"]]},
                {"builds": {"b": {"folder": "/etc"}}},
                {"builds": {"b": {"folder": ".."}}},
                {"builds": {"b": {"folder": "d" * 64 + "\n"}}},
                {"builds": {"b": {"kind": "no kind", "reason": ""}}},
            )
        ),
    ],
)
def test_a_strangers_delivery_names_no_place_outside_the_cache(tmp_path: Path, stored: str):
    (tmp_path / DELIVERY).write_text(stored)
    with pytest.raises(UsageError, match=r"delivery\.json' isn't what shootout wrote there"):
        read_delivery(tmp_path)
