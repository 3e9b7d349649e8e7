"""Ask of each net of the corpus what a user would: does a minute give the answer, and does the dry run say beforehand
what that takes?

For each net one `shootout run --dry-run`, and then the run itself, with nothing exported or built before. A net that is
done keeps its row in the bench's folder, beside those of other limits, and isn't run again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.common import Bench, Tables, say
from lab.corpus_nets import NETS, Net
from lab.packaged_runs import GIVEN_UP_S, read_result
from lab.packages import kept
from lab.whole_runs import COMMAND
from shootout.core.clock import Stopwatch
from shootout.core.errors import one_line
from shootout.core.journal import journal

TARGETS = ("onnxruntime", "openvino", "torch-eager", "onnxruntime:cpu:int8")
MAX_TIME = "60s"
QUICK = ("mlp-1m",)
STEPS = {"export": "export_s", "builds": "build_s", "restart": "restart_s"}
"""By step, the name of its estimate in a dry run's JSON."""


def figures(bench: Bench) -> Tables:
    """Make one row for each net: what was foreseen, what it was, and what a user was told."""
    names = bench.targets or (QUICK if bench.quick else tuple(NETS))
    max_time = bench.max_time or MAX_TIME
    folder = bench.folder / "corpus" / max_time
    folder.mkdir(parents=True, exist_ok=True)
    tables: Tables = {f"nets in {max_time}": []}
    for name in names:
        row = kept(folder / f"{name}.json", partial(_make_row, name, NETS[name], folder, max_time))
        tables[f"nets in {max_time}"].append(row)
        bench.keep(tables)
        say(f"  {name}: {row['wall s']:.0f} s, {row['ships'] or row['no answer']} {row['open'] or ''}")
    return tables


def _make_row(name: str, net: Net, folder: Path, max_time: str) -> dict[str, Any]:
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    file = net.write(folder.parent / "nets", name)
    size = sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))
    asked = ["run", "--model", str(file), "--backends", ",".join(TARGETS), "--max-time", max_time]
    cache = folder / "cache"
    environment = {**os.environ, "SHOOTOUT_CACHE": str(cache)}
    foreseen = _foresee(asked, environment)
    out, log = place / "run", place / "log"
    with log.open("w") as told, Stopwatch() as wall:
        command = [sys.executable, "-c", COMMAND, *asked, "--out", str(out)]
        try:
            code = subprocess.run(
                command, env=environment, stdout=told, stderr=told, timeout=GIVEN_UP_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    disk = sum(one.stat().st_size for one in cache.rglob("*") if one.is_file())
    for made in cache.glob("*/*/"):  # what is left tells which backends work here
        shutil.rmtree(made)
    last = one_line(log.read_text()).rpartition(" | ")[2].replace(f"{place}/", "")
    return {
        "net": name,
        "kind": net.kind,
        "architecture": net.source,
        "MB": size / 1e6,
        **_compare_steps(foreseen, _read_steps(out)),
        "disk MB": disk / 1e6,
        "wall s": wall.seconds,
        "exit code": code,
        **read_result(out, last if code else "", TARGETS),
    }


def _foresee(asked: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-c", COMMAND, *asked, "--dry-run", "--json"]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def _read_steps(out: Path) -> dict[str, float | None]:
    """Return the seconds of the exports, of the builds one after the other, and of the first restart."""
    history = journal.read(out) if journal.begun(out) else None
    lines = history.lines if history else ()
    prepared = [line for line in lines if line.kind == "prepared"]
    restarts = [line.wall_s for line in lines if line.kind == "rounds"]
    exports = {line.exported: line.export_s for line in prepared}
    return {
        "export": sum(exports.values()) or None,
        "builds": sum(line.build_s for line in prepared) or None,
        "restart": restarts[0] if restarts else None,
    }


def _compare_steps(foreseen: Mapping[str, Any], took: Mapping[str, float | None]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for step, name in STEPS.items():
        expected, real = foreseen.get(name), took[step]
        found[f"{step} s foreseen"], found[f"{step} s"] = expected, real
        found[f"{step} factor"] = expected / real if expected and real else None
    return found
