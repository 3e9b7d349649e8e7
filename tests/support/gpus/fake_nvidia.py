"""NVIDIA's driver and NVML as recorded fakes: what each function answers, in the form in which the real one does."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from shootout.backends.devices import cuda as readers
from shootout.backends.devices import cuda_driver

Memory = namedtuple("Memory", "total free used")
IDS = [UUID(int=0x1111), UUID(int=0x2222)]
"""Of the GPUs, by PCI bus."""
H200_BYTES = 141 * 2**30
ERRORS = {2: b"out of memory", 803: b"system has unsupported display driver / cuda driver combination"}


class FakeDriver:
    """`libcuda.so.1` of a machine with some GPUs."""

    def __init__(
        self, shown: Sequence[UUID] = IDS[:1], version: int = 13_000, init: int | None = None, retain: int = 0
    ) -> None:
        self.shown, self.version, self.init, self.retain = shown, version, init, retain
        self.current: int | None = None

    def cuDriverGetVersion(self, told: Any) -> int:  # noqa: N802 - NVIDIA's own names, here and below
        told._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:  # noqa: N802
        assert not 0 < self.version < 12_000, "a driver that is too old isn't started"
        return self.init if self.init is not None else 0 if self.shown else 100

    def cuDeviceGetCount(self, told: Any) -> int:  # noqa: N802
        told._obj.value = len(self.shown)
        return 0

    def cuDeviceGet(self, told: Any, index: int) -> int:  # noqa: N802
        told._obj.value = 70 + index
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, device: Any) -> int:  # noqa: N802
        raw[:] = list(self.shown[device.value - 70].bytes)
        return 0

    def cuDeviceGetAttribute(self, told: Any, attribute: int, device: Any) -> int:  # noqa: N802
        told._obj.value = {38: 50 * 2**20}[attribute]
        return 0

    def cuDevicePrimaryCtxRetain(self, told: Any, device: Any) -> int:  # noqa: N802
        told._obj.value = 0x7F00_0000_0001
        return self.retain

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:  # noqa: N802
        active._obj.value = int(self.current is not None)
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        self.current = context.value
        return 0

    def cuGetErrorString(self, code: int, told: Any) -> int:  # noqa: N802
        told._obj.value = ERRORS[code]
        return 0


class FakeNvml(ModuleType):
    """The package `pynvml` with one GPU or more; `broken` names what it refuses to tell, `mig` gives it an instance.

    A handle is "GPU-id" or "MIG-id"; `calls` are (function, handle).
    """

    class NVMLError(Exception):
        """As NVML's own: not supported, no permission, unknown to this driver."""

    class NVMLLibraryMismatchError(Exception):
        """The driver is older than a function's struct: not one of NVML's errors."""

    def __init__(self, broken: Sequence[str] = (), mig: UUID | None = None, gpus: Sequence[UUID] = IDS[:1]) -> None:
        super().__init__("pynvml")
        self.broken, self.mig, self.gpus = set(broken), mig, gpus
        self.calls: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": len(gpus),
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": Memory(total=H200_BYTES, free=H200_BYTES - 2**30, used=2**30),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetClockInfo": 1755,
            "nvmlDeviceGetCurrentClocksEventReasons": 0,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerUsage": 123_400,
            "nvmlDeviceGetTotalEnergyConsumption": 987_654_321,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4_000_001), SimpleNamespace(pid=4_000_002)],
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetMigMode": [0, 0],
        }

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"GPU-{self.gpus[index]}" if "nvmlDeviceGetHandleByIndex" not in self.broken else self._refuse()

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:  # noqa: N802
        known = {f"GPU-{one}" for one in self.gpus} | ({f"MIG-{self.mig}"} if self.mig else set())
        return name if name in known else self._refuse()

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:  # noqa: N802
        return f"GPU-{self.gpus[0]}" if handle == f"MIG-{self.mig}" else self._refuse()

    def nvmlDeviceGetIndex(self, handle: str) -> int:  # noqa: N802
        return [f"GPU-{one}" for one in self.gpus].index(handle)

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments[0] if arguments else None))
            return self._refuse() if name in self.broken else self.answers[name]

        return call

    def _refuse(self) -> Any:
        raise self.NVMLError("Insufficient Permissions")


def install(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver | None, nvml: FakeNvml | None) -> None:
    """Give this process a driver and an NVML, or none; what was found out about another GPU is forgotten."""
    monkeypatch.setattr(cuda_driver, "library", lambda: driver)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(readers, "_open_used_gpu", cache(readers._open_used_gpu.__wrapped__))
