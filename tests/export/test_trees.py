"""Models in the files of scikit-learn, LightGBM and XGBoost: converted once, their own library beside ONNX Runtime."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.backends._trees.backend import write_lightgbm, write_sklearn, write_xgboost
from shootout.commands import selection
from shootout.core.constants import CONVERTED
from shootout.core.contract import Arm, Array, Artifact, Precision, Target, TensorSpec
from shootout.core.errors import ModelError, NotRunKind, UsageError
from shootout.core.exported.client import Request, obtain
from shootout.core.exported.fidelity import compare
from shootout.core.exported.model import FILES
from shootout.core.exported.request import Content, name_model
from shootout.core.host.store import cache_folder
from shootout.core.study import feasibility
from shootout.models.native_trees import open_native
from shootout.models.onnx import onnx_files
from shootout.models.onnx.effort import Effort
from shootout.models.sources import onnx_inputs, trees
from shootout.quantize.onnx_error_bounds import float32_error_bounds
from shootout.tell.registered import why_unshippable

ROWS = np.random.default_rng(1).standard_normal((50, 6)).astype(np.float32)
FIT = np.random.default_rng(2).standard_normal((300, 6)).astype(np.float32)
WRITERS = {Artifact.SKLEARN: write_sklearn, Artifact.LIGHTGBM: write_lightgbm, Artifact.XGBOOST: write_xgboost}


def converted(artifact: Artifact, path: Path, folder: Path, rows: Array = ROWS) -> tuple[Array, Array]:
    """What the library gives for the rows by its own file, and ONNX Runtime by the converted one."""
    folder.mkdir()
    trees.write_converted(artifact, path, folder)
    (file,) = folder.glob("*.onnx")
    (own,) = (one for one in Artifact if (folder / FILES[one]).exists() and one in WRITERS)
    (outputs,) = onnx_files.run(file, [{"X": rows}], file.name)
    return open_native(own, folder / FILES[own], 1).predict(rows), next(iter(outputs.values()))


def convert_here(path: Path, artifact: Artifact = Artifact.SKLEARN) -> str:
    """Convert a file in this process, to where `Trees.convert` keeps it."""
    folder = cache_folder() / f"{CONVERTED}{path.parent.name}"
    folder.mkdir(parents=True)
    trees.write_converted(artifact, path, folder)
    return str(folder / f"{path.name}.onnx")


@pytest.mark.parametrize("artifact", WRITERS)
def test_a_library_and_its_converted_file_give_the_same_probabilities(artifact: Artifact, tmp_path: Path):
    native, file = converted(artifact, WRITERS[artifact](tmp_path), tmp_path / "made")
    assert native.shape == file.shape == (50, 3)
    np.testing.assert_allclose(native.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(file, native, atol=1e-6)
    assert len(np.unique(native.argmax(1))) == 3


def test_two_classes_and_regressions_are_columns_too(tmp_path: Path):
    import lightgbm
    import xgboost
    from sklearn.ensemble import RandomForestRegressor

    labels, values = (ROWS[:, 0] > 0).astype(int), ROWS[:, 0] * 2
    for name, target in {"binary": labels, "regression": values}.items():
        asked = {"objective": name, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 2}
        lightgbm.train(asked, lightgbm.Dataset(ROWS, target), 3).save_model(tmp_path / f"{name}.txt")
        objective = {"binary": "binary:logistic", "regression": "reg:squarederror"}[name]
        made = xgboost.train({"objective": objective, "nthread": 1}, xgboost.DMatrix(ROWS, target), 3)
        made.save_model(tmp_path / f"{name}.json")
        for artifact, ending in ((Artifact.LIGHTGBM, "txt"), (Artifact.XGBOOST, "json")):
            native, file = converted(artifact, tmp_path / f"{name}.{ending}", tmp_path / f"{name}-{ending}")
            assert native.shape == (50, 2 if name == "binary" else 1)
            np.testing.assert_allclose(file, native, atol=1e-5)
    (tmp_path / "r.pkl").write_bytes(pickle.dumps(RandomForestRegressor(3, random_state=0).fit(ROWS, values)))
    native, file = converted(Artifact.SKLEARN, tmp_path / "r.pkl", tmp_path / "r")
    assert native.shape == (50, 1)
    np.testing.assert_allclose(file, native, atol=1e-5)


def test_a_wrapper_in_a_pickle_is_raced_by_its_own_library(tmp_path: Path):
    import xgboost

    made = xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(ROWS, (ROWS[:, 0] > 0).astype(int))
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(made))
    native, _ = converted(Artifact.SKLEARN, tmp_path / "w.pkl", tmp_path / "made")
    assert (tmp_path / "made" / FILES[Artifact.XGBOOST]).exists()
    np.testing.assert_allclose(native, made.predict_proba(ROWS), atol=1e-6)


def make_estimators() -> dict[str, Any]:
    """Estimators of scikit-learn's own pipelines, each fitted on rows with missing values."""
    import lightgbm
    import xgboost
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, StackingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    two, three, values = FIT[:, 0] > 0, (FIT[:, 0] > 0).astype(int) + (FIT[:, 1] > 0), FIT[:, 0] * 2
    xgb, lgbm = {"n_estimators": 3, "n_jobs": 1}, {"n_estimators": 3, "n_jobs": 1, "verbose": -1}
    stacked = StackingClassifier([("a", HistGradientBoostingClassifier(max_iter=3))], cv=2)
    found = {
        "hgb-binary": (HistGradientBoostingClassifier(max_iter=3), two),
        "hgb-multiclass": (HistGradientBoostingClassifier(max_iter=3), three),
        "hgb-regressor": (HistGradientBoostingRegressor(max_iter=3), values),
        "hgb-pipeline": (make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=3)), three),
        "hgb-stacked": (stacked, two),
        "xgboost-pipeline": (make_pipeline(StandardScaler(), xgboost.XGBClassifier(**xgb)), three),
        "xgboost-regressor": (make_pipeline(StandardScaler(), xgboost.XGBRegressor(**xgb)), values),
        "lightgbm-pipeline": (make_pipeline(StandardScaler(), lightgbm.LGBMClassifier(**lgbm)), three),
        "lightgbm-regressor": (make_pipeline(StandardScaler(), lightgbm.LGBMRegressor(**lgbm)), values),
    }
    missing = np.where(np.random.default_rng(3).random(FIT.shape) < 0.2, np.float32(np.nan), FIT)
    return {name: model.fit(missing, target) for name, (model, target) in found.items()}


