"""Decide a precision for twelve models by their own tasks' measures, and compute each measure again by hand.

One `shootout run` for each model. Then the quantized targets are shipped, and what their `load.py` answers is scored
row by row without the product's metrics; FP32 is the ONNX file itself in ONNX Runtime. A model that is done keeps its
row in the bench's folder.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from lab.common import Bench, Table, Tables, say
from lab.packages import kept
from lab.task_case import Case
from shootout.apps.judge.analysis import analyse
from shootout.core.clock import Stopwatch
from shootout.core.contract import Array
from shootout.core.errors import one_line
from shootout.core.journal import journal
from shootout.tell.document import Document, Row

TARGETS = "onnxruntime:cpu:fp32,onnxruntime:cpu:int8,openvino:cpu:fp32,openvino:cpu:int8"
MAX_TIME = "90s"
LIMIT_S = 900.0
SHOOTOUT = (sys.executable, "-c", "import sys; from shootout.cli import main; sys.argv[0] = 'shootout'; main()")
NO_TARGET, MORE_ROWS = "no such target", "more rows would tell"
SCORED = slice(None, None, 2)
"""The rows that `run` scores, of those that it gets."""
PLAIN = """
import sys
import numpy as np
model, inputs, outputs = sys.argv[1:]
if model.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    predict = lambda call: dict(zip(names, session.run(None, call)))
else:
    sys.path.insert(0, model)
    import load
    load.load()
    predict = load.predict
with np.load(inputs) as given:
    arrays = {name: given[name] for name in given.files}
rows = range(len(next(iter(arrays.values()))))
calls = [predict({name: array[row : row + 1] for name, array in arrays.items()}) for row in rows]
np.savez(outputs, **{name: np.stack([np.array(call[name]) for call in calls]) for name in calls[0]})
"""
"""Runs a file or a shipped folder row by row, in a process of its own."""


@dataclass(frozen=True, slots=True)
class Task:
    """A model that people ship, and what it is for.

    Attributes:
        kind: of model.
        made_by: the module and its function, which takes the task's folder and that of wheels.
    """

    name: str
    kind: str
    made_by: str

    def make(self, folder: Path, wheels: Path) -> Case:
        """Import the module and make the model and its data."""
        module, function = self.made_by.split(":")
        make: Callable[[Path, Path], Case] = getattr(importlib.import_module(f"lab.{module}"), function)
        return make(folder, wheels)


TASKS = (
    Task("minilm", "text embedder", "task_files:embed_sentences"),
    Task("detector", "detector", "task_nets:detect_digits"),
    Task("unet", "segmentation U-Net", "task_nets:segment_digits"),
    Task("forecast", "forecast, two outputs", "task_nets:forecast_temperatures"),
    Task("forest", "random forest", "task_files:classify_digits"),
    Task("denoiser", "diffusion block", "task_nets:denoise_digits"),
    Task("recogniser", "text recogniser", "task_nets:read_numbers"),
    Task("nudenet", "detector of a package", "task_files:find_bodies"),
    Task("ocr-pages", "OCR text detector", "task_files:find_lines"),
    Task("ocr-lines", "OCR recogniser", "task_files:read_lines"),
    Task("silero", "voice detector", "task_files:hear_voice"),
    Task("magika", "content classifier", "task_files:classify_files"),
)


def figures(bench: Bench) -> Tables:
    """Make a row for each model, and one for each of its quantized targets."""
    wheels = bench.folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    tables: Tables = {"models": [], "targets": []}
    chosen = [one for one in TASKS if not bench.targets or one.name in bench.targets][: bench.size(len(TASKS), 1)]
    for task in chosen:
        make = partial(_decide, task, bench.folder / "tasks", wheels, bench.max_time or MAX_TIME)
        try:
            found = kept(bench.folder / "tasks" / f"{task.name}.json", make)
        except (RuntimeError, subprocess.SubprocessError) as error:
            found = {"model": {"model": task.name, "failed": one_line(str(error))}, "targets": []}
        tables["models"].append(found["model"])
        tables["targets"] += found["targets"]
        bench.keep(tables)
        say(f"  {found['model'].get('says') or found['model']['failed']}")
    return tables


def _decide(task: Task, place: Path, wheels: Path, max_time: str) -> dict[str, Any]:
    """Run the one command, read its answer, and compute the measure by hand."""
    folder = place / task.name
    folder.mkdir(parents=True, exist_ok=True)
    case = task.make(folder, wheels)
    command, log = write_case(case, folder, max_time), folder / "log"
    ended = kept(folder / "ended.json", partial(_run_command, command, folder, log), lambda _: True)
    said = log.read_text()
    document = analyse(folder / "run") if journal.begun(folder / "run") else None
    if document is None or not document.answer:
        raise RuntimeError(f"exit code {ended['exit code']}: {one_line(said)[-300:]}")
    targets = compare_by_hand(case, document, folder)
    answer = document.answer[0]
    ship = answer.ship.arm if answer.ship else None
    says = re.search(r"^Ship.*?(?=^Sure)", said, re.MULTILINE | re.DOTALL)
    return {
        "model": {
            "model": task.name,
            "kind": task.kind,
            "inputs": case.source,
            "command": shlex.join(["shootout", *command]),
            "scored rows": len(range(len(case))[SCORED]),
            "ships": ship,
            "open": answer.reason,
            "decided": all(
                one["standing"] in ("admitted", "refused", NO_TARGET) or one.get("rows to tell") for one in targets
            ),
            "says": " ".join((says[0] if says else said[-300:]).split()),
            "wall s": ended["wall s"],
        },
        "targets": [{"model": task.name, **one} for one in targets],
    }


def _run_command(command: Sequence[str], folder: Path, log: Path) -> dict[str, Any]:
    """Run it once; what is kept says that it has ended."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    with log.open("w") as told, Stopwatch() as wall:
        done = subprocess.run([*SHOOTOUT, *command], cwd=folder, stdout=told, stderr=told, timeout=LIMIT_S, check=False)
    return {"exit code": done.returncode, "wall s": round(wall.seconds, 1)}


