"""Take a model in the file of scikit-learn, LightGBM or XGBoost: convert it to ONNX once, and keep both files together.

`convert_file` gives the ONNX file, which is a user's file like any other from then on. Beside it in the cache lies the
library's own file, for the library itself to run. A file of scikit-learn's is a pickle: reading it runs its code, in
a process of its own. Nothing but what was converted here is ever unpickled.

If a converter can't take the model, a graph of the same input and output stands in for it, and the library alone runs.

The conversion gives the class probabilities, or a regression's value. A label is the largest probability; where two
are equal, libraries choose differently.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.constants import BUILD_TIMEOUT_S, CONVERTED
from shootout.core.contract import Artifact
from shootout.core.errors import ModelError, UsageError, explained, tell_refusal
from shootout.core.exported.model import FILES, sha256
from shootout.core.exported.request import Model, Request, Source, find_model
from shootout.core.host.child import ONE_THREAD, leave_with, run
from shootout.core.host.environment import version_of
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used, open_sealed, sealed, without_home
from shootout.core.install import install
from shootout.models.onnx import CLASSICAL_DOMAIN, ONNX_SUFFIX

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
PACKAGES = ("scikit-learn", "lightgbm", "xgboost", "xgboost-cpu", "skl2onnx", "onnxmltools", "onnx")
"""The packages that decide the conversion."""
FACTS, ERROR = "trees.json", "error.txt"
INPUT, ROWS = "X", "batch"
BOOSTING = {
    "lightgbm": ("LGBM", "onnxmltools.convert.lightgbm.operator_converters.LightGbm"),
    "xgboost": ("XGB", "onnxmltools.convert.xgboost.operator_converters.XGBoost"),
}
"""By library: how the names of its estimators begin, and where their converter is."""
BOOSTING_OPSET = 3
"""The version of ONNX's operators of trees that onnxmltools writes."""
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


class Trees(Source):
    """Files of scikit-learn, LightGBM and XGBoost, each taken as the ONNX file that it is converted to."""

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as a library's own file."""
        return find_library(word) is not None

    def resolve(self, word: str) -> str:
        """Return the ONNX file; see `convert_file`."""
        return convert_file(word)

    def model(self, word: str) -> Model:
        """Return what is known of the ONNX file."""
        return find_model(convert_file(word))

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request for the ONNX file; see `Source.check`."""
        made = replace(request, model=convert_file(request.model))
        return made.source.check(made, known)


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


def convert_file(name: str) -> str:
    """Return the ONNX file that a library's own file is converted to, once for each place and content.

    Raises:
        UsageError: the file can't be read, or a package is missing.
        ModelError: it can't be converted.
    """
    path, artifact = Path(name).expanduser().absolute(), find_library(name)
    assert artifact, "only a library's own file comes here"
    try:
        content = sha256(path)
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    made_by = json.dumps([content, str(path), artifact, own, *map(version_of, PACKAGES)])
    place = cache_folder() / f"{CONVERTED}{hashlib.sha256(made_by.encode()).hexdigest()[:32]}"
    if not place.exists():
        _convert_apart(path, artifact, place)
    mark_used(place)
    return str(place / f"{path.name}{ONNX_SUFFIX}")


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


def _convert_apart(path: Path, artifact: Artifact, place: Path) -> None:
    with Scratch(cache_folder()) as made:
        ended = run("shootout.models.sources.trees", [artifact, path, made], BUILD_TIMEOUT_S, ONE_THREAD)
        if (told := made / ERROR).exists():
            raise UsageError(told.read_text(encoding="utf-8"))
        if not (made / FACTS).exists():
            raise ModelError(f"converting {path.name} to ONNX failed: {ended.how}")
        if not place.exists():
            made.rename(place)


def main() -> None:
    """Convert one file into a folder; what is wrong with it becomes one line in `ERROR`."""
    artifact, path, folder = Artifact(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    leave_with(int(sys.argv[4]))
    try:
        write_converted(artifact, path, folder)
    except ModuleNotFoundError as error:
        (folder / ERROR).write_text(f"{path.name} needs {error.name}: {install('trees')}", encoding="utf-8")
    except ModelError as error:
        (folder / ERROR).write_text(str(error), encoding="utf-8")
    except Exception as error:
        traceback.print_exc()
        told = f"{artifact} can't read or run {path.name}: {explained(error)}"
        (folder / ERROR).write_text(told, encoding="utf-8")


def write_converted(artifact: Artifact, path: Path, folder: Path) -> None:
    """Convert a file into a folder: the ONNX file, the library's own, and the facts of both."""
    import onnx

    from shootout.models.native_trees import open_native

    artifact = _write_native(artifact, path, folder)
    native = open_native(artifact, folder / FILES[artifact], 1, path.name)
    file = folder / f"{path.name}{ONNX_SUFFIX}"
    try:
        onnx.save(_keep_scores(_CONVERTERS[artifact](native.model, native.features)), file)
        unmade = ""
    except ModuleNotFoundError:
        raise
    except Exception as error:  # of a converter that doesn't know this model, or of its own
        traceback.print_exc()
        unmade = explained(error)
    if unmade:
        unmade = f"{path.name} can't be converted to ONNX: {unmade}"
        onnx.save(_make_stand_in(native), file)
    files = {one.name: sha256(one) for one in folder.iterdir()}
    facts = {"artifact": artifact, "files": files, "unmade": unmade, "source": str(path)}
    (folder / FACTS).write_text(sealed(facts), encoding="utf-8")


