"""Run the studies of the published experiments to a result, and keep each as a packed run for docs/evidence/claims.md.

One `shootout run` for each, with a limit, in the order of what a result is missing most for. A run that is kept isn't
run again, and one that was stopped goes on where it was, so that the section may be stopped and started again. The
targets of each are those that its claim is about: all of them together take less than an hour on two CPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lab.claims_page import PAGE, RUNS, write_page
from lab.common import Bench, Tables, say
from lab.whole_runs import COMMAND
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.compare.merged import pack
from shootout.core.clock import Stopwatch
from shootout.core.errors import UsageError
from shootout.core.journal import journal
from shootout.models.sources.trees import Trees
from shootout.tell.reproduce import quote

ROOT = Path(__file__).resolve().parents[1]
DEEP = "results/reference/fixed-parameters.toml"
TREES = ("forest.onnx", "mlp.onnx")
LEARNED_SHARE = 0.5
"""The part of the rows of `trees` that its two models learn from."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A run that the page of claims rests on.

    Attributes:
        name: of its folder in results/reference.
        minutes: that it may take, exports and builds among them.
        words: behind `shootout run`.
    """

    name: str
    minutes: float
    words: tuple[str, ...]


def _kept(name: str, minutes: float, words: str) -> Kept:
    return Kept(name, minutes, tuple(words.split()))


KEPT = (
    _kept(
        "depth-sweep",
        5,
        "depth-sweep --set n_layers=128,1024,3840 --backends torch-eager,onnxruntime,numpy",
    ),
    _kept("fixed-parameters", 8, DEEP),
    _kept(
        "nested-sin",
        5,
        "nested-sin --set elements=1024,32768,1048576,33554432,67108864,1073741824 "
        "--backends torch-eager,torch-compile,torchscript",
    ),
    _kept(
        "linear-precision",
        3.5,
        "linear-precision --backends torch-eager,torch-eager:cpu:bf16,torch-eager:cpu:int8-dynamic,jax-jit,"
        "jax-jit:cpu:bf16,onnxruntime,onnxruntime:cpu:int8-dynamic,onnxruntime:cpu:int8,openvino,openvino:cpu:bf16,"
        "openvino:cpu:int8",
    ),
    _kept(
        "frontier",
        3.5,
        "frontier --backends torch-eager,onnxruntime,onnxruntime:cpu:int8,openvino,openvino:cpu:int8",
    ),
    _kept(
        "bert-quantization",
        4.5,
        "bert-quantization --backends onnxruntime,onnxruntime:cpu:int8,onnxruntime:cpu:int8-dynamic,openvino,"
        "openvino:cpu:bf16,openvino:cpu:int8,openvino:cpu:int8-dynamic",
    ),
    _kept("attention", 4.5, "attention --backends torch-eager,onnxruntime,openvino"),
    _kept("training", 3, "training --backends torch-eager,torch-eager:cpu:bf16,jax-jit"),
    _kept(
        "trees",
        1,
        f"--model {','.join(TREES)} --backends onnxruntime --inputs rows.npz --labels labels.npz --max-error 0.99 "
        "--batch 1,64 --goal baseline",
    ),
    _kept("detectors", 2, "detectors --backends torch-eager,onnxruntime,openvino,litert"),
    _kept("calibration-sweep", 1.5, "calibration-sweep"),
    _kept(
        "width-large",
        4,
        "width-sweep --set d_model=512,1024,2048 --backends torch-eager,onnxruntime,openvino",
    ),
    _kept(
        "resnet-quantization",
        3,
        "efficientnet-quantization --model resnet --backends onnxruntime,onnxruntime:cpu:int8,openvino,"
        "openvino:cpu:bf16,openvino:cpu:int8",
    ),
    _kept("matmul-large", 1.5, "matmul-transfers --set n=1,64,1024,4096 --backends numpy,torch-eager"),
)


def figures(bench: Bench) -> Tables:
    """Run what isn't kept yet, or what `--targets` names of it; then write the page again.

    With `--quick` nothing is kept, and the page stays as it is: that shows whether each run works, and leaves exports
    and builds in the cache.
    """
    chosen = [one for one in KEPT if not bench.targets or one.name in bench.targets]
    rows: list[dict[str, Any]] = []
    for one in chosen:
        rows.append(_run(bench, one))
        say(f"  {rows[-1]}")
        bench.keep({"runs": rows})
    if not bench.quick:
        write_page()
        say(f"  {PAGE}")
    return {"runs": rows}


def _run(bench: Bench, one: Kept) -> dict[str, Any]:
    """Run one and keep it; what it left is kept even if its time was over, since its verdicts stand."""
    folder = bench.folder / "claims"
    into, out = RUNS / one.name, folder / one.name
    if not bench.quick and (into / journal.PACKED).exists():
        return {"run": one.name, "state": "kept before"}
    if bench.quick:
        shutil.rmtree(out, ignore_errors=True)
    if one.name == "trees":
        fit_trees(folder)
    limit = bench.max_time or f"{one.minutes * 60:.0f}s"
    command = [sys.executable, "-c", COMMAND, "run", *one.words, "--max-time", limit, "--out", str(out)]
    place = folder if one.name == "trees" else ROOT  # the record of a run names files as its command does
    with Stopwatch() as wall:
        code = subprocess.run(command, cwd=place, env=os.environ, stdout=sys.stderr, check=False).returncode
    row = {"run": one.name, "exit": code, "wall_s": round(wall.seconds, 1), **_summarize(out)}
    if bench.quick or not row["timed"]:
        return {**row, "state": "not kept"}
    try:
        pack(out, into)
    except UsageError as error:
        return {**row, "state": f"not kept: {error}"}
    told = quote(["shootout", "run", *one.words, "--max-time", limit])
    return {**row, "state": "kept", "row of the README": f"| `{one.name}` | `{told}` | {_commit()} | … | claims |"}


def _summarize(out: Path) -> dict[str, Any]:
    if not journal.begun(out):
        return {"timed": 0}
    document = analyse(out)
    timed = [row for row in document.rows if row.end_to_end]
    told = [row.end_to_end.ratio for row in timed if row.end_to_end and row.end_to_end.ratio]
    return {
        "groups": len(document.groups),
        "timed": len(timed),
        "failed": sum(row.outcome == "failed" for row in document.rows),
        "verdicts": sum(ratio.decided for ratio in told),
        "restarts": min((group.restarts for group in document.groups), default=0),
        "flagged_percent": round(100 * document.void_share, 1),
    }


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def fit_trees(folder: Path) -> None:
    """Fit a random forest and a small MLP to half of scikit-learn's breast cancer data, and keep the other half.

    The files of `trees` are written into `folder`: both models as ONNX, the rows and their labels.
    """
    import joblib
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folder.mkdir(parents=True, exist_ok=True)
    rows, labels = load_breast_cancer(return_X_y=True)
    known, others, right, wanted = train_test_split(
        rows.astype(np.float32), labels, train_size=LEARNED_SHARE, random_state=0, stratify=labels
    )
    mlp = make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=1_000, random_state=0))
    for name, model in zip(TREES, (RandomForestClassifier(100, random_state=0), mlp), strict=True):
        file = folder / Path(name).with_suffix(".joblib")
        joblib.dump(model.fit(known, right), file)
        shutil.copyfile(Trees().convert(str(file)), folder / name)
    np.savez(folder / "rows.npz", X=others)
    np.savez(folder / "labels.npz", labels=wanted.astype(np.int64))
