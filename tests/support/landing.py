"""Folders of contenders that race where they land, made by hand: plain functions, or whole shipped folders."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from shootout.apps.ship.folder import check_text
from shootout.apps.ship.landing import list_factors, program_text
from shootout.backends.shipped import EXPECTED, INPUTS, SCHEMA
from shootout.core.exported.model import save_sets

SPEC = [{"name": "x", "dtype": "float32", "shape": [4]}], [{"name": "y", "dtype": "float32", "shape": [4]}]
RIGHT = "{'y': 2 * inputs['x']}"
LOAD = """import json, os, signal, sys, time
from pathlib import Path
PLACE = Path(__file__).resolve().parent
RUNTIME = json.loads((PLACE / "runtime.json").read_text())
RUNTIME.update(globals().get("ADAPTED", {{}}))
os.environ.update(RUNTIME["environment"])
calls = 0
def load():
    {on_load}
def predict(inputs):
    global calls
    calls += 1
    {on_call}
    return {answer}
"""


def digest(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def plant(
    folder: Path,
    on_call: str = "pass",
    on_load: str = "pass",
    answer: str = RIGHT,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Write a contender whose load.py does what a test wants."""
    (folder / "evidence").mkdir(parents=True)
    sets = [np.arange(4, dtype=np.float32) + number for number in range(2)]
    save_sets(folder / INPUTS, [{"x": one} for one in sets])
    save_sets(folder / EXPECTED, [{"y": 2 * one} for one in sets])
    (folder / "load.py").write_text(LOAD.format(on_call=on_call, on_load=on_load, answer=answer))
    (folder / "check.py").write_text(check_text())
    runtime = {"threads": 2, "environment": environment or {}, "options": {"intra_threads": "2"}}
    (folder / "runtime.json").write_text(json.dumps(runtime))
    files = {path.relative_to(folder).as_posix(): digest(path) for path in folder.rglob("*") if path.is_file()}
    facts = {"arm": {"label": folder.name}, "inputs": SPEC[0], "outputs": SPEC[1], "error_limit": 1e-5, "mismatches": 0}
    manifest = {"schema": SCHEMA, "files": files, **facts, "needs": {"isa": []}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def finish(
    folder: Path, names: Sequence[str], packages: Mapping[str, Sequence[str]] = MappingProxyType({}), **facts: Any
) -> Path:
    """Write the two programs and landing.json over the contenders; the first one is the safe one."""
    for template, name in {"landing_load.txt": "load.py", "choose.txt": "choose.py"}.items():
        (folder / name).write_text(program_text(template))
    contenders = []
    for name in names:
        one = {"name": name, "folder": f"contenders/{name}", "precision": "fp32"}
        contenders.append({**one, "packages": packages.get(name, ["numpy"])})
    sealed = ["load.py", "choose.py", *(f"contenders/{name}/manifest.json" for name in names)]
    landing = {
        "schema": "shootout.landing/1",
        "threads": 1,
        "limit_s": 60.0,
        "floor": 0.005,
        **list_factors(5),
        "safe": names[0],
        "packages": {"numpy": np.__version__},
        "files": {name: digest(folder / name) for name in sealed},
        "contenders": contenders,
    }
    (folder / "landing.json").write_text(json.dumps({**landing, **facts}))
    return folder


def land(folder: Path, plans: Mapping[str, Mapping[str, Any]], **facts: Any) -> Path:
    """Write a folder of planted contenders, each with the arguments of `plant`."""
    for name, plan in plans.items():
        plant(folder / "contenders" / name, **plan)
    return finish(folder, list(plans), **facts)


def take(landed: Path, source: Path, name: str) -> str:
    """Take a shipped folder as a contender; return its name."""
    shutil.copytree(source, landed / "contenders" / name)
    return name
