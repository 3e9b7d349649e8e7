"""Define a training step so that it can be proven: its inputs, its right outputs, and the error that a gradient may
have.

A step is forward, backward and optimizer (SGD with momentum). It gives the loss, and nothing else, in a timed call. Its
learning rate is an input, and 0 in every input buffer: the optimizer reads and writes all weights and momenta, since no
compiler knows the value, and yet the weights stay what they are, so that any call can be checked.

The gradients are read where every optimizer leaves them: after one step from rest the momentum is the gradient. NumPy
only (workers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from shootout.core.adapter import MOMENTUM, RATE, Session
from shootout.core.contract import Arm, Arrays, Capabilities, Fidelity, NotRun, NotRunKind, Precision, Target
from shootout.core.exported.model import ExportedModel
from shootout.core.messages import Verified
from shootout.core.scenario import Scenario, find_scenario, scenario_names
from shootout.core.units import measured
from shootout.core.worker.blocks import Caller
from shootout.core.worker.verification import Claim

PRECISIONS = (Precision.FP32, Precision.TF32, Precision.BF16)
"""BF16 is mixed: products are rounded to it, weights, gradients and momenta stay in float32."""
MOVE = 0.1
"""The share of their own norm by which the one moving step moves the weights: float32 shows it."""
STEP_TOLERANCE = 1e-2
"""An optimizer that leaves out a term is off by a third at least, float32 by 1e-3 at most."""


class TrainingSession(Session, Protocol):
    """Run a loaded training step: `execute` also changes the weights and the momenta; its output is the loss."""

    def reset(self) -> None:
        """Go back to the weights as they were loaded, and momenta of zero."""

    def state(self) -> tuple[Arrays, Arrays]:
        """Return weights and momenta on the host, by the names in `ExportedModel.trained`; no later `execute` changes
        them.
        """


class TrainStep(Scenario):
    """One training step after the other."""

    name = "train-step"
    measures = "the time of a training step"
    trains = True
    fills_turns = is_one_call = False
    objective = ""
    unshippable = (
        "a training step can't be shipped, since a shipped folder answers calls: race those with --scenario latency"
    )
    unexplainable = "a training step has no layers to compare: explain a run of inference"

    def tell_time(self, row: Any) -> str:
        """Write the time of a step."""
        return f"median {measured(row.end_to_end.median_ns)} a step"

    def find_obstacle(self, arm: Arm, can: Capabilities, count: Callable[[], int | None]) -> NotRun | None:
        """Explain why there is no training step of this model in this target."""
        if not can.trains:
            others = ", ".join(sorted(name for name in scenario_names() if not find_scenario(name).trains))
            return NotRun(NotRunKind.UNSUPPORTED, f"{arm.target.backend} has no {self.name}", f"it offers {others}")
        weights = count()
        if weights is None:
            return NotRun(NotRunKind.UNFIT, "a model of your own has no training step", "use a model that ships")
        if not weights:
            return NotRun(NotRunKind.UNFIT, f"{arm.model} has no weights to train", "use a model that has weights")
        untrained = obstacle(arm.target)
        return NotRun(NotRunKind.UNSUPPORTED, *untrained) if untrained else None

    def verify(self, claim: Claim, caller: Caller, keep: Path | None) -> tuple[Verified, Claim]:
        """Verify losses, gradients, and what the optimizer does."""
        return super().verify(replace(claim, judge=_judge_step), caller, keep)


def _judge_step(found: Fidelity, claim: Claim) -> tuple[Fidelity, str | None]:
    return judged(found, cast("TrainingSession", claim.session), claim.exported, claim.buffers)


def obstacle(target: Target) -> tuple[str, str] | None:
    """Return why this target has no training step, and what to do; None if its backend decides."""
    if target.precision not in PRECISIONS or target.scheme:
        wanted = f"{target.precision}{f'/{target.scheme}' if target.scheme else ''}"
        return f"a training step keeps its weights in float32: there is none in {wanted}", "use fp32 or bf16"
    return None


def judged(
    found: Fidelity, session: TrainingSession, exported: ExportedModel, buffers: Sequence[Arrays]
) -> tuple[Fidelity, str | None]:
    """Add the gradients' error to losses that were compared already; return also what is wrong with the step, or None.

    A ReLU that float32 rounds to the other side of zero changes a gradient by percents, and both are right. It does so
    for one input in many, a wrong gradient is wrong for all: the middle one of the buffers' errors is judged.

    Args:
        found: of the losses.
        session: is left at rest: the weights as loaded, the momenta zero.
        exported: of the training step.
        buffers: its input buffers.
    """
    from shootout.quantize.error_bounds import off, sketch  # reading a run loads scenarios, not this

    at_rest = {name: array for name, array in exported.weights().items() if name in exported.trained}
    errors = []
    for slot, (inputs, wanted) in enumerate(zip(buffers, exported.gradients(), strict=True)):
        session.reset()
        weights, gradients = _state_after(session, inputs, slot)
        if (
            fault := _shape_fault(weights, at_rest)
            or _shape_fault(gradients, at_rest)
            or _moved_at_rest(weights, at_rest)
        ):
            return found, fault
        errors.append(off(sketch(gradients), wanted))
    fault = _step_fault(session, buffers[-1], len(buffers), at_rest, gradients)
    session.reset()
    return _with_gradients(found, errors), fault


def _with_gradients(found: Fidelity, errors: Iterable[float | None]) -> Fidelity:
    known = [np.inf if error is None else error for error in errors]
    middle = float(np.median(known))
    if found.relative_l2 is None or not np.isfinite(middle):
        return replace(found, relative_l2=None)
    return replace(found, relative_l2=max(found.relative_l2, middle), gradient_l2=middle)


def _state_after(session: TrainingSession, inputs: Arrays, slot: int) -> tuple[Arrays, Arrays]:
    session.fetch(session.execute(session.stage(inputs, slot)))
    session.synchronize()
    return session.state()


def _shape_fault(got: Arrays, wanted: Arrays) -> str | None:
    if set(got) != set(wanted):
        return f"the step trains {_name_some(got)}, the model's weights are {_name_some(wanted)}"
    odd = next((name for name, array in wanted.items() if got[name].shape != array.shape), None)
    return f"{odd} should be {list(wanted[odd].shape)}, the step has {list(got[odd].shape)}" if odd else None


def _moved_at_rest(weights: Arrays, at_rest: Arrays) -> str | None:
    name = next((name for name, array in at_rest.items() if not np.array_equal(weights[name], array)), None)
    return f"a step with a learning rate of 0 changed the weight {name}" if name else None


def _step_fault(session: TrainingSession, inputs: Arrays, slot: int, weights: Arrays, gradients: Arrays) -> str | None:
    """Take a second step, on the same inputs, which moves the weights: m is (1 + MOMENTUM) g, w moves by -rate m."""
    from shootout.quantize.error_bounds import as_float64

    wanted = {name: (1 + MOMENTUM) * as_float64(gradient) for name, gradient in gradients.items()}
    size, length = _whole_norm(weights), _whole_norm(wanted)
    rate = np.float32(MOVE * (size or 1.0) / length) if length else np.float32(MOVE)
    moved, momenta = _state_after(session, {**inputs, RATE: np.asarray(rate)}, slot)
    if not _is_near(momenta, wanted):
        return f"a second step on the same inputs should leave {1 + MOMENTUM} gradients in the momentum, it doesn't"
    moves = {name: as_float64(moved[name]) - as_float64(array) for name, array in weights.items()}
    if not _is_near(moves, {name: -float(rate) * array for name, array in wanted.items()}):
        return f"a step with a learning rate of {rate:.3g} doesn't move the weights by that times the momentum"
    return None


def _is_near(got: Arrays, wanted: Arrays) -> bool:
    from shootout.quantize.error_bounds import off

    error = off(got, wanted) if _whole_norm(wanted) else 0.0
    return error is not None and error <= STEP_TOLERANCE


def _whole_norm(tensors: Arrays) -> float:
    return float(np.sqrt(sum(float(np.linalg.norm(array)) ** 2 for array in tensors.values())))


def _name_some(tensors: Mapping[str, Any]) -> str:
    names = sorted(tensors)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
