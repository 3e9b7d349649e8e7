"""What an arm takes, from the journal to its row: seconds until it is ready, and memory."""

from __future__ import annotations

from dataclasses import replace

from support.races.made import A, checked, played

from shootout.apps.judge.rows import memory, readiness
from shootout.core.contract import Device
from shootout.core.journal.records import PlayedOnGpu
from shootout.core.messages import GpuCost

ON_GPU = replace(A, target=replace(A.target, device=Device.CUDA))


def on_gpu(context_s: float | None, loaded_bytes: int | None) -> PlayedOnGpu:
    return PlayedOnGpu(cost=GpuCost(context_s=context_s, context_bytes=400, loaded_bytes=loaded_bytes))


def test_ready_is_the_slowest_start_and_tells_of_how_many():
    starts = [played(A, g, 1e6, load_s=load_s, first_call_s=0.5) for g, load_s in enumerate((1.0, 3.0, 1.0, 1.5))]
    assert readiness(starts) == {"load_s": 1.25, "first_call_s": 0.5, "ready_s": 3.5, "starts": 4}
    assert readiness([checked(A)])["starts"] == 1, "it was loaded, and never played"
    assert readiness([]) == {}


def test_the_gpus_context_is_a_part_of_the_start():
    cold = played(ON_GPU, 0, 1e6, load_s=1.0, first_call_s=0.5, gpu=on_gpu(0.25, 1))
    assert readiness([cold])["ready_s"] == 1.75
    untold = played(ON_GPU, 0, 1e6, load_s=1.0, first_call_s=0.5, gpu=on_gpu(None, 1))
    assert readiness([untold])["ready_s"] == 1.5


def test_memory_is_that_of_the_hungriest_restart():
    lines = [played(A, g, 1e6, peak_rss_bytes=peak) for g, peak in enumerate((40, 90, None, 50))]
    found = memory(lines)
    assert (found["memory_bytes"], found["peak_rss_bytes"]) == (90, 90)
    assert memory([played(A, 0, 1e6, peak_rss_bytes=None)])["memory_bytes"] is None


def test_memory_on_a_gpu_is_the_devices():
    lines = [
        played(ON_GPU, g, 1e6, peak_rss_bytes=90_000, gpu=on_gpu(0.1, loaded))
        for g, loaded in enumerate((10, 30, 20, None))
    ]
    assert (memory(lines)["memory_bytes"], memory(lines)["peak_rss_bytes"]) == (430, 90_000)
    untold = played(ON_GPU, 0, 1e6, peak_rss_bytes=90_000, gpu=PlayedOnGpu())
    assert memory([untold])["memory_bytes"] is None, "what the host took says nothing of it"
