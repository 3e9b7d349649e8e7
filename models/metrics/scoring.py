"""Score each row of the report split by a metric, in a process of its own.

A metric is a function of the user's own, or one of `metrics` by its name. It compares outputs with the user's truth,
the labels or, without either, the model's own FP32 outputs.

The worker that computes the outputs leaves them in a folder, call by call, and never runs the metric; nor does the
process that started it. `python -m shootout.models.metrics.scoring FOLDER PARENT_PID` reads them there.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError
from shootout.core.exported.calls import CALLS, NAMES
from shootout.core.exported.model import REPORT_OUTPUTS, ExportedModel, ReportRows, open_exported
from shootout.core.host import child
from shootout.core.messages import MOST_SCORE, Scores
from shootout.core.scoring import MetricSpec
from shootout.models import source
from shootout.models.data import truth_files
from shootout.models.metrics import find_metric, metrics
from shootout.models.metrics.metrics import WholeSet
from shootout.models.metrics.set_metrics import find_pseudo_values

SCORES, TASK = "scores.json", "task.json"
"""Files of the folder with outputs: the answer, what to score by."""
LOWER = "lower_is_better"
"""The function's attribute that says so."""
REDUCE = "reduce"
"""The function's attribute that makes one number of the statistics of some rows."""
FORM = "expected score(outputs, truth) or score(outputs, truth, inputs), which returns one number for each row"
SET_FORM = "statistics of a row need a function that makes one number of those of some rows: set {name}.reduce"
_WITH_INPUTS = 3
FORM_OF_ANSWER = TypeAdapter(Scores)

Score = Callable[[Arrays, Any, Arrays], Any]
"""Outputs, truth and inputs of one call → a number for each row, or statistics of each."""


def find_fault_of_first_call(spec: MetricSpec, exported: ExportedModel) -> str:
    """Return why a metric can't score the reference outputs of the first call, with their shapes; "" if it can."""
    rows = exported.selection()
    assert rows is not None, "only a model with rows to score comes here"
    found = [
        {spec.name: one[spec.name].astype(spec.dtype) for spec in exported.outputs}
        for one in exported.reference_outputs()
    ]
    truth = truth_files.read(Path(spec.truth)) if spec.truth else None
    is_alone = truth is None and rows.labels is None
    own = {name: np.concatenate([one[name] for one in found]) for name in found[0]} if is_alone else None
    call = next(_list_calls(spec, truth, found, exported, rows, own), None)
    if call is None:
        return ""
    try:
        for one in _open_metric(spec, call.outputs, call.truth, has_truth=not is_alone):
            one.add(call)
    except UsageError as error:
        told = "" if is_alone else f"; truth: {metrics.list_kinds(call.truth)}"
        return f"{error}. Outputs: {metrics.list_kinds(call.outputs)}{told}"
    return ""


def report_outputs(exported: ExportedModel) -> Arrays | None:
    """Return the model's own FP32 outputs for the report split, by name; rows along axis 0 of each.

    None where no metric without truth asked for them.
    """
    if not (exported.folder / REPORT_OUTPUTS).exists():
        return None
    with np.load(exported.folder / REPORT_OUTPUTS, allow_pickle=False) as stored:
        return {spec.name: stored[str(index)] for index, spec in enumerate(exported.outputs)}


def score_report(spec: MetricSpec, folder: Path, exported: ExportedModel) -> Scores:
    """Score the report split in the process that runs the metric; raise as `score_rows`."""
    report = exported.report()
    assert report is not None, "outputs were kept of its report split"
    return score_rows(spec, folder, exported, report, None if spec.truth else report_outputs(exported))


def score_rows(
    spec: MetricSpec, folder: Path, exported: ExportedModel, scored: ReportRows, own: Arrays | None
) -> Scores:
    """Score rows in the process that runs the metric.

    Args:
        folder: holds the outputs of these rows.
        scored: the rows.
        own: the model's own FP32 outputs for them, if they are scored against these; None: against truth or labels.

    Raises:
        UsageError: it raises, or gives something else than a number for each row.
    """
    truth = truth_files.read(Path(spec.truth)) if spec.truth else None
    names = json.loads((folder / NAMES).read_text(encoding="utf-8"))
    found: list[ScoredOutput] = []
    for call in _list_calls(spec, truth, _read_outputs(folder, names), exported, scored, own):
        if not found:
            found = _open_metric(spec, call.outputs, call.truth, has_truth=own is None)
        for one in found:
            one.add(call)
    units = _find_units(spec, exported, scored, by_clip=_is_of_clips(truth, exported, scored))
    against: Literal["truth", "outputs"] = "truth" if own is None else "outputs"
    first, *others = [replace(one.collect(units), against=against) for one in found]
    return replace(first, other_outputs=tuple(others))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCall:
    """Hold one call's outputs, without the rows that fill it up.

    Attributes:
        outputs: by name.
        truth: what is right for each row.
        inputs: by name.
        rows: the number of each row in the user's data.
    """

    outputs: dict[str, Array]
    truth: Any
    inputs: Arrays
    rows: Array


