"""The build matrix: which model TensorRT builds in which precision, without any GPU where TensorRT-RTX is installed.

Every model that ships, at the size that it has by default, in every precision that the adapter offers. Each build is
the adapter's own, in a fresh process with a time limit, from the artifacts that a run would use. What a row says of
layers and operations is read from the engine's own list of layers; no row says anything about speed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.common import Bench, Table, Tables, say
from shootout import models
from shootout.backends._tensorrt.network import TYPED_AS
from shootout.contract import Arm, Precision, Value
from shootout.errors import ShootoutError, SkippedArm
from shootout.export.client import Request, obtain_all
from shootout.exported.model import ExportedModel
from shootout.host.placement import child_environment
from shootout.host.store import cache_folder
from shootout.worker.process import worker

SHARED = "shared"
LABELS = ("fp32", "tf32", "fp16", "bf16", "fp8", f"int8/{SHARED}", "int4")
KINDS: Mapping[str, tuple[dict[str, Value], ...]] = {"recurrent": ({"kind": "rnn"}, {"kind": "gru"}, {"kind": "lstm"})}
"""Models that are several in one."""
QUICK = ("linear",)
LIMIT_S = 600.0
"""For one build."""
REASON_CHARACTERS = 300


def figures(bench: Bench) -> Tables:
    """A row for each model and precision, and how many were built of each precision."""
    rows: list[dict[str, Any]] = []
    for name in QUICK if bench.quick else models.names():
        rows.extend(_of_model(bench, name))
        bench.keep(_tables(rows))
    return _tables(rows)


def _tables(rows: Table) -> Tables:
    return {"TensorRT builds": rows, "TensorRT builds by precision": [_count(label, rows) for label in LABELS]}


def _of_model(bench: Bench, name: str) -> Iterator[dict[str, Any]]:
    for chosen in KINDS.get(name, ({},)):
        plain, shared = obtain_all([Request(model=name, parameters=chosen, variant=one) for one in ("", SHARED)])
        for label in LABELS:
            row = _row(bench, label, shared if label.endswith(SHARED) else plain)
            told = ", ".join(f"{key}={value}" for key, value in chosen.items())
            yield {"model": f"{name} ({told})" if told else name, "label": label, **row}
            say(f"  {name} {told} {label}: {row['outcome']} {row['reason']}")


def _row(bench: Bench, label: str, exported: ExportedModel | ShootoutError) -> dict[str, Any]:
    """How one build went: what it made, or why it made nothing."""
    try:
        if isinstance(exported, ShootoutError):
            raise exported
        arm = bench.arm(f"tensorrt:cuda:{label}", exported.model, exported.parameters)
        facts, build_s = _built(bench, arm, exported)
    except ShootoutError as error:
        return {"outcome": "skipped" if isinstance(error, SkippedArm) else "failed", "reason": _told(error, bench)}
    return {"outcome": "built", "build s": build_s, **_read(facts, arm.target.precision), "reason": ""}


def _built(bench: Bench, arm: Arm, exported: ExportedModel) -> tuple[Mapping[str, Any], float]:
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        folder = Path(name, "built")
        folder.mkdir()
        environment = child_environment(arm.threads, 0)
        with worker(environment, bench.placement.arms, Path(name, "log")) as process:
            facts, build_s = process.ask("build", LIMIT_S, exported=exported, arm=arm, folder=folder)
        return facts, build_s


def _read(facts: Mapping[str, Any], precision: Precision) -> dict[str, Any]:
    layers, operations = facts["compute_nodes_by_precision"], facts.get("flops_by_precision", {})
    promised = TYPED_AS[precision][0]
    return {
        "engine bytes": facts["artifact_bytes"],
        "compute layers": ", ".join(f"{count} {name}" for name, count in sorted(layers.items())) or "none",
        "layers as labelled": _share(layers, promised),
        "operations as labelled": _share(operations, promised),
        "conversion layers": facts.get("conversion_nodes"),
        "library": f"{facts['library']} {facts['version']}",
        "targets": ", ".join(facts["compute_capabilities"]),
    }


def _share(by_precision: Mapping[str, float], promised: str) -> float | None:
    whole = sum(by_precision.values())
    return by_precision.get(promised, 0) / whole if whole else None


def _count(label: str, rows: Table) -> dict[str, Any]:
    outcomes = [row["outcome"] for row in rows if row["label"] == label]
    built, failed, skipped = (outcomes.count(one) for one in ("built", "failed", "skipped"))
    # Not as "failed", by which the bench knows a row of its own that broke.
    return {"label": label, "models": len(outcomes), "built": built, "not built": failed, "skipped": skipped}


def _told(error: ShootoutError, bench: Bench) -> str:
    """The reason in one line, without this run's folders in it."""
    text = str(error).replace(str(bench.folder), "").replace(f"{cache_folder()}/", "")
    return " ".join(text.split())[:REASON_CHARACTERS]
