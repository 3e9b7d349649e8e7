"""Write a shipped folder in the form that a model server or a registry mounts, and list what that form can't carry.

`shootout ship --format triton`, `ovms` or `mlflow`. What a server's own runtime is told is each backend's to say
(`serves` in its row).
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shootout import backends
from shootout.backends.adapter import ServerSettings
from shootout.contract import TensorSpec
from shootout.errors import UsageError, unknown
from shootout.exported.shipped_folder import MODEL, REQUIREMENTS, ShippedFolder

FOLDER, TRITON, OVMS, MLFLOW = "folder", "triton", "ovms", "mlflow"
OVMS_MOUNT = "/models"
"""The repository's place in the container of OpenVINO Model Server, whose configuration names models by absolute paths.
"""
TRITON_TYPES = {
    "bool": "TYPE_BOOL",
    **{f"{kind}int{bits}": f"TYPE_{kind.upper()}INT{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"TYPE_FP{bits}" for bits in (16, 32, 64)},
}
MLFLOW_DATA, MLFLOW_CODE, MLFLOW_LOADER = "shipped", "code", "shootout_loader"
LOADER_TEXT = '''"""Load the shipped folder beside this one, as MLflow wants it."""
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


def require_format(name: str, backend: str) -> None:
    """Refuse an unknown format, and a server that has no runtime for the backend's models.

    Raises:
        UsageError: either; says what can be shipped so.
    """
    if name not in (FOLDER, *WRITERS):
        raise unknown("format", name, (FOLDER, *WRITERS))
    if name in (FOLDER, MLFLOW) or name in backends.entry(backend).serves:
        return
    able = [one for one, row in backends.SHIPPED.items() if name in row.serves]
    raise UsageError(
        f"--format {name} has no runtime for an arm of {backend}: ship one of {' or '.join(able)}, "
        "or --format folder or mlflow, which bring load.py along"
    )


def write_format(name: str, shipped: ShippedFolder, folder: Path) -> list[str]:
    """Write a shipped arm in another format into an empty folder; return what that format can't carry, a line each.

    Raises:
        UsageError: the model's name or a dtype is none that the server takes.
    """
    model = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(shipped.model["name"]).name.removesuffix(".onnx")).strip("._-")
    if not model:
        raise UsageError(f"{shipped.model['name']!r} can't be a server's name for the model: rename it")
    return WRITERS[name](shipped, folder, model)


def write_triton(shipped: ShippedFolder, folder: Path, name: str) -> list[str]:
    """Write a model repository of Triton Inference Server: `NAME/config.pbtxt` (a ModelConfig) and `NAME/1/…`."""
    served = backends.serving(shipped.arm.backend, TRITON)(shipped.runtime.options)
    shutil.copytree(shipped.folder / MODEL, folder / name / "1")
    lines = [
        f"name: {_quote_pb(name)}",
        f"backend: {_quote_pb(served.backend)}",
        "max_batch_size: 0  # shapes are whole: with the batch that was measured",
        *(_describe_triton_tensor("input", spec) for spec in shipped.inputs),
        *(_describe_triton_tensor("output", spec) for spec in shipped.outputs),
        "instance_group [ { count: 1 kind: KIND_CPU } ]",
        *([f"optimization {{ graph {{ level: {served.level} }} }}"] if served.level is not None else []),
        *(
            f"parameters {{ key: {_quote_pb(key)} value: {{ string_value: {_quote_pb(value)} }} }}"
            for key, value in served.settings.items()
        ),
    ]
    (folder / name / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(_not_carried_by_servers(shipped, served))


def _describe_triton_tensor(kind: str, spec: TensorSpec) -> str:
    if spec.dtype not in TRITON_TYPES:
        raise UsageError(f"Triton has no dtype {spec.dtype}, which {spec.name!r} has: --format folder")
    dims = ", ".join(map(str, spec.shape or (1,)))
    reshape = " reshape { shape: [ ] }" if not spec.shape else ""
    return (
        f"{kind} [ {{ name: {_quote_pb(spec.name)} data_type: {TRITON_TYPES[spec.dtype]} dims: [ {dims} ]{reshape} }} ]"
    )


def _quote_pb(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # protobuf's text form has JSON's escapes, but for non-ASCII letters


def write_ovms(shipped: ShippedFolder, folder: Path, name: str) -> list[str]:
    """Write a repository of OpenVINO Model Server: `NAME/1/…`, which KServe mounts too, and its `config.json`."""
    served = backends.serving(shipped.arm.backend, OVMS)(shipped.runtime.options)
    shutil.copytree(shipped.folder / MODEL, folder / name / "1")
    config = {
        "name": name,
        "base_path": f"{OVMS_MOUNT}/{name}",
        "target_device": served.backend,
        "nireq": 1,
        "plugin_config": dict(served.settings),
    }
    _write_json(folder / "config.json", {"model_config_list": [{"config": config}]})
    return list(_not_carried_by_servers(shipped, served))


def _not_carried_by_servers(shipped: ShippedFolder, served: ServerSettings) -> Iterator[str]:
    yield from served.lost
    for name in backends.entry(shipped.arm.backend).distributions(shipped.target):
        if version := shipped.versions.get(name):
            yield f"{name} {version}: the server brings its own version"
    if shipped.arm.instances > 1:
        yield f"{shipped.arm.instances} instances, which were raced at once"
    yield f"{shipped.runtime.affinity} CPU{'s' * (shipped.runtime.affinity > 1)}: pin the container (--cpuset-cpus)"
    variables = " ".join(f"{name}={value}" for name, value in shipped.runtime.environment.items())
    if variables:
        yield f"variables, for the container: {variables}"
    if shipped.isa:
        yield f"the refusal of a CPU without {', '.join(shipped.isa)}"


def write_mlflow(shipped: ShippedFolder, folder: Path, name: str) -> list[str]:
    """Write an MLflow model of the flavor `python_function`: the shipped folder, and a module that calls `load.py`."""
    shutil.copytree(shipped.folder, folder / MLFLOW_DATA)
    (folder / MLFLOW_CODE).mkdir()
    (folder / MLFLOW_CODE / f"{MLFLOW_LOADER}.py").write_text(LOADER_TEXT, encoding="utf-8")
    shutil.copyfile(shipped.folder / REQUIREMENTS, folder / REQUIREMENTS)
    python = platform.python_version()
    flavor = {
        "loader_module": MLFLOW_LOADER,
        "code": MLFLOW_CODE,
        "data": MLFLOW_DATA,
        "env": {"virtualenv": "python_env.yaml"},
        "python_version": python,
    }
    model = {
        "flavors": {"python_function": flavor},
        "model_uuid": uuid.uuid4().hex,
        "utc_time_created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
        "signature": {
            "inputs": _mlflow_signature(shipped.inputs),
            "outputs": _mlflow_signature(shipped.outputs),
            "params": None,
        },
        "metadata": {"name": name, "arm": shipped.arm.label, "made_with": shipped.made_with},
    }
    _write_json(folder / "python_env.yaml", {"python": python, "dependencies": [f"-r {REQUIREMENTS}"]})
    _write_json(folder / "MLmodel", model)
    return [
        "variables that are read as libraries are imported: MLflow imports NumPy first; set them for the process",
        f"{shipped.runtime.affinity} CPU{'s' * (shipped.runtime.affinity > 1)}: pin the process",
        "MLflow itself, which isn't in requirements.txt: where it serves in a new environment, with --install-mlflow",
        "one call at a time: its scoring server may call from several threads, and load.py is for one",
    ]


def _mlflow_signature(specs: Sequence[TensorSpec]) -> str:
    tensors = [
        {"name": spec.name, "type": "tensor", "tensor-spec": {"dtype": spec.dtype, "shape": [*spec.shape]}}
        for spec in specs
    ]
    return json.dumps(tensors)  # MLflow stores it as text in the text


def _write_json(path: Path, facts: Mapping[str, object]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")  # JSON is YAML too


WRITERS: Mapping[str, Callable[[ShippedFolder, Path, str], list[str]]] = {
    TRITON: write_triton,
    OVMS: write_ovms,
    MLFLOW: write_mlflow,
}
"""Write a shipped arm into an empty folder under the model's name; each returns what can't be carried, a line each."""
