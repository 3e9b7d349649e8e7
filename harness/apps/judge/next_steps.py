"""Commands to paste: what measures on, ships, accepts or explains, made of how a run was begun. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from shootout import models
from shootout.apps.judge.cell import Cell, name_data, name_plain, quality_of
from shootout.apps.judge.decide.candidates import Candidate, Question
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.eligible import tell_refusal
from shootout.core import backends
from shootout.core.constants import BUILD_SHARE, RACING_S
from shootout.core.contract import INTEGERS, Device, NotRunKind, Precision, short
from shootout.core.errors import UsageError
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.tell import registered, reproduce
from shootout.tell.document import Metric, Ratio, Row, WouldChange
from shootout.tell.limits import Standing
from shootout.tell.option_values import read_seconds
from shootout.tell.paired import ask_drop
from shootout.tell.reproduce import MORE_RESTARTS, Options
from shootout.tell.wording import tell_threads

FOLDER = "model-1"
"""The folder that a suggested `ship` makes; the next free number if it exists."""
MARGIN_OF_BUILDS = 1.5
"""A build may take so many times what is expected: a rule of thumb knows neither the model nor the load."""
LEAST_OF_STOPPED = 2.0
"""A build that was stopped takes so many times what it had, at least."""
_STOPPED = re.compile(r"'build' was stopped after ([\d,]+) s")
ANY_LAYER = "float-0"
"""A word of a scheme by which `shootout tune` leaves a layer in float."""


def read_by(cell: Cell, command: str, options: Iterable[tuple[str, str]]) -> str:
    """Return a command that reads a cell's run, and names the cell if the run has several answers."""
    words = ["shootout", command, str(cell.begun.folder), *cell.named]
    return f"{reproduce.quote(words)} {reproduce.join(options)}"


def ship_from(cell: Cell, options: Iterable[tuple[str, str]], folder: str = FOLDER) -> str:
    """Return the command that ships from a cell, where it was measured, into a folder that doesn't exist yet."""
    host = [("--on", cell.begun.on)] if cell.begun.on else []
    return read_by(cell, "ship", [*options, *host, ("-o", reproduce.name_free(folder))])


def _run(options: Iterable[tuple[str, str]]) -> str:
    return f"shootout run {reproduce.join(options)}"


def go_on(cell: Cell) -> str | None:
    """Return the command that goes on with a cell's run; None if the run is complete, or its command isn't known."""
    return None if cell.complete else cell.begun.resume(more_time(cell.rows))


def measure_again(cell: Cell) -> str | None:
    """Return the command that measures the same in a new run; None if that isn't known."""
    return cell.begun.repeat(*reproduce.limit_words(more_time(cell.rows)))


def why_no_folder(row: Row) -> str:
    """Return why `shootout ship` can't write a folder of what a row measured; "" if it can."""
    if why := find_scenario(row.scenario).unshippable:
        return why
    why = registered.why_row_unshippable(row.backend, row.device, name_model(row.model))
    return f"{why}; {_tell_how_measured(row)}" if why and registered.reads_own_files(row.backend) else why


def _tell_how_measured(row: Row) -> str:
    """Tell the batch, the version and the threads that a library's time holds for: a copied file tells none of them."""
    package = next(iter(backends.entry(row.backend).installs.get("") or ()), row.backend).rpartition("|")[2]
    version = (row.executed or {}).get("version")
    pinned = f"{package}=={version}" if version else package
    return f"at batch {row.batch} it was measured with {pinned} and {tell_threads([row.threads])}"


def reach_folder(cell: Cell, shipped: Row, ships: str | None) -> str | None:
    """Return the command that comes next of what may be shipped: it ships, or measures what a folder can be made of.

    Args:
        ships: the command that ships it, or another one in its place; None: of neither a folder can be made.
    """
    if find_scenario(shipped.scenario).varies:
        return _race_one_size(cell, list_timed(cell))
    if ships is None or shipped.threads:
        return ships
    # nor can one be made of a number of threads that isn't set
    count = str((shipped.executed or {}).get("threads") or 1)
    return _run((flag, count if flag == "--threads" else value) for flag, value in cell.again([shipped.arm]))


def list_timed(cell: Cell) -> list[str]:
    """Return the arms of a cell that have a time."""
    return [row.arm for row in cell.rows if row.group == cell.group and row.end_to_end]


def race_beside_plain(cell: Cell, row: Row) -> str | None:
    """Return the command that races a cell beside the plain FP32 of a row's backend; None if any FP32 was tried."""
    plain = name_plain(cell, row)
    return _run(reproduce.add_options(cell.again(list_timed(cell)), plain)) if plain else None


def _race_one_size(cell: Cell, arms: Sequence[str]) -> str:
    """Return the command that races arms at the one size of their rows, the largest where it varies."""
    return _run(reproduce.at_one_size(cell.again(arms)))


