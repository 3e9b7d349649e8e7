"""Export the quantized variants of a model: the plain exported model, file by file, but with quantized weights in the
ONNX file.

So every runtime runs the same graph, on the same inputs, against the same reference outputs as the plain model's rows.
The outputs of that graph as it is written, without any optimization, are kept too: all runtimes have to agree with it.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import onnx

from shootout.core.contract import Artifact
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.exported.model import FILES, SETS, SHARED_OUTPUTS, ExportedModel, open_exported, save_sets
from shootout.core.host.environment import SEVEN_BITS
from shootout.core.schemes import parse
from shootout.models.onnx import onnx_files
from shootout.models.onnx.layers import layers_of, note_floats, pick_layers
from shootout.quantize import qdq


def quantized(plain: Path, variant: str, folder: Path, *, reduced: bool) -> ExportedModel:
    """Make the exported model of a quantized variant in `folder`.

    It has the key of the plain one, which is in the folder `plain`.

    Args:
        reduced: weights get 7 bits; the exported model's notes say so.

    Raises:
        SkippedArm: the plain one has no ONNX file, since torch can't export the user's module.
        UsageError: the calibration data can't be used.
        ModelError: nothing to quantize.
    """
    base = open_exported(plain)
    if Artifact.ONNX not in base.artifacts:
        reason = f"{variant} takes an ONNX file: {base.unmade}"
        raise SkippedArm(reason, "change the module so that torch can export it")
    if base.calibration_fault:
        raise UsageError(base.calibration_fault)
    target = folder / FILES[Artifact.ONNX]
    notes: tuple[str, ...] = (SEVEN_BITS.format("weights"),) if reduced else ()
    floats, source = parse(variant).floats, base.path(Artifact.ONNX)
    qdq.write_shared(source, base.calibration(), target, reduced=reduced, floats=floats)
    if floats:
        layers = layers_of(onnx.load(source, load_external_data=False))
        notes += (note_floats(pick_layers(layers, floats)),)
    save_sets(folder / SHARED_OUTPUTS, onnx_files.run(target, base.input_buffers(), base.model, base.stream))
    for name in SETS:
        if (base.folder / name).exists():
            shutil.copyfile(base.folder / name, folder / name)
    return dataclasses.replace(
        base,
        folder=folder,
        variant=variant,
        artifacts=(Artifact.ONNX,),
        notes=(*base.notes, *notes),
        graph="",
    )
