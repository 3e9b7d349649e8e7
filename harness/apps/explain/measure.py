"""Choose two targets of a run, build both, look inside each in a process of its own, and compare them by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from shootout.apps.explain import look
from shootout.apps.explain.explanation import (
    Explanation,
    LayerPair,
    LayerSide,
    SideSummary,
    add_times,
    choose_floats,
    find_rise,
)
from shootout.apps.ship.artifact import find_built, find_own_graph
from shootout.backends.optional import Inside, RanNode
from shootout.core import backends, schemes
from shootout.core.adapter import Built
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S
from shootout.core.contract import Artifact, OutputError, Precision, TensorSpec, short
from shootout.core.errors import ArmFailed, NothingMeasured, SkippedArm, UsageError, unknown
from shootout.core.exported.model import ExportedModel
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import Placement, allowed_cpus, child_environment, place
from shootout.core.host.store import cache_folder
from shootout.core.messages import Progress
from shootout.core.results.run import Run
from shootout.core.scenario import scenario_of
from shootout.core.schemes import is_exact
from shootout.core.study.group import own_fp32
from shootout.core.study.target import own_words
from shootout.core.units import span
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.models.onnx.layers import find_owner
from shootout.tell import registered, reproduce
from shootout.tell.document import Document, Row
from shootout.tell.run_folder import RacedArm, find_groups

FLOATS = "float-"
"""The beginning of a scheme's word on the layers that stay in float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Hold one of the two targets, and why it was chosen; "" if it was named."""

    source: RacedArm
    why: str


def choose_sides(run: Run, document: Document, names: Sequence[str], group: str | None = None) -> tuple[Side, Side]:
    """Choose the two targets: those that are named, or one with what it is best compared with, or none named.

    Without a name, the second is the target of a lower precision that was refused or errs most. The first is then the
    FP32 target of the same backend, or what ships.

    Args:
        document: of the run.
        names: of at most two targets; a single one is the second.
        group: the name of their group, or the beginning of that name; needed if there are several.

    Raises:
        UsageError: there is no such group or target, both are the same, or a target can't be explained.
    """
    if len(names) > 2:
        raise UsageError(f"explain holds two targets side by side, got {len(names)}: {', '.join(names)}")
    rows = _rows_of_group(document, names, group)
    row, why = (_find_row(rows, names[-1]), "") if names else _choose_worst(rows)
    second = Side(source=RacedArm.of(run, document, row), why=why)
    row, why = (_find_row(rows, names[0]), "") if len(names) == 2 else _choose_reference(rows, second.source)
    first = Side(source=RacedArm.of(run, document, row), why=why)
    if first.source.row.arm == second.source.row.arm:
        raise UsageError(f"{row.arm} is named twice: name two targets")
    for side in (first, second):
        _refuse(side.source)
    return first, second


def _rows_of_group(document: Document, names: Sequence[str], group: str | None) -> list[Row]:
    groups = find_groups(document, group)
    holding = {one for one in groups if all(_named(_of_group(document, one), name) for name in names)}
    for name in names:
        if not any(_named(_of_group(document, one), name) for one in groups):
            raise unknown("target", name, {row.arm for row in document.rows if row.group in groups})
    if not holding and groups:
        raise UsageError(f"{' and '.join(names)} ran in different groups: name two targets of one")
    if len(holding) > 1:
        raise UsageError("the run has several groups", sorted(holding))
    return _of_group(document, next(iter(holding), ""))


def _of_group(document: Document, group: str) -> list[Row]:
    return [row for row in document.rows if row.group == group]


def _named(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if name in (row.arm, short(row.arm))]


def _find_row(rows: Sequence[Row], name: str) -> Row:
    if found := _named(rows, name):
        return found[0]
    raise unknown("target", name, {row.arm for row in rows})


def _choose_worst(rows: Sequence[Row]) -> tuple[Row, str]:
    narrow = [
        row
        for row in rows
        if not is_exact(row.precision, row.scheme, row.file) and row.fidelity and registered.shows_inside(row.backend)
    ]
    if not narrow:
        targets = ", ".join(short(row.arm) for row in rows) or "none"
        raise UsageError(f"no target of a lower precision was checked here: name two of {targets}")
    refused = [row for row in narrow if row.outcome == "failed"]
    worst = max(refused or narrow, key=_error_of)
    return worst, "refused, and errs most" if refused else "errs most of the lower precisions"


