"""What the suite runs on, as data: one fixture row per backend, one case per (backend, device, precision) it claims."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from shootout import backends
from shootout.backends._onnxruntime import providers
from shootout.backends.common import require_device
from shootout.bundle.bundle import ModelBundle
from shootout.contract import INTEGERS, Arm, Artifact, Availability, Device, Precision, Target, Value
from shootout.errors import ShootoutError, SkippedArm
from shootout.export.client import Request, obtain_all


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
DIGITS = Fixture(model="digits", parameters={"hidden": 64, "n_layers": 1})
ELSEWHERE = {("torch-compile", Precision.INT8): DIGITS}
"""Targets that need another model: torchao's static INT8 dies on a Linear, ReLU and sum (an assertion of its own)."""
SLOW = frozenset(
    {("", Precision.FP16), ("aoti", Precision.FP16), ("aoti", Precision.BF16), ("aoti", Precision.INT4)}
    | {("aoti", Precision.INT8), ("aoti", Precision.INT8_DYNAMIC)}
)
"""Modes and precisions of torch-compile that only `make test-full` checks: each compiles for a minute.

The others' compilations go through the code of the floats. A package of integers is compiled nowhere else: of these
`make test` only looks at the program that AOTInductor is given (test_a_package_is_made_of_the_quantized_program).
"""

CPU_NEEDS = {
    ("openvino", Precision.BF16): {"avx512_bf16", "amx_bf16"},
    ("openvino", Precision.FP16): {"avx512_fp16", "amx_fp16"},
}
"""Precisions that need one of these CPU flags: elsewhere such a target has to be a skip that explains itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One target of one backend. Picklable; bundles travel with it to the fresh process.

    Attributes:
        probe_bundle: the permutation probe, or for integers the grid probe; None where the backend ignores the model.
    """

    arm: Arm
    bundle: ModelBundle
    probe_bundle: ModelBundle | None

    @property
    def device(self) -> Device:
        """The target's device."""
        return self.arm.target.device

    @property
    def precision(self) -> Precision:
        """The target's precision."""
        return self.arm.target.precision


def targets(names: Iterable[str]) -> list[Target]:
    """Every target that these backends say they can run, in each of their modes; and the shared quantized model."""
    found = []
    for name in names:
        can = backends.get(name).capabilities
        for mode, (device, precision) in itertools.product(sorted(can.modes), sorted(can.targets)):
            if mode in can.cuda_modes and device is not Device.CUDA:
                continue
            plain = Target(backend=name, device=device, precision=precision, mode=mode)
            found.append(plain)
            if "shared" in can.schemes.get(precision, ()):
                found.append(replace(plain, scheme="shared"))
    return found


ALWAYS_SKIPPED = {("jax-jit", Device.CPU, Precision.FP16), ("jax-jit", Device.CPU, Precision.INT4)}
"""Targets that the library has on no CPU: a skip that explains itself."""

INT8_ON_CUDA = {("tensorrt", "", "shared"), ("onnxruntime", "tensorrt", "shared")}
"""Static INT8 runs on a GPU in TensorRT only, and from the shared model only: anything else is a skip as well."""


def is_slow(target: Target) -> bool:
    """Whether CI leaves this target to `make test-full`."""
    return target.backend == "torch-compile" and (target.mode, target.precision) in SLOW


TORCH, JAX = "shootout.testing.checks,torch", "shootout.testing.checks,jax"
TORCHAX = f"{JAX},torchax"
INDUCTOR = "shootout.testing.checks,shootout.testing.inductor"
TORCHAO = f"{INDUCTOR},torchao.quantization,torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
WARM = {
    "torch-eager": (TORCH, TORCHAO),
    "torchscript": (TORCH, TORCH),
    "torch-compile": (INDUCTOR, TORCHAO),
    "openvino": ("", TORCH),  # its own import starts a thread; that of its quantizer imports torch
    "jax-jit": (JAX, JAX),
    "jax-jit+torchax": (TORCHAX, TORCHAX),
}
"""What the checks of a backend, or of one of its modes, may find imported for its floats and for its integers."""


def warm_of(target: Target) -> str:
    """The modules that its fresh processes may hold already (see `run_fresh`); on a GPU none."""
    if target.device is not Device.CPU:
        return ""
    names = f"{target.backend}+{target.mode}", target.backend
    floats, integers = next((WARM[name] for name in names if name in WARM), ("", ""))
    return integers if target.precision in INTEGERS else floats


def lacks(target: Target) -> bool:
    """Whether the target has to be a skip here: no CPU can do it, or what it needs of this machine isn't there."""
    if (target.backend, target.device, target.precision) in ALWAYS_SKIPPED:
        return True
    if (target.backend, target.mode) == ("onnxruntime", "tensorrt") and not _onnxruntime_has_tensorrt():
        return True
    if target.device is Device.CUDA and target.precision is Precision.INT8:
        return (target.backend, target.mode, target.scheme) not in INT8_ON_CUDA
    if (target.backend, target.mode, target.device) == ("torch-compile", "aoti", Device.CUDA):
        return not (os.environ.get("CUDA_HOME") or shutil.which("nvcc") or Path("/usr/local/cuda").exists())
    wanted = CPU_NEEDS.get((target.backend, target.precision), set())
    return bool(wanted) and not wanted & set(Path("/proc/cpuinfo").read_text().split())


def _onnxruntime_has_tensorrt() -> bool:
    """Whether ONNX Runtime is built with that provider, and TensorRT itself is there."""
    try:
        providers.require(providers.TENSORRT)
    except SkippedArm:
        return False
    return True


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
    arm, requests = _needs(target)
    bundle, probe = bundles(*requests)
    arm = replace(arm, parameters=bundle.parameters)
    ignores_model = Artifact.NONE in backends.get(target.backend).capabilities.consumes
    return Case(arm=arm, bundle=bundle, probe_bundle=None if ignores_model else probe)


def export_for(targets: Iterable[Target]) -> None:
    """Export what the cases of all these targets need in one process; `case_of` tells what failed."""
    obtain_all([request for target in targets for request in _needs(target)[1]])


def _needs(target: Target) -> tuple[Arm, tuple[Request, Request]]:
    """The target's arm, and what has to be exported for it: the model and the probe."""
    from shootout.build.exports import probe_key, probe_request  # here, so that a fresh process of a test imports
    from shootout.study.plan import scheme_of  # no more than it asks for

    row = ELSEWHERE.get((target.backend, target.precision)) or fixture_of(target.backend)
    arm = Arm(target=target, model=row.model, batch=row.batch, threads=1, options=row.options)
    asked = Request(model=row.model, parameters=row.parameters, batch=row.batch, variant=scheme_of(target).variant)
    return arm, (asked, probe_request(*probe_key(arm)))


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
