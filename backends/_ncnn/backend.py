"""ncnn on the CPU, and on any Vulkan GPU: pnnx's conversion of the ONNX file, in the precision of the label.

By default ncnn's vendor stores weights in FP16, twice: pnnx writes them so, and ncnn keeps them so in memory. Both are
off here for FP32. What both do is an arm of its own, `ncnn:cpu:fp16/weights-only`: x86 has FP16 storage, and no FP16
arithmetic that ncnn would use.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._ncnn.convert import NO_AXIS, End, NcnnLayer, convert, holds_halves, read_param
from shootout.backends._ncnn.session import (
    BIN,
    OPTIONS,
    PARAM,
    NcnnSession,
    as_mat,
    chosen_card,
    import_ncnn,
    load_net,
    settings_of,
    stores_half,
)
from shootout.backends.common import require_device, trial
from shootout.backends.optional import Fixture, Shipment
from shootout.core.adapter import Built, check_options
from shootout.core.contract import Arm, Array, Arrays, Artifact, Availability, Capabilities, Device, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.schemes import parse

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

_FORMS = itertools.product(
    ("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"), ("", "1D", "3D")
)
PRODUCTS = {"InnerProduct", "Gemm", "MatMul", "Einsum", "RNN", "GRU", "LSTM", "MultiHeadAttention", "SDPA"}
PRODUCTS |= {f"{kind}{form}" for kind, form in _FORMS}
"""Layers that multiply matrices, or convolve."""
MOVES = {"Input", "Split", "MemoryData", "Noop"}
"""Layers that compute nothing."""
RAW = 1
"""Asks for a blob as it is, not widened to float32."""
WEIGHTS_ONLY = "weights-only"
TINY = "\n".join(("7767517", "2 2", "Input in0 0 1 in0", "BinaryOp add 1 1 in0 out0 0=0 1=1 2=1.0"))
"""A net that adds one."""


def _lacks_half_arithmetic(target: Target) -> bool:
    """Return whether ncnn has FP16 storage on this CPU and no FP16 arithmetic: it computes so on ARM's alone."""
    is_half = target.device is Device.CPU and target.precision is Precision.FP16 and not target.scheme
    return is_half and not import_ncnn().cpu_support_arm_asimdhp()


FIXTURE = Fixture(lacks=_lacks_half_arithmetic, slow=frozenset({(Device.VULKAN.value, Precision.FP16)}))


