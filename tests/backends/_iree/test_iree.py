"""IREE: what its compiler tells of a module is what a call computes, in each precision and with its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shootout.backends._iree import account
from shootout.core import backends
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import OURS, call, exported_models
from shootout.testing.fresh import run_fresh

IMAGES = Request(model="digits_cnn", parameters={"channels": 32, "n_blocks": 3}, batch=2)
SINE = Request(model="nested_sin", parameters={"elements": 1 << 16, "depth": 4}, batch=1)
FP32 = Target(backend="iree")


@dataclass(frozen=True)
class Ran:
    """What one arm did.

    Attributes:
        is_read_in_place: whether no input was copied.
        is_handed_out: whether no output was.
        follows: whether other inputs are read where they lie, too.
    """

    executed: Executed
    error: float | None
    is_read_in_place: bool
    is_handed_out: bool
    follows: bool


def run_one(exported: ExportedModel, arm: Arm) -> Ran:
    adapter, buffers = backends.get("iree"), exported.input_buffers()
    with TemporaryDirectory() as folder:
        session = adapter.load(adapter.build(exported, arm, Path(folder)))
        outputs = [dict(call(session, inputs, slot)) for slot, inputs in enumerate(buffers)]
        again = [dict(call(session, inputs, 0)) for inputs in buffers]
        error = fidelity.compare([*outputs, *again], exported.reference_outputs() * 2).relative_l2
        first = session.stage(buffers[0], 0)
        given = session.fetch(session.execute(first))
        found = Ran(
            executed=session.executed,
            error=error,
            is_read_in_place=bool(first.kept) and not first.memory,
            is_handed_out=not any(array.flags.owndata for array in given.values()),
            follows=all(session.stage(buffers[1], 0).kept[name] is buffers[1][name] for name in first.kept),
        )
        session.close()
        return found


IMAGE, TILED = "images", "images in bf16, tiled"
ARMS: dict[str, tuple[Request, Target, int, dict[str, str]]] = {
    IMAGE: (IMAGES, FP32, 1, {}),
    TILED: (
        IMAGES,
        replace(FP32, precision=Precision.BF16),
        1,
        {"opt-data-tiling": "1", "opt-level": "O3"},
    ),
    "sine": (SINE, FP32, 2, {"task_worker_spin_us": "10"}),
}


def run_all(work: list[tuple[ExportedModel, Arm]]) -> list[Ran]:
    return [run_one(exported, arm) for exported, arm in work]


@cache
def ran(*names: str) -> dict[str, Ran]:
    asked = [ARMS[name] for name in names]
    exported = exported_models(*(request for request, *_ in asked))
    work = [
        (exported, Arm(target=target, model=exported.model, batch=exported.batch, threads=threads, options=options))
        for exported, (_, target, threads, options) in zip(exported, asked, strict=True)
    ]
    found: list[Ran] = run_fresh(run_all, work, warm=OURS)
    return dict(zip(names, found, strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("name", "label"), [(IMAGE, "fp32"), (TILED, "bf16")])
def test_convolutions_are_counted_by_the_types_and_loops_of_their_code(name: str, label: str):
    """Pooling has a window and sums, and multiplies nothing; tiled weights are rearranged as the module is loaded."""
    (exported,) = exported_models(IMAGES)
    assert exported.work is not None
    found = ran(IMAGE, TILED)[name]
    assert found.executed.compute_nodes_by_precision == {label: 4}
    assert found.executed.threads in (1, None)
    assert not found.is_read_in_place
    assert not found.is_handed_out
    assert found.error is not None
    assert found.error < exported.error_bounds[label]


def test_a_model_without_weights_reads_large_inputs_and_runs_on_a_pool_of_threads():
    found = ran("sine")["sine"]
    assert found.executed.compute_nodes_by_precision == {}
    assert found.executed.other_nodes_by_precision
    assert (found.executed.device, found.executed.threads) == ("cpu (local-task)", 2)
    assert found.is_read_in_place
    assert found.is_handed_out
    assert found.follows
    assert found.error is not None
    assert found.error < 1e-5


TOLD = """; builtin.module > util.initializer > stream.cmd.execute
"Depth","Command","Symbol","Length","Invocations","Workload","Operands","Resources"
1,"dispatch","@_once::@_once_elementwise",,1,"",0,2

; builtin.module > util.func @"A graph, named$async" > stream.cmd.execute
0,"copy",,256,,,,
0,"dispatch","@"A graph, named$async_0"::@"A graph, named$async_0_matmul_1x2x2"",,1,"",0,3
0,"dispatch","@"A graph, named$async_0"::@"A graph, named$async_0_matmul_1x2x2"",,1,"",0,3

; builtin.module > util.func @"A graph, named$async" > scf.for > stream.cmd.execute
0,"dispatch","@"A graph, named$async_1"::@"A graph, named$async_1_softmax"",,1,"?",1,3
"""


def test_dispatches_are_those_of_a_call_by_any_name_and_a_loop_s_apart(tmp_path: Path):
    (tmp_path / "statistics").write_text(TOLD)
    once, inside = account._count_dispatches(tmp_path / "statistics")
    assert once == {"A graph, named$async_0_matmul_1x2x2": 2}
    assert inside == {"A graph, named$async_1_softmax": 1}
