"""Build both targets, look inside each in a process of its own, and put the findings side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.apps.explain import look
from shootout.apps.explain.explanation import (
    Before,
    Explanation,
    LayerPair,
    LayerSide,
    SideSummary,
    SideTimes,
    choose_floats,
    find_first_beyond,
    find_rise,
    sum_blocks,
    sum_times,
)
from shootout.apps.explain.sides import Side
from shootout.apps.ship.artifact import find_built, find_own_graph
from shootout.backends.optional import Inside, RanNode
from shootout.core import backends, schemes
from shootout.core.adapter import Built
from shootout.core.clock import Deadline
from shootout.core.constants import BUILD_TIMEOUT_S
from shootout.core.contract import INTEGERS, Arm, Artifact, Device, OutputError, TensorSpec
from shootout.core.errors import ArmFailed, NothingMeasured, SkippedArm, UsageError
from shootout.core.exported.model import ExportedModel
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import Placement, allowed_cpus, child_environment, place
from shootout.core.host.store import cache_folder
from shootout.core.messages import Progress
from shootout.core.scenario import scenario_of
from shootout.core.study.target import own_words
from shootout.core.units import span
from shootout.core.worker.process import WorkerProcess, log_name
from shootout.models.onnx.layers import find_owner
from shootout.tell import registered, reproduce
from shootout.tell.paired import ask_drop

FLOATS = "float-"
"""The beginning of a scheme's word on the layers that stay in float."""


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
        ask = _Asker(logs, place(max(built.arm.threads for built in builts)), limit)
        outline = ask("reading the graph", look.describe_graph, None, graph=graph)
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


class _Asker:
    """Run functions of `look` in workers of their own, until `limit` at most."""

    def __init__(self, logs: Path, placement: Placement, limit: Deadline) -> None:
        self._logs, self._placement, self._limit = logs, placement, limit

    def __call__(self, what: str, function: Callable[..., Any], built: Built | None, **arguments: Any) -> Any:
        """Return what the function returns in a process with the arm's environment, if there is an arm.

        Raises:
            NothingMeasured: the time is over.
            ArmFailed, SkippedArm: as the worker.
        """
        _require_time(self._limit)
        threads, more = (
            (built.arm.threads, backends.capabilities(built.arm.target.backend).variables) if built else (1, ())
        )
        place, log = self._placement.narrowed(threads), self._logs / log_name(what)
        given = {**arguments, **({"built": built} if built else {})}
        with WorkerProcess(child_environment(threads, 0, more), place.arms, log) as process:
            name = f"{function.__module__}:{function.__name__}"
            try:
                return process.ask("measure", BUILD_TIMEOUT_S, self._limit.left_s, function=name, arguments=given)
            except ArmFailed as error:
                if error.hung:
                    _require_time(self._limit)
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


def _look(ask: _Asker, side: Side, built: Built, how: Mapping[str, Any]) -> Seen:
    arm = side.source.arm.label
    try:
        inside, errors, told = ask(f"look-{arm}", look.look_inside, built, **how)
    except (ArmFailed, SkippedArm) as error:
        return SideSummary(arm=arm, why=side.why, unread=str(error)), {}, None
    except NothingMeasured:
        return SideSummary(arm=arm, why=side.why, unread="--max-time was over before it was read"), {}, None
    layers = {
        one["number"]: LayerSide(**{name: value for name, value in one.items() if name != "number"}) for one in errors
    }
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
    times = [_find_times(inside, outline["owners"]) for _, _, inside in seen]
    layers = []
    for layer in outline["layers"]:
        first, second = (
            _add_times(errors.get(layer["number"], LayerSide()), found, layer["number"])
            for (_, errors, _), found in zip(seen, times, strict=True)
        )
        names = {name: layer[name] for name in ("number", "name", "block", "operator", "output")}
        before = tuple(Before(layer=owner, operators=kinds) for owner, kinds in outline["before"][layer["number"]])
        layers.append(LayerPair(**names, sides=(first, second), before=before))
    summaries = [
        _finish(summary, found, find_first_beyond(layers, index))
        for index, ((summary, _, _), found) in enumerate(zip(seen, times, strict=True))
    ]
    source, inside = sides[0].source, seen[1][2]
    floats = choose_floats(layers, 1, keeps_tails=inside is not None and inside.keeps_tails)
    mix, rise = write_mix(sides, floats, len(layers)) if floats else "", find_rise(layers, 1)
    is_wrong = rise is not None or summaries[1].error_bound is not None
    return Explanation(
        run=source.document.run,
        group=source.row.group,
        model=source.arm.model,
        sides=(summaries[0], summaries[1]),
        layers=tuple(layers),
        blocks=sum_blocks(layers),
        floats=floats,
        mix=mix,
        rise=rise,
        next=mix or (write_search(sides[1]) if is_wrong else ""),
    )


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
    options = _list_options(sides[1], [*(arm for arm in arms[:1] if not arm.file), mixed])
    return f"shootout run {reproduce.join(options)}"


def write_search(side: Side) -> str:
    """Write the command that searches for layers to leave in float, or without rows to score ranks them; "" if none.

    A target can be mixed if its backend leaves layers in float by their numbers, and the file isn't quantized already.
    """
    arm, row = side.source.arm, side.source.row
    offers = registered.offers(arm.target.backend, arm.target.precision, f"{FLOATS}0")
    if arm.target.precision not in INTEGERS or arm.target.device is not Device.CPU or not offers:
        return ""
    options = _list_options(side, [arm])
    names = {name for name, _ in options}
    is_known = reproduce.numbers_layers(arm.model, backends.capabilities(arm.target.backend).consumes)
    if not is_known or not scenario_of(arm).is_one_call or not names & {"--labels", "--truth"}:
        return reproduce.rank_layers(options, arm.target.precision)
    metric = row.fidelity.metric if row.fidelity else None
    limit = ask_drop(metric.rows if metric else 0)
    return reproduce.search_mix(options, row.backend, arm.target.precision, ("--max-drop", limit))


def _list_options(side: Side, arms: Sequence[Arm]) -> list[tuple[str, str]]:
    """List the options that race arms of a side's run, with files as seen from the current folder."""
    header = side.source.run.facts
    base = reproduce.find_base(side.source.folder, header.began_in)
    found = reproduce.options(arms, header.given)
    return [(name, reproduce.relocate_value(name, value, base)) for name, value in found]


def _find_times(inside: Inside | None, owners: Mapping[str, int]) -> SideTimes | None:
    return sum_times(inside.nodes, place_nodes(inside.nodes, owners)) if inside and inside.nodes else None


def _add_times(side: LayerSide, times: SideTimes | None, number: int) -> LayerSide:
    if times is None:
        return side
    return replace(
        side,
        ns=times.ns.get(number, 0.0) if times.is_told else None,
        conversions_ns=times.conversions_ns.get(number, 0.0) if times.is_told else None,
        kernels=times.kernels.get(number, ()),
        precisions=dict(times.precisions.get(number, {})),
    )


def _finish(summary: SideSummary, times: SideTimes | None, first_beyond: int | None) -> SideSummary:
    found = replace(summary, first_beyond=first_beyond)
    if times is None or not times.is_told:
        return found
    return replace(
        found,
        call_ns=sum(times.ns.values()),
        conversions_ns=sum(times.conversions_ns.values()),
        unmatched_ns=times.ns.get(None, 0.0),
    )


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
