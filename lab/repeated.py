"""Repeat the default run, as people type it: quiet, and beside a loop that keeps one CPU busy.

Each arm must have a time in every run, and no two runs may contradict each other: not in a verdict, nor by shipping an
arm that another run found slower than what it shipped. Runs share a cache: the first one's is cold, unless
SHOOTOUT_CACHE names a warm one.

`same` runs one target five times in a run, as people type it: there every verdict but "same" is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.common import Bench, Table, Tables, say
from lab.whole_runs import Run, by_arm, by_pair, run, settled_s, shipped_slower
from shootout.core.stats.verdicts import Verdict
from shootout.tell.notes import STEPS

TARGET, COPIES = "onnxruntime", 5
MAX_TIME = "60s"
FALSE = (Verdict.FASTER, Verdict.SLOWER)
"""Verdicts that are false of copies of one target."""


def figures(bench: Bench) -> Tables:
    """Make a row for each run, its times by step, each arm and pair in all runs, and whether any two disagree."""
    runs: list[Run] = []
    rows: Table = []
    said: Table = []
    spent: Table = []
    tables: Tables = {}
    for number in range(bench.repeats(10, 2)):
        busy = number % 2 == 1
        say(f"  default run {number + 1}, beside {'a busy loop' if busy else 'nothing'}")
        runs.append(run(bench, f"default-{number}", busy=busy))
        for table, row in ((rows, _run_row), (said, _answer_row), (spent, _times_row)):
            table.append(row(runs[-1]))
            say(f"  {table[-1]}")
        tables = {
            "the default run": rows,
            "what each run said": said,
            "where its seconds went": spent,
            **_make_tables(runs),
        }
        bench.keep(tables)
    return tables


def _make_tables(runs: Sequence[Run]) -> Tables:
    return {
        "arms against the baseline, a letter and a figure for each run": by_arm(runs),
        "pairs, a letter and a figure for each run": by_pair(runs),
        "what the runs say together": [_agreement_row(runs)],
    }


def _run_row(one: Run) -> dict[str, Any]:
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


def _answer_row(one: Run) -> dict[str, Any]:
    """Return the run's answer, how long it took to settle (in racing, and since the command), and each restart's
    answer.
    """
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
    """Return the seconds from the command to the first restart, without the interpreter's start (under a second)."""
    return sum(one.document.spent_s.get(name, 0.0) for name in ("planning", "preparing"))


def _times_row(one: Run) -> dict[str, Any]:
    steps = one.document.spent_s
    told = {f"{name}_s": round(steps.get(name, 0.0), 1) for name in STEPS}
    return {"run": one.folder.name, **told, "other_s": round(one.wall_s - sum(steps.values()), 1)}


def _agreement_row(runs: Sequence[Run]) -> dict[str, Any]:
    """Say whether each arm has a time in each run, and how often two runs contradict each other."""
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


def same_figures(bench: Bench) -> Tables:
    """Make a row for each run, and one for all of them together."""
    limit = () if bench.max_time else ("--max-time", MAX_TIME)
    words = ("--backends", ",".join([TARGET] * COPIES), "--goal", "baseline", *limit)
    rows = []
    tables: Tables = {}
    for number in range(bench.repeats(10, 2)):
        say(f"  the same target, run {number + 1}")
        rows.append(_same_row(run(bench, f"same-{number}", *words, busy=number % 2 == 1)))
        say(f"  {rows[-1]}")
        kinds = dict.fromkeys(row["beside"] for row in rows)
        tables = {
            f"{TARGET} {COPIES} times": rows,
            "all runs": [_same_together([row for row in rows if row["beside"] == kind], kind) for kind in kinds],
        }
        bench.keep(tables)
    return tables


def _same_row(one: Run) -> dict[str, Any]:
    told = [row.end_to_end.ratio for row in one.measured if row.end_to_end and row.end_to_end.ratio]
    return {
        "run": one.folder.name,
        "beside": one.beside,
        "wall_s": round(one.wall_s, 1),
        "restarts": one.document.groups[0].restarts,
        "sd_percent": round(100 * (one.document.groups[0].sd or 0.0), 2),
        "flagged_percent": round(100 * one.document.void_share, 1),
        "control holds": one.document.control.holds,
        "verdicts": len(told),
        "false": sum(ratio.verdict in FALSE for ratio in told),
        "same": sum(ratio.verdict == Verdict.SAME for ratio in told),
        "widest_percent": round(100 * max((abs(ratio.value - 1) for ratio in told), default=0.0), 2),
        "pairs": len(one.pairs),
        "false pairs": sum(ratio.verdict in FALSE for ratio in one.pairs.values()),
        "ship": one.ship or f"no answer: {one.document.answer[0].reason}",
    }


def _same_together(rows: list[dict[str, Any]], beside: str) -> dict[str, Any]:
    runs_with = sum(row["false"] > 0 or not row["control holds"] for row in rows)
    return {
        "beside": beside,
        "runs": len(rows),
        "verdicts": sum(row["verdicts"] for row in rows),
        "false": sum(row["false"] for row in rows),
        "runs with a false one": runs_with,
        "same": sum(row["same"] for row in rows),
        "false pairs": sum(row["false pairs"] for row in rows),
    }
