"""Steps of training: forward, backward and the optimizer (see `training_step`)."""

from __future__ import annotations

from shootout.core.scenario import Scenario


class TrainStep(Scenario):
    """One training step after the other."""

    name = "train-step"
    measures = "the time of a training step"
    trains = True
    fills_turns = False
    is_one_call = False
    objective = ""
    call = "step"
    unshippable = (
        "a training step can't be shipped, since a shipped folder answers calls: race those with --scenario latency"
    )
    unexplainable = "a training step has no layers to compare: explain a run of inference"
