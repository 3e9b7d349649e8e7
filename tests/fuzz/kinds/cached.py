"""What the cache notes of exported models, builds and this machine, changed after it was written: none of it is
believed.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shootout.build.builder import Workshop
from shootout.contract import Arm, Target
from shootout.errors import ModelError
from shootout.exported.model import MANIFEST, ExportedModel, open_exported
from shootout.host import store
from shootout.host.placement import Placement
from shootout.host.store import sealed
from tests.fuzz.edits import as_json, edited_bytes, edited_values

ARM = Arm(target=Target(backend="numpy"), model="m")
MODEL: Any = SimpleNamespace(key="k")
KEY = "0" * 64


@cache
def _wholes() -> tuple[bytes, ...]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _exported(Path(folder)).seal()
        manifest = (Path(folder) / MANIFEST).read_bytes()
    build = {"facts": {"notes": ["x"]}, "build_s": 0.5, "probe": "fp32", "files": {}}
    floors = {"this machine": 0.01, "": 0.0}
    return manifest, sealed(build).encode(), sealed(floors).encode()


def _exported(folder: Path) -> ExportedModel:
    facts: dict[str, Any] = {
        "parameters": {"d": 1},
        "error_bounds": {"fp32": 1e-5, "fp16": None},
        "versions": {"numpy": "2"},
    }
    none: dict[str, Any] = {"inputs": (), "outputs": (), "artifacts": ()}
    return ExportedModel(
        folder=folder, key=KEY, model="m", batch=1, parameter_count=1, weights_sha256="0", export_s=1.0, **facts, **none
    )


def inputs() -> SearchStrategy[bytes]:
    whole = [json.loads(one) for one in _wholes()]
    return st.one_of(edited_bytes(_wholes()), edited_values(whole).map(as_json))


def read(data: bytes, folder: Path) -> None:
    """As an exported model's, a build's and a machine's; what is taken must be what was written, to the last value."""
    written = [open_content(one) for one in _wholes()]
    taken = list(
        filter(None, (_as_exported(data, folder / "b"), _as_build(data, folder / "c"), _as_facts(data, folder)))
    )
    assert not taken or open_content(data) in written, "a changed file is believed"
    if not taken:
        raise ModelError("none of it is believed")


def open_content(data: bytes) -> Any:
    """What stands in such a file, the hash apart."""
    content = json.loads(data)
    content.pop("sha256", None)
    return json.dumps(content, sort_keys=True)


def _as_exported(data: bytes, folder: Path) -> bool:
    folder.mkdir()
    (folder / MANIFEST).write_bytes(data)
    try:
        open_exported(folder)
    except ModelError:
        return False
    return True


def _as_build(data: bytes, folder: Path) -> bool:
    (folder / "built.json").parent.mkdir()
    (folder / "built.json").write_bytes(data)
    nowhere = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
    shop = Workshop(cache=folder, placement=nowhere, probes={}, machine="this", logs=folder)
    return shop._kept(folder, ARM, MODEL) is not None


def _as_facts(data: bytes, folder: Path) -> bool:
    with patch.dict(os.environ, {"SHOOTOUT_CACHE": str(folder)}):
        (folder / store._BIAS_FLOOR).write_bytes(data)
        store.bias_floor()
        return bool(store.read_facts(store._BIAS_FLOOR))