def write_case(case: Case, folder: Path, max_time: str) -> list[str]:
    """Write the data as a user has them, and return the command's words."""
    np.savez(folder / "inputs.npz", **case.inputs)  # type: ignore[arg-type] # the stub takes arrays for allow_pickle
    if case.model.parent != folder:
        shutil.copy(case.model, folder)
    words = ["run", "--model", case.model.name, "--inputs", "inputs.npz"]
    words += [f"--set={axis}={size}" for axis, size in case.sizes.items()]
    if isinstance(case.truth, np.ndarray):
        np.savez(folder / "truth.npz", right=case.truth)
        words += ["--truth", "truth.npz"]
    elif case.truth is not None:
        pyarrow.parquet.write_table(pyarrow.table({"right": case.truth}), folder / "truth.parquet")
        words += ["--truth", "truth.parquet"]
    for name, text in case.files.items():
        (folder / name).write_text(text)
    return [*words, *case.measure, "--backends", TARGETS, "--max-time", max_time, "--out", "run"]


def compare_by_hand(case: Case, document: Document, folder: Path) -> Table:
    """Return for each quantized target what the run found, and the same computed by hand."""
    inputs = {name: array[SCORED] for name, array in case.inputs.items()}
    np.savez(folder / "scored.npz", **inputs)  # type: ignore[arg-type] # as in write_case
    outputs = _predict(str(case.model), folder, "fp32")
    right = [_take_row(outputs, row) for row in range(len(next(iter(inputs.values()))))]
    right = right if case.truth is None else list(case.truth)[SCORED]
    before = _score(case, outputs, right)
    return [_compare_target(case, row, folder, before, right) for row in document.rows if row.precision == "int8"]


