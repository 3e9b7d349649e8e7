"""NumPy, the reference that people can read: the model's own `forward`, or an ONNX file through `onnx.reference`.

The BLAS takes its thread count from the environment, which the harness sets before the process starts; here it is only
read back. A shipped folder has the source of `forward` with all that it calls, and its weights.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._numpy.session import MATRIX, WEIGHTS, NumpySession, open_forward, open_onnx, write_weights
from shootout.backends.common import require_device, trial
from shootout.backends.common_numpy import BLAS_THREAD_SYMBOLS
from shootout.backends.optional import Gemm, Gemms, Shipment
from shootout.core.adapter import Built, check_options
from shootout.core.contract import Arm, Artifact, Availability, Capabilities, Device, Precision
from shootout.core.errors import SkippedArm
from shootout.core.exported.request import find_model

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel


class NumpyAdapter:
    """NumPy on the CPU in float32."""

    name = "numpy"
    capabilities = Capabilities(
        consumes=(Artifact.FORWARD, Artifact.ONNX),
        targets=frozenset({(Device.CPU, Precision.FP32)}),
        native=frozenset({Device.CPU}),
        classical=True,
    )

    def probe(self, device: Device) -> Availability:
        """Multiply two small matrices."""
        return trial("", lambda: _probe_product(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Store the weights as BLAS reads them fastest (see `write_weights`); of an ONNX file nothing.

        Raises:
            ValueError: the arm has options; NumPy takes none.
        """
        check_options(arm, self.capabilities.options)
        if Artifact.FORWARD in exported.artifacts and (weights := exported.weights()):
            write_weights(weights, folder)
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> NumpySession:
        """Read the weights, or the ONNX file.

        Raises:
            SkippedArm: the exported model is an ONNX file and the `onnx` package is missing.
        """
        exported = built.exported
        is_code = Artifact.FORWARD in exported.artifacts
        run, observe, size = open_forward(built, _forward_of(exported)) if is_code else open_onnx(exported)
        return NumpySession(exported, run, observe, size)


def gemms(threads: int) -> Gemms:  # noqa: ARG001 - its BLAS reads a variable
    """Return the products of NumPy's BLAS, in float32, its only fast precision."""

    def make(size: int) -> Gemm:
        left, right = (np.ones((size, size), np.float32) for _ in range(2))
        result = np.empty_like(left)
        return lambda: np.matmul(left, right, out=result)

    return {Precision.FP32: make}


def _forward_of(exported: ExportedModel) -> Callable[..., Any]:
    forward = find_model(exported.model).forward
    assert forward is not None, f"{exported.model} has a FORWARD artifact but no forward"
    return forward


def _probe_product(device: Device) -> str:
    require_device(device, (Device.CPU,))
    if not np.array_equal(np.eye(2, dtype=np.float32) @ np.ones((2, 2), np.float32), np.ones((2, 2))):
        raise ArithmeticError("a 2x2 matrix product came out wrong")
    return np.__version__


FORWARD, STORED = "forward.py", "weights.npz"
_PLAIN = (int, float, str, bool, tuple)
"""Constants of these types that other modules of ours define are written out; errors become Python's own."""


def ship(built: Built, folder: Path) -> Shipment:
    """Write the source of `forward` with all that it calls, and the weights as they are stored.

    Raises:
        SkippedArm: NumPy runs the model by `onnx.reference`, or its `forward` needs other code of ours.
    """
    exported = built.exported
    if Artifact.FORWARD not in exported.artifacts:
        raise SkippedArm("NumPy runs a file through onnx.reference, which is slow by design", "name another --target")
    forward = _forward_of(exported)
    (folder / FORWARD).write_text(source_of(forward), encoding="utf-8")
    stored: Mapping[str, Any] = {}
    if (built.folder / WEIGHTS).exists():
        from safetensors.numpy import load_file

        stored = load_file(built.folder / WEIGHTS)
    np.savez(folder / STORED, *stored.values())
    turned = [name for name, array in stored.items() if array.ndim == MATRIX]
    options = {
        "function": forward.__name__,
        "parameters": dict(exported.parameters),
        "weights": list(stored),
        "turned": turned,
        "threads": [name.replace("get_num", "set_num").replace("Get_Max", "Set_Num") for name in BLAS_THREAD_SYMBOLS],
    }
    return Shipment(options=options, installs=("numpy",))


def source_of(function: Callable[..., Any]) -> str:
    """Return a function as a program of its own, after the names of its module that it uses.

    Raises:
        SkippedArm: it uses code of other modules of ours.
    """
    module = sys.modules[function.__module__]
    tree = ast.parse(inspect.getsource(module))
    own = {name: node for node in tree.body for name in _names_defined(node)}
    wanted, waiting = set[str](), [function.__name__]
    lines = ["from __future__ import annotations", ""]
    while waiting:
        name = waiting.pop()
        if name in wanted or not (name in own or hasattr(module, name)):
            continue
        wanted.add(name)
        if name in own:
            waiting += _names_used(own[name])
        else:
            lines.append(_import_line(name, getattr(module, name)))
    nodes = dict.fromkeys(node for name, node in own.items() if name in wanted)
    return "\n".join([*lines, "", *(ast.unparse(node) + "\n" for node in tree.body if node in nodes)])


def _names_defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def _names_used(node: ast.AST) -> Iterator[str]:
    """Yield the names that it reads when it runs, without those of its annotations."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from _names_used(one)


def _import_line(name: str, value: Any) -> str:
    """Return the line that imports or defines a name which its module imports."""
    if inspect.ismodule(value) and not value.__name__.startswith("shootout"):
        return f"import {value.__name__} as {name}"
    home = getattr(value, "__module__", "")
    if home and not home.startswith("shootout"):
        return f"from {home} import {value.__name__} as {name}"
    if isinstance(value, type) and issubclass(value, Exception):
        return f"{name} = ValueError"
    if not isinstance(value, _PLAIN):
        raise SkippedArm(f"its NumPy code uses {name} of {home}", "ship another backend")
    return f"{name} = {value!r}"
