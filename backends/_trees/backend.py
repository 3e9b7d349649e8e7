"""scikit-learn, LightGBM and XGBoost on a model of their own: what the converted file is raced against.

All count as FP32. XGBoost compares and sums in float32. LightGBM does both in float64; scikit-learn's trees compare
float32 inputs and sum in float64. So the label promises no more than each computes, and the account tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import require_device, trial
from shootout.backends.optional import Fixture
from shootout.core.adapter import Built, check_inputs, check_options
from shootout.core.contract import Arm, Array, Arrays, Artifact, Availability, Capabilities, Device, Executed, Precision
from shootout.models.native_trees import open_native

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

SUMS_IN = {Artifact.SKLEARN: "fp64", Artifact.LIGHTGBM: "fp64", Artifact.XGBOOST: "fp32"}
"""The precision in which each library adds the leaves of its trees."""
ROWS, FEATURES, TREES = 200, 6, 5
"""Size of the small models with which the conformance suite drives the libraries."""
WARM = "sklearn.ensemble"
"""The longest of the imports of all three: LightGBM's and XGBoost's wrappers take it, too."""


class TreesAdapter:
    """One of the three libraries on the CPU, by the kind of file that is its own."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.name = artifact, str(artifact)
        self.capabilities = Capabilities(consumes=(artifact,), targets=frozenset({(Device.CPU, Precision.FP32)}))
        self.fixture = Fixture(write_model=_WRITES[artifact], parameters={}, warm={"": (WARM, WARM)})

    def probe(self, device: Device) -> Availability:
        """Fit a small model, and run it on one row."""
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
        with TemporaryDirectory() as folder:
            found = open_native(self.artifact, _WRITES[self.artifact](Path(folder)), 1).predict(_make_rows()[0][:1])
        if not np.isfinite(found).all():
            raise ArithmeticError(f"a small model gave {found}")
        return str(module.__version__)


def sklearn() -> TreesAdapter:
    """Return scikit-learn's adapter, for a .joblib or .pkl file."""
    return TreesAdapter(Artifact.SKLEARN)


def lightgbm() -> TreesAdapter:
    """Return LightGBM's adapter, for a .txt file."""
    return TreesAdapter(Artifact.LIGHTGBM)


def xgboost() -> TreesAdapter:
    """Return XGBoost's adapter, for a .ubj or .json file."""
    return TreesAdapter(Artifact.XGBOOST)


class TreesSession:
    """A loaded model."""

    gpu = None

    def __init__(self, built: Built, artifact: Artifact) -> None:
        self._inputs, self._outputs, self._artifact = built.exported.inputs, built.exported.outputs, artifact
        self._path = built.exported.path(artifact)
        native = open_native(artifact, self._path, built.arm.threads)
        self._trees, self._predict, self._stage = native.trees, native.predict, native.stage

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

    def stage(self, inputs: Arrays, slot: int) -> Any:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs, and hand on the only array, or a table of its columns."""
        check_inputs(self._inputs, inputs)
        return self._stage(inputs)

    def execute(self, staged: Any) -> Array:
        """Run the model; it is done on return."""
        return self._predict(staged)

    def synchronize(self) -> None:
        """Do nothing: nothing is pending."""

    def fetch(self, raw: Array) -> Arrays:
        """Return the output in float32; each call made a new array."""
        return {self._outputs[0].name: raw.astype(np.float32, copy=False)}

    def close(self) -> None:
        """Drop the model."""
        self.__dict__.pop("_predict", None)


def _make_rows() -> tuple[Array, Array]:
    """Return seeded rows, and three classes that two features decide."""
    x = np.random.default_rng(0).standard_normal((ROWS, FEATURES)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)


def write_sklearn(folder: Path) -> Path:
    """Write a forest."""
    import joblib
    from sklearn.ensemble import RandomForestClassifier

    path = folder / "forest.joblib"
    joblib.dump(RandomForestClassifier(TREES, random_state=0).fit(*_make_rows()), path)
    return path


def write_lightgbm(folder: Path) -> Path:
    """Write a booster of LightGBM's."""
    import lightgbm

    asked: dict[str, Any] = {"objective": "multiclass", "num_class": 3, "verbosity": -1, "seed": 0, "num_threads": 1}
    path = folder / "boosted.txt"
    lightgbm.train(asked, lightgbm.Dataset(*_make_rows()), TREES).save_model(path)
    return path


def write_xgboost(folder: Path) -> Path:
    """Write a booster of XGBoost's."""
    import xgboost

    asked = {"objective": "multi:softprob", "num_class": 3, "seed": 0, "nthread": 1}
    path = folder / "boosted.ubj"
    xgboost.train(asked, xgboost.DMatrix(*_make_rows()), TREES).save_model(path)
    return path


_WRITES: dict[Artifact, Callable[[Path], Path]] = {
    Artifact.SKLEARN: write_sklearn,
    Artifact.LIGHTGBM: write_lightgbm,
    Artifact.XGBOOST: write_xgboost,
}