def _find_units(
    spec: MetricSpec, exported: ExportedModel, scored: ReportRows, *, by_clip: bool
) -> tuple[str, Array] | None:
    """Return what the scored rows belong to: the name of a unit, such as `speaker`, and that of each row, from 0 up.

    Of a stream these are its clips; None if each row is a unit by itself.

    Args:
        by_clip: a clip is scored once, not each of its rows.
    """
    if not (spec.rows_by or exported.stream):
        return None
    rows, steps = scored.rows, exported.stream.steps if exported.stream else 1
    if by_clip:
        rows = rows.reshape(-1, steps, exported.batch)[:, 0].reshape(-1)  # the first of each clip, call by call
    name, ids = truth_files.read_ids(Path(spec.rows_by)) if spec.rows_by else ("clip", None)
    of_rows = rows // steps if ids is None else ids[rows]
    return name, np.unique(of_rows, return_inverse=True)[1]


def _is_of_clips(truth: truth_files.Truth | None, exported: ExportedModel, scored: ReportRows) -> bool:
    """Return whether the truth has an entry for each clip of a stream, and none for each of its rows."""
    if truth is None or exported.stream is None:
        return False
    column = next(iter(truth.values())) if isinstance(truth, Mapping) else truth
    return len(column) <= int(max(scored.rows.max(), scored.other_rows.max()))


def _join_clips(calls: Iterator[ScoredCall], exported: ExportedModel, *, is_own: bool) -> Iterator[ScoredCall]:
    """Yield the clips of a stream, as many at once as a call has rows.

    A function of the user's own gets all steps, on the axis after the rows. A metric by name scores what the last call
    of a clip gave.
    """
    assert exported.stream, "only a stream has clips"
    while clip := [*islice(calls, exported.stream.steps)]:
        outputs, inputs = clip[-1].outputs, clip[-1].inputs
        if is_own:
            outputs = {name: _stack_steps([one.outputs[name] for one in clip]) for name in outputs}
            inputs = {name: _stack_steps([one.inputs[name] for one in clip]) for name in inputs}
        yield ScoredCall(outputs=outputs, truth=clip[-1].truth, inputs=inputs, rows=clip[0].rows)


def _stack_steps(arrays: Sequence[Array]) -> Array:
    return np.stack(arrays, axis=min(1, arrays[0].ndim))


