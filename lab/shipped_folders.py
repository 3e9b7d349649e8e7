"""Ship each backend's arm: does it run with nothing but its runtime installed, is it equal, and as fast?

`ship` needs no quiet machine; `ship-race` races each folder beside the arm that it was made from. With `--folder`, the
second takes the folders that the first has made.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import TOY, Bench, Table, Tables, say
from shootout import load as open_run
from shootout.backends.shipped import ShippedFolder, open_shipped
from shootout.core.clock import Stopwatch
from shootout.core.errors import ShootoutError
from shootout.core.exported.model import load_sets

TARGETS = (
    "onnxruntime",
    "openvino",
    "litert",
    "torch-compile+aoti",
    "ncnn",
    "numpy",
    "torchscript",
    "jax-jit",
    "executorch",
    "iree",
)
"""Every backend that can be shipped."""
SHIPPED, RACED = "shipped folders in fresh environments", "shipped folders ÷ their own arms"
RUN_S, RACE_S = 240, 60
"""Seconds of the run that is shipped from, and of each race, unless others are given."""
LIMIT_S = 1_200.0
OUTPUTS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import load
load.load()
import numpy as np
with np.load(Path(sys.argv[1]) / "evidence" / "inputs.npz") as stored:
    names = [one[0] for one in load.INPUTS]
    count = len({key.partition(".")[2] for key in stored.files})
    sets = [{name: stored[f"{place}.{number}"] for place, name in enumerate(names)} for number in range(count)]
answers = [load.predict(one) for one in sets]
np.savez(sys.argv[2], **{f"{p}.{n}": a for n, one in enumerate(answers) for p, a in enumerate(one.values())})
"""
"""The program of a process in the fresh environment, which has no shootout."""


def figures(bench: Bench) -> Tables:
    """Ship, install what requirements.txt says into a new environment, check, and compare the answers."""
    return _of_each(bench, "ship", SHIPPED, _in_fresh_environment)


def race_figures(bench: Bench) -> Tables:
    """Race each folder beside its arm, which is the baseline."""
    return _of_each(bench, "ship-race", RACED, _race_folder)


def _of_each(bench: Bench, section: str, title: str, find: Callable[[Bench, str, str], dict[str, Any]]) -> Tables:
    """Make a row of each target, kept as it comes."""
    rows: Table = []
    for target, label in _list_labels(bench):
        say(f"{section}: {target} …")
        rows.append({"target": target, **_figures_or_fault(find, bench, target, label)})
        bench.keep({title: rows})
    return {title: rows}


def _list_labels(bench: Bench) -> Iterator[tuple[str, str]]:
    """Return the targets, and the labels of their arms in the run that is shipped from."""
    targets = tuple(bench.targets) or (TARGETS[:1] if bench.quick else TARGETS)
    run = _path_in_bench(bench, "run")
    if not (run / "journal.jsonl").exists():
        limit = "60s" if bench.quick else f"{RUN_S}s"
        _run_shootout(
            "run", TOY, "--backends", ",".join(targets), "--goal", "baseline", "--max-time", limit, "--out", str(run)
        )
    measured = {row.arm for row in open_run(run).document.rows if row.outcome == "measured"}
    for target in targets:
        yield target, next((label for label in measured if label.startswith(f"{target}:")), "")


def _figures_or_fault(
    figures: Callable[[Bench, str, str], dict[str, Any]], bench: Bench, target: str, label: str
) -> dict[str, Any]:
    """Return a target's figures, or what went wrong: the others go on."""
    try:
        return figures(bench, target, label) if label else {"failed": "it was not measured"}
    except (RuntimeError, ShootoutError) as error:
        return {"failed": str(error)}


