"""The JSON document that other programs read (`show RUN --json`). Stable; docs/reference/keys.md is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter

from shootout.core.constants import BIAS_FLOOR, INDIFFERENT
from shootout.core.contract import Fidelity, NotRunKind, Value
from shootout.core.exported.calls import Work
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.units import counted, duration
from shootout.tell.limits import LIMITS, Limit, Standing, limit_digits
from shootout.tell.paired import MeanChange
from shootout.tell.ratios import tell_ratio
from shootout.tell.reproduce import Options, join

SCHEMA = 4


class Part(BaseModel):
    """Any part of the document: frozen, and without a key that isn't declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __str__(self) -> str:
        """Return `repr`, which is short for what holds much."""
        return repr(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ratio(Comparison):
    """Compare this arm's time with another one's."""

    restarts: Annotated[int, Field(exclude=True)] = 0

    def __repr__(self) -> str:
        """Return the words of the screens: `<Ratio 9.0x faster (6.7 to 11)>`."""
        return f"<Ratio {tell_ratio(self)}>"


def ratio_of(found: Comparison, withheld: str | None = None) -> Ratio:
    """Return a comparison as the document shows it; `withheld` says why its verdict may not be given."""
    if withheld:
        found = replace(found, verdict=Verdict.CANT_TELL, reason=withheld)
    return Ratio(**asdict(found))


class Metric(Part):
    """Give a metric of the report split (a mean over rows, or of the whole set), and whether the target may be shipped.

    Attributes:
        name: the metric's, for people.
        value: the mean of its scores over the scored rows.
        lower_is_better: else higher is.
        against: what outputs were compared with: the user's `truth` (labels too), or the model's own FP32 `outputs`.
        low, high: its 95 % interval; null if all scores are the same and nothing tells how far others may lie.
        rows: how many rows have one, or how many units that rows belong to.
        unit: what is counted: `row`, or what `--rows-by` names, such as `speaker`.
        change: null of the plain FP32 arm, if that has no scores, and if both have one score, no share, for all rows.
        worst: what a row may lose at most, as far as the scores tell; null without `change`.
        limits: what `limit` is on: the `drop` against plain FP32's mean, or the `agreement` with FP32's outputs.
        limit: the most drop, or the least agreement, in the metric's unit; null if there is none.
        standing: how the interval stands to the limit; null without a limit.
        rows_needed: about how many rows would tell, if that is unknown.
        output: the output that is scored, if the model has several; "" for a metric of the user's own.
        other_outputs: the metric of the other outputs that the truth has; none of these stands worse.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    rows: int
    unit: str = "row"
    lower_is_better: bool
    against: Literal["truth", "outputs"] = "truth"
    change: MeanChange | None = None
    worst: float | None = None
    limits: Literal["drop", "agreement"] | None = None
    limit: float | None = None
    standing: Standing | None = None
    rows_needed: int | None = None
    output: str = ""
    other_outputs: tuple[Metric, ...] = ()

    @property
    def before(self) -> float:
        """Return plain FP32's mean score, which is its own where nothing is known of a change."""
        return self.value - (self.change.value if self.change else 0.0)


Outcome = Literal["measured", "not timed", "skipped", "failed"]
"""`not timed`: nothing kept the arm out, but it has no time (yet). An arm that `failed` may have played before."""


class Timing(Part):
    """Give one scope's figures in nanoseconds.

    α is shared among the verdicts of `end_to_end`; those of `compute` are extra.

    Attributes:
        median_ns: the median of the restarts' medians.
        low_ns, high_ns: the ends of its order-statistic interval over restarts.
        confidence: what that interval really covers; 0.5 with two restarts.
        p99_ns: the upper bound of a restart's 99th percentile; null with fewer than 4 restarts, or fewer than 662
            calls. If one reading spans several calls, from calls read one by one, of `end_to_end` alone. Of long
            calls, with those read after the rounds. Of an arm that serves, from requests at a given rate.
        p99_low_ns: its lower bound.
        p99_highest_ns: the highest percentile of any restart, for limits that all are to keep.
        samples: how many readings there are.
        restarts: how many restarts have one.
        ratio: to the baseline; null on the baseline itself.
        own_fp32_ratio: to the plain FP32 arm of the same backend; null if there is none.
        ship_ratio: to the arm that the answer ships; null of that arm, and if the answer ships none.
    """

    median_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    p99_ns: float | None
    p99_low_ns: float | None = None
    p99_highest_ns: float | None = None
    samples: int
    restarts: int
    ratio: Ratio | None
    own_fp32_ratio: Ratio | None = None
    ship_ratio: Ratio | None = None


class CpuTime(Part):
    """Give the CPU time of one call end to end, of all threads of the target's process: what a quota is spent on.

    Attributes:
        median_ns: over the restarts, of each the median of its rounds.
        low_ns, high_ns: its 95 % interval from 6 restarts on; of fewer the lowest and the highest restart.
        restarts: how many tell it.
    """

    median_ns: float
    low_ns: float
    high_ns: float
    restarts: int


class Rate(Part):
    """Give so many a second.

    Attributes:
        low, high: the ends of its interval, the inverse of the time's.
    """

    value: float
    low: float
    high: float


class Serving(Part):
    """An arm under requests that arrive by themselves (open loop, Poisson); latencies count from the arrival.

    Attributes:
        limit_ns: what p99 must keep to.
        rate_per_s: requests a second: the highest that held the limit (of a restart in which none did, the lowest
            that was tried), or the given one. Its upper end is above every restart's: there the limit didn't hold.
        searched: whether it was searched.
        may_do_more: whether the rate has no upper end: it was given, or in a restart nothing above it was tried, or
            failed in disturbed rounds alone.
        holds: whether p99 stayed within the limit: after a search, in more than half of the restarts. Those that failed
            in disturbed rounds alone don't count if four others tell. Null where it didn't, but one restart or a busy
            machine is all that shows it.
        p99_ns: the median over restarts of p99's 99 % upper bound, at that rate; null where so many requests were
            late that most restarts gave up.
        p99_highest_ns: the highest of these bounds, without restarts that failed in disturbed rounds alone; null of
            fewer than 4 restarts, and where one gave up.
        unloaded_ns: the median call without load.
    """

    rate_per_s: Rate
    searched: bool
    may_do_more: bool = False
    holds: bool | None
    p99_ns: float | None
    p99_highest_ns: float | None = None
    limit_ns: float
    unloaded_ns: float


class OverTime(Part):
    """An arm under sustained load, over its turns; its `end_to_end` time is that of a turn's end.

    Times per call are wall time, so a quota or a hypervisor that takes the CPU away is in them.

    Attributes:
        turn_s: the seconds of its shortest turn.
        window_s: the seconds that count as that turn's beginning, and as its end: 60, or a third of a shorter turn.
        first_ns: time per call at the beginning, the median of the turns.
        change: the end's time ÷ the beginning's, compared turn by turn: `slower` is slower at the end. α is shared by
            the group's arms.
    """

    turn_s: float
    window_s: float
    first_ns: float
    change: Ratio


class Quantized(Part):
    """Tell how much of the model ran in the label's integers, by the runtime's own account; shares from 0 to 1.

    Attributes:
        layers: of the compute nodes.
        flops: of their operations; null where the runtime doesn't tell.
    """

    layers: float
    flops: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityFigures(Fidelity):
    """Give the error against the FP64 reference outputs, the worst of all restarts.

    Infinite and undefined figures are null.

    Attributes:
        metric: what scores say of its rows; null without truth, labels or a metric.
        probe: what the permutation or grid probe found of the precision.
    """

    metric: Metric | None = None
    probe: str | None = None


class Ceiling(Part):
    """Hold how near a call came to what the machine could do, by its measured ceilings; see docs/explain.md.

    Attributes:
        share: the bound ÷ the measured compute time; the bound is the longer of the next two.
        arithmetic_ns: the model's operations at the peak rates of the precisions that they ran in.
        bandwidth_ns: weights and activations at the bandwidth of the memory that they fit in.
        binds: which of these takes at least half of the measured time; neither: "overhead".
        level: the smallest memory level that holds the weights and the widest activations.
        gbs: bytes of weights and activations ÷ the measured time, 10^9 a second.
    """

    share: float
    binds: Literal["overhead", "bandwidth", "arithmetic"]
    arithmetic_ns: float
    bandwidth_ns: float
    level: str
    gbs: float


class Gpu(Part):
    """Hold what the GPU tells of an arm on it, medians over restarts; null where it doesn't, and no part of a verdict.

    Attributes:
        context_s: seconds to make the process's CUDA context, which comes before `load_s`.
        context_bytes: device memory that the context took.
        loaded_bytes: device memory that the loaded arm took on top, its staged inputs among it.
        stage_ns, compute_ns, fetch_ns: the steps of one call on the host's clock, the device waited for after each.
        event_ns: `compute` by the device's own clock.
        dispatch_ns: what a timer shows that doesn't wait for the device; no latency.
        copies: the host memory that inputs and outputs are copied from and to: `pinned` or `pageable`; `staged`: the
            library has page-locked memory of its own (JAX).
        sm_clock_mhz: the clock of the multiprocessors right after the blocks.
        call_mj: measured millijoules of one call end to end, in the first restart; null unless the study says `energy`.
        above_idle_mj: the same without what the idle GPU takes in that time.
        faults: what could not be told though it should, and how telling broke.
    """

    context_s: float | None = None
    context_bytes: int | None = None
    loaded_bytes: int | None = None
    stage_ns: float | None = None
    compute_ns: float | None = None
    fetch_ns: float | None = None
    event_ns: float | None = None
    dispatch_ns: float | None = None
    copies: str | None = None
    sm_clock_mhz: int | None = None
    call_mj: float | None = None
    above_idle_mj: float | None = None
    faults: tuple[str, ...] = ()


Cause = Literal[
    "no instruction", "fallback", "float layers", "unfused scales", "conversions", "other nodes",
    "slower products", "memory", "overhead", "cached",
]  # fmt: skip


class Why(Part):
    """Tell why a precision isn't faster than its own backend's FP32.

    Attributes:
        cause: its kind; null if the runtime tells nothing that explains it.
        text: the figures that show it, and the layers where the runtime tells them.
        against: that FP32.
        ratio: its time ÷ that of `against`. Unlike `own_fp32_ratio` the race may not have been for its verdict.
    """

    cause: Cause | None
    text: str
    against: str
    ratio: Ratio


class Row(Part):
    """Tell all that is known of one arm, whatever became of it.

    A row that failed keeps the times of the restarts that it played; its ratios have no verdict.

    Attributes:
        group: the group that it raced in.
        arm: its label, what tables call the target. The `backend` of a shipped folder (`shipped:DIR`) is that label.
        python: the name that `--python` gave to its interpreter, "" for our own; `environment.interpreters` has each
            one's path, Python and libraries.
        settings: `closed` (vendor defaults) or `tuned`.
        quantizer: `none`, `shared` (one model for all runtimes) or `vendor`.
        file: if several ONNX files race each other, the name of this row's; "" for the first.
        scenario: what was measured.
        threads: compute threads of one instance; 0: as many as the library takes by itself, which `executed` tells.
        instances: sessions at work at once.
        setting: what tells the arm from others of its target in its group.
        options: the backend's own options that were set.
        outcome: `not timed` if nothing kept it out but no time stands (yet), or it ran on a software device.
        reason: why it has no time; of a measured row, why it left the race.
        fix: what can be done about that.
        compute: the time on the device alone. α doesn't count its verdicts.
        end_to_end: the time from host to host, the one that verdicts and the answer go by.
            Null without that, and if a time isn't that of a call.
        cpu: of one call after another, null in other scenarios; null too where the system doesn't tell it, where the
            target's process starts others.
        items_per_s: of throughput and serving, the inverse of the end-to-end time; null otherwise, and for a given
            rate.
        serve: null unless it served.
        over_time: null but under sustained load.
        executed: what the runtime itself says that it runs. Of a shipped folder, what was told when it was measured,
            but for the version installed here.
        quantized: null unless its label is an integer one.
        ceiling: null if the machine's ceilings aren't known; `environment.ceilings` has those.
        notes: what a search chose, such as layers left in float or the limit reached, and how this label is made here.
        built_nodes_by_precision: compute layers of what was built, if it can't run here; `artifact_bytes` and `build_s`
            too.
        artifact_bytes: of what is loaded.
        peak_rss_bytes: all that the process ever had resident in the host's memory: runtime, all instances and what the
            harness needs in it; the most of any restart.
        export_s: seconds to export the model.
        build_s: of the first, uncached build.
        build_cached: whether this run took it from the cache.
        load_s, first_call_s: medians; other arms load on other CPUs meanwhile.
        starts: how many restarts `ready_s` is the slowest of; a limit wants 4 at least.
        cpus: the CPUs that its threads may run on, read back from the kernel after the warm-up.
        gpu: what the GPU tells of it; null for an arm on the CPU.
        why: from evidence, why it isn't faster than its own backend's FP32; null if it is, or without a verdict.
        install_bytes: of the packages that run it, with all that they require, as the installer recorded them: no
            bytecode, nothing that only builds or converts, no driver and no compiler. A required package that isn't
            there counts nothing. Null if a package has no record or a damaged one, or is one in development.
        memory_bytes: what a limit on memory is held against, the most of any restart. On the CPU `peak_rss_bytes`, on a
            GPU the context and what loading took of the device.
        ready_s: from a fresh process to its first answer: a GPU's context, load and first call, the slowest of
            `starts`.
        cause: what kind of reason `reason` is, for this program alone: not in the JSON.
    """

    group: str
    arm: str
    backend: str
    device: str
    precision: str
    scheme: str
    python: str = ""
    settings: str
    quantizer: str
    model: str
    file: str = ""
    parameters: dict[str, Value]
    scenario: str = "latency"
    batch: int
    threads: int
    instances: int = 1
    setting: str = ""
    options: dict[str, str]
    outcome: Outcome
    reason: str | None = None
    fix: str | None = None
    cause: NotRunKind | None = Field(default=None, exclude=True)
    compute: Timing | None = None
    end_to_end: Timing | None = None
    cpu: CpuTime | None = None
    items_per_s: Rate | None = None
    serve: Serving | None = None
    over_time: OverTime | None = None
    fidelity: FidelityFigures | None = None
    executed: dict[str, Any] | None = None
    quantized: Quantized | None = None
    work: Work | None = None
    ceiling: Ceiling | None = None
    why: Why | None = None
    notes: tuple[str, ...] = ()
    built_nodes_by_precision: dict[str, int] | None = None
    artifact_bytes: int | None = None
    install_bytes: int | None = None
    memory_bytes: int | None = None
    peak_rss_bytes: int | None = None
    export_s: float | None = None
    build_s: float | None = None
    build_cached: bool | None = None
    load_s: float | None = None
    first_call_s: float | None = None
    ready_s: float | None = None
    starts: int | None = None
    cpus: tuple[int, ...] | None = None
    gpu: Gpu | None = None

    @property
    def is_judged(self) -> bool:
        """Tell whether its error was held against what its label explains, or may show nothing."""
        return self.fidelity is None or self.fidelity.standing != "not judged"

    def __repr__(self) -> str:
        """Return `<Row numpy:cpu:fp32: measured, 258 us>`."""
        told = f", {duration(self.end_to_end.median_ns)}" if self.end_to_end else ""
        return f"<Row {self.arm}: {self.outcome}{told}>"


class Control(Part):
    """Compare the baseline's hidden copy with the baseline: while they differ, no verdict of their group stands.

    Attributes:
        ratio: the copy's time ÷ the baseline's.
        holds: whether the two came out alike; null while the ratio isn't known to ±10 %.
    """

    ratio: Ratio | None
    holds: bool | None


class Change(Part):
    """Two arms that change places under sustained load, both orders significant.

    Attributes:
        faster, slower: the arms, by the beginning of their turns.
        first: the time of `faster` ÷ that of `slower` at the beginning.
        end: likewise at the end.
    """

    faster: str
    slower: str
    first: Ratio
    end: Ratio


class Ranking(Part):
    """Rank the arms of a group under sustained load.

    Attributes:
        first: by their medians at the beginning of their turns, the fastest first.
        end: likewise at the end.
        changes: the pairs that change places significantly; α is shared by all pairs of the group.
    """

    first: tuple[str, ...]
    end: tuple[str, ...]
    changes: tuple[Change, ...] = ()


class GroupSummary(Part):
    """Tell what holds of a whole group of arms.

    Attributes:
        ranking: null but under sustained load.
        void_share: flagged rounds ÷ all rounds.
        void_reasons: how many rounds, by what flagged them.
        throttled: how often a CPU quota held the race back, in all rounds.
        restarts: how many it played.
        sd: of the log ratio between restarts, pooled over the arms.
        bias_floor: the share by which two arms must differ at least, the stored one or what the control showed.
        selects: it chose among settings, and its figures don't count; for this program alone: not in the JSON.
        confirms: the group whose choice it measures again; likewise.
    """

    name: str
    baseline: str | None
    control: Control
    ranking: Ranking | None = None
    void_share: float
    void_reasons: dict[str, int]
    throttled: int = 0
    sd: float | None = None
    bias_floor: float = BIAS_FLOOR
    restarts: int
    selects: bool = Field(default=False, exclude=True)
    confirms: str | None = Field(default=None, exclude=True)


class Crossover(Part):
    """One change of the faster of two arms between two measured sizes; a pair whose lead changes twice has two.

    Attributes:
        axis: what is varied: `batch`, `threads` or a parameter.
        fixed: parameters, batch and threads that stay the same.
        scope: `end_to_end` or `compute`.
        below: the arm that is known to be faster at `low`.
        low: the largest measured size with that verdict, below `high`.
        above: the other arm, known to be faster at `high`.
        high: the smallest measured size with that verdict, above `low`.
        ships: whether these two are what is shipped at the two sizes.
        between: the command that races the two at sizes in between; null if there is no such size.
    """

    model: str
    axis: str
    fixed: dict[str, Value]
    scenario: str
    scope: str
    below: str
    low: int
    above: str
    high: int
    ships: bool
    between: str | None


class FrontRow(Part):
    """Name a row that no other one beats in score and time together (see `judge.accuracy`).

    Attributes:
        metric: the name of what scores its rows.
        score: their mean score.
    """

    group: str
    arm: str
    metric: str
    score: float
    median_ns: float


Chosen = Literal["smaller install", "smaller artifact", "shorter start", "lower time"]


class Shipped(Part):
    """The arm to ship.

    Attributes:
        admitted: why it may be. Plain `fp32`; the `metric`, which it is known to keep; the `policy` of a
            decision, whose limits it meets; or `alone`: no arm of the cell is known to keep them, so that speed alone
            chose.
    """

    arm: str
    admitted: Literal["fp32", "metric", "policy", "alone"]
    median_ns: float


class Rival(Part):
    """Another arm; `ratio` is its time ÷ the shipped one's, from the restarts that both played."""

    arm: str
    ratio: Ratio | None


class Passed(Part):
    """An arm that is not to be shipped.

    Attributes:
        because: it is `slower`, than the shipped one or one tied with that; it is not known to keep the `accuracy`; or
            it has no sound time. `reason` tells why it has none, or that nothing was held against its error.
    """

    arm: str
    because: Literal["slower", "accuracy", "unsound"]
    reason: str | None = None


class NotRaced(Part):
    """Arms that have no time, for the same reason; `cause` is what kind of reason it is.

    Attributes:
        fix: what can be done; if outputs were refused, the command that finds the layer.
    """

    arms: tuple[str, ...]
    cause: NotRunKind
    reason: str
    fix: str | None


class WouldChange(Part):
    """Name a faster arm that would be shipped if its error were accepted.

    Attributes:
        ratio: its time ÷ the shipped one's.
        why: why it isn't shipped as it is: which figure is over which limit, or that nothing tells what it loses.
        measure: the command that measures its accuracy; null if no run would tell.
        accept: of the fastest, the command that accepts what it loses; null if nothing is known of that, or a metric
            breaks its limit.
    """

    arm: str
    ratio: Ratio | None = None
    why: str
    measure: str | None = None
    accept: str | None = None


class Sure(Part):
    """Tell how well founded the choice is.

    Attributes:
        restarts: of the group.
        control_holds: whether the baseline's hidden copy came out like the baseline; null where there is none.
        slower: how many of the other eligible arms are significantly slower than what is shipped.
        closest: of these, the one whose time is the least.
        nearest: of the arms that are open, the closest to the shipped one in time; ties only if no other is open.
        restarts_needed: about, in all, to tell all of these from the shipped one, or that either may be shipped: in
            this run if it goes on, else in a race of these alone; null if that can't be estimated.
        seconds_needed: how long those that are left take; null if no race lasts so long.
        command: what measures that. Null if no race lasts so long, or the words of a run that goes on aren't known, as
            from Python.
    """

    restarts: int
    control_holds: bool | None
    slower: int = 0
    closest: Rival | None = None
    nearest: str | None = None
    restarts_needed: int | None = None
    seconds_needed: float | None = None
    command: str | None = None


class Choice(Part):
    """Hold what is chosen among those that may be shipped: of a run's answer, and of a decision by a policy.

    Attributes:
        reason: why nothing is chosen, or only the best so far; null if a verdict supports the choice.
        tied: those that may be as good, within the indifference as far as measured; the choice among them and the
            chosen one is by `chosen_by`.
        unsettled: those that measured worse by more than that, but aren't known to be.
    """

    reason: str | None = None
    tied: tuple[Rival, ...] = ()
    chosen_by: tuple[Chosen, ...] = ()
    unsettled: tuple[Rival, ...] = ()


class Answer(Choice):
    """Hold the answer of one cell, which is a group of arms that raced each other.

    Attributes:
        inputs: what its calls get, in words; "" of a model with rows of its own.
        ship: null where nothing that may be shipped was measured, or the figures can't be trusted.
        alone: whether `ship` is the only target that was measured, so that nothing was compared.
        otherwise: what an expert would take otherwise, and its time ÷ the shipped one's: the fastest of ONNX Runtime's
            and AOTInductor's FP32 (on CUDA: of TensorRT and ONNX Runtime), else the baseline.
        eligible: the arms that may be shipped, whatever their times; `ship` is one of them.
        passed: all others with a time.
        same_within: a ratio in it is `same` up to this difference; in a row of the document, up to 0.01.
        no_gain: the arms of a lower precision that aren't faster than their own backend's FP32, the fastest first;
            `why` of their rows has the cause.
        next: the command that comes next: to ship what the answer ships, else to measure on. Null if there is none.
        goes_on: whether `next` goes on with this run; without one, the command or call that began it does.
        no_folder: why `ship` can't be put into a folder, and what to do with it; null if it can, or isn't known yet.
    """

    group: str
    inputs: str = ""
    same_within: float = INDIFFERENT
    ship: Shipped | None
    alone: bool = False
    otherwise: Rival | None = None
    eligible: tuple[str, ...] = ()
    sure: Sure
    passed: tuple[Passed, ...] = Field(default=(), serialization_alias="not")
    not_raced: tuple[NotRaced, ...] = ()
    would_change: tuple[WouldChange, ...] = ()
    no_gain: tuple[str, ...] = ()
    next: str | None = None
    goes_on: bool = False
    no_folder: str | None = None

    @property
    def untried(self) -> list[str]:
        """Return the arms that the run ended before."""
        return [arm for group in self.not_raced if group.cause is NotRunKind.NOT_REACHED for arm in group.arms]

    def __repr__(self) -> str:
        """Return `<Answer toy, batch 1: ship numpy:cpu:fp32>`."""
        ships = f"ship {self.ship.arm}" if self.ship else "none"
        return f"<Answer {self.group}: {', '.join(filter(None, [ships, self.reason]))}>"


class Document(Part):
    """Tell all of one run.

    Attributes:
        schema_version: 4.
        run: its folder.
        baseline: the arm that ratios refer to.
        complete: false while the same command goes on: something is unmeasured, or a verdict that was asked for is
            missing.
        rows: one for each arm, measured or not.
        control: the worst of its groups.
        void_share: flagged (disturbed) rounds ÷ all rounds, the worst of its groups.
        spent_s: seconds by step: `planning` (what works here), `preparing` (all outside of restarts), and of all
            restarts `load`, `warm_up`, `rounds`, `hand_off` (between the arms' turns), `leave`, and `racing`, which no
            step has.
        warnings: lines of the journal that couldn't be read, and files of samples that are gone or damaged.
        crossovers: each between two sizes of a sweep: of what is shipped there, and of any arm and the baseline if the
            goal was a verdict on these.
        pareto: rows that no other one beats in score and time together, for each metric, batch and thread count at
            which several models are scored.
        budget_s: seconds of racing after which it stopped by itself; null where it is over, or was stopped.
        resume: the command that continues the run for five minutes; null where it is complete, or was begun from
            Python.
        answer: what to ship, for each group whose figures count.
        open_questions: what the run asked and has no verdict on, a line each.
    """

    schema_version: int = Field(serialization_alias="schema")
    run: str
    study: str
    baseline: str | None
    complete: bool
    budget_s: float | None = None
    resume: str | None = None
    answer: tuple[Answer, ...] = ()
    open_questions: tuple[str, ...] = ()
    environment: dict[str, Any]
    rows: tuple[Row, ...]
    groups: tuple[GroupSummary, ...]
    control: Control
    void_share: float
    wall_s: float
    spent_s: dict[str, float]
    warnings: tuple[str, ...]
    crossovers: tuple[Crossover, ...] = ()
    pareto: tuple[FrontRow, ...] = ()

    def rows_of(self, group: str) -> list[Row]:
        """Return the rows of a group by its name."""
        return [row for row in self.rows if row.group == group]

    def __repr__(self) -> str:
        """Return where it is, and how much is in it."""
        return f"<Document {self.run!r}: {counted(len(self.rows), 'row')} in {counted(len(self.groups), 'group')}>"


def as_json(part: object) -> Any:
    """Return any part of the document as JSON values."""
    return TypeAdapter(type(part)).dump_python(part, mode="json", by_alias=True)


Needs = Annotated[Options, PlainSerializer(lambda given: join(given) or None, return_type=str | None)]
"""The options to add to `shootout run` to know something; in JSON as they are typed, null if none."""


class Finding(Part):
    """A candidate's figure against one limit, in the limit's basic unit.

    Attributes:
        wanted: the limit; `implied`: the policy limits nothing of the kind, so that the default does.
        low, high: the figure's bounds; null where that side isn't known.
        reason: why it is unknown, in a few words.
        needs: what to add to `shootout run` to know it.
        excess: of a broken limit, by which share of it the good-side bound is beyond it.
    """

    limit: Limit
    wanted: float
    implied: bool = False
    value: float | None = None
    low: float | None = None
    high: float | None = None
    standing: Standing
    reason: str | None = None
    needs: Needs = ()
    excess: float | None = None


def tell_finding(finding: Finding) -> str:
    """Write the bound that decides, and the limit: `p99 4.1 ms ≤ 5 ms`."""
    quantity = LIMITS[finding.limit]
    is_most, met = quantity.side == "most", finding.standing is Standing.MET
    bound = finding.high if is_most is met else finding.low
    sign = {(True, True): "≤", (True, False): ">", (False, True): "≥", (False, False): "<"}[is_most, met]
    if finding.standing is Standing.UNKNOWN:
        told = f" {quantity.unit.tell(finding.value)}" if finding.value is not None else ""
        wanted = f", limit {quantity.unit.tell_limit(finding.wanted)}" if told and finding.wanted else ""
        return f"{finding.limit}{told}{wanted}: {finding.reason}"
    figure, wanted = quantity.unit.tell_apart(bound or 0.0, finding.wanted)
    if met:
        figure = quantity.unit.tell(bound or 0.0, limit_digits(finding.wanted))
    return " ".join(filter(None, [finding.limit, figure, sign, wanted]))


Findings = Mapping[tuple[str, str], Sequence[Finding]]
"""By group and arm, how it stands to each limit."""


def stand(findings: Sequence[Finding] | None) -> Standing:
    """Return how a row stands to all limits together."""
    standings = {one.standing for one in findings or ()}
    if Standing.BROKEN in standings:
        return Standing.BROKEN
    return Standing.MET if standings == {Standing.MET} else Standing.UNKNOWN
