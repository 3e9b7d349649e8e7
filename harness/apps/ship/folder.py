"""Write the shipped folder: the artifact, two programs, their packages and the evidence, sealed by one manifest."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import cast

from shootout.apps.ship.artifact import closure
from shootout.backends.optional import Ship, Shipment
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
from shootout.core.constants import FIDELITY_MARGIN, FP32_BOUND_FLOOR, USEFUL_BOUND
from shootout.core.contract import INTEGERS, Arrays, Device, Target
from shootout.core.errors import DISK_FULL, NotRunKind, SkippedArm, UsageError, tell_refusal
from shootout.core.exported.fidelity import OF_ZEROS, useful_flips
from shootout.core.exported.model import save_sets
from shootout.core.host import environment
from shootout.core.host.placement import THREAD_VARIABLES
from shootout.core.host.store import without_home
from shootout.core.host.untrusted import MOST_JSON_BYTES
from shootout.core.scenario import scenario_of
from shootout.tell import registered
from shootout.tell.document import FidelityFigures
from shootout.tell.formats.data import json_text
from shootout.tell.machines import machine_of
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


def shipping(target: Target) -> tuple[Ship, Path]:
    """Return what ships a target's artifacts, and the folder of its templates; imports its module.

    Raises:
        SkippedArm: they can't be.
    """
    row = backends.entry(target.backend)
    if target.folder:
        raise SkippedArm(f"{target} is a shipped folder already", f"copy {target.folder}", NotRunKind.UNSUPPORTED)
    if why := registered.why_unshippable(target):
        raise SkippedArm(f"{target} can't be shipped: {why}", kind=NotRunKind.UNSUPPORTED)
    return cast("Ship", plugins.load(row.ships)), plugins.folder_of(row.ships.partition(":")[0])


def write_folder(
    source: RacedArm, built: Built, folder: Path, evidence: Mapping[str, bytes] = MappingProxyType({})
) -> ShippedFolder:
    """Write the shipped folder of a built arm.

    Args:
        folder: to be made; it isn't there yet.
        evidence: what is put beside the run's document, by the files' names.

    Raises:
        SkippedArm: this arm can't be shipped; says what can.
        UsageError: what it needs isn't known, or the folder can't be written to.
    """
    arm, exported = source.arm, built.exported
    ship, templates = shipping(arm.target)
    with new_folder(folder):
        (folder / MODEL).mkdir()
        (folder / EVIDENCE).mkdir()
        shipment = ship(built, folder / MODEL)
        versions = closure(arm.target, shipment.installs)
        (folder / LOAD).write_text(load_text(templates, shipment), encoding="utf-8")
        (folder / CHECK).write_text(check_text(), encoding="utf-8")
        (folder / REQUIREMENTS).write_text(requirements_text(versions), encoding="utf-8")
        right = exported.pick(exported.own_outputs())
        sets = _choose_checked_sets(exported.pick(exported.input_buffers()), right)
        save_sets(folder / INPUTS, [inputs for inputs, _ in sets])
        save_sets(folder / EXPECTED, [outputs for _, outputs in sets])
        document = json_text(source.document.model_dump(mode="json", by_alias=True))
        for name, content in {"document.json": document.encode(), **evidence}.items():
            (folder / EVIDENCE / name).write_bytes(content)
        row, fidelity = source.row, source.row.fidelity
        flips = exported.flips_of(arm.target, backends.capabilities(arm.target.backend).rest)
        machine = machine_of(source.document.environment)
        is_called_alone = scenario_of(arm).is_one_call and arm.instances == 1  # as `check.py` times it
        return seal_shipped(
            ShippedFolder(
                folder=folder,
                made_with=f"shootout {environment.version_of('shootout')}",
                arm=ShippedArm(
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
                ),
                model={"name": without_home(exported.model), "sha256": exported.weights_sha256},
                inputs=exported.inputs,
                outputs=exported.outputs,
                versions=versions,
                isa=(*shipment.isa, *_isa_of(source)),
                machine={"key": machine.key, "name": machine.name},
                median_ns=row.end_to_end.median_ns if row.end_to_end and is_called_alone else None,
                run=without_home(source.document.run),
                group=row.group,
                error_limit=error_limit(fidelity),
                mismatches=mismatch_limit(fidelity, flips, right, len(sets)),
                runtime=ShippedRuntime(
                    backend=arm.target.backend,
                    threads=arm.threads,
                    affinity=arm.threads,
                    environment=_variables_to_ship(source, shipment),
                    options=shipment.options,
                ),
            )
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
    """Return the variables of the arm's process: the run's, the thread counts, the adapter's."""
    counts = dict.fromkeys(THREAD_VARIABLES, str(source.arm.threads))
    recorded = environment.variables(source.document.environment.get("variables") or {})
    kept = {name: value for name, value in recorded.items() if not _is_of_this_machine(name, value)}
    return {**kept, **counts, **shipment.environment}


def left_out(source: RacedArm, shipped: ShippedFolder) -> list[str]:
    """List the run's variables that the folder doesn't set."""
    return sorted((source.document.environment.get("variables") or {}).keys() - shipped.runtime.environment.keys())


def _is_of_this_machine(name: str, value: str) -> bool:
    """Tell if a variable is useless elsewhere: it names a device, or a place in the file system."""
    return bool(_OF_THIS_MACHINE.fullmatch(name)) or os.sep in value
