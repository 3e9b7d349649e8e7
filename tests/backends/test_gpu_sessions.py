"""The promises of every session on a GPU, without one: right numbers, one wait before the clock is read, memory freed.

That torch, ONNX Runtime, TensorRT and CUDA answer as their fakes do needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpus import fake_cuda, fake_onnxruntime, fake_torch
from support.gpus.fake_cuda import LAUNCH_MS, FakeCuda
from support.gpus.fake_tensorrt import FakeTensorRt
from support.gpus.fake_torch import KERNEL_MS

from shootout.backends._onnxruntime.account import ENGINES
from shootout.backends._onnxruntime.backend import OnnxRuntimeAdapter
from shootout.backends._tensorrt.account import Network
from shootout.backends._tensorrt.engine import Library
from shootout.backends._tensorrt.session import Setup, TensorRtSession
from shootout.backends._torch import session as torch_session
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Device, Target, TensorSpec
from shootout.testing.checks import (
    CheckedTarget,
    ConformanceCase,
    call,
    inputs_unchanged,
    names_shapes_dtypes,
    outputs_survive,
    slots_are_independent,
    wrong_inputs_are_refused,
)

SHAPE = (4, 4)
X, Y = (TensorSpec(name=name, shape=SHAPE, dtype="float32") for name in "xy")


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(SHAPE, value, np.float32)}


EXPORTED: Any = SimpleNamespace(
    inputs=(X,), outputs=(Y,), input_buffers=lambda: [inputs(value) for value in (1, 2, 3, 4)]
)


@dataclass
class Opened:
    """A session of a model that doubles its input.

    Attributes:
        pending: how many pieces of work the device has not been waited for.
        taken: how much memory of the device and page-locked memory of the host is in use.
        cuda: the CUDA runtime where the session, or what empties the cache, works by it.
        call_ms: what the device takes for one call.
    """

    session: Any
    pending: Callable[[], int]
    taken: Callable[[], tuple[int, int]]
    cuda: FakeCuda
    call_ms: float = 1


def arm_of(backend: str, options: dict[str, str], mode: str = "") -> Arm:
    return Arm(target=Target(backend=backend, device=Device.CUDA, mode=mode), model="made", options=options)


def on_cuda(session: Any, cuda: FakeCuda) -> Opened:
    return Opened(session, lambda: cuda.pending, lambda: (cuda.held["device"], cuda.held["host"]), cuda)


def open_torch(patch: pytest.MonkeyPatch, folder: Path, options: dict[str, str]) -> Opened:
    cuda, torch = fake_cuda.install(patch), fake_torch.install(patch)
    session = torch_session.session_on(torch.double, arm_of("torch-eager", options), EXPORTED, lambda staged: {})  # type: ignore[arg-type]

    def taken() -> tuple[int, int]:
        return sum(one.device == "cuda" for one in torch.made), sum(one.pinned for one in torch.made)

    return Opened(session, lambda: torch.pending, taken, cuda, KERNEL_MS)


def open_onnxruntime(patch: pytest.MonkeyPatch, folder: Path, options: dict[str, str], mode: str = "") -> Opened:
    machine = fake_onnxruntime.install(patch)
    (folder / ENGINES).mkdir()
    (folder / ENGINES / "graph_sm90.engine").touch()
    arm = arm_of("onnxruntime", options, mode)
    return on_cuda(OnnxRuntimeAdapter().load(Built(arm=arm, exported=EXPORTED, folder=folder)), machine.gpu)


def open_tensorrt(patch: pytest.MonkeyPatch, folder: Path, options: dict[str, str], name: str = "tensorrt") -> Opened:
    cuda = fake_cuda.install(patch)
    library = Library(FakeTensorRt(cuda, name), SimpleNamespace(errors=[], warnings=[]))  # type: ignore[arg-type]
    graph, copies = options.get("cuda_graph") == "1", {k: v for k, v in options.items() if k == "copies"}
    network = Network(products=(), converters=())
    setup = Setup(plan=b"engine", inputs=(X,), outputs=(Y,), network=network, graph=graph, **copies)
    return on_cuda(TensorRtSession(library, setup), cuda)


SESSIONS: dict[str, Callable[..., Opened]] = {
    "torch": open_torch,
    "onnxruntime": open_onnxruntime,
    "onnxruntime+tensorrt": partial(open_onnxruntime, mode="tensorrt"),
    "tensorrt": open_tensorrt,
    "tensorrt_rtx": partial(open_tensorrt, name="tensorrt_rtx"),
}
HAVE_GRAPHS = {"onnxruntime", "tensorrt", "tensorrt_rtx"}
WAYS = [f"{name} {copies}" for name in SESSIONS for copies in ("pinned", "pageable")]
WAYS += [f"{name} pinned graph" for name in SESSIONS if name in HAVE_GRAPHS]


@pytest.fixture(params=WAYS)
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opened:
    name, copies, *graph = request.param.split()
    options = {"copies": copies} | ({"cuda_graph": "1"} if graph else {})
    found = SESSIONS[name](monkeypatch, tmp_path, options)
    assert found.session.gpu.copies == copies, "told in the row"
    return found


CHECKS = (names_shapes_dtypes, inputs_unchanged, outputs_survive, slots_are_independent, wrong_inputs_are_refused)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_promises_of_every_adapter(check: Callable[[CheckedTarget], None], opened: Opened):
    checked = CheckedTarget(ConformanceCase(arm=arm_of("made", {}), exported=EXPORTED, probe_exported=None), Path())
    vars(checked)["session"] = opened.session
    check(checked)


def test_a_call_is_only_queued_and_synchronize_waits_for_all_of_it(opened: Opened):
    session = opened.session
    for value in (1, 2, 3):
        raw = session.execute(session.stage(inputs(value), 0))
        assert opened.pending(), "the time of a call that isn't waited for is that of queueing it"
        session.synchronize()
        assert not opened.pending(), "the clock is read now"
        np.testing.assert_array_equal(session.fetch(raw)["y"], 2 * value)
        assert not opened.pending()


def test_a_fetch_that_nobody_waited_before_is_right_all_the_same(opened: Opened):
    session = opened.session
    np.testing.assert_array_equal(session.fetch(session.execute(session.stage(inputs(3), 0)))["y"], 6)


def test_inputs_may_change_once_staged_and_staging_again_waits_for_the_copy_before(opened: Opened):
    session, mine = opened.session, inputs(1)
    first = session.stage(mine, 0)
    mine["x"][:] = 50
    raw = session.execute(first)
    session.stage(inputs(7), 1)
    again = session.stage(inputs(9), 0)
    np.testing.assert_array_equal(session.fetch(raw)["y"], 2)
    np.testing.assert_array_equal(session.fetch(session.execute(again))["y"], 18)


def test_an_array_with_gaps_is_staged_as_it_reads(opened: Opened):
    wide = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(call(opened.session, {"x": wide[:, ::2]})["y"], 2 * wide[:, ::2])


def test_each_slot_has_its_memory_for_good_and_page_locked_only_if_asked_for(opened: Opened):
    for slot in range(3):
        call(opened.session, inputs(1), slot)
    device, host = opened.taken()
    assert device >= 3
    assert (host > 0) is (opened.session.gpu.copies == "pinned")
    for slot in range(3):
        np.testing.assert_array_equal(call(opened.session, inputs(slot), slot)["y"], 2 * slot)
    assert opened.taken() == (device, host), "nothing is allocated by a call"


def test_wrong_inputs_are_refused_before_anything_is_copied(opened: Opened):
    call(opened.session, inputs(1))
    with pytest.raises(ValueError, match="'x'"):
        opened.session.stage({"x": np.zeros((4, 5), np.float32)}, 0)
    assert not opened.pending()


def test_events_tell_of_the_run_alone_on_a_device_that_was_idle(opened: Opened):
    staged = opened.session.stage(inputs(1), 0)
    wanted = 1e6 * (opened.call_ms + LAUNCH_MS)
    assert opened.session.gpu.event_ns(staged, 3) == [wanted] * 3, "without the copy before it"
    assert not opened.pending()


def test_close_frees_everything_and_twice_is_harmless(opened: Opened):
    session = opened.session
    staged = session.stage(inputs(1), 0)
    session.gpu.event_ns(staged, 1)
    session.execute(staged)
    session.close()
    session.close()
    assert not +opened.cuda.held
    assert session.gpu is None
    kept = [name for name, value in vars(session).items() if "OnCuda" in repr(value)]
    assert not kept
    for name in ("binding", "context"):
        assert getattr(staged, name, None) is None, "a slot that the caller keeps holds nothing of the session"


@pytest.mark.parametrize("name", SESSIONS)
def test_copies_are_pinned_unless_asked_otherwise(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert SESSIONS[name](monkeypatch, tmp_path, {}).session.gpu.copies == "pinned"
