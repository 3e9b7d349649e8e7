"""Quantizers with a planted fault: FP32's outputs, of which one part is broken. Each has FP32 too, which is slower.

They say that they run int8 and round where they are watched, so that only the metric can tell.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from shootout.backends._numpy.backend import NumpyAdapter
from shootout.backends._numpy.session import NumpySession
from shootout.core.adapter import Built
from shootout.core.contract import Array, Arrays, Artifact, Capabilities, Device, Precision
from support.adapters.liars import Cunning

SLOWER_S = 0.002
BROKEN_CLASS = 7


class Planted(Cunning):
    """Runs FP32 for INT8."""

    capabilities = Capabilities(
        consumes=(Artifact.FORWARD, Artifact.ONNX),
        targets=frozenset({(Device.CPU, Precision.FP32), (Device.CPU, Precision.INT8)}),
    )

    def load(self, built: Built) -> NumpySession:
        is_int8 = built.arm.target.precision is Precision.INT8
        session = super().load(built) if is_int8 else NumpyAdapter.load(self, built)
        if built.exported.model.endswith(".onnx"):
            run, change = session._run, self.change if is_int8 else self.wait
            session._run = lambda inputs: change(run(inputs))
        return session

    def wait(self, outputs: Mapping[str, Array]) -> Arrays:
        time.sleep(SLOWER_S)
        return dict(outputs)

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        """What the quantizer does to the outputs."""
        raise NotImplementedError


class BreaksClass(Planted):
    """Lowers one class's score."""

    name = "breaks-class"

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        lowered = {name: scores.copy() for name, scores in outputs.items()}
        for scores in lowered.values():
            scores[:, BROKEN_CLASS] = scores.min(axis=1)
        return lowered


class ScalesOutput(Planted):
    """Scales the last of several outputs."""

    name = "scales-output"

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        *_, last = outputs
        return {**outputs, last: outputs[last] * np.float32(1.5)}


class AddsNoise(Planted):
    """Adds noise of a thousandth of an output's size."""

    name = "adds-noise"

    def change(self, outputs: Mapping[str, Array]) -> Arrays:
        rng = np.random.default_rng(0)
        return {
            name: array + 1e-3 * array.std() * rng.standard_normal(array.shape).astype(np.float32)
            for name, array in outputs.items()
        }
