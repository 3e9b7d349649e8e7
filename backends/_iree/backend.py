"""IREE on the CPU: the ONNX file, compiled ahead of time to a module and a file of weights.

The compiler takes a graph's types as they are, so FP16 and BF16 are built from a half graph, and INT8 from the shared
Q/DQ one: products in between become integer products. It writes code for the CPU that it runs on unless it is told of
another.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout import schemes
from shootout.backends import common_onnx
from shootout.backends._iree import account
from shootout.backends._iree.compiler import MODULE, OPTIONS, WEIGHTS, compile_graph, flags_of, import_onnx
from shootout.backends._iree.device import OPTIONS as RUNTIME_OPTIONS
from shootout.backends._iree.device import PACKAGE, open_device
from shootout.backends._iree.session import IreeSession, load_module, new_input, new_list
from shootout.backends.adapter import Built, Fixture
from shootout.backends.common import check_options, require_device, trial
from shootout.contract import Arm, Artifact, Availability, Capabilities, Device, Precision, Target, TensorSpec
from shootout.errors import SkippedArm
from shootout.host.environment import version_of

if TYPE_CHECKING:
    from shootout.bundle.bundle import ModelBundle

FLOATS = (Precision.FP32, Precision.FP16, Precision.BF16)
TINY = """
func.func @tiny(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = arith.addf %x, %x : tensor<2xf32>
  return %y : tensor<2xf32>
}
"""
"""A sum of its only input with itself."""
X = TensorSpec(name="x", shape=(2,), dtype="float32")


def _lacks(target: Target) -> bool:
    """INT8 comes from the shared model only."""
    return target.precision is Precision.INT8 and target.scheme != "shared"


FIXTURE = Fixture(lacks=_lacks)


class IreeAdapter:
    """IREE's compiler and runtime."""

    name = "iree"
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset((Device.CPU, precision) for precision in (*FLOATS, Precision.INT8)),
        native=frozenset({Device.CPU}),
        schemes={Precision.INT8: frozenset(schemes.QUANTIZED)},
        options=(*OPTIONS, *RUNTIME_OPTIONS),
    )

    def probe(self, device: Device) -> Availability:
        """Compile a sum and run it."""
        return trial("iree", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """The module, its weights, and what its code computes.

        Raises:
            SkippedArm: the compiler isn't installed, or can't take the model; or there is nothing to make INT8 of.
            ValueError: an unknown option.
        """
        check_options(arm, self.capabilities.options)
        if arm.instances > 1 and arm.threads > 1:
            reason = "in IREE's Python package all modules of a process share one pool of threads"
            raise SkippedArm(reason, "ask for one thread each, or for one instance")
        with tempfile.TemporaryDirectory() as place:
            scratch = Path(place)
            graph = import_onnx(_narrowed(bundle, arm, scratch), folder)
            compile_graph(graph, folder / MODULE, arm.target.device, flags_of(arm), account.dumps(scratch))
            graph.unlink()
            facts = {"account": account.survey(scratch)}
        size = sum((folder / name).stat().st_size for name in (MODULE, WEIGHTS) if (folder / name).exists())
        return Built(arm=arm, bundle=bundle, folder=folder, facts={**facts, "artifact_bytes": size})

    def load(self, built: Built) -> IreeSession:
        """Map the module and its weights."""
        return IreeSession(built)


def _narrowed(bundle: ModelBundle, arm: Arm, folder: Path) -> Path:
    """The graph in the arm's precision."""
    source, target = bundle.path(Artifact.ONNX), arm.target
    if target.precision in common_onnx.NARROWED:
        return common_onnx.write_half(source, target.precision, folder)
    if target.precision is Precision.INT8 and not schemes.parse(target.scheme).is_quantized:
        fix = "iree:cpu:int8/shared runs the one Q/DQ model that is made for all backends"
        raise SkippedArm("IREE has no quantizer of its own: it takes INT8 only as Q/DQ in the graph", fix)
    return source


def _try(device: Device) -> str:
    require_device(device, (Device.CPU,))
    import iree  # noqa: F401 - named by itself where it is missing
    from iree.runtime import HalBufferView

    arm = Arm(target=Target(backend=IreeAdapter.name), model="tiny")
    with tempfile.TemporaryDirectory() as place:
        graph = Path(place) / "tiny.mlir"
        graph.write_text(TINY)
        compile_graph(graph, Path(place) / MODULE, device, flags_of(arm), ())
        opened = open_device(arm)
        context, function = load_module(opened, Path(place))
    memory, view = new_input(opened, X)
    memory[...] = 1
    arguments, results = new_list()(1), new_list()(1)
    arguments.push_ref(view.ref)
    context.invoke(function, arguments, results)
    found = results.get_as_object(0, HalBufferView).map().asarray(list(X.shape), np.dtype(X.dtype))
    if not np.array_equal(found, [2, 2]):
        raise ArithmeticError("1 + 1 came out wrong")
    return version_of(PACKAGE)
