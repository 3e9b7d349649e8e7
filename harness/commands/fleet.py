"""Do what a command does on other machines, which `--on ADDRESS` names: `run`, `doctor` and `ship`.

A run is measured on each machine in a run folder of its own, and these are merged. A host that is reached by ssh needs
no torch and no converter: what it measures is exported here, and built here if any CPU can run the build. A node of a
Ray cluster does all of it. Each runs `python -m shootout.commands.fleet JOB RUN-FOLDER`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.text import Text

from shootout.apps import dry_run as preview
from shootout.apps.fleet import ray_cluster, ssh_hosts
from shootout.apps.fleet.node_side import zip_folder
from shootout.apps.fleet.parcel import Answer, NodeLost, Parcel, Place, Task, deliver, pack, pack_package
from shootout.apps.fleet.ssh_hosts import read_addresses
from shootout.apps.judge.compare import merged
from shootout.apps.judge.decide.policy import Policy, write_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.apps.ship.folder import is_there, new_folder
from shootout.backends import chosen_gpu
from shootout.commands import selection
from shootout.commands.output import print_answer, print_written, show_progress
from shootout.commands.read import show
from shootout.commands.run import exit_code, measure
from shootout.commands.ship import NEXT_STEPS, tell_next_steps
from shootout.core.build.builder import needs_of
from shootout.core.clock import Deadline
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import ExitCode, Interrupted, ShootoutError, UsageError, one_line, printable
from shootout.core.exported.client import DELIVERY, Delivery
from shootout.core.exported.request import Request
from shootout.core.host.child import leave_with
from shootout.core.host.environment import VNNI
from shootout.core.host.folders import folder_lock
from shootout.core.journal import journal
from shootout.core.journal.records import Header
from shootout.core.study import points
from shootout.core.study.group import GroupRecord, confirming_name
from shootout.core.study.plan import Plan, PlannedGroup, make_plan
from shootout.core.study.schema import Study, checked
from shootout.core.units import counted, size, span
from shootout.tell import machines
from shootout.tell.delivery import Contents, contents, read_delivery, to_json
from shootout.tell.formats import check_files
from shootout.tell.progress import ProgressDisplay
from shootout.tell.run_folder import make_header
from shootout.tell.run_folder import new_folder as new_run_folder
from shootout.tell.study_options import RunOptions

ALONE = ("policy", "trace")
"""Options of a run on this machine alone."""
NODE = "shootout.commands.fleet"
"""The module that machines run."""
ASKING_S, STOP_S = 300.0, 30.0
"""A machine is left out that hasn't said by then what it would measure, or lost that hasn't ended so long after it was
to end.
"""
LOOK_S = 1.0
"""The time between two looks at the deadline while machines measure."""
MEASURED = frozenset({ExitCode.OK, ExitCode.NOTHING, ExitCode.FAILED, ExitCode.UNAVAILABLE, ExitCode.INTERRUPTED})
"""The codes of a process that came to its end; with any other one, its last words say why it didn't."""
MOST_BYTES = 4 << 30
"""A run folder that a machine returns holds at most so much, unpacked: a zip of few bytes could fill the disk."""
SHIPPED = "shipped"
"""The folder that a host ships into, below the run's."""
Machines = ssh_hosts.SshHosts | ray_cluster.RayCluster
Done = TypeVar("Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Hold what a place would measure.

    Attributes:
        header: what its own journal would begin with.
        playing: the labels of the arms that can run there, by group, without controls.
        estimate_s: seconds that all of it would take at the least.
    """

    header: Header
    playing: Mapping[str, Sequence[str]]
    estimate_s: float


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
    """Measure a study on each machine that an address names; return the exit code.

    Args:
        address: of the machines, as `reach` takes it.
        full: as `shootout merge` has it.
        to: files to write what was measured into as well.
        command: see `Header`.

    Raises:
        UsageError: nothing answers there, or the machines or the study can't be used; says why.
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
    out = Path(options.get("out") or new_run_folder(Path("results") / chosen.name))
    if options.get("fresh") and out.exists():
        raise UsageError(f"--fresh with --on: remove {str(out)!r} yourself, or choose another --out")
    limit = Deadline(options.get("max_time_s"))
    parcel = pack(chosen, weights=not address.startswith(ssh_hosts.SCHEME))
    job = {
        "study": dict(parcel.fields),
        "named": list(options.get("backends", ())),
        "gpu": options.get("gpu"),
        "strict": bool(options.get("strict")),
        "command": [*command],
    }
    with show_progress() as progress, reach(address, parcel, progress) as machines:
        plans, codes = ask_plans(machines, job, progress)
        if dry_run:
            machines_told = {
                place.name: {"groups": plan.playing, "estimate_s": plan.estimate_s} for place, plan in plans.items()
            }
            told = {"files": sorted(parcel.files), "machines": machines_told}
            return combine_codes([print_answer(render_plans(plans, parcel), told, as_json=as_json), *codes])
        codes += Fleet(machines, chosen, parcel, job, out, limit, progress).measure(plans)
        progress.say(f"run folder: {out}")
    if runs := find_runs(out):  # none if it was interrupted before anything came back
        show(out if len(runs) > 1 else runs[0], full=full, as_json=as_json, to=to)
    return combine_codes(codes) if runs else combine_codes([*codes, ExitCode.NOTHING])


def reach(address: str, parcel: Parcel, progress: ProgressDisplay) -> AbstractContextManager[Machines]:
    """Connect to the machines that `--on` names.

    Raises:
        UsageError: the address is none, or nothing can be used there; says what to do.
    """
    if address.startswith(ssh_hosts.SCHEME):
        return ssh_hosts.connect(address, parcel, progress.say)
    if address.startswith(ray_cluster.SCHEME):
        return ray_cluster.connect(address.removeprefix(ray_cluster.SCHEME), parcel)
    raise UsageError(f"--on {address!r} is neither ssh://[USER@]HOST nor ray:HOST:PORT nor ray:auto")


def ask_plans(
    machines: Machines, job: Mapping[str, Any], progress: ProgressDisplay
) -> tuple[dict[Place, Planned], list[int]]:
    """Ask every place what it would measure, all at once; also return the exit codes of those that can't tell.

    Raises:
        UsageError: none can plan the study.
    """
    progress.stage(f"asking {counted(len(machines.places), 'machine')} what they are")

    def ask(place: Place) -> Planned:
        answer = machines.run(place, Task(words=(NODE, json.dumps({**job, "do": "plan"}), "{run}")))
        if answer.code:
            raise NodeLost(answer.said.removeprefix("shootout: "))
        told = json.loads(answer.printed)
        return Planned(
            header=Header.model_validate(told["header"]), playing=told["playing"], estimate_s=told["estimate_s"]
        )

    found = on_each(machines, machines.places, ask, Deadline(ASKING_S), progress)
    plans = {place: one for place, one in found.items() if isinstance(one, Planned)}
    faults = [f"{place.name}: {one_line(str(one))}" for place, one in found.items() if isinstance(one, ShootoutError)]
    if not plans:
        raise UsageError(faults[0])
    for fault in faults:
        progress.say(f"left out: {fault}")
    return plans, [ExitCode.FAILED] * len(faults)


def on_each(
    machines: Machines,
    places: Sequence[Place],
    action: Callable[[Place], Done],
    limit: Deadline,
    progress: ProgressDisplay,
) -> dict[Place, Done | ShootoutError]:
    """Do something for each place, side by side; return what came of it, or the error, by place.

    Args:
        limit: what runs on the machines then is asked to end, as after Ctrl-C.
    """
    pool = futures.ThreadPoolExecutor(max(len(places), 1))
    running = {place: pool.submit(action, place) for place in places}
    why: ShootoutError = NodeLost("it has no result in time; the same command goes on with what it measured")
    try:
        while futures.wait(running.values(), LOOK_S).not_done and limit.left_s > 0:
            pass
    except KeyboardInterrupt:
        why = Interrupted("interrupted: run the same command again to resume")
    if not all(one.done() for one in running.values()):
        progress.say("ending what runs on the machines")
        machines.stop()
        futures.wait(running.values(), STOP_S)
    pool.shutdown(wait=False, cancel_futures=True)
    results = dict[Place, Done | ShootoutError]()
    for place, one in running.items():
        try:
            results[place] = one.result(timeout=0.0)
        except (TimeoutError, futures.CancelledError):
            results[place] = why
        except ShootoutError as error:
            results[place] = error
        except Exception as error:  # of whatever the machine sent, which is that machine's fault alone
            results[place] = NodeLost(f"its answer can't be read ({type(error).__name__}: {error})")
    return results


@dataclass(frozen=True, slots=True)
class Fleet:
    """A study that machines measure, each in a run folder below `out`; `job`: what all of them are asked."""

    machines: Machines
    study: Study
    parcel: Parcel
    job: Mapping[str, Any]
    out: Path
    limit: Deadline
    progress: ProgressDisplay

    def measure(self, plans: Mapping[Place, Planned]) -> list[int]:
        """Let each place measure what is still open, and keep each run folder that comes back; return exit codes.

        The folder is a merged one of all that came, also after Ctrl-C.

        Raises:
            UsageError: a folder holds another study.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.out):
            tasks = {place: self._make_task(place, plan) for place, plan in plans.items() if self._is_open(place, plan)}
            if tasks:
                self.progress.stage(f"measuring on {counted(len(tasks), 'machine')}")
            found = on_each(
                self.machines, [*tasks], lambda place: self._run(place, tasks[place]), self.limit, self.progress
            )
            merged.write_index(self.out, find_runs(self.out))
        for place, one in found.items():
            if isinstance(one, ShootoutError):
                self.progress.say(f"{place.name}: {one_line(str(one))}")
        return [one.exit_code if isinstance(one, ShootoutError) else one for one in found.values()]

    def _is_open(self, place: Place, plan: Planned) -> bool:
        folder = self.out / place.folder
        if not journal.begun(folder):
            return True
        history = journal.read(folder)
        if history.header.identity != plan.header.identity:
            raise UsageError(
                f"{str(folder)!r} holds another study, other targets or other contents of its files "
                f"({history.header.study}): choose another --out"
            )
        return not history.complete

    def _make_task(self, place: Place, plan: Planned) -> Task:
        """Make what one place is to do, with what was exported here for it."""
        folder, sent = self.out / place.folder, dict[str, Contents]()
        is_new = not folder.exists()
        folder.mkdir(exist_ok=True)
        if not self.machines.exports_there:
            self.progress.stage(f"exporting for {place.name}")
            delivery = self._deliver(plan)
            (folder / DELIVERY).write_text(json.dumps(to_json(delivery)), encoding="utf-8")
            sent |= contents(delivery)
        left_s = None if self.limit.seconds is None else max(self.limit.left_s, 0.0)
        on = "" if self.machines.exports_there else place.id
        return Task(
            words=(NODE, json.dumps({**self.job, "do": "measure", "on": on, "max_time_s": left_s}), "{run}"),
            name=hashlib.sha256(f"{self.out.absolute()} {place.id}".encode()).hexdigest()[:32],
            is_new=is_new,
            folder=zip_folder(folder),
            sent=sent,
            measures=True,
        )

    def _run(self, place: Place, task: Task) -> int:
        """Run a place's task and keep the run folder that it returns; return its exit code."""
        answer = self.machines.run(place, task)
        _keep(self.out / place.folder, answer.folder)
        if answer.code not in MEASURED:
            raise NodeLost(f"its process ended with code {answer.code}: {answer.said}")
        return answer.code

    def _deliver(self, plan: Planned) -> Delivery:
        """Export and build here what a place is to measure.

        Raises:
            ShootoutError: nothing of it can be exported.
        """
        here = dict(zip(self.parcel.fields["model"], self.study.model, strict=True))
        requests = {  # each size whole, since a folder is sent by itself
            points.group_name(point): replace(points.request(self.study, point), sweep={})
            for point in points.points(self.study)
        }
        groups = [
            _plan_from_here(record, requests[max(filter(record.name.startswith, requests), key=len)], plan, here)
            for record in plan.header.groups
        ]
        there = {model: name for name, model in here.items()}
        made = deliver(groups, needs_of(groups), self.progress, self.limit)
        models = {
            (name, there.get(model, model), *of): one
            for (group, model, *of), one in made.models.items()
            for name in (group, confirming_name(group))
        }
        return replace(made, models=models)


def _keep(folder: Path, data: bytes) -> None:
    """Write the run folder that a machine returned, a zip, over what is here; the journal last, and in one step.

    Raises:
        NodeLost: it doesn't go on from the run that is here, so that nothing is written.
        ValueError: it is larger than any run.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (total := sum(info.file_size for info in archive.infolist())) > MOST_BYTES:
            raise ValueError(f"it holds {size(total)} unpacked, and a run at most {size(MOST_BYTES)}")
        names = archive.namelist()
        returned = archive.read(journal.NAME) if journal.NAME in names else b""
        if not returned.startswith(_read_sound(folder)):
            raise NodeLost(
                f"its run doesn't go on from the one in {str(folder)!r}: move that away to take the machine's"
            )
        for name in names:
            if name != journal.NAME:
                archive.extract(name, folder)
    if returned:
        folder.mkdir(exist_ok=True)
        (folder / journal.UNPACKING).write_bytes(returned)
        (folder / journal.UNPACKING).replace(folder / journal.NAME)


def _read_sound(folder: Path) -> bytes:
    """Return the bytes of a journal that a run in its folder would go on from; none if it would start over.

    Raises:
        UsageError: it can't be read.
    """
    if not journal.begun(folder) or (history := journal.read(folder)).untouched:
        return b""
    plain, packed = folder / journal.NAME, folder / journal.PACKED
    data = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    return data[: history.sound_bytes]


def _plan_from_here(record: GroupRecord, request: Request, plan: Planned, here: Mapping[str, str]) -> PlannedGroup:
    """Return a group as a machine planned it, with the files' names as they are here.

    Args:
        here: a model's name, by the name that it has there.
    """
    arms = tuple(replace(arm, model=here.get(arm.model, arm.model)) for arm in record.arms)
    away = NotRun(NotRunKind.UNAVAILABLE, "it can't run there")
    playing = plan.playing.get(record.name, [arm.label for arm in arms])
    return PlannedGroup(
        record=record.model_copy(update={"arms": arms}),
        request=replace(request, saturates=saturates_there(plan.header.environment)),
        skips={arm.label: away for arm in arms if arm.label not in playing and not arm.control},
    )


def saturates_there(facts: Mapping[str, Any]) -> bool:
    """Return what `environment.saturates` would, on the machine of an environment that `facts` returned there."""
    flags = {*((facts.get("cpu") or {}).get("flags") or ())}
    return "sse4_2" in flags and not VNNI & flags  # which every x86 CPU of the last 15 years has


def combine_codes(codes: Sequence[int]) -> int:
    """Return one exit code for all machines: that of the one that matters most; 3 only if none measured anything."""
    if codes and all(code == ExitCode.NOTHING for code in codes):
        return ExitCode.NOTHING
    weighty = (ExitCode.INTERRUPTED, ExitCode.USAGE, ExitCode.UNAVAILABLE, ExitCode.FAILED, ExitCode.UNDECIDED)
    return next((code for code in weighty if code in codes), ExitCode.OK)


def find_runs(out: Path) -> list[Path]:
    """Return the run folders in a fleet's folder, in the order of their names."""
    return [folder for folder in sorted(out.iterdir()) if folder.is_dir() and journal.begun(folder)]


def render_plans(plans: Mapping[Place, Planned], parcel: Parcel) -> Text:
    """Render what each place would measure, and what it is sent."""
    lines = [f"Each machine is sent this package{''.join(f', {name}' for name in sorted(parcel.files))}."]
    for place, plan in plans.items():
        cells = counted(sum(map(len, plan.playing.values())), "cell")
        lines.append(f"{place.name}: {counted(len(plan.playing), 'group')}, {cells}, at least {span(plan.estimate_s)}")
        lines += [f"  {name}: {', '.join(arms) or 'nothing can run there'}" for name, arms in plan.playing.items()]
    return Text("\n".join(lines))


def doctor_there(address: str, *, as_json: bool) -> int:
    """Look at the host that `--on` names, and print what was found; return the exit code.

    Raises:
        UsageError: it can't be used; says what to do.
    """
    with show_progress() as progress:
        answer = _run_there(address, ["shootout.cli", "doctor", *(["--json"] if as_json else [])], progress.say)
    sys.stdout.write(printable(answer.printed))
    return answer.code


def _run_there(address: str, words: Sequence[str], say: Callable[[str], None], folder: bytes = b"") -> Answer:
    """Run a command on a host.

    Args:
        words: what `python -m` takes, and a zip of the run folder that they name.
        say: hears what the host tells.

    Raises:
        UsageError: it can't be used, was lost, or isn't alone; says why.
    """
    if len(read_addresses(address)) > 1:
        raise UsageError(f"--on {address!r}: this command is for one host: name it alone")
    with ssh_hosts.connect(address, pack_package(), say) as hosts:
        try:
            return hosts.run(hosts.places[0], Task(words=words, folder=folder))
        except NodeLost as lost:
            raise UsageError(f"--on {address}: {lost}") from None


def ship_there(
    address: str,
    run: Path,
    out: Path,
    *,
    target: str | None,
    policy: Policy | None,
    group: str | None,
    as_json: bool = False,
) -> int:
    """Ship a target on the host that measured it, where its own check runs once; return the exit code.

    Args:
        out: the folder to make, here.
        target, policy, group, as_json: as `ship` has them.

    Raises:
        UsageError: `out` is there, the host can't be used, or it can't ship the target; says why.
    """
    if out.exists():
        raise is_there(out)
    source = find_arm_to_ship(run, target, policy, group)
    words = ["shootout.cli", "ship", "{run}", "-o", f"{{run}}/{SHIPPED}", *(["--json"] if as_json else [])]
    if policy:
        limits = write_policy(policy) or [("--objective", str(policy.objective))]
        words += [word for option in limits for word in option]
        words += ["--group", group] if group else []
    else:
        words += ["--target", source.arm.label, "--group", source.row.group]

    def relay(text: str) -> None:
        if not any(when in text for when in NEXT_STEPS):  # they are of the folder there, which is gone
            progress.say(text)

    with show_progress() as progress:
        progress.stage(f"shipping {source.arm.label} on {address}")
        answer = _run_there(address, words, relay, zip_folder(run))
    if answer.code != ExitCode.OK:
        return answer.code
    with new_folder(out), zipfile.ZipFile(io.BytesIO(answer.folder)) as archive:
        for member in archive.infolist():
            if member.filename.startswith(f"{SHIPPED}/"):
                member.filename = member.filename.removeprefix(f"{SHIPPED}/")
                archive.extract(member, out)  # which keeps every file in the folder, whatever the host named it
    progress.say(f"copied to {out}")
    tell_next_steps(out)
    return print_written({**json.loads(answer.printed), "folder": str(out)} if as_json else {}, as_json=as_json)


def main() -> None:
    """Plan or measure on a machine, as the job's word `do` says, and end with its exit code."""
    job, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    leave_with(os.getppid())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how `run_task` ends it
    try:
        study = checked(job["study"])
        chosen_gpu.choose_gpu(job["gpu"], {target.device for target in points.targets_of(study)})
        plan = make_plan(study, job["named"])
        code = _tell(plan) if job["do"] == "plan" else _measure_here(plan, job, out)
    except ShootoutError as error:
        sys.stderr.write(f"shootout: {error}\n")
        code = error.exit_code
    sys.exit(code)


def _tell(plan: Plan) -> int:
    """Print what would be measured here: the journal's header, each group's targets, and the seconds it takes."""
    foreseen = preview.foresee(plan)
    told = {
        "header": make_header(plan, machines.facts()).model_dump(mode="json"),
        "playing": {
            group.record.name: [arm.label for arm in group.building if not arm.control] for group in plan.groups
        },
        "estimate_s": foreseen.least_s + foreseen.prepare_s,
    }
    sys.stdout.write(json.dumps(told))
    return ExitCode.OK


def _measure_here(plan: Plan, job: Mapping[str, Any], out: Path) -> int:
    """Measure what was exported here, or sent with the run folder."""
    limit, delivered = Deadline(job["max_time_s"]), replace(plan, delivery=read_delivery(out))
    with show_progress() as progress:
        document = measure(
            delivered,
            out,
            fresh=False,
            limit=limit,
            progress=progress,
            wait=limit,
            command=job["command"],
            on=job["on"],
        )
    return exit_code(document, plan, strict=job["strict"])


if __name__ == "__main__":
    main()