def test_boosting_of_all_three_libraries_is_converted_in_scikit_learns_pipelines_too(tmp_path: Path):
    """The rows are those of the fit, whose numbers lie on thresholds, and some of their values are missing."""
    rows = np.where(np.random.default_rng(3).random(FIT.shape) < 0.2, np.float32(np.nan), FIT)
    for name, model in make_estimators().items():
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps(model))
        native, file = converted(Artifact.SKLEARN, tmp_path / f"{name}.pkl", tmp_path / name, rows)
        assert native.shape == file.shape, name
        np.testing.assert_allclose(file, native, atol=1e-5, err_msg=name)


def test_what_no_converter_takes_is_raced_by_its_own_library_alone(tmp_path: Path):
    """skl2onnx has no soft vote whose probabilities lie side by side."""
    from sklearn.ensemble import RandomForestClassifier, VotingClassifier

    labels = (ROWS[:, 0] > 0).astype(int)
    vote = VotingClassifier([("a", RandomForestClassifier(2, random_state=0))], voting="soft").fit(ROWS, labels)
    (tmp_path / "vote.pkl").write_bytes(pickle.dumps(vote))
    made = convert_here(tmp_path / "vote.pkl")
    exported = obtain(Request(model=made, batch=4))
    assert exported.artifacts == (Artifact.SKLEARN,)
    assert [spec.shape for spec in (*exported.inputs, *exported.outputs)] == [(4, 6), (4, 2)]
    native = open_native(Artifact.SKLEARN, exported.path(Artifact.SKLEARN), 1)
    own = [{"probabilities": native.predict(one["X"])} for one in exported.input_buffers()]
    assert compare(own, exported.reference_outputs()).relative_l2 < 1e-7
    arm = Arm(model=made, parameters={}, target=Target(backend="onnxruntime"), batch=4, threads=1)
    why = feasibility.check_export(arm, exported)
    assert why is not None
    assert why.kind is NotRunKind.UNFIT
    assert why.fix == "", "no torch module is behind it"
    assert "vote.pkl can't be converted to ONNX: NotImplementedError: flatten_" in why.reason
    assert feasibility.check_export(replace(arm, target=Target(backend="sklearn")), exported) is None


