"""Check the environment in a journal's header: a stranger may have written it, and every reader takes it as it is.

It stays a dictionary of JSON values, since a machine may tell more than is listed here. What is listed has its type.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Figure = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Words = list[str] | tuple[str, ...]
Counts = list[Count] | tuple[Count, ...]


class _Facts(BaseModel):
    """Some facts; any may be missing, and there may be others."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Os(_Facts):
    name: str | None = None
    system: str | None = None
    kernel: str | None = None


class _Cpu(_Facts):
    model: str | None = None
    kind: str | None = None
    vendor: str | None = None
    microarchitecture: str | None = None
    microcode: str | None = None
    flags: Words = ()
    physical_cores: Count | None = None
    logical_cpus: Count | None = None
    cpuset: Counts | None = None
    allowed_cpus: Counts = ()
    quota_cpus: Figure | None = None
    numa_nodes: Count | None = None
    cache_bytes: dict[str, Count] = {}
    smt: bool | None = None
    governor: str | None = None
    turbo: bool | None = None


class _Memory(_Facts):
    total_bytes: Count | None = None
    limit_bytes: Count | None = None


class _Gpu(_Facts):
    index: Count | None = None
    visible: bool | None = None
    name: str = ""
    memory_bytes: Count | None = None
    l2_bytes: Count | None = None
    compute_capability: str | None = None
    driver: str | None = None
    sm_clock_max_mhz: Count | None = None
    memory_clock_max_mhz: Count | None = None
    power_limit_w: Figure | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    mig: bool | None = None


class _Shootout(_Facts):
    version: str | None = None
    commit: str | None = None


class _Python(_Facts):
    version: str
    implementation: str | None = None


class _Interpreter(_Facts):
    path: str
    python: str
    libraries: dict[str, str]


class _Environment(_Facts):
    date_utc: str = ""
    shootout: _Shootout = _Shootout()
    machine: str | None = None
    os: _Os = _Os()
    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()
    gpus: list[_Gpu] | tuple[_Gpu, ...] = ()
    cuda_driver: str | None = None
    virtualisation: Words = ()
    python: _Python | None = None
    libraries: dict[str, str] = {}
    clock: dict[str, Any] = {}
    variables: dict[str, str] = {}
    ceilings: dict[str, Any] = {}
    interpreters: dict[str, _Interpreter] = {}


def _check(facts: dict[str, Any]) -> dict[str, Any]:
    _Environment.model_validate(facts)
    return facts


Environment = Annotated[dict[str, Any], AfterValidator(_check)]
"""The environment as `host.environment.facts` tells it, with the ceilings and the other interpreters."""
