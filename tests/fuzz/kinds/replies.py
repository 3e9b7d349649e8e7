"""What adapters say of what they are, built and ran: as their process sends it, and once that is read."""

from __future__ import annotations

import copyreg
import io
import json
import pickle
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shootout import contract, messages
from shootout.backends import get, reported
from shootout.commands import trace
from shootout.contract import Arm, Device, NotRun, NotRunKind, Target
from shootout.errors import ArmFailed, ArmOut
from shootout.host.placement import ProcessBounds, place
from shootout.host.store import sealed
from shootout.journal import samples
from shootout.messages import Scope
from shootout.race.live import ArmProcess, Launcher
from shootout.race.restart import warm_up
from shootout.worker.process import WorkerProcess
from tests.fuzz.edits import as_json, edited_bytes, edited_values
from tests.support.races.made import EXACT, EXECUTED

SENT = b"P"
"""Before what goes through a process's pipe; else it is JSON."""
EVENTS = [{"ph": "X", "name": "gemm", "ts": 1.0, "dur": 2.0, "args": {"x": 1}}]
STEPS = tuple(("stage", 1, 2) for _ in range(3))
ANSWERS: dict[str, Any] = {
    "load": messages.Loaded(
        load_s=1.0,
        first_call_s=0.1,
        rss_before_bytes=1,
        rss_after_bytes=2,
        gpu=messages.GpuCost(context_s=0.1, context_bytes=1, loaded_bytes=None),
    ),
    "verify": messages.Verified(executed=EXECUTED, fidelity=EXACT, fault=None),
    "warm": messages.Warming(latency_ns=np.full(90, 2e9)),
    "tune": messages.Tuned(per_reading=dict.fromkeys(Scope, 1), call_ns=dict.fromkeys(Scope, 1e6)),
    "turn": messages.Turn(latency_ns={Scope.COMPUTE: np.ones(3)}, gpu=messages.GpuState(throttled=("hot",))),
    "bounds": ProcessBounds(cpus=frozenset({1}), os_threads=2, variables={"OMP_NUM_THREADS": "1"}),
    "on_gpu": messages.OnGpu(
        stage_ns=1.0,
        compute_ns=2.0,
        fetch_ns=3.0,
        energy=messages.Energy(calls=1, seconds=1.0, total_mj=2.0, idle_w=3.0),
    ),
    "look": messages.Looked(steps=(STEPS,) * trace.CALLS, events=tuple(EVENTS)),
    "build": ({"artifact_bytes": 9, "compute_nodes_by_precision": {"fp32": 3}, "notes": ["a", "b"]}, 0.5),
    "memory": 5,
    "recheck": "",
}
"""One for each command that gives something, or nearly."""
MADE = {one.__name__: one for place in (messages, contract) for one in vars(place).values() if is_dataclass(one)}
MADE["Bounds"] = ProcessBounds


@cache
def _said() -> tuple[dict[str, Any], ...]:
    capabilities = get("numpy").capabilities
    told = {one.name: getattr(capabilities, one.name) for one in fields(capabilities)}
    told["rest"] = [[list(key), value] for key, value in told["rest"].items()]
    plain = [{"facts": ANSWERS["build"][0]}, {"events": EVENTS}, {"amounts": [1.0, 2.0]}, {"capabilities": told}]
    answers = [{command: _opened(answer)} for command, answer in ANSWERS.items()]
    why = _opened(NotRun(NotRunKind.BROKEN, "why")), _opened(messages.Fault(kind="Error", message="broke"))
    return tuple(
        json.loads(json.dumps(one, default=_plain)) for one in (*plain, *answers, *({"load": one} for one in why))
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, set | frozenset | tuple) else asdict(value)


