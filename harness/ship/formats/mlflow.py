"""An MLflow model of the flavour `python_function`: the shipped folder whole, and a module that calls its `load.py`."""

from __future__ import annotations

import json
import platform
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shootout.contract import TensorSpec
from shootout.exported.shipped_folder import REQUIREMENTS, ShippedFolder

DATA, CODE, LOADER = "shipped", "code", "shootout_loader"
_LOADER = '''"""Load the shipped folder beside this one, as MLflow wants it."""
from pathlib import Path
from types import ModuleType


class Model:
    def __init__(self, module):
        self.module = module

    def predict(self, model_input, params=None):
        return self.module.predict(dict(model_input))


def _load_pyfunc(data_path):
    module, path = ModuleType("shipped_load"), Path(data_path) / "load.py"
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # bytecode that is kept of it has no hash
    module.load()
    return Model(module)
'''


def write(shipped: ShippedFolder, folder: Path, name: str) -> Sequence[str]:
    """Write the model; JSON is YAML too."""
    shutil.copytree(shipped.folder, folder / DATA)
    (folder / CODE).mkdir()
    (folder / CODE / f"{LOADER}.py").write_text(_LOADER, encoding="utf-8")
    shutil.copyfile(shipped.folder / REQUIREMENTS, folder / REQUIREMENTS)
    python = platform.python_version()
    _write(folder / "python_env.yaml", {"python": python, "dependencies": [f"-r {REQUIREMENTS}"]})
    flavour = {
        "loader_module": LOADER,
        "code": CODE,
        "data": DATA,
        "env": {"virtualenv": "python_env.yaml"},
        "python_version": python,
    }
    _write(
        folder / "MLmodel",
        {
            "flavors": {"python_function": flavour},
            "model_uuid": uuid.uuid4().hex,
            "utc_time_created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
            "signature": {
                "inputs": _signature(shipped.inputs),
                "outputs": _signature(shipped.outputs),
                "params": None,
            },
            "metadata": {"name": name, "arm": shipped.arm.label, "made_with": shipped.made_with},
        },
    )
    return [
        "variables that are read as libraries are imported: MLflow imports NumPy first; set them for the process",
        f"{shipped.runtime.affinity} CPU{'s' * (shipped.runtime.affinity > 1)}: pin the process",
        "MLflow itself, which isn't in requirements.txt: where it serves in a new environment, with --install-mlflow",
        "one call at a time: its scoring server may call from several threads, and load.py is for one",
    ]


def _signature(specs: Sequence[TensorSpec]) -> str:
    """As MLflow stores it: text in the text."""
    return json.dumps(
        [
            {"name": one.name, "type": "tensor", "tensor-spec": {"dtype": one.dtype, "shape": [*one.shape]}}
            for one in specs
        ]
    )


def _write(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
