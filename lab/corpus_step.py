"""Do one step of a net of the corpus in this process, which imports no more than the step needs; see `corpus_steps`."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

NEEDS = ("fp32",)
LOADS = {"onnxruntime": "file", "openvino": "file", "torch-eager": "module"}
"""Backends, and which export each is built from."""
SPARED = "spared"
"""The file with the CPU seconds of a step that a run's own process doesn't spend."""
CALLS = 3
"""A loaded arm's first call, and those that verify it on the fewest input sets."""


def _export(file: str, work: Path, *, module: bool) -> None:
    from shootout.core.exported.request import Request, checked
    from shootout.models.onnx import onnx_graph
    from shootout.models.onnx.effort import Effort
    from shootout.models.sources import user_onnx

    asked, folder = checked(Request(model=file, needs=NEEDS, module=module)), work / ("module" if module else "file")
    assert isinstance(asked, Request), asked
    folder.mkdir(parents=True)
    placed = replace(asked, folder=folder, base=asked.base and replace(asked.base, folder=work / "file"))
    if module:
        made = user_onnx.take_module(placed, Effort())
    else:
        made = user_onnx.take(placed, Effort(needs=NEEDS, leading=NEEDS))
        made = replace(made, work=onnx_graph.count(folder / "model.onnx"))
    made.seal()


def _build_or_load(step: str, backend: str, work: Path) -> None:
    from shootout.core import backends
    from shootout.core.adapter import Built
    from shootout.core.contract import Arm
    from shootout.core.exported.model import open_exported
    from shootout.core.host.placement import place
    from shootout.core.study.points import describe
    from shootout.core.study.target import parse_targets
    from shootout.core.worker.verification import call_once

    os.sched_setaffinity(0, place(1).arms)
    exported, folder = open_exported(work / LOADS[backend]), work / backend
    arm = Arm(target=parse_targets(backend, describe)[0], model=exported.model, threads=1)
    if step == "build":
        folder.mkdir()
        built = backends.get(backend).build(exported, arm, folder)
        (folder / "facts").write_bytes(pickle.dumps(dict(built.facts)))
        return
    for name in backends.entry(backend).shared:  # an arm is forked from a process that has them
        import_module(name)
    (work / SPARED).write_text(str(sum(os.times()[:2])))
    facts = pickle.loads((folder / "facts").read_bytes())
    session = backends.get(backend).load(Built(arm=arm, exported=exported, folder=folder, facts=facts))
    for inputs in (exported.input_buffers()[:2] * CALLS)[:CALLS]:
        call_once(session, inputs)


if __name__ == "__main__":
    step, _, backend = sys.argv[1].partition(" ")
    if backend:
        _build_or_load(step, backend, Path(sys.argv[3]))
    else:
        _export(sys.argv[2], Path(sys.argv[3]), module=step == "module")
    sys.stdout.flush()
    os._exit(0)
