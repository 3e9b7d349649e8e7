"""Measure and decide from Python: `run` and `find_settings` measure, `plan` previews a run, `load` reads a folder.

The keyword arguments are those tables of `shootout.tell.study_options` that the command line is made of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack, cast

from shootout.apps import dry_run
from shootout.apps.judge.analysis import analyse, compare_arms
from shootout.apps.judge.compare import screen as compared
from shootout.apps.judge.compare.compare import ComparedDocument, compare_folders
from shootout.apps.judge.compare.merge import MergedDocument, PlacedRow, merge_runs
from shootout.apps.judge.compare.merged import expand_several
from shootout.apps.judge.decide.policy import PolicyLike, as_policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.judge.decide.screen import render as render_decision
from shootout.apps.tune.results import Tuning
from shootout.commands.output import show_progress
from shootout.commands.run import choose_out, measure_run, plan_run
from shootout.commands.tune import measure_settings
from shootout.core.clock import Deadline
from shootout.core.errors import ArmFailed, NothingMeasured, UsageError
from shootout.core.install import install
from shootout.core.units import counted
from shootout.models.sources import own
from shootout.tell import report, table
from shootout.tell.answer import qualify
from shootout.tell.document import Answer, Document, Ratio, Row
from shootout.tell.formats import arrow_table, flatten_rows, write_files
from shootout.tell.page import contents
from shootout.tell.report import WIDEST
from shootout.tell.study_options import RunOptions, TuneOptions, check_keywords

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from shootout.tell.report import Chart, Figure


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """Hold one run's result."""

    document: Document
    _found: Path = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_found", Path(self.document.run).absolute())

    @property
    def _absolute_folder(self) -> Path:
        """Return the folder as it was named, or absolute if the working directory has changed."""
        named = Path(self.document.run)
        return named if named.absolute() == self._found else self._found

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return a row for each target, measured or not."""
        return self.document.rows

    @property
    def answer(self) -> tuple[Answer, ...]:
        """Return what to ship and how sure that is, for each group whose figures count."""
        return self.document.answer

    @property
    def verdicts(self) -> dict[tuple[str, str], Ratio]:
        """Return (group, target) → the end-to-end ratio with its verdict, for every target that was compared."""
        timed = [(row, row.end_to_end) for row in self.rows if row.end_to_end]
        return {(row.group, row.arm): timing.ratio for row, timing in timed if timing.ratio}

    def verdict(self, arm: str, other: str, *, group: str | None = None) -> Ratio:
        """Return one target's end-to-end time ÷ another's with its verdict, from the restarts that both played.

        The verdict is wrong with at most the α that the run gave each of its verdicts; of many pairs, proportionally
        more may be wrong.

        Args:
            arm, other: of one group, as in `rows` or as short as in tables: `numpy`.
            group: needed if both are in several.

        Raises:
            UsageError: there is no such arm, they are in no group together or in several, or one has no time.
        """
        return compare_arms(self._absolute_folder, arm, other, group)

    def decide(self, policy: PolicyLike, *others: Run, group: str | None = None) -> Decided:
        """Decide what to ship by your own limits, as `shootout decide`; measures nothing, see docs/deciding.md.

        Args:
            policy: the path of a `deploy.toml`, or its keys as a dict: `{"load": "200/s", "limits": {"p99": "5ms"}}`.
            others: further runs of the same model with the same inputs, perhaps on other machines.
            group: the group to decide on, if the runs have several.

        Raises:
            UsageError: an unknown key, a value without its unit, or runs that can't be put together; says which.
        """
        wanted = as_policy(policy)
        return Decided.of_runs([one._absolute_folder for one in (self, *others)], wanted, group)

    def compare(self, other: Run, *, history: Iterable[Run] = ()) -> Compared:
        """Compare another run with this one, as `shootout compare`: see docs/comparing.md.

        Args:
            history: earlier runs of the same on the same machine, from which five or more tell how far
                sessions differ.

        Raises:
            UsageError: both are one run, or they ask different things; names the fields.
        """
        return Compared(
            compare_folders(
                self._absolute_folder, other._absolute_folder, [earlier._absolute_folder for earlier in history]
            )
        )

    def plot(self, kind: str = "intervals") -> Chart:
        """Draw one of the report's figures as an Altair chart, which a notebook shows; needs the extra `report`.

        Args:
            kind: `intervals`, `curves` (over sizes, or over the rate of requests) or `accuracy` (against time).

        Raises:
            UsageError: there is no such figure, nothing in the run to show in it, or no library to draw with.
        """
        draw = _load_drawing("shootout.tell.page.figures").plot
        return _complete(draw(contents.read(self._absolute_folder, self.document), kind))

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table: a line per row, nested figures as `end_to_end.median_ns`, columns as in every run.

        Raises:
            UsageError: the extra `parquet` isn't installed.
        """
        return arrow_table(self.rows)

    def write(self, *files: str | PathLike[str]) -> None:
        """Write it into files for other programs, each by the end of its name, as `--to`: see docs/report.md.

        Raises:
            UsageError: a name has another end, or can't be written to.
        """
        write_files(self.document, files)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the same table as a pandas frame; needs pandas."""
        import pandas

        columns, rows = flatten_rows(self.rows)
        return pandas.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the answer, and the tables to open."""
        return table.render_notebook(self.document)

    def __repr__(self) -> str:
        """Return its folder and its answer in one line."""
        ships = ", ".join(dict.fromkeys(map(_summarize_answer, self.answer)))
        return f"<Run {self.document.run!r}: {counted(len(self.rows), 'row')}; ship {ships or 'nothing'}>"


