"""Measure the error that each layer or block of a model causes if it is rounded alone, the worst first.

Ranges are calibrated once. Then each layer in turn is rounded by itself, and the model runs on its input buffers with
all optimizations off, so that the figures are the model's and not some runtime's. They are compared with what the same
graph gives without rounding.

The work is done in a process of its own (`python -m shootout.apps.sensitivity FOLDER PLACE PARENT_PID`), so
that torch and ONNX Runtime stay out of the caller's.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.text import Text

from shootout.core.clock import Deadline, Stopwatch
from shootout.core.contract import SCALED, Array, Artifact, Precision
from shootout.core.errors import ModelError, NothingMeasured, ShootoutError, SkippedArm, UsageError
from shootout.core.exported.client import obtain_all, workshop
from shootout.core.exported.fidelity import compare
from shootout.core.exported.model import ExportedModel, open_exported
from shootout.core.exported.request import Request, error_from_json, error_to_json
from shootout.core.host.child import ONE_THREAD, leave_with, run
from shootout.core.host.environment import SEVEN_BITS, saturates
from shootout.core.install import install
from shootout.core.messages import Progress
from shootout.core.schemes import parse, write_floats
from shootout.core.units import counted, size, span
from shootout.models.onnx.layers import Layer
from shootout.tell.columns import Cell, stack_tables

if TYPE_CHECKING:
    from shootout.quantize.layer_rounding import RoundableLayer, RoundableModel

SQNR = "SQNR"
FLOATS, OFFERING_FLOATS = "float-", (Precision.INT8, Precision.INT8_DYNAMIC, Precision.INT4)
"""The word of schemes that leave layers in float, and the precisions that have it."""
MOST_LINES = 20
"""The table has no more lines: JSON has all."""
WANTED, FOUND, TOLD = "wanted.json", "found.json", "told.txt"
"""The files in the process's folder: what to measure, the figures or the error, and how far it is."""
PLANS = 0.9
"""The share of the time that is planned with; the figure that was begun last has the rest."""
RANKING_PLANS = 0.5
"""A ranking plans with this part of its time, and is ended at its end."""
PRECISIONS = (*SCALED, Precision.FP16, Precision.BF16, Precision.TF32)
"""The precisions that a layer can be rounded to."""
By = Literal["layer", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Say what to measure.

    Attributes:
        precision: one of PRECISIONS.
        by: what is rounded at once.
        is_detailed: whether weights and activations are also rounded apart from each other, and all but the worst part.
        limit_s: seconds after which no further figure is begun; None: no limit.
    """

    precision: Precision = Precision.INT8
    by: By = "layer"
    is_detailed: bool = False
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """Hold what rounding a part of the model, all else in float, does to its outputs.

    Attributes:
        name: the layer's, or the block's.
        layers: the layers that were rounded.
        sqnr_db: signal to quantization noise of the outputs; inf: no error; -inf: NaN or infinity.
        weights_db: the same with weights alone rounded; None: not measured, or the precision rounds none here.
        activations_db: likewise.
        noise_share: the noise among the sum of all parts' noises; None if one has NaN, none has any, or a part wasn't
            measured.
        weight_bytes: of the float32 weights.
        flops_share: the part's operations among those of all layers.
    """

    name: str
    layers: tuple[Layer, ...]
    sqnr_db: float
    weights_db: float | None = None
    activations_db: float | None = None
    noise_share: float | None = None
    weight_bytes: int
    flops_share: float

    @property
    def layer(self) -> Layer:
        """Return the layer, or the first of the block."""
        return self.layers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSensitivity:
    """Hold what one precision does to a model, as a whole and part by part.

    Attributes:
        by: what the parts are.
        parts: the most harmful first.
        whole: all layers rounded.
        without_worst: all but the first of `parts`; None if there is only one, or no time was left.
        unmeasured: parts that there was no time for.
    """

    precision: Precision
    by: By
    parts: Sequence[LayerSensitivity]
    whole: LayerSensitivity
    without_worst: LayerSensitivity | None = None
    unmeasured: int = 0


_FORM_OF_WANTED, _FORM_OF_FOUND = TypeAdapter(Wanted), TypeAdapter(PrecisionSensitivity)


def rank_layers(exported: ExportedModel, limit: Deadline, progress: Progress | None = None) -> PrecisionSensitivity:
    """Rank every layer of a model that quantizers take by what INT8 does to it alone, the most harmful first.

    Args:
        limit: when it must end. Half of the time is planned with, since the last figures take what they take.

    Raises:
        UsageError, ModelError: as `measure_sensitivity`, or not even one layer was ranked in time.
    """
    wanted = Wanted(limit_s=limit.part(RANKING_PLANS).seconds)
    found = _measure_apart(exported, wanted, limit, progress)
    return replace(found, parts=[part for part in found.parts if part.layer.is_quantizable])


def measure_sensitivity(request: Request, wanted: Wanted, progress: Progress | None = None) -> PrecisionSensitivity:
    """Measure what a precision does to the parts of a model.

    Args:
        request: a plain model.
        wanted: its limit counts from now, the export included.
        progress: hears how far it is.

    Raises:
        UsageError: the request is wrong, its calibration data can't be used, or a package is missing.
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
) -> PrecisionSensitivity:
    """Measure an exported model in a process of its own, which is ended at the limit."""
    if Artifact.ONNX not in exported.artifacts:
        raise ModelError(f"sensitivity takes an ONNX file, and {exported.model} has none: {exported.unmade}")
    with workshop() as place:
        (place / WANTED).write_text(json.dumps(asdict(wanted)), encoding="utf-8")
        look = partial(_show_progress, place / TOLD, progress)
        left_s = max(limit.left_s, 0.0)
        how = run("shootout.apps.sensitivity", [exported.folder, place], left_s, ONE_THREAD, look).how
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


