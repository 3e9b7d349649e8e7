"""Check what rows are scored by before anything is exported, and have them scored in a process of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from shootout.core.contract import Arm
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.model import BUFFER_ROWS, LABELS, REPORT, ROWS, SELECTION, ExportedModel
from shootout.core.exported.request import Request, find_source, name_model
from shootout.core.host import child
from shootout.core.host.folders import Scratch
from shootout.core.messages import Scores
from shootout.core.schemes import is_exact
from shootout.core.scoring import ACCURACY, MetricSpec, RowFiles
from shootout.core.study.schema import Study
from shootout.core.units import round_limit
from shootout.models import source
from shootout.models.data import data_files, truth_files
from shootout.models.metrics import (
    DEFAULT_DROP,
    bound_rare,
    count_rows_for_rare,
    count_scored,
    find_max_drop,
    find_metric,
    metrics,
    read_share,
    refuse_drop_of_all,
    scoring,
    unit_of_drop,
)
from shootout.models.metrics.scoring import FORM_OF_ANSWER, SCORES, TASK

TRIAL_S = 30.0
"""A trial of a metric on one call takes no longer."""
LIKELY = 0.05
"""Take so many right answers for chance as guessing gives in one of twenty such samples."""
TELLING = 1e-3
"""If guessing might get all of the rows right, they tell nothing."""


def find_faults(study: Study) -> Iterator[str]:
    """Yield what makes no sense of truth, metric and their limits."""
    words = {"truth (--truth)": study.truth, "rows_by (--rows-by)": study.rows_by}
    words |= {"min_agreement (--min-agreement)": study.min_agreement, "scores (--scores)": study.scores}
    if not (study.metric or study.labels):  # of labels alone it is the accuracy
        for word in (name for name, value in words.items() if value is not None):
            yield f"{word} is for a metric: add one (`shootout list metrics` shows them), or leave it out"
    for word in ("read", "truth", "rows_by"):
        if getattr(study, word) and not study.inputs:
            yield f"{word} (--{word.replace('_', '-')}) is for rows of your own: give those too, with --inputs"
    if study.truth and study.labels:
        yield "truth (--truth) and labels (--labels) both say what is right: give one of them"
    if study.min_agreement and (study.truth or study.labels):
        yield "min_agreement (--min-agreement) is for rows without truth: with truth, use --max-drop"
    for name, text, read in (
        ("max_drop", study.max_drop, find_max_drop),
        ("min_agreement", study.min_agreement, read_share),
    ):
        try:
            if text is not None:
                read(text, 1.0)
        except ValueError as error:
            yield f"{name} {text!r}: {error}"


def find_counts(rows: RowFiles) -> set[int]:
    """Return each number of rows that the inputs' file may hold; none without a file."""
    return data_files.possible_rows(rows.inputs.expanduser()) if rows.inputs else set()


