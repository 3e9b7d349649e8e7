"""NumPy, the reference that people can read: the model's own `forward`, or an ONNX file through `onnx.reference`.

The BLAS takes its thread count from the environment, which the harness sets before the process starts; here it is only
read back. A shipped folder has the source of `forward` with all that it calls, and its weights.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout import models
from shootout.backends._numpy.account import corrected_operators, nodes_of, profile_operations
from shootout.backends.common import check_inputs, require_device, trial, widen
from shootout.backends.common_numpy import BLAS_THREAD_SYMBOLS, Product, blas_threads, counts, products_of
from shootout.core.adapter import Built, Shipment, check_options
from shootout.core.contract import (
    Arm,
    Array,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    Gemm,
    Gemms,
    Precision,
)
from shootout.core.errors import NotRunKind, SkippedArm, install
from shootout.core.exported.model import aligned
from shootout.core.exported.workload import flops_by_precision
from shootout.core.session import Event

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

WEIGHTS = "weights.safetensors"
MATRIX = 2
"""Axes of one."""
Run = Callable[[Arrays], Mapping[str, Array]]
Observe = Callable[[Arrays], list[Product]]


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
        """Store the weights as BLAS reads them fastest (see `_write_weights`); of an ONNX file nothing.

        Raises:
            ValueError: the arm has options; NumPy takes none.
        """
        check_options(arm, self.capabilities.options)
        if Artifact.FORWARD in exported.artifacts and (weights := exported.weights()):
            _write_weights(weights, folder)
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> NumpySession:
        """Read the weights, or the ONNX file.

        Raises:
            SkippedArm: the exported model is an ONNX file and the `onnx` package is missing.
        """
        exported = built.exported
        run, observe, size = _from_forward(built) if Artifact.FORWARD in exported.artifacts else _from_onnx(exported)
        return NumpySession(exported, run, observe, size)


class NumpySession:
    """The model on the caller's own arrays: staging copies nothing, since there is no other memory."""

    gpu = None

    def __init__(self, exported: ExportedModel, run: Run, observe: Observe, artifact_bytes: int) -> None:
        self._exported, self._run, self._observe, self._artifact_bytes = exported, run, observe, artifact_bytes

    @cached_property
    def executed(self) -> Executed:
        """Count the products of one run on the first input buffer."""
        products = self._observe(self._exported.input_buffers()[0])
        return Executed(
            library="numpy",
            version=np.__version__,
            device="cpu",
            threads=blas_threads(),
            compute_nodes_by_precision=counts(products),
            artifact_bytes=self._artifact_bytes,
            flops_by_precision=flops_by_precision(products),
        )

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs and hand them on."""
        check_inputs(self._exported.inputs, inputs)
        return inputs

    def execute(self, staged: Arrays) -> Mapping[str, Array]:
        """Run the model."""
        return self._run(staged)

    def synchronize(self) -> None:
        """Do nothing: NumPy is done when it returns."""

    def fetch(self, raw: Mapping[str, Array]) -> Arrays:
        """Hand out the outputs: each call made new arrays."""
        return {name: widen(array) for name, array in raw.items()}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:  # noqa: ARG002 - it watches operations
        """Time the operations of `calls` calls."""
        return profile_operations(self._run, self._exported.input_buffers()[0], calls)

    def close(self) -> None:
        """Drop the weights."""
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_observe", None)


def gemms(threads: int) -> Gemms:  # noqa: ARG001 - its BLAS reads a variable
    """Return the products of NumPy's BLAS, in float32, its only fast precision."""

    def make(size: int) -> Gemm:
        left, right = (np.ones((size, size), np.float32) for _ in range(2))
        result = np.empty_like(left)
        return lambda: np.matmul(left, right, out=result)

    return {Precision.FP32: make}


def _write_weights(weights: Arrays, folder: Path) -> None:
    """Write the weights, matrices as (in, out), which is how NumPy's users keep them.

    Torch's (out, in) gives the same numbers by a transposed view, but BLAS then walks the matrix across its rows: 1.1
    to 4 times as long a product.
    """
    from safetensors.numpy import save_file

    turned = _transpose_matrices(weights)
    save_file({name: np.ascontiguousarray(array) for name, array in turned.items()}, folder / WEIGHTS)


def _transpose_matrices(weights: Arrays) -> dict[str, Array]:
    return {name: array.T if array.ndim == MATRIX else array for name, array in weights.items()}


def _read_weights(folder: Path) -> dict[str, Array]:
    """Read the weights in torch's shapes, each matrix a view of what is stored; none if the model has none.

    Each begins on a cache line: off it, a product of a 128 by 128 matrix takes up to 1.1 times as long, of 256 by 256
    up to 1.25 times.
    """
    path = folder / WEIGHTS
    if not path.exists():
        return {}
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as stored:  # one by one, or all would be in memory twice
        return _transpose_matrices({name: aligned(stored.get_tensor(name)) for name in stored.keys()})  # noqa: SIM118


def _from_forward(built: Built) -> tuple[Run, Observe, int]:
    exported, model = built.exported, models.get(built.exported.model)
    weights = _read_weights(built.folder)
    assert model.forward is not None, f"{exported.model} has a FORWARD artifact but no forward"
    run = model.forward(np, weights, exported.parameters)
    return run, lambda inputs: products_of(run, inputs), sum(array.nbytes for array in weights.values())


def _from_onnx(exported: ExportedModel) -> tuple[Run, Observe, int]:
    try:
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        reason = "NumPy runs an ONNX file through the onnx package, which is not installed"
        raise SkippedArm(reason, install("onnxruntime"), NotRunKind.NOT_INSTALLED) from None
    path, names = exported.path(Artifact.ONNX), [spec.name for spec in exported.outputs]
    evaluator = ReferenceEvaluator(str(path), new_ops=corrected_operators())

    def run(inputs: Arrays) -> Mapping[str, Array]:
        return dict(zip(names, evaluator.run(names, dict(inputs)), strict=True))

    return run, lambda inputs: nodes_of(evaluator, inputs), path.stat().st_size


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
        raise SkippedArm("NumPy runs a file through onnx.reference, which is slow by design", "ship another backend")
    model = models.get(exported.model)
    assert model.forward is not None, f"{exported.model} has a FORWARD artifact but no forward"
    (folder / FORWARD).write_text(source_of(model.forward), encoding="utf-8")
    stored: Mapping[str, Any] = {}
    if (built.folder / WEIGHTS).exists():
        from safetensors.numpy import load_file

        stored = load_file(built.folder / WEIGHTS)
    np.savez(folder / STORED, *stored.values())
    turned = [name for name, array in stored.items() if array.ndim == MATRIX]
    options = {
        "function": model.forward.__name__,
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
