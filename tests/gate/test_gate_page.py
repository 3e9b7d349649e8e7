"""docs/gate.md and docs/evidence/gate.md show what was simulated and what live gates took, to the digit."""

from __future__ import annotations

import json
import re
import shlex
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from shootout.models.metrics import count_rows_for_rare

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs" / "gate.md").read_text().split())
OPTIONS = ("candidate", "python", "max-error", "max-drop", "slower", "inputs", "labels")
EVIDENCE = (ROOT / "docs" / "evidence" / "gate.md").read_text()


def read_tables(name: str, section: str) -> dict[str, list[dict[str, Any]]]:
    found = json.loads((ROOT / "results" / "reference" / name).read_text())
    tables: dict[str, list[dict[str, Any]]] = found["sections"][section]["tables"]
    return tables


def percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def read_simulated() -> dict[tuple[str, float], dict[int, dict[float, dict[str, Any]]]]:
    """Return the gates by noise and SD, then by restarts, then by how much slower the candidate is."""
    (rows,) = read_tables("gate.json", "gates-simulated").values()
    found: dict[tuple[str, float], dict[int, dict[float, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["noise"], row["SD"]][row["restarts in time"]][row["slower by"]] = row
    return found


def is_enough(by_slower: dict[float, dict[str, Any]]) -> bool:
    return all(row["keeps the bars"] for row in by_slower.values())


def test_the_tables_are_those_that_were_simulated():
    for (noise, sd), by_restarts in read_simulated().items():
        cells = [
            f"{percent(one[0.0]['undecided'])} · {percent(one[0.1]['red'])}{'' if is_enough(one) else ' ✗'}"
            for one in by_restarts.values()
        ]
        assert f"| {noise} | {sd:.0%} | {' | '.join(cells)} |" in EVIDENCE
        green = max(one[0.1]["green"] for one in by_restarts.values())
        assert f"| {noise} | {sd:.0%} | {100 * green:.3g} % |" in EVIDENCE


def test_the_page_tells_how_many_restarts_noise_takes():
    found = read_simulated()
    three, five, ten = (
        min(restarts for restarts, one in found["gaussian", sd].items() if is_enough(one)) for sd in (0.03, 0.05, 0.1)
    )
    sentence = f"simulations take {three} restarts if restarts vary by an SD of 3 %, {five} at 5 % and {ten} at 10 %"
    assert sentence in PAGE


def test_the_page_tells_how_long_live_gates_took():
    gates = read_tables("gates.json", "gate")["gates"]
    walls = [row["wall_s"] for row in gates]
    right = sum(row["outcome"] == ("fail" if row["slower by"] else "pass") for row in gates)
    sentence = (
        f"In {len(gates)} gates of planted work on two shared CPUs, one took {statistics.median(walls):.1f} seconds "
        f"in the median and {max(walls):.0f} at most. All {right} were right"
    )
    assert sentence in PAGE


def test_the_page_tells_how_many_rows_a_drop_takes():
    half, whole = (count_rows_for_rare(1.0, limit) for limit in (0.005, 0.01))
    assert f"`0.5pp` takes {half} scored rows or more, `1pp` {whole}" in PAGE


def test_the_jobs_to_copy_are_jobs():
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "gate.md").read_text(), re.DOTALL):
        job = yaml.safe_load(text)
        (steps,) = (one["steps"] for one in job["jobs"].values())
        (given,) = (one["with"] for one in steps if "gate" in one.get("uses", ""))
        words = shlex.split(f"{given['reference']} --candidate {given['candidate']} {given['options']}")
        assert {word for word in words if word.startswith("--")} <= {f"--{one}" for one in OPTIONS}