def _make_stand_in(native: NativeModel) -> ModelProto:
    """Make a graph with the model's input and output, which nothing runs for it."""
    from onnx import TensorProto, helper

    columns = native.predict(np.zeros((1, native.features), np.float32)).shape[1]
    given = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [ROWS, native.features])
    wanted = helper.make_tensor_value_info(SCORES[0 if columns > 1 else 1], TensorProto.FLOAT, [ROWS, columns])
    nodes = [
        helper.make_node("ReduceSum", [INPUT, "axis"], ["sum"], keepdims=1),
        helper.make_node("Tile", ["sum", "counts"], [wanted.name]),
    ]
    stored = [
        helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
        helper.make_tensor("counts", TensorProto.INT64, [2], [1, columns]),
    ]
    graph = helper.make_graph(nodes, "stand-in", [given], [wanted], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", STAND_IN_OPSET)], ir_version=STAND_IN_IR)


def _write_native(artifact: Artifact, path: Path, folder: Path) -> Artifact:
    """Put the library's own file into the folder, and return whose it is: a pickle may hold any library's wrapper."""
    if artifact is Artifact.XGBOOST:
        import xgboost

        xgboost.Booster(model_file=str(path)).save_model(folder / FILES[artifact])
        return artifact
    if artifact is Artifact.SKLEARN:
        import joblib

        model: Any = joblib.load(path)
        library = type(model).__module__.partition(".")[0]
        if library == Artifact.LIGHTGBM:
            model.booster_.save_model(folder / FILES[Artifact.LIGHTGBM])
            return Artifact.LIGHTGBM
        if library == Artifact.XGBOOST:
            model.get_booster().save_model(folder / FILES[Artifact.XGBOOST])
            return Artifact.XGBOOST
    shutil.copyfile(path, folder / FILES[artifact])
    return artifact


def _keep_scores(model: ModelProto) -> ModelProto:
    """Return the model with its scores alone, and with a batch that is called so."""
    kept = [one for one in model.graph.output if one.name in SCORES] or list(model.graph.output)[-1:]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = ROWS
    return model


def _convert_sklearn(estimator: Any, features: int) -> ModelProto:
    """Convert an estimator, with those of XGBoost and LightGBM inside it.

    Scalers divide, as scikit-learn does: to multiply by the inverse moves rows across the thresholds behind them.
    """
    from skl2onnx import get_latest_tested_opset_version, to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.preprocessing import MaxAbsScaler, RobustScaler, StandardScaler

    _register_boosting()
    estimator = _by_numbers(estimator)
    options: dict[Any, Any] = {scaler: {"div": "div"} for scaler in (MaxAbsScaler, RobustScaler, StandardScaler)}
    if hasattr(estimator, "predict_proba"):
        options[id(estimator)] = {"zipmap": False}
    with _writing_whole_numbers():
        found: ModelProto = to_onnx(
            estimator,
            initial_types=[(INPUT, FloatTensorType([None, features]))],
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


def _convert_lightgbm(booster: Any, features: int) -> ModelProto:
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    inputs = [(INPUT, FloatTensorType([None, features]))]
    found: ModelProto = convert_lightgbm(booster, initial_types=inputs, zipmap=False)
    return found


def _convert_xgboost(booster: Any, features: int) -> ModelProto:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    found: ModelProto = convert_xgboost(booster, initial_types=[(INPUT, FloatTensorType([None, features]))])
    return found


_CONVERTERS = {
    Artifact.SKLEARN: _convert_sklearn,
    Artifact.LIGHTGBM: _convert_lightgbm,
    Artifact.XGBOOST: _convert_xgboost,
}

if __name__ == "__main__":
    main()
