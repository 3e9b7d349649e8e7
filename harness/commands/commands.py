"""What each command does, between parsed words and exit codes."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from shootout import backends, models
from shootout.commands.run import measure
from shootout.contract import COULD_RUN, Device, Option
from shootout.errors import Interrupted, UsageError, unknown
from shootout.host.gpu import choose
from shootout.journal.run_folder import choose_folder
from shootout.report import dry_run as estimate
from shootout.report.progress import Progress
from shootout.results import analysis, rates
from shootout.results.document import Document
from shootout.study import axes, points
from shootout.study import schema as study
from shootout.study.group import family
from shootout.study.plan import Plan, make_plan
from shootout.study.schema import Study
from shootout.study.target import parse_targets, with_twins
from shootout.worker import interpreters

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
BROKEN, NOTHING, FAILED, UNAVAILABLE = 1, 3, 4, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The words of one `shootout run`; `gpu` is the number of the one to use, None for the first."""

    study: str = "shootout"
    model: str | None = None
    sets: tuple[str, ...] = ()
    backends: str | None = None
    scenario: str | None = None
    batch: str | None = None
    threads: str | None = None
    inputs: str | None = None
    labels: str | None = None
    calibration: str | None = None
    baseline: str | None = None
    options: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    rate: str | None = None
    p99: str | None = None
    instances: str | None = None
    energy: bool = False
    l2: str | None = None
    gpu: int | None = None
    max_time: str | None = None
    out: Path | None = None
    fresh: bool = False
    dry_run: bool = False
    trace: bool = False
    strict: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The targets named in `--backends`."""
        return () if self.backends is None else tuple(part.strip() for part in self.backends.split(","))

    def chosen(self) -> Study:
        """The study with these changes on top.

        Raises:
            UsageError: a word can't be read, or isn't known.
        """
        base = study.load(self.study)
        return base.changed(
            parameters=axes.parse_sets(self.sets),
            options=axes.parse_options(self.options),
            model=self.model,
            targets=self.named or None,
            scenario=None if self.scenario is None else tuple(part.strip() for part in self.scenario.split(",")),
            batch=_counts("--batch", self.batch),
            threads=_counts("--threads", self.threads, "all"),
            inputs=self.inputs,
            labels=self.labels,
            calibration=self.calibration,
            baseline=self.baseline,
            pythons=interpreters.parse_pythons(self.pythons) or None,
            rate=rates.parse_rate(self.rate),
            p99_limit_ms=rates.parse_limit_ms(self.p99),
            instances=rates.parse_instances(self.instances),
            energy=self.energy or None,
            l2=self.l2,
        )


def run(asked: Asked, *, as_json: bool) -> int:
    """Plan, measure, print; returns the exit code."""
    _choose(asked.gpu)
    chosen, limit_s = asked.chosen(), seconds(asked.max_time)
    with Progress(Console(stderr=True)) as progress:
        planned = make_plan(chosen, asked.named)
        if asked.dry_run:
            return _print(estimate.render(planned), estimate.as_data(planned), as_json=as_json)
        out = asked.out or choose_folder(planned, fresh=asked.fresh)
        try:
            document = measure(
                planned, out, fresh=asked.fresh, max_time_s=limit_s, progress=progress, trace=asked.trace
            )
        except Interrupted as interrupted:
            document = analysis.analyse(out)
            progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
        else:
            code = exit_code(document, planned, strict=asked.strict)
        progress.say(f"run folder: {out}")
    _print_document(document, as_json=as_json)
    return code


def exit_code(document: Document, planned: Plan, *, strict: bool) -> int:
    """6 a named target can't run here; 4 a named one (any, if strict) failed; 3 nothing was measured; else 0."""
    texts = [text for text in planned.named if "*" not in text]  # all of a device's is nothing named
    pythons = planned.study.pythons
    targets = with_twins([one for text in texts for one in parse_targets(text, points.describe, pythons)], pythons)
    named = {str(target) for target in targets}
    mine = [row for row in document.rows if family(row.arm).partition("#")[0] in named]
    ran = {(row.group, family(row.arm)) for row in mine if row.outcome == "measured"}  # in another setting
    skipped = [row for row in mine if row.outcome == "skipped" and (row.group, family(row.arm)) not in ran]
    if any(row.cause not in COULD_RUN for row in skipped):
        return UNAVAILABLE
    if any(row.outcome == "failed" for row in (document.rows if strict else mine)):
        return FAILED
    return 0 if any(row.outcome == "measured" for row in document.rows) else NOTHING


