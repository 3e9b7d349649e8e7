"""Commands to paste: what measures on, ships, accepts or explains, made of how a run was begun. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from shootout import models
from shootout.apps.judge.cell import Candidate, Cell, Question, name_data, name_plain
from shootout.apps.judge.decide.policy import Policy, write_policy
from shootout.apps.judge.leader import tell_refusal
from shootout.core.contract import Device, NotRunKind, short
from shootout.core.exported.request import name_model
from shootout.core.scenario import find_scenario
from shootout.tell import registered, reproduce
from shootout.tell.document import Ratio, Row, WouldChange
from shootout.tell.limits import Standing
from shootout.tell.reproduce import MORE_RESTARTS, Options

FOLDER = "model-1"
"""The folder that a suggested `ship` makes; the next free number if it exists."""
LONGER, ROUNDED_S = 5, 300
"""A run whose time was over before all was built is to have so many times as much, rounded up to so many seconds."""


def read_by(cell: Cell, command: str, options: Iterable[tuple[str, str]]) -> str:
    """Return a command that reads a cell's run, and names the cell if the run has several answers."""
    words = ["shootout", command, str(cell.begun.folder), *cell.named]
    return f"{reproduce.quote(words)} {reproduce.join(options)}"


def ship_from(cell: Cell, options: Iterable[tuple[str, str]], folder: str = FOLDER) -> str:
    """Return the command that ships from a cell, where it was measured, into a folder that doesn't exist yet."""
    host = [("--on", cell.begun.on)] if cell.begun.on else []
    return read_by(cell, "ship", [*options, *host, ("-o", reproduce.name_free(folder))])


def decide_on(question: Question, policy: Policy) -> str:
    """Return the command that decides the same by a policy."""
    if len(question.cells) == 1:
        return read_by(question.cells[0], "decide", write_policy(policy))
    runs = reproduce.quote([document.run for document in question.documents])
    return f"shootout decide {runs} {reproduce.join(write_policy(policy))}"


def go_on(cell: Cell) -> str | None:
    """Return the command that goes on with a cell's run; None if the run is complete, or its command isn't known."""
    return None if cell.complete else cell.begun.resume(more_time(cell.rows, cell.begun.had_s))


def measure_again(cell: Cell) -> str | None:
    """Return the command that measures the same in a new run; None if that isn't known."""
    return cell.begun.repeat(*reproduce.limit_words(more_time(cell.rows, cell.begun.had_s)))


def why_no_folder(row: Row) -> str:
    """Return why `shootout ship` can't write a folder of what a row measured; "" if it can."""
    why = find_scenario(row.scenario).unshippable
    return why or registered.why_row_unshippable(row.backend, row.device, name_model(row.model))


def reach_folder(cell: Cell, shipped: Row, options: Iterable[tuple[str, str]] = ()) -> str | None:
    """Return the command that comes next of what may be shipped: it ships, or measures what a folder can be made of.

    Args:
        options: by which `ship` chooses it.
    """
    if find_scenario(shipped.scenario).varies:
        return cell.begun.race(reproduce.at_one_size(cell.again(list_timed(cell))))
    if why_no_folder(shipped):
        return None
    if shipped.threads:
        return ship_from(cell, options)
    # no folder can be made of a number of threads that isn't set
    count = str((shipped.executed or {}).get("threads") or 1)
    return cell.begun.race((flag, count if flag == "--threads" else value) for flag, value in cell.again([shipped.arm]))


def list_timed(cell: Cell) -> list[str]:
    """Return the arms of a cell that have a time."""
    return [row.arm for row in cell.rows if row.group == cell.group and row.end_to_end]


def race_at_sizes(cell: Cell, arms: Sequence[str], axis: str, sizes: Sequence[int]) -> str | None:
    """Return the command that races arms at other sizes along an axis; None without a size."""
    return cell.begun.race(reproduce.at_sizes(cell.again(arms), axis, sizes)) if sizes else None


def more_time(rows: Sequence[Row], had_s: float) -> str:
    """Return the time that is proposed for more of a run; "" where a number of restarts shares a time of its own.

    Args:
        rows: of the run, or of one cell.
        had_s: the seconds that the run's last command took.
    """
    if any(find_scenario(row.scenario).restarts for row in rows[:1]):
        return ""
    late = any(row.cause is NotRunKind.NOT_REACHED and row.build_s is None and not has_played(row) for row in rows)
    return f"{math.ceil(LONGER * had_s / ROUNDED_S) * ROUNDED_S // 60}m" if late and had_s else reproduce.MORE_TIME


def seconds_to_settle(cell: Cell, played: int, needed: int | None) -> float | None:
    """Return the seconds of a run that plays the restarts needed: more of this one, or a race of the open ones alone.

    None if no race would last so long.
    """
    if needed is None or needed > cell.most_restarts:
        return None
    return (max(needed - played, 1) if cell.goes_on else needed) * cell.restart_s


