"""Read what a candidate is held against: a shipped folder, or the arm that a run ships, made again here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout import models
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.to_ship import ArmToShip, find_arm_to_ship
from shootout.backends.shipped import MANIFEST, ShippedFolder, hash_manifest, open_shipped, read_row
from shootout.core.constants import SHIPPED
from shootout.core.contract import Arm
from shootout.core.errors import UsageError
from shootout.core.exported.request import is_own
from shootout.core.results.run import begun
from shootout.core.scenario import scenario_of
from shootout.models.sources import hfconfig
from shootout.tell import reproduce
from shootout.tell.limits import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the candidate races.

    Attributes:
        place: the folder that it was read from.
        target: as `study.target` reads it.
        again: the target that makes it from its model; of a shipped folder another one than `target`.
        given: what else its study needs, by the keywords of `shootout.run`.
        libraries: versions that it was recorded with, by package.
        median_ns: of a call, as it was recorded; None if calls weren't timed one after the other.
        export: the key of the model as it was exported then; "" of a shipped folder, which needs none.
        metric: the one that admitted a shipped folder, "" if none did; a run's is `given`.
    """

    place: str
    target: str
    again: str
    given: Mapping[str, Any]
    libraries: Mapping[str, str] = field(default_factory=dict)
    median_ns: float | None = None
    export: str = ""
    metric: str = ""

    @property
    def is_shipped(self) -> bool:
        """Tell whether it is a folder that runs as it was shipped, whatever became of its model's file."""
        return self.target != self.again


def read_reference(
    folder: Path,
    arm: str | None = None,
    policy: Policy | None = None,
    group: str | None = None,
    pinned: str | None = None,
) -> Reference:
    """Read the reference in a folder.

    Args:
        folder: a shipped one, or of a run.
        arm, policy, group: which arm of the run, as `ship` takes it.
        pinned: the SHA-256 that a shipped folder's manifest must have; None: any.

    Raises:
        UsageError: it is neither, a file of a shipped folder was changed, it is another folder than the pinned one, or
            the run has no such arm.
        Undecided: the run doesn't decide what it ships.
        NothingMeasured: by the policy it may ship nothing.
    """
    if (folder / MANIFEST).exists():
        if arm or group:
            raise UsageError(f"{str(folder)!r} is a shipped folder, of one target: --target and --group are for a run")
        return _read_shipped(_open_pinned(folder, pinned))
    if folder.is_file():
        raise UsageError(f"the reference {str(folder)!r} is a file: name a folder made by `shootout ship`, or a run's")
    if not begun(folder):
        what = "is neither a shipped folder nor a run" if folder.exists() else "isn't there"
        raise UsageError(f"the reference {str(folder)!r} {what}: name a folder made by `shootout ship`, or a run's")
    if pinned is not None:
        raise UsageError(
            f"--reference-sha256 pins a shipped folder, and {str(folder)!r} is a run, which is measured again: "
            "ship it, and gate against the folder"
        )
    return _read_arm(find_arm_to_ship(folder, arm, None if arm else policy, group))


def _open_pinned(folder: Path, pinned: str | None) -> ShippedFolder:
    if pinned is not None and (found := hash_manifest(folder)) != pinned.strip().lower():
        raise UsageError(
            f"{str(folder)!r} is another reference than the pinned one: its {MANIFEST} has the SHA-256 {found}, "
            f"and --reference-sha256 says {pinned!r}; get the pinned folder back, or pin this one"
        )
    return open_shipped(folder)


def _read_arm(source: ArmToShip) -> Reference:
    """Return an arm of a run."""
    if not scenario_of(source.arm).is_one_call:
        raise UsageError(f"{source.arm.label} was measured by scenario {source.arm.scenario}: a gate needs latency")
    header = source.run.facts
    return Reference(
        place=str(source.folder),
        target=str(source.arm.target),
        again=str(source.arm.target),
        given=_options_of(source.arm, header.given),
        libraries=header.environment.get("libraries") or {},
        median_ns=source.row.end_to_end.median_ns if source.row.end_to_end else None,
        export=source.prepared.exported,
    )


def _read_shipped(found: ShippedFolder) -> Reference:
    """Return a shipped folder; its model by the run's document beside it."""
    row, arm = read_row(found), found.arm
    given = {
        "model": _model_of(found, row["model"]),
        "parameters": {name: (value,) for name, value in row["parameters"].items()},
        "batch": (arm.batch,),
        "threads": (arm.threads,),
        "options": {row["backend"]: row["options"]} if row["options"] else {},
    }
    return Reference(
        place=str(found.folder),
        target=f"{SHIPPED}:{found.folder}",
        again=arm.target,
        given=given,
        libraries=found.versions,
        median_ns=found.median_ns,
        metric=_find_admitting_metric(row),
    )


def _find_admitting_metric(row: Mapping[str, Any]) -> str:
    metric = (row.get("fidelity") or {}).get("metric") or {}
    return str(metric["name"]) if metric.get("standing") == Standing.MET else ""


def _model_of(found: ShippedFolder, said: str) -> str:
    """Find the model that a folder was made of: by the name in its run if that is known here, else by its path."""
    if said in models.names() or not is_own(found.model["name"]):
        return said
    try:
        models.get(said)
    except UsageError:
        lay = Path(_expand_home(found.model["name"]))
        is_folder = lay.name == hfconfig.CONFIG and not said.endswith(hfconfig.CONFIG)  # with its own weights
        return str(lay.parent if is_folder else lay)
    return said


def _options_of(arm: Arm, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes this arm again, by the keywords of `shootout.run`, but for the target itself.

    Args:
        given: of its run, see `Header.given`.
    """
    name = f"{arm.target.backend}+{arm.target.mode}" if arm.target.mode else arm.target.backend
    told = {key: _expand_home(value) if isinstance(value, str) else value for key, value in given.items()}
    pythons = {key: _expand_home(path) for key, path in given.get("pythons", {}).items() if key == arm.target.python}
    return {
        **told,
        "pythons": pythons,
        "model": _expand_home(dict(reproduce.options([arm]))["--model"]),  # as it was typed
        "scenario": (arm.scenario,),
        "parameters": {key: (value,) for key, value in arm.parameters.items()},
        "batch": (arm.batch,),
        "threads": (arm.threads,),
        "options": {name: dict(arm.options)} if arm.options else {},
    }


def _expand_home(word: str) -> str:
    """Expand a leading tilde as a shell does, also after `name=`."""
    name, equals, path = word.rpartition("=")
    return f"{name}{equals}{Path(path).expanduser()}" if path.startswith("~/") else word
