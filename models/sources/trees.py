"""Take a model in the file of scikit-learn, LightGBM or XGBoost: convert it to ONNX once, and keep both files together.

`Trees.convert` gives the ONNX file, which is a user's file like any other from then on. Beside it in the cache lies the
library's own file, for the library itself to run. A file of scikit-learn's is a pickle: reading it runs its code, in
a process of its own. Nothing but what was converted here is ever unpickled.

If a converter can't take the model, a graph of the same input and output stands in for it, and the library alone runs.

The conversion gives the class probabilities, or a regression's value. A label is the largest probability; where two
are equal, libraries choose differently.

For a table, a reader describes its columns beside a link to the file. The ONNX file then takes float64, as pandas has
it, and rounds it first: a library that compares in float64 would send rounded numbers another way. If some columns are
texts, each column is an input. Texts come as codes, which the first nodes look up; a runtime that takes texts leaves
these nodes out.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.constants import CONVERTED
from shootout.core.contract import Array, Arrays, Artifact
from shootout.core.errors import ShootoutError, UsageError, explained
from shootout.core.exported.model import FILES, sha256
from shootout.core.host.child import leave_with
from shootout.core.host.environment import version_of
from shootout.core.host.store import cache_folder, mark_used, open_sealed, sealed, without_home
from shootout.core.install import install
from shootout.models.data import tables
from shootout.models.data.tables import Table
from shootout.models.native_trees import FACTS, choose_columns, open_native
from shootout.models.onnx import CLASSICAL_DOMAIN, ONNX_SUFFIX, lookups
from shootout.models.source import hash_file
from shootout.models.sources.converted import ERROR, ConvertedSource, convert_once, hash_code

if TYPE_CHECKING:
    from onnx import ModelProto

    from shootout.models.native_trees import NativeModel

KINDS = {
    ".joblib": Artifact.SKLEARN,
    ".pkl": Artifact.SKLEARN,
    ".pickle": Artifact.SKLEARN,
    ".txt": Artifact.LIGHTGBM,
    ".ubj": Artifact.XGBOOST,
}
"""The library of a file by its ending; XGBoost's .json is told from other JSON by its first key."""
JSON, FIRST_KEY, FIRST_BYTES = ".json", b'"learner"', 64
MODULE = "shootout.models.sources.trees"
PACKAGES = ("scikit-learn", "lightgbm", "xgboost", "xgboost-cpu", "skl2onnx", "onnxmltools", "onnx")
"""The packages that decide the conversion."""
LIBRARIES = ("sklearn", "joblib", "lightgbm", "xgboost", "skl2onnx", "onnxmltools", "onnx")
"""The modules of the extra; a pickle may need others, such as a user's own."""
INPUT, ROWS = "X", "batch"
BOOSTING = {
    "lightgbm": ("LGBM", "onnxmltools.convert.lightgbm.operator_converters.LightGbm"),
    "xgboost": ("XGB", "onnxmltools.convert.xgboost.operator_converters.XGBoost"),
}
"""By library: how the names of its estimators begin, and where their converter is."""
BOOSTING_OPSET = 3
"""The version of ONNX's operators of trees that onnxmltools writes."""
LOCALE = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
"""The locale by which ONNX Runtime writes texts small: few containers have the one that it takes by itself."""
STAND_IN_OPSET, STAND_IN_IR = 17, 8
SCORES = ("probabilities", "variable")
"""The converters' names of the output that is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedFile:
    """Hold the library's own file behind a converted one.

    Attributes:
        unmade: why the ONNX file only stands in for a conversion; "" if it is one.
    """

    artifact: Artifact
    file: Path
    unmade: str = ""


class Trees(ConvertedSource):
    """Files of scikit-learn, LightGBM and XGBoost, each taken as the ONNX file that it is converted to."""

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as a library's own file."""
        return find_library(word) is not None

    def convert(self, word: str) -> str:
        """Return the ONNX file; see `ConvertedSource.convert`."""
        path, artifact = Path(word).expanduser().absolute(), find_library(word)
        assert artifact, "only a library's own file comes here"
        own = hash_code(__file__, lookups.__file__)
        content, table = hash_file(path), sha256(path.parent / tables.COLUMNS) if _find_table(path) else ""
        made_by = [content, artifact, own, table, *map(version_of, PACKAGES)]
        return convert_once(path, made_by, MODULE, [artifact, path], {}, f"converting {path.name} to ONNX failed: it")


def find_library(name: str) -> Artifact | None:
    """Return whose file this is meant as; None for other models."""
    path = Path(name)
    if path.suffix != JSON:
        return KINDS.get(path.suffix)
    try:
        with path.expanduser().open("rb") as file:
            return Artifact.XGBOOST if FIRST_KEY in file.read(FIRST_BYTES) else None
    except OSError:
        return None


