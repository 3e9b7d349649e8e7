"""Land folders that choose, in places that differ, and hold each choice against a whole run of its contenders there.

A place is this machine with fewer CPUs, a quota, or without the newest instructions. The run follows the choice at
once, in the same place, and times every contender beside the safe one.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.common import Bench, Table, Tables, say
from lab.marked_tables import ROOT, write_table
from shootout import load as open_run
from shootout.commands.landing import KEPT
from shootout.core.errors import ExitCode
from shootout.core.host.placement import allowed_cpus

MODELS = {
    "deep MLP": ("residual_mlp", "onnxruntime,openvino,litert"),
    "small MLP": ("residual_mlp --set d_model=64 --set n_layers=16", "onnxruntime,litert,torchscript"),
    "CNN": ("digits_cnn", "onnxruntime,openvino,openvino:cpu:int8"),
    "encoder": ("bert --set layers=2 --set hidden=128", "onnxruntime,openvino,torchscript"),
    "recurrent": ("recurrent", "onnxruntime,openvino,litert"),
}
"""The words of a run of each model, and targets one of which is ahead by some margin; it isn't the same everywhere."""
MARGIN = 1.15
"""From this ratio of the second to the fastest on, a choice should be the run's."""
SHIPPED_FROM_S, RUN_S, LIMIT_S, END_S = 30, 20, 180.0, 16.5 * 60
"""What a run lasts that is shipped, one that follows a choice, and a command at most; no landing begins later."""
GOES_ON = (ExitCode.OK, ExitCode.FAILED, ExitCode.UNAVAILABLE)
"""Exit codes of a run that timed what can run in a place."""
FILE = ROOT / "results" / "reference" / "landings.json"
TITLE = "choices where a folder lands, beside whole runs"
NO_AVX512 = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place to land.

    Attributes:
        before: what stands before a command that runs there.
        variables: that its processes have.
    """

    before: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def list_places(folder: Path, targets: str) -> dict[str, Place]:
    """Return the places by name; the last one hides the newest instructions from what reads /proc/cpuinfo."""
    flags = folder / "cpuinfo"
    flags.write_text(re.sub(r" (avx512|avx_vnni|amx)\w*", "", Path("/proc/cpuinfo").read_text()))
    hides = f'mount --bind {flags} /proc/cpuinfo && exec "$@"'
    # OpenVINO's own oneDNN reads this variable too, and then finds no kernel for some products
    older = NO_AVX512 | ({} if "openvino" in targets else {"ONEDNN_MAX_CPU_ISA": "AVX2"})
    return {
        "all CPUs": Place(),
        "1 CPU": Place(before=["taskset", "-c", str(allowed_cpus()[-1])]),
        "half a CPU": Place(before=[sys.executable, "-m", "lab.quota", "0.5"]),
        "no AVX-512": Place(before=["unshare", "-m", "sh", "-c", hides, "sh"], variables=older),
    }


def figures(bench: Bench) -> Tables:
    """Land each model's folder in each place: 20 landings in at most 18 minutes, each kept as it ends."""
    rows: Table = []
    names = [name for name in MODELS if not bench.targets or name in bench.targets]
    began = time.monotonic()
    for model in names[: bench.size(len(names), 1)]:
        for name, place in list_places(bench.folder, MODELS[model][1]).items():
            if time.monotonic() - began > END_S:
                return {TITLE: rows}
            try:
                found = _land(bench, MODELS[model][0], _ship(bench, model), name, place)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                found = {"failed": str(error)}
            rows.append({"model": model, "place": name, **found})
            bench.keep({TITLE: rows})
            say(f"{time.monotonic() - began:5.0f} s  {model}, {name}: {found.get('failed') or _tell(found)}")
    return {TITLE: rows}


def _tell(found: Mapping[str, Any]) -> str:
    margin = found["second_to_fastest"]
    beside = f", second {margin:.2f}x slower" if margin else ""
    return f"{found['chosen']} in {found['decided_s']:.1f} s; the run's fastest is {found['fastest_in_run']}{beside}"


def read_rows() -> Table:
    """Return the landings that ship, but for those that failed; none before they are measured."""
    if not FILE.exists():
        return []
    found = json.loads(FILE.read_text(encoding="utf-8"))["sections"]["landings"]["tables"][TITLE]
    return [row for row in found if not row.get("failed")]