def _error_of(row: Row) -> float:
    error = row.fidelity.relative_l2 if row.fidelity else None
    return math.inf if error is None else error


def _choose_reference(rows: Sequence[Row], second: RacedArm) -> tuple[Row, str]:
    """Choose what the second is held against, of what was built and didn't fail."""
    built = {*second.mine.group.prepared} - {second.row.arm}
    usable = {row.arm: row for row in rows if row.arm in built and row.outcome not in ("failed", "skipped")}
    if own := own_fp32([arm for arm in second.record.arms if arm.label in usable], second.arm):
        named = "the file as it is" if own.target.precision is Precision.NATIVE else "the FP32 target"
        return usable[own.label], f"{named} of the same backend"
    answers = [answer.ship.arm for answer in second.document.answer if answer.group == second.row.group and answer.ship]
    if ships := [usable[arm] for arm in answers if arm in usable]:
        return ships[0], "what ships"
    if exact := [row for row in usable.values() if is_exact(row.precision, row.scheme, row.file)]:
        return exact[0], "a target of full precision"
    raise UsageError(f"nothing to hold {second.row.arm} against: name two targets")


def _refuse(source: RacedArm) -> None:
    """Refuse what has no fixed graph of inference to look into."""
    if why := scenario_of(source.arm).unexplainable:
        raise UsageError(why)
    if source.arm.target.folder:
        raise UsageError(f"{source.arm.label} is a shipped folder, which is closed: explain the run that it came from")


def explain(sides: Sequence[Side], progress: Progress, limit: Deadline | None = None) -> Explanation:
    """Build the two targets where their builds are gone, and compare them layer by layer.

    Args:
        limit: when to stop; a target that wasn't read by then counts as one that can't be read. None: never.

    Raises:
        NothingMeasured: neither target was read in time.
        UsageError: the run can't be explained on this machine, the model has no graph with layers, or neither target
            could be read.
    """
    limit = limit or Deadline(None)
    builts = [_build(side, progress, limit) for side in sides]
    check_alike(builts)
    reference = choose_graph(builts, sides)
    if reference.stream:
        raise UsageError(f"{reference.model} hands a state on from call to call: explain looks at single calls alone")
    graph = reference.path(Artifact.ONNX)
    with Scratch(cache_folder()) as logs:
        ask = partial(_ask_worker, logs, place(max(built.arm.threads for built in builts)), limit)
        outline = ask("reading the graph", look.describe_graph, None, {"graph": graph})
        if not outline["layers"]:
            raise UsageError(f"{reference.model} has no matrix product or convolution in its main graph to compare")
        how = {
            "reference": reference,
            "rows": [one.row for side in reversed(sides) if (one := _find_worst_output(side))],
            "values": tuple(dict.fromkeys(value for some in outline["values"] for value in some)),
            "cpus": frozenset(allowed_cpus()),
        }
        seen = list[Seen]()
        for side, built in zip(sides, builts, strict=True):
            progress.stage(f"looking inside {built.arm.label}")
            seen.append(_look(ask, side, built, how))
    if all(summary.unread for summary, _, _ in seen):
        _require_time(limit)
        raise UsageError(f"neither target can be read: {'; '.join(summary.unread for summary, _, _ in seen)}")
    return _put_together(sides, outline, seen)


def _require_time(limit: Deadline) -> None:
    if not limit.allows(0.0):
        over = f"--max-time {span(limit.seconds or 0.0)} was over before either target was read"
        raise NothingMeasured(f"{over}: give it more; what was built is kept")


def _build(side: Side, progress: Progress, limit: Deadline) -> Built:
    """Return the target's build, as `find_built`.

    Raises:
        NothingMeasured: there is no time for it.
    """
    _require_time(limit)
    try:
        return find_built(side.source, progress, to="explain", limit=limit)
    except ArmFailed as error:
        if error.hung:
            _require_time(limit)
        raise


