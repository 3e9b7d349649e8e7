"""Tell the answer of a search over releases, as lines and as JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group

from shootout.apps.bisect.releases import Environment, find_differences
from shootout.apps.bisect.search import CHANCE, LIMIT, MOST_RESTARTS, UNTOLD, Found, Outcome, Side
from shootout.core.contract import TensorSpec
from shootout.core.units import counted, measured, number, size, span
from shootout.tell.columns import make_table
from shootout.tell.machines import machine_of
from shootout.tell.ratios import SPEED, Words, inverse, tell_ends, tell_factor, tell_ratio
from shootout.tell.report import Command, Line, write_lines
from shootout.tell.wording import tell_error

LABELS = dict(zip(Outcome, ("Found", "Same", "Range", "Drift", "Open"), strict=True))
FACTS = "bisect.json"
"""In a search's folder: what it is of, and what is known so far."""
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


QUANTITIES = {
    "time": Quantity("time", "time of a call", "is slower", "is faster", measured),
    "ready": Quantity(
        "ready", "time until the first answer", "starts slower", "starts faster", lambda value: measured(1e9 * value)
    ),
    "memory": Quantity(
        "memory",
        "peak memory",
        "takes more memory",
        "takes less memory",
        lambda value: size(int(value)),
        Words(less="less", more="more", even="as much"),
    ),
    "outputs": Quantity("error", "error of the outputs", "errs more", "errs less", tell_error),
}
"""By the word of `--for`. Outputs are right or wrong, so a ratio of their errors isn't told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Say what is searched for; a search goes on in its folder if all of it is the same.

    Attributes:
        wanted: the words that name releases.
        kind: the word of `--for`.
        target: as users write it, without an interpreter: `onnxruntime:cpu:fp32`.
        model: as users write it.
        sha256: of the model's file; "" if it has none.
        files: hashes of all files of the user's, data included.
        python: the interpreter that the environments are made of.
        run: options of `run` beside the model, the targets, the interpreters and the folder.
    """

    package: str
    wanted: str
    kind: str
    target: str
    model: str
    sha256: str = ""
    files: Sequence[str] = ()
    python: str
    limit: float = LIMIT
    chance: float = CHANCE
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the model's file, or the zoo's."""
        return Path(self.model).expanduser().name


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """Hold what a search found, and what it was about.

    Attributes:
        releases: all that were asked for.
        found: with the releases among those skipped that couldn't be installed.
        environments: those that were made.
        facts: the environment of the runs; empty if there is none.
        threads: of each process.
        inputs: of the model, as it was measured.
        operators: of its graph, and how often each is there; empty if it has no ONNX file.
        pinned_cpus: those that each process was pinned to.
        folder: of the search.
        again: the command that makes it again; `go_on` goes on with it.
        took_s: seconds of all attempts.
    """

    asked: Asked
    releases: Sequence[str]
    found: Found
    environments: Mapping[str, Environment]
    facts: Mapping[str, Any]
    threads: int
    inputs: Sequence[TensorSpec] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    pinned_cpus: int = 0
    folder: str
    again: str
    go_on: str
    took_s: float

    @property
    def quantity(self) -> Quantity:
        """Return how the quantity is told."""
        return QUANTITIES[self.asked.kind]

    @property
    def ends(self) -> tuple[str, str]:
        """Return the first and the last release that raced; if none did, of those that were asked for."""
        raced = [*self.found.readings] or [self.releases[0], self.releases[-1]]
        return raced[0], raced[1]

    @property
    def is_later_more(self) -> bool:
        """Return whether the later releases' figures are the larger ones."""
        if self.asked.kind == "outputs":
            return self.figure(self.found.first_bad) >= self.figure(self.found.last_good)
        return self.found.sign > 0

    def figure(self, release: str) -> float:
        """Return the figure of a release that was measured, or else 0.

        Each ratio is of a race of its own, and the machine drifts between races. So that figures and ratios agree, a
        figure is the first release's × the ratio, except for outputs, whose errors are the same in all races.
        """
        reading, first = (self.found.readings.get(one) for one in (release, self.ends[0]))
        if self.asked.kind == "outputs" or not (reading and first and first.figure):
            return (reading.figure if reading else None) or 0.0
        return first.figure * reading.ratio.value