def _compare_target(case: Case, row: Row, folder: Path, before: Array, right: Sequence[Any]) -> dict[str, Any]:
    metric = row.fidelity.metric if row.fidelity else None
    found: dict[str, Any] = {"target": row.arm, "standing": tell_standing(row)}
    if metric is None:
        return {**found, "why": row.reason or "; ".join(row.notes)}
    change = metric.change
    found |= {"measure": metric.name, "against": metric.against, "mean": metric.value, "rows": metric.rows}
    if change and metric.limits == "drop":
        found |= {"change": change.value, "low": change.low, "high": change.high}
    else:
        found |= {"low": metric.low, "high": metric.high}
    found |= {"limit": metric.limit, "rows to tell": metric.rows_needed}
    found["lower is better"] = metric.lower_is_better
    shipped = folder / row.arm.replace(":", "-")
    shutil.rmtree(shipped, ignore_errors=True)
    words = ["ship", "run", "--target", row.arm, "-o", shipped.name]
    done = subprocess.run([*SHOOTOUT, *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        return {**found, "by hand": one_line(done.stderr)[-200:]}
    after = _score(case, _predict(str(shipped), folder, shipped.name), right)
    return {**found, **compute_by_hand(case, before, after)}


def compute_by_hand(case: Case, before: Array, after: Array) -> dict[str, Any]:
    """Return means, and the plain interval of the change, or of an agreement: mean ± 1.96 standard errors."""
    if case.truth is None:
        reach = 1.96 * after.std(ddof=1) / math.sqrt(len(after))
        found = {
            "mean by hand": after.mean(),
            "low by hand": after.mean() - reach,
            "high by hand": after.mean() + reach,
        }
        return {name: float(value) for name, value in found.items()}
    gains = after - before
    reach = 1.96 * gains.std(ddof=1) / math.sqrt(len(gains))
    found = {"mean by hand": after.mean(), "FP32 by hand": before.mean(), "change by hand": gains.mean()}
    found |= {"low by hand": gains.mean() - reach, "high by hand": gains.mean() + reach}
    return {name: float(value) for name, value in found.items()}


def tell_standing(row: Row) -> str:
    """Say whether the measure admits a target."""
    metric = row.fidelity.metric if row.fidelity else None
    if metric is None or metric.standing is None:
        return NO_TARGET if row.outcome == "skipped" else f"{row.outcome}, not judged"
    if metric.standing == "met":
        return "admitted"
    return "refused" if metric.standing == "broken" else MORE_ROWS


def _predict(model: str, folder: Path, name: str) -> Mapping[str, Array]:
    outputs = folder / f"{name}.npz"
    words = [sys.executable, "-P", "-c", PLAIN, model, str(folder / "scored.npz"), str(outputs)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(words, env=environment, timeout=LIMIT_S, check=True)
    with np.load(outputs) as stored:
        return {key: stored[key] for key in stored.files}


def _take_row(outputs: Mapping[str, Array], row: int) -> dict[str, Array]:
    return {name: array[row] for name, array in outputs.items()}


def _score(case: Case, outputs: Mapping[str, Array], right: Sequence[Any]) -> Array:
    return np.array([case.score(_take_row(outputs, row), entry) for row, entry in enumerate(right)])


def write_page(tables: Tables) -> str:
    """Return the table of docs/evidence/metrics.md."""
    lines = [
        "| model | rows | measure | FP32 | ONNX Runtime INT8 | OpenVINO INT8 | ships |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in tables["models"]:
        mine = {row["target"]: row for row in tables["targets"] if row["model"] == model["model"]}
        cells = [_tell_target(mine.get(f"{backend}:cpu:int8", {})) for backend in ("onnxruntime", "openvino")]
        known = next((row for row in mine.values() if "FP32 by hand" in row), {})
        fp32 = f"{known['FP32 by hand']:.4g}" if known else "its own outputs" if "agreement" in cells[0] else "–"
        measure = next((row["measure"] for row in mine.values() if "measure" in row), "–")
        name, ships = f"{model['kind']}, `{model['model']}`", f"`{model['ships']}`" if model["ships"] else "nothing yet"
        lines.append(f"| {' | '.join([name, str(model['scored rows']), measure, fp32, *cells, ships])} |")
    return "\n".join(lines)


def _tell_target(row: Mapping[str, Any]) -> str:
    if row.get("low") is None:
        return "no time for it" if row.get("standing", "").startswith("not timed") else "none"
    if "change" in row:
        told = f"{row['change']:+.2g} ({row['low']:+.2g} to {row['high']:+.2g})"
    else:
        told = f"agreement {row['mean']:.4g} ({row['low']:.4g} to {row['high']:.4g})"
    needed = f"about {row['rows to tell']:,} rows would tell" if row["rows to tell"] else MORE_ROWS
    return f"{told}, {needed if row['standing'] == MORE_ROWS else row['standing']}"