def _ask_worker(
    logs: Path,
    placement: Placement,
    limit: Deadline,
    what: str,
    function: Callable[..., Any],
    built: Built | None,
    arguments: Mapping[str, Any],
) -> Any:
    """Return what a function of `look` returns in a process with the arm's environment, if there is an arm.

    Raises:
        NothingMeasured: the time is over.
        ArmFailed, SkippedArm: as the worker.
    """
    _require_time(limit)
    threads, more = (built.arm.threads, backends.capabilities(built.arm.target.backend).variables) if built else (1, ())
    given = {**arguments, **({"built": built} if built else {})}
    environment, cpus = child_environment(threads, 0, more), placement.narrowed(threads).arms
    with WorkerProcess(environment, cpus, logs / log_name(what)) as process:
        name = f"{function.__module__}:{function.__name__}"
        try:
            return process.ask("measure", BUILD_TIMEOUT_S, limit.left_s, function=name, arguments=given)
        except ArmFailed as error:
            if error.hung:
                _require_time(limit)
            raise


def check_alike(builts: Sequence[Built]) -> None:
    """Refuse two targets that don't take the same inputs and give the same outputs.

    Raises:
        UsageError: they don't, such as two files of one model at two fixed sizes.
    """
    for kind in ("inputs", "outputs"):
        first, second = (_describe_specs(getattr(built.exported, kind), typed=kind == "inputs") for built in builts)
        if first != second:
            labels = [built.arm.label for built in builts]
            told = f"{labels[0]} has the {kind} {first}, {labels[1]} {second}"
            raise UsageError(f"{told}: name two targets with the same inputs and outputs")


def _describe_specs(specs: Sequence[TensorSpec], *, typed: bool) -> str:
    """Describe tensors by name and shape; `typed`: with their types, in which outputs may differ."""
    return ", ".join(sorted(f"{one.name} {one.dtype if typed else ''}{[*one.shape]}" for one in specs))


def choose_graph(builts: Sequence[Built], sides: Sequence[Side]) -> ExportedModel:
    """Return the export whose graph is the reference: a plain one, of the first target that has it.

    Targets that run the torch module of an ONNX file are compared with that file.

    Raises:
        UsageError: there is no ONNX graph.
    """
    with_graph = [built.exported for built in builts if Artifact.ONNX in built.exported.artifacts]
    if not with_graph:
        if own := find_own_graph(sides[0].source):
            return own
        raise UsageError(
            f"{builts[0].exported.model} has no ONNX graph to compare the layers with, since torch can't export the "
            "module: change the module so that torch can"
        )
    return next((one for one in with_graph if not (one.variant or one.original)), with_graph[0])


Seen = tuple[SideSummary, Mapping[int, LayerSide], Inside | None]
"""What is known of one target: as a whole, its layers' errors by number, and what was seen inside."""


def _look(ask: Callable[..., Any], side: Side, built: Built, how: Mapping[str, Any]) -> Seen:
    arm = side.source.arm.label
    try:
        inside, errors, told = ask(f"look-{arm}", look.look_inside, built, how)
    except (ArmFailed, SkippedArm) as error:
        return SideSummary(arm=arm, why=side.why, unread=str(error)), {}, None
    except NothingMeasured:
        return SideSummary(arm=arm, why=side.why, unread="--max-time was over before it was read"), {}, None
    layers = {one.pop("number"): LayerSide(**one) for one in errors}
    fidelity = side.source.row.fidelity
    are_floats = told["read_error"] is not None or told["unequal"] is None
    summary = SideSummary(
        arm=arm,
        why=side.why,
        read=len(layers),
        output_error=(
            fidelity.relative_l2 if fidelity and are_floats and _find_worst_output(side) else told["read_error"]
        ),
        error_bound=fidelity.error_bound if fidelity and fidelity.standing == "refused" else None,
        fuses_less=inside.fuses_less,
        notes=inside.notes,
        **told,
    )
    return summary, layers, inside


def _find_worst_output(side: Side) -> OutputError | None:
    """Return the output that erred most in the run; None if none was checked by itself."""
    fidelity = side.source.row.fidelity
    return fidelity.worst_output if fidelity else None


