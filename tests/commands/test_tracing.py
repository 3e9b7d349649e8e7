"""Where the time of a call goes: what events add up to, and what each backend's own profiler tells."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.console import deaf_here, environment, spin_study
from support.exports import obtain
from support.sessions import EchoSession

from shootout.apps import trace
from shootout.apps import trace as trace_events
from shootout.apps.trace import PROFILED, Looked, read_profile
from shootout.backends._jax.account import profile_calls
from shootout.core import clock
from shootout.core.adapter import Built, Event
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Target
from shootout.core.errors import ArmFailed
from shootout.core.exported.model import ExportedModel
from shootout.core.host.placement import allowed_cpus, place
from shootout.core.worker.process import WorkerProcess

STEPS = ["stage", "execute", "synchronize", "fetch"]
PRODUCTS = {
    "torch-eager": "aten::mm",
    "torchscript": "aten::mm",
    "torch-compile": "aten::mm",
    "jax-jit": "fusion",
    "onnxruntime": "Gemm",
}
LAYERS = 4


def span(name: str, ts: float, dur: float, tid: int = 0) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": ts, "dur": dur, "pid": 0, "tid": tid}


def test_a_file_has_one_process_a_track_and_numbers_for_threads():
    tracks = {"steps": [span("a", 5, 2)], "profiler": [{**span("b", 900, 4), "pid": "x", "tid": "y"}]}
    found = trace_events.document("arm", tracks)["traceEvents"]
    assert [event["args"]["name"] for event in found if event["ph"] == "M"] == ["arm: steps", "arm: profiler"]
    assert [(e["name"], e["ts"], e["pid"], e["tid"]) for e in found if e["ph"] == "X"] == [
        ("a", 0, 0, 0),
        ("b", 2, 1, 0),
    ]


@pytest.fixture(scope="module")
def exported() -> ExportedModel:
    return obtain("residual_mlp", {"d_model": 64, "n_layers": LAYERS}, 2)


# One process for both: importing torch is most of the work. The others show products by the same code.
TORCH = pytest.param(("torch-eager", "torchscript"), marks=pytest.mark.long)
COMPILED = pytest.param(("torch-compile",), marks=pytest.mark.slow)  # compiles for half a minute
OTHERS = [(name,) for name in PRODUCTS if not name.startswith("torch")]


@pytest.mark.parametrize("backends", [TORCH, COMPILED, *OTHERS], ids="+".join)
def test_every_backend_shows_its_products(backends: tuple[str, ...], exported: ExportedModel, tmp_path: Path):
    place = frozenset(allowed_cpus()[:1])
    with WorkerProcess(environment(), place, tmp_path / "log") as process:
        for backend in backends:
            arm = Arm(target=Target(backend=backend), model=exported.model, parameters=exported.parameters, batch=2)
            (tmp_path / backend).mkdir()
            facts, _ = process.ask("build", 300, exported=exported, arm=arm, folder=tmp_path / backend)
            built = Built(arm=arm, exported=exported, folder=tmp_path / backend, facts=facts)
            process.ask("load", 300, built=built)
            asked = {"function": "shootout.apps.trace:read_profile", "arguments": {"calls": 3}}
            looked: Looked = process.ask("measure", 300, **asked, is_loaded=True)
            process.ask("close", 300)
            assert [[name for name, _, _ in steps] for steps in looked.steps] == [STEPS] * 3
            assert looked.fault == ""
            products = [event for event in trace_events.spans(looked.events) if PRODUCTS[backend] in event["name"]]
            assert len(products) >= LAYERS


def test_jax_tells_of_the_calls_asked_for_and_no_other():
    jax = pytest.importorskip("jax")
    product, ones = jax.jit(lambda x: x @ x), np.ones((8, 8), np.float32)
    found = profile_calls(lambda: product(ones).block_until_ready(), 3)
    names = [event["name"] for event in trace_events.spans(found)]
    assert sum(name.endswith("ExecuteHelperOnSingleDevice") for name in names) == 3


class Profiled(EchoSession):
    def __init__(self) -> None:
        self.calls: list[int] = []

    def profile(self, call: Any, calls: int) -> list[Event]:
        self.calls.append(calls)
        call()
        raise RuntimeError("no counters here")


def test_a_profiler_that_breaks_leaves_the_steps():
    session: Any = Profiled()
    looked = read_profile(session, [{}], 2)
    assert (len(looked.steps), looked.events, looked.fault) == (2, (), "RuntimeError: no counters here")
    assert session.calls == [PROFILED]


def test_a_run_writes_a_trace_for_each_arm(tmp_path: Path):
    study = spin_study(tmp_path, restarts=1)
    ended = deaf_here("run", study, "--out", "out", "--trace", "--json", cwd=tmp_path)
    assert ended.code == 0
    folder = tmp_path / "out" / "traces"
    assert sorted(path.name for path in folder.iterdir()) == ["g0-spin-cpu-fp32.json"]
    assert json.loads((folder / "g0-spin-cpu-fp32.json").read_text())["traceEvents"]


def test_no_trace_goes_on_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[float] = []
    told: list[str] = []

    def ask(command: str, *limits_s: float, **_: Any) -> None:
        asked.append(min(limits_s))
        limit.seconds = -1.0  # over by now
        raise ArmFailed("hung")

    monkeypatch.setattr(trace, "WorkerProcess", lambda *_: nullcontext(SimpleNamespace(ask=ask)))
    arms = [Arm(target=Target(backend=name), model="m") for name in ("numpy", "jax-jit")]
    groups: Any = {"g": {arm.label: SimpleNamespace(arm=arm) for arm in arms}}
    progress: Any = SimpleNamespace(stage=lambda _: None, say=told.append)
    monkeypatch.setattr(clock, "now_ns", lambda: 0)
    limit = Deadline(9.0)
    trace.trace_arms(groups, place(None), tmp_path, {}, progress, limit)
    assert asked == [9.0]
    assert told == [
        "g, numpy:cpu:fp32: no trace: --max-time was over",
        "--max-time left no time to trace jax-jit:cpu:fp32 and those after it",
    ]
