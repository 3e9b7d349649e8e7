"""Check what every adapter must pass, one function each. They run together in one fresh process per target.

A case is one target that a backend claims, as its `Fixture` describes it.

A check raises AssertionError (or whatever broke) when the adapter doesn't conform; its name is what the report says.
"""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from shootout.backends.optional import Fixture
from shootout.core import backends
from shootout.core.adapter import Adapter, Built, Session
from shootout.core.contract import (
    SCALED,
    Arm,
    Array,
    Artifact,
    Availability,
    Capabilities,
    Device,
    NotRun,
    Precision,
    Target,
)
from shootout.core.errors import ShootoutError, SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import obtain_all
from shootout.core.exported.model import ExportedModel, open_exported
from shootout.core.exported.request import Request, find_source
from shootout.core.host.devices import accelerator
from shootout.core.plugins import PROBES
from shootout.core.worker import verification
from shootout.tell import delivery

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


@dataclass(frozen=True)
class CheckedTarget:
    """Hold one target, ready to be checked: `session` is shared by the checks that leave it as it was."""

    case: ConformanceCase
    folder: Path

    @cached_property
    def adapter(self) -> Adapter:
        """Return the backend's adapter, from the registry."""
        return backends.get(self.case.arm.target.backend)

    @cached_property
    def built(self) -> Built:
        """Return the case's model, built once, of no more files than another machine is sent."""
        exported, sent = self.case.exported, self.folder / "sent"
        sent.mkdir(exist_ok=True)  # each check that needs it builds again, and says why it can't
        for name in delivery.files_read(exported, [self.case.arm]):
            shutil.copyfile(exported.folder / name, sent / name)
        return self.build(open_exported(sent, is_whole=False), "main")

    @cached_property
    def session(self) -> Session:
        """Return the session that most checks call."""
        return self.adapter.load(self.built)

    @property
    def inputs(self) -> list[dict[str, Array]]:
        """Read again each time, so that an adapter that writes to its inputs can't spoil the next check."""
        return self.case.exported.input_buffers()

    def build(self, exported: ExportedModel, name: str) -> Built:
        """Build as the harness does: into an empty folder, and through a pickle to another process."""
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self.folder))
        arm = replace(self.case.arm, model=exported.model, parameters=exported.parameters, batch=exported.batch)
        built: Built = pickle.loads(pickle.dumps(self.adapter.build(exported, arm, folder)))  # noqa: S301
        return built


def build_in(case: ConformanceCase, folder: Path) -> Built:
    """Build the case's arm into a folder; for `run_fresh`."""
    return backends.get(case.arm.target.backend).build(case.exported, case.arm, folder)


def call(session: Session, inputs: Any, slot: int = 0) -> Any:
    """Make one end-to-end call."""
    raw = session.execute(session.stage(inputs, slot))
    session.synchronize()
    return session.fetch(raw)


def probe_explains(checked: CheckedTarget) -> None:
    """Check that the probe finds the device able and names the library's version."""
    found = checked.adapter.probe(checked.case.device)
    assert isinstance(found, Availability)
    assert found.ok, f"not available: {found.reason} (fix: {found.fix})"
    assert found.version, "an available backend names its version"


def names_shapes_dtypes(checked: CheckedTarget) -> None:
    """Check that outputs have the model's names, order, shapes and dtypes."""
    outputs = call(checked.session, checked.inputs[0])
    fault = fidelity.check_outputs(checked.case.exported.outputs, outputs)
    assert fault is None, fault
    assert list(outputs) == [spec.name for spec in checked.case.exported.outputs], "outputs in the model's order"


def error_within_error_bound(checked: CheckedTarget) -> None:
    """Check that outputs lie within the precision's tolerance of the FP64 reference outputs."""
    outputs = [call(checked.session, inputs, slot) for slot, inputs in enumerate(checked.inputs)]
    found = fidelity.compare(outputs, checked.case.exported.reference_outputs())
    target = checked.case.arm.target
    is_whole = verification.is_mostly_labeled(checked.session.executed, target)
    error_bound = checked.case.exported.error_bound(target, checked.adapter.capabilities.rest, is_whole=is_whole)
    fault = fidelity.gate(found, *error_bound)
    assert fault is None, fault


def executed_matches_request(checked: CheckedTarget) -> None:
    """Check that the library ran what was asked, with no fallback."""
    executed = checked.session.executed
    assert executed.library
    assert type(executed.version) is str, "to unpickle another type would import the library"
    assert executed.version
    assert checked.case.device in executed.device.lower(), f"asked for {checked.case.device}, runs on {executed.device}"
    assert executed.fallbacks == (), executed.fallbacks
    if checked.case.probe_exported is not None:
        counts = executed.compute_nodes_by_precision
        assert sum(counts.values()) > 0, "no compute node was seen"
        if checked.case.precision not in SCALED:
            # The harness allows more of FP32, too: a user's file in float64, which no fixture is.
            is_tf32 = checked.case.precision is Precision.TF32
            known = verification.COUNTED[Precision.TF32] if is_tf32 else (checked.case.precision,)
            assert set(counts) <= set(known), counts
        else:
            assert counts.get(checked.case.precision.partition("-")[0], 0) > sum(counts.values()) / 2, counts
            if fixture(checked.case.arm.target.backend).tells_rest:
                assert executed.other_nodes_by_precision, "what does the float remainder run in?"
        assert executed.artifact_bytes > 0


def threads_as_asked(checked: CheckedTarget) -> None:
    """Check that the session runs as many threads as were asked for, if it can tell."""
    asked, threads = checked.case.arm.threads, checked.session.executed.threads
    assert threads in (asked, None), f"asked for {asked} threads, runs {threads}"


