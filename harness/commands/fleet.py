"""`shootout run … --on ADDRESS`: ask the nodes, deal the groups, measure, merge, print.

A node is one of a Ray cluster's, or a host that is reached by ssh. The latter needs no torch and no converter: what it
measures is exported here, and built here if any CPU can run the build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any
from zipfile import BadZipFile

from rich.text import Text

from shootout.build.builder import needs_of
from shootout.build.deliver import deliver
from shootout.clock import Deadline, utc_in
from shootout.commands.decide import print_merged
from shootout.commands.output import print_answer, print_document, show_progress
from shootout.compare.merge import merge_runs
from shootout.contract import NotRun, NotRunKind
from shootout.errors import ExitCode, UsageError, one_line
from shootout.export.delivery import Delivery, to_json
from shootout.export.request import Request
from shootout.fleet import ray_cluster, ssh_hosts
from shootout.fleet.node_kinds import FleetNode, NodeKind, find_kinds
from shootout.fleet.node_side import zip_folder
from shootout.fleet.nodes import NodeLost, Nodes
from shootout.fleet.parcel import Parcel, pack
from shootout.fleet.parts import FleetPart, deal, find_held, find_parts, give_up, share_s, write_part
from shootout.formats.files import check_files, write_files
from shootout.host import environment
from shootout.host.locks import folder_lock
from shootout.journal import journal
from shootout.journal.merged import write_index
from shootout.journal.records import Header
from shootout.journal.run_folder import new_folder
from shootout.report.progress import ProgressDisplay
from shootout.results.analysis import analyse
from shootout.study import points, selection
from shootout.study.group import GroupRecord, confirming_name
from shootout.study.options import RunOptions
from shootout.study.plan import PlannedGroup
from shootout.study.points import Point
from shootout.study.schema import Study
from shootout.units import counted, size, span

ALONE = ("policy", "trace")
"""Options of a run on this machine alone."""
ASKING_S = 300.0
"""A node that hasn't looked at its backends by then is left out."""
LOOK_S = 1.0
"""The time between two looks at Ctrl-C and the deadline while nodes measure."""
STOP_S = 30.0
"""So long nodes have to return what they have, after Ctrl-C or when the time is over."""
NEVER_FREE = "--max-time was over before a node was free: others' tasks hold some of its CPUs"
NOT_IN_TIME = "--max-time was over before its result came; the same command fetches it"
"""The reason of a host by ssh, which had its job at once."""
STRANGE = (BadZipFile, LookupError, TypeError, ValueError)
"""The errors of reading an answer that our process on a node wouldn't give."""
SHOWN = 4
"""Groups of a node that the plan names; `--json` has them all."""


def run_on_fleet(
    study: str,
    options: RunOptions,
    *,
    address: str,
    dry_run: bool,
    full: bool,
    as_json: bool,
    to: Sequence[Path] = (),
    command: Sequence[str] = (),
) -> int:
    """Measure a study on each kind of node of a cluster; return the exit code.

    Args:
        address: of the nodes, as `reach` takes it.
        full: as `shootout merge` has it.
        to: files to write what was measured into as well.
        command: see `Header`.

    Raises:
        UsageError: nothing answers there, or the nodes or the study can't be used; says why.
    """
    if alone := [name for name in ALONE if options.get(name)]:
        raise UsageError(f"--{alone[0]} is for a run on this machine: measure with --on, then use `shootout decide`")
    check_files(to)
    chosen = selection.choose(study, options)
    if shipped := next((target for target in points.targets_of(chosen) if target.folder), None):
        raise UsageError(
            f"{shipped}: the folder isn't sent to nodes. Race it on a machine of each kind, without --on, and use "
            "`shootout merge`"
        )
    out = Path(options.get("out") or new_folder(Path("results") / chosen.name))
    if options.get("fresh") and out.exists():
        raise UsageError(f"--fresh with --on: remove {str(out)!r} yourself, or choose another --out")
    limit = Deadline(options.get("max_time_s"))
    parcel = pack(chosen, weights=not address.startswith(ssh_hosts.SCHEME))
    job = _make_job(parcel, options, command)
    with show_progress() as progress, reach(address, parcel, out, progress) as cluster:
        asked = ask_nodes(cluster, job, progress)
        left_out = [ExitCode.FAILED] if cluster.were_named and len(asked) < len(cluster.nodes()) else []
        kinds = find_kinds(asked)
        parts = plan_parts(kinds, out)
        if dry_run:
            plan = describe_plan(kinds, parts, parcel)
            return combine_codes([print_answer(render_plan(plan), plan, as_json=as_json), *left_out])
        code = measure_parts(cluster, out, job, kinds, parts, limit, progress, partial(_deliver, chosen, parcel))
        code = combine_codes([code, *left_out])
        progress.say(f"run folder: {out}")
    printed = print_runs(out, full=full, as_json=as_json, to=to)
    return code or printed


