"""Torch on a GPU without one: streams, conversions, training, graphs; see test_gpu_sessions for its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from support.gpus import fake_torch
from support.gpus.fake_cuda import LAUNCH_MS
from support.gpus.fake_torch import KERNEL_MS, FakeTorch

from shootout.apps.tune.settings import list_changes
from shootout.backends import _spin as spin
from shootout.backends._spin import STEP_CYCLES
from shootout.backends._torch import compile as compile_adapter
from shootout.backends._torch import inductor, training
from shootout.backends._torch import session as torch_session
from shootout.backends._torch.compile import _captured_since, inductor_config, load_cache
from shootout.core import backends
from shootout.core.adapter import RATE, Built
from shootout.core.contract import Arm, Availability, Device, Precision, Target, TensorSpec
from shootout.core.errors import SkippedArm
from shootout.core.study import feasibility
from shootout.testing.checks import call, targets, warm_of
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


def test_the_account_of_memory_is_torch_s(torch: FakeTorch):
    session = session_on(torch)
    session.stage(inputs(1), 0)
    torch.peak = 10_000
    assert session.gpu.allocator() == (4 * SIZE, 10_000)


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


def test_a_training_step_uses_the_slot_s_tensors_too(torch: FakeTorch):
    target = TensorSpec(name="target", shape=(SIZE,), dtype="float32")
    rate = TensorSpec(name=RATE, shape=(), dtype="float32")
    loss = TensorSpec(name="loss", shape=(), dtype="float32")
    exported: Any = SimpleNamespace(inputs=(X, target, rate), outputs=(loss,))
    given = {**inputs(1), "target": np.zeros(SIZE, np.float32), RATE: np.asarray(np.float32(0.5))}
    seen: list[float] = []

    def step(x: Any, target: Any, rate: float) -> Any:
        seen.append(rate)
        return torch.double(x)

    on_gpu = Target(backend="torch-eager", device=Device.CUDA)
    arm = Arm(target=on_gpu, model="made", scenario="train-step", options={"copies": "pinned"})
    built = Built(arm=arm, exported=exported, folder=Path())
    student: Any = SimpleNamespace(step=step)
    session: Any = training.TorchTrainingSession(student, built, Mock())
    first = session.stage(given, 0)
    assert [one is other for one, other in zip(first, session.stage(given, 0), strict=True)] == [True, True, False]
    np.testing.assert_array_equal(session.fetch(session.execute(first))["loss"], 2)
    assert seen == [0.5]
    assert session.gpu.copies == "pinned"
    assert session.gpu.event_ns(first, 1) == [1e6 * (KERNEL_MS + LAUNCH_MS)]
    session.close()
    assert session.gpu is None


BAD_OPTIONS = {
    "a value": (Device.CUDA, {"copies": "mapped"}, "expected pinned or pageable, got 'mapped'"),
    "the CPU": (Device.CPU, {"copies": "pinned"}, "is for cuda"),
    "a name": (Device.CUDA, {"copy": "pinned"}, "unknown option 'copy'"),
}


@pytest.mark.parametrize("runtime", ["torch-eager", "torchscript", "torch-compile"])
@pytest.mark.parametrize("why", BAD_OPTIONS)
def test_copies_are_for_a_gpu_and_one_of_two(runtime: str, why: str, tmp_path: Path):
    device, options, words = BAD_OPTIONS[why]
    arm = Arm(target=Target(backend=runtime, device=device), model="made", options=options)
    with pytest.raises(ValueError, match=words):
        backends.get(runtime).build(SHIPPED, arm, tmp_path)


def test_spin_has_the_gpu_sleep_so_many_cycles_and_waits(torch: FakeTorch):
    arm = Arm(target=Target(backend="spin", device=Device.CUDA), model="identity", options={"work": "51"})
    adapter = spin.SpinAdapter()
    session = adapter.load(adapter.build(SHIPPED, arm, Path()))
    np.testing.assert_array_equal(call(session, inputs(3))["y"], 3)
    assert torch.slept == [51 * STEP_CYCLES], "and it was waited for"
    assert session.executed.device == "cuda:0"


def test_spin_has_no_duration_on_a_gpu(tmp_path: Path):
    arm = Arm(target=Target(backend="spin", device=Device.CUDA), model="identity", options={"duration_us": "5"})
    with pytest.raises(ValueError, match=r"'duration_us' is for cpu, not for cuda: .*a GPU is given steps"):
        spin.SpinAdapter().build(SHIPPED, arm, tmp_path)


def node(*, graph: bool = True, **children: list[Any]) -> Any:
    return SimpleNamespace(graph=object() if graph else None, children=children)


def test_captured_graphs_are_counted_wherever_they_hang():
    roots = {"f": [node(), node(graph=False)], "g": [node(h=[node(), node(k=[node()])])]}
    assert inductor._count_recorded(roots) == 5


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


def loaded_after_the_build(folder: Path) -> tuple[int, int]:
    """Load in the process that built, whose own graph Inductor drops; return the graphs there before and after."""
    import torch
    from torch._inductor import cudagraph_trees

    torch.cuda.is_available = lambda: True  # else Dynamo's reset leaves the graphs alone

    def capture(*_: Any) -> str:
        root = SimpleNamespace(graph=object(), children={})
        manager = SimpleNamespace(roots={"f": [root]}, shutdown=lambda: None)
        container = SimpleNamespace(tree_manager=manager)
        cudagraph_trees.get_obj(cudagraph_trees.local, "tree_manager_locks")[0]  # makes the device's lock
        cudagraph_trees.get_obj(cudagraph_trees.local, "tree_manager_containers")[0] = container
        return "model"

    capture()
    before = inductor.captured_graphs()
    target = Target(backend="torch-compile", mode="cudagraphs", device=Device.CUDA)
    built = Built(arm=Arm(target=target, model="made"), exported=SHIPPED, folder=folder)
    (folder / compile_adapter.CACHE).mkdir()
    accounts: list[Any] = []
    replaced = {"stored_module": Mock(), "keep": Mock(), "compile_module": capture}
    replaced["session_on"] = lambda *given: accounts.append(given) or Mock()
    for name, fake in replaced.items():
        setattr(compile_adapter, name, fake)
    load_cache(built)
    return before, inductor.captured_graphs()


def test_a_graph_is_found_where_the_same_process_captured_one_before(tmp_path: Path):
    """On the first real GPU, every build of +cudagraphs failed so: its probe runs where it was built."""
    assert run_fresh(loaded_after_the_build, tmp_path, warm=INDUCTOR) == (1, 1)


def test_graphs_of_several_sessions_in_a_process_are_refused(tmp_path: Path):
    target = Target(backend="torch-compile", mode="cudagraphs", device=Device.CUDA)
    arm = Arm(target=target, model="made", scenario="throughput", instances=2)
    with pytest.raises(SkippedArm, match="one pool"):
        load_cache(Built(arm=arm, exported=SHIPPED, folder=tmp_path))


def test_graphs_are_no_target_and_no_knob_of_a_cpu():
    found = {target.device for target in targets(["torch-compile"]) if target.mode == "cudagraphs"}
    assert found == {Device.CUDA}
    for device in (Device.CPU, Device.CUDA):
        arm = Arm(target=Target(backend="torch-compile", device=device), model="residual_mlp")
        tried = [change.mode for change in list_changes(arm, 1)]
        assert ("cudagraphs" in tried) is (device is Device.CUDA)
        assert "aoti" in tried


def test_a_mode_for_cuda_is_skipped_on_a_cpu_with_the_target_to_ask_for():
    arm = Arm(target=Target(backend="torch-compile", mode="cudagraphs", precision=Precision.BF16), model="residual_mlp")
    available = {("torch-compile", Device.CPU): Availability(version="1")}
    here = feasibility.Here(available=available, threads=1, cpus=1, memory_bytes=1)
    why = feasibility._check_arm(arm, here)
    assert why is not None
    assert why.reason == "torch-compile+cudagraphs is for cuda, not for cpu"
    assert "torch-compile+cudagraphs:cuda:bf16" in why.fix