def test_missing_values_are_inputs_of_trees_and_a_conversion_that_sends_them_elsewhere_is_refused(tmp_path: Path):
    from sklearn.ensemble import RandomForestClassifier

    labels = (ROWS[:, 0] > 0).astype(int)
    rows = ROWS.copy()
    rows[(labels == 0) & (np.arange(50) % 2 == 0), :3] = np.nan  # they go left, with the small numbers
    (tmp_path / "f.pkl").write_bytes(pickle.dumps(RandomForestClassifier(5, random_state=0).fit(rows, labels)))
    np.savez(tmp_path / "rows.npz", X=rows)
    made = convert_here(tmp_path / "f.pkl")
    asked = Request(model=made, batch=50, inputs_npz=tmp_path / "rows.npz")
    assert asked.source.check_sizes(asked) == 50
    asked.source.check_data(asked)
    exported = obtain(asked)
    np.testing.assert_array_equal(exported.input_buffers()[0]["X"], rows)
    found = onnx_files.run(Path(made), exported.input_buffers(), "f.onnx")
    assert compare(found, exported.reference_outputs()).relative_l2 > 0.1
    assert exported.error_bounds[Precision.FP32] == 1e-5


def test_what_gives_no_probabilities_is_refused_in_one_line(tmp_path: Path):
    from sklearn.cluster import KMeans
    from sklearn.ensemble import RandomForestClassifier

    for model, why in (
        (KMeans(2, n_init=1).fit(ROWS), "a KMeans, without probabilities"),
        (RandomForestClassifier(), "a RandomForestClassifier, unfitted"),
        ({"model": 1}, "a dict"),
        ([1], "a list"),
    ):
        (tmp_path / "m.pkl").write_bytes(pickle.dumps(model))
        (tmp_path / "made").mkdir(exist_ok=True)
        with pytest.raises(ModelError, match=f"^m.pkl holds {why}: expected a fitted estimator"):
            trees.write_converted(Artifact.SKLEARN, tmp_path / "m.pkl", tmp_path / "made")
    (tmp_path / "broken.txt").write_text("no model")
    with pytest.raises(UsageError, match=r"lightgbm can't read or run broken.txt: LightGBMError"):
        trees.Trees().convert(str(tmp_path / "broken.txt"))
    lost = b"\x80\x04c__main__\nown_step\n."  # a pickle of a function of the program that wrote it
    (tmp_path / "own.pkl").write_bytes(lost)
    with pytest.raises(
        UsageError, match=r"own.pkl needs 'own_step' of the program that fitted it: put that into a module"
    ):
        trees.Trees().convert(str(tmp_path / "own.pkl"))
    with pytest.raises(UsageError, match="can't read"):
        trees.Trees().convert(str(tmp_path / "absent.joblib"))


def test_columns_selected_by_name_get_a_table_and_are_converted_by_number(tmp_path: Path):
    import pandas
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table, labels = pandas.DataFrame(ROWS, columns=list("abcdef")), (ROWS[:, 0] > 0).astype(int)
    for name, columns in (("named", ["c", "a"]), ("one", ["f"]), ("chosen", make_column_selector("[ab]"))):
        scaled = ColumnTransformer([("s", StandardScaler(), columns)], remainder="passthrough")
        model = make_pipeline(scaled, RandomForestClassifier(3, random_state=0, n_jobs=1)).fit(table, labels)
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps(model))
        native, file = converted(Artifact.SKLEARN, tmp_path / f"{name}.pkl", tmp_path / name)
        np.testing.assert_array_equal(native, model.predict_proba(table))
        np.testing.assert_allclose(file, native, atol=1e-5, err_msg=name)
    plain = RandomForestClassifier(3, random_state=0).fit(table, labels)
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(plain))
    opened = open_native(Artifact.SKLEARN, tmp_path / "plain.pkl", 1)
    assert opened.predict == opened.model.predict_proba, "which takes an array as well, without a table's costs"


def test_json_of_xgboost_is_told_from_a_config(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"learner":{"attributes":{}}}')
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert trees.find_library(str(tmp_path / "a.json")) is Artifact.XGBOOST
    assert trees.find_library(str(tmp_path / "config.json")) is None
    assert trees.find_library("net.onnx") is None


