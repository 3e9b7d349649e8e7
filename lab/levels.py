"""Simulate the statistic: false verdicts, missed truths, and what is told after how many restarts.

A group is looked at after each of 20 restarts. It errs if at any look a row is told from what it truly equals, or in
the wrong direction: no bias floor helps. Seeded, and it measures nothing, so it may run on a busy machine.
`python -m lab --only levels [--runs N]`; `python -m lab.levels` puts the tables of the kept document into
docs/statistics.md and docs/design/measurement.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Tables
from lab.marked_tables import fill_tables, find_pages, write_table
from shootout.core.contract import Array
from shootout.core.journal import journal
from shootout.core.results.group import Group, group_of
from shootout.core.stats.group_evidence import GroupEvidence, log_ratios
from shootout.core.stats.leaders import find_untold, leader_sets
from shootout.core.stats.verdicts import find_reach
from tests.support.races.simulation import (
    NOISES,
    Spread,
    count_questions,
    draw_times,
    find_false,
    find_missed,
    find_unseated,
    restarts_to_tell,
    told_apart,
)

RUNS = 500
"""Groups for each setting, if `--runs` doesn't say."""
IF_WILD = 4
"""So many times as many if one row is wild: the shares are largest there, and the worst of few would be by chance."""
SPREADS = {
    "alike": Spread(),
    "own SDs, log-SD 0.5": Spread(uneven=0.5),
    "own SDs, log-SD 0.8": Spread(uneven=0.8),
    "one row at 40 %": Spread(wild=0.40, uneven=0.3),
    "one row at 60 %": Spread(wild=0.60, uneven=0.3),
    "baseline three times as wide": Spread(baseline=3.0),
    "baseline ten times as wide": Spread(baseline=10.0),
}
SDS = (0.01, 0.03, 0.10, 0.30)
QUIET_SDS = (0.01, 0.02, 0.03)
"""Of the others, if one row is wild."""
PLANS = (
    ("1 row", 1, False),
    ("9 rows", 9, False),
    ("14 rows", 14, False),
    ("best of 9", 9, True),
    ("best of 14", 14, True),
)
"""A name, how many rows there are beside the baseline and its copy, and whether the fastest is looked for."""
ROWS = 9
POWER_SDS = (0.01, 0.025, 0.05, 0.10, 0.15, 0.25)
LOOKS = (2, 3, 4, 5, 8, 12)
RATIOS = (1.1, 1.3, 1.5, 2.0, 3.0)
ROOT = Path(__file__).resolve().parents[1]
REFERENCE_RUNS = ROOT / "results" / "reference"
KEPT = REFERENCE_RUNS / "levels.json"
MARK = "levels"
"""The kind of the marks in pages; see `lab.marked_tables`."""
SEED = 92_001


def figures(bench: Bench) -> Tables:
    """Return all tables."""
    runs = bench.repeats(RUNS, 10)
    found: Tables = {}
    for title, rows in (
        ("false verdicts", _list_false(runs, apart=False)),
        ("false verdicts, the others told", _list_false(runs, apart=True)),
        ("intervals that miss", _list_missed(runs)),
        ("leader sets", _list_unseated(runs)),
        ("false verdicts where restarts depend on each other", _by_autocorrelation(runs)),
        ("restarts to tell", _list_power(runs)),
        ("reach", _list_reaches()),
        ("recorded controls", _recorded(runs)),
        ("kept runs, when it was known", _replays()),
    ):
        found[title] = list(rows)
        bench.keep(found)
    return found


def _space(rows: int) -> Array:
    """Return true log ratios of which two equal the baseline and the others lie 1.3 to 12 times apart from it."""
    return np.array([0.0, 0.0, *np.log(np.geomspace(1.3, 12, rows - 2))])


def _draw_settings(name: str, rows: int, runs: int) -> Iterator[tuple[str, float, Array]]:
    """Yield the noise, the SD and the log times of each setting of one kind of group."""
    spread = SPREADS[name]
    for sd in QUIET_SDS if spread.wild else SDS:
        for noise in NOISES:
            rng = np.random.default_rng(
                [SEED, rows, list(SPREADS).index(name), list(NOISES).index(noise), round(sd * 1e4)]
            )
            yield noise, sd, draw_times(noise, _count_groups(name, runs), rows, rng, sd=sd, spread=spread)


def _count_groups(name: str, runs: int) -> int:
    """Return how many groups of one kind are drawn for each setting."""
    return runs * (IF_WILD if SPREADS[name].wild else 1)


def _sum_up(shares: Sequence[tuple[float, str, float]], runs: int) -> dict[str, object]:
    """Return the worst setting and the mean of all; each is a share, a noise and an SD."""
    worst = max(shares)
    mean = float(np.mean([share for share, *_ in shares]))
    return {"worst": worst[0], "noise": worst[1], "SD": worst[2], "mean": mean, "settings": len(shares), "runs": runs}


