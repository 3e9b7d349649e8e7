"""Who runs when, while everyone else is held still: one restart, from the shuffled spawn to the last round.

It knows no processes: a `Stage` starts players and a `Watch` brings outside evidence; it times only its own steps, for
the journal. Why the order is shuffled twice and arms are held: docs/measurement.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from shootout.clock import Stopwatch
from shootout.constants import (
    MIN_ROUNDS,
    ROUNDS,
    ROUNDS_BUDGET_NS,
    SERVE_ROUNDS,
    WARM_UP_CALLS,
    WARM_UP_LONG_CALL_NS,
    WARM_UP_LONG_CALLS,
    WARM_UP_NS,
    WARM_UP_SHORT_CALL_NS,
    WARM_UP_SHORT_NS,
    WARMING_SHARE,
)
from shootout.contract import Arm, Array, Device, NotRun
from shootout.errors import ArmOut, Hung, NotRunKind, SkippedArm
from shootout.host.noise import Disturbance, OwnTraces, undisturbed
from shootout.messages import RateStep, Scope
from shootout.race import pace
from shootout.race.loading import Entrance, Loading
from shootout.race.pausing import Suspension, on_gpu
from shootout.race.protocols import Context, Gpus, Performance, Player, WarmUp, cpu_ns
from shootout.race.serving import LoadTest, RateSearch, desk_of, needed_s
from shootout.stats.warmup import steady_from
from shootout.units import span

_MAX_PADDING_BYTES = 4096
_LEAVING = "leaving"
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Restart:
    """One restart of some arms, and what it brought.

    Attributes:
        index: the restart's number, from 0.
        arms: who takes part.
        rng: shuffles spawns, turns and scopes, and draws the environment padding.
        terms: what arms that serve are asked; None where they call.
        baseline: the label of the arm whose calls may set the terms.
        tails: whether each arm is read as often as a p99 takes, however long its calls.
        hung: labels of arms that gave no answer in an earlier process of the run: they are loaded behind the others.
        performances: in spawn order, of the arms that have not left.
        disturbed: the rounds that are flagged, with their reasons.
        rounds: played so far, by every arm that has not left; turns of a round that not all of them played are dropped.
        desk: what arms that serve are asked in this restart.
        spent_s: seconds of its steps, by name; `rounds` are the arms' turns alone, `hand_off` is all between them:
            letting arms run and holding them, watching the machine; `hung` is the wait for arms that gave no answer.
        killed: the label of an arm for each time that its process was killed: it is begun anew once, and then leaves.
        is_late: whether an arm still owed an answer when the run's time was over: then nobody is asked any more.
        is_cut: whether that time was over before enough rounds: then nothing of it counts.
    """

    index: int
    arms: Sequence[Arm]
    context: Context
    rng: random.Random
    terms: LoadTest | None = None
    baseline: str | None = None
    tails: bool = False
    hung: Collection[str] = ()
    performances: list[Performance] = field(default_factory=list, init=False)
    disturbed: list[tuple[int, tuple[Disturbance, ...]]] = field(default_factory=list, init=False)
    rounds: int = field(default=0, init=False)
    desk: RateSearch | None = field(default=None, init=False)
    spent_s: dict[str, float] = field(default_factory=dict, init=False)
    killed: list[str] = field(default_factory=list, init=False)
    is_late: bool = field(default=False, init=False)
    is_cut: bool = field(default=False, init=False)
    _lost: dict[str, NotRun] = field(default_factory=dict, init=False)

    def run(self) -> Restart:
        """Respawn every arm in a shuffled order, then let all of them play rounds, one at a time."""
        with ExitStack() as players:
            with self._spending("load"):
                entrances = self._load(self.arms, players)
            with self._spending("warm_up"):
                entering = self._in_time(entrances)
                for place, entrance in enumerate(entering):
                    self._enter(entrance, len(entering) - place)
                self._begin_anew(players)
                self._shorten()
            if self.context.hold:
                self._settle(self.context.hold)
            if self.terms:
                self.desk = desk_of(self.terms, self.performances, self.baseline, self.index, self.rng.randrange(2**32))
            with self._spending("hand_off"):
                self._play_rounds(players)
            self.spent_s["hand_off"] -= self.spent_s.setdefault("rounds", 0.0)
            with self._spending("leave"):
                self._leave()
        return self

    @contextmanager
    def _spending(self, step: str) -> Iterator[None]:
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

    def _load(self, arms: Sequence[Arm], players: ExitStack) -> list[Entrance]:
        """Load and verify these arms, side by side; a fault keeps one out of the rounds."""
        shuffled = sorted(_shuffled(arms, self.rng), key=lambda arm: arm.label in self.hung)
        entrances = [Entrance(arm=arm, padding=self.rng.randrange(_MAX_PADDING_BYTES)) for arm in shuffled]
        stage, say = self.context.stage, self.context.notes.say
        with Stopwatch() as watch:
            Loading(stage=stage, index=self.index, players=players, say=say).run(entrances)
        if any(isinstance(one.error, Hung) for one in entrances):
            others_s = [sum(one.spent_s.values()) for one in entrances]
            self._count_hung(watch.seconds - max(sum(others_s) / stage.lanes, *others_s, 0.0))
        return entrances

    def _in_time(self, entrances: Sequence[Entrance]) -> list[Entrance]:
        """Those that there is time for, by what a call of them seems to take."""
        needs_s = {one.arm.label: pace.foreseen_s(one, self.terms) for one in entrances}
        out = self._keep_out(entrances, needs_s, is_first=self.index == 0)
        found = [one for one in entrances if one.arm not in out]
        self.is_cut = not found
        return found

    def _shorten(self) -> None:
        """Likewise of those that are warm, by what a call of them takes; nobody is out where the time is over."""
        if not self.terms and self._allows(0.0):
            needs_s = {one.arm.label: pace.least_rounds_s(one.tuned) for one in self.performances}
            out = self._keep_out(self.performances, needs_s, is_first=False)
            self.performances[:] = [one for one in self.performances if one.arm not in out]

    def _keep_out(
        self, found: Sequence[Entrance | Performance], needs_s: Mapping[str, float], *, is_first: bool
    ) -> list[Arm]:
        """End those that there is no time for, and say so; see `pace.leavers`."""
        left_s, whole_s = self.context.deadline.left_s, sum(needs_s.values())
        out = pace.leavers([one.arm for one in found], needs_s, self.baseline, left_s, is_first=is_first)
        for arm in out:
            more = ", and a verdict takes two" if is_first and whole_s <= left_s else ""
            leaves = f"{'; ' if more else ', and '}--max-time leaves {span(left_s)}"
            reason = f"a restart with it takes {span(whole_s)} at least{more}{leaves}"
            fix = "run the same command again, with more time"
            self.context.notes.setback(arm, NotRun(NotRunKind.NOT_REACHED, reason, fix))
            whole_s -= needs_s[arm.label]
        for one in found:
            if one.arm in out and one.player:
                one.player.kill()
        return out

    def _enter(self, entrance: Entrance, waiting: int) -> None:
        """Warm one arm up in quiet, on the CPUs where it will play, and hold it again.

        Args:
            waiting: how many have yet to be warmed up; where the time is short, they share half of it.
        """
        most_s = max(0.0, self.context.deadline.left_s / 2 / waiting)
        pace_s = max(0.0, self.context.pace.left_s * WARMING_SHARE / waiting)

        def enter() -> None:
            player, loaded, verified = entrance.player, entrance.loaded, entrance.verified
            if loaded and verified:
                self.context.notes.checked(entrance.arm, loaded, verified)
            if entrance.error:
                raise entrance.error
            assert player
            assert loaded
            assert verified
            player.release()
            with Stopwatch() as watch:
                warm, tuned = warm_up(player, most_s, pace_s), player.tune()
            performance = Performance(
                arm=entrance.arm,
                player=player,
                loaded=loaded,
                verified=verified,
                warm_up=warm,
                tuned=tuned,
                placed=player.placed(),
                spent_s={**entrance.spent_s, "warm_up": watch.seconds},
            )
            player.hold()
            self.performances.append(performance)

        self.context.notes.say(f"warming up {entrance.arm.label}")
        self._guarded(entrance.arm, entrance.player, "entering", enter)

    def _begin_anew(self, players: ExitStack, rounds_s: float = 0.0) -> bool:
        """Begin those anew whose process was killed; then all play from the first round on. False where none was.

        Where there are rounds, and no time for that and so many seconds of new ones, they leave, and the rounds stay.
        """
        whys, self._lost = self._lost, {}
        lost = [arm for arm in self.arms if arm.label in whys]
        if self.rounds and not self._allows(rounds_s + pace.entering_s(self.performances)):
            for arm in lost:
                self.context.notes.setback(arm, whys[arm.label])
            return False
        if lost:
            for entrance in self._load(lost, players):
                self._enter(entrance, 1)
            for performance in self.performances:
                performance.turns.clear()
            self.disturbed, self.rounds = [], 0
        return bool(lost)

    def _settle(self, hold: Suspension) -> None:
        """Find out, once in a run, whether arms on the GPU may be stopped; the fastest one feels it most."""
        if not (arms := hold.untried(self.performances)):
            return
        self.context.notes.say("trying how to hold targets on the GPU")
        self._guarded(arms[0].arm, arms[0].player, "trying how to hold", partial(hold.settle, arms))

    def _play_rounds(self, players: ExitStack) -> None:
        """So many rounds, whatever the machine does: a disturbed one is flagged, not waited out and not repeated."""
        wanted, least = (SERVE_ROUNDS, SERVE_ROUNDS) if self.desk else (rounds_for(self.performances), MIN_ROUNDS)
        round_s = 0.0
        while self.performances and self.rounds < wanted and self._allows(round_s):
            if self.rounds >= least and not self.context.pace.allows(round_s):
                break
            self.context.notes.say(f"round {self.rounds + 1}/{wanted}")
            hung_s = self.hung_s
            disturbances = self._watched()
            with Stopwatch() as watch:
                is_whole = self._play_round(wanted)
            if self._begin_anew(players, least * watch.seconds):
                continue
            if not is_whole:
                break
            gpus = {one.arm.label: seen for one in self.performances if (seen := one.look_at_gpu())}
            if found := disturbances(gpus):
                self.disturbed.append((self.rounds, found))
            self.rounds += 1
            round_s = 0.0 if self.desk else watch.seconds - (self.hung_s - hung_s)
        for performance in self.performances:
            del performance.turns[self.rounds :]
        self.is_cut |= self.rounds < least and (bool(self.performances) or not self._allows(0.0))

    def _allows(self, seconds: float) -> bool:
        return not self.is_late and self.context.deadline.allows(seconds)

    def _play_round(self, wanted: int) -> bool:
        """A turn of every arm; False when the time is over before all have had theirs."""
        scopes = tuple(_shuffled(list(Scope), self.rng))
        offers = self._offers()
        if offers and not self._fit(offers):
            return False
        for performance in _shuffled(self.performances, self.rng):
            if wanted < ROUNDS:  # each takes long
                self.context.notes.say(f"round {self.rounds + 1}/{wanted}: {performance.arm.label}")
            take = partial(self._take_turn, performance, scopes, offers.get(performance.arm.label))
            self._guarded(performance.arm, performance.player, "a round", take)
            if self.is_late:
                return False
        return True

    def _offers(self) -> dict[str, RateStep]:
        """What each arm that serves is asked in the next round, by label."""
        found: dict[str, RateStep] = {}
        if not (desk := self.desk):
            return found

        def ask(performance: Performance) -> None:
            found[performance.arm.label] = desk.offer(performance, self.flagged)

        for performance in list(self.performances):
            self._guarded(performance.arm, performance.player, "a round", partial(ask, performance))
        return found

    def _fit(self, offers: Mapping[str, RateStep]) -> bool:
        """Keep those out that there is no time to ask so, and as often as is left; False where there is for nobody."""
        left = SERVE_ROUNDS - self.rounds
        needs_s = {one.arm.label: needed_s(offers[one.arm.label], one, left) for one in self.performances}
        if not self._allows(min(needs_s.values())):
            return False
        out = self._keep_out(self.performances, needs_s, is_first=False)
        self.performances[:] = [one for one in self.performances if one.arm not in out]
        return True

    def _take_turn(self, performance: Performance, scopes: tuple[Scope, ...], offer: RateStep | None) -> None:
        player = performance.player
        player.release()
        with self._spending("rounds"):
            turn = player.serve(offer) if offer else player.turn(scopes)
        performance.turns.append(turn)
        player.hold()

    @property
    def flagged(self) -> tuple[int, ...]:
        """The numbers of the flagged rounds, from 0."""
        return tuple(number for number, _ in self.disturbed)

    def _watched(self) -> Callable[[Gpus], tuple[Disturbance, ...]]:
        """Start watching the machine; what is returned tells, once it is called, what disturbed the time since."""
        players, contexts = [performance.player for performance in self.performances], self._cuda_contexts()
        before_ns = cpu_ns(players)
        self.context.watch.begin()

        def disturbances(gpus: Gpus) -> tuple[Disturbance, ...]:
            # Who left meanwhile took its count along: then nobody can tell others' CPU time from ours.
            after_ns = cpu_ns(players) if len(self.performances) == len(players) else None
            spent_ns = None if before_ns is None or after_ns is None else after_ns - before_ns
            return self.context.watch.reasons(gpus, OwnTraces(gpu_processes=contexts, cpu_ns=spent_ns))

        return disturbances

    def _leave(self) -> None:
        """Ask each arm what it took, and whether it still computes, as quietly as in a round, while there is time."""

        def take(performance: Performance) -> None:
            player = performance.player
            player.release()
            performance.peak_rss_bytes = player.peak_memory()
            performance.read_singly()
            if self.tails:
                performance.read_tail(self.context.deadline.left_s)
            if on_gpu(performance.arm):
                disturbances = self._watched()
                performance.on_gpu = undisturbed(player.on_gpu(), partial(disturbances, {}))
            if self._allows(performance.tuned.call_ns[Scope.END_TO_END] / 1e9):
                player.recheck()
            player.hold()  # the next one leaves in the same quiet

        for performance in list(self.performances):
            if self._allows(0.0):
                self._guarded(performance.arm, performance.player, _LEAVING, partial(take, performance))

    def _cuda_contexts(self) -> int:
        """How many arms that are alive have a CUDA context."""
        return sum(performance.arm.target.device is Device.CUDA for performance in self.performances)

    def _guarded(self, arm: Arm, player: Player | None, during: str, step: Callable[[], None]) -> None:
        """Run one arm's step; if the arm fails, note it, end its process and take it out, while the others go on.

        Who is late when the time is over is ended, but not out: what it measured before that counts.
        """
        try:
            with Stopwatch() as watch:
                step()
        except ArmOut as error:
            if isinstance(error, Hung):
                self._count_hung(watch.seconds)
            if player:
                player.kill()
            is_late = isinstance(error, SkippedArm) and error.why.kind is NotRunKind.NOT_REACHED
            if is_late and any(p.arm.label == arm.label for p in self.performances):
                self.is_late = True
                return
            why = error.why if is_late else replace(error.why, during=during)
            if why.kind is NotRunKind.KILLED:
                self.killed.append(arm.label)
                if during == _LEAVING:
                    return  # its rounds are whole
                if self.killed.count(arm.label) == 1:
                    self._lost[arm.label] = why
            if arm.label not in self._lost:
                self.context.notes.setback(arm, why)
            self.performances[:] = [p for p in self.performances if p.arm.label != arm.label]


def warm_up(player: Player, most_s: float = math.inf, pace_s: float = math.inf) -> WarmUp:
    """Call until the last segment of the latencies is steady and holds half of them, or time is up.

    Args:
        most_s: what is left of the run's time for it.
        pace_s: the time after which a few calls that are steady do.
    """
    most_ns = max(1, int(min(most_s * 1e9, WARM_UP_NS)))
    latency = player.warm(WARM_UP_LONG_CALLS, most_ns).latency_ns
    call_ns = float(np.median(latency))
    limit_ns = min(WARM_UP_SHORT_NS if call_ns < WARM_UP_SHORT_CALL_NS else WARM_UP_NS, most_ns)
    if call_ns < WARM_UP_LONG_CALL_NS:
        latency = _more(player, latency, WARM_UP_CALLS - latency.size, int(min(limit_ns, pace_s * 1e9)))
    steady = steady_from(latency)
    while steady is None and float(latency.sum()) < limit_ns:
        latency = _more(player, latency, latency.size, limit_ns)
        steady = steady_from(latency)
    return WarmUp(calls=latency.size, steady_from=steady)


def _more(player: Player, latency: Array, calls: int, limit_ns: int) -> Array:
    if (remaining_ns := limit_ns - int(latency.sum())) <= 0:
        return latency
    return np.concatenate([latency, player.warm(calls, remaining_ns).latency_ns])


def rounds_for(performances: Sequence[Performance]) -> int:
    """12 rounds, fewer (at least 4) where calls are so long that 12 would pass the budget of a restart."""
    round_ns = sum(2.0 * sum(performance.tuned.call_ns.values()) for performance in performances)
    return max(MIN_ROUNDS, min(ROUNDS, int(ROUNDS_BUDGET_NS / max(round_ns, 1.0))))


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    return rng.sample(list(items), len(items))
