"""A loaded model of scikit-learn, LightGBM or XGBoost, and its account."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from shootout.core.adapter import Built, Event, check_inputs
from shootout.core.contract import Array, Arrays, Artifact, Executed
from shootout.models.native.trees import open_native

if TYPE_CHECKING:
    pass

SUMS_IN = {Artifact.SKLEARN: "fp64", Artifact.LIGHTGBM: "fp64", Artifact.XGBOOST: "fp32"}
"""The precision in which each library adds the leaves of its trees."""


class TreesSession:
    """A loaded model."""

    gpu = None

    def __init__(self, built: Built, artifact: Artifact) -> None:
        self._inputs, self._outputs, self._artifact = built.exported.inputs, built.exported.outputs, artifact
        self._path = built.exported.path(artifact)
        native = open_native(artifact, self._path, built.arm.threads)
        self._trees, self._predict = native.trees, native.predict

    @property
    def executed(self) -> Executed:
        """Tell the library and its trees; none of the three tells how many threads it uses."""
        return Executed(
            library=str(self._artifact),
            version=str(import_module(self._artifact).__version__),
            device="cpu",
            threads=None,
            compute_nodes_by_precision={},
            other_nodes_by_precision={SUMS_IN[self._artifact]: self._trees} if self._trees else {},
            artifact_bytes=self._path.stat().st_size,
        )

    def stage(self, inputs: Arrays, slot: int) -> Array:  # noqa: ARG002 - host memory needs no slot
        """Check the input and hand it on."""
        check_inputs(self._inputs, inputs)
        return inputs[self._inputs[0].name]

    def execute(self, staged: Array) -> Array:
        """Run the model; it is done on return."""
        return self._predict(staged)

    def synchronize(self) -> None:
        """Do nothing: nothing is pending."""

    def fetch(self, raw: Array) -> Arrays:
        """Return the output in float32; each call made a new array."""
        return {self._outputs[0].name: raw.astype(np.float32, copy=False)}

    def profile(self, call: Callable[[], object], calls: int) -> tuple[Event, ...]:  # noqa: ARG002
        """Return nothing: none of the three has a profiler."""
        return ()

    def close(self) -> None:
        """Drop the model."""
        self.__dict__.pop("_predict", None)