def tell_sentence(one: Bisection) -> str:
    """Write the answer in one sentence: `onnxruntime is slower since 1.22.1: 1.34x (1.28 to 1.41)`."""
    found, good, bad, (first, last) = one.found, one.found.last_good, one.found.first_bad, one.ends
    does, much = one.quantity.more if one.is_later_more else one.quantity.less, tell_size(one)
    package, limit = one.asked.package, _percent(one.asked.limit)
    match found.outcome:
        case Outcome.NAMED:
            return f"{package} {does} since {' or '.join([*found.between, bad])}: {much}"
        case Outcome.RANGE:
            return f"{package} {last} {does} than {first}: {much}; {_tell_range(one)}"
        case Outcome.DRIFT:
            return f"{package} {does} bit by bit from {first} to {last}, {much}: no single release brought most of it"
        case Outcome.NONE:
            return f"{package} {bad} differs from {good} by less than {limit}: {much}"
        case _:
            told = f": {much} so far" if found.readings else ": no race of the two has ended"
            return f"it isn't told yet if {package} {good} and {bad} differ by more than {limit}{told}"


def _tell_range(one: Bisection) -> str:
    """Write what is known of where a difference lies, and no more: by which releases half of it has come."""
    good, bad, (first, last) = one.found.last_good, one.found.first_bad, one.ends
    if (good, bad) == (first, last):
        return "which release brought it isn't told yet"
    if one.asked.kind == "outputs":
        return f"it came after {good}, up to {bad}"
    told = [f"half of the difference has come by {bad}"] if bad != last else []
    if good != first:
        told += [f"less than half {'' if told else 'of it has come '}by {good}"]
    return " and ".join(told)


def _tell_doubt(one: Bisection) -> Iterator[str]:
    """Tell that a range may hold no single release, if its ends differ by less than half of the whole difference."""
    good, bad = (one.found.readings.get(release) for release in (one.found.last_good, one.found.first_bad))
    if one.asked.kind == "outputs" or not good or not bad:
        return
    held, whole = (math.log(ratio) * one.found.sign for ratio in (bad.ratio.value / good.ratio.value, one.found.whole))
    if held < whole / 2:
        only = f"only about {tell_factor(math.exp(max(held, 0.0)))}x"
        yield f"perhaps no single release brought it: between {good.release} and {bad.release} lies {only}"


def tell_size(one: Bisection) -> str:
    """Write how much has changed: `1.34x (1.28 to 1.41)`, or of outputs both errors."""
    found = one.found
    if one.asked.kind == "outputs":
        two = one.ends if found.outcome is Outcome.RANGE else (found.last_good, found.first_bad)
        before, after = (tell_error(one.figure(release)) for release in two)
        return f"the outputs err by {after}, and by {before} in {two[0]}"
    ratio = inverse(found.ratio) if found.sign < 0 else found.ratio
    factor = tell_factor(ratio.value, ratio.high / ratio.low if ratio.low and ratio.high else 1.0)
    beside = f" the {one.quantity.what}" if found.outcome in (Outcome.NONE, Outcome.OPEN) else ""
    return f"{factor}x{beside}{tell_ends(ratio.low, ratio.high)}"


def _percent(share: float) -> str:
    return f"{number(100 * share, 2)} %"


def write_answer(one: Bisection, issue: str) -> list[Line]:
    """Write the answer's lines.

    Args:
        issue: the file of the text for an issue; "" if there is none.
    """
    found, made = one.found, one.environments.values()
    machine = [machine_of(one.facts).name, counted(one.threads, "thread")] if one.facts else []
    room = [f"{counted(len(made), 'environment')} of {size(sum(env.size_bytes for env in made))} in the cache"]
    return [
        Line(LABELS[found.outcome], subject=tell_sentence(one)),
        Line("", [one.asked.name, one.quantity.what, one.asked.target, *machine, f"saved in {one.folder}"]),
        Line("Sure", [*tell_sure(one)]),
        Line("Skipped", [f"{release}: {why}" for release, why in one.found.skipped.items()]),
        Line("Cost", [span(one.took_s), counted(found.questions, "race"), *(room if made else [])]),
        Line("Issue", [f"a text for an issue is in {issue}"] if issue else []),
        Line("Noise", [f"too close to tell in {MOST_RESTARTS} restarts"] if found.is_spent else []),
        Line("Next", [], [Command(text=one.go_on)] if found.outcome in UNTOLD and not found.is_spent else []),
    ]


def tell_sure(one: Bisection) -> Iterator[str]:
    """Tell how sure the answer is, and what is left to race."""
    chance = f"with a chance of {_percent(one.asked.chance)} at most"
    untold = [release for release in one.found.between if release not in one.found.skipped]
    match one.found.outcome:
        case Outcome.NAMED:
            yield f"another release brought it {chance}"
        case Outcome.RANGE:
            yield f"this is wrong {chance}"
            yield from _tell_doubt(one)
            last = f"the last race, of {one.found.last_good} and {one.found.first_bad}, is still open"
            several = f"{len(untold)} releases between are still open" if len(untold) > MOST_NAMED else ""
            yield several or (f"still open: {', '.join(untold)}" if untold else last)
        case Outcome.NONE | Outcome.DRIFT:
            yield f"this is wrong {chance}"


