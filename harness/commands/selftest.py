"""The harness tested live, on the user's machine: times it knows, an arm against itself, and differences it planted.

The `spin` backend does a known amount of work, so a true ratio of 1.02 is 2 % more steps. What comes out is this
machine's bias floor, which later verdicts use, and the smallest difference that this machine lets anyone see. On a GPU
the same ratios are planted; there are no times to know there, and its bias floor is shown, not stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.commands.output import print_answer, show_progress
from shootout.commands.run import measure
from shootout.core import backends
from shootout.core.clock import Deadline
from shootout.core.constants import BIAS_FLOOR, MAX_RESTARTS, SAME_WITHIN
from shootout.core.contract import Arm, Device, Target
from shootout.core.errors import ExitCode, ShootoutError, Unavailable, unknown
from shootout.core.exported.request import Request
from shootout.core.host.environment import machine_key
from shootout.core.host.folders import Scratch
from shootout.core.host.store import write_facts
from shootout.core.stats.verdicts import Verdict, find_reach
from shootout.core.study.group import GroupRecord, with_control
from shootout.core.study.plan import PlannedGroup, make_plan
from shootout.core.study.schema import Study
from shootout.core.study.target import canonical, provider
from shootout.core.units import duration
from shootout.tell.document import Document, Ratio, Row
from shootout.tell.machines import BIAS_FLOORS
from shootout.tell.progress import ProgressDisplay

DURATIONS_US = (10, 100, 1_000, 10_000)
STEPS = 200
"""The steps of a call that lasts about 0.2 ms; 1 % of it is 2 steps."""
GPU_STEPS = 2_000
"""About 2 ms: starting a kernel and waiting for it takes some 10 us, which is not planted."""
QUICK_RESTARTS = 5
"""Enough for a quick look, and for the known times."""
PLANTED = (0.01, -0.02, 0.05)
"""Differences to find, on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTime:
    """A planted duration and what was measured: medians in ns, error as a share."""

    planted_ns: float
    measured_ns: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRatio:
    """A planted ratio (1: the arm itself) and the verdict it got."""

    ratio: float
    found: float
    low: float | None
    high: float | None
    verdict: str
    right: bool

    @property
    def wrong(self) -> bool:
        """Return True if the verdict contradicts the truth; that a difference isn't seen is not wrong."""
        return not self.right and self.verdict != Verdict.CANT_TELL


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestReport:
    """The differences that the harness can detect on this machine.

    Attributes:
        bias_floor: the largest bias that the intervals of an arm against itself don't exclude, as a share, and at least
            the default: one lucky run must not lower the guard. None where an interval has no end. `stored` says where
            it is kept.
        sd: of the log ratio between restarts, the largest one of an arm against itself; None if nothing was valid.
        device: where the arms ran.
        visible: restarts → the difference that gets a verdict in about half of all runs with so many, at that SD.
    """

    known: tuple[KnownTime, ...]
    planted: tuple[PlantedRatio, ...]
    bias_floor: float | None
    sd: float | None
    visible: Mapping[int, float | None]
    restarts: int
    void_share: float
    trustworthy: bool
    stored: str | None
    device: Device = Device.CPU


def selftest(
    *,
    quick: bool,
    device: str = "cpu",
    as_json: bool,
) -> int:
    """Test the harness live and print what it can tell on this machine; return the exit code."""
    if (on := canonical(device)) not in (known := backends.capabilities("spin").devices):
        raise unknown("device", device, map(str, sorted(known)))
    with show_progress() as progress:
        report = run(quick=quick, progress=progress, device=Device(on))
    print_answer(render(report), asdict(report), as_json=as_json)
    return ExitCode.ERROR if any(ratio.wrong for ratio in report.planted) else ExitCode.OK


