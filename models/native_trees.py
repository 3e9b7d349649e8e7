"""Open a model in its own library, and read what kind of model it is.

A call gives what the converted file gives: the probabilities of the classes, or the value of a regression as a column.
A call takes one array of numbers, or the columns of a table if they lie beside the model's file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from shootout.core.contract import Array, Arrays, Artifact
from shootout.core.errors import ModelError, UsageError
from shootout.core.host.store import open_sealed
from shootout.models.data import tables
from shootout.models.data.tables import Table

Predict = Callable[[Any], Array]
FACTS = "trees.json"
"""The file beside a converted one that says what it was made of."""
BOTH = 2
FORM = "a classifier with predict_proba or a regressor"
_OBJECTIVE = re.compile(r"^objective=(\S+)", re.MULTILINE)
_INFOS = re.compile(r"^feature_infos=(.+)", re.MULTILINE)
"""The range of each feature, as [low:high]; of one with categories the codes that it has."""
UNUSED = "none"
"""Stands there for a feature that no tree can use, such as a constant one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFacts:
    """Tell what a model takes and gives, as its own library says.

    Attributes:
        features: how many columns it takes; 0 if it takes one column of texts by itself.
        names: of these columns, if it knows them.
        levels: the categories of a column in the order of their codes.
        unplaced: how many columns have categories without the file saying which columns these are.
        classes: in the order of the probabilities; None for a regression.
    """

    features: int
    names: tuple[str, ...] = ()
    levels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unplaced: int = 0
    classes: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeModel:
    """Hold a model that its own library has loaded.

    Attributes:
        model: the library's own object.
        predict: makes a call: (rows, features) in float32, or a table's columns as pandas has them → (rows, outputs).
        trees: how many it holds; 0 if it is no ensemble of trees.
        facts: what it takes and gives.
        stage: gives what a call takes, of the inputs by name.
    """

    model: Any
    predict: Predict
    trees: int
    facts: NativeFacts
    stage: Callable[[Arrays], Any] = lambda inputs: next(iter(inputs.values()))


def read_facts(converted: str) -> NativeFacts | None:
    """Return what a converted file's model takes and gives; None for other files.

    Raises:
        ValueError: the facts were changed.
    """
    try:
        facts = open_sealed(Path(converted).parent / FACTS)["native"]
    except (OSError, KeyError):
        return None
    classes = facts["classes"]
    return NativeFacts(
        **{**facts, "names": tuple(facts["names"]), "classes": None if classes is None else tuple(classes)}
    )


def choose_columns(table: Table, facts: NativeFacts, name: str) -> Table:
    """Return a table with the columns that a model takes: by their names, or all in order if the model has no names.

    Args:
        table: without the column that is right.
        name: the model's, for people.

    Raises:
        UsageError: a column is missing, says the nearest; their number is another one; or one can't be taken.
    """
    if facts.unplaced:
        told = f"{name} numbers the categories of {facts.unplaced} columns, and doesn't say which columns these are"
        raise UsageError(f"{told}: fit it without ordered categories and constant columns, or on codes")
    chosen = _pick_columns(table, facts, name)
    for one in chosen.columns:
        one.refuse_odd(table.file)
    return chosen


def _pick_columns(table: Table, facts: NativeFacts, name: str) -> Table:
    if facts.names:
        if missing := [one for one in facts.names if one not in table.names]:
            near = get_close_matches(missing[0], table.names, n=1)
            hint = f"rename {near[0]!r}, or " if near else ""
            fix = f"{hint}give a table with it; this one has {', '.join(table.names)}"
            raise UsageError(f"{table.file} has no column {missing[0]!r}, which {name} takes: {fix}")
        return table.pick(facts.names)
    if facts.features:
        if len(table.columns) != facts.features:
            took = f"{name} takes {facts.features} columns without names, and {table.file} has {len(table.columns)}"
            raise UsageError(f"{took} beside the target: {', '.join(table.names)}")
        return table
    texts = [one.name for one in table.columns if one.texts]
    if len(texts) != 1:
        held = f"{len(texts)} such columns: {', '.join(texts)}" if texts else "none"
        raise UsageError(f"{name} takes one column of texts, and {table.file} has {held}")
    return table.pick(texts, is_series=True)


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
    table = tables.read_beside(path)
    features, probabilities = (getattr(estimator, name, None) for name in ("n_features_in_", "predict_proba"))
    if features is None and _takes_texts(estimator):
        features = 0
    if features is None or not (probabilities or is_regressor(estimator)):
        kind = f"a {type(estimator).__name__}"
        if hasattr(estimator, "fit"):
            kind += ", unfitted" if features is None else ", without probabilities"
        raise ModelError(f"{name or path.name} holds {kind}: expected a fitted estimator, {FORM}")
    own = threads or None  # 0 is no number of jobs; the two others take it for their own
    counts = {name: own for name in estimator.get_params() if name == "n_jobs" or name.endswith("__n_jobs")}
    estimator.set_params(**counts)
    predict: Predict = probabilities or (lambda x: _as_columns(estimator.predict(x)))
    classes = tuple(estimator.classes_.tolist()) if probabilities and hasattr(estimator.classes_, "tolist") else None
    names = tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    facts = NativeFacts(features=int(features), names=names, classes=classes)
    trees = len(getattr(estimator, "estimators_", ()))
    if table:
        return NativeModel(model=estimator, predict=predict, trees=trees, facts=facts, stage=table.frame)
    predict = _with_names(estimator, int(features), predict, name or path.name)
    return NativeModel(model=estimator, predict=predict, trees=trees, facts=facts)


