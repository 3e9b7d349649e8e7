"""Run `shootout doctor`: what works on this machine, what is missing and how to get it, and how quiet it is."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

from shootout.apps.ceilings.measure import obtain_ceilings, read_ceilings
from shootout.apps.ceilings.screen import render_ceilings
from shootout.backends import chosen_gpu
from shootout.backends.devices import cuda_driver
from shootout.backends.devices.cuda import Cuda, find_nvml
from shootout.commands.machine_lock import machine_lock, machine_lock_holder
from shootout.commands.output import print_answer, show_progress
from shootout.commands.passed_on import pass_on
from shootout.core import backends
from shootout.core.constants import FOREIGN_SHARE, SM_CLOCK_SHARE, STEAL_SHARE
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Precision
from shootout.core.errors import Unavailable, UsageError, one_line, shorten, tell_refusal
from shootout.core.host import environment
from shootout.core.host.noise import NoiseMeter, foreign_share, steal_share, throttle_count
from shootout.core.host.placement import Placement, place
from shootout.core.host.store import cache_folder
from shootout.core.install import install
from shootout.core.messages import GpuState
from shootout.core.units import size
from shootout.core.worker.availability import at_once, find_available
from shootout.tell import machines
from shootout.tell.option_values import read_whole
from shootout.tell.registered import settable
from shootout.tell.wording import tell_cpus

if TYPE_CHECKING:
    from rich.console import RenderableType


LISTEN_S = 2.0
ENOUGH_FREE_BYTES = 2 * 2**30
ENOUGH_OPEN_FILES = 256
WIDEST = 100
"""Letters in a line, on a wider terminal and in a pipe too."""
INDENT = 2
LONGEST_REASON = 160
ACCELERATORS = (Device.XPU, Device.NPU)
"""No software stands in for these, as it does for a GPU with Vulkan."""
_VARIABLES = {"cache": "SHOOTOUT_CACHE", "temporary": "TMPDIR"}
"""The variables that name the folders of each use."""
_LIMITS = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_NPROC")
_HARMFUL = {"RLIMIT_AS": "memory (ulimit -v)", "RLIMIT_DATA": "memory (ulimit -d)", "RLIMIT_CPU": "time (ulimit -t)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quietness:
    """Outside evidence over a short while; None where the system doesn't tell.

    Attributes:
        sources: the kinds of evidence there are here.
        steal_share: CPU time the hypervisor took, of the arms' CPUs.
        foreign_share: CPU time that other programs took, of the arms' CPUs.
        throttled: how often the control group held us back.
        load_average: tasks running or waiting over the last minute.
        gpu_processes: how many processes have a context on the GPU while nothing of ours runs.
        gpu_throttled: what holds the GPU's clock down, in NVML's words.
    """

    sources: tuple[str, ...]
    steal_share: float | None
    foreign_share: float | None
    throttled: int | None
    load_average: float | None
    gpu_processes: int | None = None
    gpu_throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRoom:
    """A folder that runs write to; `problem` is "" when it can be used."""

    use: str
    path: str
    free_bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFinding:
    """One backend on one device: if it is available, what it needs, and the precisions and options it has code for."""

    backend: str
    device: Device
    availability: Availability
    needs: str = ""
    precisions: tuple[Precision, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """All that `shootout doctor` found.

    Attributes:
        threads: compute threads an arm gets by default.
        limits: process limits in force, by their name in `getrlimit`.
        lock_holder: the run that measures here now, "" when there is none.
        advice: what would make runs possible, safer or quieter, what matters most first.
    """

    findings: tuple[BackendFinding, ...]
    quiet: Quietness
    threads: int
    folders: tuple[FolderRoom, ...]
    memory_available_bytes: int
    limits: Mapping[str, int]
    lock_holder: str
    advice: tuple[str, ...]
    environment: Mapping[str, Any]


def doctor(gpu: int | None = None, env: Sequence[str] = (), *, as_json: bool) -> int:
    """Look at everything and print it; return the exit code.

    Args:
        gpu: its number; None: the first.
        env: variables that the backends get too.
    """
    pass_on(env)
    if gpu is not None:
        _choose_gpu(gpu)
    with show_progress() as progress:
        report = examine(progress.stage)
    return print_answer(render(report), as_data(report), as_json=as_json)


def ceilings(*, threads: str | None, fresh: bool, as_json: bool) -> int:
    """Print what is remembered, or measure it now; return the exit code."""
    placement = place("all" if threads == "all" else None if threads is None else read_whole("--threads", threads))
    facts = machines.facts()
    found = None if fresh else read_ceilings(facts).get(placement.threads)  # else another run is waited for
    if found is None:
        with show_progress() as progress, machine_lock("shootout ceilings", progress.wait):
            found = obtain_ceilings(placement, facts, progress.say, fresh=fresh)
    return print_answer(render_ceilings(found), found.model_dump(mode="json"), as_json=as_json)


def examine(tell: Callable[[str], None] = lambda _: None) -> DoctorReport:
    """Look at everything: first how quiet it is (about 2 s), then the backends, whose probes make noise themselves.

    Args:
        tell: shows what happens now, and what each backend's probe found.
    """
    placement = place(None)
    tell(f"watching for {LISTEN_S:g} s how busy this machine is")
    heard = listen(placement.arms)
    holder = machine_lock_holder()
    facts = machines.facts()
    folders = (look_at_cache(), look_at("temporary", Path(tempfile.gettempdir())))
    memory, limits = environment.memory_available_bytes(), process_limits()
    busy = f"{holder} is measuring now: a run would wait for it, and what is heard here is mostly its noise"
    return DoctorReport(
        findings=_check_backends(tell),
        quiet=heard,
        threads=placement.threads,
        folders=folders,
        memory_available_bytes=memory,
        limits=limits,
        lock_holder=str(holder) if holder else "",
        advice=(
            *room_advice(folders, memory),
            *limit_advice(limits),
            *([busy] if holder else []),
            *cpu_advice(placement, facts["cpu"]),
            *noise_advice(heard),
            *_gpu_advice(facts),
        ),
        environment=facts,
    )


def _choose_gpu(index: int) -> None:
    """Use this GPU, NVIDIA's where there is its driver, else that of Vulkan or OpenVINO, each by its own count.

    Raises:
        Unavailable: there is no such GPU.
    """
    if cuda_driver.library() is not None:
        chosen_gpu.choose_gpu(index, {Device.CUDA})
        return
    chosen_gpu.choose_gpu(index, {Device.VULKAN})
    counting = (Device.VULKAN, Device.XPU)
    answers = find_available(
        [(name, one) for one in counting for name in backends.names() if one in _claimed_targets(name)]
    )
    if not any(found.ok for found in answers.values()):
        found = next(iter(answers.values()))
        reason = found.reason.removeprefix(f"gpu {index}: ")
        raise Unavailable(f"gpu {index}: no NVIDIA driver on this machine, and for Vulkan: {reason}; {found.fix}")


def _check_backends(tell: Callable[[str], None]) -> tuple[BackendFinding, ...]:
    """Check every backend on every device it has code for, in the registry's order."""
    claimed = {(name, device): some for name in backends.names() for device, some in _claimed_targets(name).items()}
    tell(f"importing the libraries of {len({name for name, _ in claimed})} backends, {at_once()} at once: 5 to 30 s")

    def tell_found(found: Mapping[tuple[str, Device], Availability], left: int) -> None:
        works = {name: any(one.ok for (own, _), one in found.items() if own == name) for name, _ in found}
        told = (f"{name} {'works' if ok else 'does not work'}" for name, ok in works.items())
        tell(f"{', '.join(told)}; {left} more to import" if left else ", ".join(told))

    answers = find_available(list(claimed), tell=tell_found)
    return tuple(
        BackendFinding(
            backend=name,
            device=device,
            availability=answers[name, device],
            needs=_needs_of(name),
            precisions=precisions,
            options=tuple(option.name for option in settable(name) if device in option.devices),
        )
        for (name, device), precisions in claimed.items()
    )


