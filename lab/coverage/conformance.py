"""What the conformance suite's checks say of targets, one fresh process each, and what that takes of CPU time.

Made for devices that are programs (Mesa's lavapipe): what a check proves there holds, and no time does.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence

from lab.common import Table, Tables, say
from shootout.contract import Target
from shootout.errors import ShootoutError
from shootout.testing.cases import case_of, export_for
from shootout.testing.checks import CHECKS, run_checks
from shootout.testing.fresh import run_fresh

PASSED = "passed"


def figures(targets: Sequence[Target], keep: Callable[[Tables], None]) -> Tables:
    """A row for each target and check, and one for each target with its CPU seconds, exports apart."""
    export_for(targets)
    checks: Table = []
    seconds: Table = []
    for target in targets:
        say(f"  {target}")
        before = _children_s()
        try:
            found: dict[str, str] = run_fresh(run_checks, case_of(target), list(CHECKS))
        except (AssertionError, ShootoutError) as fault:
            found = dict.fromkeys(CHECKS, str(fault))
        seconds.append({"target": str(target), "CPU s": round(_children_s() - before, 2)})
        checks += [{"target": str(target), "check": name, "outcome": told or PASSED} for name, told in found.items()]
        keep({"checks": checks, "CPU time": seconds})
    return {"checks": checks, "CPU time": seconds}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