def probe_agrees(checked: CheckedTarget) -> None:
    """Check that the numbers themselves show the asked-for precision, on a model made to reveal it."""
    if checked.case.probe_exported is None:
        return
    session = checked.adapter.load(checked.build(checked.case.probe_exported, "probe"))
    outputs = call(session, checked.case.probe_exported.input_buffers()[0])
    found = import_module(PROBES).READERS[checked.case.probe_exported.model](outputs)
    session.close()
    fault = verification.probe_fault(found, checked.case.arm.target)
    assert fault is None, f"asked for {checked.case.precision}, the probe shows {found}: {fault}"


def inputs_unchanged(checked: CheckedTarget) -> None:
    """Check that a call leaves the caller's arrays as they were."""
    inputs = {name: array.copy() for name, array in checked.inputs[0].items()}
    call(checked.session, inputs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(array, checked.inputs[0][name])


def outputs_survive(checked: CheckedTarget) -> None:
    """Check that fetched outputs stay as they were when the session is called again."""
    first = call(checked.session, checked.inputs[0], slot=0)
    kept = {name: array.copy() for name, array in first.items()}
    call(checked.session, checked.inputs[1], slot=0)
    call(checked.session, checked.inputs[2], slot=1)
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name], err_msg="a later call changed a fetched output")


def slots_are_independent(checked: CheckedTarget) -> None:
    """Check that inputs staged in several slots can be executed in any order."""
    wanted = [{name: array.copy() for name, array in call(checked.session, one).items()} for one in checked.inputs]
    handles = [checked.session.stage(inputs, slot) for slot, inputs in enumerate(checked.inputs)]
    for slot in (*reversed(range(len(handles))), 0):
        raw = checked.session.execute(handles[slot])
        checked.session.synchronize()
        for name, array in checked.session.fetch(raw).items():
            np.testing.assert_allclose(array, wanted[slot][name], rtol=1e-6, atol=1e-6, err_msg=f"slot {slot}")


def wrong_inputs_are_refused(checked: CheckedTarget) -> None:
    """Check that a wrong, missing or surplus input is a ValueError naming it, and the session stays usable."""
    spec, good = checked.case.exported.inputs[0], checked.inputs[0]
    array = good[spec.name]
    wrong = {
        "shape": ({**good, spec.name: array[..., :-1]}, str(list(array[..., :-1].shape))),
        "dtype": ({**good, spec.name: array.astype(np.float16)}, "float16"),
        "missing": ({name: value for name, value in good.items() if name != spec.name}, spec.name),
        "surplus": ({**good, "no such input": array}, "no such input"),
    }
    for what, (inputs, named) in wrong.items():
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - both names are looked for below
            checked.session.stage(inputs, 0)
        assert named in str(caught.value), f"{what}: the message names neither side: {caught.value}"
        assert spec.name in str(caught.value), f"{what}: the message doesn't name {spec.name}: {caught.value}"
    fault = fidelity.check_outputs(checked.case.exported.outputs, call(checked.session, good))
    assert fault is None, f"unusable afterwards: {fault}"


def unknown_option_is_refused(checked: CheckedTarget) -> None:
    """Check that an option that the adapter doesn't know is a ValueError that names it."""
    arm = replace(checked.case.arm, options={"no_such_option": "1"})
    folder = checked.folder / "option"
    folder.mkdir()
    with pytest.raises(ValueError, match="no_such_option"):
        checked.adapter.build(checked.case.exported, arm, folder)


def load_only_reads(checked: CheckedTarget) -> None:
    """Check that loading writes nothing into the built folder, and that the build's notes are plain JSON."""
    built = checked.built
    before = {path: path.stat().st_mtime_ns for path in built.folder.rglob("*")}
    checked.adapter.load(built).close()
    assert {path: path.stat().st_mtime_ns for path in built.folder.rglob("*")} == before, "load wrote into the folder"
    json.dumps(dict(built.facts))


def close_twice(checked: CheckedTarget) -> None:
    """Check that a second close is harmless, and that closing one session leaves others alone."""
    session = checked.adapter.load(checked.built)
    call(session, checked.inputs[0])
    session.close()
    session.close()
    assert call(checked.session, checked.inputs[0]), "closing one session broke another"


CHECKS: dict[str, Callable[[CheckedTarget], None]] = {
    check.__name__: check
    for check in (
        probe_explains,
        names_shapes_dtypes,
        error_within_error_bound,
        executed_matches_request,
        threads_as_asked,
        probe_agrees,
        inputs_unchanged,
        outputs_survive,
        slots_are_independent,
        wrong_inputs_are_refused,
        unknown_option_is_refused,
        load_only_reads,
        close_twice,
    )
}


def run_checks(case: ConformanceCase, names: Collection[str] = tuple(CHECKS)) -> dict[str, str]:
    """Run checks on one target in this process: each one's name → what went wrong, "" if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        checked = CheckedTarget(case, Path(folder))
        try:
            checked.built  # noqa: B018 - built once, for all checks
        except SkippedArm as skipped:
            return dict.fromkeys(names, f"SkippedArm: {skipped.reason}; fix: {skipped.fix}")
        except Exception:  # noqa: S110 - each check that needs it tells
            pass
        return {name: _find_fault(CHECKS[name], checked) for name in names}


def conform(case: ConformanceCase, names: Collection[str]) -> tuple[dict[str, str], bool]:
    """Run checks on one target, and return also whether it has to be a skip here: some fixtures ask their library."""
    return run_checks(case, names), lacks(case.arm.target)


def _find_fault(check: Callable[[CheckedTarget], None], checked: CheckedTarget) -> str:
    try:
        check(checked)
    except (Exception, pytest.fail.Exception):
        return traceback.format_exc()
    return ""
