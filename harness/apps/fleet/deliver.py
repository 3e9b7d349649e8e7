"""Make here what another machine is to measure: export for it, and build what runs on any CPU."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shootout.core import backends
from shootout.core.build.builder import Builder, Exports, as_probe, export_all, name_build, probe_key
from shootout.core.clock import Deadline
from shootout.core.contract import Arm, NotRun
from shootout.core.errors import ArmFailed, ShootoutError, SkippedArm
from shootout.core.exported.client import Delivery
from shootout.core.exported.model import ExportedModel
from shootout.core.host import devices, environment
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import place
from shootout.core.host.store import cache_folder
from shootout.core.messages import Progress
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.target import provider
from shootout.core.worker.availability import known_available
from shootout.tell import delivery


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
    if isinstance(model, ShootoutError):
        return
    here = replace(arm, threads=1, instances=1)  # which no portable build depends on
    yield here, model
    key = probe_key(arm)
    if key and (probe := exports.probes.get(key)):
        yield as_probe(here), probe
