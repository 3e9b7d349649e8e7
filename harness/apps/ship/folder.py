"""Write the shipped folder: the artifact, two programs, their packages and the evidence, sealed by one manifest.

The raced artifact is found in the cache, or built again from the same model for the same machine.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from packaging.utils import canonicalize_name

from shootout import models
from shootout.backends.optional import Ship, Shipment, find_closure
from shootout.backends.shipped import (
    CHECK,
    CODE,
    EVIDENCE,
    EXPECTED,
    INPUTS,
    LOAD,
    MODEL,
    MOST_BYTES,
    REQUIREMENTS,
    SCHEMA,
    ShippedArm,
    ShippedFolder,
    ShippedRuntime,
    seal_shipped,
)
from shootout.core import backends, plugins
from shootout.core.adapter import Built
from shootout.core.build.builder import Builder, leading_of, needs_of, open_delivery, probe_key, probe_request
from shootout.core.constants import FIDELITY_MARGIN, FP32_BOUND_FLOOR, USEFUL_BOUND
from shootout.core.contract import INTEGERS, Arm, Arrays, Device, Target
from shootout.core.errors import DISK_FULL, ModelError, NotRunKind, SkippedArm, UsageError, tell_refusal
from shootout.core.exported import client
from shootout.core.exported.client import ProbeKey
from shootout.core.exported.fidelity import OF_ZEROS, useful_flips
from shootout.core.exported.model import ExportedModel, save_sets
from shootout.core.exported.request import Request, brief_key, find_source
from shootout.core.host import environment
from shootout.core.host.child import QUIET
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import THREAD_VARIABLES, allowed_cpus, place
from shootout.core.host.store import cache_folder, without_home
from shootout.core.host.untrusted import MOST_JSON_BYTES
from shootout.core.journal.records import Setback
from shootout.core.messages import Progress
from shootout.core.scenario import scenario_of
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.points import find_rows, find_scored
from shootout.core.study.target import provider
from shootout.core.units import counted
from shootout.core.worker import availability
from shootout.tell import registered
from shootout.tell.delivery import read_delivery
from shootout.tell.document import FidelityFigures
from shootout.tell.formats import json_text
from shootout.tell.machines import machine_of
from shootout.tell.reproduce import Begun, options
from shootout.tell.run_folder import RacedArm

MOST_CHECKED_BYTES = 32 << 20
"""The most bytes of inputs and right answers; above that, fewer sets go along."""
TORCH_INDEX = "https://download.pytorch.org/whl/"
"""The index of PyTorch's builds for one kind of device, which the package index has not."""
_TORCH_BUILDS = re.compile(r"torch\w*==.*?(?P<nightly>\.dev\d+)?\+(?P<device>cpu|xpu|cu\d+|rocm[\d.]+)")
_OF_THIS_MACHINE = re.compile(r"LD_PRELOAD|SHOOTOUT_GPU|(CUDA|NVIDIA|VK|MESA)_\w+")
"""Variables that another machine has no use for, or that would hide its GPUs: what is shipped runs on a CPU."""
_HERE = Path(__file__).parent
_ELSEWHERE = "choose another folder"
SHIP = "ship"
_GIVEN_FILES = ("labels", "calibration", "rows_by", "weights")


def shipping(target: Target, *, anywhere: bool = False) -> tuple[Ship, Path]:
    """Return what ships a target's artifacts, and the folder of its templates; imports its module.

    Args:
        anywhere: what is shipped is to fit other CPUs, too, if its adapter knows how.

    Raises:
        SkippedArm: they can't be.
    """
    row = backends.entry(target.backend)
    if target.folder:
        raise SkippedArm(f"{target} is a shipped folder already", f"copy {target.folder}", NotRunKind.UNSUPPORTED)
    if why := registered.why_unshippable(target):
        raise SkippedArm(f"{target} can't be shipped: {why}", kind=NotRunKind.UNSUPPORTED)
    place = (row.ships_anywhere if anywhere else "") or row.ships
    return cast("Ship", plugins.load(place)), plugins.folder_of(place.partition(":")[0])


def write_folder(
    source: RacedArm,
    built: Built,
    folder: Path,
    evidence: Mapping[str, bytes] = MappingProxyType({}),
    *,
    anywhere: bool = False,
) -> ShippedFolder:
    """Write the shipped folder of a built arm.

    Args:
        folder: to be made; it isn't there yet.
        evidence: what is put beside the run's document, by the files' names.
        anywhere: refuse what fits this kind of CPU alone.

    Raises:
        SkippedArm: this arm can't be shipped; says what can.
        UsageError: what it needs isn't known, or the folder can't be written to.
    """
    ship, templates = shipping(source.arm.target, anywhere=anywhere)
    with new_folder(folder):
        (folder / MODEL).mkdir()
        (folder / EVIDENCE).mkdir()
        shipment = ship(built, folder / MODEL)
        if anywhere and shipment.isa:
            raise SkippedArm(f"{source.arm.label} is compiled for this kind of CPU", kind=NotRunKind.UNSUPPORTED)
        versions = closure(source.arm.target, shipment.installs)
        (folder / LOAD).write_text(load_text(templates, shipment), encoding="utf-8")
        (folder / CHECK).write_text(check_text(), encoding="utf-8")
        (folder / REQUIREMENTS).write_text(requirements_text(versions), encoding="utf-8")
        mismatches = _write_checked_sets(folder, source, built.exported)
        document = json_text(source.document.model_dump(mode="json", by_alias=True))
        for name, content in {"document.json": document.encode(), **evidence}.items():
            (folder / EVIDENCE / name).write_bytes(content)
        return seal_shipped(_describe_folder(folder, source, built.exported, shipment, versions, mismatches))


