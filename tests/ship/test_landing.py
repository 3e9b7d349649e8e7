"""The folder that chooses where it lands: which targets of a run go along, what lies in it, and what is refused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.console import here
from support.exports import obtain
from support.races import made
from support.races.shipping import FOUND, let_numpy_ship, source_of

from shootout.apps.judge.contenders import propose_contenders
from shootout.apps.judge.decide.policy import read_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship import folder
from shootout.apps.ship.landing import CHOOSE
from shootout.backends.optional import Shipment
from shootout.backends.shipped import MANIFEST, open_shipped
from shootout.commands import landing as command
from shootout.commands.landing import KEPT, Packing
from shootout.commands.told import tell_found
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Precision, Target, short
from shootout.core.errors import NothingMeasured, SkippedArm, UsageError
from shootout.core.exported.model import sha256
from shootout.core.host.child import QUIET
from shootout.core.plugins import BACKENDS, folder_of
from shootout.tell import machines

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
PARAMETERS = {"d_model": 64, "n_layers": 4}


def write_run(place: Path, times_ns: dict[Target, float], restarts: int = 5, **changes: Any) -> Path:
    """A run on this machine in which these targets took so long; the first is the baseline."""
    exported = obtain("residual_mlp", PARAMETERS, 2)
    arms = [
        Arm(target=one, model="residual_mlp", parameters=exported.parameters, batch=2, **changes) for one in times_ns
    ]
    raced = [
        *zip(arms, times_ns.values(), strict=True),
        (replace(arms[0], control=True), next(iter(times_ns.values()))),
    ]
    lines: list[Any] = [made.prepared(arm).model_copy(update={"exported": exported.key}) for arm in arms]
    for number in range(restarts):
        lines += [made.played(arm, number, ns, fidelity=FOUND) for arm, ns in raced] + [made.rounds(number)]
    return made.write(place, made.header([arm for arm, _ in raced], environment=machines.facts()), *lines, made.ended())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NumPy is faster than ONNX Runtime, and what no folder can hold is the fastest but one."""
    let_numpy_ship(monkeypatch)
    targets = {"onnxruntime": 2e6, "numpy": 1e6, "torch-eager": 1.5e6}
    return write_run(tmp_path / "run", {Target(backend=name): ns for name, ns in targets.items()})


def chooses_here(folder: Path, program: str, *words: str, **variables: str) -> str:
    assert (program, words, [*variables]) == (CHOOSE, ("--json",), [KEPT])
    told = {"reason": "numpy-fp32 is 2.0x faster", "seconds": 3.0, "restarts": 4}
    return json.dumps({"chosen": "numpy-fp32", "safe": "onnxruntime-fp32", **told})


