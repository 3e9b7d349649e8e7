"""Each adapter as it is ÷ as it was before every backend was set as its own experts would: the same models, by turns.

The earlier code is taken out of this repository's history. In each restart two processes start fresh per adapter,
one of each checkout, with the same interpreter, libraries, placement and inputs; both load every model, and then take
turns block by block in a shuffled order, the other held. Nothing of what either's harness measures is used.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables, attempt, log_ratio, say
from lab.parity.sides import Held
from shootout.constants import ALPHA
from shootout.host.placement import child_environment
from shootout.host.store import bias_floor
from shootout.messages import Scope
from shootout.stats.verdicts import compare

from . import side

BEFORE = "3df7d2d"
"""The last commit before the first adapter changed: JAX's and NumPy's weights were laid out next."""
NOW, THEN = "now", "before"
ROOT = Path(__file__).parents[2]
PADDING, ROUNDS, BUILD_TIMEOUT_S = 4096, 6, 900
SAME_OUTPUT = 1e-4
TITLE = "each adapter now ÷ before"
MODELS: Mapping[str, dict[str, Any]] = {
    "toy": {"model": "residual_mlp", "parameters": {}, "batch": 1},
    "8 layers of 512, batch 32": {
        "model": "residual_mlp",
        "parameters": {"d_model": 512, "n_layers": 8},
        "batch": 32,
    },
    "ResNet-14, 128 pixels": {
        "model": "resnet",
        "parameters": {"variant": "14", "image_size": 128},
        "batch": 1,
    },
    "BERT, 2 layers of 128": {
        "model": "bert",
        "parameters": {"layers": 2, "hidden": 128, "tokens": 64, "vocabulary": 1_000},
        "batch": 1,
    },
}
"""The decoder's step isn't among them: models with several outputs came later than that commit."""
TARGETS = (
    *("numpy", "jax-jit", "torch-eager", "torchscript", "torch-compile", "torch-compile+aoti"),
    *("onnxruntime", "openvino"),
)
ARRAY_CODE = ("toy", "8 layers of 512, batch 32")
"""What NumPy has code for; an ONNX file it runs one node after the other, for seconds."""


def figures(bench: Bench) -> Tables:
    """Every adapter on every model that it has."""
    package, rows, found = _checkout(bench.folder / "then"), Table(), defaultdict[tuple[str, str, str], list[Any]](list)
    (bench.folder / "logs").mkdir(exist_ok=True)
    rng, missing = bench.rng("before"), dict[str, str]()
    for target in TARGETS:
        say(f"  {target}: building, both")
        _, why = attempt(partial(_build, bench, target, package))
        if why:
            missing[target] = why["failed"]
    count = bench.repeats(5, 2)  # 6 minutes, and 5 to build
    for index in range(count):
        for target in rng.sample([one for one in TARGETS if one not in missing], len(TARGETS) - len(missing)):
            say(f"  restart {index + 1}/{count}: {target}")
            played, why = attempt(partial(_restart, bench, target, package, rng))
            missing |= {target: why["failed"]} if why else {}
            for key, values in (played or {}).items():
                found[(target, *key)].append(values)
        rows = [_row(*key, values) for key, values in sorted(found.items(), key=lambda one: _order(one[0]))]
        rows += [{"arm": target, "failed": why} for target, why in missing.items()]
        bench.keep({TITLE: rows})
    return {TITLE: rows}


def _checkout(folder: Path) -> Path:
    """The earlier code, and a folder from which `shootout` is imported as it was then."""
    package = folder / "package" / "shootout"
    if not package.exists():
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        package.mkdir(parents=True)
        for one in (*(folder / "harness").iterdir(), folder / "backends", folder / "models"):
            (package / one.name).symlink_to(one)
    return package.parent


def _variables(bench: Bench, age: str, package: Path) -> dict[str, str]:
    """What makes a process import one checkout or the other, each with a cache of its own."""
    if age == NOW:
        return {}
    return {"PYTHONPATH": str(package), "SHOOTOUT_CACHE": str(bench.folder / "cache-then")}


def _job(bench: Bench, target: str, age: str) -> Path:
    return bench.folder / f"{target}-{age}.json"


def _build(bench: Bench, target: str, package: Path) -> None:
    chosen = {name: one for name, one in MODELS.items() if target != "numpy" or name in ARRAY_CODE}
    for age in (NOW, THEN):
        job = _job(bench, target, age)
        job.write_text(json.dumps({"target": target, "models": chosen}))
        command = [sys.executable, "-P", side.__file__, "build", str(job), str(os.getpid())]
        environment = {**child_environment(bench.placement.threads, 0), **_variables(bench, age, package)}
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        if ended.returncode:
            raise RuntimeError(f"building {age}: {ended.stderr.strip().splitlines()[-1:]}")


def _restart(
    bench: Bench, target: str, package: Path, rng: random.Random
) -> dict[tuple[str, str], tuple[float, float, float] | str]:
    """(model, scope) → the log ratio and both medians in ns, or why it wasn't raced."""
    sides: dict[str, Held] = {}
    padding = rng.randrange(PADDING)
    missing: dict[str, str] = {}
    try:
        for age in rng.sample([NOW, THEN], 2):
            script = [side.__file__, "serve", str(_job(bench, target, age))]
            sides[age] = Held(bench, script, padding, _variables(bench, age, package))
            missing |= {name: f"{age}: {why}" for name, why in json.loads(sides[age].ready()).items()}
        apart = _apart(*(_outputs(bench, target, age) for age in (NOW, THEN)))
        missing |= {name: f"outputs differ by {far:.1e}" for name, far in apart.items() if far > SAME_OUTPUT}
        found: dict[tuple[str, str], Any] = {(name, ""): why for name, why in missing.items()}
        for name in apart.keys() - missing.keys():
            found |= {(name, scope): values for scope, values in _race(bench, sides, name, rng).items()}
    finally:
        for one in sides.values():
            one.kill()
    return found