def _put_together(sides: Sequence[Side], outline: Mapping[str, Any], seen: Sequence[Seen]) -> Explanation:
    count = len(outline["layers"])
    timed = [_add_times(one, outline["owners"], count) for one in seen]
    layers = [
        LayerPair(
            **{name: layer[name] for name in ("number", "name", "block", "operator", "output")},
            sides=(timed[0][1][layer["number"]], timed[1][1][layer["number"]]),
            before=outline["before"][layer["number"]],
        )
        for layer in outline["layers"]
    ]
    source, inside = sides[0].source, seen[1][2]
    floats = choose_floats(layers, 1, keeps_tails=inside is not None and inside.keeps_tails)
    return Explanation(
        run=source.document.run,
        group=source.row.group,
        model=source.arm.model,
        sides=(timed[0][0], timed[1][0]),
        layers=tuple(layers),
        floats=floats,
        rise=find_rise(layers, 1),
        next=write_mix(sides, floats, count) if floats else "",
    )


def _add_times(seen: Seen, owners: Mapping[str, int], count: int) -> tuple[SideSummary, list[LayerSide]]:
    """Return a target as a whole and layer by layer, with the times of its nodes."""
    summary, errors, inside = seen
    sides = [errors.get(number, LayerSide()) for number in range(count)]
    beyond = next((number for number, side in enumerate(sides) if side.is_beyond), None)
    summary = replace(summary, first_beyond=beyond)
    nodes = inside.nodes if inside else ()
    if not nodes:
        return summary, sides
    is_told, places = any(node.ns is not None for node in nodes), place_nodes(nodes, owners)
    ran: dict[int | None, list[RanNode]] = {}
    for node, place_of in zip(nodes, places, strict=True):
        ran.setdefault(place_of, []).append(node)
    sides = [add_times(side, ran.get(number, ()), is_told=is_told) for number, side in enumerate(sides)]
    if not is_told:
        return summary, sides
    whole, unmatched = (add_times(LayerSide(), some, is_told=True) for some in (nodes, ran.get(None, ())))
    return replace(summary, call_ns=whole.ns, conversions_ns=whole.conversions_ns, unmatched_ns=unmatched.ns), sides


def write_mix(sides: Sequence[Side], floats: Collection[int], count: int) -> str:
    """Write the command that races the second target with more layers in float; "" if there is none, see `Explanation`.

    Args:
        floats: the layers' numbers.
        count: of all layers.
    """
    arms = [side.source.arm for side in sides]
    target = arms[1].target
    can = backends.capabilities(target.backend)
    own, words = own_words(can), [word for word in target.scheme.split("+") if word and not word.startswith(FLOATS)]
    now = {*schemes.parse(target.scheme, own).floats}
    wanted = now | {*floats}
    if wanted == now or len(wanted) == count or not reproduce.numbers_layers(arms[1].model, can.consumes):
        return ""
    scheme = "+".join([*words, schemes.write_floats(wanted)])
    if schemes.unoffered(schemes.parse(scheme, own), can.schemes.get(target.precision, ())):
        return ""
    mixed = replace(arms[1], target=replace(target, scheme=scheme))
    header = sides[1].source.run.facts
    base = reproduce.find_base(sides[1].source.folder, header.began_in)  # files as seen from the current folder
    found = reproduce.options([*(arm for arm in arms[:1] if not arm.file), mixed], header.given)
    options = [(name, reproduce.relocate_value(name, value, base)) for name, value in found]
    return f"shootout run {reproduce.join(options)}"


def place_nodes(nodes: Sequence[RanNode], owners: Mapping[str, int]) -> list[int | None]:
    """Return the layer of each node, by its number; None if nothing tells it.

    A node without a known name belongs to the layer of what it reads, or else of what reads its result, such as a
    conversion before the first layer.

    Args:
        owners: see `Outline`.
    """
    found: list[int | None] = [find_owner(node.names, owners) for node in nodes]
    made: dict[str, int | None] = {}
    for at, node in enumerate(nodes):
        if found[at] is None:
            known = [owner for name in node.reads if (owner := made.get(name)) is not None]
            found[at] = max(known, default=None)
        made |= dict.fromkeys(node.makes, found[at])
    wanted: dict[str, int | None] = {}
    for at, node in reversed([*enumerate(nodes)]):
        if found[at] is None:
            known = [owner for name in node.makes if (owner := wanted.get(name)) is not None]
            found[at] = min(known, default=None)
        wanted |= dict.fromkeys(node.reads, found[at])
    return found
