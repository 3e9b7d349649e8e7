"""Adapters that break their promises, to prove that the suite notices. Installed as third parties by the tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shootout import models
from shootout.backends._numpy.backend import NumpyAdapter
from shootout.backends._numpy.session import NumpySession
from shootout.backends._torch.backend import TorchEagerAdapter, TorchSession
from shootout.core.adapter import Built
from shootout.core.contract import (
    Arm,
    Array,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    NotRun,
    NotRunKind,
    Precision,
)
from shootout.core.exported.model import ExportedModel

CPU_FP32 = frozenset({(Device.CPU, Precision.FP32)})


class Lowering(TorchEagerAdapter):
    """Asked for fp32, runs bf16: a runtime with a silent default. Its own account gives it away."""

    name = "lowering"
    capabilities = Capabilities(consumes=(Artifact.MODULE,), targets=CPU_FP32)

    def load(self, built: Built) -> TorchSession:
        target = replace(built.arm.target, precision=Precision.BF16)
        return super().load(replace(built, arm=replace(built.arm, target=target)))


class Boasting(NumpyAdapter):
    """Asked for int8, runs float32 and reports int8 kernels: a quantizer that fell back without a word."""

    name = "boasting"
    capabilities = Capabilities(consumes=(Artifact.FORWARD,), targets=frozenset({(Device.CPU, Precision.INT8)}))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        return replace(super().build(exported, plain(arm), folder), arm=arm)

    def load(self, built: Built) -> NumpySession:
        session = super().load(replace(built, arm=plain(built.arm)))
        count = sum(session.executed.compute_nodes_by_precision.values())
        boast = replace(
            session.executed, compute_nodes_by_precision={"int8": count}, other_nodes_by_precision={"fp32": 1}
        )
        session.__dict__["executed"] = boast  # where the cached property looks first
        return session


class Cunning(Boasting):
    """Boasts too, but rounds where it is watched: on the grid probe."""

    name = "cunning"

    def load(self, built: Built) -> NumpySession:
        session = super().load(built)
        if built.exported.model == "grid_probe":
            weight = eight_bits(next(iter(built.exported.weights().values())))
            session._run = lambda inputs: {"y": eight_bits(inputs["x"]) @ weight.T}
        return session


def eight_bits(x: Array) -> Array:
    return (x * 127).round() / 127


def plain(arm: Arm) -> Arm:
    return replace(arm, target=replace(arm.target, precision=Precision.FP32))


class Echoing:
    """Asked for fp32, rounds to bf16 and reports what it was asked for; reuses its output and writes to its input."""

    name = "echoing"
    capabilities = Capabilities(consumes=(Artifact.FORWARD,), targets=CPU_FP32)

    def probe(self, device: Device) -> Availability:
        return Availability(why=None if device is Device.CPU else NotRun(NotRunKind.UNAVAILABLE, ""))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> EchoingSession:
        (built.folder / "log").write_text("loaded")
        return EchoingSession(built)


class EchoingSession:
    """No checks, one shared output, an account that is an echo."""

    def __init__(self, built: Built) -> None:
        self._exported, self._output = built.exported, {}
        forward, weights = models.get(built.exported.model).forward, built.exported.weights()
        assert forward is not None
        low = {name: bf16(array) for name, array in weights.items()}
        self._run = forward(np, low, built.exported.parameters)

    @cached_property
    def executed(self) -> Executed:
        return Executed(
            library="echo",
            version="1",
            device="cpu",
            threads=64,
            compute_nodes_by_precision={"fp32": 1},
            artifact_bytes=1,
        )

    def stage(self, inputs: Arrays, slot: int) -> Arrays:
        self._staged = {name: bf16(array) for name, array in inputs.items()}
        return self._staged

    def execute(self, staged: Any) -> Arrays:
        for name, array in self._run(self._staged).items():
            self._output.setdefault(name, array)[...] = array
        return self._output

    def synchronize(self) -> None:
        pass

    def fetch(self, raw: Any) -> Arrays:
        return dict(raw)

    def close(self) -> None:
        del self._run


def bf16(array: Any) -> Any:
    """The array with the last 16 of its 32 bits cut off, in place."""
    array.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    return array
