"""How often a gate is red, green and undecided, simulated: candidates as fast, slower by the limit, and by more.

They race as in a live gate: a reference, its hidden copy and the candidate, whose times in a restart scatter, until
the package's own stopping rule ends it or the time is up. `python -m lab.gates_simulated` prints the tables of
docs/gate.md from the stored figures.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables
from shootout.constants import ALPHA, BIAS_FLOOR
from shootout.contract import Array
from shootout.race.stopping import GroupState, next_players
from shootout.stats.goals import Aim, Goal
from shootout.stats.verdicts import Blocks, Rules, Verdict, compare_with_limit, comparison
from tests.support.races.simulation import NOISES

SLOWER = 0.05
"""The limit."""
INJECTED = (0.0, 0.05, 0.06, 0.10)
"""At the limit and just over it a gate that passes is wrong most easily."""
SDS = (0.01, 0.03, 0.05, 0.10)
NOISE = ("gaussian", "7 % bad restarts")
RESTARTS = (20, 40, 80, 160)
"""That eight minutes bring where one takes 24, 12, 6 and 3 s."""
REFERENCE, CANDIDATE, COPY = "reference", "candidate", "reference#control"
MOST_RED, MOST_UNDECIDED = 0.01, 0.20
"""Of candidates that are as fast."""
LEAST_RED = 0.95
"""Of those that are slower by most."""
MOST_GREEN = ALPHA
"""Of those that are slower by the limit or more."""
STORED = Path(__file__).parents[1] / "results" / "reference" / "gate.json"


def figures(bench: Bench) -> Tables:
    """By the noise between restarts, how many there is time for, and what was injected."""
    runs = bench.runs or bench.size(400, 4)
    rows: Table = []
    for noise, sd, most, injected in product(NOISE, SDS, RESTARTS, INJECTED):
        rows.append(share(noise, sd, most, injected, runs, bench.seed))
        bench.keep({"gates, simulated": rows})
    return {"gates, simulated": rows}


def share(noise: str, sd: float, most: int, injected: float, runs: int, seed: int) -> dict[str, Any]:
    """How such gates end, and whether that keeps to what is asked of them."""
    outcomes, played = Counter[str](), []
    for number in range(runs):
        rng = np.random.default_rng((seed, number, most, round(1_000 * sd), round(1_000 * injected)))
        outcome, restarts = race(noise, sd, most, injected, rng)
        outcomes[outcome] += 1
        played.append(restarts)
    red, green, undecided = (outcomes[one] / runs for one in ("fail", "pass", "undecided"))
    if injected < SLOWER:
        keeps = red <= MOST_RED and undecided <= MOST_UNDECIDED
    else:
        keeps = green <= MOST_GREEN and (injected < max(INJECTED) or red >= LEAST_RED)
    return {
        "noise": noise,
        "SD": sd,
        "restarts in time": most,
        "slower by": injected,
        "runs": runs,
        "red": red,
        "green": green,
        "undecided": undecided,
        "median restarts": float(np.median(played)),
        "keeps the bars": keeps,
    }


def race(noise: str, sd: float, most: int, injected: float, rng: np.random.Generator) -> tuple[str, int]:
    """One gate: its outcome, and the restarts that it took."""
    rules = Rules(
        baseline=REFERENCE,
        control=COPY,
        comparisons=1,
        max_restarts=most,
        bias_floor=BIAS_FLOOR,
        goal=Goal(aim=Aim.LIMIT, within=SLOWER),
    )
    truth = {REFERENCE: 1.0, CANDIDATE: 1.0 + injected, COPY: 1.0}
    drawn = sd / math.sqrt(2) * NOISES[noise](rng.standard_normal((len(truth), most)), rng)
    times = dict(zip(truth, np.array(list(truth.values()))[:, None] * np.exp(drawn), strict=True))
    blocks: dict[str, dict[int, Array]] = {label: {} for label in truth}
    played = 0
    while players := next_players(GroupState(rules=rules, labels=list(truth), blocks=blocks, played=played)):
        for label in players:
            blocks[label][played] = times[label][played : played + 1]
        played += 1
    return _outcome(blocks, rules), played


def _outcome(blocks: Mapping[str, Blocks], rules: Rules) -> str:
    """As a gate tells it: nothing while the copy comes out different."""
    copy = comparison(blocks, COPY, REFERENCE, rules, estimate=False).verdict
    if copy in (Verdict.FASTER, Verdict.SLOWER):
        return "undecided"
    found = compare_with_limit(blocks, CANDIDATE, REFERENCE, rules, limit=SLOWER, estimate=False).verdict
    return {Verdict.SLOWER: "fail", Verdict.FASTER: "pass"}.get(found, "undecided")


def read_stored() -> list[dict[str, Any]]:
    """The rows of the kept figures."""
    (rows,) = json.loads(STORED.read_text())["sections"]["gates-simulated"]["tables"].values()
    return list(rows)


def tell_ends(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The page's table of ends: of as fast ones undecided, of the slowest ones red, by the restarts in time."""
    first, *others = sorted({row["restarts in time"] for row in rows})
    head = ["noise", "SD", f"{first} restarts", *map(str, others)]
    return _table(head, rows, lambda mine: [_ends(mine, most) for most in (first, *others)])


def tell_greens(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The page's table of wrong greens: by how much slower they are, the most of all times."""
    over = sorted({row["slower by"] for row in rows if row["slower by"] >= SLOWER})
    head = ["noise", "SD", *(f"{slower:.0%} slower" for slower in over)]
    return _table(head, rows, lambda mine: [_most_green(mine, slower) for slower in over])


def _table(
    head: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    cells: Callable[[Sequence[Mapping[str, Any]]], Sequence[str]],
) -> list[str]:
    lines: list[Sequence[str]] = [head, ["---"] * len(head)]
    for (noise, sd), some in groupby(rows, lambda row: (row["noise"], row["SD"])):
        lines.append([noise, f"{sd:.0%}", *cells(list(some))])
    return [f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines]


def _ends(rows: Sequence[Mapping[str, Any]], most: int) -> str:
    mine = sorted((row for row in rows if row["restarts in time"] == most), key=lambda row: row["slower by"])
    same, slowest = mine[0], mine[-1]
    mark = "" if same["keeps the bars"] and slowest["keeps the bars"] else " ✗"
    return f"{_percent(same['undecided'])} · {_percent(slowest['red'])}{mark}"


def _most_green(rows: Sequence[Mapping[str, Any]], slower: float) -> str:
    most = max(row["green"] for row in rows if row["slower by"] == slower)
    return f"{100 * most:.2f}".rstrip("0").rstrip(".") + " %" + ("" if most <= MOST_GREEN else " ✗")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


if __name__ == "__main__":
    stored = read_stored()
    print("\n".join([*tell_ends(stored), "", *tell_greens(stored)]))