@dataclass(kw_only=True)
class ScoredOutput:
    """Collect the scores of one output, call by call.

    Attributes:
        name: the metric's, for people.
        output: the output's name if the model has several, and the metric is no function of the user's own.
        reduce: makes a metric of the whole set of what `score` returns; None if the metric is a mean over rows.
        is_own: the user's own function.
        rows: of each call, what `score` returned.
    """

    name: str
    lower_is_better: bool
    score: Score
    output: str = ""
    reduce: Callable[[Array], WholeSet] | None = None
    is_own: bool = False
    rows: list[Array] = field(default_factory=list)

    def add(self, call: ScoredCall) -> None:
        """Score the rows of one call.

        Raises:
            UsageError: as `score_rows`; says the row of the user's data.
        """
        try:
            scores = np.asarray(self.score(call.outputs, call.truth, call.inputs))
        except UsageError as error:
            rows = f"row {call.rows[0]}" if len(call.rows) == 1 else f"rows {call.rows[0]} to {call.rows[-1]}"
            raise UsageError(f"{error} ({rows} of the inputs)") from error
        self.rows.append(self._check_rows(scores, call.rows))

    def _check_rows(self, rows: Array, numbers: Array) -> Array:
        size = len(numbers)
        fits = rows.shape == (size,) if self.reduce is None else rows.shape[:1] == (size,)
        is_object = rows.dtype == object and not self.is_own
        if not fits or not (is_object or rows.dtype.kind in "biuf"):
            are_statistics = rows.shape[:1] == (size,) and rows.ndim > 1
            form = SET_FORM.format(name=self.name.split(":")[-1]) if are_statistics else FORM
            raise UsageError(f"{self.name} gave {rows.dtype}{list(rows.shape)} for {size} rows: {form}")
        values = (
            np.array([one if isinstance(one, float) else 0.0 for one in rows]) if is_object else rows.astype(np.float64)
        )
        if (odd := np.argwhere(~(np.abs(values) < MOST_SCORE))).size:
            value, row = values[tuple(odd[0])], numbers[odd[0][0]]
            raise UsageError(
                f"{self.name} gave {value:g} for row {row} of the inputs, which is not a score: "
                "return a finite number for each row"
            )
        return rows if is_object else values

    def collect(self, units: tuple[str, Array] | None) -> Scores:
        """Return all scores.

        Args:
            units: as `_find_units` returns them; None: each row is a unit by itself.

        Raises:
            UsageError: as `score_rows`.
        """
        if len({one.shape[1:] for one in self.rows}) > 1:
            shapes = " and ".join(dict.fromkeys(str(list(one.shape)) for one in self.rows))
            raise UsageError(f"{self.name} gave statistics of several shapes, {shapes}: expected as many for each row")
        rows = np.concatenate(self.rows)
        unit, of_rows = units or ("row", np.arange(len(rows)))
        found = Scores(name=self.name, output=self.output, lower_is_better=self.lower_is_better, unit=unit)
        if self.reduce is None and units is None:
            return replace(found, rows=tuple(rows.tolist()))
        if not of_rows.any():
            raise UsageError(
                f"{self.name}: all scored rows are of one {unit}, and at least two are needed: give rows of more"
            )
        whole = self.reduce(rows) if self.reduce else _average_rows(rows, is_error=self.lower_is_better)
        try:
            added = find_pseudo_values(whole.value_of, of_rows, must_be_even=self.is_own and self.reduce is not None)
        except ValueError as error:
            raise UsageError(f"{self.name} can't score the whole set: {error}") from None
        return replace(found, rows=tuple(added.tolist()), worst=whole.worst)


def _average_rows(rows: Array, *, is_error: bool) -> WholeSet:
    """Return the mean over rows; shares may lose all of it, other scores as much as they lie apart."""
    is_share = not is_error and rows.min() >= 0 and rows.max() <= 1
    worst = float(rows.mean() if is_share else np.ptp(rows))
    return WholeSet(value_of=lambda kept: float(rows[kept].mean()), worst=worst)


def _open_metric(spec: MetricSpec, outputs: Arrays, truth: Any, *, has_truth: bool) -> list[ScoredOutput]:
    """Return what is to be scored, and how.

    Raises:
        UsageError: the user's module can't be imported, or the name doesn't fit outputs and truth.
    """
    if spec.is_own:
        return [_open_own(spec.metric)]
    metric = find_metric(spec.metric)
    metric.require_library()
    picked = [metrics.pick_output(outputs, truth, spec.scores, metric)]
    if has_truth and not spec.scores and isinstance(truth, dict):
        picked = [name for name in outputs if name in truth] or picked
    has_others = len(outputs) > 1 and not (metric.pools and metric.given)  # an embedding goes by no output's name
    parts = metric.parts or (metric,)
    return [_score_by_name(part, name, metric, has_others=has_others) for name in picked for part in parts]


def _open_own(metric: str) -> ScoredOutput:
    """Import the user's function."""
    place = source.find(metric)
    own = source.find_function(place, "scores the rows")
    takes_inputs = _count_arguments(own) >= _WITH_INPUTS
    lower, reduce = bool(getattr(own, LOWER, False)), getattr(own, REDUCE, None)

    def call(outputs: Arrays, truth: Any, inputs: Arrays) -> Any:
        given = (outputs, truth, inputs) if takes_inputs else (outputs, truth)
        return source.call(place, lambda: own(*given))

    if reduce is None:
        return ScoredOutput(name=place.short, lower_is_better=lower, score=call, is_own=True)
    if not callable(reduce):
        raise UsageError(f"{place.short}.{REDUCE}: expected a function of the statistics, received {reduce!r}")

    def reduce_rows(statistics: Array) -> float:
        value = np.asarray(source.call(place, lambda: reduce(statistics)))
        if value.ndim or value.dtype.kind not in "biuf":
            got = f"{value.dtype}{list(value.shape)}"
            raise UsageError(f"{place.short}.{REDUCE} gave {got}: expected one number of all the rows that it gets")
        return float(value)

    def open_set(statistics: Array) -> WholeSet:
        value = reduce_rows(statistics)
        is_share = not lower and 0 <= value <= 1
        return WholeSet(value_of=lambda kept: reduce_rows(statistics[kept]), worst=value if is_share else 0.0)

    return ScoredOutput(name=place.short, lower_is_better=lower, score=call, reduce=open_set, is_own=True)


