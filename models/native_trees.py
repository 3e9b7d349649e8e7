"""Open a model in its own library, and read what kind of model it is.

A call gives what the converted file gives: the probabilities of the classes, or the value of a regression as a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from shootout.core.contract import Array, Artifact
from shootout.core.errors import ModelError

Predict = Callable[[Array], Array]
FORM = "a classifier with predict_proba or a regressor"
_OBJECTIVE = re.compile(r"^objective=(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeModel:
    """Hold a model that its own library has loaded.

    Attributes:
        model: the library's own object.
        predict: makes a call: (rows, features) in float32 → (rows, outputs).
        features: columns of the input.
        trees: how many it holds; 0 if it is no ensemble of trees.
    """

    model: Any
    predict: Predict
    features: int
    trees: int


def open_native(artifact: Artifact, path: Path, threads: int, name: str = "") -> NativeModel:
    """Load a file in its library, which then uses so many threads. A file of scikit-learn's runs code as it is read.

    Args:
        name: that people know the file by; "" for its own.

    Raises:
        ModelError: it is no classifier with probabilities and no regressor.
    """
    return _OPENERS[artifact](path, threads, name)


def _open_sklearn(path: Path, threads: int, name: str) -> NativeModel:
    import joblib
    from sklearn.base import is_regressor

    estimator = joblib.load(path)
    features, probabilities = (getattr(estimator, name, None) for name in ("n_features_in_", "predict_proba"))
    if features is None or not (probabilities or is_regressor(estimator)):
        kind = f"a {type(estimator).__name__}"
        if hasattr(estimator, "fit"):
            kind += ", unfitted" if features is None else ", without probabilities"
        raise ModelError(f"{name or path.name} holds {kind}: expected a fitted estimator, {FORM}")
    own = threads or None  # 0 is no number of jobs; the two others take it for their own
    counts = {name: own for name in estimator.get_params() if name == "n_jobs" or name.endswith("__n_jobs")}
    estimator.set_params(**counts)
    predict: Predict = probabilities or (lambda x: _as_columns(estimator.predict(x)))
    return NativeModel(
        model=estimator,
        predict=_with_names(estimator, int(features), predict, name or path.name),
        features=int(features),
        trees=len(getattr(estimator, "estimators_", ())),
    )


def _with_names(estimator: Any, features: int, predict: Predict, name: str) -> Predict:
    """Return a call that gives an estimator a table with column names, if it takes nothing else.

    Raises:
        ModelError: it takes nothing else, and pandas isn't installed.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not _selects_by_name(estimator, features):
        return predict
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        fix = "fit it with column numbers, or on X.to_numpy(), or install pandas"
        raise ModelError(f"{name} selects columns by their names, which takes pandas: {fix}") from None
    return lambda x: predict(DataFrame(x, columns=names, copy=False))


def _selects_by_name(estimator: Any, features: int) -> bool:
    """Return whether a fitted estimator refuses an array, since a part of it selects columns by their names."""
    try:
        with catch_warnings():
            simplefilter("ignore")  # of an array without names, which most estimators take all the same
            estimator.predict(np.zeros((1, features), np.float32))
    except Exception as error:
        return "dataframe" in str(error).lower()
    return False


def _open_lightgbm(path: Path, threads: int, name: str) -> NativeModel:  # noqa: ARG001 - its errors name no file
    import lightgbm

    booster = lightgbm.Booster(model_file=str(path))
    objective = _OBJECTIVE.search(path.read_text(encoding="utf-8"))
    finish = _with_both_classes if objective and objective[1] == "binary" else _as_columns
    return NativeModel(
        model=booster,
        predict=lambda x: finish(booster.predict(x, num_threads=threads, validate_features=False)),
        features=booster.num_feature(),
        trees=booster.num_trees(),
    )


def _open_xgboost(path: Path, threads: int, name: str) -> NativeModel:  # noqa: ARG001 - its errors name no file
    import xgboost

    booster = xgboost.Booster({"nthread": threads}, model_file=str(path))
    booster.feature_names = booster.feature_types = None
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    if objective == "multi:softmax":  # which gives the class alone
        booster.set_param({"objective": "multi:softprob"})
    finish = _with_both_classes if objective == "binary:logistic" else _as_columns
    return NativeModel(
        model=booster,
        predict=lambda x: finish(booster.inplace_predict(x, validate_features=False)),
        features=booster.num_features(),
        trees=len(booster.get_dump()),
    )


def _as_columns(found: Any) -> Array:
    array = np.asarray(found)
    return array if array.ndim > 1 else array[:, None]


def _with_both_classes(found: Any) -> Array:
    """Return the probabilities of both classes, of a library that gives the second one's."""
    return np.stack([1 - found, found], axis=1)


_OPENERS: dict[Artifact, Callable[[Path, int, str], NativeModel]] = {
    Artifact.SKLEARN: _open_sklearn,
    Artifact.LIGHTGBM: _open_lightgbm,
    Artifact.XGBOOST: _open_xgboost,
}