def is_converted(path: Path) -> bool:
    """Return whether an ONNX file was converted here."""
    return path.parent.parent == cache_folder() and path.parent.name.startswith(CONVERTED)


def find_typed(model: str) -> str:
    """Return the library's own file that a model was converted from, if both are still there; else the model."""
    if not is_converted(Path(model)):
        return model
    try:
        source = str(open_sealed(Path(model).parent / FACTS).get("source", ""))
    except (OSError, ValueError):  # the cache was emptied since
        return model
    return without_home(source) if Path(source).is_file() else model


def open_converted(path: Path) -> ConvertedFile | None:
    """Return the library's own file that an ONNX file was converted from here; None if no backend runs such a file.

    Raises:
        UsageError: it was changed since.
    """
    folder = path.parent
    if not is_converted(path):
        return None
    facts = open_sealed(folder / FACTS)
    if any(sha256(folder / name) != digest for name, digest in facts["files"].items()):
        raise UsageError(f"{path.name} was changed after it was converted: remove {folder} and run again")
    mark_used(folder)
    if "artifact" not in facts:
        return None
    artifact = Artifact(facts["artifact"])
    return ConvertedFile(artifact=artifact, file=folder / FILES[artifact], unmade=facts["unmade"])


def _find_table(path: Path) -> Table | None:
    """Return the columns that a reader has described beside a link to a model's file; None for the file itself."""
    return tables.read_beside(path) if path.parent.parent == cache_folder() else None


