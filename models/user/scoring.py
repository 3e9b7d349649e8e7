"""Score each row of the report split by a metric, in a process of its own.

A metric is a function of the user's own, or one of `metrics` by its name. It compares outputs with the user's truth,
the labels or, without either, the model's own FP32 outputs.

The worker that computes the outputs leaves them in a folder, call by call, and never runs the metric; nor does the
process that started it. `python -m shootout.models.user.scoring FOLDER PARENT_PID` reads them there.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter

from shootout.contract import Array, Arrays
from shootout.errors import UsageError, unknown
from shootout.exported import truth_files
from shootout.exported.model import ExportedModel, open_exported
from shootout.host import child
from shootout.messages import MOST_SCORE, Scores
from shootout.models.user import factory, metrics, source

NAMES, SCORES, TASK, CALLS = "names.json", "scores.json", "task.json", "*.npz"
"""The folder's files: the outputs' names, the answer, what to score by, and one for each call."""
LOWER = "lower_is_better"
"""The function's attribute that says so."""
AUTO = "auto"
OF_TEXTS = ("ctc", "cer", "wer")
"""The names of metrics that take texts for truth."""
FORM = "expected score(outputs, truth) or score(outputs, truth, inputs), which returns one number for each row"
_WITH_INPUTS = 3
LEAST_OF_PART = 5
"""Rows of a part that show a loss: of fewer, not even the loss of all their scores is significant."""
_FORM_OF_ANSWER = TypeAdapter(Scores)

Score = Callable[[Arrays, Any, Arrays], Any]
"""Outputs, truth and inputs of one call → a number for each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Say what rows are scored by.

    Attributes:
        metric: a name, `auto`, `file.py:score` or `package.module:score`.
        truth: the path of the user's truth; "" for the labels, or without these the model's own FP32 outputs.
        scores: the output that a named metric goes by; "" for the first that fits.
    """

    metric: str
    truth: str = ""
    scores: str = ""


def is_own(metric: str) -> bool:
    """Tell whether a metric is meant as a function of the user's own, not as a name."""
    return ":" in metric


def check(metric: str) -> str:
    """Return a hash of a metric: of its source, which is read and not run, or of its name.

    Raises:
        UsageError: there is no such name, file, module or function.
    """
    if not is_own(metric):
        return metric if metric == AUTO else metrics.find_metric(metric).name
    place = source.find(metric)
    source.definition(place, "scores the rows")
    return place.digest()


def check_truth(metric: str, scores: str, truth: truth_files.Truth, outputs: Collection[str]) -> None:
    """Refuse truth that a metric by name can't score by, as far as names and types tell before the model runs.

    Args:
        scores: the output that it goes by; "" if none is named.
        outputs: the model's, by name; none if only its export tells.

    Raises:
        UsageError: no array of the truth belongs to an output, or it holds texts.
    """
    if scores and outputs and scores not in outputs:
        raise unknown("output", scores, outputs)
    if is_own(metric) or metric == AUTO:
        return
    columns = truth if isinstance(truth, Mapping) else {"": truth}
    named = [name for name in columns if name in outputs] or list(columns)
    if outputs and len(named) > 1 and named[0] not in outputs:
        raise UsageError(
            f"no truth for {metric}: the truth has {', '.join(named)}; the outputs are {', '.join(outputs)}. Name the "
            "truth's array like the output"
        )
    for name in named if len(named) == 1 or outputs else ():
        column = columns[name]
        first = column.flat[0] if isinstance(column, np.ndarray) else column[0]
        if isinstance(first, str) and metric.partition("@")[0] not in OF_TEXTS:
            raise UsageError(
                f"{metric} scores by numbers; the truth{f' {name!r}' * bool(name)} holds texts: {str(first)!r}"
            )


def saving(run: Callable[[Arrays], Arrays], folder: Path) -> Callable[[Arrays], Arrays]:
    """Return `run`, which also leaves the outputs of each call in the folder."""
    numbers = count()

    def saved(inputs: Arrays) -> Arrays:
        outputs = run(inputs)
        (folder / NAMES).write_text(json.dumps(list(outputs)), encoding="utf-8")
        np.savez(folder / f"{next(numbers):06}", *outputs.values())
        return outputs

    return saved