def write_each() -> list[str]:
    """Return the table of docs/evidence/shipping.md with a line for each landing."""
    heads = ["model", "place", "chosen", "the run's fastest", "second ÷ fastest", "chosen ÷ fastest", "seconds"]
    return write_table(heads, map(_write_row, rows)) if (rows := read_rows()) else []


def write_sum() -> list[str]:
    """Return the table that sums them up."""
    if not (rows := read_rows()):
        return []
    clear, decided_s = [row for row in rows if row["agrees"] is not None], sorted(row["decided_s"] for row in rows)
    heads = [
        "landings",
        f"second ÷ fastest ≥ {MARGIN}",
        "of these agree",
        "seconds, middle",
        "most",
        "chosen ÷ fastest, most",
    ]
    figures = [
        *(str(len(rows)), str(len(clear)), str(sum(row["agrees"] for row in clear))),
        *(f"{decided_s[len(rows) // 2]:.1f}", f"{decided_s[-1]:.1f}"),
        f"{max(row['chosen_to_fastest'] for row in rows):.2f}",
    ]
    return write_table(heads, [figures])


def _write_row(row: Mapping[str, Any]) -> list[str]:
    known = [row[name] for name in ("second_to_fastest", "chosen_to_fastest")]
    ratios = ["–" if one is None else f"{one:.2f}" for one in known]
    return [row["model"], row["place"], row["chosen"], row["fastest_in_run"], *ratios, f"{row['decided_s']:.1f}"]


def _ship(bench: Bench, model: str) -> Path:
    """Return a model's folder, made unless it is there."""
    (words, targets), name = MODELS[model], model.replace(" ", "-")
    run, out = (bench.folder / "landings" / f"{name}-{what}" for what in ("run", "folder"))
    if not out.exists():
        limits = ["--threads", "1", "--max-time", f"{SHIPPED_FROM_S}s", "--out", str(run)]
        _run(Place(), *_shootout("run", *words.split(), "--backends", targets, *limits))
        _run(Place(), *_shootout("ship", str(run), "--choose-on-landing", "-o", str(out)))
    return out


def _land(bench: Bench, model_words: str, folder: Path, name: str, place: Place) -> dict[str, Any]:
    """Let the folder choose, then race its contenders in a whole run; return both."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as kept:
        chosen = json.loads(_run(place, sys.executable, "-I", str(folder / "choose.py"), "--json", **{KEPT: kept}))
    landing = json.loads((folder / "landing.json").read_text())
    names = {f"shipped:{one['name']}": one["name"] for one in landing["contenders"]}
    out = bench.folder / "landings" / f"{folder.name}-{name.replace(' ', '-')}"
    words = ["--backends", ",".join(f"shipped:{folder / one['folder']}" for one in landing["contenders"])]
    words += ["--baseline", f"shipped:{landing['safe']}", "--goal", "baseline", "--threads", "1"]
    limit = bench.max_time or f"{RUN_S}s"
    _run(place, *_shootout("run", *model_words.split(), *words, "--max-time", limit, "--out", str(out)))
    times = {names[row.arm]: row.end_to_end for row in open_run(out).document.rows if row.end_to_end}
    ratios = {one: timing.ratio.value if timing.ratio else 1.0 for one, timing in times.items()}
    fastest, *others = sorted(ratios, key=lambda one: ratios[one])
    margin = ratios[others[0]] / ratios[fastest] if others else None
    taken = chosen["chosen"] or chosen["safe"]
    return {
        "contenders": len(names),
        "chosen": taken,
        "fastest_in_run": fastest,
        "second_to_fastest": margin,
        "chosen_to_fastest": ratios.get(taken, math.inf) / ratios[fastest],
        "agrees": taken == fastest if margin and margin >= MARGIN else None,
        "decided_s": chosen["seconds"],
        "restarts": chosen["restarts"],
        "reason": chosen["reason"],
        "left_out": ", ".join(f"{one}: {why}" for one, why in chosen["left_out"].items()),
    }


def _shootout(*words: str) -> list[str]:
    return [str(Path(sys.executable).parent / "shootout"), *words]


def _run(place: Place, *words: str, **variables: str) -> str:
    """Return what a command prints in a place.

    Raises:
        RuntimeError: it ended with another code than 0; says its last words.
    """
    environment = {**os.environ, **place.variables, **variables}
    command = [*place.before, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode not in GOES_ON:
        last = " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise RuntimeError(f"{' '.join(words[:4])} ended with {done.returncode}: {last}")
    return done.stdout