def run(*, quick: bool, progress: ProgressDisplay, device: Device = Device.CPU) -> SelfTestReport:
    """Measure; store the CPU's bias floor unless `quick`, or where it isn't known to lie below `SAME_WITHIN`.

    As wide a floor would be noise stored as bias, and no two arms could be called the same ever after.

    Raises:
        Unavailable: nothing runs on this device here.
    """
    target = Target(backend="spin", device=device)
    restarts = QUICK_RESTARTS if quick else MAX_RESTARTS
    with Scratch() as folder:
        known = None
        if device is Device.CPU:
            durations = [{"duration_us": str(duration)} for duration in DURATIONS_US]
            known = _race_spins(folder / "known", target, durations, QUICK_RESTARTS, progress)
        steps = GPU_STEPS if device is Device.CUDA else STEPS
        raced = _race_spins(folder / "raced", target, _spin_steps(steps), restarts, progress)
    return _make_report(known, raced, device, store=device is Device.CPU and not quick)


def _spin_steps(steps: int) -> list[dict[str, str]]:
    """Return the options of the baseline, of two copies of it, and of the planted differences."""
    counts = [steps, steps, steps, *(round(steps * (1 + share)) for share in PLANTED)]
    return [{"work": str(count)} for count in counts]


def _race_spins(
    out: Path,
    target: Target,
    options: Sequence[Mapping[str, str]],
    restarts: int,
    progress: ProgressDisplay,
) -> Document:
    """Race spin arms with these options, the first one as the baseline."""
    study = Study(name="selftest", model=("identity",), targets=(str(target),), max_restarts=restarts)
    planned = make_plan(study)
    found = planned.here.available[provider(target)]
    if not found.ok:
        raise Unavailable(f"selftest on {target.device}: {found.reason}; {found.fix}")
    threads = planned.placement.threads
    arms = [
        Arm(target=target, model="identity", threads=threads, options=option, ordinal=number)
        for number, option in enumerate(options, start=1)
    ]
    racing = with_control(arms[0], arms)
    record = GroupRecord(name="selftest", baseline=arms[0].label, comparisons=len(arms) - 1, arms=racing)
    group = PlannedGroup(record=record, request=Request(model="identity"), skips={})
    own = replace(planned, groups=[group], identity=f"{target}, {restarts} restarts, {options}")
    return measure(own, out, fresh=False, limit=Deadline(None), progress=progress)


def _make_report(known: Document | None, raced: Document, device: Device, *, store: bool) -> SelfTestReport:
    """Judge what was measured."""
    planted = zip([1.0, 1.0, *(1 + share for share in PLANTED)], raced.rows[1:], strict=True)
    verdicts = [_planted_ratio(truth, row) for truth, row in planted]
    times = zip(DURATIONS_US, known.rows if known else (), strict=known is not None)
    against_itself = [timing.ratio for row in raced.rows[1:3] if (timing := row.end_to_end) and timing.ratio]
    if raced.control.ratio:
        against_itself.append(raced.control.ratio)
    bias = max([BIAS_FLOOR, *map(_not_excluded, against_itself)]) if against_itself else math.inf
    sd = max((ratio.sd for ratio in against_itself if ratio.sd is not None), default=None)
    trustworthy = raced.control.holds is True and math.isfinite(bias)
    is_floor = store and trustworthy and bias < SAME_WITHIN
    return SelfTestReport(
        known=tuple(_known_time(us, row) for us, row in times),
        planted=tuple(verdicts),
        bias_floor=bias if math.isfinite(bias) else None,
        sd=sd,
        visible={} if sd is None else {n: smallest_visible(sd, n, bias) for n in (5, 10, 20)},
        restarts=raced.groups[0].restarts,
        void_share=raced.void_share,
        trustworthy=trustworthy,
        stored=str(write_facts(BIAS_FLOORS, {machine_key(): bias})) if is_floor else None,
        device=device,
    )


def _not_excluded(ratio: Ratio) -> float:
    """Return the largest bias, as a share, that an arm's interval against itself leaves possible."""
    return max(ratio.high, 1 / ratio.low) - 1 if ratio.low and ratio.high else math.inf


