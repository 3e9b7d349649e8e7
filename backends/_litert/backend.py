"""LiteRT on the CPU: a .tflite file from the torch module, compiled again in each session.

Its products run in XNNPACK, the library behind most of what runs on phones. The file is what people ship.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shootout.backends import common_onnx
from shootout.backends._litert.account import look_inside, survey
from shootout.backends._litert.converter import NETWORK, convert
from shootout.backends._litert.quantize import OPTIONS, SCHEMES, quantize
from shootout.backends._litert.session import BUILTIN, KERNELS, MODEL, PACKAGE, LiteRtSession, compile_model
from shootout.backends.common import require_device, require_quantized, trial
from shootout.backends.optional import ErrorHint, Fixture, Inside, Shipment
from shootout.core.adapter import Built, check_options
from shootout.core.contract import (
    INTEGERS,
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Option,
    Precision,
    Target,
)
from shootout.core.host.environment import version_of
from shootout.core.schemes import parse

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

TINY = Path(__file__).with_name("tiny.tflite")
"""A sum of its only input with itself."""
CONVERTER = "shootout.backends._litert.converter:find_converter,litert_torch"
WARM = {"": (CONVERTER, CONVERTER)}
"""With the converter, which takes three seconds to import."""
FIXTURE = Fixture(
    warm=WARM,
    slow=frozenset({("", Precision.INT4)}),
    elsewhere={Precision.INT4: Fixture(options={KERNELS: BUILTIN}, warm=WARM)},
)
"""XNNPACK takes no product behind INT4 weights that are unpacked first: LiteRT's own kernels run it anyway."""


ERROR_HINTS = (
    ErrorHint(
        said=r"Lowering not found: (?P<operator>[\w.:]+)",
        reason="LiteRT's converter can't take this model: it has no way to write torch's {operator}",
    ),
    ErrorHint(
        said="basic_string::_M_construct null not valid",
        reason="AI Edge Quantizer can't calibrate this model: it returns an input, or one value twice",
        fix="leave that output out of the model, or use litert:cpu:int8-dynamic",
    ),
    ErrorHint(
        said=r"Ranks of scales .* must be the same as\s+the tensor rank",
        reason="AI Edge Quantizer can't quantize a reshaped weight of this model",
        fix="choose another backend for this precision",
    ),
    ErrorHint(
        said="Failed to allocate tensors",
        reason="LiteRT can't lay this model out for another size: its converter writes shapes as constants",
        fix="use litert:cpu:fp32, a session for each size, or its /bucket-N",
    ),
)


class LiteRtAdapter:
    """LiteRT's compiled model; integer precisions by AI Edge Quantizer."""

    name = "litert"
    fixture = FIXTURE
    error_hints = ERROR_HINTS
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=frozenset((Device.CPU, precision) for precision in (Precision.FP32, *INTEGERS)),
        portable=True,
        opens=frozenset({Precision.FP32}),
        schemes=SCHEMES,
        options=(
            Option(name=KERNELS, help="whose kernels run in place of XNNPACK's: LiteRT's own", values=(BUILTIN,)),
            *OPTIONS,
        ),
        variables=NETWORK,
    )

    def probe(self, device: Device) -> Availability:
        """Run a sum."""
        return trial("litert", lambda: _run_sum(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Write the model as a .tflite file, quantized for an integer precision, and count what it computes.

        Raises:
            SkippedArm: the converter can't be had.
            ValueError: an unknown option, nothing to quantize, or unusable calibration data.
        """
        check_options(arm, self.capabilities.options)
        target, scheme = arm.target, parse(arm.target.scheme)
        source, notes = convert(exported)
        content = quantize(source, exported, arm, scheme) if target.precision in INTEGERS else source.read_bytes()
        (folder / MODEL).write_bytes(content)
        account = survey(folder / MODEL)
        if target.precision in INTEGERS:
            require_quantized(account["compute_nodes_by_precision"], target, "AI Edge Quantizer")
        notes = [*notes, *common_onnx.notes_on_floats(exported, scheme)]
        return Built(arm=arm, exported=exported, folder=folder, facts={"account": account, "notes": notes})

    def load(self, built: Built) -> LiteRtSession:
        """Read the file and compile it."""
        return LiteRtSession(built)

    def look_inside(self, built: Built, sets: Sequence[Arrays], values: Collection[str]) -> Inside:  # noqa: ARG002
        """Run the file with all tensors kept; the converter keeps no values' names."""
        return look_inside(built, sets)


def ship(built: Built, folder: Path) -> Shipment:
    """Copy the file; LiteRT packs its weights for whatever CPU loads it."""
    shutil.copyfile(built.folder / MODEL, folder / MODEL)
    return Shipment(options={"kernels": built.arm.options.get(KERNELS, "")})


def _run_sum(device: Device) -> str:
    require_device(device, [Device.CPU])
    model = compile_model(TINY, Arm(target=Target(backend=LiteRtAdapter.name), model=TINY.name))
    given, made = model.create_input_buffers(0), model.create_output_buffers(0)
    given[0].write(np.ones((1, 2), np.float32))
    model.run_by_index(0, given, made)
    if not np.array_equal(made[0].read(2, np.float32), [2, 2]):
        raise ArithmeticError("1 + 1 came out wrong")
    return version_of(PACKAGE)
