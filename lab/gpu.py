"""Show within so many minutes what only a machine with an NVIDIA GPU can show (`make gpu`, docs/gpu.md).

Each step is one command. Its output goes to OUT while it runs, and `OUT/STEP.done` says that it came to its end. So a
machine that vanishes takes nothing with it, and the same call goes on with the steps that have no such file.

Only the standard library is imported: the machine's Python has torch and JAX, and `set_up` brings the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "gpu"
GRACE_S = 20.0
"""A step that is asked to stop has so long to write down what it has."""
LEAST_S = 15.0
"""A step isn't begun with less."""
OVERTIME = 1.5
"""A step that is still at work after so many of its shares is stopped, so that later ones get theirs."""
OF_THE_MACHINE = re.compile(r"torch|triton|jax|jaxlib|jax-cuda.*|numpy|onnxruntime|nvidia-(?!ml-py).*")
"""Packages whose build belongs to the machine: a wheel never takes the place of one that is there."""
UNAVAILABLE, INTERRUPTED = 6, 130


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the campaign.

    Attributes:
        shows: what it tells, for people.
        weight: its part of the time, in relation to the other steps'.
        words: the command; `{out}` and `{seconds}` are filled in.
        codes: exit codes with which it came to its end, if it is no race.
        makes: a file in `{out}` that it writes at its end.
        races: whether it prints a run's document.
    """

    name: str
    shows: str
    weight: float
    words: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    makes: str = ""
    races: bool = False

    def command(self, binaries: Path, out: Path, seconds: float) -> list[str]:
        """Return the command of an environment, with so many seconds for it."""
        program, *words = (word.format(out=out, seconds=round(seconds)) for word in self.words)
        return [str(binaries / program), *words]


def race(name: str, shows: str, weight: float, *words: str) -> Step:
    """Return a step that races, by default the arms that matter on a GPU of the study of that name."""
    chosen = words or (name, "--backends", ",".join(gpu_targets(name)))
    limits = ("--out", f"{{out}}/{name}", "--max-time", "{seconds}s", "--json")
    return Step(name, shows, weight, ("shootout", "run", *chosen, *limits), races=True)


def gpu_targets(study: str) -> list[str]:
    """Return a study's targets on a GPU, and of the CPU's its baseline, its crossovers' other sides and ONNX Runtime.

    Without plain torch.compile, which compiles again for every size; with CUDA graphs it is faster, and stays.
    """
    read = tomllib.loads((ROOT / "harness" / "studies" / f"{study}.toml").read_text())
    pairs = read.get("crossover", {}).get("pairs", [])
    beside = {one for pair in pairs if any(":cuda" in text for text in pair) for one in pair}
    beside |= {read.get("baseline", "onnxruntime"), "onnxruntime"}
    targets = [one for one in read["targets"] if ":cuda" in one or one == "tensorrt" or one in beside]
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
    ),
)
"""In order of worth."""


def missing_wheels(folders: Sequence[Path], here: Sequence[str]) -> list[Path]:
    """Return the wheels of packages that aren't in `here` in that version; parts of a wheel are put together first."""
    have = {normalize(one.metadata["Name"]): one.version for one in reversed([*metadata.distributions(path=[*here])])}
    if "onnxruntime-gpu" in have:  # another build of the same module
        have.setdefault("onnxruntime", have["onnxruntime-gpu"])
    found = []
    for folder in folders:
        parts = sorted(folder.glob("*.whl.part*"))
        for whole in {part.with_suffix("") for part in parts}:
            whole.write_bytes(b"".join(part.read_bytes() for part in parts if part.with_suffix("") == whole))
        for wheel in sorted(folder.glob("*.whl")):
            name, version = normalize(wheel.name.split("-")[0]), wheel.name.split("-")[1]
            if have.get(name) != version and not (name in have and OF_THE_MACHINE.fullmatch(name)):
                found.append(wheel)
    return found


def normalize(name: str) -> str:
    """Return a package's name as pip compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def set_up(wheels: Sequence[Path], place: Path = BUILD) -> Path:
    """Make an environment that has this checkout, the wheels, and all of the machine's packages; return its `bin`.

    Nothing of the machine is changed, and no network is asked.

    Raises:
        SystemExit: it can't be made, or a package that nothing works without is missing.
    """
    folder = place / f"python-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (folder / "bin" / "python").exists():
        venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    of_the_machine = [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
    (site / "machine.pth").write_text("\n".join(of_the_machine) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-index", "--no-deps", "--force-reinstall"]
    for wheel in missing_wheels(wheels, [str(site), *of_the_machine]):
        if why := last_line(subprocess.run([*pip, str(wheel)], capture_output=True, text=True, check=False)):
            say(f"{wheel.name} isn't installed: {why}")
    commands = ([*pip, "--no-build-isolation", "-e", str(ROOT)], [str(folder / "bin" / "shootout"), "--version"])
    for command in commands:
        if why := last_line(subprocess.run(command, capture_output=True, text=True, check=False)):
            say(f"{why}. Fix: where there is a network, `make gpu-wheels WHEELS=wheels`; here `make gpu WHEELS=wheels`")
            raise SystemExit(UNAVAILABLE)
    return folder / "bin"


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a command failed, in its own last words; "" if it didn't."""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return (lines[-1].strip() if lines else f"exit code {done.returncode}") if done.returncode else ""


