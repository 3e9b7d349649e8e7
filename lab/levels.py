"""Simulate the statistic: false verdicts among equal arms, what is told after how many restarts, and what is read.

A group of arms as fast as their baseline, with a control, is looked at after each of 20 restarts. It errs if at any
look there is evidence enough against a ratio of exactly 1, for any of its arms: no bias floor helps. Seeded, and it
measures nothing, so it may run on a busy machine. `python -m lab --only levels [--runs N]`; `python -m lab.levels`
puts the tables of the kept document into docs/statistics.md and docs/design/measurement.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Tables
from lab.marked_tables import fill_tables, find_pages, write_table
from shootout.constants import ALPHA, BIAS_FLOOR, MAX_RESTARTS
from shootout.contract import Array
from shootout.journal import journal
from shootout.messages import Scope
from shootout.results.group import Group, group_of
from shootout.stats.evidence import bonferroni
from shootout.stats.group_evidence import GroupEvidence, log_ratios
from shootout.stats.leaders import find_untold, leader_sets
from shootout.stats.spread import PRIOR, find_reach, scale_likelihood
from tests.support.races.simulation import NOISES, evidence_against_equal, group_of_nine, tapes, told_apart

RUNS = 600
"""Groups of 50 arms for each noise and SD, if `--runs` doesn't say."""
SDS = (0.003, 0.01, 0.03, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30)
COMPARISONS = (1, 9, 50)
ARMS = 9
"""Beside a baseline and its copy, in all tables but the first."""
POWER_SDS = (0.01, 0.025, 0.05, 0.10)
LOOKS = (2, 3, 5, 10)
EFFECTS = (0.0, 0.02, 0.05, 0.10, 0.30, 1.0)
ROOT = Path(__file__).resolve().parents[1]
REFERENCE_RUNS = ROOT / "results" / "reference"
KEPT = REFERENCE_RUNS / "levels.json"
MARK = "levels"
"""The kind of the marks in pages; see `lab.marked_tables`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The share of groups with a false verdict; `autocorrelation` is that of one restart with the next."""

    noise: str
    sd: float
    autocorrelation: float
    comparisons: int
    value: float