def show(folder: Path, *, full: bool = False, as_json: bool) -> int:
    """Print a run again, or a tuning run; `full`: a table for each size of a sweep."""
    from shootout.tune import table
    from shootout.tune.results import is_tuning, read_tuning

    if is_tuning(folder):
        found = read_tuning(folder)
        return _print(table.render(found, _console().width), table.as_data(found), as_json=as_json)
    _print_document(analysis.analyse(folder), full=full, as_json=as_json)
    return 0


def tune(asked: Asked, allow: str | None, *, as_json: bool) -> int:
    """Search each target's best settings, confirm them, race them; returns the exit code."""
    from shootout.tune import search
    from shootout.tune.results import Outcome, read_tuning

    _choose(asked.gpu)
    chosen, limit_s = asked.chosen(), seconds(asked.max_time)
    if not asked.named:
        chosen = search.of_every_backend(chosen)
    allowed = search.parse_allowed(allow)
    with Progress(Console(stderr=True)) as progress:
        wanted = search.make_search(chosen, allowed)
        out = asked.out or search.choose_folder(wanted, fresh=asked.fresh)
        stage = partial(measure, fresh=False, progress=progress)
        code = 0
        try:
            search.tune(wanted, out, stage, fresh=asked.fresh, max_time_s=limit_s, say=progress.say)
        except Interrupted as interrupted:
            progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
        progress.say(f"run folder: {out}")
    show(out, as_json=as_json)
    outcomes = {one.conclusion.outcome for one in read_tuning(out).found.values()}
    mine = outcomes if asked.named else set()
    ended = {Outcome.SKIPPED: UNAVAILABLE, Outcome.FAILED: FAILED}
    worst = next((ended[outcome] for outcome in ended if outcome in mine), 0)
    return code or worst or (0 if outcomes - set(ended) else NOTHING)


def sensitivity(asked: Asked, *, as_json: bool) -> int:
    """Print what quantizing each layer alone does to a model."""
    from shootout.export.sensitivity import rank_layers
    from shootout.report import layers_table

    chosen = asked.chosen()
    (point, *more) = points.points(chosen)
    if more:
        raise UsageError(
            f"sensitivity looks at one model at a time: give one value for each --set, got {len(more) + 1} models"
        )
    with Progress(Console(stderr=True)) as progress:
        progress.stage(f"quantizing each layer of {points.group_name(point)} alone")
        found = rank_layers(points.request(chosen, point))
    return _print(layers_table.render(found), layers_table.as_data(found), as_json=as_json)


def examine(*, gpu: int | None = None, as_json: bool) -> int:
    """Print what `doctor` finds."""
    from shootout.commands import doctor

    _choose(gpu)
    report = doctor.examine()
    return _print(doctor.render(report), doctor.as_data(report), as_json=as_json)


def catalogue(*, as_json: bool) -> int:
    """Print the studies, models, backends and their options by name."""
    options = {
        f"{name}.{option.name}": option
        for name in backends.names()
        for option in backends.get(name).capabilities.settable().values()
    }
    known = {
        "studies": study.names(),
        "models": {name: models.get(name).description for name in models.names()},
        "backends": {name: _offers(name) for name in backends.names()},
    }
    told = {**known, "options": {name: option.help for name, option in options.items()}}
    lines = []
    for kind, found in told.items():
        width = max(map(len, found))
        lines.append(f"{kind}\n" + "".join(f"  {name:<{width}} {what}\n" for name, what in found.items()))
    data = {**known, "options": {name: _described(option) for name, option in options.items()}}
    return _print("\n".join(lines), data, as_json=as_json)


