"""Study files: shipped ones with edits, and tables of values that TOML can hold."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shootout.study import points, schema
from shootout.study.schema import Study
from tests.fuzz.edits import as_json, edited_bytes, edited_text, edited_values

WORDS = (
    *Study.model_fields,
    *(
        " = ",
        "[",
        "]",
        "[[points]]",
        "[parameters]",
        "[crossover]",
        "axis = 'batch'",
        "'numpy:cpu:int8/shared'",
        "1..8",
        '"all"',
    ),
    *(
        "'*'",
        "'onnxruntime:cpu:*'",
        "@old",
        "/nncf",
        "+aoti",
        "2**3",
        "true",
        "1e999",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "0x10",
    ),
)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(one.read_text() for one in sorted((files("shootout") / "studies").iterdir(), key=lambda one: one.name))


@cache
def _tables() -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads(text) for text in _texts())


def inputs() -> SearchStrategy[bytes]:
    text = edited_text(_texts(), WORDS).map(lambda one: one.encode(errors="surrogatepass"))
    raw = edited_bytes([one.encode() for one in _texts()])
    return st.one_of(text, text, raw, edited_values(_tables()).map(as_json))


def read(data: bytes, folder: Path) -> None:
    """As `shootout run FILE` reads it, up to its cells."""
    try:
        table = json.loads(data)
    except ValueError:
        table = None
    if isinstance(table, dict):
        study = schema.checked({"name": "s", **table}, "fuzz")
    else:
        file = folder / "study.toml"
        file.write_bytes(data)
        study = schema.load(str(file))
    points.targets_of(study)
    points.points(study)