def _summarize_answer(answer: Answer) -> str:
    return f"{answer.ship.arm}{qualify(answer)}" if answer.ship else "no answer"


@dataclass(frozen=True, slots=True, repr=False)
class Decided(PolicyAnswer):
    """Hold a decision and the runs behind it; printed, it is what `shootout decide` prints."""

    @property
    def outcome(self) -> str:
        """Return `chosen`, `tied` (one is chosen all the same), `undecided` or `infeasible`."""
        return self.decision.outcome

    @property
    def chosen(self) -> str | None:
        """Return the target to ship, with what distinguishes it from the other candidates; None if there is none."""
        return self.decision.chosen

    def __str__(self) -> str:
        """Return the whole screen, as lines."""
        return report.render_plain(*render_decision(self.decision, self.question, WIDEST))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return report.render_pre(*render_decision(self.decision, self.question, WIDEST))

    def plot(self) -> Chart:
        """Draw the objective and each limit of the policy, a line a candidate, as `Run.plot`.

        Raises:
            UsageError: no candidate has a figure, or there is no library to draw with.
        """
        figure: Figure | None = _load_drawing("shootout.apps.judge.decide.figure").draw_decision(self.decision)
        if figure is None:
            raise UsageError("no candidate has a figure to draw: measure what the policy limits")
        return _complete(figure)

    def __repr__(self) -> str:
        """Return the outcome in one line."""
        why = self.decision.reason
        return f"<Decided {self.outcome}: {self.chosen or why}>"


@dataclass(frozen=True, slots=True, repr=False)
class Compared:
    """Hold the comparison of one run with another; printed, it is what `shootout compare` prints."""

    document: ComparedDocument

    def __str__(self) -> str:
        """Return the whole screen."""
        return report.render_plain(*compared.render_compared(self.document, WIDEST, full=False))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return report.render_pre(*compared.render_compared(self.document, WIDEST, full=False))

    def __repr__(self) -> str:
        """Return the names of its runs in one line."""
        return f"<Compared {self.document.a.run!r}, {self.document.b.run!r}: level {self.document.level}>"


@dataclass(frozen=True, slots=True, repr=False)
class Merged:
    """Hold runs of several machines; printed, it is what `shootout merge` prints."""

    document: MergedDocument

    @property
    def rows(self) -> tuple[PlacedRow, ...]:
        """Return the rows of all runs, each with its place."""
        return self.document.rows

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table as `Run.to_arrow` does, with the columns `place`, `machine` and `run`."""
        return arrow_table(self.rows)

    def write(self, *files: str | PathLike[str]) -> None:
        """Write it into `.csv`, `.parquet` or `.json`.

        Raises:
            UsageError: a name has another end, or can't be written to.
        """
        write_files(self.document, files)

    def __str__(self) -> str:
        """Return the whole screen."""
        return report.render_plain(*compared.render_merged(self.document, WIDEST, full=False))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return report.render_pre(*compared.render_merged(self.document, WIDEST, full=False))

    def __repr__(self) -> str:
        """Return the number of its runs and places in one line."""
        return repr(self.document).replace("MergedDocument", "Merged")


def _load_drawing(module: str) -> ModuleType:
    """Import a module that draws, with a library that an extra installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"a figure needs {error.name}: {install('report')}") from None


