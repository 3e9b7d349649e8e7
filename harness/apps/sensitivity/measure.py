"""Measure the error that each layer or block of a model causes if it is rounded alone, the worst first.

The work is done in a process of its own (`python -m shootout.apps.sensitivity.measure FOLDER PLACE PARENT_PID`), so
that torch, ONNX Runtime and the code of the user's metric stay out of the caller's.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from shootout.apps.sensitivity.rounded import PrecisionSensitivity, Wanted, measure
from shootout.core.clock import Deadline
from shootout.core.contract import Artifact
from shootout.core.errors import ModelError, NothingMeasured, ShootoutError, SkippedArm, UsageError
from shootout.core.exported.client import obtain_all, workshop
from shootout.core.exported.model import ExportedModel, open_exported
from shootout.core.exported.request import Request, error_from_json, error_to_json
from shootout.core.host.child import ONE_THREAD, leave_with, run
from shootout.core.host.environment import saturates
from shootout.core.install import install
from shootout.core.messages import Progress
from shootout.core.schemes import parse
from shootout.core.units import span

WANTED, FOUND, TOLD = "wanted.json", "found.json", "told.txt"
"""The files in the process's folder: what to measure, the figures or the error, and how far it is."""
PLANS = 0.9
"""So much of the time is planned with; the figure that was begun last has the rest."""
RANKING_PLANS = 0.5
"""A ranking plans with this part of its time, and is ended at its end."""
_FORM_OF_WANTED, _FORM_OF_FOUND = TypeAdapter(Wanted), TypeAdapter(list[PrecisionSensitivity])


def rank_layers(exported: ExportedModel, limit: Deadline, progress: Progress | None = None) -> PrecisionSensitivity:
    """Rank every layer of a model that quantizers take by what INT8 does to it alone, the most harmful first.

    Args:
        limit: when it must end. Half of the time is planned with, since the last figures take what they take.

    Raises:
        UsageError, ModelError: as `measure_sensitivity`, or not even one layer was ranked in time.
    """
    wanted = Wanted(limit_s=limit.part(RANKING_PLANS).seconds)
    (found,) = _measure_apart(exported, wanted, limit, progress)
    return replace(found, parts=[part for part in found.parts if part.layer.is_quantizable])


def measure_sensitivity(
    request: Request, wanted: Wanted, progress: Progress | None = None
) -> list[PrecisionSensitivity]:
    """Measure what each precision that is wanted does to the parts of a model.

    Args:
        request: a plain model.
        wanted: its limit counts from now, the export included.
        progress: hears how far it is.

    Raises:
        UsageError: the request is wrong, its calibration data or the metric can't be used, or a package is missing.
        ModelError: the model can't be exported, or has nothing to round.
        NothingMeasured: the time was over before anything was measured.
    """
    if parse(request.variant).is_quantized:
        raise UsageError(f"variant {request.variant!r} is quantized already: name the plain model")
    limit = Deadline(wanted.limit_s)
    (exported,) = obtain_all([request], progress, limit)
    if isinstance(exported, SkippedArm) and limit.seconds is not None:
        raise NothingMeasured(f"{exported.why.reason}: {exported.why.fix}")
    if isinstance(exported, ShootoutError):
        raise exported
    try:
        return _measure_apart(exported, replace(wanted, limit_s=limit.part(PLANS).seconds), limit, progress)
    except ModelError:
        if limit.seconds is None or limit.left_s > 0:
            raise
        over = f"--max-time {span(limit.seconds)} was over before what one layer does to {exported.model} was known"
        raise NothingMeasured(f"{over}: give more; its export is kept") from None


def _measure_apart(
    exported: ExportedModel, wanted: Wanted, limit: Deadline, progress: Progress | None
) -> list[PrecisionSensitivity]:
    """Measure an exported model in a process of its own, which is ended at the limit."""
    if Artifact.ONNX not in exported.artifacts:
        raise ModelError(f"sensitivity takes an ONNX file, and {exported.model} has none: {exported.unmade}")
    with workshop() as place:
        (place / WANTED).write_text(json.dumps(asdict(wanted)), encoding="utf-8")
        look = partial(_show_progress, place / TOLD, progress)
        left_s = max(limit.left_s, 0.0)
        how = run("shootout.apps.sensitivity.measure", [exported.folder, place], left_s, ONE_THREAD, look).how
        try:
            said = json.loads((place / FOUND).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ModelError(f"the sensitivity of {exported.model} failed: {how}") from None
    if "error" in said:
        raise error_from_json(said["error"])
    return _FORM_OF_FOUND.validate_python(said["found"])


def _show_progress(file: Path, progress: Progress | None) -> bool:
    """Show what the process last told; let it go on."""
    if progress and file.exists():
        progress.detail(file.read_text(encoding="utf-8"))
    return True


def main() -> None:
    """Write the figures, or the error, of the exported model in a folder."""
    leave_with(int(sys.argv[3]))
    os.dup2(2, 1)  # what the user's metric prints is no answer
    exported, place = open_exported(Path(sys.argv[1])), Path(sys.argv[2])
    wanted = _FORM_OF_WANTED.validate_json((place / WANTED).read_bytes())

    def tell(text: str) -> None:
        (place / TOLD).write_text(text, encoding="utf-8")

    try:
        found = measure(exported, wanted, reduced=saturates(), tell=tell)
        said: dict[str, Any] = {"found": [asdict(one) for one in found]}
    except ModuleNotFoundError as error:
        said = {"error": error_to_json(UsageError(f"sensitivity needs {error.name}: {install('onnxruntime')}"))}
    except ShootoutError as error:
        said = {"error": error_to_json(error)}
    except ValueError as error:
        said = {"error": error_to_json(UsageError(str(error)))}
    (place / FOUND).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main()
