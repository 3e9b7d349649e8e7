"""The section `trace`: a default run, and ncnn, under strace, nothing cached: exporter, builds, probes, every arm."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import shootout
from lab.common import Bench, Table, Tables
from lab.whole_runs import COMMAND
from shootout.host.locks import machine_lock_path
from shootout.results.analysis import analyse

from .calls import TRACED, Traced, places_of, read_calls

STUDY = Path(str(files(shootout) / "studies/shootout.toml"))
MORE, QUICK = '    "ncnn",\n', 'targets = ["numpy", "onnxruntime"]\n'
INTERNET = ("INET", "INET6")
BYTECODE = "__pycache__"


def figures(bench: Bench) -> Tables:
    """What it asked for; a row that names what it may not is marked as failed."""
    folder = bench.folder / "trace"
    run, cache, temporary, calls = (folder / name for name in ("run", "cache", "tmp", "calls"))
    for one in (temporary, calls):
        one.mkdir(parents=True)
    begins, found, rest = STUDY.read_text().partition("targets = [\n")
    study = folder / "shootout.toml"
    study.write_text(f"max_restarts = 1\n{begins}" + (QUICK if bench.quick else f"{found}{MORE}{rest}"))
    command = [sys.executable, "-c", COMMAND, "run", str(study), "--out", str(run)]
    strace = ["strace", "-ff", "-y", "--seccomp-bpf", "-e", f"trace={','.join(TRACED)}", "-o", str(calls / "of")]
    variables = {"SHOOTOUT_CACHE": str(cache), "TMPDIR": str(temporary)}
    subprocess.run([*strace, *command], env={**os.environ, **variables}, stdin=subprocess.DEVNULL, check=False)
    traced, told = Traced(), sorted(calls.iterdir())
    for file in told:
        with file.open(errors="replace") as lines:
            read_calls(lines, traced)
    places = {"the run folder": run, "the cache": cache, "TMPDIR": temporary, "the machine's lock": machine_lock_path()}
    return {
        "the run": _arms(run, len(told)),
        "sockets": _sockets(traced),
        "files that were written, made, renamed or removed": _files(traced, places),
    }


def _arms(run: Path, processes: int) -> Table:
    rows = analyse(run).rows
    ended = {row.arm: row.outcome for row in rows}
    measured = [arm for arm, outcome in ended.items() if outcome == "measured"]
    others = [f"{arm} {outcome}" for arm, outcome in ended.items() if outcome != "measured"]
    return [{"processes and threads": processes, "measured": ", ".join(measured), "others": ", ".join(others)}]


def _sockets(traced: Traced) -> Table:
    rows = []
    for family in sorted({*INTERNET, *traced.sockets, *traced.addresses}):
        addresses = sorted(traced.addresses.get(family, ()))
        row = {"family": family, "sockets": traced.sockets[family], "addresses": "; ".join(addresses)}
        if family in INTERNET and (row["sockets"] or addresses):
            row["failed"] = f"an internet socket: {row['addresses'] or 'unconnected'}"
        rows.append(row)
    return rows


def _files(traced: Traced, places: dict[str, Path]) -> Table:
    inside, outside = places_of(traced.changed, places)
    rows: Table = [{"where": name, "paths": count} for name, count in sorted(inside.items())]
    compiled = [path for path in outside if BYTECODE in path.parts]
    rows.append({"where": "bytecode that Python keeps beside a module", "paths": len(compiled)})
    elsewhere = sorted(str(path) for path in set(outside) - set(compiled))
    rows.append({"where": "elsewhere", "paths": len(elsewhere)})
    return rows + [{"where": path, "paths": 1, "failed": f"{path} was changed"} for path in elsewhere]
