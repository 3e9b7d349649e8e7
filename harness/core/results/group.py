"""Tell how a group stands, from its part of the journal alone: comparisons, the control, what stands against a verdict.

A group's verdicts stand if the control comes out like the baseline, and both arms are sound.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shootout.core.constants import CONTROL_WITHIN
from shootout.core.contract import Array, NotRun, NotRunKind
from shootout.core.errors import NO_FAULT
from shootout.core.journal.journal import History
from shootout.core.journal.records import Checked, Header, Line, Played, Prepared, Rounds, Setback
from shootout.core.messages import LoadTestResult, Scope
from shootout.core.scenario import scenario_of
from shootout.core.stats.group_evidence import GroupEvidence, Pair, Rules
from shootout.core.stats.leaders import restarts_left, time_ns
from shootout.core.stats.readings import is_unsteady
from shootout.core.stats.verdicts import LEAST_RESTARTS, Comparison, Verdict
from shootout.core.study.group import GroupRecord, copy_of, exact_of, with_next_baseline

SHORTEST_NS, LONGEST_NS = 1e-9, 1e30
"""A journal may be a stranger's, and say times whose ratios are infinite."""


def counting(rounds: int, flagged: Collection[int]) -> list[int]:
    """Return the rounds that a restart counts by: the unflagged ones if these are at least half of it, else all.

    No restart is ever left out: those in which an arm did badly would be missing.
    """
    calm = [number for number in range(rounds) if number not in flagged]
    return calm if 2 * len(calm) >= rounds else list(range(rounds))


def counted(medians: Sequence[float], flagged: Collection[int]) -> Array:
    """Return the block medians (ns) that a restart counts by; see `counting`."""
    return np.array(medians, dtype=np.float64)[counting(len(medians), flagged)]