def _complete(figure: Figure) -> Chart:
    from shootout.tell.page.charts import complete  # likewise

    return complete(figure.chart)


def load(path: str | Path) -> Run:
    """Read a run folder.

    Raises:
        UsageError: there is no run, or one of a newer version.
    """
    return Run(analyse(Path(path)))


def merge(*runs: Run | str | PathLike[str]) -> Merged:
    """Merge runs of several machines, as `shootout merge`; a merged folder stands for its runs.

    Raises:
        UsageError: there is only one, one comes twice, or they are of different questions; says which.
    """
    folders = (member._absolute_folder if isinstance(member, Run) else Path(member) for member in runs)
    return Merged(merge_runs(expand_several(folders)))


def run(name: str = "shootout", **options: Unpack[RunOptions]) -> Run:
    """Run a study, by name or TOML file, or race a model, with these changes; progress goes to stderr.

    Args:
        options: those of `shootout run` with Python's values: `parameters={"d_model": [64, 128]}` for `--set`,
            `options={"openvino": {"NUM_STREAMS": "2"}}` for `--option`, `max_time_s` for `--max-time`, `p99_limit_ms`
            for `--p99`, `pythons` for `--python`. `model` may be a `torch.nn.Module`, with `inputs` example inputs: a
            tensor, a tuple of them, or a dict by the names of `forward`'s parameters.

    Raises:
        UsageError: an option is unknown, or its value is impossible.
        ArmFailed: a target failed, and `strict` is True; the run folder holds the others.
        NothingMeasured: no target has a time; the run folder says why.
    """
    limit, options = Deadline(options.get("max_time_s")), check_options(options)
    with show_progress() as progress:
        planned, policy = plan_run(name, options, progress)
        out = choose_out(planned, options)
        found = Run(measure_run(planned, policy, out, options, limit, progress))
    failed = [row for row in found.rows if row.outcome == "failed"]
    if failed and options.get("strict"):
        raise ArmFailed(f"{failed[0].arm}: {failed[0].reason}; the run is in {str(out)!r}")
    if not any(row.outcome == "measured" for row in found.rows):
        first = found.rows[0]
        raise NothingMeasured(f"nothing was measured: {first.arm}: {first.reason}; the run is in {str(out)!r}")
    return found


def plan(name: str = "shootout", **options: Unpack[RunOptions]) -> dict[str, Any]:
    """Return what `run` would do with these options, and for how long, as `--dry-run --json` prints it.

    Raises:
        UsageError: an option is unknown, or its value is impossible.
    """
    planned, policy = plan_run(name, check_options(options))
    return dry_run.as_data(planned, options.get("max_time_s"), policy.model_dump(mode="json") if policy else None)


def find_settings(**options: Unpack[TuneOptions]) -> Tuning:
    """Race each target's own settings and return the best ones and their gain; progress goes to stderr.

    Args:
        options: those of `shootout tune`, with Python's values.

    Raises:
        UsageError: an option is unknown, or its value is impossible.
    """
    check_keywords(TuneOptions, options)
    with show_progress() as progress:
        return measure_settings(options, progress)


def check_options(options: RunOptions) -> RunOptions:
    """Check the keywords; a torch module among them is kept as a file, and its example inputs with it."""
    check_keywords(RunOptions, options)
    given: Any = dict(options)
    torch = sys.modules.get("torch")  # a module of the caller's has imported it
    if torch is None or not isinstance(given.get("model"), torch.nn.Module):
        return options
    given["model"] = own.store(given["model"], given.pop("inputs", None))
    return cast("RunOptions", given)