def _takes_texts(estimator: Any) -> bool:
    """Return whether an estimator, or the first step of a pipeline, counts the words of one column of texts."""
    return hasattr(estimator.steps[0][1] if hasattr(estimator, "steps") else estimator, "build_analyzer")


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
    told = path.read_text(encoding="utf-8")
    objective = _OBJECTIVE.search(told)
    finish = _with_both_classes if objective and objective[1] == "binary" else _as_columns
    return NativeModel(
        model=booster,
        predict=lambda x: finish(booster.predict(x, num_threads=threads, validate_features=False)),
        trees=booster.num_trees(),
        facts=_tell_lightgbm(booster, told, objective[1] if objective else ""),
    )


def _tell_lightgbm(booster: Any, told: str, objective: str) -> NativeFacts:
    """Tell what a booster takes and gives.

    Args:
        told: its file.
        objective: its own word, such as `multiclass`.
    """
    names, infos, count = booster.feature_name(), _INFOS.search(told), booster.num_feature()
    is_made_up = names == [f"Column_{at}" for at in range(count)]
    told_of = dict(zip(names, infos[1].split() if infos else (), strict=False))
    of_levels = [name for name, info in told_of.items() if info[0] != "[" and info != UNUSED]
    levels = booster.pandas_categorical or []
    is_placed = len(of_levels) == len(levels)
    is_multi = objective.startswith("multiclass")
    classes = booster.num_model_per_iteration() if is_multi else BOTH * (objective == "binary")
    return NativeFacts(
        features=count,
        names=() if is_made_up else tuple(names),
        levels=dict(zip(of_levels, levels, strict=True)) if is_placed else {},
        unplaced=0 if is_placed else len(levels),
        classes=tuple(range(classes)) if classes else None,
    )


def _open_xgboost(path: Path, threads: int, name: str) -> NativeModel:  # noqa: ARG001 - its errors name no file
    import xgboost

    booster = xgboost.Booster({"nthread": threads}, model_file=str(path))
    config = json.loads(booster.save_config())["learner"]
    objective = config["objective"]["name"]
    trees = len(booster.get_dump())
    facts = _tell_xgboost(booster, objective, int(config["learner_model_param"]["num_class"]))
    if facts.levels:  # whose types say which columns hold codes
        booster.feature_names = [f"f{at}" for at in range(facts.features)]
    else:
        booster.feature_names = booster.feature_types = None
    if objective == "multi:softmax":  # which gives the class alone
        booster.set_param({"objective": "multi:softprob"})
    finish = _with_both_classes if objective == "binary:logistic" else _as_columns
    return NativeModel(
        model=booster,
        predict=lambda x: finish(booster.inplace_predict(x, validate_features=False)),
        trees=trees,
        facts=facts,
    )


def _tell_xgboost(booster: Any, objective: str, classes: int) -> NativeFacts:
    """Tell what a booster takes and gives.

    Args:
        objective: its own word, such as `multi:softprob`.
        classes: how many it tells apart, where these are several.
    """
    levels = dict[str, Sequence[Any]]()
    if "c" in (booster.feature_types or ()) and hasattr(booster, "get_categories"):
        kept = booster.get_categories(export_to_arrow=True).to_arrow()
        levels = {name: found.to_pylist() for name, found in kept if found is not None}
    count = classes if objective.startswith("multi:") else BOTH * (objective == "binary:logistic")
    return NativeFacts(
        features=booster.num_features(),
        names=tuple(booster.feature_names or ()),
        levels=levels,
        classes=tuple(range(count)) if count else None,
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