class NcnnAdapter:
    """ncnn's own CPU kernels, and its Vulkan shaders."""

    name = "ncnn"
    fixture = FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset(
            {(Device.CPU, precision) for precision in (Precision.FP32, Precision.BF16, Precision.FP16)}
            | {(Device.VULKAN, precision) for precision in (Precision.FP32, Precision.FP16)}
        ),
        schemes={Precision.FP16: frozenset({WEIGHTS_ONLY})},
        options=OPTIONS,
    )

    def probe(self, device: Device) -> Availability:
        """Add one to four zeros."""
        return trial("ncnn", lambda: _probe_sum(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Convert the model into a `.param` and a `.bin`, and observe what their net computes in.

        Raises:
            SkippedArm: pnnx is missing or can't convert the model, ncnn has no layer for it, or no arithmetic of the
                precision on this CPU.
            ValueError: an unknown option.
        """
        check_options(arm, self.capabilities.options)
        with tempfile.TemporaryDirectory() as place:
            ends = convert(exported, folder, Path(place), half=stores_half(arm))
        facts = survey(load_net(folder, arm), exported, folder, ends["takes"])
        _require_precision(arm.target, facts)
        return Built(arm=arm, exported=exported, folder=folder, facts={**facts, **ends})

    def load(self, built: Built) -> NcnnSession:
        """Read the two files."""
        return NcnnSession(built)


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the two files, and name every switch of the net; ncnn packs the weights for whatever CPU loads them."""
    for name in (PARAM, BIN):
        shutil.copyfile(built.folder / name, folder / name)
    ends = {name: built.facts[name] for name in ("takes", "gives")}
    return Shipment(options={"files": [PARAM, BIN], "net": settings_of(built.arm), **ends})


def survey(net: Any, exported: ExportedModel, folder: Path, takes: Sequence[End]) -> dict[str, Any]:
    """Run the net once, and return the fields of `Executed` that this shows; JSON.

    ncnn names no kernel. But it gives out a layer's numbers unconverted, so their width shows a narrow storage. The
    file's tags say in what its matrices are kept. From a Vulkan device all numbers come back in float32; if a layer
    there stores FP16, float16 represents each of them exactly.

    Args:
        net: loaded from `folder`.
        takes: the net's inputs.
    """
    halves = holds_halves(folder / BIN)
    bits = dict(_run_layers(net, exported.input_buffers()[0], takes))
    compute, others = Counter[str](), Counter[str]()
    for line in read_param(folder / PARAM):
        floats = _float_precision(bits[line.name], net.opt)
        if line.kind in PRODUCTS:
            compute["fp16-weights" if halves and floats == "fp32" and _stores_weights(line) else floats] += 1
        elif line.kind not in MOVES:
            others[floats] += 1
    return {
        "compute_nodes_by_precision": dict(compute),
        "other_nodes_by_precision": dict(others),
        "fallbacks": [
            f"{layer.name} ({layer.type}) runs on the CPU"
            for layer in net.layers()
            if net.opt.use_vulkan_compute and layer.type not in MOVES and not layer.support_vulkan
        ],
    }


def _run_layers(net: Any, inputs: Arrays, takes: Sequence[End]) -> Iterator[tuple[str, int]]:
    """Yield each layer's name, and the bits of a number in its first output as the layer wrote it."""
    extractor = net.create_extractor()
    extractor.set_light_mode(False)  # which would forget what it gave out
    for blob, name, axis in takes:
        extractor.input(blob, as_mat(inputs[name], axis))
    for layer in net.layers():
        failed, mat = extractor.extract(layer.tops[0], RAW)
        if failed:
            raise RuntimeError(f"ncnn can't run layer {layer.name} ({layer.type}): code {failed}")
        half = net.opt.use_vulkan_compute and net.opt.use_fp16_storage and _fits_half(mat.numpy())
        yield layer.name, 16 if half else mat.elembits()


def _fits_half(numbers: Array) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers, equal_nan=True)


def _float_precision(bits: int, options: Any) -> str:
    if bits == 16:
        return "bf16" if options.use_bf16_storage else "fp16"
    return {32: "fp32"}.get(bits, f"{bits} bits")


def _stores_weights(line: NcnnLayer) -> bool:
    """Return whether a product reads a matrix of the file, and not results alone."""
    if line.kind == "Gemm":
        return bool(line.number(4) or line.number(5))
    if "onvolution" in line.kind:  # its weights may come as an input
        return not line.number(19 if line.kind.startswith("Conv") else 28)
    return line.kind not in ("MatMul", "Einsum", "SDPA")


def _require_precision(target: Target, facts: dict[str, Any]) -> None:
    """Refuse FP16 where ncnn would only store in it, and FP16 weights where it would compute in it."""
    counts, plain = facts["compute_nodes_by_precision"], f"ncnn:{target.device}:fp16"
    if target.precision is not Precision.FP16 or not counts:
        return
    weights_only = parse(target.scheme).activations == WEIGHTS_ONLY
    if not weights_only and "fp16" not in counts:
        reason = "ncnn has no FP16 arithmetic for this CPU: it would only keep weights in FP16"
        raise SkippedArm(reason, f"use {plain}/{WEIGHTS_ONLY}, which is just that")
    if weights_only and "fp16" in counts:
        raise SkippedArm("ncnn computes in FP16 here where weights are kept so", f"use {plain}")


def _probe_sum(device: Device) -> str:
    require_device(device, (Device.CPU, Device.VULKAN))
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / PARAM).write_text(TINY, encoding="utf-8")
        (Path(place) / BIN).touch()
        net = load_net(Path(place), Arm(target=Target(backend="ncnn", device=device), model=""))
    extractor = net.create_extractor()
    extractor.input("in0", as_mat(np.zeros(4, np.float32), NO_AXIS))
    failed, found = extractor.extract("out0")
    assert not failed
    assert np.array_equal(found.numpy(), np.ones(4, np.float32)), "0 + 1 isn't 1"
    version = str(import_ncnn().__version__)
    return f"{version} on {chosen_card()}" if device is Device.VULKAN else version