def _in_fresh_environment(bench: Bench, target: str, label: str) -> dict[str, Any]:
    shipped = _ship_once(bench, label, target)
    place = _path_in_bench(bench, "environments", _file_name(target))
    python = place / "bin" / "python"
    with Stopwatch() as watch:
        _run_command([sys.executable, "-m", "venv", "--clear", str(place)])
        before = _size_of(place)
        _run_command([str(python), "-m", "pip", "install", "-q", "-r", str(shipped.folder / "requirements.txt")])
    checked = _run_command([str(python), "-I", str(shipped.folder / "check.py")])
    error = re.search(r"error (\S+) \(limit (\S+)\)", checked)
    theirs, ours = (
        _path_in_bench(bench, "answers", f"{_file_name(target)}-{whose}.npz") for whose in ("folder", "arm")
    )
    theirs.parent.mkdir(exist_ok=True)
    _run_command([str(python), "-I", "-c", OUTPUTS, str(shipped.folder), str(theirs)])
    run = str(_path_in_bench(bench, "run"))
    _run_command([sys.executable, "-m", "lab.shipped_outputs", run, label, str(shipped.folder), str(ours)])
    return {
        "artifact_mb": _size_of(shipped.folder / "model") / 1e6,
        "packages": len(shipped.versions),
        "install_mb": (_size_of(place) - before) / 1e6,
        "install_s": round(watch.seconds, 1),
        "check": "passes",
        "error": float(error[1]) if error else None,
        "limit": float(error[2]) if error else None,
        "max_abs_difference": _largest_difference(shipped, theirs, ours),
    }


def _race_folder(bench: Bench, target: str, label: str) -> dict[str, Any]:
    shipped = _ship_once(bench, label, target)
    out = _path_in_bench(bench, "races", _file_name(target))
    limit = bench.max_time or ("30s" if bench.quick else f"{RACE_S}s")
    words = ["--backends", f"{target},shipped:{shipped.folder}", "--baseline", label, "--goal", "resolve 1%"]
    _run_shootout("run", TOY, *words, "--max-time", limit, "--out", str(out))
    document = open_run(out).document
    arm, folder = (next(row for row in document.rows if (row.arm == label) is own) for own in (True, False))
    if not (arm.end_to_end and folder.end_to_end and folder.end_to_end.ratio):
        return {"failed": folder.reason or arm.reason or "no ratio"}
    ratio = folder.end_to_end.ratio
    return {
        "arm_us": arm.end_to_end.median_ns / 1e3,
        "folder_us": folder.end_to_end.median_ns / 1e3,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "verdict": ratio.verdict,
        "restarts": folder.end_to_end.restarts,
    }


def _ship_once(bench: Bench, label: str, target: str) -> ShippedFolder:
    """Return the shipped folder, made unless it is there."""
    folder = _path_in_bench(bench, "folders", _file_name(target))
    if not folder.exists():
        _run_shootout("ship", str(_path_in_bench(bench, "run")), "--target", label, "-o", str(folder))
    return open_shipped(folder)


def _largest_difference(shipped: ShippedFolder, *files: Path) -> float:
    """Return the largest difference of any element of any output; 0 if they are the same to the bit."""
    names = [spec.name for spec in shipped.outputs]
    ours, theirs = (load_sets(file, names) for file in files)
    pairs = [(a[name], b[name]) for a, b in zip(ours, theirs, strict=True) for name in names]
    return max(float(np.abs(a.astype("f8") - b.astype("f8")).max()) for a, b in pairs)


def _path_in_bench(bench: Bench, *parts: str) -> Path:
    return bench.folder.joinpath("ship", *parts)


def _file_name(target: str) -> str:
    return target.replace("+", "-").replace(":", "-").replace("/", "-")


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _run_shootout(*words: str) -> None:
    _run_command([str(Path(sys.executable).parent / "shootout"), *words])


def _run_command(words: Sequence[str]) -> str:
    """Return what a command prints.

    Raises:
        RuntimeError: it ended with another code than 0; says its last words.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise RuntimeError(f"{json.dumps(words[:4])} ended with {done.returncode}: {last}")
    return done.stdout
