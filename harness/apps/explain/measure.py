"""Choose two targets of a run, build both, look inside each in a process of its own, and compare them by layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from shootout.apps.explain import look
from shootout.apps.ship.folder import find_built
from shootout.backends.optional import Inside, RanNode
from shootout.core import backends, schemes
from shootout.core.adapter import Built
from shootout.core.constants import BUILD_TIMEOUT_S, FIDELITY_MARGIN
from shootout.core.contract import Artifact, OutputError, Precision, short
from shootout.core.errors import ArmFailed, SkippedArm, UsageError, unknown
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
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.models.onnx.layers import find_owner
from shootout.tell import registered, reproduce
from shootout.tell.document import Document, Row
from shootout.tell.run_folder import RacedArm, find_groups

FLOATS = "float-"
"""The beginning of a scheme's word on the layers that stay in float."""


WORTH = 1e-2
"""Outputs of the calls that show tensors are said to differ from the raced artifact's if it is by more."""

STEEP, WRONG = 3.0, 5e-2
"""An error rises at a layer if it is so many times the largest before it, and above the second figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSide:
    """Hold what is known of a layer, or of a block of layers, in one target.

    Attributes:
        value: of the reference graph, at which its tensor was read; "" if it couldn't be.
        error: relative L2 against the reference; None if it wasn't read or isn't finite. Of a block its last layer's.
        own: against the layer in float on the target's own inputs. Of a block the largest.
        explained: the largest own error that its precision explains; None if nothing could be predicted.
        ns: of one call, all nodes that belong to it; None if the runtime tells no times.
        conversions_ns: the part of that in nodes that only convert.
        precisions: of its products' nodes, how many by precision.
    """

    value: str = ""
    error: float | None = None
    own: float | None = None
    explained: float | None = None
    ns: float | None = None
    conversions_ns: float | None = None
    precisions: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_beyond(self) -> bool:
        """Return whether it errs by itself beyond what its precision explains, or isn't finite."""
        if not self.value:
            return False
        return self.own is None or (self.explained is not None and self.own > self.explained)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPair:
    """Hold a layer in both targets; see `Layer` for its names.

    Attributes:
        before: the numbers of the layers before it, between which and it something is rounded on its own.
    """

    number: int
    name: str
    block: str
    operator: str
    output: str
    sides: tuple[LayerSide, LayerSide]
    before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSummary:
    """Hold what is known of one target as a whole.

    Attributes:
        arm: its label.
        why: it was chosen; "" if it was named.
        unread: why nothing of it could be read; "" if something was.
        read: how many layers' tensors were.
        output_error: relative L2 of the model's outputs against the reference, of all rows as they were raced, or if
            nothing tells that, `read_error`; None if it isn't finite, isn't known, or if no output is a float.
        read_error: likewise of the calls that showed tensors, a few rows.
        error_bound: that the raced outputs were refused by; None if they weren't, or nothing is known.
        instrumented: how far the outputs of the calls that showed tensors are from the raced artifact's: relative L2.
        call_ns: of one call, all nodes; None if the runtime tells no times.
        conversions_ns: the part of that in nodes that only convert.
        unmatched_ns: the part in nodes that belong to no layer.
        fuses_less: see `Inside`.
        first_beyond: the number of the first layer that errs beyond what its precision explains; None: no such layer.
        notes: what a reader has to know, one line each.
    """

    arm: str
    why: str = ""
    unread: str = ""
    read: int = 0
    output_error: float | None = None
    read_error: float | None = None
    error_bound: float | None = None
    instrumented: float | None = None
    call_ns: float | None = None
    conversions_ns: float | None = None
    unmatched_ns: float | None = None
    fuses_less: str = ""
    first_beyond: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_fused_wrong(self) -> bool:
        """Return whether the raced outputs err far more than those of the calls that showed tensors, and differ.

        Then it is what the runtime fuses that errs: outputs in between keep that apart.
        """
        if self.read_error is None or (self.instrumented is not None and self.instrumented <= WORTH):
            return False
        return self.output_error is None or self.output_error > FIDELITY_MARGIN * max(self.read_error, WORTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Hold two targets side by side; the first is the one to compare with.

    Attributes:
        floats: the layers to leave in float in the second, by number: those that err beyond what is explained, and
            those before them if something in between is rounded on its own, and the backend keeps that in float, too.
        rise: the number of the layer at which the second's error rises most; None if it rises nowhere by much.
        next: the command that races the second with `floats` in float; "" if its backend can't, it is so, or nothing
            would be left to quantize.
    """

    run: str
    group: str
    model: str
    sides: tuple[SideSummary, SideSummary]
    layers: tuple[LayerPair, ...]
    floats: tuple[int, ...] = ()
    rise: int | None = None
    next: str = ""

    @property
    def blocks(self) -> dict[str, list[LayerPair]]:
        """Return the layers by block, in the order of their first layers."""
        found: dict[str, list[LayerPair]] = {}
        for layer in self.layers:
            found.setdefault(layer.block, []).append(layer)
        return found


def add_times(side: LayerSide, nodes: Sequence[RanNode], *, is_told: bool) -> LayerSide:
    """Return what is known of a layer with the times and precisions of its nodes.

    Args:
        is_told: whether the runtime tells times.
    """
    return replace(
        side,
        ns=math.fsum(node.ns or 0.0 for node in nodes) if is_told else None,
        conversions_ns=math.fsum(node.ns or 0.0 for node in nodes if node.converts) if is_told else None,
        precisions=dict(Counter(node.precision for node in nodes if node.precision)),
    )


def sum_block(layers: Iterable[LayerPair], side: int) -> LayerSide:
    """Sum the layers of a block in one target."""
    sides = [layer.sides[side] for layer in layers]
    read = [one for one in sides if one.value]
    owns = [math.inf if one.own is None else one.own for one in read]
    is_timed = any(one.ns is not None for one in sides)
    return LayerSide(
        value=read[-1].value if read else "",
        error=read[-1].error if read else None,
        own=max(owns) if owns and max(owns) < math.inf else None,
        ns=math.fsum(one.ns or 0.0 for one in sides) if is_timed else None,
        conversions_ns=math.fsum(one.conversions_ns or 0.0 for one in sides) if is_timed else None,
        precisions=dict(sum((Counter(one.precisions) for one in sides), Counter())),
    )


def find_rise(layers: Iterable[LayerPair]) -> int | None:
    """Return the number of the layer at which the second side's error rises most above that of all layers before.

    A model with branches has layers that lie before one only in order, so the largest of all errors before counts.

    Returns:
        None if it rises by less than `STEEP`, or to a low one.
    """
    largest, found, most = 0.0, None, 0.0
    for layer in layers:
        one = layer.sides[1]
        if not one.value:
            continue
        after = math.inf if one.error is None else one.error
        if after - largest > most and after > max(STEEP * largest, WRONG):
            most, found = after - largest, layer.number
        largest = max(largest, after)
        if largest == math.inf:
            break
    return found


def choose_floats(layers: Iterable[LayerPair], *, keeps_tails: bool) -> tuple[int, ...]:
    """Choose by number the layers of the second side to leave in float; see `Explanation` and `Inside.keeps_tails`."""
    beyond = [layer for layer in layers if layer.sides[1].is_beyond]
    before = {number for layer in beyond for number in layer.before} if keeps_tails else set()
    return tuple(sorted({layer.number for layer in beyond} | before))


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
    if len(groups := find_groups(document, group)) > 1:
        raise UsageError("the run has several groups", sorted(groups))
    rows = [row for row in document.rows if row.group in groups]
    row, why = (_find_row(rows, names[-1]), "") if names else _choose_worst(rows)
    second = Side(source=RacedArm.of(run, document, row), why=why)
    row, why = (_find_row(rows, names[0]), "") if len(names) == 2 else _choose_reference(rows, second.source)
    first = Side(source=RacedArm.of(run, document, row), why=why)
    if first.source.row.arm == second.source.row.arm:
        raise UsageError(f"{row.arm} is named twice: name two targets")
    for arm in (first.source.arm, second.source.arm):  # of which each needs a fixed graph of inference to look into
        if why := scenario_of(arm).unexplainable:
            raise UsageError(why)
        if arm.target.folder:
            raise UsageError(f"{arm.label} is a shipped folder, which is closed: explain the run that it came from")
    return first, second


def _find_row(rows: Sequence[Row], name: str) -> Row:
    if found := [row for row in rows if name in (row.arm, short(row.arm))]:
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
    checked = [(row, row.fidelity.relative_l2) for row in refused or narrow if row.fidelity]
    worst, _ = max(checked, key=lambda one: math.inf if one[1] is None else one[1])
    return worst, "refused, and errs most" if refused else "errs most of the lower precisions"


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


def explain(sides: Sequence[Side], progress: Progress) -> Explanation:
    """Build the two targets where their builds are gone, and compare them layer by layer.

    Raises:
        UsageError: the run can't be explained on this machine, the model has no graph with layers, the two take other
            inputs, or neither target could be read.
    """
    builts = [find_built(side.source, progress, to="explain") for side in sides]
    exports = [built.exported for built in builts]
    first, second = ((one.inputs, {(output.name, output.shape) for output in one.outputs}) for one in exports)
    if first != second:
        labels = " and ".join(built.arm.label for built in builts)
        raise UsageError(f"{labels} have other inputs or outputs: name two targets with the same")
    reference = choose_graph(builts)
    if reference.stream:
        raise UsageError(f"{reference.model} hands a state on from call to call: explain looks at single calls alone")
    with Scratch(cache_folder()) as logs:
        ask = partial(_ask_worker, logs, place(max(built.arm.threads for built in builts)))
        outline = ask("reading the graph", look.describe_graph, None, {"graph": reference.path(Artifact.ONNX)})
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
        raise UsageError(f"neither target can be read: {'; '.join(summary.unread for summary, _, _ in seen)}")
    return _put_together(sides, outline, seen)


def _ask_worker(
    logs: Path,
    placement: Placement,
    what: str,
    function: Callable[..., Any],
    built: Built | None,
    arguments: Mapping[str, Any],
) -> Any:
    """Return what a function of `look` returns in a process with the arm's environment, if there is an arm.

    Raises:
        ArmFailed, SkippedArm: as the worker.
    """
    threads, more = (built.arm.threads, backends.capabilities(built.arm.target.backend).variables) if built else (1, ())
    given = {**arguments, **({"built": built} if built else {})}
    environment, cpus = child_environment(threads, 0, more), placement.narrowed(threads).arms
    with WorkerProcess(environment, cpus, logs / log_name(what)) as process:
        name = f"{function.__module__}:{function.__name__}"
        return process.ask("measure", BUILD_TIMEOUT_S, function=name, arguments=given)


def choose_graph(builts: Sequence[Built]) -> ExportedModel:
    """Return the export whose graph is the reference: a plain one, of the first target that has it.

    Raises:
        UsageError: there is no ONNX graph.
    """
    with_graph = [built.exported for built in builts if Artifact.ONNX in built.exported.artifacts]
    if not with_graph:
        raise UsageError(
            f"{builts[0].exported.model} has no ONNX graph here to compare the layers with: name a target that reads "
            "one, or change the module so that torch can export it"
        )
    return next((one for one in with_graph if not (one.variant or one.original)), with_graph[0])


Seen = tuple[SideSummary, Mapping[int, LayerSide], Inside | None]
"""All that is known of one target: as a whole, its layers' errors by number, and what was seen inside."""


def _look(ask: Callable[..., Any], side: Side, built: Built, how: Mapping[str, Any]) -> Seen:
    arm = side.source.arm.label
    try:
        inside, errors, told = ask(f"look-{arm}", look.look_inside, built, how)
    except (ArmFailed, SkippedArm) as error:
        return SideSummary(arm=arm, why=side.why, unread=str(error)), {}, None
    layers = {one.pop("number"): LayerSide(**one) for one in errors}
    fidelity = side.source.row.fidelity
    summary = SideSummary(
        arm=arm,
        why=side.why,
        read=len(layers),
        output_error=fidelity.relative_l2 if fidelity and _find_worst_output(side) else told["read_error"],
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
    floats = choose_floats(layers, keeps_tails=inside is not None and inside.keeps_tails)
    return Explanation(
        run=source.document.run,
        group=source.row.group,
        model=source.arm.model,
        sides=(timed[0][0], timed[1][0]),
        layers=tuple(layers),
        floats=floats,
        rise=find_rise(layers),
        next=write_mix(sides, floats, count) if floats else "",
    )


def _add_times(seen: Seen, owners: Mapping[str, int], count: int) -> tuple[SideSummary, list[LayerSide]]:
    """Return a target as a whole and layer by layer, with the times of its nodes."""
    summary, errors, inside = seen
    sides = [errors.get(number, LayerSide()) for number in range(count)]
    summary = replace(summary, first_beyond=next((at for at, side in enumerate(sides) if side.is_beyond), None))
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
    target, can = arms[1].target, backends.capabilities(arms[1].target.backend)
    own, words = own_words(can), [word for word in target.scheme.split("+") if word and not word.startswith(FLOATS)]
    wanted = (now := {*schemes.parse(target.scheme, own).floats}) | {*floats}
    if wanted == now or len(wanted) == count or not reproduce.numbers_layers(arms[1].model, can.consumes):
        return ""
    scheme = "+".join([*words, schemes.write_floats(wanted)])
    if schemes.unoffered(schemes.parse(scheme, own), can.schemes.get(target.precision, ())):
        return ""
    mixed = replace(arms[1], target=replace(target, scheme=scheme))
    header = sides[1].source.run.facts
    found = reproduce.options([*(arm for arm in arms[:1] if not arm.file), mixed], header.given)
    return reproduce.Begun.of_run(sides[1].source.folder, header).race(found)


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
