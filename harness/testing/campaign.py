"""Show within so many minutes what only a machine with an NVIDIA GPU can show: the campaign of docs/gpu.md.

Each step is one command. Its output goes to OUT while it runs, and `OUT/STEP.done` says that it came to its end. So a
machine that vanishes takes nothing with it, and the same call continues with the steps that have no such file. The
archive beside OUT holds the runs, packed, and what the steps printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shootout.clock import Deadline, Stopwatch
from shootout.errors import ExitCode, UsageError
from shootout.journal import journal
from shootout.journal.archive import ENDING, write_archive
from shootout.journal.run_folder import new_folder
from shootout.study import schema

CAMPAIGNS = Path("results") / "gpu"
GRACE_S = 20.0
"""A step that is asked to stop has so long to write down what it has."""
LEAST_S = 15.0
"""A step isn't begun with less."""
OVERTIME = 1.5
"""A step that is still at work after so many of its shares is stopped, so that later ones get theirs."""
PROGRAMS = {"python": (), "shootout": ("-c", "from shootout.cli import main; main()")}
"""Words of this Python's command: a script named `shootout` may lie where no PATH leads."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the campaign.

    Attributes:
        shows: what it tells, for people.
        weight: its part of the time, in relation to the other steps'.
        words: the command, which begins with one of `PROGRAMS`; `{out}` and `{seconds}` are filled in.
        codes: exit codes with which it came to its end, if it is no race.
        makes: a file in `{out}` that it writes at its end.
        races: whether it prints a run's document.
        needs: a file of a checkout, by its path from there; elsewhere the step is left out.
    """

    name: str
    shows: str
    weight: float
    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    makes: str = ""
    races: bool = False
    needs: str = ""

    def command(self, out: Path, seconds: float) -> list[str]:
        """Return the command for this Python, with so many seconds for it."""
        program, *words = (word.format(out=out, seconds=round(seconds)) for word in self.words)
        return [sys.executable, *PROGRAMS[program], *words]


def race(name: str, shows: str, weight: float, *words: str) -> Step:
    """Return a step that races, by default the arms that matter on a GPU of the study of that name."""
    chosen = words or (name, "--backends", ",".join(gpu_targets(name)))
    limits = ("--out", f"{{out}}/{name}", "--max-time", "{seconds}s", "--json")
    return Step(name, shows, weight, ("shootout", "run", *chosen, *limits), races=True)


def gpu_targets(name: str) -> list[str]:
    """Return a study's targets on a GPU, and of the CPU's its baseline and ONNX Runtime.

    Without plain torch.compile, which compiles again for every size; with CUDA graphs it is faster, and stays.
    """
    study = schema.load(name)
    beside = {study.baseline or "onnxruntime", "onnxruntime"}
    targets = [one for one in study.targets if ":cuda" in one or one == "tensorrt" or one in beside]
    return [one for one in targets if not one.startswith("torch-compile:")]


TWICE = "torch-eager:cuda,torch-eager:cuda"
PYTEST = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "shootout.testing.plugin")
STEPS = (
    Step("doctor", "what works here, and how quiet it is", 5, ("shootout", "doctor")),
    race("shootout", "the toy model on every backend", 20),
    Step(
        "conformance",
        "every adapter's promises on CUDA",
        13,
        (
            *PYTEST,
            "-k",
            "cuda",
            "-m",
            "not slow",
            "--junitxml",
            "{out}/conformance.xml",
            "--pyargs",
            "shootout.testing",
        ),
        codes=(0, 1),
    ),
    race("batch-sweep", "from which batch on the GPU wins", 16),
    race("matmul-transfers", "the same by matrix size, with copies and without", 9),
    race("a-a", "a GPU arm against itself", 4, "residual_mlp", "--backends", TWICE, "--goal", "baseline"),
    Step(
        "selftest",
        "differences planted on the GPU",
        14,
        ("shootout", "selftest", "--quick", "--device", "cuda", "--out", "{out}/selftest"),
        codes=(0, 1),
    ),
    race("linear-precision", "TF32, BF16, FP16 and INT8 proven and timed", 9),
    race("width-sweep", "from which width on the GPU wins", 9),
    race("quantization", "what FP16 and INT8 cost and buy on the GPU", 6),
    race("small-networks", "are small nets, and their training, too small for it?", 5),
    race("nested-sin", "passes over memory, with copies and without", 5),
    Step(
        "handoff",
        "what holding and releasing live contexts costs",
        6,
        ("python", "-m", "lab", "--only", "handoff-gpu", "--json", "{out}/handoff.json"),
        makes="handoff.json",
        needs="lab/handoff.py",
    ),
)
"""In order of worth."""


def waiting_steps(out: Path, steps: Sequence[Step] = STEPS) -> list[Step]:
    """Return the steps that can run from the current folder and aren't done."""
    return [one for one in steps if Path(one.needs).exists() and not (out / f"{one.name}.done").exists()]