def _list_false(runs: int, *, apart: bool) -> Iterator[dict[str, object]]:
    """Yield how many groups have any false verdict; `apart`: two rows are open, and the others are told."""
    for name, spread in SPREADS.items():
        for plan, rows, best in PLANS:
            if rows == 1 and (spread.wild or apart):
                continue
            truths = _space(rows) if apart else None
            shares = [
                (float(find_false(times, truths=truths, best=best).any(axis=1).mean()), noise, sd)
                for noise, sd, times in _draw_settings(name, rows, runs)
            ]
            yield {"group": name, "plan": plan, **_sum_up(shares, _count_groups(name, runs))}


def _list_missed(runs: int) -> Iterator[dict[str, object]]:
    """Yield how many groups print an interval that misses its row's truth, of any row at any look."""
    for name in SPREADS:
        shares = [
            (float(find_missed(times, _space(ROWS)).any(axis=1).mean()), noise, sd)
            for noise, sd, times in _draw_settings(name, ROWS, runs)
        ]
        yield {"group": name, **_sum_up(shares, _count_groups(name, runs))}


def _list_unseated(runs: int) -> Iterator[dict[str, object]]:
    """Yield how many races for the best have a truly fastest arm that is no leader at any look."""
    for name in SPREADS:
        for apart in (False, True):
            shares = [
                (float(find_unseated(times, truths=_space(ROWS) if apart else None).any(axis=1).mean()), noise, sd)
                for noise, sd, times in _draw_settings(name, ROWS, runs)
            ]
            yield {
                "group": name,
                "others": "slower" if apart else "alike",
                **_sum_up(shares, _count_groups(name, runs)),
            }


def _by_autocorrelation(runs: int) -> Iterator[dict[str, object]]:
    """Yield the worst of the SDs."""
    for ar in (0.3, 0.5):
        for noise in NOISES:
            rng = np.random.default_rng([SEED, round(ar * 10), list(NOISES).index(noise)])
            drawn = [draw_times(noise, runs, ROWS, rng, sd=sd, spread=Spread(), ar=ar) for sd in SDS]
            worst = max(float(find_false(times).any(axis=1).mean()) for times in drawn)
            yield {"noise": noise, "autocorrelation": ar, "worst": worst}


def _list_power(runs: int) -> Iterator[dict[str, object]]:
    """Yield after how many restarts one of nine rows is told in half of the races; None: of 20 none is enough."""
    for sd in POWER_SDS:
        for best in (False, True):
            rng = np.random.default_rng([SEED, round(sd * 1e4)])
            times = draw_times("gaussian", runs, ROWS, rng, sd=sd, spread=Spread(uneven=0.5))
            row: dict[str, object] = {"SD": sd, "questions": count_questions(ROWS, best=best)}
            for ratio in RATIOS:
                slower = times + math.log(ratio) * (np.arange(times.shape[1]) == 1)[:, None]
                median = float(np.median(restarts_to_tell(slower, best=best)))
                row[f"{ratio}x"] = median if median <= times.shape[-1] else None
            yield row


def _list_reaches() -> Iterator[dict[str, object]]:
    """Yield how far the intervals of a race for the best of twelve targets reach, as a factor."""
    for sd in POWER_SDS:
        reaches = {f"{n} restarts": math.exp(float(find_reach(n, sd**2, sd**2, 10, 21))) for n in LOOKS}
        yield {"SD": sd, **reaches}


def _recorded(runs: int) -> Iterator[dict[str, object]]:
    """Race every control of the reference runs beside its baseline: as recorded, in any order, on either side."""
    series, rng = recorded(), np.random.default_rng(23)
    as_they_were = sum(bool(told_apart(np.array([[x, x]]))[0]) for x in series)
    errs = [resampled(x, runs, rng) for x in series]
    yield {"series": len(series), "distinguished as recorded": as_they_were, "resampled": float(np.mean(errs))}


def _replays() -> Iterator[dict[str, object]]:
    """Yield after which restart of each kept run an arm had its verdict against the baseline, and one arm led alone."""
    for folder in sorted(path.parent for path in REFERENCE_RUNS.glob("*/journal.jsonl.gz")):
        history = journal.read(folder)
        groups = [group_of(history, record) for record in history.groups if record.selects_for is None]
        found = [_replay(group) for group in groups if group.rules.baseline]
        told = [restart for arms, _ in found for restart in arms if restart]
        leads = [restart for _, restart in found if restart]
        yield {
            "run": folder.name,
            "groups": len(found),
            "arms": sum(len(arms) for arms, _ in found),
            "with a verdict": len(told),
            "mean restart of a verdict": round(float(np.mean(told)), 2) if told else None,
            "one arm leads": len(leads),
            "mean restart of that": round(float(np.mean(leads)), 2) if leads else None,
        }


