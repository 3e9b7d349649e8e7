"""Run one restart, from the shuffled spawn to the last round: one arm runs at a time, and all others are held still.

A `Launcher` loads the arms and its `NoiseMeter` brings outside evidence; this module times only its own steps, for the
journal. Why the order is shuffled twice and arms are held: docs/design/measurement.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import ceil
from statistics import median
from typing import TypeVar

import numpy as np

from shootout.core.clock import Stopwatch, sleep
from shootout.core.constants import MIN_ROUNDS, ROUNDS, ROUNDS_BUDGET_NS
from shootout.core.contract import Arm, NotRun
from shootout.core.errors import ArmFailed, NotRunKind, SkippedArm
from shootout.core.host.devices import accelerator
from shootout.core.host.noise import Disturbance, Gpus
from shootout.core.journal import records
from shootout.core.journal.records import Played, PlayedOnGpu
from shootout.core.journal.samples import SINGLE
from shootout.core.messages import CPU, SCOPES, Ask, Loaded, OnGpu, Scope, Verified
from shootout.core.race.live_arm import Launcher, LiveArm, total_cpu_ns
from shootout.core.race.pace import least_calls_s, least_compute_rounds, least_rounds, least_rounds_s
from shootout.core.scenario import Terms, scenario_of
from shootout.core.stats.readings import LEAST_TAILS, least_calls, own_calls

_MAX_PADDING_BYTES = 4096
_LEAVING = "leaving"
T = TypeVar("T")


@cache
def tail_calls() -> tuple[int, int]:
    """Return the fewest calls of a restart that have a p99, and so many that those of all restarts together tell it."""
    least = own_calls(0.99)
    return least, max(least, ceil(least_calls(0.99) / LEAST_TAILS))


@dataclass(slots=True, kw_only=True)
class Restart:
    """One restart of some arms, and what it brought.

    Attributes:
        index: the restart's number, from 0.
        arms: those that take part.
        launcher: loads them.
        setback, checked: called at once for the journal, when an arm is out and when it was verified.
        rng: shuffles spawns, turns and scopes, and draws the environment padding.
        terms: what the arms are asked in every restart.
        baseline: the label of the arm whose calls may set a limit.
        tails: whether each arm is read as often as a p99 takes, however long its calls.
        hung: labels of arms that gave no answer in an earlier process of the run: they are loaded behind the others.
        samples: the .npz file of its raw readings, relative to the run folder.
        playing: the arms that have not left, in spawn order.
        disturbed: the rounds that are flagged, with their reasons.
        rounds: played so far, by every arm that has not left; turns of a round that not all of them played are dropped.
        asked: what the arms are asked in this restart, once they are warm.
        spent_s: seconds of its steps, by name; `rounds` are the arms' turns alone, `hand_off` is all between them:
            letting arms run and holding them, watching the machine; `hung` is the wait for arms that gave no answer.
        killed: the label of an arm for each time that its process was killed: it is begun again once, and then leaves.
        is_late: whether an arm still owed an answer when the run's time was over: then no other is called any more.
        is_cut: whether that time was over before enough rounds: then nothing of it counts.
    """

    index: int
    arms: Sequence[Arm]
    launcher: Launcher
    setback: Callable[[Arm, NotRun], None]
    checked: Callable[[Arm, Loaded, Verified], None] = lambda *_: None
    rng: random.Random
    terms: Terms = field(default_factory=Terms)
    baseline: str | None = None
    tails: bool = False
    hung: Collection[str] = ()
    samples: str = ""
    playing: list[LiveArm] = field(default_factory=list, init=False)
    disturbed: list[tuple[int, tuple[Disturbance, ...]]] = field(default_factory=list, init=False)
    rounds: int = field(default=0, init=False)
    asked: Terms = field(default_factory=Terms, init=False)
    spent_s: dict[str, float] = field(default_factory=dict, init=False)
    killed: list[str] = field(default_factory=list, init=False)
    is_late: bool = field(default=False, init=False)
    is_cut: bool = field(default=False, init=False)
    _lost: dict[str, NotRun] = field(default_factory=dict, init=False)

    def run(self) -> Restart:
        """Respawn every arm in a shuffled order, then let all of them play rounds, one at a time."""
        with ExitStack() as cleanup:
            with self._count_seconds("load"):
                loaded = self._load_arms(self.arms, cleanup)
            with self._count_seconds("warm_up"):
                entering = self._arms_that_fit_the_time(loaded)
                for place, live in enumerate(entering):
                    self._warm_up(live, len(entering) - place)
                self._begin_anew(cleanup)
                if self.terms.is_by_calls and self._has_time_for(0.0):  # warm arms tell how long rounds take
                    needs_s = {live.arm.label: least_rounds_s(live.tuned) for live in self.playing}
                    self.playing = self._keep_out(self.playing, needs_s)
            if self.playing:
                self.asked = self.terms.begin(self.playing, self.baseline, self.index, self.rng)
            with self._count_seconds("hand_off"):
                self._play_rounds(cleanup)
            self.spent_s["hand_off"] -= self.spent_s.setdefault("rounds", 0.0)
            with self._count_seconds("leave"):
                self._end_arms()
        return self

    @contextmanager
    def _count_seconds(self, step: str) -> Iterator[None]:
        """Count the seconds of a step unless it raises: a turn that hangs is counted as `hung` alone."""
        hung_s = self.hung_s
        with Stopwatch() as watch:
            yield
        self.spent_s[step] = self.spent_s.get(step, 0.0) + watch.seconds - (self.hung_s - hung_s)

    @property
    def hung_s(self) -> float:
        """Return the seconds waited so far for arms that gave no answer: the next restart won't take these."""
        return self.spent_s.get("hung", 0.0)

    def _count_hung(self, seconds: float) -> None:
        self.spent_s["hung"] = self.hung_s + max(0.0, seconds)

    def _load_arms(self, arms: Sequence[Arm], cleanup: ExitStack) -> list[LiveArm]:
        """Load and verify these arms, side by side; a fault keeps one out of the rounds."""
        place = partial(self.launcher.time.place_of, baseline=self.baseline, is_first=self.index == 0)
        in_order = sorted(_shuffle(arms, self.rng), key=lambda arm: (arm.label in self.hung, place(arm)))
        loading = [self.launcher.take(arm, self.rng.randrange(_MAX_PADDING_BYTES)) for arm in in_order]
        with Stopwatch() as watch:
            self.launcher.load(loading, cleanup, self.index)
        errors = [live.error for live in loading if live.error]
        if any(getattr(one, "hung", False) or one.why.kind is NotRunKind.NOT_REACHED for one in errors):
            others_s = [sum(live.spent_s.values()) for live in loading]
            self._count_hung(watch.seconds - max(sum(others_s) / self.launcher.lanes, *others_s, 0.0))
        return loading

    def _arms_that_fit_the_time(self, loaded: Sequence[LiveArm]) -> list[LiveArm]:
        """Keep those out that there is no time for, by what the calls that verified them took."""
        needs_s = {  # a first call that compiles is no measure
            live.arm.label: 0.0 if live.error else max(least_calls_s(live.checked_call_s), self.terms.least_s)
            for live in loaded
        }
        fitting = self._keep_out(loaded, needs_s, is_first=self.index == 0)
        self.is_cut = not fitting
        return fitting

    def _keep_out(
        self, arms: Sequence[LiveArm], needs_s: Mapping[str, float], *, is_first: bool = False
    ) -> list[LiveArm]:
        """End the arms that there is no time for, and say so; return the others."""
        by_label = {live.arm.label: live for live in arms}
        all_arms = [live.arm for live in arms]
        out = self.launcher.time.find_leavers(all_arms, needs_s, self.baseline, is_first=is_first)
        for label, why in out.items():
            self.setback(by_label[label].arm, why)
            by_label[label].kill()
        return [live for live in arms if live.arm.label not in out]

    def _warm_up(self, live: LiveArm, waiting: int) -> None:
        """Warm one arm up in quiet, on the CPUs where it will play, and hold it again.

        Args:
            waiting: how many have yet to be warmed up.
        """
        limits_s = self.launcher.time.warm_up_s(waiting)

        def get_warm() -> None:
            if live.is_verified:
                self.checked(live.arm, live.loaded, live.verified)
            if live.error:
                raise live.error
            live.release()
            live.get_warm(*limits_s)
            live.hold()
            self.playing.append(live)

        self.launcher.say(f"warming up {live.arm.label}")
        self._run_guarded(live, "entering", get_warm)

    def _begin_anew(self, cleanup: ExitStack, rounds_s: float = 0.0) -> bool:
        """Begin those again whose process was killed; then all play from the first round on. False where none was.

        Where there are rounds, and no time for that and so many seconds of new ones, they leave, and the rounds stay.
        """
        whys, self._lost = self._lost, {}
        lost = [arm for arm in self.arms if arm.label in whys]
        if self.rounds and not self._has_time_for(rounds_s + entering_s(self.playing)):
            for arm in lost:
                self.setback(arm, whys[arm.label])
            return False
        if lost:
            for live in self._load_arms(lost, cleanup):
                self._warm_up(live, 1)
            for live in self.playing:
                live.turns.clear()
            self.disturbed, self.rounds = [], 0
        return bool(lost)

    def _play_rounds(self, cleanup: ExitStack) -> None:
        """Play so many rounds, whatever the machine does: a disturbed one is flagged, not waited out or repeated."""
        least = self.asked.least or least_rounds(live.tuned for live in self.playing)
        wanted = self.asked.most or rounds_for(self.playing, least)
        round_s = self.asked.round_s or 0.0
        while self.playing and self.rounds < wanted and self._has_time_for(round_s):
            if self.rounds >= least and not self.launcher.time.restart.allows(round_s):
                break
            self.launcher.say(f"round {self.rounds + 1}/{wanted}")
            hung_s = self.hung_s
            disturbances = self._watch_machine()
            with Stopwatch() as watch:
                is_whole = self._play_round(wanted)
            if self._begin_anew(cleanup, least * watch.seconds):
                continue
            if not is_whole:
                break
            gpus = {
                live.arm.label: (max(live.sm_clocks_mhz, default=None), gpu)
                for live in self.playing
                if (gpu := live.turns[-1].gpu)
            }
            if found := disturbances(gpus):
                self.disturbed.append((self.rounds, found))
            self.rounds += 1
            if self.asked.round_s is None:
                round_s = watch.seconds - (self.hung_s - hung_s)
        for live in self.playing:
            del live.turns[self.rounds :]
        self.is_cut |= self.rounds < least and (bool(self.playing) or not self._has_time_for(0.0))

    def _has_time_for(self, seconds: float) -> bool:
        return not self.is_late and self.launcher.time.run.allows(seconds)

    def _play_round(self, wanted: int) -> bool:
        """Run a turn of every arm; return False if the time is over before all have had theirs."""
        computes = scenario_of(self.playing[0].arm).compute_rounds
        computes = least_compute_rounds((live.tuned for live in self.playing), computes)
        read = SCOPES if self.rounds < computes else SCOPES[:1]
        rest_s = self.asked.rest_s(len(self.playing))
        asks = self._next_asks(tuple(_shuffle(read, self.rng)))
        left = wanted - self.rounds
        needs_s = {live.arm.label: self.asked.needed_s(asks[live.arm.label], live, left) for live in self.playing}
        if any(needs_s.values()):  # an arm without time for so many rounds stays out
            if not self._has_time_for(min(needs_s.values())):
                return False
            self.playing = self._keep_out(self.playing, needs_s)
        for live in _shuffle(self.playing, self.rng):
            if wanted < ROUNDS:  # each takes long
                self.launcher.say(f"round {self.rounds + 1}/{wanted}: {live.arm.label}")
            if rest_s:
                sleep(rest_s)  # all arms are held: the machine cools down from the turn before
            self._run_guarded(live, "a round", partial(self._take_turn, live, asks[live.arm.label]))
            if self.is_late:
                return False
        return True

    def _next_asks(self, scopes: tuple[Scope, ...]) -> dict[str, Ask]:
        """Return what each arm is asked in the next round, by label; an arm of which nothing can be asked leaves."""
        found, beside = dict[str, Ask](), len(self.playing)

        def ask(live: LiveArm) -> None:
            found[live.arm.label] = self.asked.ask(live, scopes, self.flagged, beside)

        for live in list(self.playing):
            self._run_guarded(live, "a round", partial(ask, live))
        return found

    def _take_turn(self, live: LiveArm, ask: Ask) -> None:
        live.release()
        with self._count_seconds("rounds"):
            live.turns.append(live.turn(ask))
        live.hold()

    @property
    def flagged(self) -> tuple[int, ...]:
        """Return the numbers of the flagged rounds, from 0."""
        return tuple(number for number, _ in self.disturbed)

    def _watch_machine(self) -> Callable[[Gpus], tuple[Disturbance, ...]]:
        """Start watching the machine; call what is returned to learn what disturbed it since."""
        arms = list(self.playing)
        contexts = sum(accelerator(live.arm.target.device) is not None for live in arms)
        before_ns = total_cpu_ns(arms)
        self.launcher.watch.begin()

        def disturbances(gpus: Gpus) -> tuple[Disturbance, ...]:
            # An arm that left meanwhile took its count along: then others' CPU time can't be told from ours.
            after_ns = total_cpu_ns(arms) if len(self.playing) == len(arms) else None
            spent_ns = None if before_ns is None or after_ns is None else after_ns - before_ns
            return self.launcher.watch.reasons(gpus, spent_ns, contexts)

        return disturbances

    def _end_arms(self) -> None:
        """Ask each arm what it took, and whether it still computes, as quietly as in a round, while there is time."""

        def take(live: LiveArm) -> None:
            live.release()
            live.peak_rss_bytes = live.peak_memory()
            tail, left_s = tail_calls() if self.tails else (0, 0), self.launcher.time.run.left_s
            live.single_ns = scenario_of(live.arm).read_after(live, left_s, tail)
            if live.arm.target.device.is_gpu:
                disturbances = self._watch_machine()
                live.on_gpu = undisturbed(live.read_gpu(), partial(disturbances, {}))
            if self._has_time_for(live.call_ns / 1e9):
                live.recheck()
            live.hold()  # the next one leaves in the same quiet

        for live in list(self.playing):
            if self._has_time_for(0.0):
                self._run_guarded(live, _LEAVING, partial(take, live))

    def took_s(self, wall_s: float) -> dict[str, float]:
        """Return each arm's part of the restart, which took so long, by label, had it had the fewest rounds."""
        before = {live.arm.label: sum(live.spent_s.values()) for live in self.playing}
        turns = {
            live.arm.label: [sum(float(ns.sum()) for ns in turn.latency_ns.values()) / 1e9 for turn in live.turns]
            for live in self.playing
        }
        scale = wall_s / (sum(before.values()) + sum(map(sum, turns.values())) or 1.0)
        return {label: scale * (spent + sum(turns[label][:MIN_ROUNDS])) for label, spent in before.items()}

    def lines(self, group: str, wall_s: float) -> tuple[list[Played], records.Rounds]:
        """Return what the journal says of it: a line for each arm that played, and the one that closes them.

        Args:
            wall_s: seconds that all of it took.
        """
        played = [
            Played(
                group=group,
                arm=live.arm.label,
                restart=self.index,
                load_s=live.loaded.load_s,
                first_call_s=live.loaded.first_call_s,
                warm_up_calls=live.warm_up_calls,
                steady_from=live.steady_from,
                executed=live.verified.executed,
                fidelity=live.verified.fidelity,
                per_reading=dict(live.tuned.per_reading) | ({SINGLE: 1} if live.single_ns.size else {}),
                block_median_ns=block_medians(live),
                flagged=self.flagged if scenario_of(live.arm).counts_rounds(live.turns) else (),
                rss_before_bytes=live.loaded.rss_before_bytes,
                rss_after_bytes=live.loaded.rss_after_bytes,
                peak_rss_bytes=live.peak_rss_bytes,
                samples=self.samples,
                cpus=tuple(sorted(live.placed.cpus)),
                os_threads=live.placed.os_threads,
                served=self.asked.result(live, self.flagged),
                bins=tuple(part for turn in live.turns for part in turn.bins),
                gpu=played_on_gpu(live),
                spent_s=dict(live.spent_s),
                forked=live.loaded.forked,
            )
            for live in self.playing
        ]
        rounds = records.Rounds(
            group=group,
            restart=self.index,
            tried=self.rounds,
            voided=tuple(self.disturbed),
            wall_s=wall_s,
            spent_s=self.spent_s,
            killed=tuple(self.killed),
        )
        return played, rounds

    def _run_guarded(self, live: LiveArm, during: str, step: Callable[[], None]) -> None:
        """Run one arm's step; if the arm fails, note it, end its process and take it out, while the others go on.

        An arm that is late when the time is over is ended, but not out: what it measured before that counts.
        """
        try:
            with Stopwatch() as watch:
                step()
        except (ArmFailed, SkippedArm) as error:
            if isinstance(error, ArmFailed) and error.hung:
                self._count_hung(watch.seconds)
            live.kill()
            label = live.arm.label
            is_late = isinstance(error, SkippedArm) and error.why.kind is NotRunKind.NOT_REACHED
            if is_late and any(one.arm.label == label for one in self.playing):
                self.is_late = True
                return
            why = error.why if is_late else replace(error.why, during=during)
            if why.kind is NotRunKind.KILLED:
                self.killed.append(label)
                if during == _LEAVING:
                    return  # its rounds are whole
                if self.killed.count(label) == 1:
                    self._lost[label] = why
            if label not in self._lost:
                self.setback(live.arm, why)
            self.playing = [one for one in self.playing if one.arm.label != label]


