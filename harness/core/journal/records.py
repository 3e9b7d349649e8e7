"""The journal's lines: frozen, raw, unit-bearing, versioned. docs/reference/keys.md is made of them.

The environment in the header stays a dictionary of JSON values, since a machine may tell more than is listed here. What
is listed has its type, and is checked: a stranger may have written it, and every reader takes it as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    create_model,
    model_serializer,
)

from shootout.core.contract import Arm, Executed, Fidelity, NotRun, NotRunKind
from shootout.core.errors import UsageError
from shootout.core.exported.calls import Work
from shootout.core.host.noise import Disturbance
from shootout.core.messages import GpuCost, LoadTestResult, OnGpu, Scores, TimeBin
from shootout.core.study.group import GroupRecord
from shootout.core.study.schema import Study

SCHEMA = 6
"""The version of the journal and its lines; each line ends with a checksum."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Words = list[str] | tuple[str, ...]
Counts = list[Count] | tuple[Count, ...]
TEXT, COUNT, SWITCH = str | None, Count | None, bool | None


def _facts(needed: Collection[str] = (), /, **kinds: Any) -> type[BaseModel]:
    """Make a type of some facts by name; any may be missing but the needed ones, and there may be others."""
    fields: dict[str, Any] = {name: (kind, ... if name in needed else None) for name, kind in kinds.items()}
    return create_model("Facts", __config__=ConfigDict(extra="allow", strict=True), **fields)


CPU = _facts(
    **dict.fromkeys(("model", "kind", "vendor", "microarchitecture", "microcode", "governor"), TEXT),
    **dict.fromkeys(("physical_cores", "logical_cpus", "numa_nodes"), COUNT),
    flags=Words,
    cpuset=Counts | None,
    allowed_cpus=Counts,
    quota_cpus=Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None,
    cache_bytes=dict[str, Count],
    smt=SWITCH,
    turbo=SWITCH,
)
GPU = _facts(
    **dict.fromkeys(("index", "memory_bytes", "l2_bytes", "sm_clock_max_mhz", "memory_clock_max_mhz"), COUNT),
    **dict.fromkeys(("visible", "ecc", "persistence", "mig"), SWITCH),
    **dict.fromkeys(("compute_capability", "driver", "compute_mode"), TEXT),
    name=str,
    power_limit_w=Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None,
)
INTERPRETER = _facts(("path", "python", "libraries"), path=str, python=str, libraries=dict[str, str])
ENVIRONMENT = _facts(
    date_utc=str,
    shootout=_facts(version=TEXT, commit=TEXT),
    machine=TEXT,
    os=_facts(name=TEXT, system=TEXT, kernel=TEXT),
    cpu=CPU,
    memory=_facts(total_bytes=COUNT, limit_bytes=COUNT),
    gpus=list[GPU] | tuple[GPU, ...],  # type: ignore[valid-type]
    cuda_driver=TEXT,
    virtualisation=Words,
    python=_facts(("version",), version=str, implementation=TEXT) | None,
    libraries=dict[str, str],
    clock=dict[str, Any],
    variables=dict[str, str],
    ceilings=dict[str, Any],
    interpreters=dict[str, INTERPRETER],  # type: ignore[valid-type]
)


def _check(facts: dict[str, Any]) -> dict[str, Any]:
    ENVIRONMENT.model_validate(facts)
    return facts


Environment = Annotated[dict[str, Any], AfterValidator(_check)]
"""The environment as `host.environment.facts` tells it, with the ceilings and the other interpreters."""


