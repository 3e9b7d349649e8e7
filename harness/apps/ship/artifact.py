"""Find the raced artifact in the cache, or build it again from the same model for the same machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from shootout import models
from shootout.backends.optional import find_closure
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.build.builder import Builder, leading_of, needs_of, open_delivery, probe_key, probe_request
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, Target
from shootout.core.errors import ModelError, SkippedArm, UsageError
from shootout.core.exported import client
from shootout.core.exported.client import ProbeKey
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Request, brief_key, find_source
from shootout.core.host import environment
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import place
from shootout.core.host.store import cache_folder
from shootout.core.journal.records import Setback
from shootout.core.messages import Progress
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.points import find_rows, find_scored
from shootout.core.study.target import provider
from shootout.core.worker import availability
from shootout.tell.delivery import read_delivery
from shootout.tell.reproduce import words
from shootout.tell.run_folder import RacedArm

SHIP = "ship"
_GIVEN_FILES = ("labels", "calibration", "rows_by", "weights")


def closure(target: Target, wanted: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the versions of the packages here that a target's artifact needs where it runs, NumPy among them, by name.

    Args:
        wanted: requirements; those of its backend's row where there are none.

    Raises:
        UsageError: that can't be told.
    """
    wanted = wanted or backends.entry(target.backend).installed(target)
    packages = find_closure(("numpy", *wanted), tuple(sys.path), "") if wanted else None
    if packages is None:
        raise UsageError(
            f"it is unknown which packages {target} needs: its row of the registry doesn't tell; "
            "name its packages there, in `installs`"
        )
    return {name: package.version for name, package in packages.items()}


def find_built(source: RacedArm, progress: Progress, *, to: str = SHIP, limit: Deadline | None = None) -> Built:
    """Return the artifact that was raced, or build the same again on this machine.

    Args:
        to: what is done with it, a verb.
        limit: when a build must end; None: after as long as any build may take.

    Raises:
        ArmFailed: the build broke, or took longer than it may.
        UsageError: this is another machine, versions or the model are not what they were, or it can't be built here.
    """
    here, there = environment.facts(), source.document.environment
    again = f"race it again here: shootout run {words([source.arm], source.run.facts.given)}"
    if source.arm.target.python:
        raise UsageError(f"{source.arm.label} ran under another interpreter; {again}, under that one")
    if source.arm.threads == 0 and to == SHIP:
        known = (source.row.executed or {}).get("threads") or 1
        raise UsageError(
            f"{source.arm.label} took its library's own number of threads, and a shipped folder sets one: race it with "
            f"--threads {known}, and ship that"
        )
    if differing := _describe_differences(source.arm.target, here, there):
        raise UsageError(f"{source.document.run} was measured {differing}: {to} it there, or {again}")
    delivery = read_delivery(source.folder)
    model = _find_exported(source, again, is_whole=delivery is None)
    found = availability.find_available([provider(source.arm.target)])[provider(source.arm.target)]
    if not found.ok:
        raise UsageError(f"{source.arm.label} can't run here any more: {found.reason}; {found.fix}")
    with Scratch(cache_folder()) as logs:
        builder = Builder(
            cache=cache_folder(),
            placement=place(source.arm.threads),
            probes=open_delivery(delivery).probes if delivery else _export_probe(source.arm),
            machine=environment.fingerprint(there),
            logs=logs,
            progress=progress,
            delivery=delivery,
        )
        if not builder.holds(source.arm, model, found.version, runs=True) and (
            changed := _describe_surroundings(here, there)
        ):
            raise UsageError(f"its build is gone from the cache, and {changed}: {again}")
        return builder.prepare(source.arm, model, found.version, limit=limit)


def _export_probe(arm: Arm) -> dict[ProbeKey, ExportedModel]:
    key = probe_key(arm)
    probe = client.obtain_all([probe_request(*key)])[0] if key else None
    return {key: probe} if key and isinstance(probe, ExportedModel) else {}