def score(measure: Measure, folder: Path, exported: ExportedModel, timeout_s: float) -> Scores:
    """Score the outputs that lie in a folder, in a process of its own.

    Args:
        exported: the model whose report split they are of.
        timeout_s: the process is ended after so many seconds.
    """
    name = source.find(measure.metric).short if is_own(measure.metric) else measure.metric
    (folder / TASK).write_text(json.dumps({**asdict(measure), "exported": str(exported.folder)}), encoding="utf-8")
    ending = child.run(__name__, [folder], timeout_s, child.ONE_THREAD)
    try:
        found = _FORM_OF_ANSWER.validate_json((folder / SCORES).read_bytes())
        return replace(found, name=found.name or name)
    except (OSError, ValueError):
        return Scores(name=name, fault=f"{name} {ending.how}")


def score_rows(measure: Measure, folder: Path, exported: ExportedModel) -> Scores:
    """Score the rows in the process that runs the metric.

    Raises:
        UsageError: it raises, or gives something else than a number for each row.
    """
    against: Literal["truth", "outputs"]
    against, calls = "truth", _read_calls(measure, folder, exported)
    if not measure.truth and exported.has_own_report_outputs:
        against = "outputs"
    found: dict[str, ScoredOutput] = {}
    for outputs, truth, inputs in calls:
        if not found:
            found = {one.output: one for one in _open_metric(measure, outputs, truth, against)}
        for one in found.values():
            one.add(outputs, truth, inputs, len(next(iter(inputs.values()))))
    first, *others = [one.collect(against) for one in found.values()]
    return replace(first, other_outputs=tuple(others))


@dataclass(kw_only=True)
class ScoredOutput:
    """Collect the scores of one output, call by call.

    Attributes:
        name: the metric's, for people.
        output: the output's name if the model has several, and the metric is no function of the user's own.
        split: scores the parts of the rows, if the metric knows any.
    """

    name: str
    lower_is_better: bool
    score: Score
    split: Callable[[Arrays, Any], Mapping[str, Array]] | None = None
    output: str = ""
    rows: list[float] = field(default_factory=list)
    parts: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, outputs: Arrays, truth: Any, inputs: Arrays, size: int) -> None:
        """Score the rows of one call.

        Raises:
            UsageError: as `score_rows`.
        """
        first = len(self.rows)
        rows = np.asarray(self.score(outputs, truth, inputs))
        if rows.shape != (size,) or rows.dtype.kind not in "biuf":
            raise UsageError(f"{self.name} gave {rows.dtype}{list(rows.shape)} for {size} rows: {FORM}")
        rows = rows.astype(np.float64)
        if (odd := np.flatnonzero(~(np.abs(rows) < MOST_SCORE))).size:
            at = first + int(odd[0])
            raise UsageError(f"{self.name} gave {rows[odd[0]]:g} for row {at} of those it scores, which is no score")
        self.rows += rows.tolist()
        for part, scores in (self.split(outputs, truth) if self.split else {}).items():
            known = {first + int(row): float(scores[row]) for row in np.flatnonzero(~np.isnan(scores))}
            self.parts.setdefault(part, {}).update(known)

    def collect(self, against: Literal["truth", "outputs"]) -> Scores:
        """Return all scores, without parts that too few rows have."""
        return Scores(
            name=self.name,
            against=against,
            output=self.output,
            rows=tuple(self.rows),
            lower_is_better=self.lower_is_better,
            parts={part: rows for part, rows in self.parts.items() if len(rows) >= LEAST_OF_PART},
        )


