"""Steps of training: forward, backward and the optimizer (see `training_step`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from shootout.core.contract import Arm, Capabilities, Fidelity, NotRun, NotRunKind
from shootout.core.messages import Verified
from shootout.core.scenario import Scenario, find_scenario, scenario_names
from shootout.core.session import TrainingSession
from shootout.core.worker.blocks import Caller
from shootout.core.worker.verification import Claim
from shootout.scenarios import training_step


class TrainStep(Scenario):
    """One training step after the other."""

    name = "train-step"
    measures = "the time of a training step"
    trains = True
    fills_turns = reads_tail = is_one_call = False
    single_ns = 0
    objective = ""
    call = "step"
    unshippable = (
        "a training step can't be shipped, since a shipped folder answers calls: race those with --scenario latency"
    )
    unexplainable = "a training step has no layers to compare: explain a run of inference"

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
        untrained = training_step.obstacle(arm.target)
        return NotRun(NotRunKind.UNSUPPORTED, *untrained) if untrained else None

    def verify(self, claim: Claim, caller: Caller, keep: Path | None) -> tuple[Verified, Claim]:
        """Verify losses, gradients, and what the optimizer does."""
        return super().verify(replace(claim, judge=_judge_step), caller, keep)


def _judge_step(found: Fidelity, claim: Claim) -> tuple[Fidelity, str | None]:
    return training_step.judged(found, cast("TrainingSession", claim.session), claim.exported, claim.buffers)
