"""What the suite runs on, as data: one fixture row per backend, one case per (backend, device, precision) it claims."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from shootout import backends
from shootout.backends.common import require_device
from shootout.bundle import ModelBundle
from shootout.contract import Arm, Artifact, Availability, Device, Precision, Target, Value
from shootout.errors import ShootoutError, SkippedArm
from shootout.export import Request, obtain_all
from shootout.models.permutation_probe import PROBE_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """How the suite drives one backend.

    Attributes:
        model, parameters, batch: what it runs; small, with a batch of 2 so that a swapped axis shows.
        options: the backend's knobs, where it needs any.
    """

    model: str = "residual_mlp"
    parameters: Mapping[str, Value] = field(default_factory=lambda: {"d_model": 64, "n_layers": 4})
    batch: int = 2
    options: Mapping[str, str] = field(default_factory=dict)


FIXTURES = {
    "numpy": Fixture(),
    "torch-eager": Fixture(),
    "onnxruntime": Fixture(options={"session.set_denormal_as_zero": "0"}),
    "torch-compile": Fixture(),
    "torchscript": Fixture(),
    "jax-jit": Fixture(),
    "openvino": Fixture(),
    "tensorrt": Fixture(),
    "spin": Fixture(model="identity", parameters={}, options={"work": "3"}),
}
"""A shipped backend without a row fails; a third party's gets the plain `Fixture()`."""

CPU_NEEDS = {
    ("openvino", Precision.BF16): {"avx512_bf16", "amx_bf16"},
    ("openvino", Precision.FP16): {"avx512_fp16", "amx_fp16"},
}
"""Precisions that need one of these CPU flags: elsewhere such a target has to be a skip that explains itself."""

PROBE = Request(model="permutation_probe", batch=PROBE_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One target of one backend. Picklable; bundles travel with it to the fresh process.

    Attributes:
        probe_bundle: the permutation probe; None where the backend ignores the model.
    """

    arm: Arm
    bundle: ModelBundle
    probe_bundle: ModelBundle | None

    @property
    def device(self) -> Device:
        return self.arm.target.device

    @property
    def precision(self) -> Precision:
        return self.arm.target.precision


def targets(names: Iterable[str]) -> list[Target]:
    """Every target that these backends say they can run, in each of their modes."""
    found = []
    for name in names:
        can = backends.get(name).capabilities
        for mode, (device, precision) in itertools.product(sorted(can.modes), sorted(can.targets)):
            found.append(Target(backend=name, device=device, precision=precision, mode=mode))
    return found


def lacks(target: Target) -> bool:
    """Whether this machine's CPU has none of the flags that the target needs."""
    wanted = CPU_NEEDS.get((target.backend, target.precision), set())
    return bool(wanted) and not wanted & set(Path("/proc/cpuinfo").read_text().split())


def has_gpu() -> bool:
    """Whether the NVIDIA driver finds a GPU."""
    try:
        require_device(Device.CUDA, Device)
    except SkippedArm:
        return False
    return True


def probe_everywhere(backend: str) -> dict[Device, Availability]:
    """The adapter's answer for each device, in the process this is called in."""
    adapter = backends.get(backend)
    return {device: adapter.probe(device) for device in Device}


def fixture_of(backend: str) -> Fixture:
    """The backend's row."""
    return FIXTURES[backend] if backend in backends.SHIPPED else FIXTURES.get(backend, Fixture())


@cache
def case_of(target: Target) -> Case:
    """Everything that the checks need for one target; exports on first use."""
    row = fixture_of(target.backend)
    bundle, probe = bundles(Request(model=row.model, parameters=row.parameters, batch=row.batch), PROBE)
    arm = Arm(
        target=target, model=row.model, parameters=bundle.parameters, batch=row.batch, threads=1, options=row.options
    )
    ignores_model = Artifact.NONE in backends.get(target.backend).capabilities.consumes
    return Case(arm=arm, bundle=bundle, probe_bundle=None if ignores_model else probe)


def bundles(*requests: Request) -> list[ModelBundle]:
    """The bundles of all requests; what isn't cached is exported in one process.

    Raises:
        ShootoutError: the first that can't be exported.
    """
    found = obtain_all(requests)
    for bundle in found:
        if isinstance(bundle, ShootoutError):
            raise bundle
    return found  # type: ignore[return-value] # no error is among them
