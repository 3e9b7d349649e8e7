"""What a run exports: each group's model and the variants of it that its arms name, and the probes' own models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shootout.clock import Deadline
from shootout.contract import SCALED, Arm, Device, Precision
from shootout.errors import ModelError, ShootoutError, SkippedArm
from shootout.export import client
from shootout.export.client import Request
from shootout.exported.model import INPUTS, ExportedModel, sha256
from shootout.messages import Progress
from shootout.models.probes import GRID_BATCH, PROBE_BATCH
from shootout.study.plan import PlannedGroup, scheme_of
from shootout.worker.precision_checks import probe_name

Exported = ExportedModel | ShootoutError
ProbeKey = tuple[str, str, Device]
"""The probe's model, its variant, and where that will run."""
PROBE_BATCHES = {"permutation_probe": PROBE_BATCH, "grid_probe": GRID_BATCH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exports:
    """What was exported, or why it couldn't be.

    Attributes:
        models: by group, and `_tells` of the request.
        probes: by `probe_key`; one that couldn't be exported is missing.
    """

    models: Mapping[tuple[str, str, str, int, Device], Exported]
    probes: Mapping[ProbeKey, ExportedModel]

    def of(self, group: PlannedGroup, arm: Arm) -> Exported:
        """The exported model that this arm is built from, or why there is none."""
        return self.models[group.record.name, *_tells(group.request_of(arm))]


def export_all(
    groups: Sequence[PlannedGroup],
    progress: Progress,
    limit: Deadline,
    begun_on: Collection[str] = (),
    needs: Collection[str] = (),
) -> Exports:
    """Export all that these groups' arms are built from; what must be made shares one process.

    Args:
        progress: hears what is exported, and of a probe that couldn't be.
        limit: when the whole run ends; a model for which there is no time is skipped.
        begun_on: the keys of the exported models that this run was begun on.
        needs: the precisions whose errors are to be told, see `needs_of`.

    Raises:
        ShootoutError: nothing that could be measured could be exported.
    """
    wanted = {
        (group.record.name, *_tells(one)): replace(one, needs=tuple(sorted(needs)))
        for group in groups
        for one in _requests(group)
    }
    shown = {key for group in groups for arm in group.building if (key := probe_key(arm))}
    probes = {key: probe_request(*key) for key in sorted(shown)}
    found = client.obtain_all([*wanted.values(), *probes.values()], progress, limit, needs, begun_on)
    models = dict(zip(wanted, found, strict=False))
    playing = {(group.record.name, *_tells(group.request_of(arm))) for group in groups for arm in group.playing}
    made = [models[key] for key in playing]
    errors = [one for one in made if isinstance(one, ShootoutError) and not isinstance(one, SkippedArm)]
    if errors and not any(isinstance(one, ExportedModel) for one in made):
        raise errors[0]
    proofs = dict(zip(probes, found[len(wanted) :], strict=True))
    for (name, variant, _), one in proofs.items():
        if isinstance(one, ShootoutError):
            progress.say(
                f"no {' '.join([variant, name]).strip()}, so precisions rest on errors and node counts alone: {one}"
            )
    return Exports(
        models={key: _same_inputs(one, models.get((*key[:2], "", key[3], Device.CPU))) for key, one in models.items()},
        probes={key: one for key, one in proofs.items() if isinstance(one, ExportedModel)},
    )


def needs_of(groups: Iterable[PlannedGroup]) -> set[str]:
    """The precisions that arms run in, here or elsewhere, those among them in which what isn't quantized may."""
    precisions = {arm.target.precision for group in groups for arm in group.record.arms}
    found, scaled = {str(one) for one in precisions}, any(one in SCALED for one in precisions)
    return found | ({str(Precision.FP16), str(Precision.BF16)} if scaled else set())


def probe_key(arm: Arm) -> ProbeKey | None:
    """The probe that shows what this arm really computes in, and the variant of it that its scheme asks for, where.

    None for a file in its own precisions, which a probe's model would not have, and for a shipped folder, which can't
    run another model.
    """
    if arm.target.precision is Precision.NATIVE or arm.target.folder:
        return None
    variant = scheme_of(arm.target).for_probe().variant
    return probe_name(arm.target.precision), variant, arm.target.device if variant else Device.CPU


def probe_request(name: str, variant: str = "", device: Device = Device.CPU) -> Request:
    """What to export for a probe."""
    return Request(model=name, batch=PROBE_BATCHES[name], variant=variant, device=device)


def _requests(group: PlannedGroup) -> list[Request]:
    """The model as it is first, where an arm needs it, then its variants."""
    found = {_tells(one): one for arm in group.building for one in [group.request_of(arm)]}
    return [found[key] for key in sorted(found)]


def _tells(request: Request) -> tuple[str, str, int, Device]:
    """What tells the requests of one group apart."""
    return request.model, request.variant, request.batch, request.device


def _same_inputs(one: Exported, plain: Exported | None) -> Exported:
    """All arms of a group see the same bytes, or their times don't compare."""
    if isinstance(one, ShootoutError) or plain is None or isinstance(plain, ShootoutError):
        return one
    if sha256(one.folder / INPUTS) != sha256(plain.folder / INPUTS):
        return ModelError(f"{one.model}, {one.variant}: its inputs differ from those of the model as it is")
    return one
