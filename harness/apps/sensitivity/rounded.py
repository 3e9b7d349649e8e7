"""Measure what rounding one layer alone does to the model's outputs: the layers that cause a precision's error.

Ranges are calibrated once. Then each layer in turn is rounded by itself, and the model runs on its input buffers with
all optimizations off, so that the figures are the model's and not some runtime's. They are compared with what the same
graph gives without rounding. The caller's process reads the result, so ONNX and its runtime are imported at the first
call.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from shootout.core.clock import Deadline, Stopwatch
from shootout.core.contract import Arrays, Precision
from shootout.core.errors import ModelError
from shootout.core.exported.calls import saving
from shootout.core.exported.fidelity import compare
from shootout.core.exported.model import ExportedModel, ReportRows
from shootout.core.messages import Scores
from shootout.core.scoring import MetricSpec
from shootout.models.metrics.scoring import score_rows
from shootout.models.onnx.layers import Layer
from shootout.tell.paired import compare_means

if TYPE_CHECKING:
    from shootout.quantize.layerwise.rounding import RoundableLayer, RoundableModel

PRECISIONS = (
    Precision.INT8,
    Precision.INT8_DYNAMIC,
    Precision.INT4,
    Precision.FP8,
    Precision.FP16,
    Precision.BF16,
    Precision.TF32,
)
"""The precisions that a layer can be rounded to."""
By = Literal["layer", "block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Say what to measure.

    Attributes:
        precisions: of PRECISIONS.
        by: what is rounded at once.
        is_detailed: whether weights and activations are also rounded apart from each other, and selection rows scored.
        metric: what scores these rows, if the model has some; None: nothing.
        limit_s: seconds after which no further figure is begun; None: no limit.
    """

    precisions: Sequence[Precision] = (Precision.INT8,)
    by: By = "layer"
    is_detailed: bool = False
    metric: MetricSpec | None = None
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """Hold how a metric changed on the selection rows.

    Attributes:
        name: the metric's.
        before: of the float model.
        after: of the rounded one.
        value: after less before.
        low, high: its 95 % interval, by rows in pairs; None: these rows tell nothing of others.
        rows: how many; `unit`: what each is.
        lower_is_better: else higher is.
        output: the output that is scored, if the model has several.
    """

    name: str
    before: float
    after: float
    value: float
    low: float | None
    high: float | None
    rows: int
    unit: str = "row"
    lower_is_better: bool = False
    output: str = ""


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
        score: what it costs on the selection rows; None: not measured.
        weight_bytes: of the float32 weights.
        flops_share: the part's operations among those of all layers.
    """

    name: str
    layers: tuple[Layer, ...]
    sqnr_db: float
    weights_db: float | None = None
    activations_db: float | None = None
    noise_share: float | None = None
    score: ScoreChange | None = None
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


def measure(
    exported: ExportedModel, wanted: Wanted, *, reduced: bool = False, tell: Callable[[str], None] = lambda _: None
) -> list[PrecisionSensitivity]:
    """Measure each precision that is wanted.

    Args:
        exported: a float model.
        reduced: INT8 weights get 7 bits.
        tell: hears how far it is.

    Raises:
        ValueError: the user's calibration data can't be used.
        UsageError: the metric can't score the outputs.
        ModelError: there is nothing to round, or nothing to tell the error by.
    """
    from shootout.quantize.layerwise.rounding import RoundableModel

    limit, found = Deadline(wanted.limit_s), list[PrecisionSensitivity]()
    for precision in wanted.precisions:
        tell(f"{precision}: preparing")
        rounded = RoundableModel(exported, precision, reduced=reduced)
        found.append(_measure_precision(precision, _Measuring(rounded, exported, wanted), limit, tell))
    return found


def _find_sqnr(outputs: Sequence[Arrays], right: Sequence[Arrays]) -> float:
    found = compare(outputs, right)
    if found.max_abs is None:
        return -math.inf
    return math.inf if found.sqnr_db is None else found.sqnr_db


def _measure_precision(
    precision: Precision, measuring: _Measuring, limit: Deadline, tell: Callable[[str], None]
) -> PrecisionSensitivity:
    """Measure the parts one by one, then what more there is time for, of the most harmful part first."""
    parts, found, longest_s = measuring.parts, list[LayerSensitivity](), 0.0
    for number, (name, layers) in enumerate(parts.items(), 1):
        if found and not limit.allows(longest_s):
            break
        tell(f"{precision}: {number} of {len(parts)} rounded alone")
        with Stopwatch() as watch:
            found.append(measuring.measure(name, layers))
        longest_s = max(longest_s, watch.seconds)
    found.sort(key=lambda part: part.sqnr_db)
    if len(found) == len(parts):  # a share of what there was time for would tell nothing
        found = _share_noise(found)
    every = [layer for layers in parts.values() for layer in layers]
    whole = measuring.measure("all layers", every)
    without = None
    if measuring.wanted.is_detailed and limit.allows(longest_s):
        whole = measuring.add_score(whole, every)
        kept = [layer for name, layers in parts.items() if name != found[0].name for layer in layers]
        if kept:
            without = measuring.add_score(measuring.measure(f"all but {found[0].name}", kept), kept)
    for number, part in enumerate(found if measuring.wanted.is_detailed else ()):
        if not limit.allows(longest_s):
            break
        tell(f"{precision}: {number + 1} of {len(found)} in more detail")
        with Stopwatch() as watch:
            found[number] = measuring.add_details(part, parts[part.name])
        longest_s = max(longest_s, watch.seconds)
    return PrecisionSensitivity(
        precision=precision,
        by=measuring.wanted.by,
        parts=found,
        whole=whole,
        without_worst=without,
        unmeasured=len(parts) - len(found),
    )


def _share_noise(parts: Sequence[LayerSensitivity]) -> list[LayerSensitivity]:
    noises = [10 ** (-part.sqnr_db / 10) for part in parts]  # relative to the outputs' power; 0 for an infinite ratio
    whole = math.fsum(noises)
    if not 0 < whole < math.inf:
        return [*parts]
    return [replace(part, noise_share=noise / whole) for part, noise in zip(parts, noises, strict=True)]


class _Measuring:
    """Measure parts of a model in one precision.

    Raises:
        UsageError: a metric has no rows to score.
        ModelError: the model has no float outputs to tell an error by.
    """

    def __init__(self, rounded: RoundableModel, exported: ExportedModel, wanted: Wanted) -> None:
        self.wanted, self._rounded, self._exported = wanted, rounded, exported
        self._right = rounded.run()
        if not any(array.dtype.kind == "f" for array in self._right[0].values()):
            raise ModelError(
                f"{exported.model} gives whole numbers alone, which tell no small error: make the scores behind them "
                "an output too"
            )
        self._flops = math.fsum(one.flops for one in rounded.layers)
        self._rows = self._find_rows()
        self._own: Arrays | None = None
        if self._rows is not None and wanted.metric and not wanted.metric.truth and self._rows.labels is None:
            self._own = self._run_rows(self._rows)
        self._before = None if self._rows is None else self._score(self._rows, ())

    @property
    def parts(self) -> dict[str, list[RoundableLayer]]:
        """Return the layers of each part by its name, in the graph's order."""
        found: dict[str, list[RoundableLayer]] = {}
        for one in self._rounded.layers:
            name = one.layer.block if self.wanted.by == "block" else one.layer.name
            found.setdefault(name, []).append(one)
        return found

    def measure(self, name: str, layers: Sequence[RoundableLayer]) -> LayerSensitivity:
        """Measure these layers rounded at once."""
        flops = math.fsum(one.flops for one in layers)
        return LayerSensitivity(
            name=name,
            layers=tuple(one.layer for one in layers),
            sqnr_db=self._find_sqnr(layers, layers),
            weight_bytes=sum(one.weight_bytes for one in layers),
            flops_share=flops / self._flops if self._flops else 0.0,
        )

    def add_details(self, part: LayerSensitivity, layers: Sequence[RoundableLayer]) -> LayerSensitivity:
        """Add what weights and activations do apart from each other, and what the part costs on the selection rows."""
        has_weights, has_activations = any(one.weights for one in layers), any(one.reads for one in layers)
        if has_weights:
            part = replace(part, weights_db=self._find_sqnr(layers, ()) if has_activations else part.sqnr_db)
        if has_activations:
            part = replace(part, activations_db=self._find_sqnr((), layers) if has_weights else part.sqnr_db)
        return self.add_score(part, layers)

    def add_score(self, part: LayerSensitivity, layers: Sequence[RoundableLayer]) -> LayerSensitivity:
        """Add what the part costs on the selection rows, if there are some and its outputs are numbers."""
        if self._before is None or self._rows is None or part.sqnr_db == -math.inf:
            return part
        return replace(part, score=_compare_scores(self._before, self._score(self._rows, layers)))

    def _find_sqnr(self, weights: Collection[RoundableLayer], activations: Collection[RoundableLayer]) -> float:
        return _find_sqnr(self._rounded.run(weights, activations), self._right)

    def _find_rows(self) -> ReportRows | None:
        """Return the rows that a search may look at, if anything scores them."""
        return self._exported.selection() if self.wanted.is_detailed and self.wanted.metric else None

    def _run_rows(self, rows: ReportRows) -> Arrays:
        """Return the float model's own outputs for these rows, by name."""
        call = self._call(())
        outputs = [call(inputs) for inputs in rows.calls(self._exported.batch)]
        return {name: np.concatenate([one[name] for one in outputs])[: len(rows.rows)] for name in outputs[0]}

    def _call(self, layers: Sequence[RoundableLayer]) -> Callable[[Arrays], Arrays]:
        call = self._rounded.call(layers, layers)
        return self._exported.stream.carry(call) if self._exported.stream else call

    def _score(self, rows: ReportRows, layers: Sequence[RoundableLayer]) -> Scores:
        """Return what the metric gives the rows."""
        exported, metric = self._exported, self.wanted.metric
        assert metric, "without one no rows are looked for"
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            run = saving(self._call(layers), folder, -(-len(rows.rows) // exported.batch))
            for inputs in rows.calls(exported.batch):
                run(inputs)
            return score_rows(metric, folder, exported, rows, self._own)


def _compare_scores(before: Scores, after: Scores) -> ScoreChange:
    """Compare row by row; of several outputs return the one that lost most."""
    pairs = zip((before, *before.other_outputs), (after, *after.other_outputs), strict=True)
    found = [_compare_output(*pair) for pair in pairs]
    return max(found, key=lambda one: one.value if one.lower_is_better else -one.value)


def _compare_output(before: Scores, after: Scores) -> ScoreChange:
    lower, count = after.lower_is_better, len(after.rows)
    change = compare_means(before.rows, after.rows, is_lower_better=lower, worst=before.worst)
    means = [math.fsum(one.rows) / count for one in (before, after)]
    return ScoreChange(
        name=after.name,
        before=means[0],
        after=means[1],
        value=means[1] - means[0],
        low=change.low if change else None,
        high=change.high if change else None,
        rows=count,
        unit=after.unit,
        lower_is_better=lower,
        output=after.output,
    )
