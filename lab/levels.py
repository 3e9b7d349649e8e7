"""Count how often equal arms are called different, on seeded simulation: `python -m lab.levels [--runs N]`.

A group of arms as fast as their baseline, with a control, is looked at after each of 20 restarts. It errs if at any
look there is evidence enough against a ratio of exactly 1, for any of its arms: no bias floor helps. The tables in
docs/measurement.md come from here; it measures nothing, and takes some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shootout.constants import BIAS_FLOOR
from shootout.contract import Array
from shootout.journal import journal
from shootout.messages import Scope
from shootout.results.group import group_of
from shootout.stats.evidence import bonferroni
from shootout.stats.verdicts import Verdict, compare, log_ratios
from tests.support.races.simulation import NOISES, tapes, told_apart

SDS = (0.003, 0.01, 0.03, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30)
COMPARISONS = (1, 9, 50)
REFERENCE_RUNS = Path(__file__).resolve().parents[1] / "results" / "reference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The share of groups with a false verdict; `autocorrelation` is that of one restart with the next."""

    noise: str
    sd: float
    autocorrelation: float
    comparisons: int
    value: float


def levels(runs: int, *, autocorrelations: tuple[float, ...] = (0.0, 0.3, 0.5), seed: int = 21) -> Iterator[Level]:
    """Each noise at each SD, in `runs` groups of 50 arms; the smaller groups are made of the same ones."""
    rng = np.random.default_rng(seed)
    for ar in autocorrelations:
        for noise in NOISES:
            for sd in SDS:
                x = tapes(noise, (runs, 60), rng, sd=sd, ar=ar)
                for comparisons in COMPARISONS:
                    value = float(np.mean(told_apart(_split_groups(x, comparisons + 1)) > 0))
                    yield Level(noise=noise, sd=sd, autocorrelation=ar, comparisons=comparisons, value=value)


def mixed(runs: int, wild_sd: float, *, seed: int = 24) -> float:
    """Count errors in groups of eight arms with an SD of 3 % and a wild one, at the worst noise."""
    rng = np.random.default_rng(seed)
    sds = np.array([*(0.03,) * 8, wild_sd, 0.03])[:, None]  # the last is the control's
    return max(float(np.mean(told_apart(sds * tapes(noise, (runs, 10), rng, sd=1.0)) > 0)) for noise in NOISES)


def _split_groups(x: Array, size: int) -> Array:
    count = x.shape[1] // size
    return x[:, : count * size].reshape(-1, size, x.shape[-1])


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


def twofold(runs: int, *, sd: float = 0.05, comparisons: int = 9, seed: int = 22) -> dict[int, float]:
    """By restart, the share of arms twice as slow as the baseline that are called slower by then."""
    x = tapes("gaussian", (runs,), np.random.default_rng(seed), sd=sd) + np.log(2)
    alpha = bonferroni(comparisons)
    return {n: float(np.mean([_verdict_on(one[:n], alpha) is Verdict.SLOWER for one in x])) for n in (2, 3, 4)}


def _verdict_on(x: Array, alpha: float) -> Verdict:
    return compare(x, alpha=alpha, bias_floor=BIAS_FLOOR, estimate=False).verdict


def _print_table(title: str, found: list[Level], row: Callable[[Level], str]) -> None:
    """Print the greatest level of each row, in Markdown."""
    print(f"\n| {title} | " + " | ".join(f"{count} comparisons" for count in COMPARISONS) + " |")
    print("|---|" + "---|" * len(COMPARISONS))
    for name in dict.fromkeys(map(row, found)):
        worst = [max(one.value for one in found if row(one) == name and one.comparisons == k) for k in COMPARISONS]
        print(f"| {name} | " + " | ".join(f"{value:.1%}" for value in worst) + " |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="groups of 50 arms for each noise and SD")
    runs = parser.parse_args().runs
    found = list(levels(runs))
    _print_table("SD between restarts", [one for one in found if not one.autocorrelation], lambda one: f"{one.sd:.1%}")
    _print_table("noise, autocorrelation", found, lambda one: f"{one.noise}, {one.autocorrelation:g}")
    series, rng = recorded(), np.random.default_rng(23)
    errs = [resampled(x, 1_000, rng) for x in series]
    as_they_were = sum(bool(told_apart(np.array([[x, x]]))[0]) for x in series)
    print(
        f"\nrecorded series: {len(series)}, distinguished as recorded: {as_they_were}, resampled: {np.mean(errs):.2%}"
    )
    print(f"eight arms at an SD of 3 %, one wilder: { ({sd: mixed(4 * runs, sd) for sd in (0.40, 0.60)}) }")
    print(f"twofold, SD 5 %, 9 arms, known by restart: {twofold(runs)}")


if __name__ == "__main__":
    main()