@dataclass(frozen=True, slots=True)
class Group:
    """One group's part of the journal: of a run that is over, or of a race, which adds each restart's lines.

    Attributes:
        old_copies: labels of the copies of former baselines, whose times count no more.
    """

    record: GroupRecord
    rules: Rules
    played: dict[str, list[Played]]
    rounds: list[Rounds]
    prepared: dict[str, Prepared]
    setbacks: dict[str, NotRun]
    checked: dict[str, Checked] = field(default_factory=dict)
    old_copies: frozenset[str] = frozenset()
    _blocks: dict[str, dict[str, dict[int, Array]]] = field(default_factory=dict, init=False, compare=False)
    _evidence: dict[Hashable, GroupEvidence] = field(default_factory=dict, init=False, compare=False)

    def take(self, lines: Iterable[Played], rounds: Rounds) -> None:
        """Add the lines of one more restart; an arm that was killed before, and plays, is in again."""
        for line in lines:
            self.played.setdefault(line.arm, []).append(line)
            self.setbacks.pop(line.arm, None)
        self.rounds.append(rounds)
        self._blocks.clear()
        self._evidence.clear()

    def with_sound_baseline(self) -> Group:
        """Return the group with the next plain target as its baseline if its own was refused; else the group itself.

        Likewise if its own is late before it has the restarts of a verdict: no copy of it could vouch for one. The new
        one's copy is last. The old copy is no target; it took time in the restarts that it played, so its lines stay.
        """
        # one that was killed plays once more
        gone = {label for label, why in self.setbacks.items() if why.kind is not NotRunKind.KILLED}
        has_few = len(self.played.get(str(self.record.baseline), ())) < LEAST_RESTARTS
        record = with_next_baseline(self.record, gone if has_few else find_faulty(self.setbacks), self.played)
        if record.baseline == self.record.baseline:
            return self
        rules = replace(self.rules, baseline=record.baseline, control=record.arms[-1].label)
        return replace(self, record=record, rules=rules, old_copies=self.old_copies | {str(self.rules.control)})

    def blocks(self, scope: str) -> dict[str, dict[int, Array]]:
        """Return the block medians in ns that count, by label and restart; restarts without any are left out.

        Args:
            scope: or `CPU`.
        """
        if scope not in self._blocks:
            labels = self.played.keys() - self.old_copies
            self._blocks[scope] = {label: self.blocks_of(scope, label) for label in self.played if label in labels}
        return self._blocks[scope]

    def blocks_of(self, scope: str, label: str) -> dict[int, Array]:
        """Return likewise that of one arm, by restart."""
        lines = self.played.get(label, ())
        found = {line.restart: counted(line.block_median_ns.get(scope, ()), line.flagged) for line in lines}
        return {
            g: medians
            for g, medians in found.items()
            if medians.size and np.all(medians > SHORTEST_NS) and np.all(medians < LONGEST_NS)
        }

    def evidence(self, scope: str, barred: Collection[str] = ()) -> GroupEvidence:
        """Return what all verdicts of this scope stand on; the race goes by that of end to end.

        Args:
            barred: arms that break a limit, on which a race spends no restart.
        """
        out = frozenset((label, why.kind) for label, why in self.setbacks.items())
        key = (scope, out, frozenset(barred))
        if key not in self._evidence:
            self._evidence[key] = GroupEvidence(self.blocks(scope), self.rules, self._find_unfit(scope), {*barred})
        return self._evidence[key]

    def restarts_left(self, barred: Collection[str] = ()) -> dict[Pair, float]:
        """Return the pairs that the goal still waits for, each with the restarts that it takes, if that is known.

        Args:
            barred: the arms that can't be chosen whatever their times, by what the run is for.
        """
        labels = [label for label in self.played if label not in self.setbacks]
        return restarts_left(self.evidence("end_to_end", barred), labels, self.unsteady)

    def _find_unfit(self, scope: str) -> set[str]:
        """Return the arms that can't be the answer, as they stand, so that no verdict among them is waited for.

        They broke, found no steady state in most of their restarts, or break a limit that their scenario holds them to.
        """
        arms, blocks = {arm.label: arm for arm in self.record.arms}, self.blocks(scope)
        tails = (
            (label, scenario_of(arms[label]).tail(done, time_ns(blocks.get(label, {}))))
            for label, done in self.served.items()
            if label in arms
        )
        breaking = {label for label, tail in tails if tail and tail.breaks}
        return find_faulty(self.setbacks) | self.unsteady | breaking

    @property
    def unsteady(self) -> set[str]:
        """Return the arms that found no steady state in most of their restarts."""
        return {label for label, starts in self.steady_from.items() if is_unsteady(starts)}

    @property
    def steady_from(self) -> dict[str, list[int | None]]:
        """Return by label the first steady call of each restart that it played; None where there was none."""
        return {label: [line.steady_from for line in lines] for label, lines in self.played.items()}

    @property
    def served(self) -> dict[str, list[LoadTestResult]]:
        """Return by label what each restart under requests came to; of arms that serve alone."""
        found = {label: [line.served for line in lines if line.served] for label, lines in self.played.items()}
        return {label: done for label, done in found.items() if done}

    def players(self, restart: int) -> int:
        """Return how many arms played a restart."""
        return sum(line.restart == restart for lines in self.played.values() for line in lines)

    @property
    def next_restart(self) -> int:
        """Return one more than the last restart that left any line, so that no number is used twice."""
        seen = [line.restart for line in self.rounds]
        seen += [line.restart for lines in self.played.values() for line in lines]
        return max(seen, default=-1) + 1

    @property
    def void_share(self) -> float:
        """Return the flagged rounds ÷ all rounds."""
        tried = sum(line.tried for line in self.rounds)
        return sum(len(line.voided) for line in self.rounds) / tried if tried else 0.0


def group_of(history: History, record: GroupRecord) -> Group:
    """Return all that the journal says of one group."""
    mine = history.of_group(record.name)
    played: dict[str, list[Played]] = {}
    for line in (line for line in mine if isinstance(line, Played)):
        played.setdefault(line.arm, []).append(line)
    setbacks = _setbacks(mine, played)
    last = {arm.label: played[name][-1].restart for arm in record.arms if (name := copy_of(arm).label) in played}
    copied = [label for label, restart in last.items() if restart == max(last.values())]
    # one that was late may have played later on, but the copies tell which is the baseline
    record = with_next_baseline(record, find_faulty(setbacks) | {str(record.baseline)} - {*copied}, copied)
    played = {arm.label: played[arm.label] for arm in record.arms if arm.label in played}  # an old copy is no target
    return Group(
        record=record,
        rules=rules_of(record, history.header),
        played=played,
        rounds=[line for line in mine if isinstance(line, Rounds)],
        prepared={line.arm: line for line in mine if isinstance(line, Prepared)},
        setbacks=setbacks,
        checked={line.arm: line for line in mine if isinstance(line, Checked)},
    )


