"""`shootout run … --on ADDRESS`: measure on other machines, each in a run folder of its own, merge, print.

A host that is reached by ssh needs no torch and no converter: what it measures is exported here, and built here if any
CPU can run the build. A node of a Ray cluster does all of it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from rich.text import Text

from shootout.apps.fleet import ray_cluster, ssh_hosts
from shootout.apps.fleet.deliver import deliver
from shootout.apps.fleet.node_side import zip_folder
from shootout.apps.fleet.parcel import Parcel, pack
from shootout.apps.fleet.transport import STOP_S, NodeLost, Place, Task, Transport
from shootout.apps.judge.compare import merged
from shootout.commands import selection
from shootout.commands.output import print_answer, show_progress
from shootout.commands.show import show
from shootout.core.build.builder import needs_of
from shootout.core.clock import Deadline
from shootout.core.contract import NotRun, NotRunKind
from shootout.core.errors import ExitCode, UsageError, one_line
from shootout.core.exported.client import DELIVERY, Delivery
from shootout.core.exported.request import Request
from shootout.core.host.environment import VNNI
from shootout.core.host.folders import FOLDER_LOCK, folder_lock
from shootout.core.journal import journal
from shootout.core.journal.folder import find_foreign
from shootout.core.journal.records import Header
from shootout.core.study import points
from shootout.core.study.group import GroupRecord, confirming_name
from shootout.core.study.plan import PlannedGroup
from shootout.core.study.schema import Study
from shootout.core.units import counted, size, span
from shootout.tell.delivery import Contents, contents, to_json
from shootout.tell.formats.files import check_files
from shootout.tell.progress import ProgressDisplay
from shootout.tell.run_folder import new_folder
from shootout.tell.study_options import RunOptions

ALONE = ("policy", "trace")
"""Options of a run on this machine alone."""
NODE = "shootout.commands.node"
"""The module that machines run."""
ASKING_S = 300.0
"""A machine that hasn't said what it would measure by then is left out."""
LOOK_S = 1.0
"""The time between two looks at the deadline while machines measure."""
MEASURED = frozenset({ExitCode.OK, ExitCode.NOTHING, ExitCode.FAILED, ExitCode.UNAVAILABLE, ExitCode.INTERRUPTED})
"""The codes of a process that came to its end; with any other one, its last words say why it didn't."""
MOST_BYTES = 4 << 30
"""A run folder that a machine returns holds at most so much, unpacked: a zip of few bytes could fill the disk."""
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, LookupError, TypeError, ValueError)
"""The errors of a zip that `zip_folder` didn't make, or that can't be unpacked here."""