def race_at_sizes(cell: Cell, arms: Sequence[str], axis: str, sizes: Sequence[int]) -> str | None:
    """Return the command that races arms at other sizes along an axis; None without a size."""
    return _run(reproduce.at_sizes(cell.again(arms), axis, sizes)) if sizes else None


def race_elsewhere(cell: Cell, shipped: Row) -> str | None:
    """Return the command that races the shipped one of several files on every other runtime; None for one file.

    Such a run races the files on what reads ONNX itself, which leaves the other runtimes out.
    """
    if len({row.model for row in cell.rows}) < 2:
        return None
    return _run((name, value) for name, value in cell.again([shipped.arm]) if name != "--backends")


def more_time(rows: Sequence[Row]) -> str:
    """Return the time that is proposed for more of a run; "" where a number of restarts shares a time of its own.

    Args:
        rows: of the run, or of one cell.
    """
    if any(find_scenario(row.scenario).restarts for row in rows[:1]):
        return ""
    return write_minutes(max(read_seconds("", reproduce.MORE_TIME), _run_s(waiting_builds_s(rows), RACING_S)))


def write_minutes(seconds: float) -> str:
    """Write a time for `--max-time`, in whole minutes."""
    return f"{max(math.ceil(seconds / 60), 1)}m"


def _run_s(builds_s: float, race_s: float) -> float:
    """Return the seconds of a run whose builds end in their share of it, and which has so much left for the race."""
    return max(builds_s / BUILD_SHARE, builds_s + race_s)


def waiting_builds_s(rows: Sequence[Row]) -> float:
    """Return the seconds that the builds take which a run had no time for, one after another, with a margin.

    A machine that took longer than expected for the others takes as much longer for these.
    """
    late = [row for row in rows if row.cause is NotRunKind.NOT_REACHED and row.build_s is None and not has_played(row)]
    if not late:
        return 0.0
    weights = max((row.artifact_bytes or 0 for row in rows), default=0)
    made = [(row.build_s, _expect_build_s(row, weights)) for row in rows if row.build_s and not row.build_cached]
    slower = max(sum(took for took, _ in made) / sum(known for _, known in made), 1.0) if made else 1.0
    return sum(max(MARGIN_OF_BUILDS * slower * _expect_build_s(row, weights), _least_build_s(row)) for row in late)


def _expect_build_s(row: Row, weight_bytes: int) -> float:
    name, _, mode = row.backend.partition("+")
    return backends.entry(name).expect_build_s(mode, row.precision, weight_bytes) if name in backends.names() else 0.0


def _least_build_s(row: Row) -> float:
    """Return the least seconds of a build by what stopped it; 0 if nothing did."""
    stopped = _STOPPED.search(row.reason or "")
    return LEAST_OF_STOPPED * float(stopped[1].replace(",", "")) if stopped else 0.0


def seconds_to_settle(cell: Cell, played: int, needed: int | None) -> float | None:
    """Return the seconds of a run that plays the restarts needed: more of this one, or a race of the open ones alone.

    None if no race would last so long.
    """
    if needed is None or needed > cell.most_restarts:
        return None
    left = max(needed - played, 1) if cell.goes_on else needed
    return _run_s(waiting_builds_s(cell.rows) if cell.goes_on else 0.0, left * cell.restart_s)


def command_to_settle(cell: Cell, arms: Sequence[str], seconds: float) -> str | None:
    """Return the command that goes on for so long, or races these arms alone for the best one; None if neither can."""
    time = write_minutes(seconds)
    if cell.goes_on:
        return cell.begun.resume(time)
    if any(row.setting for row in cell.rows if row.arm in arms[1:]):
        return None  # the other race chooses settings of its own
    return f"{_run(cell.again(arms))} --goal best --max-time {time}"


def needs_data(needs: Options) -> bool:
    """Tell whether options name data that only the user has, or another target: no policy adds these to a run."""
    return any(name in ("--inputs", "--labels", "--truth", reproduce.TARGETS) for name, _ in needs)


def resume_question(question: Question, policy: Policy, needs: Collection[Options] = ()) -> str | None:
    """Return the command that goes on with an unfinished run, if that may tell what isn't known; else None.

    Args:
        needs: what to add to a run to know it; a run for this policy measures all but the user's data.
    """
    resume = question.documents[0].resume if len(question.documents) == 1 else None
    is_for_policy = any(is_for(policy, one.play.cell) for one in question.candidates)
    is_enough = all(not needs_data(need) and (is_for_policy or need == MORE_RESTARTS) for need in needs)
    return resume if is_enough else None


