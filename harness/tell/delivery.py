"""Write into a run folder what one machine exported and built for another, and read it there."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shootout.core import backends
from shootout.core.contract import SCALED, Arm, Artifact, Device, NotRun, NotRunKind
from shootout.core.errors import UsageError, one_line, tell_refusal
from shootout.core.exported.client import DELIVERY, Delivery
from shootout.core.exported.model import FILES, QUANTIZING, SOME_READ, WEIGHTS, ExportedModel, is_of
from shootout.core.exported.request import error_from_json, error_to_json
from shootout.core.host.store import cache_folder
from shootout.core.host.untrusted import read_inside

FLEET = "fleet"
"""The folder below the cache's that holds what was sent."""
Contents = Mapping[str, Path | bytes]
"""Files to send, by name: where each lies, or what is in it."""
_HASH = re.compile(r"[0-9a-f]{64}")


def contents(delivery: Delivery) -> dict[str, dict[str, Path]]:
    """Return the files of a delivery by their names, and by their folders' places below a node's cache."""
    exported = {
        f"exported/{key}": {name: cache_folder() / key / name for name in names}
        for key, names in delivery.files.items()
    }
    folders = [made for made in delivery.builds.values() if isinstance(made, Path)]
    return exported | {f"{FLEET}/{folder.name}": list_files(folder) for folder in folders}


def files_read(exported: ExportedModel, arms: Iterable[Arm]) -> list[str]:
    """List the files of an exported model that are read where these arms are built from it, and raced.

    Raises:
        UsageError: no such backend.
    """
    artifacts, quantizes = set[Artifact](), False
    for arm in arms:
        consumed = backends.capabilities(arm.target.backend).consumes
        artifacts |= {*[one for one in consumed if one in exported.artifacts][:1]}
        quantizes |= arm.target.precision in SCALED
    read = {name for artifact in artifacts for name in _files_of(exported, artifact)} | (
        {*QUANTIZING} if quantizes else set()
    )
    return sorted(path.name for path in exported.folder.iterdir() if not is_of(path.name, SOME_READ - read))


def _files_of(exported: ExportedModel, artifact: Artifact) -> tuple[str, ...]:
    """Return the files that an artifact of a model is read from."""
    if artifact is not Artifact.MODULE or not exported.is_program:
        return (FILES[artifact],)
    program = FILES[Artifact.PT2]
    return (program,) if exported.is_file else (WEIGHTS, program)


def list_files(folder: Path) -> dict[str, Path]:
    """Return all files below a folder, by their paths from there."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


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
