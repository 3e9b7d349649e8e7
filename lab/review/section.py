"""The review's own cases, reproduced or refuted: work done as an adapter once did it ÷ as it does it now.

Both ways are plain code of the library's own (INT4's go through the adapters), by turns within one process; fresh
processes give the interval. What the review said stands beside it, and where it said nothing the row has no claim.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables, attempt, say
from shootout.backends.adapter import Built
from shootout.constants import ALPHA
from shootout.host.placement import child_environment, on_cpus
from shootout.host.store import bias_floor
from shootout.stats.verdicts import Comparison, Verdict, compare

from . import cases
from .claims import CLAIMS

LIBRARIES = ("arrays", "runtimes", "torch")
JOBS = "int4.built"
TITLE = "as it was ÷ as it is, by the review's cases"
PADDING, TIMEOUT_S = 4096, 600
EQUAL = 1.05
"""The review calls what differs by less "equal"."""
PRODUCT = {"inputs": 2_048, "outputs": 2_048}
FORMS = ("int4", "int4/activations-8", "int8/weights-only", "int8-dynamic")
INT4_ROWS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "2048 x 2048, ONNX Runtime, blocks of 128": ("onnxruntime", (*FORMS[:3], "int8-dynamic/matmul-nbits"), {}),
    "2048 x 2048, ONNX Runtime, blocks of 32": (
        "onnxruntime",
        (*FORMS[:3], "int8-dynamic/matmul-nbits"),
        {"block_size": "32"},
    ),
    "2048 x 2048, OpenVINO, groups of 128": ("openvino", FORMS, {}),
}
"""By row: the backend, the forms beside its FP32, and options of these."""


def figures(bench: Bench) -> Tables:
    """Every case of every library."""
    _build(bench)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {library: defaultdict(list) for library in LIBRARIES}
    broken: Table = []
    count, rng = bench.repeats(5, 2), bench.rng("review")  # 4 minutes
    for index in range(count):
        for library in rng.sample(LIBRARIES, len(LIBRARIES)):
            say(f"  process {index + 1}/{count}: {library}")
            measured, why = attempt(partial(_process, bench, library, rng.randrange(PADDING)))
            broken += [{"case": library, **why}] if why else []
            for one in measured or []:
                found[library][one["case"]].append(one)
        rows = [row for told in found.values() for name, ones in told.items() for row in _rows(name, ones)]
        bench.keep({TITLE: rows + broken})
    return {TITLE: rows + broken + unheard(rows)}


def unheard(rows: Table) -> Table:
    """A row for each of the review's cases that none of ours has the name of."""
    ours = {(row["case"], row["is"]) for row in rows}
    return [{"case": case, "is": way, "failed": "no such case"} for case, way in CLAIMS if (case, way) not in ours]


def _build(bench: Bench) -> None:
    """INT4's arms, for the processes that race them."""
    jobs: dict[str, dict[str, Built]] = {}
    for name, (backend, forms, options) in INT4_ROWS.items():
        say(f"  {name}: building")
        plain = {"fp32": bench.built(bench.arm(backend, "linear", PRODUCT))}
        others = {
            form: bench.built(bench.arm(f"{backend}:cpu:{form}", "linear", PRODUCT, options=options)) for form in forms
        }
        jobs[name] = plain | others
    (bench.folder / JOBS).write_bytes(pickle.dumps(jobs))


def _process(bench: Bench, library: str, padding: int) -> list[dict[str, Any]]:
    """What one process told of its cases."""
    command = [sys.executable, "-P", cases.__file__, library, str(bench.folder), str(os.getpid())]
    with on_cpus(bench.placement.arms):
        ended = subprocess.run(
            command,
            env=child_environment(1, padding),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        raise RuntimeError(" ".join(ended.stderr.strip().splitlines()[-1:]))
    return [json.loads(line) for line in ended.stdout.splitlines()]


def _rows(name: str, ones: list[dict[str, Any]]) -> Table:
    first = next(iter(ones[0]["us"]))
    far = max(one["apart"] for one in ones)
    rows: Table = []
    for way in ones[0]["x"]:
        ratio = compare(np.array([one["x"][way] for one in ones]), alpha=ALPHA, bias_floor=bias_floor())
        claim = CLAIMS.get((name, way))
        rows.append(
            {
                "case": name,
                "was": first,
                "is": way,
                "was_us": float(np.median([one["us"][first] for one in ones])),
                "is_us": float(np.median([one["us"][way] for one in ones])),
                "review": claim,
                "ratio": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "holds": None if claim is None else reproduced(claim, ratio),
                "processes": ratio.restarts,
                **({"failed": f"results differ by {far:.1e}"} if far > ones[0]["most_apart"] else {}),
            }
        )
    return rows


def reproduced(claim: float, ratio: Comparison) -> str:
    """Whether a ratio says what the review said: slower, faster or equal; its sizes are of a busy machine."""
    direction = Verdict.SLOWER if claim > 1 else Verdict.FASTER
    claimed = "equal" if abs(math.log(claim)) < math.log(EQUAL) else direction
    small = ratio.low is not None and ratio.high is not None and 1 / EQUAL < ratio.low <= ratio.high < EQUAL
    if claimed == "equal":
        return (
            "reproduced" if small else "refuted" if ratio.verdict in (Verdict.FASTER, Verdict.SLOWER) else "can't tell"
        )
    if ratio.verdict in (Verdict.FASTER, Verdict.SLOWER):
        return "reproduced" if ratio.verdict == claimed else "refuted"
    return "refuted" if small else "can't tell"