class Record(BaseModel):
    """One line. Unknown keys are refused: another version says so in its header instead."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _read_given(given: Any) -> dict[str, Any]:
    """Check the fields of a study.

    Raises:
        ValueError: no study has such values.
    """
    try:
        return Study.model_validate({"name": "given", "model": "given", **given}).given
    except (UsageError, TypeError) as error:
        raise ValueError(str(error)) from error


class Header(Record):
    """The first line: what is to be measured, where, and with which seed.

    Attributes:
        schema_version: of the journal.
        created: when the run began, in UTC.
        identity: a hash of what is measured.
        seed: of the shuffles and of the environment padding.
        max_restarts: the most that the study allows.
        bias_floor: the share by which two arms must differ at least.
        named: the targets that were named in `--backends`.
        given: what the study was given that no arm tells, such as the user's files, by the fields of `Study`.
        command: the words behind `shootout` that the run was begun with, but for its time and folder; none from Python.
        converted: by the ONNX file that a model was converted to, the library's own file that was given.
        began_in: the folder in which that command was typed, as seen from the run's; "" if that isn't known.
        on: the address by which that command reached this machine; "" if it was typed here.
        limits: what the settings of a tuning run must keep, by a policy's keys in their basic units; null without.
        has_policy: whether a policy decides on the run, so that all that this needs is measured.
    """

    kind: Literal["header"] = "header"
    schema_version: int = SCHEMA
    created: str
    study: str
    identity: str
    seed: int
    max_restarts: int
    bias_floor: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    named: tuple[str, ...]
    groups: Annotated[tuple[GroupRecord, ...], Field(min_length=1)]
    environment: Environment
    given: Annotated[dict[str, Any], BeforeValidator(_read_given)] = {}
    command: tuple[str, ...] = ()
    converted: dict[str, str] = {}
    began_in: str = ""
    on: str = ""
    limits: dict[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    has_policy: bool = False


class Confirming(Record):
    """A group that was added when another one had selected settings, to measure them again."""

    kind: Literal["confirming"] = "confirming"
    group: GroupRecord


class Prepared(Record):
    """An arm was exported and built: seconds, and what the permutation probe found.

    Attributes:
        build_s: seconds of the first, uncached build.
        build_cached: whether it came from the cache.
        artifact_bytes: of an arm that can't run here, what was built for it; a measured arm's session tells its own.
        built_nodes_by_precision: of such an arm, the compute nodes of what was built.
        notes: what a search chose, one line each.
        work: what one call of the model takes.
        exported: the key of the export that it was built from.
        install_bytes: of its runtime's packages, all that they require included; null where that isn't known.
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
    work: Work | None = None
    exported: str = ""
    install_bytes: int | None = None


class Checked(Record):
    """An arm was loaded, and its outputs held against the reference's: what stays known of it if it never plays a
    round.

    Written once, in the first restart that it enters; `load_s` and `first_call_s` are that restart's.

    Attributes:
        scores: by the user's own metric; null without one.
    """

    kind: Literal["checked"] = "checked"
    group: str
    arm: str
    load_s: float
    first_call_s: float
    executed: Executed
    fidelity: Fidelity
    scores: Scores | None = None


class PlayedOnGpu(Record):
    """Hold what one restart tells of the GPU, of an arm on it.

    Attributes:
        cost: what loading took of the device.
        sm_clock_mhz: the median right after the blocks; null where the driver doesn't tell.
        reference_mhz: the highest clock of the restart, which flags go by.
        on_gpu: steps, events, memory and energy, after the last round.
    """

    cost: GpuCost | None = None
    sm_clock_mhz: int | None = None
    reference_mhz: int | None = None
    on_gpu: OnGpu | None = None


class Played(Record):
    """Hold what one arm did in one restart.

    Attributes:
        warm_up_calls: how many calls it made before its first block.
        steady_from: the call from which it was steady; null if it never was.
        per_reading: by scope, how many calls share one reading.
        rss_before_bytes, rss_after_bytes: what was resident before and after loading.
        os_threads: how many threads it had.
        served: null unless it served; with its rates.
        bins: time over time under sustained load, in which a restart has one turn; none in other scenarios.
        block_median_ns: by scope, the median of each round's block, in order; under sustained load, the time per call
            at the end of the turn. As `cpu`, the CPU time of a call in its block end to end, if that is known of every
            round.
        flagged: which of these, by position, are of flagged rounds.
        samples: the .npz file of this restart's raw readings, relative to the run folder.
        peak_rss_bytes: null where the run's time was over before it could be asked.
        gpu: null for an arm on the CPU.
        cpus: where its threads could run after the warm-up.
        spent_s: seconds of its steps before the rounds: `load` (its process's start included), `verify`, `warm_up`.
        forked: whether its process was forked from a fresh one that others of the restart were forked from too.
    """

    kind: Literal["played"] = "played"
    group: str
    arm: str
    restart: int
    load_s: float
    first_call_s: float
    warm_up_calls: int
    steady_from: int | None
    executed: Executed
    fidelity: Fidelity
    per_reading: dict[str, int]
    block_median_ns: dict[str, tuple[float, ...]]
    flagged: tuple[int, ...] = ()
    rss_before_bytes: int
    rss_after_bytes: int
    peak_rss_bytes: int | None
    samples: str
    cpus: tuple[int, ...] = ()
    os_threads: int = 0
    served: LoadTestResult | None = None
    bins: tuple[TimeBin, ...] = ()
    gpu: PlayedOnGpu | None = None
    spent_s: dict[str, float] = Field(default_factory=dict)
    forked: bool = False


