"""One call of `make gpu` once everything can be imported: the folder, the GPU, the steps, the summary."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from shootout.clock import Deadline
from shootout.errors import SkippedArm
from shootout.host import gpu
from shootout.journal.run_folder import new_folder
from shootout.study import schema

from . import campaign, page, parts, state, summary, work
from .ground import Ground
from .state import State
from .steps import Step, measuring_s, shared_s, shares

RESULTS = Path("results") / "gpu"


def folder_of(asked: str) -> Path:
    """The campaign's folder: the one asked for, else the newest unfinished one, else a new one (not made yet)."""
    if asked:
        return Path(asked).expanduser()
    old = sorted(RESULTS.glob(f"*/{state.NAME}"), reverse=True)
    unfinished = (file.parent for file in old if not State.read(file.parent).complete)
    return next(unfinished, None) or new_folder(RESULTS)


def hold(minutes: float, asked: str, ground: Ground, setup: Sequence[str]) -> int:
    """Measure for so many minutes, and sum up; 0 minutes only sums up what is there."""
    if minutes and (why := no_gpu()):
        campaign.say(f"make gpu: {why}")
        return campaign.UNAVAILABLE
    out = folder_of(asked)
    out.mkdir(parents=True, exist_ok=True)
    standing = State.read(out)
    standing.write()
    campaign.say(f"campaign folder: {out}")
    for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT is ignored where we were started in the background
        signal.signal(number, signal.default_int_handler)  # else its step would go on without it
    code = _measure(standing, minutes, ground)
    try:
        sys.stdout.write(sum_up(standing, setup))
    finally:  # whatever the summary met, the samples are carried home
        for file in parts.pack(out):
            campaign.say(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
    return code


def _measure(standing: State, minutes: float, ground: Ground) -> int:
    try:
        campaign.Campaign(
            state=standing,
            deadline=Deadline(measuring_s(minutes)),
            without=campaign.without(ground.without),
            say=campaign.say,
            run=campaign.run,
        ).play()
    except KeyboardInterrupt:
        campaign.say("make gpu: interrupted; the same command goes on")
        return campaign.INTERRUPTED
    return 0


def sum_up(standing: State, setup: Sequence[str]) -> str:
    """Write the summary, for programs and for people; returns the page."""
    found = summary.summary(standing, setup)
    (standing.folder / summary.NAME).write_text(json.dumps(found, indent=1, default=str) + "\n")
    text = page.page(found)
    (standing.folder / page.NAME).write_text(text)
    return text


def no_gpu() -> str:
    """Why there is no GPU to measure on, and the fix; "" where there is one."""
    try:
        gpu.require_gpu()
    except SkippedArm as skip:
        return f"{skip.reason}. Fix: {skip.fix}"
    return ""


def rehearse(minutes: float, asked: str, ground: Ground) -> int:
    """What a call would do, in lines on stdout."""
    why, out = no_gpu(), folder_of(asked)
    standing = State.read(out)
    print(f"GPU: {why or 'there'}")
    print(f"campaign folder: {out}; {minutes:g} minutes, if no step ends early:")
    for step, seconds in shares(standing.waiting(), shared_s(measuring_s(minutes))):
        print(f"{step.name:<18} {seconds:5.0f} s  {step.brings}{_least(step)}")
        print(f"{'':<26}  {_means(step, out, campaign.without(ground.without))}")
    print("what its share isn't enough for goes on in the next call")
    print("nothing was measured")
    return 0


def _least(step: Step) -> str:
    """What a race needs at least, by the estimate."""
    if not step.study:
        return ""
    racing, before = work.least_s(step)
    return f"; all its arms need {racing:.0f} s at least, and {before:.0f} s of exports and builds before"


def _means(step: Step, out: Path, without: dict[str, str]) -> str:
    """What a step races or starts."""
    if why := without.get(step.name):
        return f"skipped: {why}"
    if not step.study:
        return " ".join(word.format(out=out, here="tests/gpu") for word in step.command)
    return ", ".join(work.raced(schema.load(step.study), step))
