"""One arm on sizes that vary: each call goes to the session of its size, padded and cut back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.exports import bare_exported
from support.sessions import EchoSession

from shootout.core import clock
from shootout.core.adapter import Built, Session
from shootout.core.contract import Arm, Arrays, Executed, Target, TensorSpec
from shootout.core.exported.model import INPUTS, REFERENCE, ExportedModel, save_sets
from shootout.core.messages import Ask
from shootout.core.worker import blocks as blocks_module
from shootout.core.worker.worker import Worker
from shootout.scenarios import varying
from shootout.scenarios.varying import CALLS, Arrivals, draw_arrivals, weigh_calls

ACCOUNT = Executed(library="lib", version="1", device="cpu", threads=1, compute_nodes_by_precision={"fp32": 1})
ARRIVALS = Arrivals(axis="tokens", sizes=(3, 2, 4, 3, 2, 3))


class Doubling(EchoSession):
    """Doubles its input, of the shape that it was made for; `seen` keeps the shapes of all its calls."""

    def __init__(self, exported: ExportedModel, wrong: float = 0.0) -> None:
        self.exported, self.wrong, self.executed = exported, wrong, replace(ACCOUNT, artifact_bytes=10)
        self.seen: list[tuple[int, ...]] = []
        self.count = 0

    def stage(self, inputs: Arrays, slot: int) -> Any:
        (spec,) = self.exported.inputs
        assert spec.matches(inputs["x"])
        return inputs["x"]

    def execute(self, staged: Any) -> Any:
        self.seen.append(staged.shape)
        return staged * 2 + self.wrong

    def fetch(self, raw: Any) -> Arrays:
        return {"y": raw}

    def sized(self, exported: ExportedModel) -> Doubling:
        other = Doubling(exported)
        other.seen = self.seen
        return other


class Runner:
    """Builds a file, and loads `Doubling`; `arms` are those that it was given."""

    def __init__(self, wrong: Mapping[int, float] | None = None) -> None:
        self.arms: list[Arm] = []
        self.wrong = wrong or {}

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        assert not [*folder.iterdir()]
        (folder / "made").write_text(exported.key)
        self.arms.append(arm)
        return Built(arm=arm, exported=exported, folder=folder, facts={"notes": ["made"], "of": exported.key})

    def load(self, built: Built) -> Session:
        assert (built.folder / "made").read_text() == built.facts["of"] == built.exported.key
        return Doubling(built.exported, self.wrong.get(built.exported.inputs[0].shape[1], 0.0))  # type: ignore[return-value]


def sized(size: int, folder: Path) -> ExportedModel:
    place = folder / str(size)
    place.mkdir()
    x, y = (TensorSpec(name=name, shape=(1, size), dtype="float32") for name in "xy")
    sets = [{"x": np.full((1, size), 10.0 * size + number, np.float32)} for number in range(2)]
    save_sets(place / INPUTS, sets)
    save_sets(place / REFERENCE, [{"y": 2.0 * one["x"].astype(np.float64)} for one in sets])
    bounds = {"fp32": 1e-5}
    return bare_exported(bounds, folder=place, key=str(size), inputs=(x,), outputs=(y,), weights_sha256="w")


def arm(scheme: str = "") -> Arm:
    return Arm(target=Target(backend="spin", scheme=scheme), model="m", scenario="varying")


def made(tmp_path: Path, bucket: int | None = None, *, is_open: bool = False) -> ExportedModel:
    models = {size: sized(size, tmp_path) for size in (2, 3, 4)}
    return ARRIVALS.compose(models, bucket, is_open=is_open)


def loaded(exported: ExportedModel, folder: Path, asked: Arm, runner: Any = None) -> varying.VaryingSession:
    folder.mkdir()
    used = runner or Runner()
    return varying.load(used, varying.build(used, exported, asked, folder))


def call(session: varying.VaryingSession, inputs: Arrays) -> Arrays:
    raw = session.execute(session.stage(inputs, 0))
    session.synchronize()
    return session.fetch(raw)


SCHEMES: Sequence[tuple[str, int | None, bool]] = (("", None, False), ("bucket-2", 2, False), ("dynamic", None, True))


@pytest.mark.parametrize(("scheme", "bucket", "is_open"), SCHEMES)
def test_each_size_is_answered_at_its_own_shape(scheme: str, bucket: int | None, is_open: bool, tmp_path: Path):
    exported = made(tmp_path, bucket, is_open=is_open)
    session = loaded(exported, tmp_path / "built", arm(scheme))
    assert exported.varying
    for one in exported.varying.sizes:
        for inputs, right in zip(one.exported.input_buffers(), one.exported.reference_outputs(), strict=True):
            np.testing.assert_array_equal(call(session, inputs)["y"], right["y"])
    with pytest.raises(ValueError, match=r"input 'x': expected float32\[1, 4\], got float32\[1, 5\]"):
        session.stage({"x": np.zeros((1, 5), np.float32)}, 0)


def test_padding_is_the_harnesss_and_not_the_adapters(tmp_path: Path):
    exported, runner = made(tmp_path, 2), Runner()
    session = loaded(exported, tmp_path / "built", arm("per-tensor+bucket-2"), runner)
    assert {one.target.scheme for one in runner.arms} == {"per-tensor"}
    assert len(runner.arms) == 2
    assert session.executed.artifact_bytes == 20
    call(session, {"x": np.full((1, 3), 9, np.float32)})
    again = call(session, {"x": np.ones((1, 3), np.float32)})
    assert again["y"].tolist() == [[2, 2, 2]]


def test_calls_take_the_sizes_in_the_order_of_their_arrival(tmp_path: Path):
    exported = made(tmp_path)
    buffers = varying.list_buffers(exported)
    for first in range(3):
        order = varying.order_calls(exported, buffers, first)
        flat = [*buffers[first], *(one for index, some in enumerate(buffers) if index != first for one in some)]
        taken = [flat[place]["x"] for place in order]
        assert [array.shape[1] for array in taken] == [*ARRIVALS.sizes]
        assert [int(array[0, 0]) for array in taken] == [30, 20, 40, 31, 21, 30]


def test_a_rare_size_counts_by_its_exact_share_in_every_pass(monkeypatch: pytest.MonkeyPatch):
    shares = {1: 9_999.0, 2_048: 1.0}
    sizes = draw_arrivals(shares, CALLS, seed=0)
    weights = weigh_calls(shares, sizes)
    assert sum(weights) == pytest.approx(1)
    took_ns, clock_ns = {1: 1_000_000, 2_048: 75_000_000}, [0]

    class Timed(Doubling):
        def execute(self, staged: Any) -> Any:
            clock_ns[0] += took_ns[staged.shape[1]]
            return staged

        def stage(self, inputs: Arrays, slot: int) -> Any:
            return inputs["x"]

    monkeypatch.setattr(clock, "now_ns", lambda: clock_ns[0])
    monkeypatch.setattr(blocks_module, "BLOCK_NS", 300_000_000)
    buffers = [[{"x": np.zeros((1, size), np.float32)}] for size in shares]
    session: Any = Timed(bare_exported({}))
    order = [[*shares].index(size) for size in sizes]
    blocks = varying.SizedBlocks(session, buffers, 0, order=order, weights=weights)
    blocks.tune()
    turn = blocks.turn(Ask())
    latency_ns = turn.latency_ns["end_to_end"]
    np.testing.assert_allclose(latency_ns, [0.9999 * 1e6 + 0.0001 * 75e6] * 3)
    assert turn.read_ns == 3 * (49 * 1e6 + 75e6), "what the calls took, which the clock check compares"


@pytest.mark.parametrize(("wrong", "told"), [({}, None), ({3: 1.0}, "at tokens=3: relative L2 error")])
def test_the_outputs_of_each_size_are_held_to_its_reference(
    wrong: Mapping[int, float], told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    exported, runner = made(tmp_path), Runner(wrong)
    adapter = SimpleNamespace(capabilities=SimpleNamespace(rest={}))
    monkeypatch.setattr("shootout.core.backends.runner", lambda _: runner)
    monkeypatch.setattr("shootout.core.backends.get", lambda _: adapter)
    worker = Worker()
    (tmp_path / "built").mkdir()
    facts, _ = worker.build(exported, arm(), tmp_path / "built")
    worker.load(Built(arm=arm(), exported=exported, folder=tmp_path / "built", facts=facts))
    monkeypatch.setattr(worker, "_strayed", None)
    verified = worker.verify()
    assert verified.call_s
    assert (verified.fault or "").startswith(told or "")
    assert bool(verified.fault) is bool(told)


def test_which_size_is_checked_again_is_drawn_by_the_runs_seed(tmp_path: Path):
    built = Built(arm=arm(), exported=made(tmp_path), folder=tmp_path, facts={})
    session: Any = SimpleNamespace(stage=lambda _, slot: slot, execute=int, synchronize=int, fetch=int)

    def draw(seed: int) -> int:
        return varying.VaryingSizes().open(built, [session], seed).first

    assert [draw(seed) for seed in range(30)] == [draw(seed) for seed in range(30)]
    assert {draw(seed) for seed in range(30)} == {0, 1, 2}, "each of the three sizes"
