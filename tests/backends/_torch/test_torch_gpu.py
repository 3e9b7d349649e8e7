"""Torch on a GPU without one: streams, conversions, training, graphs; see test_gpu_sessions for its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpus import fake_torch
from support.gpus.fake_torch import FakeTorch

from shootout.backends._torch import inductor
from shootout.backends._torch import session as torch_session
from shootout.backends._torch.compile import _captured_since, inductor_config, load_cache
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Availability, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.core.study import feasibility
from shootout.testing.checks import call, warm_of
from shootout.testing.fresh import run_fresh

INDUCTOR = warm_of(Target(backend="torch-compile"))
SIZE = 4
X, Y = (TensorSpec(name=name, shape=(SIZE,), dtype="float32") for name in "xy")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch.install(monkeypatch)


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(SIZE, value, np.float32)}


SHIPPED: Any = SimpleNamespace(inputs=(X,), outputs=(Y,), input_buffers=lambda: [inputs(1)])


def session_on(torch: FakeTorch, precision: Precision = Precision.FP32, instances: int = 1, **options: str) -> Any:
    target = Target(backend="torch-eager", device=Device.CUDA, precision=precision)
    arm = Arm(target=target, model="made", options=options, instances=instances)
    return torch_session.session_on(
        torch.double,  # type: ignore[arg-type]
        arm,
        SHIPPED,
        lambda staged: {"compute_nodes_by_precision": {str(precision): len(staged)}, "artifact_bytes": 1},
    )


@pytest.mark.parametrize("copies", ["pageable", "pinned"])
def test_floats_are_converted_on_the_device_and_come_back_as_float32(torch: FakeTorch, copies: str):
    """The fake refuses to convert while it copies, as torch would: on the host."""
    session = session_on(torch, Precision.FP16, copies=copies)
    assert session.stage(inputs(1), 0)[0].dtype == np.float16
    outputs = call(session, inputs(3))
    assert outputs["y"].dtype == np.float32
    np.testing.assert_array_equal(outputs["y"], 6)


def test_several_sessions_have_a_stream_each_in_whichever_thread_they_are_called(torch: FakeTorch):
    sessions = [session_on(torch, instances=2) for _ in range(2)]
    streams = torch.streams[1:]
    staged = [session.stage(inputs(value), 0) for value, session in enumerate(sessions, start=1)]
    raws = [session.execute(one) for session, one in zip(sessions, staged, strict=True)]
    assert [bool(stream.queue) for stream in streams] == [True, True], "each on its own, and nobody waited"
    sessions[0].synchronize()
    assert [bool(stream.queue) for stream in streams] == [False, True], "one waits for its own work alone"
    np.testing.assert_array_equal(sessions[0].fetch(raws[0])["y"], 2)
    with ThreadPoolExecutor(1) as pool:  # a thread of which torch's own stream is the default one
        raw = pool.submit(lambda: sessions[1].execute(sessions[1].stage(inputs(3), 1))).result()
    assert torch.default.queue == []
    sessions[1].synchronize()
    np.testing.assert_array_equal(sessions[1].fetch(raw)["y"], 6)


def test_one_session_uses_the_stream_that_everybody_does(torch: FakeTorch):
    session = session_on(torch)
    session.execute(session.stage(inputs(3), 0))
    assert torch.streams == [torch.default]
    assert torch.default.queue


def test_the_account_names_the_device_of_a_real_output(torch: FakeTorch):
    executed = session_on(torch).executed
    assert (executed.device, executed.compute_nodes_by_precision) == ("cuda", {"fp32": 1})


@pytest.mark.parametrize(
    ("captured", "since", "parts", "words"),
    [(1, 0, 1, []), (2, 0, 3, ["3 parts"]), (1, 0, 2, ["2 parts"]), (1, 4, 1, ["4 more"])],
)
def test_what_isn_t_one_replayed_graph_is_told(captured: int, since: int, parts: int, words: list[str]):
    told = run_fresh(inductor.outside_graphs, captured, since, parts, warm=INDUCTOR)
    assert len(told) == len(words)
    assert all(word in line for word, line in zip(words, told, strict=True))


def uncaptured(folder: Path) -> str:
    """What loading says under the mode's own configuration on torch's CPU build, where nothing is captured."""
    target = Target(backend="torch-compile", mode="cudagraphs", device=Device.CUDA)
    config = inductor_config(Arm(target=target, model="made", options={"max_autotune": "1", "copies": "pinned"}))
    assert config == {"max_autotune": True, "triton.cudagraphs": True}
    with inductor.inductor_with(folder, config):
        try:
            _captured_since(0)
        except RuntimeError as error:
            return str(error)
    return ""


def test_a_label_of_graphs_without_any_is_a_failure(tmp_path: Path):
    assert "captured no CUDA graph" in run_fresh(uncaptured, tmp_path, warm=INDUCTOR)


def test_graphs_of_several_sessions_in_a_process_are_refused(tmp_path: Path):
    target = Target(backend="torch-compile", mode="cudagraphs", device=Device.CUDA)
    arm = Arm(target=target, model="made", scenario="throughput", instances=2)
    with pytest.raises(SkippedArm, match="one pool"):
        load_cache(Built(arm=arm, exported=SHIPPED, folder=tmp_path))


def test_a_mode_for_cuda_is_skipped_on_a_cpu_with_the_target_to_ask_for():
    arm = Arm(target=Target(backend="torch-compile", mode="cudagraphs", precision=Precision.BF16), model="residual_mlp")
    available = {("torch-compile", Device.CPU): Availability(version="1")}
    here = feasibility.Here(available=available, threads=1, cpus=1, memory_bytes=1)
    why = feasibility._check_arm(arm, here)
    assert why is not None
    assert why.reason == "torch-compile+cudagraphs is for cuda, not for cpu"
    assert "torch-compile+cudagraphs:cuda:bf16" in why.fix
