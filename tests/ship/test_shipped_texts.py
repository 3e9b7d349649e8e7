"""A pipeline with columns of texts is shipped: its folder takes the columns as an application has them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest
from support.races.shipping import source_of

from shootout.apps.ship.folder import write_folder
from shootout.commands import selection
from shootout.commands.ship import check_folder
from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.exported.client import Request, obtain

ROWS = 200
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import load
np = load.np
load.load()
def ask(**columns):
    try:
        return load.predict({name: np.array(value) for name, value in columns.items()})["variable"].item()
    except ValueError as error:
        return str(error)
found = [ask(**call) for call in json.loads(sys.argv[2])]
strangers = {"shootout", "pandas", "sklearn", "onnx"} & set(sys.modules)
assert not strangers, strangers
print(json.dumps(found))
"""


@pytest.mark.long
def test_a_folder_takes_columns_by_name_and_texts_that_the_table_never_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    city = rng.choice(["Lima", "Oslo", "Rome"], ROWS).astype(object)
    city[::10] = None
    note = [" ".join(rng.choice(["sunny", "quiet", "noisy", "old"], 6)) for _ in range(ROWS)]
    homes = pandas.DataFrame({"city": city, "area": rng.uniform(20, 200, ROWS).round(1), "note": note})
    homes.to_parquet("homes.parquet")
    encoder = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    parts = [("city", encoder, ["city"]), ("area", "passthrough", ["area"]), ("note", TfidfVectorizer(), "note")]
    price = homes.area + 90 * (homes.city == "Oslo") - 30 * homes.note.str.contains("noisy")
    pipeline = make_pipeline(ColumnTransformer(parts), Ridge()).fit(homes, price)
    Path("model.pkl").write_bytes(pickle.dumps(pipeline))

    study = selection.choose("model.pkl", {"data": "homes.parquet"})
    exported = obtain(Request(model=str(study.model[0]), batch=1, inputs_npz=Path(str(study.inputs))))
    arm = Arm(model=exported.model, target=Target(backend="onnxruntime"), threads=1)
    Path("built").mkdir()
    built = backends.get("onnxruntime").build(exported, arm, Path("built"))
    shipped = write_folder(source_of(arm), built, tmp_path / "folder")
    assert "onnxruntime:cpu:fp32: relative L2 error" in check_folder(shipped)
    again = replace(built, arm=replace(arm, target=replace(arm.target, folder=str(shipped.folder))))
    mine, theirs = backends.get("onnxruntime").load(built), backends.runner(again.arm.target).load(again)
    table = np.load(str(study.inputs))
    for row in range(ROWS):
        inputs = {name: table[name][row : row + 1] for name in table.files}
        right, found = (one.fetch(one.execute(one.stage(inputs, 0)))["variable"] for one in (mine, theirs))
        np.testing.assert_array_equal(found, right, strict=True)
    assert shipped.find_other_shapes(arm, exported) is None
    codes_alone = shipped.find_other_shapes(arm, replace(exported, folder=tmp_path))
    assert codes_alone
    assert "takes a table's columns by their names" in codes_alone.reason
    stored = json.loads((shipped.folder / "runtime.json").read_text())["options"]["columns"]
    assert 1 < len(stored["note/code"][1]) < len({*note}), "texts of the table stay here, but for those of check.py"

    known = [homes.iloc[[1]], homes.iloc[[0]], homes.iloc[[2]].assign(city="Pune", note="a cellar, quiet")]
    calls = [{name: one[name].tolist() for name in one} for one in known]
    bad = [{**calls[0], "area": ["90"]}, {**calls[0], "city": [3]}, {"city": ["Oslo"], "area": [[90]]}]
    words = [sys.executable, "-I", "-c", ASK, str(shipped.folder), json.dumps([*calls, *bad])]
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *answers, text, number, none = json.loads(done.stdout)
    np.testing.assert_allclose(answers, [pipeline.predict(one)[0] for one in known], rtol=1e-5)
    assert text == "'area': made for 1 numbers, got <U2 (1,)"
    assert number == "'city': made for 1 texts, got 3"
    assert none == "'note': made for 1 texts, got nothing"