def figures(bench: Bench) -> Tables:
    """Return all tables."""
    runs = bench.repeats(RUNS, 10)
    found: Tables = {}
    for title, rows in (
        ("false verdicts by SD", _by_sd(runs)),
        ("false verdicts where restarts depend on each other", _by_autocorrelation(runs)),
        ("false verdicts in uneven groups", _uneven(runs)),
        ("the smallest ratio told every second time", _smallest(runs)),
        ("a tenth slower, told by restart", _told_by(runs)),
        ("intervals to read", _readings(max(runs // 3, 20))),
        ("recorded controls", _recorded(runs)),
        ("kept runs, when it was known", _replays()),
    ):
        found[title] = list(rows)
        bench.keep(found)
    return found


def levels(runs: int, *, autocorrelations: tuple[float, ...] = (0.0,), seed: int = 21) -> Iterator[Level]:
    """Simulate each noise at each SD, in `runs` groups of 50 arms; the smaller groups are made of the same ones."""
    rng = np.random.default_rng(seed)
    for ar in autocorrelations:
        for noise in NOISES:
            for sd in SDS:
                x = tapes(noise, (runs, 60), rng, sd=sd, ar=ar)
                for comparisons in COMPARISONS:
                    value = float(np.mean(told_apart(_split_groups(x, comparisons + 1)) > 0))
                    yield Level(noise=noise, sd=sd, autocorrelation=ar, comparisons=comparisons, value=value)


def _split_groups(x: Array, size: int) -> Array:
    count = x.shape[1] // size
    return x[:, : count * size].reshape(-1, size, x.shape[-1])


def _by_sd(runs: int) -> Iterator[dict[str, object]]:
    """Yield the worst of six noises."""
    found = list(levels(runs))
    for sd in SDS:
        worst = {
            f"{k} comparisons": max(one.value for one in found if (one.sd, one.comparisons) == (sd, k))
            for k in COMPARISONS
        }
        yield {"SD": sd, **worst}


def _by_autocorrelation(runs: int) -> Iterator[dict[str, object]]:
    """Yield the worst of nine SDs."""
    for ar in (0.3, 0.5):
        found = list(levels(max(runs // 4, 10), autocorrelations=(ar,)))
        for noise in NOISES:
            worst = {
                f"{k} comparisons": max(one.value for one in found if (one.noise, one.comparisons) == (noise, k))
                for k in COMPARISONS
            }
            yield {"noise": noise, "autocorrelation": ar, **worst}


UNEVEN: dict[str, tuple[dict[str, float], tuple[float, ...]]] = {
    "all alike": ({}, (0.01, 0.03, 0.10)),
    "own SDs, log-SD 0.5": ({"uneven": 0.5}, (0.01, 0.03, 0.10)),
    "own SDs, log-SD 0.8": ({"uneven": 0.8}, (0.01, 0.03, 0.10)),
    "one arm at 40 %": ({"wild": 0.40, "uneven": 0.3}, (0.01, 0.02, 0.03)),
    "one arm at 60 %": ({"wild": 0.60, "uneven": 0.3}, (0.01, 0.02, 0.03)),
    "baseline three times as wide": ({"baseline": 3.0}, (0.01, 0.03, 0.10)),
    "baseline ten times as wide": ({"baseline": 10.0}, (0.01, 0.03, 0.10)),
}


def _uneven(runs: int) -> Iterator[dict[str, object]]:
    """Yield the worst of six noises and three SDs."""
    rng = np.random.default_rng(24)
    for name, (spread, sds) in UNEVEN.items():
        worst = max(
            (float(np.mean(told_apart(group_of_nine(runs, noise, rng, sd=sd, **spread)) > 0)), noise, sd)
            for noise in NOISES
            for sd in sds
        )
        yield {"group": name, "runs": runs, "worst": worst[0], "noise": worst[1], "SD": worst[2]}


def _smallest(runs: int) -> Iterator[dict[str, object]]:
    """Find the smallest difference of one of nine arms, Gaussian noise, at exactly so many restarts."""
    for sd in POWER_SDS:
        row: dict[str, object] = {"SD": sd}
        for n in LOOKS:
            x = group_of_nine(runs, "gaussian", np.random.default_rng(5), sd=sd)[..., :n]
            low, high = 0.0, 3.0
            for _ in range(14):
                middle = (low + high) / 2
                seen = np.mean(_evidence_of_first(x, middle) >= 1 / bonferroni(ARMS))
                low, high = (low, middle) if seen >= 0.5 else (middle, high)
            row[f"{n} restarts"] = math.exp(high)
        yield row


def _evidence_of_first(x: Array, effect: float) -> Array:
    """Return E against 1 of each group's first arm, if its true log ratio is `effect`."""
    return evidence_against_equal(np.concatenate([x[:, :1] + effect, x[:, 1:]], axis=1))[:, 0]


def _told_by(runs: int) -> Iterator[dict[str, object]]:
    """Count verdicts on one of nine arms that is 10 % slower, the bias floor counted; and with three questions open."""
    for sd in POWER_SDS:
        x = group_of_nine(runs, "gaussian", np.random.default_rng(6), sd=sd)
        for still_open in (ARMS, 3):
            told = np.zeros(runs, dtype=bool)
            row: dict[str, object] = {"SD": sd, "open": still_open}
            for n in range(2, 11):
                effect = math.log(1.10) - math.log1p(BIAS_FLOOR)
                told |= _evidence_of_first(x[..., :n], effect) >= 1 / bonferroni(still_open)
                row |= {f"by {n}": float(told.mean())} if n in (2, 3, 4, 5, 6, 8, 10) else {}
            yield row


def _readings(runs: int) -> Iterator[dict[str, object]]:
    """Count how often the interval to read holds the true ratio of one of nine arms when it stops."""
    rng = np.random.default_rng(7)
    for noise in ("gaussian", "7 % bad restarts", "skewness 1", "Student t, 3 df"):
        for sd in POWER_SDS:
            for effect in EFFECTS:
                x = group_of_nine(runs, noise, rng, sd=sd, uneven=0.5)
                stops = np.full(runs, MAX_RESTARTS)
                for n in range(MAX_RESTARTS - 1, 1, -1):
                    stops[_evidence_of_first(x[..., :n], math.log1p(effect)) >= 1 / bonferroni(ARMS)] = n
                covered, reach = np.transpose([_read_first(one[:, :n]) for one, n in zip(x, stops, strict=True)])
                yield {
                    "noise": noise,
                    "SD": sd,
                    "effect": effect,
                    "runs": runs,
                    "covered": float(covered.mean()),
                    "median restarts": float(np.median(stops)),
                    "median half-width": float(np.median(np.expm1(reach))),
                }


def _read_first(x: Array) -> tuple[bool, float]:
    """Return whether the interval of a group's first arm holds 0, its true log ratio, and how far it reaches."""
    n, squares = x.shape[-1], x.shape[-1] * x.var(axis=-1)
    weights = PRIOR + scale_likelihood(n - 1, squares[1:]).sum(axis=0)
    reach = find_reach(n, float(squares[0]), weights, ALPHA)
    return bool(abs(x[0].mean()) <= reach), reach


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
    blocks, rules = group.blocks(Scope.END_TO_END), group.rules
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
            blocks = group.blocks(Scope.END_TO_END)
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
    if title == "false verdicts by SD":
        heads = ["SD between restarts", *(f"{k} comparison{'s' * (k > 1)}" for k in COMPARISONS)]
        cells = [[f"{row['SD']:.1%}", *(f"{row[f'{k} comparisons']:.1%}" for k in COMPARISONS)] for row in rows]
    elif title == "false verdicts in uneven groups":
        heads = ["group", "groups drawn a setting", "any false verdict"]
        cells = [[row["group"], f"{row['runs']:,}", f"{row['worst']:.1%}"] for row in rows]
    elif title == "false verdicts where restarts depend on each other":
        heads = ["noise", *(f"autocorrelation {ar}" for ar in (0.3, 0.5))]
        found = {
            (row["noise"], row["autocorrelation"]): ", ".join(
                f"{100 * row[f'{k} comparisons']:.0f}" for k in COMPARISONS
            )
            for row in rows
        }
        cells = [[noise, *(f"{found[noise, ar]} %" for ar in (0.3, 0.5))] for noise in NOISES]
    elif title == "the smallest ratio told every second time":
        heads = ["SD between restarts", *(f"{n} restarts" for n in LOOKS)]
        cells = [[f"{row['SD']:.1%}", *(f"{row[f'{n} restarts']:.2f}" for n in LOOKS)] for row in rows]
    else:
        heads = ["SD between restarts", "holds the truth", "least of 24 settings", "median half-width at the stop"]
        cells = []
        for sd in POWER_SDS:
            mine = [row for row in rows if row["SD"] == sd]
            covered, reach = ([row[name] for row in mine] for name in ("covered", "median half-width"))
            cells.append([f"{sd:.1%}", f"{np.mean(covered):.1%}", f"{min(covered):.0%}", f"±{np.median(reach):.1%}"])
    return write_table(heads, cells)


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
