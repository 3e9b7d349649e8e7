"""Inference mode is entered once by each thread that calls, and left when the session closes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.core import backends
from shootout.core.contract import Target
from shootout.testing.checks import ConformanceCase, case_of, warm_of
from shootout.testing.fresh import run_fresh


def modes_seen(case: ConformanceCase, folder: Path) -> dict[str, Any]:
    """Two sessions, two threads, three calls each: how often the mode was entered, and who is in it when."""
    import torch

    entered: list[bool] = []
    original, held = torch.inference_mode, torch.is_inference_mode_enabled

    class Counted(original):  # type: ignore[misc, valid-type]
        def __enter__(self) -> None:
            entered.append(True)
            super().__enter__()

    adapter, inputs = backends.get(case.arm.target.backend), case.exported.input_buffers()[0]
    built = adapter.build(case.exported, case.arm, folder)
    sessions = [adapter.load(built) for _ in range(2)]
    torch.inference_mode = Counted  # type: ignore[misc]

    def call_all() -> None:
        for session in sessions:
            for _ in range(3):
                session.fetch(session.execute(session.stage(inputs, 0)))

    call_all()
    seen: dict[str, Any] = {"entered here": len(entered), "here": held()}
    with ThreadPoolExecutor(1) as other:
        seen["there before"] = other.submit(held).result()
        other.submit(call_all).result()
        seen["there"] = other.submit(held).result()
    seen["entered"] = len(entered)
    adapter.load(built)
    seen["while another loads"] = held()
    call_all()
    assert sessions[0].executed.compute_nodes_by_precision
    seen["accounted"] = held()
    call_all()
    for session in sessions:
        session.close()
    seen["closed"] = held()
    return seen


@pytest.mark.parametrize("backend", ["torch-eager", "torchscript"])
def test_each_thread_enters_the_mode_once(backend: str, tmp_path: Path):
    target = Target(backend=backend)
    assert run_fresh(modes_seen, case_of(target), tmp_path, warm=warm_of(target)) == {
        "entered here": 1,
        "here": True,
        "there before": False,
        "there": True,
        "entered": 2,
        "while another loads": False,
        "accounted": False,
        "closed": False,
    }


def accounted_in_place() -> list[float]:
    """What is read of inputs that the model writes to, after they were staged in the mode."""
    import torch

    from shootout.backends._torch.session import enter_inference_mode, read_account

    class InPlace:
        def stage(self, *_: object) -> list[torch.Tensor]:
            enter_inference_mode(torch)
            return [torch.ones(2)]

        def execute(self, staged: list[torch.Tensor]) -> torch.Tensor:
            return staged[0] + 1

        def synchronize(self) -> None:
            pass

    written: list[float] = []

    def account(staged: list[torch.Tensor]) -> dict[str, Any]:
        written.extend(staged[0].add_(1).tolist())
        return {"compute_nodes_by_precision": {}}

    session: Any = InPlace()
    exported: Any = SimpleNamespace(input_buffers=lambda: [{}])
    read_account(session, exported, account)
    return written


def test_a_model_that_works_in_place_is_accounted():
    assert run_fresh(accounted_in_place, warm=warm_of(Target(backend="torch-eager"))) == [2.0, 2.0]