@dataclass(frozen=True, slots=True)
class _Rounding:
    """A model whose layers are rounded.

    Attributes:
        right: its outputs for each input buffer without rounding.
        flops: of all its layers.
    """

    model: RoundableModel
    right: Sequence[Mapping[str, Array]]
    flops: float

    def find_sqnr(self, weights: Collection[RoundableLayer], activations: Collection[RoundableLayer]) -> float:
        """Return the decibels of the outputs, with these layers' weights and activations rounded; ∞ if nothing moves.

        -∞ where the outputs aren't finite.
        """
        noise = compare(self.model.run(weights, activations), self.right)
        return -math.inf if noise.max_abs is None else math.inf if noise.sqnr_db is None else noise.sqnr_db

    def measure(self, name: str, layers: Sequence[RoundableLayer], *, apart: bool = False) -> LayerSensitivity:
        """Measure a part of so many layers; `apart`: its weights and its activations by themselves too."""
        both = self.find_sqnr(layers, layers)
        has_weights, has_inputs = any(one.weights for one in layers), any(one.reads for one in layers)
        return LayerSensitivity(
            name=name,
            layers=tuple(one.layer for one in layers),
            sqnr_db=both,
            weights_db=(self.find_sqnr(layers, ()) if has_inputs else both) if apart and has_weights else None,
            activations_db=(self.find_sqnr((), layers) if has_weights else both) if apart and has_inputs else None,
            weight_bytes=sum(one.weight_bytes for one in layers),
            flops_share=math.fsum(one.flops for one in layers) / self.flops if self.flops else 0.0,
        )


