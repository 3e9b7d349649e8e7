"""A model on the caller's arrays: its own NumPy code with stored weights, or an ONNX file through `onnx.reference`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import precision_of, widen
from shootout.backends.common_numpy import blas_threads, products_of
from shootout.core.adapter import Built, check_inputs
from shootout.core.contract import (
    Array,
    Arrays,
    Artifact,
    Executed,
)
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.exported.model import aligned
from shootout.core.install import install
from shootout.models.onnx.layers import is_product

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

WEIGHTS = "weights.safetensors"
MATRIX = 2
"""Axes of one."""
INTERPRETED = "onnx.reference runs the file node by node in Python; plain NumPy code is faster"
Run = Callable[[Arrays], Mapping[str, Array]]
Observe = Callable[[Arrays], Mapping[str, int]]


class NumpySession:
    """The model on the caller's own arrays: staging copies nothing, since there is no other memory."""

    gpu = None

    def __init__(self, exported: ExportedModel, run: Run, observe: Observe, artifact_bytes: int) -> None:
        self._exported, self._run, self._observe, self._artifact_bytes = exported, run, observe, artifact_bytes

    @cached_property
    def executed(self) -> Executed:
        """Count the products of one run on the first input buffer."""
        return Executed(
            library="numpy",
            version=np.__version__,
            device="cpu",
            threads=blas_threads(),
            compute_nodes_by_precision=self._observe(self._exported.input_buffers()[0]),
            fallbacks=() if Artifact.FORWARD in self._exported.artifacts else (INTERPRETED,),
            artifact_bytes=self._artifact_bytes,
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

    def close(self) -> None:
        """Drop the weights."""
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_observe", None)


def write_weights(weights: Arrays, folder: Path) -> None:
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


def open_forward(built: Built, forward: Callable[..., Run]) -> tuple[Run, Observe, int]:
    """Return a model's NumPy code with its weights, what lists the products of a call, and the bytes of the weights."""
    weights = _read_weights(built.folder)
    run = forward(np, weights, built.exported.parameters)
    return run, lambda inputs: products_of(run, inputs), sum(array.nbytes for array in weights.values())


def open_onnx(exported: ExportedModel) -> tuple[Run, Observe, int]:
    """Return an ONNX file's evaluator, what lists the nodes of a call, and the bytes of the file.

    Raises:
        SkippedArm: the `onnx` package is missing.
    """
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


def nodes_of(evaluator: Any, inputs: Arrays) -> dict[str, int]:
    """Count the products, by the dtype of their result, of one run of an `onnx.reference.ReferenceEvaluator`."""
    results = evaluator.run(None, dict(inputs), intermediate=True)
    nodes = [node for node in evaluator.proto_.graph.node if is_product(node.op_type)]
    return dict(Counter(precision_of(str(results[node.output[0]].dtype)) for node in nodes))


def corrected_operators() -> list[type]:
    """Return operators that `onnx.reference` gets wrong, for its `new_ops`. Imports onnx."""
    from onnx.reference.ops import op_conv_transpose

    class ConvTranspose(op_conv_transpose.ConvTranspose):
        """Compute a transposed convolution group by group.

        onnx 1.23 gives each group the whole bias and one output channel: most shapes fail, and the others are wrong.
        """

        op_domain = ""

        def _run(self, *operands: Any, **attributes: Any) -> tuple[Array]:
            count = attributes.pop("group", None) or 1
            image, kernels, bias = operands if len(operands) == 3 else (*operands, None)
            biases = [None] * count if bias is None else np.split(bias, count)
            parts = zip(np.split(image, count, axis=1), np.split(kernels, count), biases, strict=True)
            run: Any = super()._run
            found = [run(*part, group=1, **attributes)[0] for part in parts]
            return (np.concatenate(found, axis=1),)

    return [ConvTranspose]
