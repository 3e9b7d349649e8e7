"""scikit-learn, LightGBM and XGBoost on a model of their own: what the converted file is raced against.

All count as FP32. XGBoost compares and sums in float32. LightGBM does both in float64; scikit-learn's trees compare
float32 inputs and sum in float64. So the label promises no more than each computes, and the account tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._trees.libraries import open_native
from shootout.backends.common import check_inputs, require_device, trial
from shootout.core.adapter import Built, check_options
from shootout.core.contract import Arm, Array, Arrays, Artifact, Availability, Capabilities, Device, Executed, Precision
from shootout.core.session import Event

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

SUMS_IN = {Artifact.SKLEARN: "fp64", Artifact.LIGHTGBM: "fp64", Artifact.XGBOOST: "fp32"}
"""The precision in which each library adds the leaves of its trees."""


class TreesAdapter:
    """One of the three libraries on the CPU."""

    artifact: Artifact

    @property
    def name(self) -> str:
        """Return the library's name, which is the backend's too."""
        return str(self.artifact)

    @property
    def capabilities(self) -> Capabilities:
        """Return what it can: its own files in FP32."""
        return Capabilities(consumes=(self.artifact,), targets=frozenset({(Device.CPU, Precision.FP32)}))

    def probe(self, device: Device) -> Availability:
        """Fit a model on four rows, and ask it about one."""
        return trial("trees", lambda: self._try(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Make nothing: the library reads its own file.

        Raises:
            ValueError: the arm has options; there are none.
        """
        check_options(arm, self.capabilities.options)
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> TreesSession:
        """Read the file in its library."""
        return TreesSession(built, self.artifact)

    def _try(self, device: Device) -> str:
        require_device(device, (Device.CPU,))
        module = import_module(self.name)
        x, y = np.array([[0.0], [1.0]], np.float32), np.array([0.0, 1.0])
        found = np.asarray(_FITS[self.artifact](x, y))
        if found.shape != y.shape or not np.isfinite(found).all():
            raise ArithmeticError(f"a tree of two rows gave {found}")
        return str(module.__version__)


class SklearnAdapter(TreesAdapter):
    """scikit-learn on a .joblib or .pkl file."""

    artifact = Artifact.SKLEARN


class LightGbmAdapter(TreesAdapter):
    """LightGBM on a .txt file."""

    artifact = Artifact.LIGHTGBM


class XgboostAdapter(TreesAdapter):
    """XGBoost on a .ubj or .json file."""

    artifact = Artifact.XGBOOST


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


def _fit_sklearn(x: Array, y: Array) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor().fit(x, y).predict(x)


def _fit_lightgbm(x: Array, y: Array) -> Any:
    import lightgbm

    return lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(x, y), 1).predict(x)


def _fit_xgboost(x: Array, y: Array) -> Any:
    import xgboost

    return xgboost.train({"nthread": 1}, xgboost.DMatrix(x, y), 1).inplace_predict(x)


_FITS: dict[Artifact, Callable[[Array, Array], Any]] = {
    Artifact.SKLEARN: _fit_sklearn,
    Artifact.LIGHTGBM: _fit_lightgbm,
    Artifact.XGBOOST: _fit_xgboost,
}