def _opened(value: Any) -> Any:
    """A message as JSON, its records and arrays marked."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"of": type(value).__name__, **{one.name: _opened(getattr(value, one.name)) for one in fields(value)}}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, dict):
        return {str(key): _opened(one) for key, one in value.items()}
    return {"tuple": [_opened(one) for one in value]} if isinstance(value, tuple | frozenset) else value


def _closed(value: Any) -> Any:
    """The message again, as a hostile process can make it: with other fields, or without."""
    if isinstance(value, list):
        return [_closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"array": list(numbers)}:
            return np.array(numbers) if all(isinstance(one, float) for one in numbers) else np.array(numbers, object)
        case {"tuple": list(parts)}:
            return tuple(_closed(one) for one in parts)
        case {"of": str(name)} if name in MADE:
            made = object.__new__(MADE[name])
            for one in fields(made):
                if one.name in value:
                    object.__setattr__(made, one.name, _closed(value[one.name]))
            return made
    return {key: _closed(one) for key, one in value.items()}


class _Pickler(pickle.Pickler):
    """Writes a record that lacks fields, as far as it has them."""

    def reducer_override(self, value: Any) -> Any:
        if not is_dataclass(value) or isinstance(value, type):
            return NotImplemented
        state = takewhile(lambda name: hasattr(value, name), (one.name for one in fields(value)))
        return copyreg.__newobj__, (type(value),), [getattr(value, name) for name in state]  # type: ignore[attr-defined]


def _sent(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def inputs() -> SearchStrategy[bytes]:
    sent = (*ANSWERS.values(), NotRun(NotRunKind.BROKEN, "why"), (Device.CPU, {"of": [1]}), *_said())
    messages_of = [_sent(one) for one in sent]
    return st.one_of(
        edited_values(_said()).map(as_json),
        edited_values(_said()).map(as_json),
        edited_bytes(messages_of).map(lambda message: SENT + message),
    )


def read(data: bytes, folder: Path) -> None:
    """As the parent takes it."""
    if data.startswith(SENT):
        try:
            messages.read(data.removeprefix(SENT))
        except Exception as error:  # of any kind, as where it is asked: what a message breaks is its sender's row
            raise ArmFailed(str(error)) from None
        return
    for what, said in json.loads(data).items():
        try:
            _check(what, said, folder)
        except ArmOut as error:
            raise ArmFailed(error.why.reason) from None
        except (TypeError, ValueError) as error:
            if what != "events":  # of which these are said to come
                raise
            raise ArmFailed(str(error)) from None


def _check(what: str, said: Any, folder: Path) -> None:
    match what, said:
        case "facts", dict():
            reported.facts(said)
        case "events", list():
            reported.events(said)
        case "amounts", list():
            reported.amounts(said)
        case "capabilities", dict():
            reported.capabilities(said)
        case command, _ if command in ANSWERS:
            _use(command, _process(_closed(said)), folder)


def _process(answer: Any) -> WorkerProcess:
    """The parent's end of a worker that gives this answer."""
    process = object.__new__(WorkerProcess)
    process._interpreter = None
    pipe: Any = SimpleNamespace(send=id, poll=lambda _: True, recv_bytes=lambda: _sent(answer))
    process._pipe = pipe
    return process


def _use(command: str, process: WorkerProcess, folder: Path) -> None:
    """What the parent does with an answer to this command."""
    arm = Arm(target=Target(backend="numpy", device=Device.CUDA if command == "on_gpu" else Device.CPU), model="m")
    stage = Launcher(built={}, placement=place(1), logs=folder)
    built: Any = SimpleNamespace(arm=arm, exported=SimpleNamespace(report_calls=0))
    player = ArmProcess(process, built, stage, first=True)
    kept: Any = None
    match command:
        case "warm":
            kept = asdict(warm_up(player))
        case "turn":
            samples.write(folder, "samples/a.parquet", [("a", [player.turn((Scope.COMPUTE,))])])
        case "look":
            looked = reported.profile(process.ask("look", 1.0), trace.CALLS)
            kept = [trace._steps_text(looked), trace._profile_text(looked), trace._drawn(looked)]
        case "build":
            facts, build_s = process.ask("build", 1.0)
            sealed({"facts": dict(reported.facts(facts)), "build_s": build_s})
        case "memory":
            kept = player.peak_memory()
        case "bounds":
            kept = player.placed().cpus
        case _:
            found = getattr(player, command)()
            kept = found and asdict(found)
    json.dumps(kept, default=str, allow_nan=False).encode()