def choose_folder() -> Path:
    """Return the newest campaign that isn't complete, or a new one."""
    campaigns = ROOT / "results" / "gpu"
    newest = max(campaigns.glob("*/"), default=None)
    if newest and not all((newest / f"{step.name}.done").exists() for step in STEPS):
        return newest
    return campaigns / time.strftime("%Y-%m-%dT%H%M%S")


def play(steps: Sequence[Step], binaries: Path, out: Path, seconds: float) -> None:
    """Run the steps that aren't done, each with its share of the time that is left; no step costs the others."""
    end = time.monotonic() + seconds
    waiting = [step for step in steps if not (out / f"{step.name}.done").exists()]
    while waiting:
        left_s = end - time.monotonic() - GRACE_S
        step, share_s = waiting[0], left_s * waiting[0].weight / sum(one.weight for one in waiting)
        waiting = waiting[1:]
        if left_s < LEAST_S:
            say(f"{step.name}: no time left")
            continue
        say(f"{step.name}: {step.shows}; {share_s:.0f} s")
        began = time.monotonic()
        code = run(step.command(binaries, out, share_s), out / step.name, min(OVERTIME * share_s, left_s))
        ended = "its time was over" if code is None else f"exit code {code}"
        outcome = f"{ended} after {time.monotonic() - began:.0f} s: {tell_end(step, out)}"
        if is_done(step, out, code):
            (out / f"{step.name}.done").write_text(f"{outcome}\n")
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
    said = "".join((out / f"{step.name}{end}").read_text(errors="replace") for end in (".out", ".err"))
    return (said.strip() or "it said nothing").splitlines()[-1]


def read_document(step: Step, out: Path) -> dict[str, Any]:
    """Return the document that a race printed; empty if there is none."""
    try:
        found: dict[str, Any] = json.loads((out / f"{step.name}.out").read_text()) if step.races else {}
    except ValueError:
        found = {}
    return found


def run(command: Sequence[str], file: Path, limit_s: float) -> int | None:
    """Run a command with its output in `file`.out and .err; return its exit code, None if it had to be stopped."""
    with file.with_suffix(".out").open("wb") as out, file.with_suffix(".err").open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
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
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Set up, run the steps, and pack what they left into one file."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all steps together")
    parser.add_argument("--wheels", default="", metavar="DIR[:DIR]", help="folders of wheels for what is missing")
    parser.add_argument("--out", default="", metavar="DIR", help="default: the unfinished campaign, or a new one")
    parser.add_argument("--dry-run", action="store_true", help="tell what would be installed and run")
    options = parser.parse_args()
    wheels = [Path(name).expanduser().absolute() for name in options.wheels.split(os.pathsep) if name]
    for folder in wheels:
        if not [*folder.glob("*.whl*")]:
            parser.error(f"WHEELS={folder} holds no wheel: fill it with `make gpu-wheels WHEELS={folder}`")
    out = Path(options.out).expanduser().absolute() if options.out else choose_folder()
    if options.dry_run:
        print(f"Python {sys.version.split()[0]} at {sys.executable}; the campaign's folder would be {out}")
        print("from the wheels:", ", ".join(one.name for one in missing_wheels(wheels, sys.path)) or "nothing")
        waiting = [step for step in STEPS if not (out / f"{step.name}.done").exists()]
        for step in waiting:
            share_s = 60 * options.minutes * step.weight / sum(one.weight for one in waiting)
            print(f"{step.name}, {share_s:.0f} s: {' '.join(step.command(Path(), out, share_s))}")
        return 0
    binaries = set_up(wheels)
    out.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        play(STEPS, binaries, out, 60 * options.minutes)
    except KeyboardInterrupt:
        code = INTERRUPTED
    archive = out.with_name(f"{out.name}.tar.xz")
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(out, out.name)
    done = [step.name for step in STEPS if (out / f"{step.name}.done").exists()]
    say(f"{len(done)} of {len(STEPS)} steps are done; all that there is: {archive}")
    return code


if __name__ == "__main__":
    sys.exit(main())
