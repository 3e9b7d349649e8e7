"""Hold what one machine exported and built for another: keys of exported models, and folders of builds.

The other machine needs neither torch nor a converter then. What its own adapters can build from an exported model, such
as a session of an ONNX file, is built there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.core.contract import Arm, Device, NotRun, NotRunKind
from shootout.core.errors import ShootoutError, UsageError, one_line, tell_refusal
from shootout.core.exported.request import error_from_json, error_to_json
from shootout.core.host.regular_files import read_inside
from shootout.core.host.store import cache_folder

DELIVERY = "delivery.json"
"""The file of a run folder with what was delivered for it: what is shipped later is built from the same."""
SENT_EXPORTS = "sent-exports.json"
"""The file in the current folder with keys of exported models that were sent for the conformance suite, by request."""
FLEET = "fleet"
"""The folder below the cache's that holds what was sent."""
_HASH = re.compile(r"[0-9a-f]{64}")
ModelKey = tuple[str, str, str, int, Device, bool, int]
"""The group, the model as the study names it, the variant, the batch, the device that the variant is for, whether it is
a file's torch module, and the size if sizes vary, else 0.
"""
ProbeKey = tuple[str, str, Device]
"""The probe's model, its variant, and the device that the variant is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Hold what another machine made.

    Attributes:
        made_on: that machine, for people.
        models: the key of each exported model, or why there is none.
        probes: the keys of the probes' exported models.
        builds: the folder of each build that runs on any CPU, by `name_build`, or why there is none.
        files: the files of each exported model that are read there, by its key.
    """

    made_on: str
    models: Mapping[ModelKey, str | ShootoutError]
    probes: Mapping[ProbeKey, str] = field(default_factory=dict)
    builds: Mapping[str, Path | NotRun] = field(default_factory=dict)
    files: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, dict[str, Path]]:
        """Return the files that it consists of, by their names, and by their folders' places below a node's cache."""
        exported = {
            f"exported/{key}": {name: cache_folder() / key / name for name in names}
            for key, names in self.files.items()
        }
        folders = [made for made in self.builds.values() if isinstance(made, Path)]
        return exported | {f"{FLEET}/{folder.name}": list_files(folder) for folder in folders}


def list_files(folder: Path) -> dict[str, Path]:
    """Return all files below a folder, by their paths from there."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def name_build(exported: str, arm: Arm) -> str:
    """Name a build by all that a portable one depends on: the exported model's key, the target and its options."""
    content = [exported, str(arm.target), sorted(arm.options.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def to_json(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as JSON values; a build is the name of its folder."""
    return {
        "made_on": delivery.made_on,
        "models": [
            [*key, {"key": made} if isinstance(made, str) else {"error": error_to_json(made)}]
            for key, made in delivery.models.items()
        ],
        "probes": [[*key, made] for key, made in delivery.probes.items()],
        "builds": {
            name: {"folder": made.name} if isinstance(made, Path) else dataclasses.asdict(made)
            for name, made in delivery.builds.items()
        },
    }


def read_delivery(run: Path) -> Delivery | None:
    """Return the delivery that `to_json` wrote into a run folder; None if all was made where it was measured.

    A stranger may have written it, so its keys and folders, which become paths, are held to their form.

    Raises:
        UsageError: the file can't be read, or is of another form; names it.
    """
    path = run / DELIVERY
    try:
        return _from_json(json.loads(read_inside(run, DELIVERY)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {tell_refusal(error, 'copy the run folder again')}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{str(path)!r} isn't what shootout wrote there ({one_line(f'{type(error).__name__}: {error}')}): measure "
            "again, or copy the run folder again"
        ) from None


def _from_json(stored: Any) -> Delivery:
    """Read what `to_json` returned.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is of another form.
    """
    builds = cache_folder().parent / FLEET
    return Delivery(
        made_on=stored["made_on"],
        models={
            (group, model, variant, batch, Device(device), module, size): _require_hash(made["key"])
            if "key" in made
            else error_from_json(made["error"])
            for group, model, variant, batch, device, module, size, made in stored["models"]
        },
        probes={
            (model, variant, Device(device)): _require_hash(key) for model, variant, device, key in stored["probes"]
        },
        builds={
            name: builds / _require_hash(made["folder"])
            if "folder" in made
            else NotRun(**{**made, "kind": NotRunKind(made["kind"])})
            for name, made in stored["builds"].items()
        },
    )


def _require_hash(name: str) -> str:
    """Return a name that is a hash.

    Raises:
        ValueError: it is anything else, such as a path.
    """
    if not _HASH.fullmatch(name):
        raise ValueError(f"{name!r} is no hash")
    return name
