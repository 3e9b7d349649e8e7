"""`python -m tests.fuzz`: as many inputs as asked for, and what came out that should not have."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path

from .campaign import Outcome, explore
from .kinds import KINDS

MEMORY_BYTES = 8 << 30
"""Who wants more of it for a few kilobytes of input is at fault."""

LONGEST_S = 30
"""Who takes longer over one input hangs."""


def main() -> int:
    """Run the campaign; 1 where there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--json", type=Path, help="write the counts here")
    parser.add_argument("--keep", type=Path, help="write the smallest input of each fault into this folder")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    names = asked.only.split(",")
    shares = sum(KINDS[name].share for name in names)
    found: dict[str, Outcome] = {}
    for name in names:
        count = round(asked.inputs * KINDS[name].share / shares)
        found[name] = explore(KINDS[name], count, asked.seed, LONGEST_S)
        sys.stderr.write(f"{name}: {found[name].inputs} inputs, {found[name].refused} refused, ")
        sys.stderr.write(f"{sum(fault.count for fault in found[name].faults)} broke something\n")
        for number, fault in enumerate(found[name].faults):
            sys.stderr.write(f"  {fault.count} × {fault.what}\n")
            if asked.keep:
                asked.keep.mkdir(parents=True, exist_ok=True)
                (asked.keep / f"{name}-{number}").write_bytes(fault.smallest)
    if asked.json:
        kinds = {name: asdict(one, dict_factory=_without_bytes) for name, one in found.items()}
        total = sum(one.inputs for one in found.values())
        text = json.dumps({"seed": asked.seed, "inputs": total, "kinds": kinds}, indent=1)
        asked.json.write_text(f"{text}\n")
    return any(one.faults for one in found.values())


def _without_bytes(items: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in items if not isinstance(value, bytes)}


if __name__ == "__main__":
    raise SystemExit(main())