def _replay(group: Group) -> tuple[list[int | None], int | None]:
    """Return the restarts after which each arm has a verdict, and after which one leads alone; None: never."""
    blocks, rules = group.blocks("end_to_end"), group.rules
    arms = [label for label in blocks if blocks[label] and label not in (rules.control, *group.setbacks)]
    beside = [(label, rules.baseline or "") for label in arms if label != rules.baseline]
    first: dict[str, int] = {}
    leads: int | None = None
    for n in range(2, group.next_restart + 1):
        seen = {label: {g: values for g, values in mine.items() if g < n} for label, mine in blocks.items()}
        evidence = GroupEvidence(seen, rules)
        for label, _ in {*beside} - {*find_untold(evidence, beside)}:
            first.setdefault(label, n)
        sets = leader_sets(evidence, arms)
        leads = leads or (n if sets and len(sets[-1].tied) == 1 else None)
    return [first.get(label) for label, _ in beside], leads


def recorded() -> list[Array]:
    """Return the log ratios end to end of every control to its baseline in the reference runs, restart by restart."""
    found = []
    for folder in sorted(path.parent for path in REFERENCE_RUNS.glob("*/journal.jsonl.gz")):
        history = journal.read(folder)
        for record in history.groups:
            group = group_of(history, record)
            blocks = group.blocks("end_to_end")
            x = log_ratios(blocks.get(group.rules.control or "", {}), blocks.get(group.rules.baseline or "", {}))
            if x.size > 1:
                found.append(x)
    return found


def resampled(series: Array, runs: int, rng: np.random.Generator) -> float:
    """Return the share of false verdicts if the series' restarts had come in any order and on either side."""
    order = np.argsort(rng.random((runs, 2, series.size)), axis=-1)
    return float(np.mean(told_apart(series[order] * rng.choice([-1, 1], size=order.shape)) > 0))


def tabulate(title: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write one table of the document as the pages have it, line by line."""
    if title in ("false verdicts", "false verdicts, the others told"):
        plans = [plan for plan, *_ in PLANS if any(row["plan"] == plan for row in rows)]
        found = {(row["group"], row["plan"]): f"{row['worst']:.1%} / {row['mean']:.1%}" for row in rows}
        cells = [[name, *(found.get((name, plan), "–") for plan in plans)] for name in SPREADS]
        return write_table(["group", *plans], cells)
    if title == "intervals that miss":
        return write_table(
            ["group", "worst setting", "mean"],
            [[row["group"], f"{row['worst']:.1%}", f"{row['mean']:.1%}"] for row in rows],
        )
    if title == "leader sets":
        found = {(row["group"], row["others"]): f"{row['worst']:.1%} / {row['mean']:.1%}" for row in rows}
        cells = [[name, found[name, "alike"], found[name, "slower"]] for name in SPREADS]
        return write_table(["group", "all alike", "two alike, the others slower"], cells)
    if title == "false verdicts where restarts depend on each other":
        shares = {(row["noise"], row["autocorrelation"]): f"{row['worst']:.0%}" for row in rows}
        heads = ["noise", *(f"autocorrelation {ar}" for ar in (0.3, 0.5))]
        return write_table(heads, [[noise, *(shares[noise, ar] for ar in (0.3, 0.5))] for noise in NOISES])
    if title == "restarts to tell":
        heads = ["SD between restarts", *(f"{ratio}x" for ratio in RATIOS)]
        return write_table(heads, [_write_restarts(rows, sd) for sd in POWER_SDS])
    heads = ["SD between restarts", *(f"{n} restarts" for n in LOOKS)]
    cells = [[f"{row['SD']:.1%}", *(f"{row[f'{n} restarts']:.3g}" for n in LOOKS)] for row in rows]
    return write_table(heads, cells)


def _write_restarts(rows: Sequence[Mapping[str, Any]], sd: float) -> list[str]:
    """Write one SD's restarts with the fewer and with the more questions: `5 / 6`."""
    mine = sorted((row for row in rows if row["SD"] == sd), key=lambda row: row["questions"])
    told = [[f"{row[f'{ratio}x']:.0f}" if row[f"{ratio}x"] else "–" for row in mine] for ratio in RATIOS]
    return [f"{sd:.1%}", *(" / ".join(one) for one in told)]


def read_kept() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the tables of the kept document by their titles."""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(KEPT.read_text())["sections"]["levels"]["tables"]
    return tables


def fill_page(text: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the page with the tables behind their marks."""
    return fill_tables(text, MARK, lambda title: tabulate(title, tables[title]))


def main() -> None:
    """Put the tables of the kept document into the pages that mark a place for one."""
    for page in find_pages(MARK):
        page.write_text(fill_page(page.read_text(), read_kept()))


if __name__ == "__main__":
    main()