def entering_s(arms: Sequence[LiveArm]) -> float:
    """Return the seconds until one more arm may play, as long as the slowest of these took."""
    return max((sum(live.spent_s.values()) for live in arms), default=0.0)


def rounds_for(arms: Sequence[LiveArm], least: int) -> int:
    """Return 12 rounds; fewer (at least `least`) where calls are so long that 12 would pass the budget of a restart."""
    round_ns = sum(2.0 * sum(live.tuned.call_ns.values()) for live in arms)
    return max(least, min(ROUNDS, int(ROUNDS_BUDGET_NS / max(round_ns, 1.0))))


def block_medians(live: LiveArm) -> dict[str, tuple[float, ...]]:
    """Return by scope what a restart's turns come to (ns), each a figure that counts, and `CPU`."""
    cpu_ns = [turn.cpu_ns for turn in live.turns if turn.cpu_ns is not None]
    compute = (turn.latency_ns["compute"] for turn in live.turns if "compute" in turn.latency_ns)
    return {
        "end_to_end": scenario_of(live.arm).values_ns(live.turns),
        "compute": tuple(float(np.median(ns)) for ns in compute),
    } | ({CPU: tuple(cpu_ns)} if len(cpu_ns) == len(live.turns) > 0 else {})


def undisturbed(figures: OnGpu | None, reasons: Callable[[], tuple[Disturbance, ...]]) -> OnGpu | None:
    """Leave out an energy that other programs may have a share in: the GPU counts all that it takes."""
    if figures is None or figures.energy is None or not (why := reasons()):
        return figures
    return replace(figures, energy=None, faults=(*figures.faults, f"energy isn't reported: {', '.join(map(str, why))}"))


def played_on_gpu(live: LiveArm) -> PlayedOnGpu | None:
    """Return what one restart tells of the GPU, for the journal; None for an arm on the CPU."""
    if not live.arm.target.device.is_gpu:
        return None
    clocks = live.sm_clocks_mhz
    middle_mhz, most_mhz = round(median(clocks)) if clocks else None, max(clocks, default=None)
    return PlayedOnGpu(cost=live.loaded.gpu, sm_clock_mhz=middle_mhz, reference_mhz=most_mhz, on_gpu=live.on_gpu)


def _shuffle(items: Sequence[T], rng: random.Random) -> list[T]:
    return rng.sample(list(items), len(items))