def command_to_settle(cell: Cell, arms: Sequence[str], seconds: float) -> str | None:
    """Return the command that goes on for so long, or races these arms alone for the best one; None if neither can."""
    time = f"{max(math.ceil(seconds / 60), 1)}m"
    if cell.goes_on:
        return cell.begun.resume(time)
    if any(row.setting for row in cell.rows if row.arm in arms[1:]):
        return None  # the other race chooses settings of its own
    return f"{cell.begun.race(cell.again(arms))} --goal best --max-time {time}"


def needs_policy(needs: Options) -> bool:
    """Tell whether a policy comes first: a run by it reads more calls in a restart, and more of this one doesn't."""
    return any(name == "--policy" for name, _ in needs[:1])


def needs_data(needs: Options) -> bool:
    """Tell whether options name data that only the user has, or another target: no policy adds these to a run."""
    return any(name in ("--inputs", "--labels", "--truth", reproduce.TARGETS) for name, _ in needs)


def measure_more(question: Question, candidate: Candidate | None, needs: Collection[Options] = ()) -> str | None:
    """Return what measures what isn't known: an unfinished run goes on first; None where no run would tell.

    Args:
        candidate: the one that it isn't known of; None: of all.
        needs: what to add to a run to know it.
    """
    resume = question.documents[0].resume if len(question.documents) == 1 else None
    if candidate is None or not needs:
        return resume
    cell, scenario = candidate.play.cell, candidate.row.scenario
    scenarios = {scenario, *(row.scenario for document in question.documents for row in document.rows)}
    other = any(needs_data(need) or needs_policy(need) for need in needs)
    lacks = other or any(dict(need).get("--scenario", scenario) not in scenarios for need in needs)
    if resume and not lacks:  # more of a run tells nothing of rows or of a scenario that it doesn't have
        return resume
    added = [*dict.fromkeys(option for need in needs for option in need)]
    if all(need[:1] == MORE_RESTARTS for need in needs) and cell.begun.words and cell.aim == "best":
        return cell.begun.repeat(*reproduce.flatten(added))  # all its targets, since the choice is among them
    others = [value for name, value in added if name == "--scenario"]
    if not others or scenario in others:
        return cell.begun.race(reproduce.add_options(cell.again([candidate.row.arm]), added))
    own = reproduce.drop_own(cell.again(list_timed(cell)), scenario, others)  # none was timed in the other scenario
    return cell.begun.race(reproduce.add_options(own, added))


def describe_refused(cell: Cell, row: Row, ratio: Ratio | None, arms: Sequence[str], *, is_first: bool) -> WouldChange:
    """Describe a row that would be shipped if what it loses or breaks were accepted.

    Args:
        ratio: its time ÷ the shipped one's.
        arms: those of the cell that a run to measure its accuracy would race.
        is_first: with the command that accepts it, if that is known well enough and can be put into a folder. A loss
            that breaks its limit isn't proposed.
    """
    metric = row.fidelity.metric if row.fidelity else None
    breaks = metric is not None and metric.standing is Standing.BROKEN
    can_ship = is_first and not breaks and row.is_judged and row.threads and not why_no_folder(row)
    return WouldChange(
        arm=row.arm,
        ratio=ratio,
        why=tell_refusal(cell, row),
        measure=command_to_measure(cell, arms, row),
        accept=ship_from(cell, [("--target", short(row.arm))], f"model-{row.precision}") if can_ship else None,
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
        return cell.begun.race(reproduce.add_options(reproduce.at_one_size(cell.again(arms)), needed))
    return cell.begun.repeat(*reproduce.flatten(needed))


def race_beside_plain(cell: Cell, row: Row) -> str | None:
    """Return the command that races a cell beside the plain FP32 of a row's backend; None if any FP32 was tried."""
    plain = name_plain(cell, row)
    return cell.begun.race(reproduce.add_options(cell.again(list_timed(cell)), plain)) if plain else None


def command_to_explain(cell: Cell, row: Row) -> str | None:
    """Return the command that holds a row beside its own FP32 layer by layer; None if nothing can look into it."""
    if row.device != Device.CPU or find_scenario(row.scenario).unexplainable:
        return None
    if not registered.shows_inside(row.backend):
        return None
    if any(one.model == row.model and registered.reads_own_files(one.backend) for one in cell.rows):
        return None  # a converted file has no products, whose layers could be compared
    return read_by(cell, "explain", [("", short(row.arm))])


def has_played(row: Row) -> bool:
    """Tell whether it played a whole restart at least."""
    return row.end_to_end is not None or row.serve is not None
