"""Doubt rows of which a classifier knows no more than chance: then they are other rows than it was trained on."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shootout.core.errors import UsageError
from shootout.core.exported.model import BUFFER_ROWS, LABELS, REPORT, ROWS, SELECTION, ExportedModel
from shootout.core.scoring import ACCURACY, MetricSpec
from shootout.models.metrics import find_metric, metrics

LIKELY = 0.05
"""As many right answers as guessing gives in one of twenty such samples are no more than chance."""
TELLING = 1e-3
"""If guessing might get all of the rows right, they tell nothing."""


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