def main() -> None:
    """Convert one file into a folder; what is wrong with it becomes one line in `ERROR`."""
    artifact, path, folder = Artifact(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    leave_with(int(sys.argv[4]))
    try:
        write_converted(artifact, path, folder)
    except Exception as error:
        (folder / ERROR).write_text(_tell_fault(artifact, path.name, error), encoding="utf-8")


def _tell_fault(artifact: Artifact, name: str, error: Exception) -> str:
    """Tell what is wrong with a user's file, or with what it needs here."""
    if isinstance(error, ModuleNotFoundError):
        needed = str(error.name).partition(".")[0]
        fix = install("trees") if needed in LIBRARIES else "install it, or name its folder in PYTHONPATH"
        return f"{name} needs the module {needed!r}: {fix}"
    if isinstance(error, ShootoutError):
        return str(error)
    traceback.print_exc()
    if isinstance(error, AttributeError) and (lost := re.match(r"Can't get attribute '(\w+)' on", str(error))):
        return (
            f"{name} needs {lost[1]!r} of the program that fitted it: put that into a module of its own, fit again, "
            "and name the module's folder in PYTHONPATH"
        )
    return f"{artifact} can't read or run {name}: {explained(error)}"


def write_converted(artifact: Artifact, path: Path, folder: Path) -> None:
    """Convert a file into a folder: the ONNX file, the library's own, the columns of texts, and the facts of all."""
    import onnx

    artifact, classes = _write_native(artifact, path, folder)
    native, given = open_native(artifact, folder / FILES[artifact], 1, path.name), _find_table(path)
    chosen = choose_columns(given, native.facts, path.name) if given else None
    table = chosen if chosen and chosen.has_texts and artifact is Artifact.SKLEARN else None
    if table:
        table.write(folder)
        native = open_native(artifact, folder / FILES[artifact], 1, path.name)
    row = _make_row(native, table, np.float64 if given else np.float32)
    columns = _count_outputs(native, row, path.name, chosen)
    file = folder / f"{path.name}{ONNX_SUFFIX}"
    try:
        onnx.save(_keep_scores(_convert(artifact, native, table, is_wide=bool(given))), file)
        unmade = ""
    except ModuleNotFoundError:
        raise
    except Exception as error:  # of a converter that doesn't know this model, or of its own
        traceback.print_exc()
        unmade = explained(error)
    if unmade:
        unmade = f"{path.name} can't be converted to ONNX: {unmade}"
        onnx.save(_make_stand_in(row, columns), file)
    facts = {
        "artifact": artifact,
        "files": {one.name: sha256(one) for one in folder.iterdir()},
        "unmade": unmade,
        "source": str(path.readlink() if given else path),
        "native": asdict(replace(native.facts, classes=classes or native.facts.classes)),
    }
    (folder / FACTS).write_text(sealed(facts), encoding="utf-8")


def _make_row(native: NativeModel, table: Table | None, dtype: type[np.floating[Any]]) -> dict[str, Array]:
    """Make a row of zeros, and of the first text of each column of texts."""
    if not table:
        return {INPUT: np.zeros((1, native.facts.features), dtype)}
    return {one.input: np.zeros((1, 1), dtype if one.dtype else np.int64) for one in table.columns}


def _count_outputs(native: NativeModel, row: Arrays, name: str, given: Table | None) -> int:
    """Return how many numbers a model gives for a row.

    Raises:
        UsageError: the model can't take it.
    """
    try:
        return int(native.predict(native.stage(row)).shape[1])
    except Exception as error:
        traceback.print_exc()
        what = "rows of numbers: give columns of texts as a table, with --data table.parquet"
        if given:
            what = f"the columns of {given.file}, which are all numbers: write those of texts as texts, in a .parquet"
        if given and given.has_texts:
            texts = ", ".join(one.name for one in given.columns if not one.dtype)
            what = f"the columns of {given.file}; those of texts are {texts}"
        raise UsageError(f"{name} can't take {what} ({explained(error)})") from error


def _make_stand_in(row: Arrays, columns: int) -> ModelProto:
    """Make a graph with a model's inputs and output, which nothing runs for it."""
    from onnx import TensorProto, helper

    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), [ROWS, one.shape[1]])
        for name, one in row.items()
    ]
    wanted = helper.make_tensor_value_info(SCORES[0 if columns > 1 else 1], TensorProto.FLOAT, [ROWS, columns])
    nodes = [
        helper.make_node("Cast", [given[0].name], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers", "axis"], ["sum"], keepdims=1),
        helper.make_node("Tile", ["sum", "counts"], [wanted.name]),
    ]
    stored = [
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("counts", TensorProto.INT64, [2], [1, columns]),
    ]
    graph = helper.make_graph(nodes, "stand-in", given, [wanted], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", STAND_IN_OPSET)], ir_version=STAND_IN_IR)


def _convert(artifact: Artifact, native: NativeModel, table: Table | None, *, is_wide: bool) -> ModelProto:
    """Convert a model to ONNX, in which texts are looked up by their codes.

    Args:
        table: its columns if some are texts; None: it takes one array.
        is_wide: the array is float64, as tables are.
    """
    if not table:
        found = _CONVERTERS[artifact](native.model, {INPUT: native.facts.features})
        if is_wide:
            lookups.widen_input(found)
        return found
    estimator = _as_graphs_need(native.model, table)
    made = _convert_sklearn(estimator, {one.graph: int(bool(one.dtype)) for one in table.columns})
    lookups.add_lookups(made, table)
    return made


def _write_native(artifact: Artifact, path: Path, folder: Path) -> tuple[Artifact, tuple[Any, ...]]:
    """Put the library's own file into the folder; return whose it is, since a pickle may hold any library's wrapper.

    Returns:
        The library, and the classes that such a wrapper knows and the file doesn't.
    """
    if artifact is Artifact.XGBOOST:
        import xgboost

        booster = xgboost.Booster(model_file=str(path))
        is_wrapper = booster.attr("scikit_learn") is not None
        (_cut_early(booster) if is_wrapper else booster).save_model(folder / FILES[artifact])
    elif artifact is Artifact.SKLEARN and (found := _write_wrapped(path, folder)):
        return found
    else:
        shutil.copyfile(path, folder / FILES[artifact])
    return artifact, ()


def _write_wrapped(path: Path, folder: Path) -> tuple[Artifact, tuple[Any, ...]] | None:
    """Write the booster in a pickled wrapper of LightGBM's or XGBoost's; return None for an estimator of its own."""
    import joblib

    model: Any = joblib.load(path)
    library = type(model).__module__.partition(".")[0]
    if library not in BOOSTING:
        return None
    artifact = Artifact(library)
    booster = model.booster_ if artifact is Artifact.LIGHTGBM else _cut_early(model.get_booster())
    booster.save_model(folder / FILES[artifact])
    return artifact, tuple(model.classes_.tolist()) if hasattr(model, "classes_") else ()


def _cut_early(booster: Any) -> Any:
    """Return XGBoost's trees up to the best round, by which its wrappers predict if they stopped early."""
    best = booster.attr("best_iteration")
    is_linear = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"] == "gblinear"
    return booster if best is None or is_linear else booster[: int(best) + 1]


def _keep_scores(model: ModelProto) -> ModelProto:
    """Return the model with its scores alone, and with a batch that is called so."""
    kept = [one for one in model.graph.output if one.name in SCORES] or list(model.graph.output)[-1:]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = ROWS
    return model


def _convert_sklearn(estimator: Any, inputs: Mapping[str, int]) -> ModelProto:
    """Convert an estimator, with those of XGBoost and LightGBM inside it.

    Args:
        inputs: how many numbers a row of each has; 0 for a text.

    Scalers divide, as scikit-learn does: to multiply by the inverse moves rows across the thresholds behind them.
    """
    from skl2onnx import get_latest_tested_opset_version, to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.preprocessing import MaxAbsScaler, RobustScaler, StandardScaler

    _register_boosting()
    estimator = _by_numbers(estimator) if INPUT in inputs else estimator
    options: dict[Any, Any] = {scaler: {"div": "div"} for scaler in (MaxAbsScaler, RobustScaler, StandardScaler)}
    options |= {counter: {"locale": LOCALE} for counter in (CountVectorizer, TfidfVectorizer)}
    if hasattr(estimator, "predict_proba"):
        options[id(estimator)] = {"zipmap": False}
    with _writing_whole_numbers():
        found: ModelProto = to_onnx(
            estimator,
            initial_types=[
                (name, FloatTensorType([None, width]) if width else StringTensorType([None, 1]))
                for name, width in inputs.items()
            ],
            options=options,
            target_opset={"": get_latest_tested_opset_version(), CLASSICAL_DOMAIN: BOOSTING_OPSET},
        )
    return found


def _by_numbers(estimator: Any) -> Any:
    """Return the estimator with columns by number where its first step selects them by name: the input is one array."""
    names = [*getattr(estimator, "feature_names_in_", ())]
    found = deepcopy(estimator) if names else estimator
    first = found.steps[0][1] if names and hasattr(found, "steps") else found
    if names and hasattr(first, "transformers_"):
        first.transformers_ = [(name, one, _find_numbers(some, names)) for name, one, some in first.transformers_]
    return found


def _as_graphs_need(estimator: Any, table: Table) -> Any:
    """Return the estimator with the names that a graph has for columns and for a missing text."""
    from sklearn.base import BaseEstimator
    from sklearn.impute import SimpleImputer

    found, waiting, names = deepcopy(estimator), list[Any](), {one.name: one.graph for one in table.columns}
    waiting.append(found)
    while waiting:
        one = waiting.pop()
        if isinstance(one, SimpleImputer) and getattr(one, "statistics_", np.zeros(0)).dtype == object:
            one.missing_values = tables.GAP
        if hasattr(one, "transformers_"):
            one.transformers_ = [(name, part, _rename(some, names)) for name, part, some in one.transformers_]
        if isinstance(one, BaseEstimator | list | tuple):
            waiting.extend(vars(one).values() if isinstance(one, BaseEstimator) else one)
    return found


def _rename(columns: Any, names: Mapping[str, str]) -> Any:
    """Return columns that are given by name with other names."""
    if isinstance(columns, str):
        return names.get(columns, columns)
    is_several = isinstance(columns, list | np.ndarray)
    return [names.get(one, one) if isinstance(one, str) else one for one in columns] if is_several else columns


def _find_numbers(columns: Any, names: list[str]) -> Any:
    """Return the numbers of columns that are given by name."""
    some = [columns] if isinstance(columns, str) else columns
    is_named = isinstance(some, list | np.ndarray) and all(isinstance(one, str) for one in some)
    return [names.index(one) for one in some] if is_named else columns


def _register_boosting() -> None:
    """Teach skl2onnx the estimators of the two other libraries, as far as they are installed."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator as shapes

    zipmap = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    kinds = {
        "Classifier": (shapes.calculate_linear_classifier_output_shapes, zipmap),
        "Regressor": (shapes.calculate_linear_regressor_output_shapes, None),
    }
    for library, (start, place) in BOOSTING.items():
        if not (find_spec(library) and find_spec("onnxmltools")):
            continue
        convert = getattr(import_module(place), f"convert_{library}")
        for kind, (calculator, options) in kinds.items():
            estimator = getattr(import_module(library), f"{start}{kind}")
            update_registered_converter(estimator, estimator.__name__, calculator, convert, options=options)


@contextmanager
def _writing_whole_numbers() -> Iterator[None]:
    """Let skl2onnx write booleans among whole numbers, as it does for histogram boosting: ONNX 1.23 refuses them."""
    from skl2onnx.common import _container

    make = _container.make_node

    def make_node(*names: Any, **attributes: Any) -> Any:
        for name, value in attributes.items():
            if type(value) is list:
                attributes[name] = [int(one) if isinstance(one, bool | np.bool_) else one for one in value]
        return make(*names, **attributes)

    _container.make_node = make_node
    try:
        yield
    finally:
        _container.make_node = make


def _convert_lightgbm(booster: Any, inputs: Mapping[str, int]) -> ModelProto:
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    given = [(INPUT, FloatTensorType([None, inputs[INPUT]]))]
    found: ModelProto = convert_lightgbm(booster, initial_types=given, zipmap=False)
    return found


def _convert_xgboost(booster: Any, inputs: Mapping[str, int]) -> ModelProto:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    found: ModelProto = convert_xgboost(booster, initial_types=[(INPUT, FloatTensorType([None, inputs[INPUT]]))])
    return found


_CONVERTERS = {
    Artifact.SKLEARN: _convert_sklearn,
    Artifact.LIGHTGBM: _convert_lightgbm,
    Artifact.XGBOOST: _convert_xgboost,
}

if __name__ == "__main__":
    main()
