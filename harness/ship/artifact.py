"""A run's arm as it was built: out of the cache, or built anew from the same model for the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from shootout import backends
from shootout.backends.adapter import Built
from shootout.backends.installed import closure
from shootout.build.builder import Builder, needs_of, probe_key, probe_request
from shootout.contract import Target
from shootout.errors import ModelError, SkippedArm, UsageError
from shootout.export import cache, client
from shootout.export.request import Request
from shootout.exported.model import ExportedModel
from shootout.host import environment
from shootout.host.placement import place
from shootout.host.scratch import scratch
from shootout.host.store import cache_folder
from shootout.journal.records import Skip
from shootout.messages import Progress
from shootout.ship.source import Source
from shootout.study.group import GroupRecord
from shootout.study.plan import PlannedGroup
from shootout.study.reproduce import words
from shootout.study.target import provider
from shootout.worker import availability


def find_built(source: Source, progress: Progress) -> Built:
    """The artifact that was raced, or one made of the same by the same on this machine.

    Raises:
        UsageError: this is another machine, versions or the model are not what they were, or it can't be built here.
    """
    here, there = environment.facts(), source.document.environment
    again = f"race it again here: shootout run {words(source.arm, source.history.header.given)}"
    if source.arm.target.python:
        raise UsageError(f"{source.arm.label} ran under another interpreter; {again}, under that one")
    if differing := _differing(source.arm.target, here, there):
        raise UsageError(f"{source.document.run} was measured {differing}: ship it there, or {again}")
    model = _model(source, again)
    found = availability.available([provider(source.arm.target)])[provider(source.arm.target)]
    if not found.ok:
        raise UsageError(f"{source.arm.label} can't run here any more: {found.reason}; {found.fix}")
    key = probe_key(source.arm)
    probe = client.obtain_all([probe_request(*key)])[0] if key else None
    with scratch(cache_folder()) as logs:
        builder = Builder(
            cache=cache_folder(),
            placement=place(source.arm.threads),
            probes={key: probe} if key and isinstance(probe, ExportedModel) else {},
            machine=environment.fingerprint(there),
            logs=logs,
            progress=progress,
        )
        if not builder.holds(source.arm, model, found.version, runs=True) and (changed := _around(here, there)):
            raise UsageError(f"its build is gone from the cache, and {changed}: {again}")
        return builder.prepare(source.arm, model, found.version).built


def _model(source: Source, again: str) -> ExportedModel:
    """The export that the arm was built from."""
    key = source.prepared.exported
    if key and (kept := cache.lookup(key)):
        return kept
    try:
        request = _planned(source).request_of(source.arm)
        needs = needs_of([_planned(source)])
        made = client.obtain(replace(request, needs=tuple(sorted(needs))))
    except (UsageError, ModelError, SkippedArm) as error:
        raise UsageError(f"the model that was raced is gone, and can't be exported again: {error}") from None
    if made.key != key:
        raise UsageError(
            f"{made.model} is no more what was raced: the model, its data or the packages that export it have changed; "
            f"{again}"
        )
    return made


def _planned(source: Source) -> PlannedGroup:
    """The arm's group as its run planned it."""
    record, history = source.record, source.history
    skips = {line.arm.label: line.why for line in history.of_group(record.name) if isinstance(line, Skip)}
    given = dict(zip(history.header.given[::2], history.header.given[1::2], strict=True))
    return PlannedGroup(record=record, request=_request(record, given), skips=skips)


def _request(record: GroupRecord, given: Mapping[str, str]) -> Request:
    first = next(arm for arm in record.arms if not arm.file)
    files = {name: Path(given[f"--{name}"]) if f"--{name}" in given else None for name in _GIVEN}
    return Request(
        model=first.model,
        parameters=first.parameters,
        batch=first.batch,
        inputs_npz=files["inputs"],
        labels_npz=files["labels"],
        calibration_npz=files["calibration"],
        weights=files["weights"],
    )


_GIVEN = ("inputs", "labels", "calibration", "weights")


def _differing(target: Target, here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """What the artifact rests on that isn't as it was in the run, "" where all is; other packages are no matter."""
    if here["machine"] != there.get("machine"):
        return "on another machine"
    told = [f"another {word} of the CPU" for word in ("model", "flags") if here["cpu"][word] != _of(there, "cpu", word)]
    python = _of(there, "python", "version")
    if here["python"]["version"] != python:
        told.append(f"Python {python} ({here['python']['version']} here)")
    then, now, ours = there.get("libraries") or {}, here["libraries"], _packages(target)
    changed = (name for name in sorted({*then, *now}) if then.get(name) != now.get(name))
    told += [
        f"{name} {then.get(name, '-')} ({now.get(name, 'not installed')} here)"
        for name in changed
        if canonicalize_name(name) in ours
    ]
    return f"with {', '.join(told)}" if told else ""


def _packages(target: Target) -> set[str]:
    """What may decide how its artifact is built and runs."""
    row = backends.entry(target.backend)
    names = {*row.makers, *row.distributions(target)}
    with suppress(UsageError):  # what is gone is among these
        names |= closure(target).keys()
    return {canonicalize_name(name) for name in names}


def _around(here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """What else could make another build, "" where nothing does: what is built already doesn't change with it."""
    then, now = environment.variables(there.get("variables") or {}), here["variables"]
    changed = [f"{name}={then.get(name, '')}" for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    if here["os"]["name"] != _of(there, "os", "name"):
        changed.append(str(_of(there, "os", "name")))
    return f"it was measured with {', '.join(changed)}" if changed else ""


def _of(facts: Mapping[str, Any], part: str, word: str) -> Any:
    return (facts.get(part) or {}).get(word)
