"""Tables beside models of scikit-learn, LightGBM and XGBoost: columns by name, texts as texts, the target as truth."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from shootout.commands import selection
from shootout.core import backends
from shootout.core.contract import Arm, Array, Artifact, Target
from shootout.core.errors import UsageError
from shootout.core.exported.client import Request, obtain
from shootout.core.exported.model import FILES, ExportedModel
from shootout.core.study.schema import Study
from shootout.models.data import columns, tables
from shootout.models.data.tables import Table, TableColumn
from shootout.models.native_trees import choose_columns, open_native
from shootout.models.onnx.lookups import cut_lookups
from shootout.models.sources import trees

ROWS, FITTED = 300, 200
WORDS = ("sunny", "quiet", "garden", "noisy", "balcony", "old")
TEXTS, NUMBERS = ["city", "text"], ["area", "rooms"]


@pytest.fixture(scope="module")
def homes() -> pandas.DataFrame:
    """Homes with a signal in each column, and gaps in two."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Berlin", "Paris", "Rome"], ROWS).astype(object)
    text = np.array([" ".join(rng.choice(WORDS, 4)) for _ in range(ROWS)], object)
    area, rooms = rng.uniform(20, 200, ROWS).round(1), rng.integers(1, 7, ROWS)
    price = 20 * area + 90 * (city == "Paris") * rooms - 300 * np.array(["noisy" in one for one in text])
    city[::10], area[5::10] = None, np.nan
    found = {"id": range(ROWS), "city": city, "area": area, "rooms": rooms, "text": text, "price": np.nan_to_num(price)}
    found["seen"] = pandas.Timestamp("2026-01-01")  # which no model takes
    return pandas.DataFrame({**found, "band": np.where(found["price"] > 2000, "dear", "cheap")})


