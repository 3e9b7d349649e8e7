"""TensorRT's run path on a GPU made of host memory: what is called, on which stream, in which order, and freed.

It shows that the calls are in order; that TensorRT and CUDA answer as they are made to here needs a GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.gpus import fake_gpu
from support.gpus.fake_gpu import ACTIVATION_BYTES, FAILED, L2_BYTES, SIZE, WEIGHT_BYTES, FakeCuda, FakeTensorRt

from shootout.backends import cuda_memory
from shootout.backends._tensorrt import backend as tensorrt_backend
from shootout.backends._tensorrt.account import Network, Product
from shootout.backends._tensorrt.library import Library
from shootout.backends._tensorrt.session import Setup, TensorRtSession
from shootout.backends.adapter import Built
from shootout.contract import Arm, Arrays, Device, Precision, Target, TensorSpec
from shootout.errors import SkippedArm

X, Y = (TensorSpec(name=name, shape=(SIZE,), dtype="float32") for name in "xy")
TOLD = json.dumps(
    {
        "Layers": [
            {"LayerType": "kgen", "Name": "__myl_Cast_myl0_0", "Metadata": "[ONNX Layer: narrow]"},
            {"LayerType": "gemm", "Name": "a", "Inputs": [{"Format/Datatype": "Half"}], "Metadata": "[ONNX Layer: a]"},
        ]
    }
)
PRODUCT = Product(name="a", origin="[ONNX Layer: a]", precision="fp16", flops=32.0)
NETWORK = Network(products=(PRODUCT,), converters=("[ONNX Layer: narrow]",))
in_both_ways = pytest.mark.parametrize("copies", ["pinned", "pageable"])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def trt(gpu: FakeCuda) -> FakeTensorRt:
    return FakeTensorRt(gpu, TOLD)


def session_on(trt: Any, *, log: tuple[str, ...] = (), **changes: Any) -> TensorRtSession:
    setup = Setup(**{"plan": b"engine", "inputs": (X,), "outputs": (Y,), "network": NETWORK, **changes})
    return TensorRtSession(Library(trt, SimpleNamespace(errors=list(log), warnings=[])), setup)


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"x": np.full(SIZE, value, np.float32)}


def call(session: TensorRtSession, value: float, slot: int = 0) -> Arrays:
    raw = session.execute(session.stage(inputs(value), slot))
    session.synchronize()
    return session.fetch(raw)


def test_one_call_is_copy_run_wait_copy_wait(gpu: FakeCuda, trt: FakeTensorRt):
    outputs = call(session_on(trt), 3)
    assert gpu.calls == ["upload", "execute", "synchronize", "download", "synchronize"]
    np.testing.assert_array_equal(outputs["y"], 6)


def test_each_slot_has_its_own_context_and_addresses_for_good(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    for value in (1.0, 2.0):
        for slot in range(3):
            np.testing.assert_array_equal(call(session, value + slot, slot)["y"], 2 * (value + slot))
    assert len(trt.contexts) == 3
    assert len({address for context in trt.contexts for address in context.addresses.values()}) == 6
    assert gpu.open.count("host") == 6, "nothing is allocated by a call"
    assert gpu.open.count("device") == 7, "one more for what lies between the layers"


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt_rtx"])
def test_contexts_work_in_one_block_of_memory(name: str, gpu: FakeCuda, trt: FakeTensorRt):
    trt.__name__ = name
    session = session_on(trt)
    for slot in range(3):
        call(session, 1.0, slot)
    assert len({context.lent for context in trt.contexts}) == 1
    assert trt.contexts[0].lent is not None
    assert trt.contexts[0].lent[1] == ACTIVATION_BYTES


def test_an_engine_that_needs_no_memory_is_lent_none(trt: FakeTensorRt, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake_gpu, "ACTIVATION_BYTES", 0)
    session = session_on(trt)
    session.stage(inputs(1), 0)
    assert trt.contexts[0].lent is None


@in_both_ways
def test_staged_slots_keep_their_inputs(copies: str, trt: FakeTensorRt):
    session = session_on(trt, copies=copies)
    handles = [session.stage(inputs(value), slot) for slot, value in enumerate((1, 2, 3))]
    results = [session.fetch(session.execute(handle))["y"][0] for handle in reversed(handles)]
    assert results == [6, 4, 2]


@in_both_ways
def test_staging_again_before_the_first_copy_is_done_waits_for_it(copies: str, trt: FakeTensorRt):
    session = session_on(trt, copies=copies)
    first = session.execute(session.stage(inputs(1), 0))
    session.stage(inputs(7), 1)
    again = session.stage(inputs(9), 0)
    np.testing.assert_array_equal(session.fetch(first)["y"], 2)
    np.testing.assert_array_equal(session.fetch(session.execute(again))["y"], 18)


@in_both_ways
def test_what_was_fetched_survives_and_the_caller_s_array_may_change(copies: str, trt: FakeTensorRt):
    session = session_on(trt, copies=copies)
    mine = inputs(1)
    handle = session.stage(mine, 0)
    mine["x"][:] = 50
    kept = session.fetch(session.execute(handle))
    call(session, 9)
    np.testing.assert_array_equal(kept["y"], 2)


def test_rtx_captures_by_its_own_strategy_and_is_asked_whether_it_can(
    gpu: FakeCuda, trt: FakeTensorRt, monkeypatch: pytest.MonkeyPatch
):
    session = session_on(trt, graph=True)
    np.testing.assert_array_equal(call(session, 3)["y"], 6)
    assert trt.contexts[0].config.cuda_graph_strategy == "whole"
    assert gpu.calls == ["upload", "execute", "synchronize", "download", "synchronize"], "no capture of ours"
    assert not hasattr(plain_context(trt).config, "cuda_graph_strategy")
    monkeypatch.setattr(fake_gpu.FakeContext, "capturable", False)
    with pytest.raises(SkippedArm, match="tensorrt_rtx can't capture this engine as a CUDA graph"):
        session.stage(inputs(1), 1)


def plain_context(trt: FakeTensorRt) -> Any:
    session_on(trt).stage(inputs(1), 0)
    return trt.contexts[-1]


@pytest.mark.parametrize("tells", [True, False])
def test_the_full_tensorrt_is_asked_where_its_version_tells(tells: bool, trt: FakeTensorRt, monkeypatch: Any):
    trt.__name__ = "tensorrt"
    monkeypatch.setattr(fake_gpu.FakeContext, "capturable", False)
    if tells:
        with pytest.raises(SkippedArm, match="tensorrt can't capture this engine"):
            session_on(trt, graph=True).stage(inputs(1), 0)
        return
    monkeypatch.delattr(fake_gpu.FakeContext, "is_stream_capturable")
    np.testing.assert_array_equal(call(session_on(trt, graph=True), 3)["y"], 6)


def test_a_graph_is_captured_once_per_slot_and_then_replayed(gpu: FakeCuda, trt: FakeTensorRt):
    trt.__name__ = "tensorrt"
    session = session_on(trt, graph=True)
    session.stage(inputs(0), 0)
    assert gpu.calls == ["upload", "execute", "synchronize", "capture", "execute"], "one plain run comes first"
    for value in (1, 2, 3):
        np.testing.assert_array_equal(call(session, value)["y"], 2 * value)
    assert gpu.calls.count("capture") == 1
    assert gpu.calls.count("execute") == 2, "a replay asks TensorRT nothing"
    assert gpu.calls.count("launch") == 3
    np.testing.assert_array_equal(call(session, 5, slot=1)["y"], 10)
    assert gpu.calls.count("capture") == 2


def test_close_frees_everything_newest_first_and_twice_is_harmless(gpu: FakeCuda, trt: FakeTensorRt):
    trt.__name__ = "tensorrt"
    session = session_on(trt, graph=True)
    handle = session.stage(inputs(1), 0)
    session.gpu.event_ns(handle, 1)
    session.gpu.evict()
    session.execute(handle)
    session.close()
    session.close()
    assert gpu.open == []
    assert gpu.freed == gpu.opened[::-1]
    assert handle.context is None, "a handle that the caller keeps holds no context"


def test_the_account_is_the_inspector_s(trt: FakeTensorRt):
    executed = session_on(trt).executed
    assert executed.compute_nodes_by_precision == {"fp16": 1}
    assert executed.flops_by_precision == {"fp16": 32.0}
    assert executed.conversion_nodes == 1
    assert (executed.library, executed.version, executed.threads) == ("tensorrt_rtx", "0.0", None)
    assert executed.device == "cuda:0 (Fake RTX)"
    assert executed.artifact_bytes == len(b"engine")


def test_rtx_compiles_for_the_shapes_at_once_and_its_kernels_are_kept(trt: FakeTensorRt):
    session = session_on(trt, kernels=b"from the build")
    call(session, 1)
    call(session, 1, slot=1)
    assert trt.kernels == [b"from the build"], "read once, shared by the contexts"
    assert {context.config.dynamic_shapes_kernel_specialization_strategy for context in trt.contexts} == {"eager"}
    assert session.kernels() == b"compiled"


def test_the_full_tensorrt_has_no_kernels_to_keep(trt: FakeTensorRt):
    trt.__name__ = "tensorrt"
    session = session_on(trt)
    call(session, 1)
    assert trt.contexts[0].config is None
    assert session.kernels() == b""


def test_a_run_that_tensorrt_refuses_is_an_error_in_its_words(trt: FakeTensorRt):
    session = session_on(trt, log=("no memory for layer 3",))
    handle = session.stage(inputs(1), 0)
    trt.contexts[0].works = False
    with pytest.raises(RuntimeError, match="could not run: no memory for layer 3"):
        session.execute(handle)


def test_a_kernel_that_fails_is_an_error_in_cuda_s_words(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    session.execute(session.stage(inputs(1), 0))
    gpu.fails_with = FAILED
    with pytest.raises(RuntimeError, match="illegal memory access"):
        session.synchronize()


def test_an_engine_that_can_t_be_read_or_has_other_tensors_is_refused(gpu: FakeCuda, trt: FakeTensorRt):
    with pytest.raises(RuntimeError, match="can't load the engine here: it is another version's"):
        session_on(trt, plan=b"", log=("it is another version's",))
    with pytest.raises(RuntimeError, match=r"float16.*float32"):
        session_on(FakeTensorRt(gpu, TOLD, np.float16))


def test_wrong_inputs_are_refused_before_anything_is_copied(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    with pytest.raises(ValueError, match="'x'"):
        session.stage({"x": np.zeros(SIZE + 1, np.float32)}, 0)
    assert gpu.calls == []


def test_the_build_keeps_what_one_run_compiled(
    gpu: FakeCuda, trt: FakeTensorRt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On a GPU that TensorRT-RTX knows; the engine itself is compiled elsewhere in these tests."""

    def compile_engine(library: Any, source: Path, plan: Any, folder: Path) -> dict[str, Any]:
        assert plan.current, "built for this GPU"
        (folder / "engine.plan").write_bytes(b"engine")
        NETWORK.save(folder)
        return {"library": library.name}

    library = Library(trt, SimpleNamespace(errors=[], warnings=[]))  # type: ignore[arg-type]
    monkeypatch.setattr(tensorrt_backend, "compile_engine", compile_engine)
    monkeypatch.setattr(tensorrt_backend, "open_library", lambda gpu: library)
    monkeypatch.setattr(tensorrt_backend, "reopen", lambda name: library)
    exported: Any = SimpleNamespace(
        inputs=(X,), outputs=(Y,), path=lambda artifact: tmp_path, input_buffers=lambda: [inputs(1)]
    )
    adapter = tensorrt_backend.TensorRtAdapter()
    target = Target(backend="tensorrt", device=Device.CUDA, precision=Precision.FP32)
    arm = Arm(target=target, model="made", options={"copies": "pageable"})
    built = adapter.build(exported, arm, tmp_path)
    assert isinstance(built, Built)
    assert (tmp_path / "runtime.cache").read_bytes() == b"compiled"
    assert built.facts["gpu"] == "Fake RTX (SM89)"
    assert gpu.open == [], "the build's own session is closed"
    session = adapter.load(built)
    assert session.gpu.copies == "pageable"
    np.testing.assert_array_equal(call(session, 4)["y"], 8)
    assert trt.kernels == [b"compiled"], "a load starts from them"


