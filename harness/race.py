"""One group's race: its state between generations, the same for a live run, a resumed one and a test with fakes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shootout import referee
from shootout.conductor import play
from shootout.constants import MAX_VOID_SHARE
from shootout.contract import Arm, Array
from shootout.messages import Scope
from shootout.stage import Generation, Notes, Performance, Setback, Stage, Watch


@dataclass(kw_only=True)
class Race:
    """Who is in, and what each has shown.

    Attributes:
        arms: by label, the sentinel among them.
        blocks: end-to-end block medians (ns) by label and generation.
        played: generations so far, those without a valid round among them.
        tried: rounds so far, `voided` ones among them.
        out: labels that failed or turned out impossible.
    """

    arms: Mapping[str, Arm]
    rules: referee.Rules
    seed: str
    blocks: dict[str, dict[int, Array]] = field(default_factory=dict)
    played: int = 0
    tried: int = 0
    voided: int = 0
    out: set[str] = field(default_factory=set)

    def players(self) -> list[Arm]:
        """Who plays the next generation; nobody when the race is over."""
        alive = [label for label in self.arms if label not in self.out]
        disturbed = self.voided > MAX_VOID_SHARE * self.tried
        labels = referee.next_players(alive, self.blocks, self.rules, self.played, disturbed=disturbed)
        return [self.arms[label] for label in labels]

    def generation(self, players: list[Arm], stage: Stage, watch: Watch, notes: Notes) -> Generation:
        """Play the next generation and take what it showed into account."""

        def setback(found: Setback) -> None:
            self.out.add(found.arm.label)
            notes.setback(found)

        rng = random.Random(f"{self.seed} {self.played}")
        found = play(self.played, players, stage, watch, rng, Notes(say=notes.say, setback=setback))
        for performance in found.performances:
            medians = block_medians(performance)[Scope.END_TO_END]
            if medians:
                self.blocks.setdefault(performance.arm.label, {})[self.played] = np.array(medians)
        self.played += 1
        self.tried += found.rounds
        self.voided += len(found.voids)
        return found


def block_medians(performance: Performance) -> dict[str, tuple[float, ...]]:
    """By scope, the median (ns) of each valid round's block."""
    return {
        scope.value: tuple(float(np.median(turn.latency_ns[scope])) for turn in performance.turns) for scope in Scope
    }
