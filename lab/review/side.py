"""One adapter's sessions, of whichever checkout `shootout` is imported from: built once, timed block by block.

Run as a script: `side.py build JOB PARENT` writes what it built beside the job, `side.py serve JOB PARENT` loads that
and answers one JSON command a line. It uses nothing that an earlier checkout lacks, and `loop` of `plain.py` for its
times.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shootout import backends, models
from shootout.backends.adapter import Built
from shootout.build.builder import Workshop
from shootout.clock import quiet_collector
from shootout.contract import Arm
from shootout.errors import ShootoutError
from shootout.export.client import Request, obtain
from shootout.host import environment
from shootout.host.child import leave_with
from shootout.host.placement import place
from shootout.host.store import cache_folder
from shootout.study.points import describe
from shootout.study.target import parse_targets
from shootout.worker.blocks import bracketed

WARM_UP_CALLS, BLOCK_NS, BLOCK_CALLS = 100, 10_000_000, 3
WARM_UP_NS = 500_000_000


def build(job: Path) -> None:
    """Each of the job's models for its target, or why it can't be."""
    told = json.loads(job.read_text())
    placement = place(None)
    found: dict[str, tuple[Built | None, str]] = {}
    workshop = Workshop(
        cache=cache_folder(),
        placement=placement,
        probes={},
        machine=environment.fingerprint(environment.facts()),
        logs=job.parent / "logs",
    )
    target = parse_targets(told["target"], describe)[0]
    for name, one in told["models"].items():
        complete = models.get(one["model"]).check(one["parameters"])
        arm = Arm(
            target=target,
            model=one["model"],
            parameters=complete,
            batch=one["batch"],
            threads=placement.threads,
        )
        try:
            exported = obtain(Request(model=arm.model, parameters=complete, batch=arm.batch))
            prepared = workshop.prepare(arm, exported, environment.libraries().get(target.backend, ""))
            found[name] = (prepared.built, "")
        except (ShootoutError, RuntimeError) as fault:
            found[name] = (None, str(fault))
    _stored(job).write_bytes(pickle.dumps(found))


def serve(job: Path) -> None:
    """Load and warm up, tell what can't be raced and what the others say of the first input; then answer blocks."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    sys.path.append(str(Path(__file__).parents[1] / "parity"))
    from plain import loop  # type: ignore[import-not-found] # no package there

    built: dict[str, tuple[Built | None, str]] = pickle.loads(_stored(job).read_bytes())
    calls: dict[str, tuple[dict[str, Callable[[int], Any]], int]] = {}
    missing: dict[str, str] = {}
    outputs: dict[str, Any] = {}
    for name, (one, why) in built.items():
        if one is None:
            missing[name] = why
            continue
        buffers = one.exported.input_buffers()
        brackets = bracketed(backends.get(one.arm.target.backend).load(one), buffers)
        calls[name] = ({scope.value: call for scope, call in brackets.items()}, len(buffers))
        outputs[name] = {key: array.astype("float32") for key, array in calls[name][0]["end_to_end"](0).items()}
    _outputs(job).write_bytes(pickle.dumps(outputs))
    warm = {
        (name, scope): statistics.median(loop(call, count, _few(call, loop)))
        for name, (scopes, count) in calls.items()
        for scope, call in scopes.items()
    }
    quiet_collector()
    print(json.dumps(missing), file=answers, flush=True)
    for line in sys.stdin:
        name, scope = json.loads(line)
        scopes, count = calls[name]
        readings = loop(scopes[scope], count, max(BLOCK_CALLS, int(BLOCK_NS / warm[name, scope]) + 1))
        print(statistics.median(readings), file=answers, flush=True)


def _few(call: Callable[[int], Any], loop: Callable[..., list[int]]) -> int:
    """How many calls warm up: fewer where one takes long."""
    return max(BLOCK_CALLS, min(WARM_UP_CALLS, int(WARM_UP_NS / min(loop(call, 1, 2)))))


def _stored(job: Path) -> Path:
    return job.with_suffix(".built")


def _outputs(job: Path) -> Path:
    return job.with_suffix(".outputs")


if __name__ == "__main__":
    leave_with(int(sys.argv[3]))
    {"build": build, "serve": serve}[sys.argv[1]](Path(sys.argv[2]))