def _claimed_targets(name: str) -> dict[Device, tuple[Precision, ...]]:
    """Return a backend's devices and the precisions on each; a broken backend has a row that says so."""
    claimed = backends.describe(name)
    if isinstance(claimed, NotRun):
        return {Device.CPU: ()}
    targets = claimed.targets
    return {
        device: tuple(one for one in Precision if (device, one) in targets)
        for device in Device
        if any(on == device for on, _ in targets)
    }


def _needs_of(name: str) -> str:
    try:
        return backends.entry(name).needs
    except UsageError:
        return ""  # a name claimed twice


def listen(cpus: frozenset[int], seconds: float = LISTEN_S) -> Quietness:
    """Watch `cpus` for so many seconds, in which nothing of ours runs."""
    card = Cuda()
    meter = NoiseMeter(cpus, gpu=card, parent=cpus)
    before = meter.mark()
    sleep(seconds)
    after = meter.mark()
    return Quietness(
        sources=meter.sources(),
        steal_share=steal_share(before, after),
        foreign_share=foreign_share(before, after, own_ns=0),
        throttled=throttle_count(before, after),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        gpu_processes=after.gpu_processes,
        gpu_throttled=card.state().throttled,
    )


def look_at_cache() -> FolderRoom:
    """Look at the folder of exported models and engines."""
    try:
        return look_at("cache", cache_folder())
    except UsageError as error:
        return FolderRoom(use="cache", path="", problem=str(error))