def is_for(policy: Policy, cell: Cell) -> bool:
    """Return whether a cell's run was begun with this policy, as far as its file tells by now."""
    words = [*cell.begun.words]
    if not cell.begun.has_policy or "--policy" not in words[:-1]:
        return False
    try:
        return read_policy(Path(words[words.index("--policy") + 1]).expanduser(), {}) == policy
    except UsageError:
        return False


def measure_more(question: Question, policy: Policy, candidate: Candidate, needs: Collection[Options]) -> str | None:
    """Return what measures all that isn't known of a candidate; None where no run would tell.

    Args:
        needs: what to add to a run to know it.
    """
    if not needs:
        return resume_question(question, policy)
    if resume := resume_question(question, policy, needs):
        return resume
    cell = candidate.play.cell
    is_enough = {*needs} == {MORE_RESTARTS} or (is_for(policy, cell) and not any(map(needs_data, needs)))
    if is_enough and cell.begun.words and cell.aim == "best":
        # all its targets, since the choice is among them, and all that its policy needs
        return cell.begun.repeat(reproduce.join(MORE_RESTARTS))
    added = [option for need in needs for option in need]
    scenario, others = candidate.row.scenario, [value for name, value in added if name == "--scenario"]
    if not others or scenario in others:
        return _run(reproduce.add_options(cell.again([candidate.row.arm]), added))
    own = reproduce.drop_own(cell.again(list_timed(cell)), scenario, others)  # none was timed in the other scenario
    return _run(reproduce.add_options(own, added))


def describe_refused(cell: Cell, row: Row, ratio: Ratio | None, arms: Sequence[str], accept: str | None) -> WouldChange:
    """Describe a row that would be shipped if its error were accepted.

    Args:
        ratio: its time ÷ the shipped one's.
        arms: those of the cell that a run to measure its accuracy would race.
        accept: the command that accepts its error.
    """
    measure, metric = command_to_measure(cell, arms, row), row.fidelity.metric if row.fidelity else None
    loses = metric is not None and metric.standing is Standing.BROKEN
    may_lose = loses or _exceeds_limit(metric)
    return WouldChange(
        when="looser",
        arm=row.arm,
        ratio=ratio,
        why=tell_refusal(cell, row),
        measure=measure,
        accept=accept,
        explain=command_to_explain(cell, row) if loses else None,
        mix=command_to_mix(cell, row) if may_lose else None,
        **quality_of(row),
    )


def command_to_measure(cell: Cell, arms: Sequence[str], row: Row) -> str | None:
    """Return the command that measures a row's accuracy; None of a model that draws its own inputs, or with a metric.

    More rows of labels are for the user to find: there is no command for a row whose accuracy is known too roughly.
    """
    if row.fidelity is None or cell.is_scored or row.model in models.names():
        return None
    is_of_several = find_scenario(row.scenario).varies or (cell.named and row.parameters)
    needed = name_data(cell, row)
    if is_of_several or not cell.begun.words or name_plain(cell, row):
        return _run(reproduce.add_options(reproduce.at_one_size(cell.again(arms)), needed))
    return cell.begun.repeat(reproduce.join(needed))


def command_to_explain(cell: Cell, row: Row) -> str | None:
    """Return the command that holds a row beside its own FP32 layer by layer; None if nothing can look into it."""
    if row.device != Device.CPU or find_scenario(row.scenario).unexplainable:
        return None
    if not registered.shows_inside(row.backend):
        return None
    if any(one.model == row.model and registered.reads_own_files(one.backend) for one in cell.rows):
        return None  # a converted file has no products, whose layers could be compared
    return read_by(cell, "explain", [("", short(row.arm))])


def command_to_mix(cell: Cell, row: Row) -> str | None:
    """Return the command that searches for layers to leave in float, so that a row keeps the limit; None for others."""
    metric = row.fidelity.metric if row.fidelity else None
    if row.device != Device.CPU or not find_scenario(row.scenario).is_one_call:  # else --backends must name the device
        return None
    if row.precision not in INTEGERS or (metric and metric.limits == "agreement"):
        return None
    if not registered.offers(row.backend, Precision(row.precision), ANY_LAYER):
        return None
    if not reproduce.numbers_layers(row.model, backends.capabilities(row.backend).consumes):
        return None
    scored = (one.fidelity.metric.rows for one in cell.rows if one.fidelity and one.fidelity.metric)
    limit = ask_drop(next(scored, 0))
    return reproduce.search_mix(cell.again([row.arm]), row.backend, row.precision, ("--max-drop", limit))


def _exceeds_limit(metric: Metric | None) -> bool:
    """Tell whether the loss that was measured is above the limit, whatever its interval."""
    if metric is None or metric.change is None or metric.limit is None or metric.limits != "drop":
        return False
    return (metric.change.value if metric.lower_is_better else -metric.change.value) > metric.limit


def has_played(row: Row) -> bool:
    """Tell whether it played a whole restart at least."""
    return row.end_to_end is not None or row.serve is not None