@pytest.fixture(scope="module")
def word(homes: pandas.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pipeline's file in one place for all tests, which is converted once for each table."""
    from sklearn.linear_model import Ridge

    path = tmp_path_factory.mktemp("models") / "model.pkl"
    path.write_bytes(pickle.dumps(fit(homes, Ridge(), "price")))
    return str(path)


@pytest.fixture
def here(homes: pandas.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the table."""
    monkeypatch.chdir(tmp_path)
    homes.to_parquet("homes.parquet")
    return tmp_path


def fit(homes: pandas.DataFrame, last: Any, target: str, counter: Any = None, columns: Any = (*TEXTS, *NUMBERS)) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    city = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    parts = [
        ("city", city, ["city"]),
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
        ("text", counter or TfidfVectorizer(), "text"),
    ]
    rows = homes[:FITTED]
    return make_pipeline(ColumnTransformer(parts), last).fit(rows[[*columns]], rows[target])


def keep(model: Any, name: str = "model.pkl") -> str:
    Path(name).write_bytes(pickle.dumps(model))
    return name


def choose(word: str, **options: Any) -> Study:
    return selection.choose(word, {"data": "homes.parquet", **options})


def export(study: Study, batch: int = ROWS) -> ExportedModel:
    assert study.inputs
    return obtain(Request(model=str(study.model[0]), batch=batch, inputs_npz=Path(study.inputs)))


def answer(backend: str, exported: ExportedModel, folder: Path) -> Array:
    """What a backend gives for the first input set."""
    adapter, arm = (
        backends.get(backend),
        Arm(model=exported.model, target=Target(backend=backend), batch=exported.batch),
    )
    folder.mkdir()
    session = adapter.load(adapter.build(exported, arm, folder))
    return next(iter(session.fetch(session.execute(session.stage(exported.input_buffers()[0], 0))).values()))


def test_a_pipeline_gets_texts_and_numbers_of_the_table_and_the_target_is_its_truth(
    here: Path, homes: pandas.DataFrame, word: str
):
    pipeline, study = pickle.loads(Path(word).read_bytes()), choose(word, target="price")
    assert study.targets == ("sklearn", "onnxruntime")
    assert study.metric == "mae"
    np.testing.assert_allclose(np.load(str(study.truth))[:, 0], homes.price, rtol=1e-6)
    exported = export(study)
    right = pipeline.predict(homes)[:, None]
    np.testing.assert_allclose(exported.reference_outputs()[0]["variable"], right, rtol=1e-6)
    np.testing.assert_allclose(answer("sklearn", exported, here / "s"), right, rtol=1e-6)
    np.testing.assert_allclose(answer("onnxruntime", exported, here / "o"), right, rtol=1e-4)
    assert trees.find_typed(str(study.model[0])).endswith("model.pkl")
    assert not Path(trees.find_typed(str(study.model[0])).replace("~", str(Path.home()))).is_symlink()
    check_staged(exported, here, homes)


def check_staged(exported: ExportedModel, here: Path, homes: pandas.DataFrame) -> None:
    """Check that a session gets what an application has."""
    inputs = exported.input_buffers()[0]
    (here / "b").mkdir()
    adapter = backends.get("sklearn")
    built = adapter.build(exported, Arm(model="m", target=Target(backend="sklearn"), batch=ROWS), here / "b")
    frame = adapter.load(built).stage(inputs, 0)
    pandas.testing.assert_frame_equal(frame, homes[[*TEXTS, *NUMBERS]])
    (here / "p").mkdir()
    ort = backends.get("onnxruntime")
    arm = Arm(model="m", target=Target(backend="onnxruntime"), batch=ROWS)
    columns: Any = ort.load(ort.build(exported, arm, here / "p")).stage(inputs, 0)
    assert columns["text"][:, 0].tolist() == homes.text.tolist()
    assert columns["city"][0, 0] == "nan"
    assert columns["area"].dtype == np.float32


@pytest.mark.long
def test_classes_that_are_texts_are_labels(here: Path, homes: pandas.DataFrame):
    from sklearn.linear_model import LogisticRegression

    homes.to_csv("homes.csv", index=False)
    study = choose(keep(fit(homes, LogisticRegression(), "band")), target="band", data="homes.csv")
    assert np.load(str(study.labels)).tolist() == (homes.band == "dear").astype(int).tolist()
    assert (study.metric, study.truth) == (None, None)
    Path("same.csv").write_bytes(Path("homes.csv").read_bytes())
    assert Path(str(choose("model.pkl", target="band", data="same.csv").inputs)).is_file()


@pytest.mark.long
def test_a_pipeline_of_one_text_gets_that_column_by_itself(here: Path, homes: pandas.DataFrame):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(CountVectorizer(), LogisticRegression()).fit(homes.text, homes.band)
    with pytest.raises(UsageError, match=r"model.pkl takes one column of texts, and homes.parquet has 2 such columns"):
        choose(keep(pipeline), target="band")
    homes[["text", "band"]].to_parquet("homes.parquet")
    exported = export(choose(keep(pipeline), target="band"))
    right = pipeline.predict_proba(homes.text)
    np.testing.assert_allclose(answer("sklearn", exported, here / "s"), right, rtol=1e-6)
    np.testing.assert_allclose(answer("onnxruntime", exported, here / "o"), right, rtol=1e-4)


@pytest.mark.long
def test_a_step_that_no_converter_knows_is_raced_by_scikit_learn_alone(here: Path, homes: pandas.DataFrame):
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import Ridge

    pipeline = fit(homes, Ridge(), "price", HashingVectorizer(n_features=8))
    exported = export(choose(keep(pipeline)))
    assert exported.artifacts == (Artifact.SKLEARN,)
    assert "model.pkl can't be converted to ONNX: MissingShapeCalculator: " in exported.unmade
    np.testing.assert_allclose(answer("sklearn", exported, here / "s")[:, 0], pipeline.predict(homes), rtol=1e-6)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_categories_are_numbered_as_the_library_numbers_them(here: Path, homes: pandas.DataFrame, library: str):
    import lightgbm
    import xgboost

    typed = homes[["area", "city", "rooms"]].assign(city=pandas.Categorical(homes.city, ["Rome", "Berlin", "Paris"]))
    if library == "lightgbm":
        own: Any = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(typed, homes.price)
        own.booster_.save_model("model.txt")
        word = "model.txt"
    else:
        own = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True, n_jobs=1).fit(typed, homes.price)
        word = keep(own)
    exported = export(choose(word, target="price"))
    assert exported.inputs[0].dtype == "float64", "numbers that are rounded may lie on the other side of a threshold"
    assert exported.error_bounds["fp32"] == 1e-5, "runtimes compare what each of them rounds alike"
    for backend in (library, "onnxruntime"):
        np.testing.assert_allclose(answer(backend, exported, here / backend)[:, 0], own.predict(typed), rtol=1e-5)


def _break(homes: pandas.DataFrame, change: Any) -> None:
    change(homes.copy()).to_parquet("homes.parquet")


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        (
            lambda t: t.rename(columns={"area": "aera"}),
            {},
            "no column 'area', which model.pkl takes: rename 'aera', or",
        ),
        (lambda t: t, {"target": "pric"}, "--target 'pric': did you mean 'price'"),
        (lambda t: t[:0], {}, "is a table without rows"),
        (lambda t: t.assign(city=1, text=2), {}, "which are all numbers: write those of texts as texts, in a .parquet"),
        (lambda t: t.assign(area="big"), {}, "those of texts are city, text, area (ValueError"),
        (lambda t: t.assign(rooms=pandas.Timestamp(0)), {}, "column 'rooms' holds dates such as '1970-01-01"),
        (lambda t: t, {"target": "band"}, "--target band holds texts such as 'cheap', and model.pkl gives a number"),
        (lambda t: t, {"target": "area"}, "model.pkl takes: give"),
        (lambda t: t.assign(price=None).astype({"price": float}), {"target": "price"}, "has no value in 300 rows"),
        (lambda t: t, {"target": "price", "labels": "l.npy"}, "--target and --labels both say what is right"),
        (lambda t: t, {"target": "seen"}, "column 'seen' holds dates such as '2026-01-01"),
        (lambda t: t, {"labels": "homes.parquet:price"}, "give the table's own column, as --target price"),
        (lambda t: t, {"data": "homes.npy"}, "expected a detector's data.yaml or a table (.parquet or .csv); arrays"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_a_sentence(
    here: Path, homes: pandas.DataFrame, word: str, change: Any, options: dict[str, str], says: str
):
    _break(homes, change)
    with pytest.raises(UsageError) as caught:
        choose(word, **options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pickle_of_code_that_is_not_there_is_refused_in_a_sentence(here: Path, monkeypatch: pytest.MonkeyPatch):
    import sys

    Path("mine.py").write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(str(here))
    from importlib import import_module

    word = keep(import_module("mine").Mine())
    monkeypatch.delitem(sys.modules, "mine")
    Path("mine.py").unlink()
    with pytest.raises(
        UsageError, match=r"^model.pkl needs the module 'mine': install it, or name its folder in PYTHON"
    ):
        choose(word)


def test_what_takes_no_table_is_refused(here: Path, homes: pandas.DataFrame, word: str):
    import lightgbm

    with pytest.raises(UsageError, match="--data makes the columns of one model, and 2 are given"):
        choose(f"{word},{word}")
    with pytest.raises(
        UsageError, match=r"model.pkl can't take rows of numbers: give columns of texts as a table, with --data"
    ):
        selection.choose(word, {})
    with pytest.raises(UsageError, match="'digits' has no columns"):
        choose("digits")
    lightgbm.train({"verbosity": -1}, lightgbm.Dataset(homes[["rooms"]], homes.price), 1).save_model("a.txt")
    _break(homes, lambda table: table.assign(rooms="many"))
    with pytest.raises(UsageError, match=r"column 'rooms' holds texts such as 'many'; a.txt takes numbers there"):
        choose("a.txt")


def test_a_constant_column_leaves_categories_where_they_are_and_unclear_ones_are_refused(tmp_path: Path):
    import lightgbm

    rng = np.random.default_rng(0)
    zone, area = rng.choice([10, 20, 30], ROWS), rng.uniform(0, 9, ROWS)
    for is_ordered in (False, True):
        typed = pandas.Categorical(zone, ordered=is_ordered)
        table = pandas.DataFrame({"zone": typed, "area": area, "same": 1.0})
        own = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1).fit(table, zone * area)
        own.booster_.save_model(tmp_path / "model.txt")
        facts = open_native(Artifact.LIGHTGBM, tmp_path / "model.txt", 1).facts
        assert facts.levels == ({} if is_ordered else {"zone": [10, 20, 30]})
    told = Table(columns=tuple(TableColumn(name=name, dtype="float64") for name in table.columns))
    with pytest.raises(UsageError, match="numbers the categories of 1 columns, and doesn't say which columns these"):
        choose_columns(told, facts, "model.txt")


@pytest.mark.parametrize("is_pickle", [False, True])
def test_a_wrapper_that_stopped_early_predicts_by_its_best_round(tmp_path: Path, is_pickle: bool):
    import xgboost

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 2)), rng.normal(size=ROWS)
    own: Any = xgboost.XGBRegressor(n_estimators=50, early_stopping_rounds=3, n_jobs=1)
    own.fit(x[:FITTED], y[:FITTED], eval_set=[(x[FITTED:], y[FITTED:])], verbose=False)
    assert own.best_iteration + 1 < own.get_booster().num_boosted_rounds()
    path, made = tmp_path / ("model.pkl" if is_pickle else "model.ubj"), tmp_path / "made"
    made.mkdir()
    if is_pickle:
        path.write_bytes(pickle.dumps(own))
    else:
        own.save_model(path)
    trees.write_converted(Artifact.SKLEARN if is_pickle else Artifact.XGBOOST, path, made)
    native = open_native(Artifact.XGBOOST, made / FILES[Artifact.XGBOOST], 1)
    np.testing.assert_allclose(native.predict(x)[:, 0], own.predict(x), rtol=1e-6)


def test_columns_may_be_called_as_converters_call_outputs_or_not_at_all(here: Path):
    import onnx
    import onnxruntime
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    texts = {name: rng.choice(["u", "v"], ROWS) for name in ("variable", "label", "a", "a/code", "a b")}
    table = pandas.DataFrame({**texts, "": rng.normal(size=ROWS)})
    parts = [("texts", OneHotEncoder(), [*texts])]
    own = make_pipeline(ColumnTransformer(parts, remainder="passthrough"), Ridge()).fit(table, rng.normal(size=ROWS))
    table.to_parquet("odd.parquet")
    study = choose(keep(own), data="odd.parquet")
    file = Path(str(study.model[0]))
    given, kept = dict(np.load(str(study.inputs))), tables.read_beside(file)
    assert kept
    model = onnx.load(file)
    for inputs in (given, kept.arrays(given)):
        session = onnxruntime.InferenceSession(model.SerializeToString())
        np.testing.assert_allclose(session.run(None, inputs)[0][:, 0], own.predict(table), rtol=1e-4)
        if inputs is given:
            cut_lookups(model, kept)


def test_dates_of_a_csv_file_are_texts(here: Path):
    Path("a.csv").write_text("day,price\n2026-01-01,3\n,4\n")
    assert columns.read_columns(Path("a.csv"))["day"] == ["2026-01-01", ""]