def _write_checked_sets(folder: Path, source: RacedArm, exported: ExportedModel) -> int:
    """Write the inputs and right outputs that `check.py` takes; return how many elements it lets differ."""
    right = exported.pick(exported.own_outputs())
    sets = _choose_checked_sets(exported.pick(exported.input_buffers()), right)
    save_sets(folder / INPUTS, [inputs for inputs, _ in sets])
    save_sets(folder / EXPECTED, [outputs for _, outputs in sets])
    target = source.arm.target
    flips = exported.flips_of(target, backends.capabilities(target.backend).rest)
    return mismatch_limit(source.row.fidelity, flips, right, len(sets))


def _describe_folder(
    folder: Path,
    source: RacedArm,
    exported: ExportedModel,
    shipment: Shipment,
    versions: Mapping[str, str],
    mismatches: int,
) -> ShippedFolder:
    """Describe what a shipped folder holds, and what it needs where it runs."""
    arm, row, machine = source.arm, source.row, machine_of(source.document.environment)
    is_called_alone = scenario_of(arm).is_one_call and arm.instances == 1  # as `check.py` times it
    return ShippedFolder(
        folder=folder,
        made_with=f"shootout {environment.version_of('shootout')}",
        arm=_describe_arm(arm),
        model={"name": without_home(exported.model), "sha256": exported.weights_sha256},
        inputs=exported.inputs,
        outputs=exported.outputs,
        versions=versions,
        isa=(*shipment.isa, *_isa_of(source)),
        machine={"key": machine.key, "name": machine.name},
        median_ns=row.end_to_end.median_ns if row.end_to_end and is_called_alone else None,
        run=without_home(source.document.run),
        group=row.group,
        error_limit=error_limit(row.fidelity),
        mismatches=mismatches,
        runtime=ShippedRuntime(
            backend=arm.target.backend,
            threads=arm.threads,
            affinity=arm.threads,
            environment=_variables_to_ship(source, shipment),
            options=shipment.options,
        ),
    )


def _describe_arm(arm: Arm) -> ShippedArm:
    return ShippedArm(
        label=arm.label,
        target=str(arm.target),
        backend=arm.target.backend,
        device=str(arm.target.device),
        precision=str(arm.target.precision),
        mode=arm.target.mode,
        scheme=arm.target.scheme,
        threads=arm.threads,
        batch=arm.batch,
        scenario=arm.scenario,
        instances=arm.instances,
    )


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and remove it again if an error ends what fills it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise is_there(folder) from None
    except OSError as error:
        raise UsageError(f"{str(folder)!r} can't be written: {tell_refusal(error, _ELSEWHERE)}") from None
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            # a copy that fails names its source
            raise UsageError(f"{str(folder)!r} can't be written: {tell_refusal(error, _ELSEWHERE)}") from None
        raise


def is_there(folder: Path) -> UsageError:
    """Make the error that a folder which is to be made is there already."""
    return UsageError(f"{str(folder)!r} already exists: choose another folder, or remove it")


def load_text(templates: Path, shipment: Shipment) -> str:
    """Return the text of `load.py`: the common part, and the adapter's own behind it."""
    body = (templates / shipment.template).read_text(encoding="utf-8")
    return (_HERE / "load.txt").read_text(encoding="utf-8").replace("BODY\n", body)


def check_text() -> str:
    """Return the text of `check.py`."""
    values = {"SCHEMA": SCHEMA, "(CODE_ENDINGS)": repr(CODE), "(MOST_JSON_BYTES)": str(MOST_JSON_BYTES)}
    text = (_HERE / "check.txt").read_text(encoding="utf-8")
    for name, value in {**values, "(MOST_BYTES)": str(MOST_BYTES)}.items():
        text = text.replace(name, value)
    return text


def requirements_text(versions: Mapping[str, str]) -> str:
    """Return requirements.txt: exact versions, PyTorch's own index, and a comment on builds that no index has."""
    lines: list[str] = []
    indexes = set[str]()
    for name, version in sorted(versions.items()):
        line = f"{name}=={version}"
        if found := _TORCH_BUILDS.fullmatch(line):
            indexes.add(f"--extra-index-url {TORCH_INDEX}{'nightly/' if found['nightly'] else ''}{found['device']}")
        elif "+" in version:
            lines.append("# a build of its own, which no package index has:")
        lines.append(line)
    python = f"# measured with Python {platform.python_version()}"
    return "\n".join([python, *sorted(indexes), *lines, ""])


