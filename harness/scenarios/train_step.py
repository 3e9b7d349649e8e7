"""Steps of training: forward, backward and the optimizer (see `training_step`)."""

from __future__ import annotations

from shootout.core.scenario import Scenario


class TrainStep(Scenario):
    """One training step after the other."""

    name = "train-step"
    measures = "the time of a training step"
    trains = True
    fills_turns = False