class Rounds(Record):
    """A restart is complete: how many rounds it played and which are flagged, with the reasons.

    Attributes:
        tried: how many rounds were played.
        wall_s: seconds of the whole restart.
        voided: the flagged rounds, by number, with the reasons.
        spent_s: seconds of its steps: `load` (of all arms, side by side), `warm_up`, `rounds`, `hand_off` (between the
            turns of the rounds), `leave`.
        killed: the label of an arm for each time that its process was killed.
    """

    kind: Literal["rounds"] = "rounds"
    group: str
    restart: int
    tried: int
    voided: tuple[tuple[int, tuple[Disturbance, ...]], ...]
    wall_s: float
    spent_s: dict[str, float] = Field(default_factory=dict)
    killed: tuple[str, ...] = ()

    @property
    def lasting_s(self) -> float:
        """Return the seconds that the next restart of these arms is likely to take, without what hung."""
        return self.wall_s - self.spent_s.get("hung", 0.0)


class Setback(Record):
    """An arm of a group is out: it can't run here (`skip`), or it failed, was wrong or was killed (`failure`).

    Attributes:
        during: the step at which it left; "" where it never began.
        fix: what the user can do about it; a failure has none.
    """

    kind: Literal["skip", "failure"]
    group: str
    arm: Arm
    reason: str
    fix: str = ""
    cause: NotRunKind
    during: str = ""

    @property
    def why(self) -> NotRun:
        """Return the reason as the rest of the program knows it."""
        return NotRun(self.cause, self.reason, self.fix, self.during)

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        return {key: value for key, value in fields.items() if key != "fix" or value or self.kind == "skip"}


def not_run(group: str, arm: Arm, why: NotRun) -> Setback:
    """Return the line that says why an arm of a group is out."""
    kind: Literal["skip", "failure"] = "failure" if why.failed else "skip"
    return Setback(kind=kind, group=group, arm=arm, reason=why.reason, fix=why.fix, cause=why.kind, during=why.during)


class Ended(Record):
    """A process stopped writing here: `complete` when nothing is left to measure of what the study allows.

    Attributes:
        complete: nothing is left to measure of what the study allows.
        why: why it stopped, in one line.
        settled: whether no pair is open that more restarts could decide.
        wall_s: seconds since it took over, its planning apart.
        planning_s: seconds to find out what works here.
        budget_s: seconds of racing after which it stopped without a limit of the user's; null if it stopped otherwise.
    """

    kind: Literal["ended"] = "ended"
    complete: bool
    settled: bool = True
    why: str
    wall_s: float
    planning_s: float = 0.0
    budget_s: float | None = None


Line = Annotated[
    Header | Confirming | Prepared | Checked | Played | Rounds | Setback | Ended, Field(discriminator="kind")
]
LINE: TypeAdapter[Line] = TypeAdapter(Line, config=ConfigDict(ser_json_inf_nan="strings"))
"""An infinity or NaN is written as its name: as `null` it could not be read back, and its arm was gone."""
_ANY_SIGN = frozenset(
    {
        *("fidelity", "scores", "parameters", "voided", "start_late_ns", "celsius", "total_mj", "bound_ns"),
        *("kernel_ns", "flops_by_precision"),  # as a library tells them
        *("seed", "weights", "limits"),  # as a user gave them: their own types refuse what is no number
        "environment",  # as the machine tells it
    }
)
"""Keys below which a figure may be negative, infinite or NaN; every other one is a count, a size or a time."""
_MOST = 1 << 63
"""No count, size or time reaches it."""


def is_possible(line: Line) -> bool:
    """Return whether all numbers of a line are ones that a run can have measured: finite, and none below 0."""
    return _is_possible(LINE.dump_python(line))


def _is_possible(value: Any) -> bool:
    if isinstance(value, (int, float)):
        return 0 <= value < _MOST
    if isinstance(value, dict):
        value = [inner for key, inner in value.items() if key not in _ANY_SIGN]
    return not isinstance(value, (list, tuple)) or all(map(_is_possible, value))
