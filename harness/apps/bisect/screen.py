"""Tell the answer of a search over releases, as lines and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group

from shootout.apps.bisect.bisection import Bisection
from shootout.apps.bisect.releases import find_differences
from shootout.apps.bisect.search import MOST_RESTARTS, Outcome, Side
from shootout.core.stats.verdicts import Comparison
from shootout.core.units import counted, measured, number, size, span
from shootout.tell.columns import make_table
from shootout.tell.machines import machine_of
from shootout.tell.ratios import SPEED, Words, inverse, tell_ends, tell_factor, tell_ratio
from shootout.tell.report import Command, Line, write_lines
from shootout.tell.wording import tell_error

LABELS = dict(zip(Outcome, ("Found", "Same", "Range", "Drift", "Open"), strict=True))
MOST_NAMED = 4
"""More releases that are left to race are counted."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Say how a quantity that may have become worse is told.

    Attributes:
        name: of its column.
        what: it is, in the line below the answer.
        more, less: what a package does since a release that made it larger, or smaller.
        words: the directions of its ratios.
    """

    name: str
    what: str
    more: str
    less: str
    write: Callable[[float], str]
    words: Words = SPEED


USE = Words(less="less", more="more", even="as much")
QUANTITIES = {
    "time": Quantity("time", "time of a call", "is slower", "is faster", measured),
    "ready": Quantity(
        "ready", "time until the first answer", "starts slower", "starts faster", lambda s: measured(1e9 * s)
    ),
    "memory": Quantity(
        "memory", "peak memory", "takes more memory", "takes less memory", lambda count: size(int(count)), USE
    ),
    "outputs": Quantity("error", "error of the outputs", "errs more", "errs less", tell_error),
}
"""Quantities by the word of `--for`."""


def quantity_of(one: Bisection) -> Quantity:
    """Return how the search's quantity is told."""
    return QUANTITIES[one.asked.kind]


def tell_sentence(one: Bisection) -> str:
    """Write the answer in one sentence: `onnxruntime is slower since 1.22.1: 1.34x (1.28 to 1.41)`."""
    found, good, bad, (first, last) = one.found, one.found.last_good, one.found.first_bad, one.ends
    does = quantity_of(one).more if one.is_later_more else quantity_of(one).less
    package, limit, much, by_ratio = one.asked.package, _percent(one.asked.limit), tell_size(one), one.asked.has_ratios
    bound = f"the error bound{f' of {tell_error(one.bound)}' if one.bound else ''}"
    match found.outcome:
        case Outcome.NAMED if hidden := len(one.unasked):
            told = f"{counted(hidden, 'release')} between {'was' if hidden == 1 else 'were'}n't asked"
            return f"{package} {does} between {good} and {bad}: {much}; {told}"
        case Outcome.NAMED:
            return f"{package} {does} since {' or '.join([*found.between, bad])}: {much}"
        case Outcome.RANGE:
            return f"{package} {last} {does} than {first}: {much}; {_tell_range(one)}"
        case Outcome.DRIFT:
            return f"{package} {does} bit by bit from {first} to {last}, {much}: no single release brought most of it"
        case Outcome.NONE if by_ratio:
            return f"{package} {bad} differs from {good} by less than {limit}: {much}"
        case Outcome.NONE:
            side = "beyond" if one.figure(bad) > one.bound else "within"
            return f"{package} {bad} and {good} both err {side} {bound}: {much}"
        case _:
            told = f"{much} so far" if found.readings else "no race of the two has ended"
            two = f"{package} {good} and {bad}"
            what = f"{two} differ by more than {limit}" if by_ratio else f"only one of {two} errs beyond {bound}"
            return f"it isn't told yet if {what}: {told}"