def test_a_file_is_converted_once_and_exported_with_the_library_as_the_reference(tmp_path: Path):
    path = str(write_lightgbm(tmp_path))
    made = trees.Trees().convert(path)
    assert trees.Trees().convert(path) == made
    found = trees.open_converted(Path(made))
    assert found
    assert found.artifact is Artifact.LIGHTGBM
    assert trees.open_converted(tmp_path / "other.onnx") is None

    exported = obtain(Request(model=made, batch=4))
    assert exported.artifacts == (Artifact.ONNX, Artifact.LIGHTGBM)
    assert exported.error_bounds[Precision.FP32] == 1e-5
    native = open_native(Artifact.LIGHTGBM, exported.path(Artifact.LIGHTGBM), 1)
    buffers, right = exported.input_buffers(), exported.reference_outputs()
    own = [{"probabilities": native.predict(one["X"])} for one in buffers]
    assert compare(own, right).relative_l2 < 1e-7
    assert "between its trees' thresholds" in " ".join(exported.notes)

    chosen = selection.choose(path, {})
    assert (chosen.model, chosen.targets) == ((made,), ("lightgbm", "onnxruntime"))
    assert selection.choose(path, {"backends": ("numpy",)}).targets == ("numpy",)


def test_a_conversion_that_decides_otherwise_has_no_wider_bound(tmp_path: Path):
    """The bound is that of the file by itself: an error of the conversion must not excuse itself."""
    import onnx

    made = Path(convert_here(write_lightgbm(tmp_path), Artifact.LIGHTGBM))
    model, folder = onnx.load(made), tmp_path / "trees-x"
    node = next(one for one in model.graph.node if one.op_type == "TreeEnsembleClassifier")
    values = next(one for one in node.attribute if one.name == "nodes_values")
    values.floats[:] = [value + 0.3 for value in values.floats]
    folder.mkdir()
    onnx.save(model, folder / made.name)
    (own,) = onnx_files.run(folder / made.name, [{"X": ROWS}], "moved")
    found = trees.open_converted(made)
    assert found
    native = open_native(found.artifact, found.file, 1).predict(ROWS)
    assert compare([own], [{"probabilities": native}]).relative_l2 > 1e-2

    from shootout.models.sources.user_onnx import FileExport

    (tmp_path / "out").mkdir()
    asked = Request(model=made.name, content=Content(file=str(folder / made.name)), folder=tmp_path / "out", batch=8)
    export = FileExport(asked, Effort())
    export.native = found
    export.prepare()
    assert export.error_bound == 1e-5


def test_inputs_are_drawn_beside_thresholds_and_the_bound_holds_on_them(tmp_path: Path):
    import onnx

    trees.write_converted(Artifact.LIGHTGBM, write_lightgbm(tmp_path), tmp_path)
    model = onnx.load(tmp_path / "boosted.txt.onnx")
    told = {one.name: one for one in model.graph.node[0].attribute}
    split = [
        (f, v)
        for f, v, mode in zip(
            told["nodes_featureids"].ints, told["nodes_values"].floats, told["nodes_modes"].strings, strict=True
        )
        if mode != b"LEAF"
    ]
    spec = TensorSpec(name="X", shape=(500, 6), dtype="float32")
    way = onnx_inputs.ways(model, (spec,))["X"]
    rows = way.tensor(np.random.default_rng(0), spec)
    for feature, threshold in split:
        assert not np.isclose(rows[:, feature], threshold, rtol=1e-6).any()
        assert (rows[:, feature] < threshold).any()
        assert (rows[:, feature] > threshold).any()

    at = np.zeros((len(split), 6), np.float32)
    for row, (feature, threshold) in enumerate(split):
        at[row, feature] = threshold
    right = onnx_files.run(tmp_path / "boosted.txt.onnx", [{"X": at}], "boosted.txt.onnx")
    found = float32_error_bounds(
        model, [{"X": at}], right, name="boosted.onnx", place=tmp_path / "boosted.txt.onnx", workshop=tmp_path
    )
    assert found.by_mark == (1e-5,), "runtimes compare the same float32 numbers"


def test_the_three_are_not_shipped_and_say_what_to_copy():
    for name in ("sklearn", "lightgbm", "xgboost"):
        told = why_unshippable(Target(backend=name), "forest.ubj")
        assert told == "it runs forest.ubj as it is, so copy that file"


def test_a_model_has_the_name_that_was_typed_and_the_place_if_it_is_still_there(tmp_path: Path):
    made = convert_here(own := write_lightgbm(tmp_path), Artifact.LIGHTGBM)
    assert name_model(made) == "boosted.txt"
    assert trees.find_typed(made) == str(own)
    own.unlink()
    assert trees.find_typed(made) == made, "a command with a file that is gone can't work"
    assert name_model("/elsewhere/exported/trees-1/forest.ubj.onnx") == "forest.ubj", "a run of another machine"
    assert [name_model(one) for one in ("a/forest.ubj.onnx", "trees-1/net.py:make")] == [
        "forest.ubj.onnx",
        "net.py:make",
    ]
