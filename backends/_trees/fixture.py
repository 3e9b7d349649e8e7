"""Small models with which the conformance suite drives the libraries of trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shootout.backends.optional import Fixture
from shootout.core.contract import Array

ROWS, FEATURES, TREES = 200, 6, 5


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


SKLEARN = Fixture(write_model=write_sklearn, parameters={})
LIGHTGBM = Fixture(write_model=write_lightgbm, parameters={})
XGBOOST = Fixture(write_model=write_xgboost, parameters={})