def test_the_gpu_s_compute_capability_is_asked_of_cuda(gpu: FakeCuda):
    assert cuda_memory.capability() == "SM89"


def test_a_page_locked_twin_is_not_written_while_a_copy_may_read_it(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    session.stage(inputs(1), 0)
    session.stage(inputs(2), 0)
    assert gpu.calls == ["upload", "synchronize", "upload"]


def test_pageable_copies_are_waited_for_and_take_no_memory_of_the_host(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt, copies="pageable")
    first = call(session, 3)
    assert gpu.calls == ["upload", "synchronize", "execute", "synchronize", "download", "synchronize"]
    assert "host" not in gpu.opened
    second = call(session, 4)
    assert not np.shares_memory(first["y"], second["y"])


@in_both_ways
def test_an_array_with_gaps_is_staged_as_it_reads(copies: str, trt: FakeTensorRt):
    session = session_on(trt, copies=copies)
    handle = session.stage({"x": np.arange(2 * SIZE, dtype=np.float32)[::2]}, 0)
    np.testing.assert_array_equal(session.fetch(session.execute(handle))["y"], [0, 4, 8, 12])


def test_copies_are_page_locked_by_default_and_told(trt: FakeTensorRt):
    assert session_on(trt).gpu.copies == "pinned"
    assert session_on(trt, copies="pageable").gpu.copies == "pageable"


def test_a_captured_slot_takes_no_other_shape(gpu: FakeCuda, trt: FakeTensorRt):
    trt.__name__ = "tensorrt"
    session = session_on(trt, graph=True)
    call(session, 1)
    before = list(gpu.calls)
    with pytest.raises(ValueError, match=rf"'x': expected float32\[{SIZE}\], got float32\[{SIZE + 1}\]"):
        session.stage({"x": np.zeros(SIZE + 1, np.float32)}, 0)
    assert gpu.calls == before
    np.testing.assert_array_equal(call(session, 2)["y"], 4)


@pytest.mark.parametrize(("graph", "run"), [(False, "execute"), (True, "launch")])
def test_events_stand_around_each_call_on_its_stream(graph: bool, run: str, gpu: FakeCuda, trt: FakeTensorRt):
    trt.__name__ = "tensorrt"
    session = session_on(trt, graph=graph)
    handle = session.stage(inputs(1), 0)
    del gpu.calls[:]
    assert session.gpu.event_ns(handle, 3) == [1e6] * 3, "the run alone, and not the copy before it"
    assert gpu.calls == ["synchronize", *["record", run, "record", "synchronize"] * 3]
    session.gpu.event_ns(handle, 2)
    assert gpu.opened.count("event") == 2


@in_both_ways
def test_memory_is_tensors_weights_and_what_the_contexts_share(copies: str, trt: FakeTensorRt):
    session = session_on(trt, copies=copies)
    assert session.gpu.allocator() == (WEIGHT_BYTES, WEIGHT_BYTES)
    for slot in (0, 1, 0):
        call(session, 1, slot)
    held = WEIGHT_BYTES + ACTIVATION_BYTES + 2 * 2 * 4 * SIZE
    session.gpu.evict()
    assert session.gpu.allocator() == (held, held), "the harness's own scratch is not the model's"


def test_a_tensorrt_that_doesn_t_tell_of_weights_is_taken_at_its_word(trt: FakeTensorRt, monkeypatch: Any):
    monkeypatch.delattr(FakeTensorRt, "EngineStat")
    assert session_on(trt).gpu.allocator() == (0, 0)


def test_evicting_writes_twice_the_cache_and_is_waited_for(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    session.gpu.evict()
    [scratch] = gpu.memory.values()
    assert len(scratch) == 2 * L2_BYTES
    assert any(scratch.raw), "only queued"
    session.synchronize()
    assert not any(scratch.raw)
    session.gpu.evict()
    assert gpu.calls == ["memset", "synchronize", "memset"]
    assert gpu.opened.count("device") == 1


def test_a_full_device_is_named_with_what_was_asked_for(gpu: FakeCuda, trt: FakeTensorRt):
    session = session_on(trt)
    gpu.full = True
    with pytest.raises(RuntimeError, match=r"cudaMalloc failed: out of memory, allocating 16 bytes"):
        session.stage(inputs(1), 0)
    session.close()
    assert gpu.open == []