def measure(
    exported: ExportedModel, wanted: Wanted, *, reduced: bool = False, tell: Callable[[str], object] = lambda _: None
) -> PrecisionSensitivity:
    """Measure the parts of a float model one by one, the whole, and all but the most harmful part.

    Args:
        reduced: INT8 weights get 7 bits.
        tell: hears how far it is.

    Raises:
        ValueError: the user's calibration data can't be used.
        ModelError: there is nothing to round, or nothing to tell the error by.
    """
    limit = Deadline(wanted.limit_s)
    rounding = _round_model(exported, wanted.precision, reduced=reduced)
    parts: dict[str, list[RoundableLayer]] = {}
    for one in rounding.model.layers:
        parts.setdefault(one.layer.block if wanted.by == "block" else one.layer.name, []).append(one)
    found, longest_s = list[LayerSensitivity](), 0.0
    for number, (name, layers) in enumerate(parts.items(), 1):
        if found and not limit.allows(longest_s):
            break
        tell(f"{wanted.precision}: {number} of {len(parts)} rounded alone")
        with Stopwatch() as watch:
            found.append(rounding.measure(name, layers, apart=wanted.is_detailed))
        longest_s = max(longest_s, watch.seconds)
    found.sort(key=lambda part: part.sqnr_db)
    if len(found) == len(parts):  # a share of what there was time for would tell nothing
        noises = [10 ** (-part.sqnr_db / 10) for part in found]  # of the outputs' power; 0 for an infinite ratio
        if 0 < (noise := math.fsum(noises)) < math.inf:
            found = [replace(part, noise_share=own / noise) for part, own in zip(found, noises, strict=True)]
    whole, without = rounding.measure("all layers", rounding.model.layers), None
    kept = [layer for name, layers in parts.items() if name != found[0].name for layer in layers]
    if wanted.is_detailed and kept and limit.allows(longest_s):
        without = rounding.measure(f"all but {found[0].name}", kept)
    return PrecisionSensitivity(
        precision=wanted.precision,
        by=wanted.by,
        parts=found,
        whole=whole,
        without_worst=without,
        unmeasured=len(parts) - len(found),
    )


def _round_model(exported: ExportedModel, precision: Precision, *, reduced: bool) -> _Rounding:
    from shootout.quantize.layer_rounding import RoundableModel

    model = RoundableModel(exported, precision, reduced=reduced)
    right = model.run()
    if not any(array.dtype.kind == "f" for array in right[0].values()):
        raise ModelError(
            f"{exported.model} gives whole numbers alone, which tell no small error: make the scores behind them an "
            "output too"
        )
    return _Rounding(model, right, math.fsum(one.flops for one in model.layers))


def main() -> None:
    """Write the figures, or the error, of the exported model in a folder."""
    leave_with(int(sys.argv[3]))
    exported, place = open_exported(Path(sys.argv[1])), Path(sys.argv[2])
    wanted, tell = _FORM_OF_WANTED.validate_json((place / WANTED).read_bytes()), (place / TOLD).write_text
    try:
        found = measure(exported, wanted, reduced=saturates(), tell=tell)
        said: dict[str, Any] = {"found": asdict(found)}
    except ModuleNotFoundError as error:
        said = {"error": error_to_json(UsageError(f"sensitivity needs {error.name}: {install('onnxruntime')}"))}
    except ShootoutError as error:
        said = {"error": error_to_json(error)}
    except ValueError as error:
        said = {"error": error_to_json(UsageError(str(error)))}
    (place / FOUND).write_text(json.dumps(said), encoding="utf-8")


def render(found: PrecisionSensitivity, name: str, columns: int) -> RenderableType:
    """Render the answer, a table with the worst part first, and how to read it.

    Args:
        name: of the model and its size, for people.
        columns: width of the console.
    """
    lines = [_tell_part(part, found) for part in found.parts[:MOST_LINES]]
    headers = [header for header in lines[0] if any(str(line[header]) for line in lines)]
    answer, notes = ([Text(line) for line in some] for some in (tell_answer(found), _tell_notes(found)))
    tables = stack_tables(headers, lines, columns, left=(found.by, "in float", "operator"))
    return Group(Text(name, style="bold"), *answer, Text(""), *tables, *notes)