def write_notes(one: Bisection) -> list[Line]:
    """Write the lines below the table: how to read it, and which other packages are not in all environments."""
    first, last = one.ends
    name, is_ratio = one.quantity.name, one.asked.kind != "outputs"
    how = f"that of {first} × the ratio of one race" if is_ratio else "the relative error"
    told = [f"each {name} is {how}"] if one.found.readings else []
    if is_ratio and len(one.found.readings) > 2:
        told += [f"nearer to {last}: most of the difference has come"]
    return [Line("Table", told), Line("Others", [*tell_others(one)])]


def tell_others(one: Bisection) -> Iterator[str]:
    """Tell which other packages aren't the same in all environments."""
    for name, versions in find_differences(one.asked.package, one.environments.values()).items():
        held = dict.fromkeys(version for version in versions.values() if version)
        told = [f"{version} with {', '.join(at for at in versions if versions[at] == version)}" for version in held]
        yield f"{name} {' and '.join(told)}{'' if all(versions.values()) else ' only'}"
    if len(one.environments) > 1:
        yield "all other packages are the same in each environment"


def make_rows(one: Bisection) -> list[dict[str, str]]:
    """Make the table's rows, the oldest release first: those that were measured, and those left out."""
    found, (good, bad) = one.found, one.ends
    headers, rows = ("release", one.quantity.name, f"against {good}", "restarts", "nearer to"), list[dict[str, str]]()
    for release in one.releases:
        if reading := found.readings.get(release):
            is_compared = one.asked.kind != "outputs" and release != good
            told = tell_ratio(reading.ratio, words=one.quantity.words) if is_compared else ""
            if reading.side is not Side.OPEN and found.outcome is not Outcome.OPEN:
                told = told.partition(", ")[0]  # `open` is about the ratio, and what the release is like is told
            nearer = {Side.GOOD: good, Side.BAD: bad, Side.HALF: "half way", Side.OPEN: "open"}[reading.side]
            figure = "–" if reading.figure is None else one.quantity.write(one.figure(release))
            cells = [figure, told, str(reading.ratio.restarts), "" if release in (good, bad) else nearer]
        elif release in one.found.skipped:
            cells = ["–", "", "", "skipped"]
        else:
            continue
        mark = "▸ " if release == found.first_bad and found.outcome is Outcome.NAMED else "  "
        rows.append(dict(zip(headers, [mark + release, *cells], strict=True)))
    return rows


def write_screen(one: Bisection, issue: str, width: int) -> Group:
    """Write the answer, the table and the lines below it."""
    rows, told = make_rows(one), Group(*write_lines(write_answer(one, issue), width))
    if not rows:
        return told
    notes = Group(*write_lines(write_notes(one), width))
    return Group(told, "", make_table([*rows[0]], rows, left=("nearer to",)), "", notes)


def as_data(one: Bisection, issue: str) -> dict[str, Any]:
    """Return the answer as JSON values."""
    asked, told = one.asked, asdict(one)
    found, _ = _flatten(told.pop("found")), [told.pop(name) for name in ("asked", "facts", "folder", "go_on", "again")]
    found["readings"] = {release: _flatten(reading) for release, reading in found["readings"].items()}
    told |= {"schema": 1, "run": one.folder, "command": one.again, "issue": issue, "for": asked.kind}
    told |= {"package": asked.package, "target": asked.target, "limit": asked.limit, "chance": asked.chance}
    told |= {"model": asked.name, "model_hash": asked.sha256}
    different = find_differences(asked.package, one.environments.values())
    return {"sentence": tell_sentence(one), **found, **told, "different_packages": different}


def _flatten(told: dict[str, Any]) -> dict[str, Any]:
    """Return what holds a ratio, with its three figures in its place."""
    ratio = told["ratio"]
    restarts = {"restarts": ratio["restarts"]} if "release" in told else {}
    return told | {"ratio": ratio["value"], "low": ratio["low"], "high": ratio["high"]} | restarts


def read_kept(folder: Path) -> dict[str, Any]:
    """Return what an earlier command kept in a search's folder; nothing of another folder."""
    try:
        kept = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return kept if {"asked", "releases", "pins", "environments", "go_on"} <= {*kept} else {}
    except (OSError, ValueError, TypeError):
        return {}
