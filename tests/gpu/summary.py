"""What a campaign has found, from its folder alone: it measures nothing, and may be made again at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shootout.clock import utc_now
from shootout.errors import ShootoutError
from shootout.host import environment
from shootout.journal import journal
from shootout.results import analysis

from . import conformance
from .state import State, Status
from .steps import STEPS

NAME = "summary.json"
SCHEMA = 1
A_A = "a-a"
FLOATS = ("fp32", "tf32", "bf16", "fp16")
"""Precisions that the permutation probe tells apart."""

Json = dict[str, Any]


def summary(state: State, setup: Sequence[str] = ()) -> Json:
    """Everything as JSON values.

    Args:
        setup: what the set-up said, a line each.
    """
    unread: dict[str, str] = {}
    documents = dict(_documents(state.folder, unread))
    rows = [{"run": name, **row} for name, one in documents.items() for row in one["rows"] if row["device"] == "cuda"]
    facts = next((one["environment"] for one in documents.values()), None) or environment.facts()
    doctor = output(state.folder, "doctor")
    return {
        "schema": SCHEMA,
        "created": utc_now(),
        "environment": facts,
        "setup": list(setup),
        "steps": [_step(state, step.name, step.brings) for step in STEPS],
        "runs": [_run(name, one) for name, one in documents.items()],
        "rows": [_row(row) for row in rows if row["outcome"] == "measured"],
        "crossovers": [
            {"run": name, **crossing}
            for name, one in documents.items()
            for crossing in one["crossovers"]
            if (":cuda:" in crossing["a"]) != (":cuda:" in crossing["b"])
        ],
        "probes": _probes(rows),
        "a_a": _a_a(documents.get(A_A)),
        "selftest": output(state.folder, "selftest"),
        "conformance": conformance.results(state.folder),
        "handoff": _handoff(state.folder),
        "failed": [
            {key: row[key] for key in ("run", "group", "arm", "reason")} for row in rows if row["outcome"] == "failed"
        ],
        "missing": [*_missing(rows, doctor, state), *_unread(unread)],
    }


def _documents(folder: Path, unread: dict[str, str]) -> Iterator[tuple[str, Json]]:
    """Each run's document, by the step's name.

    Args:
        unread: gets the words on runs that can't be read; they must not cost the others their places.
    """
    for step in STEPS:
        if step.study and journal.begun(folder / step.name):
            try:
                yield step.name, analysis.analyse(folder / step.name).model_dump(mode="json")
            except (ShootoutError, OSError, ValueError, LookupError) as error:
                unread[step.name] = f"its run can't be read: {type(error).__name__}: {error}"


def _unread(unread: Mapping[str, str]) -> list[Json]:
    fix = "see shootout show on its folder, or choose another OUT"
    return [{"who": [f"step {name}"], "reason": why, "fix": fix} for name, why in unread.items()]


def _step(state: State, name: str, brings: str) -> Json:
    one = state.standings[name]
    return {"name": name, "brings": brings, "status": one.status, "wall_s": one.wall_s, "words": one.words}


def _run(name: str, document: Json) -> Json:
    """A run in a few figures, of the GPU's rows, and of the control: a copy of each group's baseline."""
    outcomes = [row["outcome"] for row in document["rows"] if row["device"] == "cuda"]
    judged = {group["name"]: group["control"] for group in document["groups"] if group["control"]["ratio"]}
    return {
        "run": name,
        "complete": document["complete"],
        "wall_s": document["wall_s"],
        "on_gpu": {outcome: outcomes.count(outcome) for outcome in ("measured", "failed", "skipped")},
        "groups": len(document["groups"]),
        "void_share": document["void_share"],
        "controls": {"held": sum(one["holds"] for one in judged.values()), "judged": len(judged)},
        "broken_controls": [group for group, one in judged.items() if not one["holds"]],
        "holding": document.get("holding"),
    }


def _row(row: Json) -> Json:
    """One GPU row: its times in ns, its place beside the baseline, and what it proved to be."""
    whole, compute = row["end_to_end"], row["compute"]
    ratio = whole["ratio"] if whole else None
    return {
        **{key: row[key] for key in ("run", "group", "arm", "precision")},
        "end_to_end_ns": whole and whole["median_ns"],
        "compute_ns": compute and compute["median_ns"],
        "gpu": row["gpu"],
        "ratio": ratio and {key: ratio[key] for key in ("value", "low", "high", "verdict", "reason")},
        "probe": _probe(row),
    }


def _probe(row: Json) -> str | None:
    return row["fidelity"]["probe"] if row["fidelity"] else None


def _probes(rows: Iterable[Json]) -> list[Json]:
    """For each float precision: the measured rows that the permutation probe confirmed, refuted, or couldn't judge."""
    found = []
    for precision in FLOATS:
        own = [row for row in rows if row["precision"] == precision and row["outcome"] == "measured"]
        said = [_probe(row) for row in own]
        found.append(
            {
                "precision": precision,
                "confirmed": said.count(precision),
                "refuted": sorted({row["arm"] for row in own if _probe(row) not in (precision, None)}),
                "not_probed": said.count(None),
            }
        )
    return found


def _a_a(document: Json | None) -> Json | None:
    """A GPU arm against itself: what should be 1, of the same arm named twice and of the hidden copy."""
    if document is None:
        return None
    ratios = {row["arm"]: row["end_to_end"]["ratio"] for row in document["rows"] if row["end_to_end"]}
    ratios["the hidden copy"] = document["control"]["ratio"]
    return {
        "holds": document["control"]["holds"],
        "void_share": document["void_share"],
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio},
    }


def output(folder: Path, step: str) -> Json | None:
    """The JSON document that a step printed; None where it printed none, or was cut off."""
    try:
        found: Json = json.loads((folder / "logs" / f"{step}.out").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _handoff(folder: Path) -> Mapping[str, list[Json]]:
    try:
        tables: Mapping[str, list[Json]] = json.loads((folder / "handoff.json").read_text())["sections"]["handoff-gpu"][
            "tables"
        ]
    except (OSError, ValueError, KeyError):
        return {}
    return tables


def _missing(rows: Iterable[Json], doctor: Json | None, state: State) -> list[Json]:
    """What wasn't measured and how to get it: by reason and fix, whom it concerns."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one in (doctor or {}).get("findings", []):
        if not one["availability"]["ok"]:
            key = (one["availability"]["reason"], one["availability"]["fix"])
            found.setdefault(key, {})[f"{one['backend']}:{one['device']}"] = None
    for row in rows:
        if row["outcome"] == "skipped":
            found.setdefault((row["reason"], row["fix"] or ""), {})[row["arm"]] = None
    again = f"make gpu OUT={state.folder} again"
    for name, one in state.standings.items():
        if one.status is not Status.DONE:
            found.setdefault((one.words or "not begun", again), {})[f"step {name}"] = None
    return [{"who": list(who), "reason": reason, "fix": fix} for (reason, fix), who in found.items()]