def tell_answer(found: PrecisionSensitivity) -> list[str]:
    """Say what to leave in float first, and what that is worth."""
    worst, precision = found.parts[0], found.precision.upper()
    if found.whole.sqnr_db == math.inf:
        return [f"{precision} changes no output of this model: nothing has to stay in float for it."]
    told = f"All of it in {precision}: {SQNR} {_tell_decibels(found.whole.sqnr_db)}."
    if found.without_worst:
        told += f" With {found.by} {worst.name} in float: {SQNR} {_tell_decibels(found.without_worst.sqnr_db)}."
    if worst.sqnr_db == -math.inf:
        advice = f"Leave {_name(worst, found)} in float: in {precision} it gives NaN or infinity."
    elif found.unmeasured:
        some = f"{len(found.parts)} of {counted(len(found.parts) + found.unmeasured, found.by)}"
        advice = f"Of the {some} that --max-time left time for, {_name(worst, found)} errs most."
    elif len(found.parts) == 1:
        advice = f"{worst.name} is the only {found.by} of this model."
    else:
        share = "" if worst.noise_share is None else f": it alone causes {worst.noise_share:.0%} of {precision}'s error"
        advice = f"Leave {_name(worst, found)} in float first{share}."
    return [advice, told]


def _name(part: LayerSensitivity, found: PrecisionSensitivity) -> str:
    """Name a part, and the scheme that leaves it in float if its precision has one: `layer 8 (int8/float-4)`."""
    scheme = f" ({found.precision}/{_floats_of(part)})" if found.precision in OFFERING_FLOATS else ""
    return f"{found.by} {part.name}{scheme}"


def _tell_decibels(sqnr_db: float) -> str:
    """Write a signal to noise ratio: `31.2 dB`, `exact` without noise, `NaN` if an output is no number."""
    return f"{sqnr_db:.1f} dB" if math.isfinite(sqnr_db) else "exact" if sqnr_db > 0 else "NaN"


def _floats_of(part: LayerSensitivity) -> str:
    return write_floats([layer.number for layer in part.layers])


def _tell_part(part: LayerSensitivity, found: PrecisionSensitivity) -> dict[str, Cell]:
    """Return the cells of a part's line, by header."""
    scheme, has_mixes = _floats_of(part), found.precision in OFFERING_FLOATS
    operators = dict.fromkeys(layer.operator for layer in part.layers)
    return {
        found.by: part.name,
        **({"in float": scheme} if has_mixes else {"number": scheme.removeprefix(FLOATS)}),
        "operator": ", ".join(operators),
        SQNR: _tell_decibels(part.sqnr_db),
        "weights alone": "" if part.weights_db is None else _tell_decibels(part.weights_db),
        "activations alone": "" if part.activations_db is None else _tell_decibels(part.activations_db),
        "error": "" if part.noise_share is None else f"{part.noise_share:.1%}",
        "weights": size(part.weight_bytes) if part.weight_bytes else "",
        "ops": f"{part.flops_share:.1%}",
    }


def _tell_notes(found: PrecisionSensitivity) -> list[str]:
    """Say how to read the table, and what is missing from it."""
    by, notes = found.by, []
    if more := found.parts[MOST_LINES:]:
        notes.append(f"{counted(len(more), f'more {by}')}: --json has all.")
    notes += [
        f"{SQNR}: signal to quantization noise of the model's outputs with that {by} alone rounded; more is better. "
        "Rounded in the float graph itself, without a runtime's optimizations.",
        f"error: the {by}'s noise among the sum of those of all {by}s.",
    ]
    if found.precision in OFFERING_FLOATS:
        notes.append(
            f"{by}: its name in the model's file. in float: the scheme that leaves it in float. N of {FLOATS}N counts "
            f"layers from 0 in the graph's order. A runtime may still round what that {by} reads: then leave the layer "
            f"before it in float, too, as in {FLOATS}1.2."
        )
    else:
        notes.append(f"{by}: its name in the model's file. number: counts layers from 0 in the graph's order.")
    if found.precision is Precision.INT8 and saturates():
        notes.append(SEVEN_BITS.format("weights"))
    return notes


if __name__ == "__main__":
    main()
