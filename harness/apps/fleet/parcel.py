"""Define what a machine of a fleet is sent, a task with all that it needs, and what comes back.

All get this package and the user's own files that the study names. A machine that can't export also gets what is made
here for it: exported models, and the builds that run on any CPU.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from shootout.core import backends
from shootout.core.build.builder import Builder, Exports, as_probe, export_all, name_build, probe_key
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, NotRun
from shootout.core.errors import ArmFailed, ExitCode, ShootoutError, SkippedArm
from shootout.core.exported.client import Delivery
from shootout.core.exported.model import ExportedModel, sha256
from shootout.core.host import devices, environment
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import place
from shootout.core.host.store import cache_folder
from shootout.core.install import SENT
from shootout.core.messages import Progress
from shootout.core.plugins import folder_of
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.schema import Study
from shootout.core.study.target import provider
from shootout.core.worker.availability import known_available
from shootout.models.sources import packing
from shootout.tell import delivery
from shootout.tell.delivery import FLEET, Contents


class NodeLost(ShootoutError):
    """Report that no result of a task came: its machine is gone, say, or was never sent it; the message says why."""

    exit_code = ExitCode.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A machine, or several that may stand for each other, of which one runs a task.

    Attributes:
        id: the same whenever the place is named.
        name: for people.
    """

    id: str
    name: str

    @property
    def folder(self) -> str:
        """Return the name of its run folder."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40]
        return f"{slug or 'node'}-{hashlib.sha256(self.id.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Name what `python -m` runs on a machine, in the folder of the user's files.

    Attributes:
        words: where one begins with `{run}`, that is the task's run folder.
        name: of the run folder that is kept there, which the same task goes on in; "": none is.
        is_new: whether it starts over, whatever is kept there.
        folder: a zip of the run folder that it goes on with; empty for a new one.
        sent: files that it needs, by their folders' places below the machine's cache.
        measures: whether it waits until the machine is free.
    """

    words: Sequence[str]
    name: str = ""
    is_new: bool = False
    folder: bytes = b""
    sent: Mapping[str, Contents] = field(default_factory=dict)
    measures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Hold what a task ended with.

    Attributes:
        code: its exit code; negative: the signal that killed it.
        printed: its output.
        said: the end of what it told on stderr.
        folder: a zip of its run folder.
    """

    code: int
    printed: str
    said: str
    folder: bytes


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """All that a node needs beside what is installed there.

    Attributes:
        package: this package's files, by their names there.
        files: the user's own.
        fields: the study's, with paths as they are in the folder of the user's files, which is the current one there.
    """

    package: Contents
    files: Contents = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[str, Contents]:
        """Return the package and the files by their places below a node's cache, which are known by their contents."""
        return {f"{FLEET}/{_digest(contents)}": contents for contents in (self.package, self.files)}


def pack_package() -> Parcel:
    """Pack this package alone, as it runs here, with what its distribution says of itself."""
    contents: dict[str, Path | bytes] = {}
    top = folder_of("shootout")
    for folder, _, names in os.walk(top, followlinks=True):  # in a checkout, backends/ and models/ are links
        for path in (Path(folder, name) for name in names if not name.endswith(".pyc")):
            contents[f"shootout/{path.relative_to(top)}"] = path
    with suppress(metadata.PackageNotFoundError):
        own = metadata.distribution("shootout")
        text = own.read_text("METADATA") or own.read_text("PKG-INFO") or ""  # a checkout may hold an egg-info
        contents[f"shootout-{own.version}.dist-info/METADATA"] = _without_makers(text).encode()
        contents[f"shootout-{own.version}.dist-info/{SENT}"] = b"by ssh or Ray\n"
    return Parcel(package=contents)


def _without_makers(text: str) -> str:
    """Leave out of this package's requirements what only builds need, of backends that are built here for any CPU."""
    portable = [row for name, row in backends.shipped().items() if backends.capabilities(name).portable]
    made_here = {(package, row.extra) for row in portable for package in row.makers}
    asked = re.compile(r"Requires-Dist: ([\w.-]+).*extra\s*==\s*['\"]([\w-]+)['\"]")
    lines = [line for line in text.splitlines() if not (found := asked.match(line)) or found.groups() not in made_here]
    return "\n".join([*lines, ""])


