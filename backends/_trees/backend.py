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

from shootout.backends._trees.fixture import LIGHTGBM, SKLEARN, XGBOOST
from shootout.backends._trees.session import TreesSession
from shootout.backends.common import require_device, trial
from shootout.core.adapter import Built, check_options
from shootout.core.contract import Arm, Array, Artifact, Availability, Capabilities, Device, Precision

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel


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
    fixture = SKLEARN


class LightGbmAdapter(TreesAdapter):
    """LightGBM on a .txt file."""

    artifact = Artifact.LIGHTGBM
    fixture = LIGHTGBM


class XgboostAdapter(TreesAdapter):
    """XGBoost on a .ubj or .json file."""

    artifact = Artifact.XGBOOST
    fixture = XGBOOST


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