def _race(
    bench: Bench, sides: Mapping[str, Held], name: str, rng: random.Random
) -> dict[str, tuple[float, float, float]]:
    medians: dict[str, dict[str, list[float]]] = {scope.value: {NOW: [], THEN: []} for scope in Scope}
    for _ in range(bench.size(ROUNDS, 2)):
        for age in rng.sample([NOW, THEN], 2):
            with sides[age].going():
                for scope in rng.sample(list(medians), len(medians)):
                    medians[scope][age].append(float(sides[age].ask(name, scope)))
    return {
        scope: (log_ratio(both[NOW], both[THEN]), float(np.median(both[NOW])), float(np.median(both[THEN])))
        for scope, both in medians.items()
    }


def _outputs(bench: Bench, target: str, age: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = pickle.loads(_job(bench, target, age).with_suffix(".outputs").read_bytes())
    return found


def _apart(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> dict[str, float]:
    """By model that both have, the largest relative L2 difference of an output."""
    return {
        name: max(
            float(np.linalg.norm(ours[name][key] - theirs[name][key]) / np.linalg.norm(theirs[name][key]))
            for key in theirs[name]
        )
        for name in ours.keys() & theirs.keys()
    }


def _order(key: tuple[str, str, str]) -> tuple[int, int, str]:
    target, model, scope = key
    return list(MODELS).index(model), TARGETS.index(target), scope


def _row(target: str, model: str, scope: str, values: list[Any]) -> dict[str, Any]:
    if isinstance(values[0], str):
        return {"model": model, "arm": target, "skipped": values[0]}
    x, now, then = np.array(values).T
    found = compare(x, alpha=ALPHA, bias_floor=bias_floor())
    return {
        "model": model,
        "arm": target,
        "scope": scope,
        "before_us": float(np.median(then)) / 1e3,
        "now_us": float(np.median(now)) / 1e3,
        "now ÷ before": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict.value,
        "restarts": found.restarts,
    }