def _tell_range(one: Bisection) -> str:
    """Write what is known of where a difference lies, and no more: by which releases half of it has come."""
    good, bad, (first, last) = one.found.last_good, one.found.first_bad, one.ends
    if (good, bad) == (first, last):
        return "which release brought it isn't told yet"
    if not one.asked.has_ratios:
        return f"it came after {good}, up to {bad}"
    told = [f"half of the difference has come by {bad}"] if bad != last else []
    if good != first:
        told += [f"less than half {'' if told else 'of it has come '}by {good}"]
    return " and ".join(told)


def tell_size(one: Bisection) -> str:
    """Write how much has changed: `1.34x (1.28 to 1.41)`, or of outputs both errors."""
    found, what = one.found, quantity_of(one).what
    if not one.asked.has_ratios:
        two = one.ends if found.outcome is Outcome.RANGE else (found.last_good, found.first_bad)
        before, after = (tell_error(one.figure(release)) for release in two)
        return f"the outputs err by {after}, and by {before} in {two[0]}"
    ratio = inverse(found.ratio) if found.sign < 0 else found.ratio
    factor = tell_factor(ratio.value, ratio.high / ratio.low if ratio.low and ratio.high else 1.0)
    if found.outcome is Outcome.OPEN:
        return f"about {factor}x the {what}"
    return f"{factor}x{f' the {what}' if found.outcome is Outcome.NONE else ''}{tell_ends(ratio.low, ratio.high)}"


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"


def tell_sure(one: Bisection) -> Iterator[str]:
    """Tell how sure the answer is, and what is left to race."""
    found, good, bad = one.found, one.found.last_good, one.found.first_bad
    if found.outcome is not Outcome.OPEN:
        what = "this name" if found.outcome is Outcome.NAMED and not one.unasked else "this"
        yield f"{what} is wrong with a chance of {_percent(one.asked.chance)} at most"
    if one.asked.kind == "memory" and found.readings:
        yield "memory includes mapped files, cached in one way here: another way can change it by 20 %"
    if found.outcome is not Outcome.RANGE:
        return
    if one.asked.has_ratios and {good, bad} <= {*found.readings}:
        log, whole = math.log(found.readings[bad].ratio.value / found.readings[good].ratio.value), math.log(found.whole)
        if found.sign * log < found.sign * whole / 2:
            only = f"only about {tell_factor(math.exp(max(found.sign * log, 0.0)))}x"
            yield f"perhaps no single release brought it: between {good} and {bad} lies {only}"
    untold = [release for release in found.between if release not in found.skipped]
    if len(untold) > MOST_NAMED:
        yield f"{len(untold)} releases between are still open"
    else:
        last = f"the last race, of {good} and {bad}, is still open"
        yield f"still open: {', '.join(untold)}" if untold else last


def write_answer(one: Bisection, issue: str) -> list[Line]:
    """Write the answer's lines.

    Args:
        issue: the file of the text for an issue; "" if there is none.
    """
    found, made = one.found, one.made.values()
    machine = [machine_of(one.facts).name, counted(one.threads, "thread")] if one.facts else []
    room = [f"{counted(len(made), 'environment')} of {size(sum(env.size_bytes for env in made))} in the cache"]
    return [
        Line(LABELS[found.outcome], subject=tell_sentence(one)),
        Line("", [one.asked.name, quantity_of(one).what, one.asked.target, *machine, f"saved in {one.folder}"]),
        Line("Sure", [*tell_sure(one)]),
        Line("Skipped", [f"{release}: {why}" for release, why in found.skipped.items()]),
        Line("Cost", [span(one.took_s), counted(found.questions, "race"), *(room if made else [])]),
        Line("Issue", [f"a text for an issue is in {issue}"] if issue else []),
        Line("Noise", [f"too close to tell in {MOST_RESTARTS} restarts"] if found.is_spent else []),
        Line("Next", [], [Command(text=one.go_on)] if one.unasked or not one.is_done else []),
    ]


