"""`make gpu`: set up, measure for so many minutes, sum up.

Run from `tests/` as `python -m gpu`; relative paths are the checkout's. Exit codes: 0 ok, 2 a wrong argument, 6 no GPU
or a package that nothing works without, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .ground import ROOT, Ground, prepare, told
from .steps import STEPS, measuring_s, shared_s, shares

USAGE, UNAVAILABLE = 2, 6


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all steps together; 0 only sums up")
    parser.add_argument("--wheels", default="", metavar="DIR[:DIR]", help="folders of wheels for what is missing")
    parser.add_argument("--out", default="", metavar="DIR", help="default: the unfinished campaign, or a new one")
    parser.add_argument("--dry-run", action="store_true", help="say what is there and what would be done")
    return parser.parse_args()


def main() -> int:
    """Do it; the page of what was found goes to stdout."""
    options = _options()
    if not options.minutes >= 0:
        return _refuse(f"GPU_MINUTES is {options.minutes:g}: give 0 or more", USAGE)
    os.chdir(ROOT)
    folders = [Path(name).expanduser() for name in options.wheels.split(os.pathsep) if name]
    try:
        ground = prepare(folders, install=not options.dry_run)
    except ValueError as error:
        return _refuse(str(error), USAGE)
    lines = told(ground, dry=options.dry_run)
    print(*lines, sep="\n", file=sys.stdout if options.dry_run else sys.stderr)
    if options.dry_run and (ground.lacking or ground.promised):
        return _without_core(options.minutes)
    if ground.lacking:
        return UNAVAILABLE
    ground.stand()
    return _go(options, ground, lines)


def _go(options: argparse.Namespace, ground: Ground, lines: list[str]) -> int:
    """The part that needs the package itself."""
    from . import session  # only now can it be imported

    try:
        if options.dry_run:
            return session.rehearse(options.minutes, options.out, ground)
        return session.hold(options.minutes, options.out, ground, lines)
    except ValueError as error:
        return _refuse(str(error), USAGE)


def _without_core(minutes: float) -> int:
    """A dry run that can't look any further: the steps alone."""
    for step, seconds in shares(STEPS, shared_s(measuring_s(minutes))):
        print(f"{step.name:<18} {seconds:5.0f} s  {step.brings}")
    print("nothing was measured")
    return 0


def _refuse(why: str, code: int) -> int:
    print(f"make gpu: {why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
