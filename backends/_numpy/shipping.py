"""How a NumPy arm is shipped: the source of the model's `forward` with all that it calls, and its weights."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shootout import models
from shootout.backends._numpy.backend import MATRIX, WEIGHTS
from shootout.backends.adapter import Built, Shipment
from shootout.backends.common_numpy import BLAS_THREAD_SYMBOLS
from shootout.contract import Artifact
from shootout.errors import SkippedArm

FORWARD, STORED = "forward.py", "weights.npz"
_PLAIN = (int, float, str, bool, tuple)
"""Of what other modules of ours define, constants of these types are written out, and errors are Python's own."""


def ship(built: Built, folder: Path) -> Shipment:
    """Write the source, and the weights as they are stored.

    Raises:
        SkippedArm: NumPy runs the model by `onnx.reference`, or its `forward` needs other code of ours.
    """
    exported = built.exported
    if Artifact.FORWARD not in exported.artifacts:
        raise SkippedArm("NumPy runs a file by onnx.reference, which is made to be read", "ship another backend")
    model = models.get(exported.model)
    assert model.forward is not None, f"{exported.model} has a FORWARD artifact but no forward"
    (folder / FORWARD).write_text(source_of(model.forward), encoding="utf-8")
    stored: Mapping[str, Any] = {}
    if (built.folder / WEIGHTS).exists():
        from safetensors.numpy import load_file

        stored = load_file(built.folder / WEIGHTS)
    np.savez(folder / STORED, *stored.values())
    turned = [name for name, array in stored.items() if array.ndim == MATRIX and name not in model.tables]
    options = {
        "function": model.forward.__name__,
        "parameters": dict(exported.parameters),
        "weights": list(stored),
        "turned": turned,
        "threads": [name.replace("get_num", "set_num").replace("Get_Max", "Set_Num") for name in BLAS_THREAD_SYMBOLS],
    }
    return Shipment(options=options, installs=("numpy",))


def source_of(function: Callable[..., Any]) -> str:
    """A function of a module as a program of its own: what else of the module it uses stands before it.

    Raises:
        SkippedArm: it uses code of other modules of ours.
    """
    module = sys.modules[function.__module__]
    tree = ast.parse(inspect.getsource(module))
    own = {name: node for node in tree.body for name in _defined(node)}
    wanted, waiting = set[str](), [function.__name__]
    lines = ["from __future__ import annotations", ""]
    while waiting:
        name = waiting.pop()
        if name in wanted or not (name in own or hasattr(module, name)):
            continue
        wanted.add(name)
        if name in own:
            waiting += _used(own[name])
        else:
            lines.append(_imported(name, getattr(module, name)))
    nodes = dict.fromkeys(node for name, node in own.items() if name in wanted)
    return "\n".join([*lines, "", *(ast.unparse(node) + "\n" for node in tree.body if node in nodes)])


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _used(node: ast.AST) -> Iterator[str]:
    """The names that it reads when it runs: those of its annotations are not."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from _used(one)


def _imported(name: str, found: Any) -> str:
    """The line that brings a name which its module imports."""
    if inspect.ismodule(found) and not found.__name__.startswith("shootout"):
        return f"import {found.__name__} as {name}"
    home = getattr(found, "__module__", "")
    if home and not home.startswith("shootout"):
        return f"from {home} import {found.__name__} as {name}"
    if isinstance(found, type) and issubclass(found, Exception):
        return f"{name} = ValueError"
    if not isinstance(found, _PLAIN):
        raise SkippedArm(f"its NumPy code uses {name} of {home}", "ship another backend")
    return f"{name} = {found!r}"