def _find_exported(source: RacedArm, again: str, *, is_whole: bool) -> ExportedModel:
    key = source.prepared.exported
    if key and (kept := client.lookup(key, is_whole=is_whole)):
        with suppress(UsageError):  # it may have been made from another folder, which isn't there any more
            kept = replace(kept, model=models.get(source.arm.model).name) if kept.source_sha256 else kept
        return kept
    try:
        request = _plan_of_group(source).request_of(source.arm)
        needs = needs_of([_plan_of_group(source)])
        made = client.obtain(replace(request, needs=tuple(sorted(needs))))
    except (UsageError, ModelError, SkippedArm) as error:
        raise UsageError(f"the model that was raced is gone, and can't be exported again: {error}") from None
    if key not in _keys_of(made, source):
        raise UsageError(
            f"{made.model} is no longer what was measured: the model, its data, the packages that export it or "
            f"shootout itself have changed; {again}"
        )
    return made


def _keys_of(made: ExportedModel, source: RacedArm) -> set[str]:
    """Return the keys that this model has as a whole, and as an export of the run that left things out for time."""
    plan = _plan_of_group(source)
    every = [replace(plan, record=record) for record in source.run.facts.groups]
    needs = [leading_of(groups, any_error=allows) for groups in ([plan], every) for allows in (False, True)]
    return {made.key, *(brief_key(made.key, leading) for leading in needs)}


def _plan_of_group(source: RacedArm) -> PlannedGroup:
    record, history = source.record, source.run.history
    skips = {
        line.arm.label: line.why
        for line in history.of_group(record.name)
        if isinstance(line, Setback) and line.kind == "skip"
    }
    given = history.header.given
    files = {name: Path(given[name]) if name in given else None for name in _GIVEN_FILES}
    rows = find_rows(given.get("inputs"), given.get("read"), given.get("truth"))
    first = next(arm for arm in record.arms if not arm.file)
    request = Request(
        model=_convert_again(first.model, history.header.converted),
        parameters=first.parameters,
        batch=first.batch,
        inputs_npz=rows.inputs,
        labels_npz=files["labels"],
        calibration_npz=files["calibration"],
        weights=files["weights"],
        scored=find_scored(given.get("metric"), rows.truth),
        rows_by=files["rows_by"],
        state=given.get("state"),
        steps=given.get("stream", 0),
        scores_all=record.scores_all,
    )
    return PlannedGroup(record=record, request=request, skips=skips)


def _convert_again(model: str, converted: Mapping[str, str]) -> str:
    """Return the file of a converted model; if this cache has it no more, convert again what the run was given.

    Raises:
        UsageError, ModelError: that can't be read or converted any more.
    """
    own, folder = converted.get(model), Path(model).parent
    is_lost = not (folder.parent == cache_folder() and folder.exists())
    return find_source(own).resolve(own) if own and is_lost else model


def _describe_differences(target: Target, here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Describe what the artifact depends on and what has changed since the run; "" if nothing has."""
    if here["machine"] != there.get("machine"):
        return "on another machine"
    old_cpu = there.get("cpu") or {}
    differences = [
        f"another {word} of the CPU" for word in ("model", "flags") if here["cpu"][word] != old_cpu.get(word)
    ]
    python = (there.get("python") or {}).get("version")
    if here["python"]["version"] != python:
        differences.append(f"Python {python} ({here['python']['version']} here)")
    then, now, ours = there.get("libraries") or {}, here["libraries"], _relevant_packages(target)
    changed = (name for name in sorted({*then, *now}) if then.get(name) != now.get(name))
    differences += [
        f"{name} {then.get(name, '-')} ({now.get(name, 'not installed')} here)"
        for name in changed
        if canonicalize_name(name) in ours
    ]
    return f"with {', '.join(differences)}" if differences else ""


def _relevant_packages(target: Target) -> set[str]:
    row = backends.entry(target.backend)
    names = {*row.makers, *row.distributions(target)}
    with suppress(UsageError):  # what is gone is among these
        names |= closure(target).keys()
    return {canonicalize_name(name) for name in names}


def _describe_surroundings(here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Describe what else could change a new build, but no old one; "" if nothing has changed."""
    then, now = environment.variables(there.get("variables") or {}), here["variables"]
    changed = [f"{name}={then.get(name, '')}" for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    system = (there.get("os") or {}).get("name")
    if here["os"]["name"] != system:
        changed.append(str(system))
    return f"it was measured with {', '.join(changed)}" if changed else ""