def _choose_checked_sets(inputs: Sequence[Arrays], outputs: Sequence[Arrays]) -> list[tuple[Arrays, Arrays]]:
    """Return as many sets as a folder should hold, at least one."""
    bytes_each = sum(array.nbytes for array in (*inputs[0].values(), *outputs[0].values()))
    return list(zip(inputs, outputs, strict=True))[: max(1, MOST_CHECKED_BYTES // max(1, bytes_each))]


def error_limit(fidelity: FidelityFigures | None) -> float:
    """Return the error that `check.py` allows: the race's error bound, or four times the measured error."""
    if fidelity is None or fidelity.relative_l2 is None:
        raise UsageError("its error isn't known, so nothing could be checked: ship a target that was measured")
    if fidelity.standing == "met" and fidelity.error_bound is not None:
        return min(fidelity.error_bound, USEFUL_BOUND)
    if fidelity.standing == "not judged" and fidelity.relative_l2 > USEFUL_BOUND:
        raise UsageError(
            f"its relative error of {fidelity.relative_l2:.2g} is above {USEFUL_BOUND:g}{OF_ZEROS}; no error bound of "
            "its precision is known: give real --inputs, or more --max-time, and ship what that run measures"
        )
    return max(FIDELITY_MARGIN * fidelity.relative_l2, FP32_BOUND_FLOOR)


def mismatch_limit(
    fidelity: FidelityFigures | None, flips: Mapping[str, float], right: Sequence[Arrays], count: int
) -> int:
    """Return how many elements of whole-number outputs `check.py` lets differ: what the precision explains.

    What the race itself measured passes too.

    Args:
        flips: the share of each output's elements (see `ExportedModel.flips_of`).
        right: the outputs for all input buffers.
        count: the input buffers that the folder holds.
    """
    useful = useful_flips(flips, right)
    seen = {one.name: one for one in (fidelity.by_output if fidelity else ())}
    limit = 0
    for name in (name for name, array in right[0].items() if array.dtype.kind != "f"):
        elements = count * right[0][name].size
        explained, measured = int(useful.get(name, 0.0) * elements), 0
        if name in seen:
            measured = math.ceil(seen[name].flipped * elements)
        limit += min(elements, max(explained, measured))
    return limit


def _isa_of(source: RacedArm) -> tuple[str, ...]:
    """Require for integers a CPU whose sums are as wide as those of the machine that measured them."""
    target, flags = source.arm.target, source.document.environment.get("cpu", {}).get("flags") or ()
    if target.device is not Device.CPU or target.precision not in INTEGERS or not environment.VNNI & set(flags):
        return ()
    return ("|".join(sorted(environment.VNNI)),)


def _variables_to_ship(source: RacedArm, shipment: Shipment) -> dict[str, str]:
    """Return the variables of the arm's process: the run's, no telemetry, the thread counts, the adapter's."""
    counts = dict.fromkeys(THREAD_VARIABLES, str(source.arm.threads))
    recorded = environment.variables(source.document.environment.get("variables") or {})
    kept = {name: value for name, value in recorded.items() if not _is_of_this_machine(name, value)}
    return {**kept, **QUIET, **counts, **shipment.environment}


def _is_of_this_machine(name: str, value: str) -> bool:
    """Tell if a variable is useless elsewhere: it names a device, or a place in the file system."""
    return bool(_OF_THIS_MACHINE.fullmatch(name)) or os.sep in value


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


def find_built(source: RacedArm, progress: Progress, *, to: str = SHIP, beside: Sequence[Arm] = ()) -> Built:
    """Return the artifact that was raced, or build the same again on this machine.

    Args:
        to: what is done with it, a verb.
        beside: other arms of its group that have to be raced again with it if it can't be built.

    Raises:
        ArmFailed: the build broke, or took longer than it may.
        UsageError: this is another machine, versions or the model are not what they were, or it can't be built here.
    """
    here, there = environment.facts(), source.document.environment
    again = f"race it again here: {_race_again(source, beside)}"
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
    if source.arm.threads > (most := len(allowed_cpus())):
        has = f"{source.arm.threads} threads, and {counted(most, 'CPU')} may be used here"
        raise UsageError(f"{source.document.run} was measured on {has}: {to} it with more, or {again}")
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
        return builder.prepare(source.arm, model, found.version)


def _race_again(source: RacedArm, beside: Sequence[Arm]) -> str:
    """Return the command that races arms here, on no more threads than there are CPUs."""
    most = len(allowed_cpus())
    arms = [replace(one, threads=min(one.threads, most)) for one in (source.arm, *beside)]
    begun = Begun.of_run(source.folder, source.run.history.header)
    return begun.race(options(arms, source.run.facts.given))


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