def look_at(use: str, path: Path) -> FolderRoom:
    """Find out if `path` can be written, and the room on its disk."""
    try:
        free_bytes = shutil.disk_usage(path).free
    except OSError as error:
        why = tell_refusal(error, f"set {_VARIABLES[use]} to another folder")
        return FolderRoom(use=use, path=str(path), problem=f"can't use the {use} folder {path}: {why}")
    problem = "" if os.access(path, os.W_OK | os.X_OK) else f"can't write into the {use} folder {path}: chmod u+w it"
    return FolderRoom(use=use, path=str(path), free_bytes=free_bytes, problem=problem)


def process_limits() -> dict[str, int]:
    """Return this process's soft limits by their name in `getrlimit`; unlimited ones are left out."""
    soft = {name: resource.getrlimit(getattr(resource, name))[0] for name in _LIMITS if hasattr(resource, name)}
    return {name: limit for name, limit in soft.items() if limit != resource.RLIM_INFINITY}


def _gpu_advice(facts: Mapping[str, Any]) -> tuple[str, ...]:
    seen = find_nvml() is not None
    return gpu_advice(facts["gpus"], Cuda().state(), cuda=facts["cuda_driver"], nvml=seen)


def room_advice(folders: Iterable[FolderRoom], memory_bytes: int) -> tuple[str, ...]:
    """Return what is wrong with the folders and the memory, one line each."""
    lines = []
    for folder in folders:
        if folder.problem:
            lines.append(folder.problem)
        elif folder.free_bytes is not None and folder.free_bytes < ENOUGH_FREE_BYTES:
            free = size(folder.free_bytes)
            lines.append(f"only {free} of disk is free for the {folder.use} folder {folder.path}: make room")
    if memory_bytes < ENOUGH_FREE_BYTES:
        lines.append(f"only {size(memory_bytes)} of memory is free: close programs or raise the limit")
    return tuple(lines)


def limit_advice(limits: Mapping[str, int]) -> tuple[str, ...]:
    """Return process limits that break runs, one line each."""
    lines = [
        f"this shell limits a process's {what} to {limits[name]:,}: lift it, libraries reserve far more than they use"
        if name != "RLIMIT_CPU"
        else f"this shell limits a process's {what} to {limits[name]:,} s: lift it, or long runs are killed"
        for name, what in _HARMFUL.items()
        if name in limits
    ]
    files = limits.get("RLIMIT_NOFILE", ENOUGH_OPEN_FILES)
    if files < ENOUGH_OPEN_FILES:
        lines.append(f"only {files} files may be open: ulimit -n 1024")
    return tuple(lines)


