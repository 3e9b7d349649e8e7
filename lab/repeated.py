"""The default run, as people type it, again and again: quiet, and beside a loop that keeps one CPU busy.

Each arm must have a time in every run, and no two runs may contradict each other: not in a verdict, nor by shipping an
arm that another run found slower than what it shipped. Runs share a cache: the first one's is cold, unless
SHOOTOUT_CACHE names a warm one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.common import Bench, Table, Tables, say
from lab.whole_runs import Run, by_arm, by_pair, run, settled_s, shipped_slower
from shootout.journal.time_spent import STEPS


def figures(bench: Bench) -> Tables:
    """A row a run, where its seconds went, each arm and pair in all of them, and whether any two disagree."""
    runs: list[Run] = []
    rows: Table = []
    said: Table = []
    spent: Table = []
    tables: Tables = {}
    for number in range(bench.repeats(10, 2)):
        busy = number % 2 == 1
        say(f"  default run {number + 1}, beside {'a busy loop' if busy else 'nothing'}")
        runs.append(run(bench, f"default-{number}", busy=busy))
        for table, row in ((rows, _row), (said, _said), (spent, _spent)):
            table.append(row(runs[-1]))
            say(f"  {table[-1]}")
        tables = {"the default run": rows, "what each run said": said, "where its seconds went": spent, **_over(runs)}
        bench.keep(tables)
    return tables


def _over(runs: Sequence[Run]) -> Tables:
    return {
        "arms against the baseline, a letter and a figure for each run": by_arm(runs),
        "pairs, a letter and a figure for each run": by_pair(runs),
        "what the runs say together": [_together(runs)],
    }


def _row(one: Run) -> dict[str, Any]:
    document = one.document
    able = [row for row in document.rows if row.device == "cpu"]
    told = [row.end_to_end.ratio for row in one.measured if row.end_to_end and row.end_to_end.ratio]
    return {
        "run": one.folder.name,
        "beside": one.beside,
        "exit": one.code,
        "wall_s": round(one.wall_s, 1),
        "built": sum(row.build_cached is False for row in document.rows),
        "arms": len(able),
        "with a time": sum(row.end_to_end is not None for row in able),
        "verdicts": sum(ratio.decided for ratio in told),
        "restarts": document.groups[0].restarts,
        "ended": "goal reached" if document.complete else f"{document.budget_s or '--max-time'}",
        "flagged_percent": round(100 * document.void_share, 1),
        "sd_percent": round(100 * (document.groups[0].sd or 0.0), 1),
        "ship": one.ship or "no answer",
    }


def _said(one: Run) -> dict[str, Any]:
    """Its answer, after how many seconds (of racing, and since the command) it stood, and that of each restart."""
    answer, answers = one.document.answer[0], one.answers()
    racing_s = settled_s(answers)
    return {
        "run": one.folder.name,
        "after_racing_s": None if racing_s is None else round(racing_s, 1),
        "after_s": None if racing_s is None else round(_before_s(one) + racing_s, 1),
        "answers": " ".join((arm or "–").partition(":")[0] for _, arm in answers),
        "tied": ", ".join(tied.arm for tied in answer.tied),
        "unsettled": ", ".join(rival.arm for rival in answer.unsettled),
        "sure": one.sure or answer.reason,
    }


def _before_s(one: Run) -> float:
    """Seconds from the command to the first restart; the start of the interpreter, under a second, is left out."""
    return sum(one.document.spent_s.get(name, 0.0) for name in ("planning", "preparing"))


def _spent(one: Run) -> dict[str, Any]:
    steps = one.document.spent_s
    told = {f"{name}_s": round(steps.get(name, 0.0), 1) for name in STEPS}
    return {"run": one.folder.name, **told, "other_s": round(one.wall_s - sum(steps.values()), 1)}


def _together(runs: Sequence[Run]) -> dict[str, Any]:
    """Whether each arm has a time in each run, and how often two runs say opposite things."""
    wrong = [row["arm"] for row in by_arm(runs) if not row["agree"]]
    wrong += [row["pair"] for row in by_pair(runs) if not row["agree"]]
    lost = shipped_slower(runs)
    cells = [row for one in runs for row in one.document.rows if row.device == "cpu"]
    return {
        "runs": len(runs),
        "arms without a time": sum(row.end_to_end is None for row in cells),
        "contradicted": len(wrong),
        "which": "; ".join(wrong),
        "shipped though slower": "; ".join(lost),
        "holds": not wrong and not lost and all(row.end_to_end for row in cells),
    }
