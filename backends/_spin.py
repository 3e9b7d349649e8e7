"""A backend whose true cost is known: the harness measures it to prove that its own verdicts are right.

It ignores the model and hands the input back. Either it busy-waits for a set time, or it does a set number of equal
steps of work: 2 % more steps are a true ratio of 1.02 on any machine. On a GPU there are steps only, one kernel that
looks at the chip's own clock for a set number of cycles. Nothing is copied there: inputs stay on the host, so that a
call is the work and the way there, as on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends.common import require_device, trial
from shootout.backends.optional import Fixture
from shootout.core.adapter import Built, Entry, check_inputs, check_options
from shootout.core.contract import (
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    Option,
    Precision,
)
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import pip_install

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

STEP_WIDTH = 64
"""A step is a product of a 64x64 matrix and a vector in float32: about 1 us, no BLAS threads, no allocation."""

STEP_CYCLES = 2_000
"""A step on a GPU: about 1 us at the 1.5 to 2 GHz of today's, and the same number of cycles at any clock."""
OPTIONS = (
    Option(
        name="duration_us",
        help="busy-wait for so many microseconds (a GPU is given steps, by `work`)",
        form=r"\d+\.?\d*(e[+-]?\d{1,2})?|\.\d+",
        takes="a number of at least 0",
        devices=frozenset({Device.CPU}),
    ),
    Option(name="work", help="do so many steps of about 1 us", form=r"\d+", takes="a whole number of at least 0"),
)
FIXTURE = Fixture(model="identity", parameters={}, options={"work": "3"})


class SpinAdapter:
    """Exactly one option: `duration_us` (busy-wait that long, on the CPU only) or `work` (that many steps)."""

    name = "spin"
    fixture = FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.NONE,),
        targets=frozenset((device, Precision.FP32) for device in (Device.CPU, Device.CUDA)),
        options=OPTIONS,
    )

    def probe(self, device: Device) -> Availability:
        """Do one step."""
        return trial("torch" if device is Device.CUDA else "", lambda: _do_one_step(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Check the option; there is nothing to build.

        Raises:
            ValueError: not exactly one of the two options, one that the device hasn't, or a value that isn't a number
                of at least 0.
        """
        _read_option(arm)
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> SpinSession | SpinGpuSession:
        """Make a session that spins as the arm's option says."""
        if built.arm.target.device is Device.CUDA:
            return SpinGpuSession(built.exported, int(_read_option(built.arm)[1]))
        return SpinSession(built.exported, _make_burden(built.arm))


class SpinSession:
    """Spins, then returns the inputs under the outputs' names."""

    gpu = None

    def __init__(self, exported: ExportedModel, burden: Callable[[], None]) -> None:
        self._specs, self._names, self._burden = exported.inputs, [spec.name for spec in exported.outputs], burden

    @property
    def executed(self) -> Executed:
        """Return an account without any node; its one thread is no thread pool's."""
        return Executed(
            library="shootout", version=version("shootout"), device="cpu", threads=None, compute_nodes_by_precision={}
        )

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs and hand them on."""
        check_inputs(self._specs, inputs)
        return inputs

    def execute(self, staged: Arrays) -> Arrays:
        """Spin."""
        self._burden()
        return staged

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""

    def fetch(self, raw: Arrays) -> Arrays:
        """Copy the inputs."""
        return {name: array.copy() for name, array in zip(self._names, raw.values(), strict=True)}

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class SpinGpuSession(SpinSession):
    """Spin on a GPU."""

    def __init__(self, exported: ExportedModel, steps: int) -> None:
        import torch

        self._cuda: Any = torch.cuda
        sleep, cycles = self._cuda._sleep, steps * STEP_CYCLES
        super().__init__(exported, lambda: sleep(cycles))

    @property
    def executed(self) -> Executed:
        """Return an account without any node."""
        return replace(super().executed, device=f"{Device.CUDA}:{self._cuda.current_device()}")

    def synchronize(self) -> None:
        """Wait for the kernel."""
        self._cuda.synchronize()


def _read_option(arm: Arm) -> tuple[str, float]:
    """Return the one option and its value."""
    check_options(arm, OPTIONS)
    if len(arm.options) != 1:
        raise ValueError(f"spin takes exactly one of duration_us and work, got {dict(arm.options)}")
    ((name, text),) = arm.options.items()
    return name, float(text) if name == "duration_us" else int(text)


def _make_burden(arm: Arm) -> Callable[[], None]:
    name, amount = _read_option(arm)
    return _make_wait(amount) if name == "duration_us" else _make_work(int(amount))


def _make_wait(duration_us: float) -> Callable[[], None]:
    from shootout.core.clock import now_ns

    duration_ns = round(duration_us * 1_000)

    def wait() -> None:
        end_ns = now_ns() + duration_ns
        while now_ns() < end_ns:
            pass

    return wait


def _make_work(steps: int) -> Callable[[], None]:
    matrix = np.full((STEP_WIDTH, STEP_WIDTH), 0.5 / STEP_WIDTH, dtype=np.float32)
    vector, result = np.ones(STEP_WIDTH, dtype=np.float32), np.empty(STEP_WIDTH, dtype=np.float32)
    dot = np.dot

    def work() -> None:
        for _ in range(steps):
            dot(matrix, vector, result)

    return work


def _do_one_step(device: Device) -> str:
    require_device(device, (Device.CPU, Device.CUDA))
    if device is Device.CUDA:
        _try_gpu()
    _make_work(1)()
    return version("shootout")


def _try_gpu() -> None:
    """Do one step with torch, which has a kernel that does nothing but spin."""
    import torch

    if not torch.cuda.is_available():
        reason = f"torch {torch.__version__} can't use this GPU: it is CPU-only, or built for another CUDA"
        raise SkippedArm(
            reason, f"{pip_install('torch', options='--force-reinstall')} (a CUDA build)", NotRunKind.BROKEN
        )
    cuda: Any = torch.cuda
    cuda._sleep(STEP_CYCLES)
    cuda.synchronize()


FACTS = Entry(
    path="shootout.backends._spin:SpinAdapter",
    installs={"": ("numpy",)},
    movable=True,
    ready_s=0.3,
    build_s=0.3,
    copies=0.0,
)