def _setbacks(lines: Sequence[Line], played: Collection[str]) -> dict[str, NotRun]:
    """Return why arms are out, by label.

    Left out: an arm that had no time but has played, and one that played after it was killed or after it had left
    because of limits that were loosened since.
    """
    found: dict[str, NotRun] = {}
    for line in lines:
        if isinstance(line, Setback):
            if line.why.kind is not NotRunKind.NOT_REACHED or line.arm.label not in played:
                found[line.arm.label] = line.why
        elif isinstance(line, Played) and line.arm in found and found[line.arm].kind in NO_FAULT:
            del found[line.arm]
    return found


def find_faulty(setbacks: Mapping[str, NotRun]) -> set[str]:
    """Return the arms that are out for good, and not for want of time or by a limit: what they measured is void."""
    return {label for label, why in setbacks.items() if why.kind not in NO_FAULT}


def rules_of(record: GroupRecord, header: Header) -> Rules:
    """Return what the group's race is judged by."""
    return Rules(
        baseline=record.baseline,
        control=next((arm.label for arm in record.arms if arm.control), None),
        comparisons=record.comparisons,
        max_restarts=header.max_restarts,
        bias_floor=header.bias_floor,
        goal=record.goal,
        exact=exact_of(record.arms),
        references=record.references,
        least_restarts=record.least_restarts,
    )


def against(group: Group, scope: Scope, label: str | None, other: str | None) -> Comparison | None:
    """Return an arm against another, or None if they have no restart in common."""
    if label is None or other is None or label == other:
        return None
    return group.evidence(scope).compare(label, other)


def withheld(group: Group, label: str, other: str | None) -> str | None:
    """Return why no verdict on an arm against another may be given, whatever the interval says; None when one may."""
    return unvouched(group) or unfit_for(group, label) or unfit_for(group, other)


def judged(group: Group, scope: Scope, label: str | None, other: str | None) -> Comparison | None:
    """Return an arm against another, with the reason in place of a verdict that may not be given; None as `against`."""
    found = against(group, scope, label, other)
    why = withheld(group, label, other) if found and label else None
    return replace(found, verdict=Verdict.CANT_TELL, reason=why) if found and why else found


def unvouched(group: Group) -> str | None:
    """Return why no verdict of a group stands: its control is missing or differs; None if they stand."""
    if why := _why_gone(group, group.rules.control):
        return f"the control (a hidden copy of the baseline) {_tell_fate(why)}: {why.reason}"
    if group.rules.control and (why := _why_gone(group, group.rules.baseline)):
        return f"the baseline {_tell_fate(why)}, so no control checks this group"
    copy = against(group, "end_to_end", group.rules.control, group.rules.baseline)
    differs = copy_holds(group, copy) is False
    return "the baseline came out different from its control, a hidden copy" if differs else None


def copy_holds(group: Group, found: Comparison | None) -> bool | None:
    """Return whether the baseline's hidden copy, compared with it, came out like it; None: nothing shows it yet."""
    if found is None:
        return False if group.played.get(group.rules.baseline or "") else None
    if found.verdict in (Verdict.FASTER, Verdict.SLOWER):
        return False
    low, high = found.ends
    return True if low and high and max(1 / low, high) <= 1 + CONTROL_WITHIN else None


def unfit_for(group: Group, label: str | None) -> str | None:
    """Return why no verdict on one arm may be given, whatever the other one is; None when one may."""
    if why := _why_gone(group, label):
        return f"{label} {_tell_fate(why, 'left the race')}: {why.reason}"
    starts = group.steady_from.get(label or "", [])
    if is_unsteady(starts):
        return f"{label} found no steady state in {starts.count(None)} of {len(starts)} restarts"
    return None


def _why_gone(group: Group, label: str | None) -> NotRun | None:
    """Return what took an arm out of the race; what it measured before the time was over counts."""
    why = group.setbacks.get(label or "")
    return None if why and why.kind is NotRunKind.NOT_REACHED and group.played.get(label or "") else why


def _tell_fate(why: NotRun, otherwise: str = "failed") -> str:
    """Return what became of an arm that is out."""
    return {NotRunKind.NOT_REACHED: "had no time yet", NotRunKind.SOFTWARE: "is never timed"}.get(why.kind, otherwise)
