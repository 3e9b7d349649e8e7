"""The journal's lines: frozen, raw, unit-bearing, versioned. What they mean is in docs/file-formats.md."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shootout.contract import Arm, Executed
from shootout.fidelity import Fidelity

SCHEMA = 1


class Record(BaseModel):
    """One line. Unknown keys are refused: a newer version says so in its header instead."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class GroupRecord(Record):
    """The arms that race each other.

    Attributes:
        baseline: the label of the arm that ratios refer to; None where no arm can run.
        comparisons: how many verdicts are asked for: each arm's against the baseline, and against its reference where
            that is another arm.
        arms: the baseline first, its sentinel last; arms that are skipped are among them.
        references: arm → the plain FP32 arm of the same backend, by label: what quantization costs and buys is
            measured against it.
    """

    name: str
    baseline: str | None
    comparisons: int
    arms: tuple[Arm, ...]
    references: dict[str, str] = {}


class Header(Record):
    """The first line: what is to be measured, where, and with which seed."""

    kind: Literal["header"] = "header"
    schema_version: int = SCHEMA
    created: str
    study: str
    identity: str
    seed: int
    max_generations: int
    bias_floor: float
    named: tuple[str, ...]
    groups: tuple[GroupRecord, ...]
    environment: dict[str, Any]


class Prepared(Record):
    """An arm was exported and built: seconds, and what the permutation probe found.

    Attributes:
        artifact_bytes: of an arm that can't run here, what was built for it; a measured arm's session tells its own.
        built_nodes_by_precision: of such an arm, the compute nodes of what was built.
        notes: what a search chose, one line each.
    """

    kind: Literal["prepared"] = "prepared"
    group: str
    arm: str
    export_s: float
    build_s: float
    build_cached: bool
    probe: str | None
    artifact_bytes: int | None = None
    built_nodes_by_precision: dict[str, int] | None = None
    notes: tuple[str, ...] = ()


class Played(Record):
    """What one arm did in one generation.

    Attributes:
        block_median_ns: by scope, the median of each valid round's block, in order.
        canary_ns: the canary's pace before each valid round, and at the start (`canary_reference_ns`).
        samples: the Parquet file of this generation's raw readings, relative to the run folder.
    """

    kind: Literal["played"] = "played"
    group: str
    arm: str
    generation: int
    load_s: float
    first_call_s: float
    warm_up_calls: int
    steady_from: int | None
    executed: Executed
    fidelity: Fidelity
    per_reading: dict[str, int]
    block_median_ns: dict[str, tuple[float, ...]]
    canary_reference_ns: float
    canary_ns: tuple[float, ...]
    rss_before_bytes: int
    rss_after_bytes: int
    peak_rss_bytes: int
    samples: str
    cpus: tuple[int, ...] = ()
    os_threads: int = 0


class Rounds(Record):
    """A generation is complete: how many rounds it tried and which were voided, with the reasons."""

    kind: Literal["rounds"] = "rounds"
    group: str
    generation: int
    tried: int
    voided: tuple[tuple[int, tuple[str, ...]], ...]
    wall_s: float


class Skip(Record):
    """A cell that couldn't be asked here."""

    kind: Literal["skip"] = "skip"
    group: str
    arm: Arm
    reason: str
    fix: str


class Failure(Record):
    """A cell that was asked and broke or lied."""

    kind: Literal["failure"] = "failure"
    group: str
    arm: Arm
    during: str
    reason: str


class Ended(Record):
    """A process stopped writing here: `complete` when nothing is left to measure."""

    kind: Literal["ended"] = "ended"
    complete: bool
    why: str
    wall_s: float


Line = Annotated[
    Header | Prepared | Played | Rounds | Skip | Failure | Ended,
    Field(discriminator="kind"),
]
LINE: TypeAdapter[Line] = TypeAdapter(Line)