def pack(study: Study, *, weights: bool = True) -> Parcel:
    """Pack what a study needs.

    Args:
        weights: whether nodes export what they measure. Otherwise they get the weights of ONNX files with the exported
            models, and here a file without them, by which they plan.

    Raises:
        UsageError: a file that it names isn't there.
    """
    files, fields = packing.pack_files(study, weights=weights)
    return replace(pack_package(), files=files, fields=fields)


def _digest(contents: Contents) -> str:
    """Hash files' names and contents."""
    parts = hashlib.sha256()
    for name, one in sorted(contents.items()):
        held = sha256(one) if isinstance(one, Path) else hashlib.sha256(one).hexdigest()
        parts.update(f"{name}\0{held}\0".encode())
    return parts.hexdigest()[:32]


def write_tar(into: IO[bytes], contents: Contents) -> None:
    """Write files as a tar."""
    with tarfile.open(fileobj=into, mode="w|") as archive:
        for name, one in contents.items():
            member = tarfile.TarInfo(name)
            member.size = one.stat().st_size if isinstance(one, Path) else len(one)
            with one.open("rb") if isinstance(one, Path) else io.BytesIO(one) as data:
                archive.addfile(member, data)


def deliver(groups: Sequence[PlannedGroup], needs: Collection[str], progress: Progress, limit: Deadline) -> Delivery:
    """Export and build for a machine what these groups need there; what can be found in the cache isn't made again.

    Args:
        groups: as that machine planned them; their requests name the files that lie here.
        needs: the precisions whose errors are needed, see `needs_of`.
        limit: when the whole run ends.

    Raises:
        ShootoutError: nothing that could be measured could be exported.
    """
    exports = export_all(groups, progress, limit, needs=needs, leading=needs)
    pairs = {
        name_build(model.key, arm): (arm, model)
        for group in groups
        for target in group.building
        if not target.control
        for arm, model in _builds_of(target, exports.of(group, target), exports)
    }
    builds = _build_all(pairs, progress, limit)
    left = [one for name, one in pairs.items() if name not in builds]
    exported = [one for one in (*exports.models.values(), *exports.probes.values()) if isinstance(one, ExportedModel)]
    return Delivery(
        made_on=f"{devices.cpu_model()} ({platform.machine()})",
        models={key: made if isinstance(made, ShootoutError) else made.key for key, made in exports.models.items()},
        probes={key: made.key for key, made in exports.probes.items()},
        builds=builds,
        files={made.key: delivery.files_read(made, [arm for arm, model in left if model == made]) for made in exported},
    )


def _build_all(
    pairs: Mapping[str, tuple[Arm, ExportedModel]], progress: Progress, limit: Deadline
) -> dict[str, Path | NotRun]:
    """Build what can be built for any CPU, if its library works here."""
    asked = {name: one for name, one in pairs.items() if backends.capabilities(one[0].target.backend).portable}
    available = known_available({provider(arm.target) for arm, _ in asked.values()})
    asked = {name: one for name, one in asked.items() if available[provider(one[0].target)].ok}
    made: dict[str, Path | NotRun] = {}
    with Scratch(cache_folder()) as logs:
        builder = Builder(
            cache=cache_folder(),
            placement=place(1),
            probes={},
            machine=environment.fingerprint(environment.facts()),
            logs=logs,
            progress=progress,
        )
        for number, (name, (arm, model)) in enumerate(asked.items()):
            progress.detail(f"{number} of {len(asked)} built, now {arm.label}")
            version = available[provider(arm.target)].version
            try:
                made[name] = builder.prepare(arm, model, version, runs=False, limit=limit.part()).folder
            except (ArmFailed, SkippedArm) as out:
                made[name] = replace(out.why, during="build")
    return made


def _builds_of(arm: Arm, model: ExportedModel | ShootoutError, exports: Exports) -> Iterator[tuple[Arm, ExportedModel]]:
    """Yield the arm on its model, and as its probe is built."""
    if not isinstance(model, ShootoutError):
        here = replace(arm, threads=1, instances=1)  # which no portable build depends on
        yield here, model
        if (key := probe_key(arm)) and (probe := exports.probes.get(key)):
            yield as_probe(here), probe