def reach(address: str, parcel: Parcel, out: Path, progress: ProgressDisplay) -> AbstractContextManager[Nodes[Any]]:
    """Connect to the nodes that `--on` names.

    Raises:
        UsageError: the address is none, or nothing can be used there; says what to do.
    """
    if address.startswith(ssh_hosts.SCHEME):
        return ssh_hosts.connect(address, parcel, str(out.absolute()), progress.say)
    if address.startswith(ray_cluster.SCHEME):
        return ray_cluster.connect(address.removeprefix(ray_cluster.SCHEME), parcel)
    raise UsageError(f"--on {address!r} is neither ssh://[USER@]HOST nor ray:HOST:PORT nor ray:auto")


def _deliver(
    study: Study,
    parcel: Parcel,
    kind: NodeKind,
    progress: ProgressDisplay,
    limit: Deadline,
    further: Sequence[GroupRecord] = (),
) -> Delivery:
    """Make here what the nodes of a kind are to measure, or what further groups need that one of them planned.

    Raises:
        UsageError: these are of another model, or have other targets, than the study.
    """
    planned = kind.nodes[0].header.groups
    here = dict(zip(parcel.fields["model"], study.model, strict=True))
    requests = {  # each size whole, since a folder is sent by itself
        points.group_name(point): replace(points.request(study, point), sweep={}) for point in points.points(study)
    }
    targets = {arm.target for record in planned for arm in record.arms}
    for record in further:
        if any(arm.model not in here or arm.target not in targets for arm in record.arms):
            raise UsageError(f"{kind.title} asks for {record.name!r}, which isn't of this study")
        first = record.arms[0]
        point = Point(model=here[first.model], parameters=first.parameters, batch=first.batch, scenario=first.scenario)
        requests[record.name] = replace(points.request(study, point), sweep={})
    groups = [_plan_from_here(record, requests, kind.nodes[0], here) for record in (*planned, *further)]
    made = deliver(groups[len(planned) :] if further else groups, needs_of(groups), progress, limit)
    there = {model: name for name, model in here.items()}
    models = {
        (name, there.get(model, model), *of): one
        for (group, model, *of), one in made.models.items()
        for name in (group, confirming_name(group))
    }
    return replace(made, models=models)


def _plan_from_here(
    record: GroupRecord, requests: Mapping[str, Request], node: FleetNode, here: Mapping[str, str]
) -> PlannedGroup:
    """Return a group as a node planned it, with the files' names as they are here.

    Args:
        requests: what to export, by the names of the study's points, with which those of its groups begin.
        here: a model's name, by the name that it has there.
    """
    name = max((one for one in requests if record.name.startswith(one)), key=len)
    arms = tuple(replace(arm, model=here.get(arm.model, arm.model)) for arm in record.arms)
    away = NotRun(NotRunKind.UNAVAILABLE, "it can't run there")
    playing = node.playing.get(record.name, [arm.label for arm in arms])
    skips = {arm.label: away for arm in arms if arm.label not in playing and not arm.control}
    return PlannedGroup(
        record=record.model_copy(update={"arms": arms}),
        request=replace(requests[name], saturates=environment.saturates_there(node.facts)),
        skips=skips,
    )


def _make_job(parcel: Parcel, options: RunOptions, command: Sequence[str]) -> dict[str, Any]:
    """Return what every job of a run has in common, as JSON values; `do`, `groups` and `ends_utc` tell them apart."""
    return {
        "do": "plan",
        "study": dict(parcel.fields),
        "named": list(options.get("backends", ())),
        "env": list(options.get("env", ())),
        "gpu": options.get("gpu"),
        "fresh": bool(options.get("fresh")),
        "strict": bool(options.get("strict")),
        "groups": None,
        "ends_utc": None,
        "delivery": None,
        "command": [*command],
        "on": "",
    }


def ask_nodes(cluster: Nodes[Any], job: Mapping[str, Any], progress: ProgressDisplay) -> list[FleetNode]:
    """Ask every node what it is and what it would measure, all at once; a node that can't tell is named and left out.

    Raises:
        UsageError: there is no node, or none can plan the study.
    """
    places = cluster.nodes()
    if not places:
        raise UsageError("no node of the cluster offers CPUs: start one with `ray start`")
    progress.stage(f"asking {counted(len(places), 'node')} what they are")
    jobs = {place: cluster.ask(place, job) for place in places}
    found, faults = list[FleetNode](), list[str]()
    try:
        ended = cluster.wait([*jobs.values()], ASKING_S, until_all=True)
        for place, asking in jobs.items():
            if asking not in ended:
                faults.append(f"{place.name}: it hasn't answered for {ASKING_S:.0f} s")
                continue
            try:
                answer = cluster.result(asking)
                if "error" in answer:
                    raise NodeLost(answer["error"])
                begins = Header.model_validate(answer["header"])
                found.append(
                    FleetNode(place=place, header=begins, playing=answer["playing"], estimate_s=answer["estimate_s"])
                )
            except NodeLost as lost:
                faults.append(f"{place.name}: {lost}")
            except STRANGE as error:
                faults.append(f"{place.name}: {_tell_strange(error)}")
    finally:
        for asking in jobs.values():
            cluster.release(asking)
    if not found:
        raise UsageError(faults[0])
    for fault in faults:
        progress.say(f"left out: {fault}")
    return found


