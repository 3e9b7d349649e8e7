"""The section `kills`: so many runs killed, so many of whose processes one is killed, and what became of them."""

from __future__ import annotations

import shutil
from dataclasses import asdict

from lab.common import Bench, Tables, say

from .drill import PARENT, WORKER, Found, as_row, drill, whole_s

KILLS, QUICK = 50, 2
TABLE, FAULTS = "kill -9 at random instants", "what was wrong"


def figures(bench: Bench) -> Tables:
    """Both kinds by turns, so that one that is stopped has some of each."""
    folder = bench.folder / "kills"
    usual_s = whole_s(folder / "whole")
    found: list[Found] = []
    for number in range(bench.repeats(KILLS, QUICK)):
        for kind in (PARENT, WORKER):
            place = folder / f"{kind}-{number}"
            one = drill(place, kind, f"{bench.seed} {number}", usual_s)
            found.append(one)
            say(f"{kind} {number}: after {one.after_s:.1f} s, {one.during}: {one.fault or 'well'}")
            if not one.fault:
                shutil.rmtree(place)
            bench.keep(_tables(found))
    return _tables(found)


def _tables(found: list[Found]) -> Tables:
    faults = [{"failed": one.fault, **asdict(one)} for one in found if one.fault]
    return {TABLE: [as_row(found, kind) for kind in (PARENT, WORKER)], **({FAULTS: faults} if faults else {})}
