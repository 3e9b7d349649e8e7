"""Export the quantized variants of a model: the plain exported model, file by file, but with quantized weights in the
ONNX file.

So every runtime runs the same graph, on the same inputs, against the same reference outputs as the plain model's rows.
The outputs of that graph as it is written, without any optimization, are kept too: all runtimes have to agree with it.

Mixed precision: the layers that hurt most stay float, as many as a limit asks for or leaves room for. The order comes
from each layer's sensitivity by itself, after which the count is found by bisection. Every mix is written and run: that
layers' errors add up is an assumption, so what counts is what was measured. If the file's size is limited, the order is
by noise for each byte that a float layer costs.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import onnx

from shootout.contract import Artifact
from shootout.errors import ModelError, SkippedArm, UsageError
from shootout.exported import onnx_files
from shootout.exported.fidelity import rows
from shootout.exported.layers import layers_of, note_floats, pick_layers
from shootout.exported.model import (
    FILES,
    SETS,
    SHARED_OUTPUTS,
    ExportedModel,
    ReportRows,
    open_exported,
    save_sets,
)
from shootout.host.environment import SEVEN_BITS
from shootout.quantize import qdq
from shootout.quantize.qdq import Quantizer
from shootout.quantize.sensitivity import LayerSensitivity, rank_in_int8, sqnr_of
from shootout.schemes import parse


def quantized(plain: Path, variant: str, folder: Path, *, reduced: bool) -> ExportedModel:
    """Make the exported model of a quantized variant in `folder`.

    It has the key of the plain one, which is in the folder `plain`.

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
    scheme = parse(variant)
    if scheme.variant == "shared":
        source = base.path(Artifact.ONNX)
        qdq.write_shared(source, base.calibration(), target, reduced=reduced, floats=scheme.floats)
        if scheme.floats:
            layers = layers_of(onnx.load(source, load_external_data=False))
            notes += (note_floats(pick_layers(layers, scheme.floats)),)
    else:
        notes += write_mixed(base, variant, target, reduced=reduced)
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
    )


def write_mixed(base: ExportedModel, variant: str, target: Path, *, reduced: bool) -> tuple[str, ...]:
    """Write the best model within a limit.

    Args:
        base: the exported float model.
        variant: `mixed-sqnr-N`: fewest float layers with at least N dB; `mixed-drop-N`: fewest that lose at most N
            points of accuracy; `mixed-size-N`: the least noise in at most N percent of the float file's size.
        target: the file to write.
        reduced: see `Quantizer`.

    Returns:
        What was chosen and what it reaches, one line each.

    Raises:
        UsageError: the limit is on accuracy and the model has no labels.
        ModelError: nothing to quantize, or no mix keeps the limit; names the best reached.
    """
    _, kind, number = variant.split("-")
    if kind == "drop" and _labeled_rows(base) is None:
        raise UsageError(
            f"{variant}: {base.model} has no labeled data to lose accuracy on; use mixed-sqnr or mixed-size"
        )
    quantizer, order = _study_layers(base.folder, reduced)
    order = sorted(order, key=_noise_by_byte, reverse=True) if kind == "size" else order
    best = _bisect_mix(kind, float(number), _make_measurer(quantizer, order, base), len(order) - 1, variant)
    quantizer.write(target, [layer.layer.node for layer in order[best.kept :]])
    names = ", ".join(layer.name for layer in order[: best.kept])
    return (f"{best.kept} of {len(order)} layers float{': ' * bool(names)}{names}", str(best))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedModel:
    """Hold the figures of a model that was written and run with its first `kept` layers in float.

    Attributes:
        sqnr_db: of the outputs on the input buffers.
        size: percent of the float file's bytes.
        drop: points of accuracy lost on the selection split; None where the model has no labels.
    """

    kept: int
    sqnr_db: float
    size: float
    drop: float | None

    def __str__(self) -> str:
        lost = "" if self.drop is None else f", accuracy {0.0 - self.drop:+.2f} points on the selection split"
        return f"SQNR {self.sqnr_db:.1f} dB, {self.size:.1f} % of the float file's size{lost}"


def _bisect_mix(kind: str, limit: float, measure: Callable[[int], MixedModel], most: int, variant: str) -> MixedModel:
    tried: list[MixedModel] = []

    def fits(kept: int) -> bool:
        tried.append(measure(kept))
        return _fits_limit(kind, limit, tried[-1])

    counts = range(most + 1)
    if kind == "size":
        bisect_left(counts, True, key=lambda kept: not fits(kept))
    else:
        bisect_left(counts, True, key=fits)
    if not (fitting := [one for one in tried if _fits_limit(kind, limit, one)]):
        best = max(tried, key=lambda one: _merit_of(kind, one))
        tried_all = f"none of the {len(tried)} mixes of INT8 and float layers that were tried keeps it"
        raise ModelError(f"{variant}: {tried_all}; the best reaches {best}")
    return max(fitting, key=lambda one: one.sqnr_db) if kind == "size" else min(fitting, key=lambda one: one.kept)


def _merit_of(kind: str, one: MixedModel) -> float:
    """Return the figure that the limit is on, the larger the better."""
    return {"sqnr": one.sqnr_db, "size": -one.size, "drop": -(one.drop or 0.0)}[kind]


def _fits_limit(kind: str, limit: float, one: MixedModel) -> bool:
    return _merit_of(kind, one) >= (limit if kind == "sqnr" else -limit)


@lru_cache(maxsize=1)  # several limits on one model follow each other in an export
def _study_layers(folder: Path, reduced: bool) -> tuple[Quantizer, list[LayerSensitivity]]:
    base = open_exported(folder)
    quantizer = Quantizer(base.path(Artifact.ONNX), base.calibration(), reduced=reduced)
    return quantizer, rank_in_int8(quantizer, base)


def _noise_by_byte(layer: LayerSensitivity) -> float:
    noise = 0.0 if math.isinf(layer.sqnr_db) else 10 ** (-layer.sqnr_db / 10)
    return noise / max(layer.weight_bytes, 1)  # without a weight it costs next to nothing


def _make_measurer(
    quantizer: Quantizer, order: Sequence[LayerSensitivity], base: ExportedModel
) -> Callable[[int], MixedModel]:
    source, split = base.path(Artifact.ONNX), _labeled_rows(base)
    right = _measure_accuracy(source, base, split) if split else 0.0

    @cache
    def measure(kept: int) -> MixedModel:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / source.name
            quantizer.write(path, [layer.layer.node for layer in order[kept:]])
            return MixedModel(
                kept=kept,
                sqnr_db=sqnr_of(path, base),
                size=100 * _bytes_on_disk(path) / _bytes_on_disk(source),
                drop=100 * (right - _measure_accuracy(path, base, split)) if split else None,
            )

    return measure


def _labeled_rows(base: ExportedModel) -> ReportRows | None:
    """Return the rows that a search may look at, if they have labels."""
    split = base.selection()
    return None if split is None or split.labels is None else split


def _measure_accuracy(path: Path, base: ExportedModel, split: ReportRows) -> float:
    assert split.labels is not None, "they are `_labeled_rows`"
    firsts = range(0, len(split.labels), base.batch)
    batches = [{name: rows(array, first, base.batch) for name, array in split.inputs.items()} for first in firsts]
    outputs = onnx_files.run(path, batches, base.model)
    scores = np.concatenate([one[base.outputs[0].name] for one in outputs])[: len(split.labels)]
    return float(np.mean(scores.argmax(axis=-1) == split.labels))


def _bytes_on_disk(path: Path) -> int:
    """Sum the bytes of the file and of the weights beside it."""
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*"))