def plan_parts(kinds: Sequence[NodeKind], out: Path) -> list[FleetPart]:
    """Deal what is still to be measured to the nodes.

    Raises:
        UsageError: the folder holds something else.
    """
    held = find_held(out)
    return [part for kind in kinds for part in deal(kind, [begun for begun in held if begun.kind == kind.key])]


def measure_parts(
    cluster: Nodes[Any],
    out: Path,
    job: Mapping[str, Any],
    kinds: Sequence[NodeKind],
    parts: Sequence[FleetPart],
    limit: Deadline,
    progress: ProgressDisplay,
    make: Callable[..., Delivery],
) -> int:
    """Let the nodes measure the parts, and keep each run folder that comes back; return the exit code.

    The folder is a merged one of all parts that have come, also after Ctrl-C.

    Args:
        make: exports and builds what a kind's nodes are to measure, if they get that from here; as `_deliver` from
            `kind` on.
    """
    ends_utc = None if limit.seconds is None else utc_in(limit.left_s)
    by_key = {kind.key: kind for kind in kinds}
    nodes = {kind.key: kind.nodes for kind in kinds}
    asked = {part.kind for part in parts}

    def node_of(job: Any, part: FleetPart) -> FleetNode:
        """Return the node that a part was given to; where that isn't known, another of its kind stands for it."""
        place = cluster.node_of(job)
        return next((node for node in nodes[part.kind] if node.place == place), nodes[part.kind][0])

    making = Lock()

    def supply(kind: NodeKind, asked: Sequence[Any]) -> Delivery:
        """Make what one of a kind's nodes asks for; called in the transport's threads."""
        try:
            further = [GroupRecord.model_validate(record) for record in asked]
        except ValueError as error:
            raise UsageError(f"{kind.title} asks for what is no group ({one_line(str(error))})") from None
        with making:
            return make(kind, progress, limit, further)

    if cluster.were_named and asked:
        progress.stage("exporting for the other machine")
    made = {kind.key: make(kind, progress, limit) for kind in kinds if cluster.were_named and kind.key in asked}
    running, codes = dict[Any, FleetPart](), list[int]()
    out.mkdir(parents=True, exist_ok=True)

    def collect(seconds: float) -> None:
        """Wait until a part has ended, or so many seconds."""
        for ended in cluster.wait([*running], seconds):
            part = running.pop(ended)
            codes.append(_keep_part(cluster, ended, out / part.name, part, node_of(ended, part), progress))
            cluster.release(ended)
            write_index(out, find_parts(out))

    def stop() -> None:
        """Ask the nodes to end, and keep what they return soon."""
        progress.say("ending what runs on the nodes")
        for begun in running:
            cluster.stop(begun)
        patience = Deadline(STOP_S)
        while running and patience.allows(0.0):
            collect(patience.left_s)

    with folder_lock(out):
        progress.stage(f"measuring on {counted(sum(map(len, nodes.values())), 'node')}")
        try:
            for part in parts:
                places = [node.place for node in ([part.node] if part.node else nodes[part.kind])]
                delivery = made.get(part.kind)
                words = {
                    **job,
                    "do": "measure",
                    "groups": [*part.groups],
                    "ends_utc": ends_utc,
                    "delivery": delivery and to_json(delivery),
                }
                given = (delivery.contents, partial(supply, by_key[part.kind])) if delivery else (None, None)
                running[cluster.measure(places, words, _zip_begun(out / part.name), *given)] = part
            while running and limit.left_s > -STOP_S:
                collect(LOOK_S)
            if running:
                stop()
            if cluster.were_named:
                why, code = NotRun(NotRunKind.KILLED, NOT_IN_TIME, during="run"), ExitCode.FAILED
            else:
                fix = "run the same command again when one is"
                why, code = NotRun(NotRunKind.NOT_REACHED, NEVER_FREE, fix), ExitCode.NOTHING
            for late, part in running.items():
                give_up(out / part.name, part, node_of(late, part), why)
                progress.say(f"{part.name}: {why.reason}")
                codes.append(code)
        except KeyboardInterrupt:
            stop()
            progress.say("shootout: interrupted; run the same command again to resume")
            codes.append(ExitCode.INTERRUPTED)
        finally:
            for begun in running:
                cluster.release(begun)
            write_index(out, find_parts(out))
    return combine_codes(codes)