def _open_metric(measure: Measure, outputs: Arrays, truth: Any, against: str) -> list[ScoredOutput]:
    """Return what is to be scored, and how.

    Raises:
        UsageError: the user's module can't be imported, or the name doesn't fit outputs and truth.
    """
    if is_own(measure.metric):
        place = source.find(measure.metric)
        own = factory.find_function(place)
        takes_inputs = _count_arguments(own) >= _WITH_INPUTS

        def call_own(outputs: Arrays, truth: Any, inputs: Arrays) -> Any:
            given = (outputs, truth, inputs) if takes_inputs else (outputs, truth)
            return factory.call(place, lambda: own(*given))

        return [ScoredOutput(name=place.short, lower_is_better=bool(getattr(own, LOWER, False)), score=call_own)]
    word = measure.metric
    if word == AUTO:
        word = metrics.propose(_describe(outputs), None if against == "outputs" else _describe(truth))
    metric = metrics.find_metric(word)
    picked = [metrics.pick_output(outputs, truth, measure.scores or None, metric)]
    if against == "truth" and not measure.scores and isinstance(truth, dict):
        picked = [name for name in outputs if name in truth] or picked
    return [_score_by_name(word, metric, name, has_others=len(outputs) > 1) for name in picked]


def _score_by_name(word: str, metric: metrics.NamedMetric, output: str, *, has_others: bool) -> ScoredOutput:
    def call_named(outputs: Arrays, truth: Any, _inputs: Arrays) -> Any:
        try:
            return metric.score(*metrics.pick(outputs, truth, output, metric))
        except UsageError as error:
            if not has_others:
                raise
            raise UsageError(f"output {output}: {error}; --scores NAME scores one output alone") from error

    def split_named(outputs: Arrays, truth: Any) -> Mapping[str, Array]:
        assert metric.split
        return metric.split(*metrics.pick(outputs, truth, output, metric))

    return ScoredOutput(
        name=word,
        lower_is_better=metric.lower_is_better,
        score=call_named,
        split=split_named if metric.split else None,
        output=output if has_others else "",
    )


def _count_arguments(function: Callable[..., Any]) -> int:
    try:
        kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 0
    return sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)


def _describe(arrays: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    named = arrays if isinstance(arrays, dict) else {"": arrays}
    return {
        name: (array.shape, array.dtype.name) if isinstance(array, np.ndarray) else ((len(array),), "object")
        for name, array in named.items()
    }


def _read_calls(
    measure: Measure, folder: Path, exported: ExportedModel
) -> Iterator[tuple[dict[str, Array], Any, Arrays]]:
    """Yield outputs by name, truth and inputs of each call, without the rows that fill the last one up."""
    names, report = json.loads((folder / NAMES).read_text(encoding="utf-8")), exported.report()
    assert report is not None, "outputs were kept of its report split"
    truth = truth_files.read(Path(measure.truth)) if measure.truth else None
    own = exported.report_outputs() if not measure.truth and exported.has_own_report_outputs else None
    for number, path in enumerate(sorted(folder.glob(CALLS))):
        here = np.arange(number * exported.batch, min((number + 1) * exported.batch, len(report.rows)))
        with np.load(path, allow_pickle=False) as stored:
            outputs = {name: stored[f"arr_{index}"] for index, name in enumerate(names)}
        right: Any
        if truth is not None:
            right = truth_files.take_rows(truth, report.rows[here])
        elif own is not None:
            right = {name: array[here] for name, array in own.items()}
        else:
            right = None if report.labels is None else report.labels[here]
        inputs = {name: array[here] for name, array in report.inputs.items()}
        yield {name: _cut(array, exported.batch, len(here)) for name, array in outputs.items()}, right, inputs


def _cut(array: Array, batch: int, rows: int) -> Array:
    """Drop the rows that fill a call up; an output whose first axis isn't the batch stays whole."""
    return array[:rows] if array.shape[:1] == (batch,) else array


def main() -> None:
    """Score one folder; what goes wrong is the answer."""
    child.leave_with(int(sys.argv[2]))
    os.dup2(2, 1)  # what the user's code prints is nobody's answer
    folder = Path(sys.argv[1])
    task = json.loads((folder / TASK).read_text(encoding="utf-8"))
    try:
        exported = open_exported(Path(task.pop("exported")))
        found = score_rows(Measure(**task), folder, exported)
    except UsageError as error:
        found = Scores(name="", fault=str(error))
    (folder / SCORES).write_bytes(_FORM_OF_ANSWER.dump_json(found))


if __name__ == "__main__":
    main()
