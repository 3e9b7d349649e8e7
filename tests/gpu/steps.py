"""What the campaign does, most valuable first, and how it shares its time out. Pure, and standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GRACE_S = 20.0
"""A step that is asked to stop has so long to write down what it has."""
RESERVE_S = 30.0
"""Of the whole time so much is kept for the summary and the archive; a tenth of it where that is less."""
LEAST_S = 15.0
"""A step isn't begun with less."""
OVERTIME = 1.5
"""A step that is still at work after so many shares is stopped; what it measured stays, and later ones get theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the campaign: a study to race, or another command.

    Attributes:
        brings: what it tells, for people.
        weight: its part of the time, in relation to the other steps'.
        study: the study to race, "" for another command.
        targets: what to race instead of the study's own targets; the first one is the baseline.
        cpu: of the study's CPU targets, those to race beside its baseline and those of its crossovers with a GPU.
            Never torch.compile's, whose loads take a quarter of a minute each with torch 2.11.
        leave: GPU targets that don't race here, since each would be compiled anew for every size.
        command: of a step without a study: `shootout`, a script or a module, and its words. `{out}` is the campaign's
            folder, `{here}` this one.
    """

    name: str
    brings: str
    weight: float
    study: str = ""
    targets: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


_TWICE = ("torch-eager:cuda:fp32", "torch-eager:cuda:fp32")
_COMPILED, _GRAPHS = "torch-compile:cuda:fp32", "torch-compile+cudagraphs:cuda:fp32"
STEPS = (
    Step(
        name="doctor",
        brings="what works here, and how quiet it is",
        weight=5,
        command=("shootout", "doctor", "--json"),
    ),
    Step(
        name="shootout",
        brings="the toy model on every backend and device",
        weight=20,
        study="shootout",
        cpu=("openvino", "onnxruntime"),
    ),
    Step(
        name="conformance",
        brings="every adapter's promises on CUDA",
        weight=13,
        command=("{here}/conformance.py", "{out}"),
    ),
    Step(
        name="batch-sweep",
        brings="from which batch on the GPU wins",
        weight=16,
        study="batch-sweep",
        leave=(_COMPILED,),
    ),
    Step(
        name="matmul-transfers",
        brings="the same by matrix size, with copies and without",
        weight=9,
        study="matmul-transfers",
        leave=(_COMPILED, _GRAPHS),
    ),
    Step(name="a-a", brings="a GPU arm against itself", weight=4, study="shootout", targets=_TWICE),
    Step(
        name="selftest",
        brings="differences planted on the GPU",
        weight=14,
        command=("shootout", "selftest", "--quick", "--device", "cuda", "--out", "{out}/selftest", "--json"),
    ),
    Step(
        name="linear-precision",
        brings="TF32, BF16, FP16 and INT8 proven and timed",
        weight=9,
        study="linear-precision",
        leave=("torch-compile:cuda:tf32", "torch-compile+cudagraphs:cuda:fp16"),
    ),
    Step(
        name="width-sweep",
        brings="from which width on the GPU wins",
        weight=9,
        study="width-sweep",
        leave=(_COMPILED,),
    ),
    Step(
        name="quantization",
        brings="what FP16 and INT8 cost and buy on the GPU",
        weight=6,
        study="quantization",
        cpu=("torch-eager", "openvino", "onnxruntime"),
        leave=(_COMPILED, "torch-compile:cuda:fp16"),
    ),
    Step(
        name="small-networks",
        brings="are small nets, and their training, too small for it?",
        weight=5,
        study="small-networks",
        cpu=("torch-eager", "numpy", "onnxruntime"),
        leave=(_GRAPHS,),
    ),
    Step(
        name="nested-sin",
        brings="passes over memory, with copies and without",
        weight=5,
        study="nested-sin",
        leave=(_GRAPHS,),
    ),
    Step(
        name="handoff",
        brings="what holding and releasing live contexts costs",
        weight=6,
        command=("lab", "--only", "handoff-gpu", "--json", "{out}/handoff.json"),
    ),
)


def measuring_s(minutes: float) -> float:
    """Seconds of `minutes` that the steps get."""
    return 60.0 * minutes - min(RESERVE_S, 6.0 * minutes)


def shared_s(left_s: float) -> float:
    """What the steps may share of `left_s`: the last one needs its grace before the end."""
    return max(0.0, left_s - GRACE_S)


def share_s(step: Step, waiting: Sequence[Step], left_s: float) -> float:
    """The part of `left_s` that `step` gets.

    Args:
        waiting: all steps that still have to be done, `step` among them.
    """
    return left_s * step.weight / sum(one.weight for one in waiting)


def shares(waiting: Sequence[Step], left_s: float) -> list[tuple[Step, float]]:
    """Each step with the seconds that it gets if none ends early."""
    return [(step, share_s(step, waiting, left_s)) for step in waiting]


def limit_s(share: float, left_s: float) -> float:
    """When to stop a step that has a share of so many seconds: never past the end."""
    return min(OVERTIME * share, left_s)
