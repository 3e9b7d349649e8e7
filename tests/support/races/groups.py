"""Groups whose restarts brought planted figures, as the lines of a journal would tell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shootout.core.contract import Arm, Array
from shootout.core.journal.records import Played, Rounds
from shootout.core.messages import LoadTestResult
from shootout.core.results.group import Group
from shootout.core.stats.group_evidence import Blocks, Rules
from shootout.core.study.group import GroupRecord


def group_of_rules(
    rules: Rules,
    arms: Sequence[Arm] = (),
    blocks: Mapping[str, Blocks] | None = None,
    *,
    restarts: int = 0,
    wall_s: float = 0.0,
    steady_from: Mapping[str, Sequence[int | None]] | None = None,
    served: Mapping[str, Sequence[LoadTestResult]] | None = None,
) -> Group:
    """A group after so many restarts, each of so many seconds.

    Args:
        blocks: block medians (ns) by label and restart.
        steady_from, served: by label, of the first restarts that the arm played; else all were steady.
    """
    record = GroupRecord.model_construct(name="", baseline=rules.baseline, arms=tuple(arms))
    group = Group(record, rules, played={}, rounds=[], prepared={}, setbacks={})
    for restart in range(restarts):
        ns = {label: mine[restart] for label, mine in (blocks or {}).items() if restart in mine}
        take(group, ns, wall_s=wall_s, steady_from=steady_from, served=served)
    return group


def take(
    group: Group,
    ns: Mapping[str, Array],
    *,
    wall_s: float = 0.0,
    steady_from: Mapping[str, Sequence[int | None]] | None = None,
    served: Mapping[str, Sequence[LoadTestResult]] | None = None,
) -> None:
    """Let a group take a restart in which these arms had these block medians (ns)."""
    restart, lines = group.next_restart, list[Played]()
    for label, medians in ns.items():
        at = len(group.played.get(label, ()))
        starts, done = (steady_from or {}).get(label, ())[at:], (served or {}).get(label, ())[at:]
        line = Played.model_construct(
            group="",
            arm=label,
            restart=restart,
            block_median_ns={"end_to_end": tuple(medians.tolist())},
            steady_from=starts[0] if starts else 0,
            served=done[0] if done else None,
        )
        lines.append(line)
    group.take(lines, Rounds.model_construct(group="", restart=restart, tried=1, voided=(), wall_s=wall_s))