def cpu_advice(placement: Placement, cpu: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what our CPUs and their clock mean for a run, one line each.

    Args:
        placement: the default placement.
        cpu: the processor's facts.
    """
    lines = [placement.note] if placement.note else []
    quota, governor = cpu.get("quota_cpus"), cpu.get("governor")
    if quota is not None and quota != int(quota):
        lines.append(f"the container's quota is {quota:g} CPUs: give it a whole number, or it is throttled")
    if governor not in (None, "performance"):
        lines.append(f"the CPU governor is {governor!r}: sudo cpupower frequency-set --governor performance")
    return tuple(lines)


def noise_advice(quiet: Quietness) -> tuple[str, ...]:
    """Return the noise measured here and what would help, one line each; empty on a quiet machine."""
    lines = []
    if (quiet.steal_share or 0.0) > STEAL_SHARE:
        lines.append(
            f"the hypervisor takes {quiet.steal_share:.1%} of the CPU time: use a dedicated or larger instance"
        )
    if (quiet.foreign_share or 0.0) > FOREIGN_SHARE:
        lines.append(
            f"other programs take {quiet.foreign_share:.0%} of the CPUs measured on: close them, or ratios get wider"
        )
    if quiet.throttled:
        lines.append(f"the container was throttled {quiet.throttled} times: raise its CPU quota")
    if quiet.gpu_processes:
        many = "processes use" if quiet.gpu_processes > 1 else "process uses"
        lines.append(
            f"{quiet.gpu_processes} {many} the GPU (nvidia-smi lists them): stop them, or every round is flagged"
        )
    if quiet.gpu_throttled:
        held = ", ".join(quiet.gpu_throttled)
        lines.append(f"the GPU's clock is held down ({held}): see to its cooling and power limit (nvidia-smi -q)")
    return tuple(line.replace("%", " %") for line in lines)


def gpu_advice(gpus: Sequence[Mapping[str, Any]], state: GpuState, *, cuda: str | None, nvml: bool) -> tuple[str, ...]:
    """Return what the GPU's settings mean for a run, one line each; empty on a machine without an NVIDIA driver.

    Args:
        gpus: `cuda.gpu_facts()`.
        state: of the one in use, while nothing of ours runs.
        cuda: the newest CUDA that the driver knows; None without a driver.
        nvml: whether the package nvidia-ml-py is installed.
    """
    if cuda is None:
        return ()
    if not nvml:
        return (f"the GPU's clock, heat, memory and other users can't be seen: {install('gpu')} (nvidia-ml-py)",)
    used = next((gpu for gpu in gpus if gpu.get("visible")), None)
    others = [f"{len(gpus)} GPUs are here, the others stay idle: choose with --gpu N"] if len(gpus) > 1 and used else []
    return (*others, *_setting_advice(used), *_clock_advice(used, state.sm_clock_mhz)) if used else ()


def _setting_advice(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu["compute_mode"] not in (None, "default"):
        mode = gpu["compute_mode"].replace("_", " ")
        yield f"the GPU's compute mode is {mode}, but a race has several processes on it: sudo nvidia-smi -c DEFAULT"
    if gpu["persistence"] is False:
        yield "the GPU's persistence mode is off, so it may sleep between two processes: sudo nvidia-smi -pm 1"
    if gpu["mig"]:
        yield "the GPU is divided (MIG): figures are those of one instance, and its neighbors share clock and power"
    if gpu["ecc"] is False:
        yield "the GPU's ECC is off: figures don't compare with those of GPUs that have it on (sudo nvidia-smi -e 1)"


def _clock_advice(gpu: Mapping[str, Any], now_mhz: int | None) -> Iterator[str]:
    """Advise on the GPU's clock: NVML doesn't tell a locked one from a resting one."""
    most_mhz = gpu["sm_clock_max_mhz"]
    if now_mhz and most_mhz and now_mhz < SM_CLOCK_SHARE * most_mhz:
        yield (
            f"the GPU's clock is {now_mhz:,} MHz now and can rise to {most_mhz:,}: unless it is locked already, lock it"
            " to one that it holds under load (sudo nvidia-smi -lgc MHZ; -rgc undoes it)"
        )


def as_data(report: DoctorReport) -> dict[str, Any]:
    """Return the report as JSON values."""
    findings = [
        asdict(finding) | {"availability": _availability_data(finding.availability)} for finding in report.findings
    ]
    return asdict(report) | {"findings": findings}


def _availability_data(availability: Availability) -> dict[str, Any]:
    names = ("ok", "version", "reason", "fix", "builds")
    return {name: getattr(availability, name) for name in names}


def render(report: DoctorReport) -> RenderableType:
    """Render what works, what one command adds, what needs other hardware, how quiet it is, and what would help."""
    from rich.console import Group
    from rich.constrain import Constrain
    from rich.text import Text

    away, elsewhere = _split_missing(report)
    sections: dict[str, list[RenderableType]] = {
        "works here": _list_working(report),
        "one command away": [*_list_uninstalled(report), *_list_by_fix(away)],
        "needs other hardware": _list_by_fix(elsewhere),
    }
    shown = [part for title, parts in sections.items() if parts for part in (Text(title, "bold"), *parts, Text())]
    lines = [*_summarize_findings(report), *(f"advice: {line}" for line in report.advice)]
    return Constrain(Group(*shown, *map(Text, lines)), WIDEST)


def _list_working(report: DoctorReport) -> list[RenderableType]:
    """Return a table of the backends that work, with their versions."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    works = [finding for finding in report.findings if finding.availability.ok]
    for one in works:
        # Texts, because a library's own words may look like markup.
        table.add_row(*map(Text, (one.backend, one.device, one.availability.version)))
    return [Padding(table, (0, 0, 0, INDENT), expand=False)] if works else []


def _split_missing(report: DoctorReport) -> tuple[list[BackendFinding], list[BackendFinding]]:
    """Return what a command may make work on this machine, and what takes another; not what need only be installed."""
    uninstalled = _runs_if_installed(report)
    missing = [
        finding
        for finding in report.findings
        if not finding.availability.ok and not (finding.backend in uninstalled and _is_absent(finding))
    ]
    has_gpu = bool(report.environment.get("gpus"))
    other = [one for one in missing if one.device in ACCELERATORS or (one.device is Device.CUDA and not has_gpu)]
    return [one for one in missing if one not in other], other


def _list_by_fix(findings: Sequence[BackendFinding]) -> list[RenderableType]:
    """Return the backends that lack the same, with why and the one fix."""
    alike: dict[tuple[str, str], list[BackendFinding]] = {}
    for finding in findings:
        alike.setdefault((_shorten(finding.availability.reason), finding.availability.fix), []).append(finding)
    return [
        part
        for (reason, fix), some in alike.items()
        for part in _lay_out(f"{', '.join(map(_name, some))}: {reason}", fix)
    ]


def _name(finding: BackendFinding) -> str:
    """Return a finding's backend and device, and whether its artifacts can be built here all the same."""
    return f"{finding.backend}:{finding.device}{' (builds here)' if finding.availability.builds else ''}"


def _shorten(reason: str) -> str:
    """Return a reason's beginning; `--json` has all of it."""
    return shorten(one_line(reason), LONGEST_REASON)


def _lay_out(what: str, fix: str) -> list[RenderableType]:
    """Return a line and its fix below it, each indented however often it is wrapped."""
    from rich.padding import Padding
    from rich.text import Text

    lines = [(what, INDENT), *([(fix, 2 * INDENT)] if fix else [])]
    return [Padding(Text(text), (0, 0, 0, indent), expand=False) for text, indent in lines]


def _list_uninstalled(report: DoctorReport) -> list[RenderableType]:
    """Return the backends that aren't installed, and the one command that installs them."""
    names = _runs_if_installed(report)
    extras = dict.fromkeys(backends.entry(name).extra for name in names)
    return _lay_out(f"{', '.join(names)}: not installed", install(",".join(extras))) if names else []


def _runs_if_installed(report: DoctorReport) -> list[str]:
    """Return the backends that lack nothing but their library on a device that is here."""
    here = {Device.CPU, *([Device.CUDA] if report.environment.get("gpus") else [])}
    return list(
        dict.fromkeys(finding.backend for finding in report.findings if finding.device in here and _is_absent(finding))
    )


def _is_absent(finding: BackendFinding) -> bool:
    """Return True if its own extra is all that it lacks."""
    why = finding.availability.why
    if why is None or why.kind is not NotRunKind.NOT_INSTALLED:
        return False
    extra = backends.entry(finding.backend).extra
    return bool(extra) and why.fix == install(extra)


def _summarize_findings(report: DoctorReport) -> list[str]:
    cpu, heard = report.environment["cpu"], report.quiet
    shares = {"steal": heard.steal_share, "other programs": heard.foreign_share}
    told = [f"{name} {'not told' if share is None else f'{share:.1%}'}" for name, share in shares.items()]
    throttled = "not told" if heard.throttled is None else f"{heard.throttled} times"
    noise = [*told, f"throttled {throttled}"]
    seen = "" if cpu.get("quota_cpus") is None else f" ({tell_cpus(cpu)})"
    cpus = f"CPUs allowed: {len(cpu['allowed_cpus'])}{seen}, threads a target: {report.threads}"
    memory = f"memory free: {report.memory_available_bytes / 2**30:.1f} GiB"
    if limit := report.environment.get("memory", {}).get("limit_bytes"):
        memory += f" (limit {limit / 2**30:.1f} GiB)"
    return [
        f"machine: {cpu['model']}, {cpus}, {memory}",
        *_list_cards(report.environment),
        f"noise: {', '.join(noise)}".replace("%", " %"),
    ]


def _list_cards(environment: Mapping[str, Any]) -> list[str]:
    """Return the lines on the GPU in use."""
    used = [gpu for gpu in environment.get("gpus", ()) if gpu.get("visible")]
    return [
        f"GPU {gpu['index']}: {gpu['name']}, driver {gpu['driver']}, CUDA {environment['cuda_driver']}" for gpu in used
    ]
