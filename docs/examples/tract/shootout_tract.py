"""Run ONNX files in tract, an inference engine in Rust: FP32, in one thread."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from shootout.backends.common import require_device, trial
from shootout.core.adapter import Built, check_inputs, check_options
from shootout.core.contract import Arm, Arrays, Artifact, Availability, Capabilities, Device, Executed, Precision
from shootout.core.errors import NotRunKind, SkippedArm, one_line
from shootout.models.onnx.layers import is_product

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

TINY = "version 1.0;\ngraph tiny(x) -> (y) { x = external(shape = [2]); y = x + x; }"
LABELS = {"F32": "fp32", "F16": "fp16", "F64": "fp64", "I8": "int8"}
"""Our names for tract's types; another one shows under its own."""


class TractAdapter:
    """Declare what the backend runs."""

    name = "tract"
    capabilities = Capabilities(consumes=(Artifact.ONNX,), targets=frozenset({(Device.CPU, Precision.FP32)}))

    def probe(self, device: Device) -> Availability:
        """Run a sum; where tract is missing, say how to get it."""
        return trial("", lambda: _try(device), fix="pip install tract")

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write nothing, because the file is what people ship; only find out whether tract takes it."""
        import tract

        check_options(arm, self.capabilities.options)
        if arm.threads > 1:
            raise SkippedArm("tract computes in one thread", "race it with --threads 1")
        try:
            _read(exported).into_runnable()
        except tract.TractError as error:
            words = one_line(str(error).partition("Stack backtrace")[0])
            raise SkippedArm(f"tract can't take this model: {words}", "other backends may", NotRunKind.UNFIT) from error
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> TractSession:
        """Read and optimize it, in a fresh process."""
        return TractSession(built.exported)


class TractSession:
    """Hold a model ready to run. Each call has a state of its own: an LSTM would go on where the last ended."""

    gpu = None

    def __init__(self, exported: ExportedModel) -> None:
        self._exported, before = exported, psutil.Process().num_threads()
        model = _read(exported)
        self._names = [model.input_name(place) for place in range(model.input_count())]
        self._runnable = model.into_runnable()
        self.fetch(self.execute(self.stage(exported.input_buffers()[0], 0)))
        self._threads = 1 + psutil.Process().num_threads() - before

    @property
    def executed(self) -> Executed:
        """Return the optimized graph's own count of multiply-adds, by node and by their type."""
        costs = [(node["op_name"], cost) for node in self._nodes(None) for cost in node.get("cost", {}).items()]
        kinds = [(kind, int(count)) for name, (kind, count) in costs if is_product(name) and kind.startswith("FMA(")]
        products = [(_label(kind), 2.0 * count) for kind, count in kinds]
        flops: dict[str, float] = {}
        for label, operations in products:
            flops[label] = flops.get(label, 0.0) + operations
        return Executed(
            library="tract",
            version=version("tract"),
            device="cpu",
            threads=self._threads,
            compute_nodes_by_precision=dict(Counter(label for label, _ in products)),
            flops_by_precision=flops,
            artifact_bytes=self._exported.path(Artifact.ONNX).stat().st_size,
        )

    def stage(self, inputs: Arrays, slot: int) -> list[Any]:
        """Return tensors of tract's own, which copy what they are made from."""
        import tract

        check_inputs(self._exported.inputs, inputs)
        return [tract.Tensor.from_numpy(inputs[name]) for name in self._names]

    def execute(self, staged: list[Any]) -> list[Any]:
        """Run it, and return when it is done."""
        found: list[Any] = self._runnable.run(staged)
        return found

    def synchronize(self) -> None:
        """Wait for nothing: no call is pending."""

    def fetch(self, raw: list[Any]) -> Arrays:
        """Copy the outputs."""
        return {spec.name: one.to_numpy() for spec, one in zip(self._exported.outputs, raw, strict=True)}

    def close(self) -> None:
        """Drop the model."""
        self.__dict__.pop("_runnable", None)

    def _nodes(self, inputs: list[Any] | None) -> list[Mapping[str, Any]]:
        """Return the optimized graph's nodes with what they cost and, given inputs, how long they take."""
        told: dict[str, Any] = json.loads(self._runnable.profile_json(inputs))
        return sorted(told["nodes"], key=lambda node: node["qualified_id"])


def _read(exported: ExportedModel) -> Any:
    import tract

    return tract.onnx().load(exported.path(Artifact.ONNX)).into_model()


def _label(kind: str) -> str:
    name = kind.removeprefix("FMA(").removesuffix(")")
    return LABELS.get(name, name.lower())


def _try(device: Device) -> str:
    require_device(device, (Device.CPU,))
    import tract

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graph.nnef").write_text(TINY, encoding="utf-8")
        (made,) = tract.nnef().load(folder).into_runnable().run([np.ones(2, np.float32)])
    if not np.array_equal(made.to_numpy(), [2, 2]):
        raise ArithmeticError("1 + 1 came out wrong")
    return version("tract")
