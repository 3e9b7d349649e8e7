"""The same from Python: `shootout.run(...)` measures, `shootout.load(path)` reads; both give a `Run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from shootout.commands.run import measure
from shootout.contract import Value
from shootout.errors import UsageError
from shootout.journal.run_folder import choose_folder
from shootout.report.progress import Progress
from shootout.results import analysis
from shootout.results.document import Document, Ratio, Row
from shootout.study import schema
from shootout.study.plan import make_plan

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Run:
    """One run's result."""

    document: Document

    @property
    def rows(self) -> tuple[Row, ...]:
        """One for each arm, measured or not."""
        return self.document.rows

    @property
    def verdicts(self) -> dict[tuple[str, str], Ratio]:
        """(group, arm) → the end-to-end ratio with its verdict, for every arm that was compared."""
        timed = [(row, row.end_to_end) for row in self.rows if row.end_to_end]
        return {(row.group, row.arm): timing.ratio for row, timing in timed if timing.ratio}

    def to_pandas(self) -> pandas.DataFrame:
        """One line per row, nested figures as `end_to_end.median_ns`; needs pandas."""
        import pandas

        return pandas.json_normalize([row.model_dump(mode="json") for row in self.rows])


def load(path: str | Path) -> Run:
    """Read a run folder.

    Raises:
        UsageError: there is no run, or one of a newer version.
    """
    return Run(analysis.analyse(Path(path)))


def run(
    name: str = "shootout",
    *,
    model: str | None = None,
    parameters: Mapping[str, Sequence[Value] | Value] | None = None,
    backends: Sequence[str] | None = None,
    batch: Sequence[int] | None = None,
    threads: int | str | None = None,
    baseline: str | None = None,
    options: Mapping[str, Mapping[str, str]] | None = None,
    inputs: str | Path | None = None,
    calibration: str | Path | None = None,
    pythons: Mapping[str, str | Path] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    max_time_s: float | None = None,
) -> Run:
    """Run a study, by name or TOML file, with these changes to it; progress goes to stderr.

    Args:
        backends: targets, as on the command line.
        parameters: a value or several for each model parameter (for an ONNX file: symbolic axis).
        pythons: paths of other interpreters by the name that targets give them; as `--python`.
        out: the run folder; None: `results/<study>/<time>`, or the unfinished one of the same study there.

    Raises:
        UsageError: something unknown or impossible was asked.
    """
    if isinstance(backends, str):
        raise UsageError(f"backends takes a list of targets, got the text {backends!r}")
    chosen = schema.load(name).changed(
        parameters={key: _axis(values) for key, values in (parameters or {}).items()},
        options={backend: dict(knobs) for backend, knobs in (options or {}).items()},
        model=model,
        targets=tuple(backends) if backends else None,
        batch=tuple(batch) if batch else None,
        threads=threads,
        baseline=baseline,
        inputs=str(inputs) if inputs else None,
        calibration=str(calibration) if calibration else None,
        pythons={name: str(path) for name, path in pythons.items()} if pythons else None,
    )
    with Progress(Console(stderr=True)) as progress:
        planned = make_plan(chosen, named=tuple(backends or ()))
        folder = Path(out) if out else choose_folder(planned, fresh=fresh)
        return Run(measure(planned, folder, fresh=fresh, max_time_s=max_time_s, progress=progress))


def _axis(values: Sequence[Value] | Value) -> tuple[Any, ...]:
    return (values,) if isinstance(values, str | int | float) else tuple(values)