def write_notes(one: Bisection) -> list[Line]:
    """Write the lines below the table: how to read it, and which other packages are not in all environments."""
    first, last = one.ends
    how = f"that of {first} × the ratio of one race" if one.asked.has_ratios else "the relative error"
    told = [f"each {quantity_of(one).name} is {how}"] if one.found.readings else []
    if one.asked.has_ratios and len(one.found.readings) > 2:
        told += [f"nearer to {last}: most of the difference has come"]
    return [Line("Table", told), Line("Others", [*tell_others(one)])]


def tell_others(one: Bisection) -> Iterator[str]:
    """Tell which other packages aren't the same in all environments."""
    for name, versions in find_differences(one.asked.package, one.made.values()).items():
        held = dict.fromkeys(version for version in versions.values() if version)
        told = [f"{version} with {', '.join(at for at in versions if versions[at] == version)}" for version in held]
        yield f"{name} {' and '.join(told)}{'' if all(versions.values()) else ' only'}"
    if len(one.made) > 1:
        yield "all other packages are the same in each environment"


def make_rows(one: Bisection) -> list[dict[str, str]]:
    """Make the table's rows, the oldest release first: those that were measured, and those left out."""
    found, (good, bad), quantity = one.found, one.ends, quantity_of(one)
    headers, rows = ("release", quantity.name, f"against {good}", "restarts", "nearer to"), list[dict[str, str]]()
    nearer = {Side.GOOD: good, Side.BAD: bad, Side.HALF: "half way", Side.OPEN: "open"}
    for release in one.releases:
        if reading := found.readings.get(release):
            told = tell_ratio(reading.ratio, words=quantity.words) if one.asked.has_ratios and release != good else ""
            if reading.side is not Side.OPEN and found.outcome is not Outcome.OPEN:
                told = told.partition(", ")[0]  # `open` is about the ratio, and what the release is like is told
            figure = "–" if reading.figure is None else quantity.write(one.figure(release))
            side = "" if release in (good, bad) else nearer[reading.side]
            cells = [figure, told, str(reading.ratio.restarts), side]
        elif release in found.skipped:
            cells = ["–", "", "", "skipped"]
        else:
            continue
        mark = "▸ " if release == found.first_bad and found.outcome is Outcome.NAMED else "  "
        rows.append(dict(zip(headers, [mark + release, *cells], strict=True)))
    return [{name: row[name] for name in headers if any(each[name] for each in rows)} for row in rows]


def write_screen(one: Bisection, issue: str, width: int) -> Group:
    """Write the answer, the table and the lines below it."""
    told = Group(*write_lines(write_answer(one, issue), width))
    if not (rows := make_rows(one)):
        return told
    notes = Group(*write_lines(write_notes(one), width))
    return Group(told, "", make_table([*rows[0]], rows, left=("nearer to",)), "", notes)


def as_data(one: Bisection, issue: str) -> dict[str, Any]:
    """Return the answer as JSON values; a ratio is three figures, `ratio`, `low` and `high`."""
    asked, found, facts = one.asked, asdict(one.found), ("release", "python", "packages", "size_bytes")
    for release, reading in one.found.readings.items():
        found["readings"][release] |= {"release": release, "restarts": reading.ratio.restarts, **_spread(reading.ratio)}
    told = {"sentence": tell_sentence(one), **found, **_spread(one.found.ratio)}
    told |= {name: getattr(asked, name) for name in ("package", "target", "limit", "chance")}
    own = ("releases", "unasked", "operators", "threads", "pinned_cpus", "took_s")
    return {
        **told,
        **{name: getattr(one, name) for name in own},
        "schema": 1,
        "run": str(one.folder),
        "command": one.again,
        "issue": issue,
        "for": asked.kind,
        "model": asked.name,
        "model_hash": asked.sha256,
        "inputs": [asdict(spec) for spec in one.inputs],
        "environments": {at: {name: getattr(made, name) for name in facts} for at, made in one.made.items()},
        "different_packages": find_differences(asked.package, one.made.values()),
    }


def _spread(ratio: Comparison) -> dict[str, float | None]:
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
