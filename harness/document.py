"""The JSON document that other programs read (`show RUN --json`). Stable; docs/file-formats.md explains each key."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shootout.contract import Value
from shootout.verdicts import Verdict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ratio(_Part):
    """This arm's time ÷ the baseline's; bounds are null while infinite, `reason` says why a verdict was withheld."""

    value: float
    low: float | None
    high: float | None
    verdict: Verdict
    generations_needed: int | None
    sd: float | None
    reason: str | None = None


class Timing(_Part):
    """One scope's figures in nanoseconds.

    Attributes:
        median_ns: the median of the generations' medians.
        low_ns: lower end of its order-statistic interval over generations; `confidence` is what that really covers.
        p90_ns: the 99 % upper bound of the percentile over all samples; null when the sample is too small.
        own_fp32_ratio: against the plain FP32 arm of the same backend; null where there is none.
    """

    median_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    p90_ns: float | None
    p95_ns: float | None
    p99_ns: float | None
    samples: int
    generations: int
    ratio: Ratio | None
    own_fp32_ratio: Ratio | None = None


class AccuracyChange(_Part):
    """Accuracy on the report split less that of the arm `against`, row by row; see `paired.Change`."""

    against: str
    value: float
    low: float
    high: float
    lost: int
    won: int
    p_value: float


class Quantized(_Part):
    """How much of the model ran in the label's integers, by the runtime's own account; shares from 0 to 1.

    Attributes:
        layers: of the compute nodes.
        flops: of their operations; null where the runtime doesn't tell.
    """

    layers: float
    flops: float | None


class FidelityFigures(_Part):
    """Error against the FP64 oracle; infinite and undefined figures are null, `mismatches` counts whole numbers."""

    max_abs: float | None
    relative_l2: float | None
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    mismatches: int
    reference_l2: float | None = None
    accuracy: float | None
    accuracy_change: AccuracyChange | None = None
    probe: str | None


class Row(_Part):
    """One arm's line; `why` says, from evidence, why it is or isn't faster than its own backend's FP32."""

    group: str
    arm: str
    backend: str
    device: str
    precision: str
    scheme: str
    settings: str
    quantizer: str
    model: str
    parameters: dict[str, Value]
    batch: int
    threads: int
    options: dict[str, str]
    outcome: Literal["measured", "skipped", "failed"]
    reason: str | None = None
    fix: str | None = None
    compute: Timing | None = None
    end_to_end: Timing | None = None
    fidelity: FidelityFigures | None = None
    executed: dict[str, Any] | None = None
    quantized: Quantized | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()
    built_nodes_by_precision: dict[str, int] | None = None
    artifact_bytes: int | None = None
    peak_rss_bytes: int | None = None
    rss_loaded_bytes: int | None = None
    export_s: float | None = None
    build_s: float | None = None
    build_cached: bool | None = None
    load_s: float | None = None
    first_call_s: float | None = None
    cpus: tuple[int, ...] | None = None
    os_threads: int | None = None


class Sentinel(_Part):
    """The baseline's hidden copy beside the baseline: while it doesn't hold, no verdict of its group does."""

    ratio: Ratio | None
    holds: bool


class GroupSummary(_Part):
    """What is said of a whole group of arms."""

    name: str
    baseline: str | None
    sentinel: Sentinel
    void_share: float
    void_reasons: dict[str, int]
    generations: int


class Document(_Part):
    """One run. `sentinel` and `void_share` are the worst of its groups."""

    schema_version: int = Field(serialization_alias="schema")
    run: str
    study: str
    baseline: str | None
    complete: bool
    environment: dict[str, Any]
    rows: tuple[Row, ...]
    groups: tuple[GroupSummary, ...]
    sentinel: Sentinel
    void_share: float
    wall_s: float
    warnings: tuple[str, ...]
