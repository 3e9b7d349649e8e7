"""Exported models whose ONNX file already has quantized weights: all else is the plain exported model's, file by file.

So every runtime runs the same graph, on the same inputs, against the same reference outputs as the plain model's rows.
What that graph gives as it is written, no optimisation on, is kept too: all runtimes have to agree with it.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from shootout.contract import Artifact
from shootout.errors import SkippedArm, UsageError
from shootout.exported import onnx_files
from shootout.exported.model import (
    CALIBRATION,
    FILES,
    INPUTS,
    REFERENCE,
    REPORT,
    SELECTION,
    SHARED_OUTPUTS,
    UNSEEN,
    UNSEEN_REFERENCE,
    ExportedModel,
    open_exported,
)
from shootout.exported.npz import save_sets
from shootout.host.environment import SEVEN_BITS
from shootout.quantize import mixed, qdq

SAME = (INPUTS, REFERENCE, CALIBRATION, REPORT, SELECTION, UNSEEN, UNSEEN_REFERENCE)


def quantized(plain: Path, variant: str, folder: Path, *, reduced: bool) -> ExportedModel:
    """The exported model of a quantized variant, in `folder`, with the key of the plain one, which is in the folder
    `plain`.

    Args:
        reduced: weights get 7 bits; the exported model's notes say so.

    Raises:
        SkippedArm: the plain one has no ONNX file, since torch can't export the user's module.
        UsageError: the calibration data can't be used, or the variant needs what the model doesn't have.
        ModelError: nothing to quantize, or a limit that can't be kept.
    """
    base = open_exported(plain)
    if Artifact.ONNX not in base.artifacts:
        reason = f"{variant} takes an ONNX file: {base.unmade}"
        raise SkippedArm(reason, "change the module so that torch can export it")
    if base.calibration_fault:
        raise UsageError(base.calibration_fault)
    target = folder / FILES[Artifact.ONNX]
    notes: tuple[str, ...] = (SEVEN_BITS.format("weights"),) if reduced else ()
    if variant == "shared":
        qdq.write_shared(base.path(Artifact.ONNX), base.calibration(), target, reduced=reduced)
    else:
        notes += mixed.search(base, variant, target, reduced=reduced)
    save_sets(folder / SHARED_OUTPUTS, onnx_files.run(target, base.input_buffers(), base.model))
    for name in SAME:
        if (base.folder / name).exists():
            shutil.copyfile(base.folder / name, folder / name)
    return dataclasses.replace(
        base,
        folder=folder,
        variant=variant,
        artifacts=(Artifact.ONNX,),
        notes=(*base.notes, *notes),
    )