def _known_time(duration_us: int, row: Row) -> KnownTime:
    """Compare in the compute scope: staging and fetching are not part of the planted time."""
    if row.compute is None:
        raise _not_measured(row)
    planted_ns = duration_us * 1_000.0
    measured_ns = row.compute.median_ns
    return KnownTime(planted_ns=planted_ns, measured_ns=measured_ns, error=measured_ns / planted_ns - 1)


def _planted_ratio(truth: float, row: Row) -> PlantedRatio:
    timing = row.end_to_end
    if timing is None or timing.ratio is None:
        raise _not_measured(row)
    ratio = timing.ratio
    expected = (Verdict.SAME, Verdict.CANT_TELL) if truth == 1 else (Verdict.SLOWER if truth > 1 else Verdict.FASTER,)
    return PlantedRatio(
        ratio=truth,
        found=ratio.value,
        low=ratio.low,
        high=ratio.high,
        verdict=ratio.verdict,
        right=ratio.verdict in expected,
    )


def _not_measured(row: Row) -> ShootoutError:
    return ShootoutError(f"{row.arm} was not measured: {row.reason}; run it again when the machine is quieter")


def render(report: SelfTestReport) -> RenderableType:
    """Render the report for people."""
    lines = ["Known times (spin backend, compute):"] if report.known else []
    lines += [
        f"  {duration(known.planted_ns)}: {duration(known.measured_ns)}, {known.error:+.3%}" for known in report.known
    ]
    lines += ["A target against itself, and planted differences:"] if report.planted else []
    lines += [_planted_line(ratio) for ratio in report.planted]
    sd, floor = ("unknown" if share is None else f"{share:.2%}" for share in (report.sd, report.bias_floor))
    lines.append(f"SD between restarts {sd}, bias floor {floor}.")
    for count, share in report.visible.items():
        lines.append(f"  {count} restarts see {f'{share:.1%}' if share else 'nothing below 100 %'} every second time.")
    lines.append(f"{report.restarts} restarts, {report.void_share:.0%} of the rounds flagged.")
    lines.append(_write_conclusion(report))
    return Group(*(Text(line) for line in lines))


def _planted_line(one: PlantedRatio) -> str:
    low = "0" if one.low is None else f"{one.low:.4f}"
    high = "inf" if one.high is None else f"{one.high:.4f}"
    note = "" if one.right else "  WRONG" if one.wrong else "  (not seen)"
    return f"  true {one.ratio:.2f}: {one.found:.4f} [{low}, {high}] {one.verdict}{note}"


def _write_conclusion(report: SelfTestReport) -> str:
    if report.bias_floor is None:
        return "So few restarts can't bound a bias: nothing is stored. Run it again, without --quick."
    if not report.trustworthy:
        return "A target came out different from its own copy: nothing is stored. Stop other work and run it again."
    if report.bias_floor >= SAME_WITHIN and report.device is Device.CPU:
        return (
            f"A bias of up to {report.bias_floor:.2%} can't be excluded, which is mostly noise: nothing is stored. "
            "Run it again on a quieter machine and without --quick: more restarts bound it closer."
        )
    if report.device is not Device.CPU:
        return f"Verdicts on {report.device} use the stored bias floor of the CPU: this one is only shown."
    if report.stored is None:
        return "A quick look: the bias floor isn't stored."
    return f"The bias floor is stored in {report.stored}; later verdicts use it."


def smallest_visible(sd: float, restarts: int, bias_floor: float) -> float:
    """Return the difference (0.02 = 2 %) that so many restarts call `slower` about every second time.

    Args:
        sd: standard deviation of the log ratio between restarts, of one pair alone.
        restarts: two at least.
        bias_floor: see `judge`.
    """
    reach = float(find_reach(restarts, sd**2, sd**2, 0, 1))
    return math.expm1(reach + math.log1p(bias_floor))
