"""The ceilings of a machine as a run's header holds them: peak rates by precision, bandwidth by memory level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shootout.core.contract import Device
from shootout.core.scenario import find_scenario
from shootout.tell.document import Document

SCHEMA: Literal[1] = 1
NO_CEILINGS = "run `shootout ceilings` once for each row's share of what this machine can do"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Peak(_Part):
    """The best rate in one precision: 10^9 operations a second (two a multiply-add), and its library."""

    giga_ops: float = Field(gt=0, allow_inf_nan=False)
    source: str


class Bandwidth(_Part):
    """The rates at which a memory level is read and copied (10^9 bytes a second, all threads together).

    Attributes:
        holds_bytes: what fits in it, over all the threads' CPUs; None for main memory.
        copy_gbs: bytes read plus bytes written.
    """

    level: str
    holds_bytes: int | None = Field(gt=0)
    read_gbs: float = Field(gt=0, allow_inf_nan=False)
    copy_gbs: float = Field(gt=0, allow_inf_nan=False)

    @property
    def best_gbs(self) -> float:
        """Return the most bytes that went to or from it."""
        return max(self.read_gbs, self.copy_gbs)


class Ceilings(_Part):
    """This machine's ceilings at a number of threads.

    Attributes:
        peaks: by precision; one that no installed library has is missing.
        bandwidth: the smallest level first; main memory is missing where there isn't the memory to measure it.
        notes: what couldn't be measured, and why.
    """

    schema_version: Literal[1] = SCHEMA
    threads: int = Field(ge=1)
    cpus: tuple[int, ...]
    measured: str
    peaks: dict[str, Peak] = Field(min_length=1)
    bandwidth: tuple[Bandwidth, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()

    def level_of(self, size: float) -> Bandwidth | None:
        """Return the smallest level that holds so many bytes; None where that one wasn't measured."""
        return next((level for level in self.bandwidth if level.holds_bytes is None or size <= level.holds_bytes), None)


def parse_ceilings(facts: Any) -> Ceilings | None:
    """Read ceilings from JSON values; return None unless they are whole and possible."""
    try:
        return Ceilings.model_validate(facts)
    except ValidationError:
        return None


def ceilings_of_run(facts: Mapping[str, Any]) -> dict[int, Ceilings]:
    """Return the ceilings in a run's environment, by thread count; empty for a run that knew none."""
    stored = facts.get("ceilings")
    found = [parse_ceilings(value) for value in stored.values()] if isinstance(stored, dict) else []
    return {ceilings.threads: ceilings for ceilings in found if ceilings}


def tell_ceilings(document: Document) -> list[str]:
    """Write the ceilings that the document's shares refer to; or how to get them, if the run found none."""
    on_cpu = [row for row in document.rows if row.device == Device.CPU and find_scenario(row.scenario).is_one_call]
    asked = sorted({row.threads for row in on_cpu if row.compute} - {0})
    if "ceilings" not in document.environment:
        return []
    ceilings = ceilings_of_run(document.environment)
    lines = [_ceilings_line(ceilings[threads]) for threads in asked if threads in ceilings]
    missing = [threads for threads in asked if threads not in ceilings]
    explained = ["of peak: the share of these that a call reaches, and which of them takes half of its time or more."]
    advice = [f"{NO_CEILINGS} ({', '.join(f'--threads {threads}' for threads in missing)})."]
    return [*lines, *(explained if lines else []), *(advice if missing else [])]


def _ceilings_line(ceilings: Ceilings) -> str:
    rates = [f"{name} {rate_of(name, peak.giga_ops)} ({peak.source})" for name, peak in ceilings.peaks.items()]
    memory = [f"{level.level} {level.best_gbs:.3g} GB/s" for level in ceilings.bandwidth]
    return f"Ceilings at {threads_of(ceilings.threads)}: {', '.join(rates)}; {', '.join(memory)}."


def rate_of(precision: str, giga_ops: float) -> str:
    """Write a rate with its unit: operations on integers are no floating-point operations."""
    return f"{giga_ops:,.0f} {'GOP/s' if precision.startswith('int') else 'GFLOP/s'}"


def threads_of(count: int) -> str:
    """Write `1 thread` or `2 threads`."""
    return f"{count} thread{'s' * (count != 1)}"