def check(
    study: Study,
    rows: RowFiles,
    counts: Collection[int],
    requests: Mapping[str, Request],
) -> list[str]:
    """Return the hashes of what scores the rows, once it is known to fit them and the models as far as files tell.

    Args:
        counts: each number of rows that the inputs may have; none if it isn't known.
        requests: one for each model.

    Raises:
        UsageError: it doesn't fit.
    """
    files, spec = list[str](), MetricSpec.of(study, rows)
    scored = {model: one for model, one in requests.items() if one.source.may_be_scored(one)}
    given = next((name for name, value in (("--metric", study.metric), ("--max-drop", study.max_drop)) if value), "")
    if given and not scored:
        names = ", ".join(map(name_model, requests))
        raise UsageError(f"{given} is for rows of your own, and {names} has none here: give --inputs and --labels")
    if scored:
        files.append(check_metric(spec.metric, scores=spec.scores, min_agreement=study.min_agreement or ""))
        if (drop := study.max_drop) and unit_of_drop(drop) != "%":
            refuse_drop_of_all("--max-drop", find_max_drop(drop, 1.0), spec.metric)
    clips = {count // study.stream for count in counts} if study.stream else set[int]()
    files += _check_truth(study, rows, {*counts, *clips}, requests)
    if study.rows_by:
        truth_files.check(Path(study.rows_by), counts)
        truth_files.read_ids(Path(study.rows_by))
        files.append(data_files.digest(Path(study.rows_by)))
    return files


def find_doubts(
    study: Study, counts: Collection[int], requests: Sequence[Request], arms: Sequence[Arm]
) -> Iterator[str]:
    """Yield what users should know of rows that were made of their files, and what is doubtful of a limit on a drop.

    Args:
        counts: each number of rows that the inputs may have; none if it isn't known.
        requests: one for each group.
        arms: those that will be measured.
    """
    facts = data_files.read_facts(Path(study.inputs)) if study.inputs else None
    told = facts.told if facts else study.inputs
    yield from facts.notes if facts else ()
    scored, metric = [one for one in requests if one.source.may_be_scored(one)], study.metric or ACCURACY
    is_limited = scored and (study.max_drop or scored[0].scored == "truth" or not study.metric)
    if not is_limited or len(counts) != 1 or study.stream or study.rows_by:
        return
    if ":" in metric or not find_metric(metric).is_share:  # of others only the scores tell how much a row may lose
        return
    if all(is_exact(arm.target.precision, arm.target.scheme, arm.file) for arm in arms):
        return
    limit, (rows,), asked = (study.max_drop or DEFAULT_DROP).strip(), counts, max(scored, key=lambda one: one.batch)
    count, drop = count_scored(rows, asked.batch, scores_all=asked.scores_all), find_max_drop(limit, 1.0)
    if not drop or count >= (needed := count_rows_for_rare(1.0, drop)):
        return
    unit, give = unit_of_drop(limit), needed if asked.scores_all else 2 * needed
    shown = round_limit(bound_rare(count) * (100 if unit else 1))
    yield (
        f"too few rows to ship a lower precision: --max-drop {limit} takes {needed:,} scored rows, since fewer may "
        f"hide a rare failure. Of the {rows:,} rows of {told} {count:,} are scored: give {give:,} rows or "
        f"more, or --max-drop {shown}{unit}"
    )


def _check_truth(study: Study, rows: RowFiles, counts: Collection[int], models: Iterable[str]) -> list[str]:
    """Return the hash of the truth, once it is known to fit the inputs' rows and the metric as far as files tell.

    Args:
        counts: each number of rows that the inputs may have, and of clips of a stream, which may have one truth each.

    Raises:
        UsageError: it doesn't.
    """
    if rows.truth is None:
        return []
    truth = truth_files.check(rows.truth, counts)
    for model in models:
        outputs = find_source(model).outputs(model)
        check_truth(study.metric or ACCURACY, study.scores or "", truth, outputs)
    return [data_files.digest(rows.truth)]


def check_metric(metric: str, *, scores: str = "", min_agreement: str = "") -> str:
    """Return a hash of a metric: of its source, which is read and not run, or of its name.

    Args:
        scores: the output that it goes by; "" if none is named.
        min_agreement: the least that it may be without truth; "" for no limit.

    Raises:
        UsageError: there is no such name, file, module or function, its library is missing, or an option has no effect
            on it.
    """
    if ":" not in metric:
        named = find_metric(metric)
        named.require_library()
        if min_agreement and named.lower_is_better:
            raise UsageError(
                f"--min-agreement {min_agreement} doesn't apply to {named.name}, of which lower is better: give "
                "--max-drop in its unit, such as 0.01"
            )
        return named.name
    if scores:
        raise UsageError(f"--scores {scores} is for a metric by name; {metric} gets all outputs: leave it out")
    place = source.find(metric)
    source.definition(place, "scores the rows")
    return place.digest()


def check_truth(metric: str, scores: str, truth: truth_files.Truth, outputs: Collection[str]) -> None:
    """Refuse truth that a metric by name can't score by, as far as names tell before the model runs.

    Args:
        scores: the output that it goes by; "" if none is named.
        outputs: the model's, by name; none if only its export tells.

    Raises:
        UsageError: no array of the truth belongs to an output.
    """
    if scores and outputs and scores not in outputs:
        raise unknown("output", scores, outputs)
    if ":" in metric:
        return
    named = list(truth) if isinstance(truth, Mapping) else []
    if outputs and len(named) > 1 and not {*named} & {*outputs}:
        raise UsageError(
            f"no truth for {metric}: the truth has {', '.join(named)}; the outputs are {', '.join(outputs)}. Name the "
            "truth's array like the output"
        )


def score(spec: MetricSpec, folder: Path, exported: ExportedModel, timeout_s: float) -> Scores:
    """Score the outputs that lie in a folder, in a process of its own.

    Args:
        exported: the model whose report split they are of.
        timeout_s: the process is ended after so many seconds.
    """
    name = source.find(spec.metric).short if spec.is_own else spec.metric
    found = _score_apart(spec, folder, exported, timeout_s, is_trial=False)
    if isinstance(found, Scores):
        return replace(found, name=found.name or name)
    return Scores(name=name, fault=f"{name} {found}")


def try_first_call(spec: MetricSpec, exported: ExportedModel, timeout_s: float) -> str:
    """Return why a metric can't score the reference outputs of the first call; "" if it can, or that isn't known."""
    if not exported.has_report:
        return ""
    with Scratch() as folder:
        found = _score_apart(spec, folder, exported, min(TRIAL_S, timeout_s), is_trial=True)
    # it may take long, or end the process: that is told once its rows are scored
    return found.fault if isinstance(found, Scores) else ""


def find_misfits(spec: MetricSpec, exported: ExportedModel) -> Iterator[str]:
    """Yield why the rows may be others than the model's, by its reference outputs of those that are timed."""
    if doubt := find_guessing(spec, exported):
        yield doubt


def _score_apart(
    spec: MetricSpec, folder: Path, exported: ExportedModel, timeout_s: float, *, is_trial: bool
) -> Scores | str:
    """Return what the process found, or how it ended."""
    where = {"exported": str(exported.folder), "on_selection": exported.on_selection, "is_trial": is_trial}
    (folder / TASK).write_text(json.dumps({**asdict(spec), **where}), encoding="utf-8")
    ending = child.run(scoring.__name__, [folder], timeout_s, child.ONE_THREAD)
    try:
        return FORM_OF_ANSWER.validate_json((folder / SCORES).read_bytes())
    except (OSError, ValueError):
        return ending.how


def find_guessing(spec: MetricSpec, exported: ExportedModel) -> str:
    """Return the doubt if the reference outputs name the right class no more often than one class for all would.

    It goes by the rows that are timed, which are from all over the user's; their outputs are there.
    """
    is_known = exported.has_report and (exported.folder / BUFFER_ROWS).exists()
    if spec.metric != ACCURACY or spec.truth or exported.stream or not is_known:
        return ""
    known: dict[int, int] = {}
    for split in (REPORT, SELECTION):
        with np.load(exported.folder / split, allow_pickle=False) as stored:
            if LABELS in stored:
                known |= dict(zip(stored[ROWS].tolist(), stored[LABELS].tolist(), strict=True))
    numbers, places = np.unique(np.load(exported.folder / BUFFER_ROWS, allow_pickle=False), return_index=True)
    if not known or not {*numbers.tolist()} <= known.keys():
        return ""
    outputs = exported.reference_outputs()
    named = {name: np.concatenate([one[name] for one in outputs]) for name in outputs[0]}
    labels = np.array([known[number] for number in numbers])
    try:
        accuracy = find_metric(ACCURACY)
        output = metrics.pick_output(named, labels, spec.scores, accuracy)
        right = int(accuracy.score(named[output][places], labels).sum())
    except (UsageError, IndexError):  # said by the metric's own trial
        return ""
    return _tell_guessing(right, len(labels), max(Counter(known.values()).values()) / len(known))


def _tell_guessing(right: int, rows: int, guessed: float) -> str:
    from scipy.special import bdtrc

    if guessed**rows > TELLING or (right and bdtrc(right - 1, rows, guessed) < LIKELY):
        return ""
    return (
        f"FP32 finds the right class of {right} of {rows} rows, no more than one class for all would ({guessed:.0%}). "
        "Check how rows are prepared, and the order of the classes; --inputs and --labels give both as they are"
    )
