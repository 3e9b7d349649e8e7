"""The summary for people: SUMMARY.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shootout.report.notes import say_crossings
from shootout.results.document import Crossover
from shootout.units import duration

from .conformance import ENDED

NAME = "SUMMARY.md"

Json = dict[str, Any]


def page(found: Json) -> str:
    """The whole page, from what `summary.summary` returns."""
    return "\n".join([line for part in _parts(found) for line in (*part, "")])


def _parts(found: Json) -> Iterator[list[str]]:
    yield ["# GPU campaign", "", *_machine(found)]
    yield ["## Steps", "", *_table(["step", "status", "seconds", "why"], map(_step, found["steps"]))]
    yield ["## Races", "", *_table(_RUN, map(_run, found["runs"]))] if found["runs"] else ["No race has begun."]
    yield ["## Crossovers between CPU and GPU", "", *_crossovers(found["crossovers"])]
    yield ["## Precisions, by the permutation probe", "", *_probes(found["probes"])]
    yield ["## The harness on this GPU", "", *_harness(found)]
    yield (
        ["## GPU rows", "", *_table(_ROW, map(_row, found["rows"]))]
        if found["rows"]
        else ["No row was measured on a GPU."]
    )
    yield [
        "## Failed",
        "",
        *(
            [f"- `{one['arm']}` ({one['run']}, {one['group']}): {one['reason']}" for one in found["failed"]]
            or ["Nothing."]
        ),
    ]
    yield ["## What is missing", "", *map(_lack, found["missing"])]


def _machine(found: Json) -> list[str]:
    facts = found["environment"]
    gpus = ", ".join(str(one.get("name")) for one in facts["gpus"]) or "none"
    lines = [f"- GPU: {gpus}", f"- CPU: {facts['cpu']['model']}", f"- made: {found['created']}"]
    return [*lines, *(f"- {line}" for line in found["setup"])]


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; a pipe in a cell would end it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines]


def _step(one: Json) -> list[object]:
    return [one["name"], one["status"], f"{one['wall_s']:.0f}", one["words"]]


_RUN = ["race", "finished", "GPU rows measured", "failed", "skipped", "rounds flagged", "control held"]


def _run(one: Json) -> list[object]:
    rows, controls = one["on_gpu"], one["controls"]
    held = f"{controls['held']} of {controls['judged']} groups"
    lost = f" (not in {', '.join(one['broken_controls'])})" if one["broken_controls"] else ""
    outcomes = [rows[outcome] for outcome in ("measured", "failed", "skipped")]
    return [one["run"], "yes" if one["complete"] else "no", *outcomes, f"{one['void_share']:.0%}", held + lost]


def _crossovers(found: Sequence[Json]) -> list[str]:
    """One line for each pair and scope, in the words of the run's own table; pairs that nobody measured in one line."""
    pairs: dict[tuple[str, ...], list[Crossover]] = {}
    for one in found:
        fields = {key: value for key, value in one.items() if key != "run"}
        pairs.setdefault((one["run"], one["a"], one["b"], one["scope"]), []).append(Crossover(**fields))
    lines, unmeasured = [], dict[str, None]()
    for (run, a, b, scope), crossings in pairs.items():
        if any(size.ratio is not None for one in crossings for size in one.sizes):
            axis, where = crossings[0].axis, scope.replace("_", " ")
            lines.append(f"- {run}, `{a}` or `{b}`, by {axis} ({where}): {say_crossings(crossings)}.")
        else:
            unmeasured[f"{run}: `{a}` or `{b}`"] = None
    return lines + [f"- Not measured: {', '.join(unmeasured)}."] * bool(unmeasured) or ["None was looked for yet."]


def _probes(found: Sequence[Json]) -> list[str]:
    rows = [[one["precision"], one["confirmed"], ", ".join(one["refuted"]), one["not_probed"]] for one in found]
    return _table(["precision", "rows confirmed", "refuted", "not probed"], rows)


def _harness(found: Json) -> list[str]:
    measured = [*_a_a(found["a_a"]), *_selftest(found["selftest"]), *_suites(found["conformance"])]
    return [*measured, *_handoff(found["handoff"]), *_holding(found["runs"])]


def _holding(runs: Sequence[Json]) -> list[str]:
    """What stopping the other arms does to one on the GPU, where a race tried it."""
    tried = [(one["run"], one["holding"]) for one in runs if one["holding"]]
    held = {"stop": "they are stopped", "pipe": "they wait on their pipes instead"}
    return [
        f"- Holding, {run}: a GPU arm's time, others stopped ÷ waiting, is {one['ratio']:.4f}; {held[one['mode']]}."
        for run, one in tried
    ]


def _a_a(found: Json | None) -> list[str]:
    if not found or not found["ratios"]:
        return ["- A/A: not measured."]
    told = [f"{name} {one['value']:.4f} ({one['verdict']})" for name, one in found["ratios"].items()]
    return [f"- A/A, a GPU arm against itself: {', '.join(told)}; {found['void_share']:.0%} of the rounds flagged."]


def _selftest(found: Json | None) -> list[str]:
    if not found:
        return ["- Self-test on the GPU: not finished."]
    told = [f"true {one['ratio']:.2f}, found {one['found']:.4f}, {one['verdict']}" for one in found["planted"]]
    return [f"- Self-test on the GPU: {'; '.join(told)}."]


def _suites(found: Json) -> list[str]:
    lines = []
    for name, one in found.items():
        told = f"{one['passed']} passed, {len(one['failed'])} failed"
        cut = "" if one["code"] in ENDED else f"; cut off after {one['passed'] + len(one['failed'])}"
        lines.append(f"- Conformance, {name}: {told}{cut}.")
        lines += [f"  - `{check}`: {why}" for check, why in one["failed"].items()]
    return lines or ["- Conformance: not run."]


def _handoff(found: Json) -> list[str]:
    """The whole hand-off's line of each backend."""
    rows = [row for table in found.values() for row in table if row.get("step") == "all"]
    return [f"- Hand-off, {row['backend']}: p50 {row['p50_us']:.0f} us, p99 {row['p99_us']:.0f} us." for row in rows]


_ROW = ["race", "group", "arm", "time", "compute", "events", "ratio to the baseline", "verdict", "probe"]


def _row(one: Json) -> list[object]:
    event_ns = one["gpu"]["event_ns"] if one["gpu"] else None
    times = ["" if ns is None else duration(ns) for ns in (one["end_to_end_ns"], one["compute_ns"], event_ns)]
    ratio = one["ratio"]
    share = f"{ratio['value']:.3g} [{_end(ratio['low'], '0')}, {_end(ratio['high'], 'inf')}]" if ratio else "baseline"
    return [one["run"], one["group"], one["arm"], *times, share, ratio["verdict"] if ratio else "", one["probe"] or ""]


def _end(value: float | None, infinite: str) -> str:
    return infinite if value is None else f"{value:.3g}"


def _lack(one: Json) -> str:
    return f"- {', '.join(one['who'])}: {one['reason']}" + (f". Fix: {one['fix']}" if one["fix"] else "")
