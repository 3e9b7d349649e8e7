"""Search fake releases for the one that was planted: it sleeps, allocates, errs or imports slowly, under seeded noise.

Eight releases, each under an interpreter of its own, are searched by the run's own race: four kinds, two sizes of noise
and five seeds, and as many searches without any difference. The fake draws the noise of each process itself. A search
that is done keeps its row in the bench's folder: the same command goes on with a bench that was stopped.
`python -m lab bisect-planted time memory` makes some kinds only.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from lab.common import Bench, Table, Tables, say
from lab.levels import REFERENCE_RUNS
from lab.marked_tables import write_table
from shootout.apps.bisect.screen import QUANTITIES
from shootout.apps.bisect.search import Found, Outcome
from shootout.core.clock import Stopwatch
from shootout.core.journal.records import Rounds
from shootout.core.results.run import read_run
from tests.support.releases import find, make_adapter, make_releases, plant

RELEASES = [f"1.{at}" for at in range(8)]
SEEDS = 5
NOISES = {0.01: 1.1, 0.10: 1.5}
"""By the SD of a process's noise, the ratio that is planted."""
SHARES = {0.01: 1.0, 0.10: 0.3}
"""Likewise the share of calls that err, since outputs have no such noise."""
KEPT = REFERENCE_RUNS / "bisect-planted.json"


def figures(bench: Bench) -> Tables:
    """Make a row for each search, and the counts."""
    folder = make_adapter(bench.folder / "adapter")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    rows: Table = []
    kinds = bench.targets or [*QUANTITIES]
    for kind, sd, seed in product(kinds, NOISES, range(bench.repeats(SEEDS, 1))):
        for is_planted in (True, False) if seed == 0 else (True,):
            rows.append(_find_row(bench.folder, kind, sd, seed, is_planted=is_planted))
            bench.keep(_make_tables(rows))
    return _make_tables(rows)


def _find_row(folder: Path, kind: str, sd: float, seed: int, *, is_planted: bool) -> dict[str, Any]:
    """Return the row of one search, which is read if it is there."""
    place = folder / f"{kind}-{sd:g}-{seed}{'' if is_planted else '-none'}"
    kept = place / "row.json"
    if not kept.exists():
        say(f"{place.name} …")
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(_search(place, kind, sd, seed, is_planted=is_planted)))
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def _search(place: Path, kind: str, sd: float, seed: int, *, is_planted: bool) -> dict[str, Any]:
    first = random.Random(f"{kind} {sd} {seed}").choice(RELEASES[1:])
    ratio = NOISES[sd] if is_planted else 1.0
    base = SHARES[sd] if kind == "outputs" else None
    releases = place / f"releases-{len([*place.glob('releases-*')])}"  # a search that was stopped left its own
    shutil.rmtree(place / "out", ignore_errors=True)
    environments = make_releases(releases, plant(RELEASES, first, ratio), kind, sd=sd, seed=seed, base=base)
    with Stopwatch() as watch:
        found = find(place / "out", environments, kind)
    lines = (line for run in (place / "out").glob("*/") for line in read_run(run).history.lines)
    return {
        "for": kind,
        "SD": sd,
        "seed": seed,
        "planted": f"{ratio}x from {first}" if is_planted else "",
        "outcome": str(found.outcome),
        "is right": _is_right(found, first, is_planted=is_planted),
        "named": found.first_bad if found.outcome is Outcome.NAMED else "",
        "ratio": found.ratio.value,
        "low": found.ratio.low,
        "high": found.ratio.high,
        "races": found.questions,
        "restarts": sum(isinstance(line, Rounds) for line in lines),
        "seconds": round(watch.seconds, 1),
    }


def _is_right(found: Found, first: str, *, is_planted: bool) -> bool | None:
    """Return whether what a search says is so; None of one that says nothing yet."""
    if found.outcome is Outcome.OPEN:
        return None
    if not is_planted or found.outcome in (Outcome.NONE, Outcome.DRIFT):
        return not is_planted and found.outcome is Outcome.NONE
    after, at, upto = (RELEASES.index(one) for one in (found.last_good, first, found.first_bad))
    return after < at <= upto and (found.outcome is Outcome.RANGE or at == upto)


def _make_tables(rows: Table) -> Tables:
    return {"found": [*_count(rows)], "searches": rows}


def _count(rows: Table) -> Iterator[dict[str, Any]]:
    """Yield by kind and noise how many searches ended how."""
    for kind, sd, is_planted in dict.fromkeys((row["for"], row["SD"], bool(row["planted"])) for row in rows):
        some = [row for row in rows if (row["for"], row["SD"], bool(row["planted"])) == (kind, sd, is_planted)]
        yield {
            "for": kind,
            "SD": sd,
            "planted": NOISES[sd] if is_planted else None,
            "searches": len(some),
            "named right": sum(bool(row["named"]) and row["is right"] is True for row in some),
            "said none": sum(row["outcome"] == Outcome.NONE for row in some),
            "wrong": sum(row["is right"] is False for row in some),
            "open or a range": sum(row["outcome"] in (Outcome.OPEN, Outcome.RANGE) for row in some),
            "restarts, mean": sum(row["restarts"] for row in some) / len(some),
            "seconds, mean": sum(row["seconds"] for row in some) / len(some),
        }


def write_counts() -> list[str]:
    """Return the table of the kept document; none if nothing is kept."""
    if not KEPT.exists():
        return []
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["sections"]["bisect-planted"]["tables"]["found"]
    heads = ("for", "SD", "planted", "searches", "named right", "said none", "wrong", "open or a range")
    lines = [
        (
            row["for"],
            f"{100 * row['SD']:.0f} %" if row["for"] != "outputs" else f"{100 * SHARES[row['SD']]:.0f} % of calls",
            "" if row["planted"] is None or row["for"] == "outputs" else f"{row['planted']}x",
            *(str(row[name]) for name in heads[3:]),
            f"{row['restarts, mean']:.0f}",
            f"{row['seconds, mean']:.0f}",
        )
        for row in rows
    ]
    return write_table((*heads, "restarts", "seconds"), lines)
