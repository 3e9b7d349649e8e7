"""Make the cases that the suite runs on: one per target that a backend claims, as its `Fixture` describes it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

from shootout.backends.optional import Fixture
from shootout.core import backends
from shootout.core.contract import SCALED, Arm, Artifact, Availability, Capabilities, Device, NotRun, Precision, Target
from shootout.core.errors import ShootoutError, SkippedArm
from shootout.core.exported.client import obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Request, find_source
from shootout.core.host.devices import accelerator

OURS = "shootout.testing.checks"
"""A fresh process may hold at least the checks with all that they import: NumPy and no other library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceCase:
    """Hold one target of one backend. Picklable; exported models travel with it to the fresh process.

    Attributes:
        probe_exported: the permutation probe, or for integers the grid probe; None where the backend can't run it.
    """

    arm: Arm
    exported: ExportedModel
    probe_exported: ExportedModel | None

    @property
    def device(self) -> Device:
        """Return the target's device."""
        return self.arm.target.device

    @property
    def precision(self) -> Precision:
        """Return the target's precision."""
        return self.arm.target.precision


def targets(names: Iterable[str]) -> list[Target]:
    """Return every target that these backends say they can run, in each of their modes; and the shared quantized model.

    Raises:
        SkippedArm: one of them doesn't say what it can.
    """
    found = []
    for name in names:
        can = _claimed_capabilities(name)
        for mode, (device, precision) in itertools.product(sorted(can.modes), sorted(can.targets)):
            if mode.endswith("*") or (mode in can.cuda_modes and device is not Device.CUDA):
                continue
            plain = Target(backend=name, device=device, precision=precision, mode=mode)
            found.append(plain)
            if "shared" in can.schemes.get(precision, ()):
                found.append(replace(plain, scheme="shared"))
    return found


def fixture(name: str) -> Fixture:
    """Return what the conformance suite drives a backend with: its adapter's `fixture`, or the plain way."""
    return cast("Fixture", getattr(backends.get(name), "fixture", Fixture()))


def is_slow(target: Target, check: str) -> bool:
    """Return True if CI leaves this target, or this check of it, to `make test-full`."""
    slow, kinds = (
        fixture(target.backend).slow,
        ((target.mode, target.precision), (target.device, target.precision)),
    )
    return any(kind in slow or (*kind, check) in slow for kind in kinds)


def warm_of(target: Target) -> str:
    """Return the modules that its fresh processes may hold already (`run_fresh`): `OURS` at least, on a GPU none."""
    if target.device is not Device.CPU:
        return ""
    warm = fixture(target.backend).warm
    floats, integers = warm.get(target.mode) or warm.get("") or ("", "")
    found = integers if target.precision in SCALED else floats
    return f"{OURS},{found}" if found else OURS


def lacks(target: Target) -> bool:
    """Return True if the target has to be a skip here."""
    return fixture(target.backend).lacks(target)


def has_gpu() -> bool:
    """Return True if the driver finds a GPU."""
    gpu = accelerator(Device.CUDA)
    return gpu is not None and gpu.model() is not None


def probe_everywhere(backend: str) -> dict[Device, Availability]:
    """Return the adapter's answer for each device, in the process this is called in."""
    adapter = backends.get(backend)
    return {device: adapter.probe(device) for device in Device}


@cache
def case_of(target: Target) -> ConformanceCase:
    """Return everything that the checks need for one target; exports on first use.

    Raises:
        SkippedArm: its backend doesn't say what it can.
        ShootoutError: an export failed.
    """
    ignores_model = Artifact.NONE in _claimed_capabilities(target.backend).consumes
    arm, requests = _find_needs(target)
    exported, *probes = exported_models(*requests)
    arm = replace(arm, parameters=exported.parameters)
    return ConformanceCase(
        arm=arm, exported=exported, probe_exported=None if ignores_model or not probes else probes[0]
    )


def export_for(targets: Iterable[Target]) -> None:
    """Export what the cases of all these targets need in one process; `case_of` reports what failed."""
    requests: list[Request] = []
    for target in targets:
        with suppress(ShootoutError):  # one that lacks a converter, say, costs the others nothing
            requests += _find_needs(target)[1]
    obtain_all(requests)


def _claimed_capabilities(backend: str) -> Capabilities:
    """Return what a backend claims; if it can't say, anything is assumed, and checks are left out."""
    found = backends.describe(backend)
    if isinstance(found, NotRun):
        raise SkippedArm(found.reason, found.fix, found.kind)
    return found


def _find_needs(target: Target) -> tuple[Arm, tuple[Request, ...]]:
    """Return the target's arm, and what has to be exported for it: the model, and the probe if it can run one."""
    from shootout.core.build.builder import probe_key, probe_request  # here, so that a fresh process of a test imports
    from shootout.core.study.target import scheme_of  # no more than it asks for

    row = fixture(target.backend)
    row = row.elsewhere.get(target.precision, row)
    model = _convert_fixture(row.write_model) if row.write_model else row.model
    arm = Arm(target=target, model=model, batch=row.batch, threads=1, options=row.options)
    asked = Request(
        model=model,
        parameters=row.parameters,
        batch=row.batch,
        variant=scheme_of(target).made,
        device=target.device,
    )
    probe = probe_key(arm)
    return arm, (asked, *([probe_request(*probe)] if probe else []))


@cache
def _convert_fixture(write_model: Callable[[Path], Path]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        word = str(write_model(Path(folder)))
        return find_source(word).resolve(word)


def exported_models(*requests: Request) -> list[ExportedModel]:
    """Return the exported models of all requests; what isn't cached is exported in one process.

    Raises:
        ShootoutError: the first that can't be exported.
    """
    found = obtain_all(requests)
    for exported in found:
        if isinstance(exported, ShootoutError):
            raise exported
    return found  # type: ignore[return-value] # no error is among them
