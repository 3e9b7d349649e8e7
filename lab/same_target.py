"""The same target five times, as people type it, quiet and beside a busy loop: every verdict but "same" is false."""

from __future__ import annotations

from typing import Any

from lab.common import Bench, Tables, say
from lab.whole_runs import Run, run
from shootout.stats.verdicts import Verdict

TARGET, COPIES = "onnxruntime", 5
MAX_TIME = "60s"
FALSE = (Verdict.FASTER, Verdict.SLOWER)


def figures(bench: Bench) -> Tables:
    """A row a run, and all of them together."""
    limit = () if bench.max_time else ("--max-time", MAX_TIME)
    words = ("--backends", ",".join([TARGET] * COPIES), "--goal", "baseline", *limit)
    rows = []
    tables: Tables = {}
    for number in range(bench.repeats(10, 2)):
        say(f"  the same target, run {number + 1}")
        rows.append(_row(run(bench, f"same-{number}", *words, busy=number % 2 == 1)))
        say(f"  {rows[-1]}")
        kinds = dict.fromkeys(row["beside"] for row in rows)
        tables = {
            f"{TARGET} {COPIES} times": rows,
            "all runs": [_together([row for row in rows if row["beside"] == kind], kind) for kind in kinds],
        }
        bench.keep(tables)
    return tables


def _row(one: Run) -> dict[str, Any]:
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


def _together(rows: list[dict[str, Any]], beside: str) -> dict[str, Any]:
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