def _score_by_name(metric: metrics.Metric, output: str, asked: metrics.Metric, *, has_others: bool) -> ScoredOutput:
    def call_named(outputs: Arrays, truth: Any, inputs: Arrays) -> Any:
        try:
            return metric.score(*asked.pool(outputs[output], metrics.pick_truth(output, truth, outputs), inputs))
        except UsageError as error:
            if not has_others:
                raise
            raise UsageError(f"output {output}: {error}; --scores NAME scores one output alone") from error

    return ScoredOutput(
        name=metric.name,
        lower_is_better=metric.lower_is_better,
        score=call_named,
        reduce=metric.reduce if metric.open_set else None,
        output=output if has_others else "",
    )


def _count_arguments(function: Callable[..., Any]) -> int:
    try:
        kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 0
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _list_calls(
    spec: MetricSpec,
    truth: truth_files.Truth | None,
    outputs_of_calls: Iterable[Arrays],
    exported: ExportedModel,
    scored: ReportRows,
    own: Arrays | None,
) -> Iterator[ScoredCall]:
    """Yield each call, without the rows that fill the last one up; of truth by clips, the clips of each call's rows."""
    by_clip = _is_of_clips(truth, exported, scored)
    calls = _list_rows(truth, outputs_of_calls, exported, scored, own, by_clip=by_clip)
    return _join_clips(calls, exported, is_own=spec.is_own) if by_clip else calls


def _list_rows(
    truth: truth_files.Truth | None,
    outputs_of_calls: Iterable[Arrays],
    exported: ExportedModel,
    scored: ReportRows,
    own: Arrays | None,
    *,
    by_clip: bool,
) -> Iterator[ScoredCall]:
    steps = exported.stream.steps if exported.stream and by_clip else 1
    for number, outputs in enumerate(outputs_of_calls):
        here = np.arange(number * exported.batch, min((number + 1) * exported.batch, len(scored.rows)))
        right: Any
        if truth is not None:
            right = truth_files.take_rows(truth, scored.rows[here] // steps)
        elif own is not None:
            right = {name: array[here] for name, array in own.items()}
        else:
            right = None if scored.labels is None else scored.labels[here]
        yield ScoredCall(
            outputs={name: _cut(array, exported.batch, len(here)) for name, array in outputs.items()},
            truth=right,
            inputs=scored.take(here),
            rows=scored.rows[here],
        )


def _read_outputs(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Array]]:
    """Yield what `saving` left of each call, in their order."""
    for path in sorted(folder.glob(CALLS)):
        with np.load(path, allow_pickle=False) as stored:
            stacks = [stored[f"arr_{index}"] for index in range(len(names))]
        yield from (dict(zip(names, one, strict=True)) for one in zip(*stacks, strict=True))


def _cut(array: Array, batch: int, rows: int) -> Array:
    """Drop the rows that fill a call up; an output whose first axis isn't the batch stays whole."""
    return array[:rows] if array.shape[:1] == (batch,) else array


def main() -> None:
    """Score one folder, or try the first call; what goes wrong is the answer."""
    child.leave_with(int(sys.argv[2]))
    os.dup2(2, 1)  # what the user's code prints must not get into the answer
    folder = Path(sys.argv[1])
    task = json.loads((folder / TASK).read_text(encoding="utf-8"))
    exported, is_trial = open_exported(Path(task.pop("exported"))), task.pop("is_trial")
    spec = MetricSpec(**{key: task[key] for key in ("metric", "truth", "scores", "rows_by")})
    try:
        if is_trial:
            found = Scores(name="", fault=find_fault_of_first_call(spec, exported))
        else:
            found = score_report(spec, folder, replace(exported, on_selection=task["on_selection"]))
    except UsageError as error:
        found = Scores(name="", fault=str(error))
    (folder / SCORES).write_bytes(FORM_OF_ANSWER.dump_json(found))


if __name__ == "__main__":
    main()