def _zip_begun(folder: Path) -> bytes:
    """Return what a node needs to go on with a part; empty if it would start over."""
    return zip_folder(folder) if journal.begun(folder) and not journal.read(folder).untouched else b""


def _keep_part(
    cluster: Nodes[Any], job: Any, folder: Path, part: FleetPart, node: FleetNode, progress: ProgressDisplay
) -> int:
    """Write the run folder that a part's node returned; return its exit code.

    Where nothing came back, or the process on the node broke, the folder says so of each unfinished group.
    """
    try:
        answer = cluster.result(job)
        write_part(folder, answer["folder"])
        if "error" not in answer or answer["code"] == ExitCode.INTERRUPTED:
            return int(answer["code"])
        reason = f"the process on the node ended: {answer['error']}"
        is_late = answer["code"] == ExitCode.NOTHING  # the machine wasn't free in time
    except NodeLost as lost:
        reason, is_late = f"no result came from the node: {lost}", False
    except STRANGE as error:
        reason, is_late = _tell_strange(error), False
    late = NotRun(NotRunKind.NOT_REACHED, reason, "give it more time")
    give_up(folder, part, node, late if is_late else NotRun(NotRunKind.KILLED, reason, during="run"))
    progress.say(f"{part.name}: {reason}")
    return ExitCode.NOTHING if is_late else ExitCode.FAILED


def _tell_strange(error: Exception) -> str:
    return one_line(f"the node's answer can't be read ({type(error).__name__}: {error}); run the same command again")


def combine_codes(codes: Sequence[int]) -> int:
    """Return one exit code for all parts: that of the part that matters most; 3 only if no part measured anything."""
    if codes and all(code == ExitCode.NOTHING for code in codes):
        return ExitCode.NOTHING
    weighty = (ExitCode.INTERRUPTED, ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.FAILED, ExitCode.UNDECIDED)
    return next((code for code in weighty if code in codes), ExitCode.OK)


def print_runs(out: Path, *, full: bool, as_json: bool, to: Sequence[Path]) -> int:
    """Print what all parts say together; return the exit code."""
    runs = find_parts(out)
    if not runs:  # interrupted before anything came back
        return ExitCode.NOTHING
    if len(runs) == 1:
        document = analyse(runs[0])
        write_files(document, to)
        return print_document(document, full=full, as_json=as_json)
    merged = merge_runs(runs)
    write_files(merged, to)
    return print_merged(merged, full=full, as_json=as_json)


def describe_plan(kinds: Sequence[NodeKind], parts: Sequence[FleetPart], parcel: Parcel) -> dict[str, Any]:
    """Return which node would measure what, as JSON values."""
    return {
        "kinds": [
            {
                "key": kind.key,
                "title": kind.title,
                "nodes": [node.place.name for node in kind.nodes],
                "parts": [
                    {
                        "name": part.name,
                        "node": node.place.name,
                        "groups": list(part.groups),
                        "cells": node.count_cells(part.groups),
                        "estimate_s": round(share_s(node, part.groups), 1),
                    }
                    for part, node in _expect_nodes(kind, parts)
                ],
            }
            for kind in kinds
        ],
        "files": list(parcel.names),
        "sent_bytes": len(parcel.package) + len(parcel.files),
    }


def render_plan(plan: Mapping[str, Any]) -> Text:
    """Render what `describe_plan` returns."""
    files = f" and {', '.join(plan['files'])}" if plan["files"] else ""
    lines = [f"Each node is sent {size(plan['sent_bytes'])}: this package{files}."]
    for kind in plan["kinds"]:
        lines += ["", f"{kind['key']}: {kind['title']}; {counted(len(kind['nodes']), 'node')}"]
        for part in kind["parts"]:
            groups = part["groups"]
            more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
            lines.append(
                f"  {part['node']}: {counted(len(groups), 'group')}, {counted(part['cells'], 'cell')}, at least "
                f"{span(part['estimate_s'])}: {'; '.join(groups[:SHOWN])}{more}"
            )
        busy = [part["node"] for part in kind["parts"]]
        idle = [name for name in kind["nodes"] if name not in busy]
        lines += [f"  nothing is left for {', '.join(idle)}"] if idle else []
    return Text("\n".join(lines))


def _expect_nodes(kind: NodeKind, parts: Sequence[FleetPart]) -> list[tuple[FleetPart, FleetNode]]:
    """Return this kind's parts, each with the node that is expected to get it."""
    mine = [part for part in parts if part.kind == kind.key]
    free = [node for node in kind.nodes if node not in [part.node for part in mine]]
    return [(part, part.node or free.pop(0)) for part in mine]