class OtherRunError(Exception):
    """Report that a machine returned a run that doesn't go on from the one that is here."""


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
    out = Path(options.get("out") or new_folder(Path("results") / chosen.name))
    if options.get("fresh") and out.exists():
        raise UsageError(f"--fresh with --on: remove {str(out)!r} yourself, or choose another --out")
    _refuse_others(out)
    limit = Deadline(options.get("max_time_s"))
    parcel = pack(chosen, weights=not address.startswith(ssh_hosts.SCHEME))
    job = {
        "study": dict(parcel.fields),
        "named": list(options.get("backends", ())),
        "env": list(options.get("env", ())),
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
        fleet = Fleet(machines, chosen, parcel, job, out, limit, progress)
        codes += fleet.measure(plans)
        progress.say(f"run folder: {out}")
    if runs := find_runs(out):  # none if it was interrupted before anything came back
        show(out if len(runs) > 1 else runs[0], full=full, as_json=as_json, to=to)
    return combine_codes(codes) if runs else combine_codes([*codes, ExitCode.NOTHING])


def reach(address: str, parcel: Parcel, progress: ProgressDisplay) -> AbstractContextManager[Transport]:
    """Connect to the machines that `--on` names.

    Raises:
        UsageError: the address is none, or nothing can be used there; says what to do.
    """
    if address.startswith(ssh_hosts.SCHEME):
        return ssh_hosts.connect(address, parcel, progress.say)
    if address.startswith(ray_cluster.SCHEME):
        return ray_cluster.connect(address.removeprefix(ray_cluster.SCHEME), parcel)
    raise UsageError(f"--on {address!r} is neither ssh://[USER@]HOST nor ray:HOST:PORT nor ray:auto")


def _refuse_others(out: Path) -> None:
    """Refuse a folder that holds something else than runs."""
    for folder in sorted(out.iterdir()) if out.is_dir() else ():
        if folder.name == FOLDER_LOCK or folder.name.startswith(merged.NAME):
            continue
        if not folder.is_dir() or (not journal.begun(folder) and find_foreign(folder)):
            raise UsageError(
                f"{str(out)!r} is not the folder of a fleet's run (it holds {folder.name!r}): choose another --out"
            )


def ask_plans(
    machines: Transport, job: Mapping[str, Any], progress: ProgressDisplay
) -> tuple[dict[Place, Planned], list[int]]:
    """Ask every place what it would measure, all at once; also return the exit codes of those that can't tell.

    Raises:
        UsageError: none can plan the study.
    """
    progress.stage(f"asking {counted(len(machines.places), 'machine')} what they are")

    def ask(place: Place) -> Planned:
        task = Task(words=(NODE, json.dumps({**job, "do": "plan"}), "{run}"), name=token_hex(16))
        answer = machines.run(place, task, claims=False)
        machines.forget(place, task)
        if answer.code:
            raise NodeLost(answer.said.removeprefix("shootout: "))
        told = json.loads(answer.printed)
        return Planned(
            header=Header.model_validate(told["header"]), playing=told["playing"], estimate_s=told["estimate_s"]
        )

    plans, faults = dict[Place, Planned](), list[str]()
    pool = futures.ThreadPoolExecutor(len(machines.places))
    asked = {place: pool.submit(ask, place) for place in machines.places}
    try:
        futures.wait(asked.values(), ASKING_S)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for place, one in asked.items():
        try:
            plans[place] = one.result(timeout=0.0)
        except TimeoutError:
            faults.append(f"{place.name}: it hasn't answered for {ASKING_S:.0f} s")
        except (NodeLost, LookupError, TypeError, ValueError) as error:
            faults.append(f"{place.name}: {one_line(str(error))}")
    if not plans:
        raise UsageError(faults[0])
    for fault in faults:
        progress.say(f"left out: {fault}")
    return plans, [] if machines.exports_there else [ExitCode.FAILED] * len(faults)


@dataclass(frozen=True, slots=True)
class Fleet:
    """A study that machines measure, each in a run folder below `out`; `job`: what all of them are asked."""

    machines: Transport
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
            pool = futures.ThreadPoolExecutor(max(len(tasks), 1))
            running = {pool.submit(self._run, place, task): place for place, task in tasks.items()}
            late, codes = {*running}, list[int]()
            try:
                while late and self.limit.left_s > -STOP_S:
                    late = futures.wait(late, LOOK_S).not_done
                late = self._stop(late) if late else late
                for one in late:
                    self.progress.say(f"{running[one].name}: {self.machines.late}")
                    codes.append(self.machines.late.exit_code)
            except KeyboardInterrupt:
                late = self._stop(late)
                self.progress.say("shootout: interrupted; run the same command again to resume")
                codes.append(ExitCode.INTERRUPTED)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                merged.write_index(self.out, find_runs(self.out))
        ended = [one.result() for one in running if one not in late]
        return [*codes, *(code for code in ended if code != ExitCode.INTERRUPTED)]  # that one's own time was over

    def _stop(self, running: set[futures.Future[int]]) -> set[futures.Future[int]]:
        """Ask the machines to end, and wait a while for what they return; return what still runs."""
        self.progress.say("ending what runs on the machines")
        self.machines.stop()
        return futures.wait(running, STOP_S).not_done

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
        folder = self.out / place.folder
        sent: Mapping[str, Contents] = {}
        if not self.machines.exports_there:
            self.progress.stage(f"exporting for {place.name}")
            delivery = self._deliver(plan)
            folder.mkdir(exist_ok=True)
            (folder / DELIVERY).write_text(json.dumps(to_json(delivery)), encoding="utf-8")
            sent = contents(delivery)
        left_s = None if self.limit.seconds is None else max(self.limit.left_s, 0.0)
        asked = {**self.job, "do": "measure", "on": "" if self.machines.exports_there else place.id}
        words = (NODE, json.dumps({**asked, "max_time_s": left_s}), "{run}")
        named = {key: value for key, value in asked.items() if key not in ("strict", "command")}  # they measure nothing
        name = hashlib.sha256(json.dumps([str(self.out.absolute()), named], sort_keys=True).encode()).hexdigest()
        return Task(words=words, name=name, folder=zip_folder(folder) if folder.exists() else b"", sent=sent)

    def _run(self, place: Place, task: Task) -> int:
        """Run a place's task and keep the run folder that it returns; return its exit code."""
        try:
            answer = self.machines.run(place, task)
            _keep(self.out / place.folder, answer.folder)
        except NodeLost as lost:
            self.progress.say(f"{place.name}: no result came: {lost}")
            return lost.exit_code
        except OtherRunError:
            folder = self.out / place.folder
            self.progress.say(
                f"{place.name}: its run doesn't go on from the one in {str(folder)!r}; both are kept where they are. "
                f"To take the machine's, move {str(folder)!r} away and run the same command again"
            )
            return ExitCode.FAILED
        except BROKEN as error:
            told = one_line(f"{type(error).__name__}: {error}")
            self.progress.say(f"{place.name}: its answer can't be read ({told}); run the same command again")
            return ExitCode.FAILED
        self.machines.forget(place, task)
        if answer.code in MEASURED:
            return answer.code
        self.progress.say(f"{place.name}: its process ended with code {answer.code}: {answer.said}")
        return ExitCode.FAILED

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
        OtherRunError: the run that is here is none of which it is the continuation; nothing is written.
        ValueError: it is larger than any run.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (total := sum(info.file_size for info in archive.infolist())) > MOST_BYTES:
            raise ValueError(f"it holds {size(total)} unpacked, and a run at most {size(MOST_BYTES)}")
        names = archive.namelist()
        returned = archive.read(journal.NAME) if journal.NAME in names else b""
        if not returned.startswith(_read_sound(folder)):
            raise OtherRunError
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