def play(steps: Sequence[Step], out: Path, seconds: float) -> None:
    """Run the steps that aren't done, each with its share of the time that is left; no step costs the others."""
    limit = Deadline(seconds - GRACE_S)
    waiting = waiting_steps(out, steps)
    while waiting:
        left_s = limit.left_s
        step, share_s = waiting[0], left_s * waiting[0].weight / sum(one.weight for one in waiting)
        waiting = waiting[1:]
        if left_s < LEAST_S:
            say(f"{step.name}: no time left")
            continue
        say(f"{step.name}: {step.shows}; {share_s:.0f} s")
        with Stopwatch() as watch:
            code = run(step.command(out, share_s), out / step.name, min(OVERTIME * share_s, left_s))
        ended = "its time was over" if code is None else f"exit code {code}"
        outcome = f"{ended} after {watch.seconds:.0f} s: {tell_end(step, out)}"
        if is_done(step, out, code):
            (out / f"{step.name}.done").write_text(f"{outcome}\n", encoding="utf-8")
        say(f"{step.name}: {outcome}")


def is_done(step: Step, out: Path, code: int | None) -> bool:
    """Return whether a step needn't be run again: a race, if it came to its goal and a GPU was in it."""
    if step.races:
        document = read_document(step, out)
        return bool(document.get("complete")) and any(
            (row["device"], row["outcome"]) == ("cuda", "measured") for row in document["rows"]
        )
    return code in step.codes and (not step.makes or (out / step.makes).exists())


def tell_end(step: Step, out: Path) -> str:
    """Return what a race measured and why not more, or a step's last words."""
    if rows := read_document(step, out).get("rows"):
        measured = sum(row["outcome"] == "measured" for row in rows)
        reason = next((f" ({row['reason']})" for row in rows if row["outcome"] != "measured"), "")
        return f"{measured} of {len(rows)} rows measured{reason}"
    said = "".join(
        (out / f"{step.name}{end}").read_text(encoding="utf-8", errors="replace") for end in (".out", ".err")
    )
    return (said.strip() or "it said nothing").splitlines()[-1]


def read_document(step: Step, out: Path) -> dict[str, Any]:
    """Return the document that a race printed; empty if there is none."""
    try:
        found: dict[str, Any] = json.loads((out / f"{step.name}.out").read_text(encoding="utf-8")) if step.races else {}
    except ValueError:
        found = {}
    return found


def run(command: Sequence[str], file: Path, limit_s: float) -> int | None:
    """Run a command with its output in `file`.out and .err; return its exit code, None if it had to be stopped."""
    with file.with_suffix(".out").open("wb") as out, file.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for number in (signal.SIGINT, signal.SIGKILL):
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(GRACE_S)


def say(text: str) -> None:
    """Print progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def choose_folder(campaigns: Path = CAMPAIGNS) -> Path:
    """Return the newest campaign that isn't complete, or a new one."""
    newest = max(campaigns.glob("*/"), default=None)
    return newest if newest and waiting_steps(newest) else new_folder(campaigns)


def pack(out: Path) -> Path:
    """Write the archive beside the campaign's folder: its runs, and what the steps printed; return its path.

    A run whose journal can't be read is named and left out.
    """
    runs = {}
    for folder in sorted({path.parent for path in out.rglob(journal.NAME)}):
        try:
            journal.read(folder)
            runs[f"{out.name}/{folder.relative_to(out)}"] = folder
        except UsageError as error:
            say(f"not packed: {error}")
    file = out.with_name(f"{out.name}{ENDING}")
    printed = {f"{out.name}/{path.name}": path for path in sorted(out.iterdir()) if path.is_file()}
    write_archive(runs, file, raw=True, beside=printed)
    return file


def main() -> int:
    """Run the steps, and pack what they left into one file."""
    parser = argparse.ArgumentParser(prog="python -m shootout.testing.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all steps together")
    parser.add_argument("--out", default="", metavar="DIR", help="default: the unfinished campaign, or a new one")
    parser.add_argument("--dry-run", action="store_true", help="print the steps and run none")
    options = parser.parse_args()
    out = Path(options.out).expanduser().absolute() if options.out else choose_folder().absolute()
    if options.dry_run:
        say(f"Python {sys.version.split()[0]} at {sys.executable}; the campaign's folder would be {out}")
        waiting = waiting_steps(out)
        for step in waiting:
            share_s = 60 * options.minutes * step.weight / sum(one.weight for one in waiting)
            sys.stdout.write(f"{step.name}, {share_s:.0f} s: {shlex.join(step.command(out, share_s))}\n")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        play(STEPS, out, 60 * options.minutes)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    done = [step.name for step in STEPS if (out / f"{step.name}.done").exists()]
    say(f"{len(done)} of {len(STEPS)} steps are done; all that there is: {pack(out)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
