"""Say what rows of the user's own are scored by; the metrics themselves are plug-ins, which are loaded on use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from shootout.core import plugins
from shootout.core.contract import Arm

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel
    from shootout.core.exported.request import Request
    from shootout.core.messages import Scores
    from shootout.core.study.schema import Study

ACCURACY = "accuracy"
"""The metric of labels unless another is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFiles:
    """Say where the rows of a user's inputs are, and what is right for them.

    Attributes:
        inputs: see `models.data.data_files`; None: there are none.
        truth: see `models.data.truth_files`; None: that isn't known.
    """

    inputs: Path | None = None
    truth: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """Say what rows are scored by.

    Attributes:
        metric: a name, or `file.py:score`.
        truth: the path of the user's truth; "" for the labels, or without these the model's own FP32 outputs.
        scores: the output that a named metric goes by; "" for the first that fits.
        rows_by: the path of what each row of the user's inputs belongs to; "" if each is a unit by itself.
    """

    metric: str
    truth: str = ""
    scores: str = ""
    rows_by: str = ""

    @classmethod
    def of(cls, study: Study, rows: RowFiles) -> MetricSpec:
        """Return what rows are scored by, if there are some; of labels without a metric it is the accuracy."""
        truth, rows_by = str(rows.truth or ""), study.rows_by or ""
        return cls(metric=study.metric or ACCURACY, truth=truth, scores=study.scores or "", rows_by=rows_by)

    @property
    def is_own(self) -> bool:
        """Return whether the metric is meant as a function of the user's own, not as a name."""
        return ":" in self.metric


class Scorer(Protocol):
    """Check what rows are scored by, and score them; the module `plugins.SCORER` does."""

    def find_faults(self, study: Study) -> Iterator[str]:
        """Yield what makes no sense of truth, metric and their limits."""

    def find_counts(self, rows: RowFiles) -> set[int]:
        """Return each number of rows that the inputs' file may hold; none without a file."""

    def check(
        self, study: Study, rows: RowFiles, counts: Collection[int], requests: Mapping[str, Request]
    ) -> list[str]:
        """Return the hashes of what scores the rows, once it is known to fit them and the models.

        Args:
            counts: each number of rows that the inputs may have; none if it isn't known.
            requests: one for each model.

        Raises:
            UsageError: it doesn't fit.
        """

    def find_doubts(
        self, study: Study, counts: Collection[int], requests: Sequence[Request], arms: Sequence[Arm]
    ) -> Iterator[str]:
        """Yield what is doubtful about a limit on a loss.

        Args:
            counts: as `check` takes them.
            requests: one for each group.
            arms: those that will be measured.
        """

    def score(self, spec: MetricSpec, folder: Path, exported: ExportedModel, timeout_s: float) -> Scores:
        """Score the outputs that `saving` left in a folder, of the model's report split, in a process of its own."""

    def try_first_call(self, spec: MetricSpec, exported: ExportedModel, timeout_s: float) -> str:
        """Return why a metric can't score the reference outputs of the first call; "" if it can."""

    def find_misfits(self, spec: MetricSpec, exported: ExportedModel) -> Iterator[str]:
        """Yield why the rows may be others than the model's, by its reference outputs."""


def scorer() -> Scorer:
    """Return what checks and scores, loaded now."""
    return cast("Scorer", import_module(plugins.SCORER))