def ceilings(*, threads: str | None, fresh: bool, as_json: bool) -> int:
    """Print what this machine can do at most."""
    from shootout.ceilings.measure import obtain_ceilings
    from shootout.ceilings.model import read_ceilings
    from shootout.host import environment
    from shootout.host.locks import machine_lock
    from shootout.host.placement import place
    from shootout.report.ceilings import render_ceilings

    placement = place("all" if threads == "all" else None if threads is None else _whole("--threads", threads))
    facts = environment.facts()
    found = None if fresh else read_ceilings(facts).get(placement.threads)  # else another run is waited for
    if found is None:
        with Progress(Console(stderr=True)) as progress, machine_lock("shootout ceilings", progress.say):
            found = obtain_ceilings(placement, facts, progress.say, fresh=fresh)
    return _print(render_ceilings(found), found.model_dump(mode="json"), as_json=as_json)


def selftest(
    *, quick: bool, device: str = "cpu", gpu: int | None = None, out: Path | None = None, as_json: bool
) -> int:
    """Test the harness live and print what it can tell on this machine; `out`: keep the races, and go on with them."""
    from shootout.commands import selftest as live

    if device not in set(Device):
        raise unknown("device", device, map(str, Device))
    _choose(gpu)
    with Progress(Console(stderr=True)) as progress:
        report = live.run(quick=quick, progress=progress, device=Device(device), out=out)
    _print(live.render(report), live.as_data(report), as_json=as_json)
    return BROKEN if any(one.wrong for one in report.planted) else 0


def seconds(text: str | None) -> float | None:
    """`90s`, `2m`, `1h` or plain seconds → seconds.

    Raises:
        UsageError: the text is none of these.
    """
    if text is None:
        return None
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise UsageError(f"--max-time {text!r} is not a time: write 90s, 2m or 1h")
    return float(match[1]) * _UNIT_S[match[2] or "s"]


def _choose(gpu: int | None) -> None:
    """Use this GPU, before anything asks for one; None: the first that is visible.

    Raises:
        Unavailable: there is no such GPU, or none that can be used.
    """
    if gpu is not None:
        choose(gpu)


def _counts(what: str, text: str | None, *words: str) -> tuple[int | str, ...] | None:
    """`1,8` or a range → whole numbers; `words` stay as they are."""
    if text is None:
        return None
    parts = [one for part in text.split(",") for one in axes.expanded(part)]
    return tuple(part if part in words else _whole(what, part) for part in parts)


def _whole(what: str, value: float | str) -> int:
    if isinstance(value, float):
        raise UsageError(f"{what} takes whole numbers, got {value}")
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{what} takes whole numbers, got {value!r}") from None


def _offers(name: str) -> str:
    targets = sorted(f"{device}:{precision}" for device, precision in backends.get(name).capabilities.targets)
    return ", ".join(targets)


def _described(option: Option) -> dict[str, Any]:
    return {
        "help": option.help,
        "expects": option.expects,
        "devices": sorted(option.devices),
        "modes": None if option.modes is None else sorted(option.modes),
        "tries": list(option.tries),
    }


def _print_document(document: Document, *, full: bool = False, as_json: bool) -> None:
    from shootout.report import table

    text = table.render(document, _console().width, full=full)
    _print(text, document.model_dump(mode="json", by_alias=True), as_json=as_json)


def _print(text: RenderableType, data: Any, *, as_json: bool) -> int:
    """Data on stdout as JSON, or the same as text for people."""
    if as_json:
        json.dump(data, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        _console().print(text)
    return 0


def _console() -> Console:
    """Standard output; wide where it is no terminal, so that a file or a pipe gets whole lines."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)
