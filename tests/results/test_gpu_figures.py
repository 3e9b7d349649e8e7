"""What a GPU told of its arms, from the journal to the document and the table; made by hand, nothing was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from support.races.made import A, ended, header, played, prepared, rounds, write

from shootout.apps.judge.analysis import analyse
from shootout.core.contract import Arm, Device, Target
from shootout.core.journal.records import PlayedOnGpu
from shootout.core.messages import Energy, GpuCost, OnGpu
from shootout.tell import table
from shootout.tell.document import Document, Gpu

G = Arm(target=Target(backend="g", device=Device.CUDA), model="identity")
COST = GpuCost(context_s=0.3, context_bytes=480_000_000, loaded_bytes=31_000_000)
ENERGY = Energy(calls=1_000, seconds=2.0, total_mj=152_500.0, idle_w=75.0)
LOOK = OnGpu(
    stage_ns=9_000.0,
    compute_ns=30_000.0,
    fetch_ns=7_000.0,
    event_ns=21_000.0,
    copies="pinned",
    allocator_held_bytes=20,
    allocator_peak_bytes=40,
)
TOLD = PlayedOnGpu(cost=COST, sm_clock_mhz=1_980, reference_mhz=1_995, on_gpu=LOOK)


def look(**changes: Any) -> PlayedOnGpu:
    return TOLD.model_copy(update={"on_gpu": replace(LOOK, **changes)})


def document(folder: Path, *told: PlayedOnGpu | None, arm: Arm = G) -> Document:
    """A run of A and this arm, a restart for each thing told."""
    copy = replace(A, control=True)
    lines = [
        line
        for index, one in enumerate(told)
        for line in (played(A, index, 1e6), played(arm, index, 5e4, gpu=one), played(copy, index, 1e6), rounds(index))
    ]
    return analyse(write(folder / "run", header((A, arm, copy)), prepared(arm), *lines, ended()))


def gpu_of(found: Document) -> Gpu:
    gpu = found.rows[1].gpu
    assert gpu is not None
    return gpu


def printed(found: Document) -> str:
    console = Console(width=400, record=True, file=open("/dev/null", "w"), highlight=False)  # noqa: PTH123, SIM115
    console.print(table.render(found, 400, full=True))
    return console.export_text()


def lines_of(found: Document) -> list[str]:
    return [line.rstrip() for line in printed(found).splitlines() if line.startswith(G.label) and line.endswith(".")]


def test_figures_are_medians_over_restarts(tmp_path: Path):
    costs = [replace(COST, context_bytes=size, context_s=size / 1e3) for size in (480, 500, 487)]
    restarts = [TOLD.model_copy(update={"cost": cost, "sm_clock_mhz": cost.context_bytes}) for cost in costs]
    unknown = PlayedOnGpu(on_gpu=replace(LOOK, event_ns=None, stage_ns=11_000.0))
    found = gpu_of(document(tmp_path, *restarts, unknown))
    assert (found.context_s, found.context_bytes, found.sm_clock_mhz) == (0.487, 487, 487)
    assert (found.event_ns, found.stage_ns) == (21_000.0, 9_000.0)
    assert found.copies == "pinned"


def test_what_broke_is_told_once(tmp_path: Path):
    broken = look(faults=("events: RuntimeError: no",), event_ns=None)
    found = document(tmp_path, broken, broken)
    assert gpu_of(found).faults == ("events: RuntimeError: no",)
    assert printed(found).count("g:cuda:fp32: the GPU's events: RuntimeError: no.") == 1


def test_a_driver_that_tells_nothing_leaves_nulls(tmp_path: Path):
    bare = OnGpu(stage_ns=9_000.0, compute_ns=30_000.0, fetch_ns=7_000.0, copies="")
    cost = GpuCost(context_s=0.3, context_bytes=None, loaded_bytes=None)
    found = document(tmp_path, PlayedOnGpu(cost=cost, on_gpu=bare))
    told = gpu_of(found).model_dump(exclude_none=True)
    assert told == {
        "context_s": 0.3,
        "stage_ns": 9_000.0,
        "compute_ns": 30_000.0,
        "fetch_ns": 7_000.0,
        "faults": (),
    }
    assert lines_of(found) == ["g:cuda:fp32 on the GPU: computes 30 us, copies in 9 us, out 7 us."]


def test_below_the_table_stands_a_line_for_each_arm_on_a_gpu(tmp_path: Path):
    found = document(tmp_path, look(energy=ENERGY))
    assert lines_of(found) == [
        "g:cuda:fp32 on the GPU: computes 21 us, copies in 9 us, out 7 us, context 480 MB, "
        "loaded 31 MB, 1,980 MHz, 2.5 mJ a call above idle (152 in all, measured)."
    ]
