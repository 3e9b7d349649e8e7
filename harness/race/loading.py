"""Loading and verifying the arms of a restart, side by side: nothing is timed yet, so every CPU may help.

Each lane is a set of as many CPUs as an arm has. An arm is loaded in one lane, then its threads are moved to the arms'
own CPUs and it is held. One whose library pins its threads while it loads is loaded on those CPUs in the first place,
and arms with a GPU context one after the other, behind all others. What they are forked from (see `worker.fork_server`)
is ready before the first one begins, so that the drawn order holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock

from shootout.clock import Stopwatch
from shootout.contract import Arm
from shootout.errors import ArmFailed, ArmOut, NotRunKind, SkippedArm
from shootout.messages import Loaded, Verified
from shootout.race.pausing import on_gpu
from shootout.race.protocols import Player, Stage, Starters

OWN = 0
"""The lane of the arms' own CPUs."""
UNTIMED = (
    "software device: not timed",
    "",
    NotRunKind.SOFTWARE,
)


@dataclass(slots=True, kw_only=True, eq=False)
class Entrance:
    """One arm on its way into a restart: its process and what it brought, or why it is out.

    Attributes:
        padding: bytes more in its environment.
        spent_s: seconds of the steps, by name; `load` begins with the process.
    """

    arm: Arm
    padding: int
    player: Player | None = None
    loaded: Loaded | None = None
    verified: Verified | None = None
    error: ArmOut | None = None
    spent_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Loading:
    """The loads of one restart.

    Attributes:
        index: the restart's number.
        players: ends every process on exit.
        say: hears which arm is next; from any thread.
    """

    stage: Stage
    index: int
    players: ExitStack
    say: Callable[[str], None]
    _waiting: list[Entrance] = field(default_factory=list, init=False)
    _begun: list[Player] = field(default_factory=list, init=False)
    _starters: Starters = field(init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def run(self, entrances: Sequence[Entrance]) -> None:
        """Bring each as far as it gets, spawned in this order; an exception in one thread ends them all."""
        self._waiting = [one for one in entrances if not on_gpu(one.arm)]
        self._starters = self.stage.starters()
        self.players.callback(self._starters.kill)
        helpers = range(OWN + 1, min(self.stage.lanes, len(self._waiting)))
        # A process is killed when the thread that started it ends, so the threads stay as long as the players do.
        pool = self.players.enter_context(ThreadPoolExecutor(max(1, len(helpers))))
        try:
            running = [pool.submit(self._serve, lane) for lane in helpers]
            self._serve(OWN)
            for helper in running:
                helper.result()
        except BaseException:
            self._stop()
            raise
        for one in entrances:
            if on_gpu(one.arm):
                self._enter(one, OWN)
        self._starters.kill()

    def _serve(self, lane: int) -> None:
        while entrance := self._next(lane):
            try:
                self._enter(entrance, lane)
            except BaseException:
                self._stop()
                raise

    def _next(self, lane: int) -> Entrance | None:
        """The first that may be loaded in this lane; None where none is left."""
        with self._lock:
            found = next((one for one in self._waiting if self.stage.place(one.arm, lane)), None)
            if not found or self._stopped:
                return None
            self._waiting.remove(found)
            return found

    def _stop(self) -> None:
        """Let nobody begin, and everybody who waits for an answer hear that there will be none."""
        with self._lock:
            self._stopped = True
            self._starters.end()
            for player in self._begun:
                player.end()

    def _enter(self, entrance: Entrance, lane: int) -> None:
        self.say(f"loading {entrance.arm.label}")
        try:
            with Stopwatch() as load:
                self._starters.prepare(entrance.arm, lane, entrance.padding)
                player = entrance.player = self._spawn(entrance)
                if lane != OWN:
                    player.move(self.stage.place(entrance.arm, lane))
                entrance.loaded = player.load()
            with Stopwatch() as verify:
                entrance.verified = player.verify()
            entrance.spent_s = {"load": load.seconds, "verify": verify.seconds}
            if entrance.verified.fault:
                raise ArmFailed(entrance.verified.fault)
            if entrance.verified.executed.software:
                raise SkippedArm(*UNTIMED)
            if lane != OWN:
                player.move(self.stage.place(entrance.arm, OWN))
            player.hold()
        except ArmOut as error:
            entrance.error = error
            if entrance.player:
                entrance.player.end()

    def _spawn(self, entrance: Entrance) -> Player:
        player = self.stage.spawn(entrance.arm, self.index, entrance.padding)
        with self._lock:
            self.players.callback(player.kill)
            self._begun.append(player)
            if self._stopped:
                player.end()
        return player
