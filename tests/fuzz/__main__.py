"""`python -m tests.fuzz`: as many inputs as asked for, and what came out that should not have."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from .campaign import Outcome, explore
from .kinds import KINDS

MEMORY_BYTES = 8 << 30
"""Who wants more of it for a few kilobytes of input is at fault."""
LONGEST_S = 60
"""Who takes longer over one input hangs."""


def main() -> int:
    """Run the campaign; 1 where there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, by their names")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a kind at a time")
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--keep", type=Path, help="write the smallest input of each fault into this folder")
    asked = parser.parse_args()
    names = asked.only.split(",")
    shares = sum(KINDS[name].share for name in names)
    with ProcessPoolExecutor(asked.jobs, initializer=_limit_memory) as pool:
        counts = {name: round(asked.inputs * KINDS[name].share / shares) for name in names}
        waiting = {name: pool.submit(_explore, name, count, asked.seed) for name, count in counts.items()}
        found = {name: _told(name, one.result(), asked.keep) for name, one in waiting.items()}
    if asked.json:
        kinds = {name: asdict(one, dict_factory=_without_bytes) for name, one in found.items()}
        total = sum(one.inputs for one in found.values())
        text = json.dumps({"seed": asked.seed, "inputs": total, "kinds": kinds}, indent=1)
        asked.json.write_text(f"{text}\n")
    return any(one.faults for one in found.values())


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _explore(name: str, count: int, seed: int) -> Outcome:
    return explore(KINDS[name], count, seed, LONGEST_S)


def _told(name: str, found: Outcome, keep: Path | None) -> Outcome:
    """The same, said on stderr, and what broke something kept."""
    broke = sum(fault.count for fault in found.faults)
    sys.stderr.write(f"{name}: {found.inputs} inputs, {found.refused} refused, {broke} broke something\n")
    for number, fault in enumerate(found.faults):
        sys.stderr.write(f"  {fault.count} × {fault.what}\n")
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}-{number}").write_bytes(fault.smallest)
    return found


def _without_bytes(items: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in items if not isinstance(value, bytes)}


if __name__ == "__main__":
    raise SystemExit(main())