def test_contenders_lie_side_by_side_each_a_whole_shipped_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "run_program", chooses_here)
    done = here("ship", str(run), "--choose-on-landing", "-o", str(out := tmp_path / "out"), "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "  numpy        2.00x faster than onnxruntime (1.99 to 2.01)\n" in done.err
    assert "  onnxruntime  the safe one" in done.err
    assert "left out  torch-eager: it runs the Python of the model's own package" in done.err
    assert "in a race of 3 s here, just now: numpy-fp32 is 2.0x faster\n" in done.err
    landing = json.loads((out / "landing.json").read_text())
    assert (landing["safe"], landing["threads"], landing["limit_s"]) == ("onnxruntime-fp32", 1, 10.0)
    assert [one["name"] for one in landing["contenders"]] == ["numpy-fp32", "onnxruntime-fp32"], "the fastest first"
    assert [one["packages"] for one in landing["contenders"]] == [["numpy"], ["onnxruntime-gpu|onnxruntime"]]
    assert landing["contenders"][0]["ratio_to_safe"]["ratio"] == pytest.approx(0.5)
    assert landing["contenders"][1]["ratio_to_safe"] is None
    assert {name: sha256(out / name) for name in landing["files"]} == landing["files"]
    assert {CHOOSE, "load.py", f"contenders/numpy-fp32/{MANIFEST}"} <= landing["files"].keys()
    pinned = {line for line in (out / "requirements.txt").read_text().splitlines() if "==" in line}
    for one in landing["contenders"]:
        shipped = open_shipped(out / one["folder"])
        assert shipped.arm.label == one["label"]
        assert shipped.error_limit > 0
        assert QUIET.items() <= shipped.runtime.environment.items(), "no telemetry where it lands"
        assert {*(out / one["folder"] / "requirements.txt").read_text().splitlines()[1:]} <= pinned
    written = json.loads(done.out)
    assert written["contenders"] == landing["contenders"]
    found = tell_found(written, ["ship"])  # what an agent is told
    assert found.answer.endswith(
        "chooses among numpy, onnxruntime where it lands; without a verdict it takes onnxruntime."
    )
    assert "torch-eager: it runs the Python of the model's own package" in found.open[0]
    assert found.notes == ["in a race of 3 s here, just now: numpy-fp32 is 2.0x faster"]
    assert found.next == f"pip install -r {out}/requirements.txt && python {out}/{CHOOSE}"
    assert written["size_bytes"] == sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def test_a_run_that_has_not_decided_is_enough_since_the_race_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    let_numpy_ship(monkeypatch)
    monkeypatch.setattr(command, "run_program", chooses_here)
    times = {Target(backend="onnxruntime"): 1e6, Target(backend="numpy"): 9e6}
    run = write_run(tmp_path / "run", times, restarts=1)
    alone = here("ship", str(run), "-o", str(tmp_path / "alone"), cwd=tmp_path)
    assert alone.code == 7
    assert "numpy isn't ruled out; race it again; or name it: --target onnxruntime" in alone.err
    done = here("ship", str(run), "--choose-on-landing", "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"in the run {run}, which has not decided:\n" in done.err
    assert "numpy        about 9.0x slower than onnxruntime, too few restarts (1)\n" in done.err, (
        "its interval has no end"
    )


def test_what_can_not_go_along_alone_is_refused_before_anything_is_built(tmp_path: Path):
    run = write_run(tmp_path / "run", {Target(backend="onnxruntime"): 1e6})
    done = here("ship", str(run), "--choose-on-landing", "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "onnxruntime alone can go along: no other was raced; race others with it (--backends)" in done.err


@pytest.mark.long
def test_the_folder_chooses_on_its_own_and_each_contender_is_a_target(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The programs themselves have tests of their own: tests/ship/test_choose.py."""
    done = here("ship", str(run), "--choose-on-landing", "-o", str(out := tmp_path / "out"), "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    chosen = json.loads(done.out)["chosen_here"]
    assert chosen["chosen"] in ("numpy-fp32", "onnxruntime-fp32")
    assert {path.name for path in out.iterdir()} == {
        *(CHOOSE, "load.py", "landing.json", "requirements.txt", "contenders"),
    }, "the choice of this machine stays here"
    monkeypatch.undo()
    raced = ["run", "residual_mlp", "--set", "d_model=64", "--set", "n_layers=4", "--batch", "2", "--dry-run"]
    plan = here(*raced, "--backends", f"onnxruntime,shipped:{out}/contenders/numpy-fp32", cwd=tmp_path)
    assert plan.code == 0, plan.err
    assert "shipped:numpy-fp32" in plan.out


def test_the_folder_itself_is_no_target_and_says_what_is_one(tmp_path: Path):
    (tmp_path / "contenders" / "numpy-fp32").mkdir(parents=True)
    (tmp_path / "landing.json").write_text("{}")
    for words in (["run", "residual_mlp", "--backends", f"numpy,shipped:{tmp_path}"], ["gate", str(tmp_path)]):
        done = here(*words, cwd=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert f"holds several contenders: name one of them, such as '{tmp_path}/contenders/numpy-fp32'" in done.err


@pytest.mark.parametrize(
    ("name", "targets", "plain", "left_out"),
    [
        (
            "decide-digits",
            "litert onnxruntime numpy onnxruntime:cpu:int8 openvino",
            "onnxruntime litert",
            "openvino:cpu:int8",
        ),
        ("runtimes-centerface", "litert executorch openvino ncnn", "onnxruntime litert", "onnxruntime"),
        ("h200-bert", "onnxruntime", "onnxruntime", "onnxruntime:cuda:fp32"),
    ],
)
def test_what_keeps_the_same_limits_may_go_along_the_answer_first(name: str, targets: str, plain: str, left_out: str):
    """The safe one is what most would take, though it may be slow; INT8 goes if its accuracy was measured."""
    found = propose_contenders(find_arm_to_ship(REFERENCE / name))
    assert [short(one.arm.label) for one in found.targets] == targets.split()
    assert [short(one.arm.label) for one in found.plain][: len(plain.split())] == plain.split()
    assert left_out in found.left_out


def pack(proposed: str, bound: Collection[str] = (), count: int = 3, apart: str = "") -> Packing:
    """What is packed of these targets, the first of which is the answer; the plain ones may all be the safe one."""
    proposals = Mock(left_out={"slow": "5x slower here"})
    proposals.cell.compare = lambda one, safe: None if one == apart else Mock()
    packing = Packing(folder=Path("out"), evidence={}, proposals=proposals, progress=Mock())

    def take(source: Any) -> bool:
        label = short(str(source.arm.target))
        if label in bound:
            packing.left_out[label] = "bound to this CPU"
            return False
        packing.left_out.pop(label, None)
        packing.packed[label] = Mock(arm=source.arm, target=source.arm.target, folder=tempfile.mkdtemp())
        return True

    packing.take = take  # type: ignore[method-assign]
    words = [(*one.partition(":")[0].split("+"), one.partition(":")[2] or "fp32") for one in proposed.split()]
    found = [Target(backend=name, mode="".join(mode), precision=Precision(last)) for name, *mode, last in words]
    sources = [Mock(arm=Arm(target=one, model="m")) for one in found]
    plain = [one for one in sources if one.arm.target.precision is Precision.FP32]
    plain.sort(key=lambda one: one.arm.target.backend != "onnxruntime")
    proposals.targets, proposals.plain = sources, plain
    packing.take_all(count)
    return packing


@pytest.mark.parametrize(
    ("proposed", "bound", "count", "packed"),
    [
        ("litert openvino onnxruntime ncnn", (), 3, "onnxruntime litert openvino"),
        ("litert openvino onnxruntime ncnn", (), 2, "onnxruntime litert"),
        ("openvino:int8 openvino litert onnxruntime", (), 3, "onnxruntime openvino:cpu:int8 litert"),
        ("openvino:int8 openvino litert onnxruntime", (), 4, "onnxruntime openvino:cpu:int8 litert openvino"),
        ("onnxruntime:int8 onnxruntime litert", (), 3, "onnxruntime onnxruntime:cpu:int8 litert"),
        ("torch-compile torch-compile+aoti onnxruntime", (), 4, "onnxruntime torch-compile"),
        ("jax-jit onnxruntime litert", ("jax-jit",), 3, "onnxruntime litert"),
        ("litert onnxruntime", ("onnxruntime",), 3, None),
    ],
)
def test_different_runtimes_go_before_a_second_precision_of_one(
    proposed: str, bound: Collection[str], count: int, packed: str | None
):
    if packed is None:
        with pytest.raises(
            NothingMeasured, match=r"litert alone can go along: slow: 5x slower here; onnxruntime: bound"
        ):
            pack(proposed, bound, count)
        return
    found = pack(proposed, bound, count)
    assert [*found.packed] == packed.split()
    assert {short(str(one)) for one in found.packed}.isdisjoint(found.left_out)


def test_what_stays_says_why():
    """One more is offered only if it could go; what never ran beside the safe one can't."""
    assert pack("litert openvino onnxruntime jax-jit ncnn", ["jax-jit"]).left_out == {
        "slow": "5x slower here",
        "jax-jit": "bound to this CPU",
        "ncnn": "3 others go along; --contenders 4 takes it, too",
    }
    found = pack("litert openvino onnxruntime", apart="litert:cpu:fp32")
    assert [*found.packed] == ["onnxruntime", "openvino"]
    assert found.left_out["litert"] == "not measured together with onnxruntime"


def test_what_fits_this_cpu_alone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = source_of(Arm(target=Target(backend="numpy"), model="identity"))
    built = Built(arm=source.arm, exported=obtain("identity", {}, 1), folder=tmp_path, facts={})
    shipping = (lambda *_: Shipment(isa=("avx512f",))), folder_of(BACKENDS) / "_numpy"
    monkeypatch.setattr(folder, "shipping", lambda _, **how: shipping)
    with pytest.raises(SkippedArm, match="numpy:cpu:fp32 is compiled for this kind of CPU"):
        folder.write_folder(source, built, tmp_path / "out", anywhere=True)
    assert not (tmp_path / "out").exists()


def test_a_race_of_something_else_than_calls_is_refused(run: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="races for the lowest latency of a call, and the policy has objective size"):
        propose_contenders(find_arm_to_ship(run, policy=read_policy(None, {"objective": "size"})))
    served = write_run(tmp_path / "served", {Target(backend="numpy"): 1e6}, scenario="throughput", instances=2)
    with pytest.raises(UsageError, match="was measured in the scenario throughput: race it with --scenario latency"):
        propose_contenders(find_arm_to_ship(served))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--contenders 3", "--contenders is of a folder of several targets: add --choose-on-landing"),
        ("--choose-on-landing --contenders 5", "contenders is a number from 2 to 4, received '5'"),
        ("--choose-on-landing --target numpy", "leave --target numpy out, or ship it alone"),
        ("--choose-on-landing --on ssh://host", "run it there, and copy the folder"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: str, told: str, tmp_path: Path):
    done = here("ship", str(tmp_path), *words.split(), "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert told in done.err
