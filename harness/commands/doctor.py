"""`shootout doctor`: what works on this machine, what is missing and how to get it, and how quiet the machine is."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout import backends
from shootout.backends import described
from shootout.ceilings.measure import obtain_ceilings
from shootout.ceilings.model import read_ceilings
from shootout.commands.output import print_answer, show_progress
from shootout.contract import Availability, Device, NotRunKind, Precision
from shootout.errors import Unavailable, UsageError, install
from shootout.host import checks, cuda_driver, environment, gpu, locks, nvml
from shootout.host.checks import Folder, Quiet
from shootout.host.gpu import Gpu
from shootout.host.locks import machine_lock
from shootout.host.placement import pass_on, place
from shootout.messages import GpuState
from shootout.report.notes import render_ceilings
from shootout.study.axes import read_whole
from shootout.study.options import MachineOptions
from shootout.worker.availability import available

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether one backend works on one device, and what it has code for there: precisions, options of its own."""

    backend: str
    device: Device
    availability: Availability
    needs: str = ""
    precisions: tuple[Precision, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `shootout doctor` found.

    Attributes:
        threads: compute threads an arm gets by default.
        limits: process limits in force, by their name in `getrlimit`.
        lock_holder: the run that measures here now, "" when there is none.
        advice: what would make runs possible, safer or quieter, what matters most first.
    """

    findings: tuple[Finding, ...]
    quiet: Quiet
    threads: int
    folders: tuple[Folder, ...]
    memory_available_bytes: int
    limits: Mapping[str, int]
    lock_holder: str
    advice: tuple[str, ...]
    environment: Mapping[str, Any]


def doctor(options: MachineOptions, *, as_json: bool) -> int:
    """Look at everything and print it; returns the exit code."""
    pass_on(options.get("env", ()))
    described.forget_hanging()
    if (index := options.get("gpu")) is not None:
        _choose_gpu(index)
    report = examine()
    return print_answer(render(report), as_data(report), as_json=as_json)


def _choose_gpu(index: int) -> None:
    """Use this GPU, NVIDIA's where there is its driver, else that of Vulkan or OpenVINO, each by its own count.

    Raises:
        Unavailable: there is no such GPU.
    """
    if cuda_driver.library() is not None:
        gpu.choose_gpu(index, {Device.CUDA})
        return
    gpu.choose_gpu(index, {Device.VULKAN})
    counting = (Device.VULKAN, Device.XPU)
    answers = available([(name, one) for one in counting for name in backends.names() if one in _targets(name)])
    if not any(found.ok for found in answers.values()):
        found = next(iter(answers.values()))
        reason = found.reason.removeprefix(f"gpu {index}: ")
        raise Unavailable(f"gpu {index}: no NVIDIA driver on this machine, and for Vulkan: {reason}; {found.fix}")


def examine() -> Report:
    """Look at everything: first how quiet it is (about 2 s), then the backends, whose probes make noise themselves."""
    placement = place(None)
    heard = checks.listen(placement.arms)
    holder = locks.machine_lock_holder()
    facts = environment.facts()
    folders = (checks.look_at_cache(), checks.look_at("temporary", Path(tempfile.gettempdir())))
    memory, limits = environment.memory_available_bytes(), checks.process_limits()
    busy = f"{holder} is measuring now: a run would wait for it, and what is heard here is mostly its noise"
    return Report(
        findings=_findings(),
        quiet=heard,
        threads=placement.threads,
        folders=folders,
        memory_available_bytes=memory,
        limits=limits,
        lock_holder=str(holder) if holder else "",
        advice=(
            *checks.room_advice(folders, memory),
            *checks.limit_advice(limits),
            *([busy] if holder else []),
            *checks.cpu_advice(placement, facts["cpu"]),
            *checks.noise_advice(heard),
            *_gpu_advice(facts),
        ),
        environment=facts,
    )


def _gpu_advice(facts: Mapping[str, Any]) -> tuple[str, ...]:
    card = Gpu.open()
    state, seen = card.state() if card else GpuState(), nvml.installed() is not None
    return checks.gpu_advice(facts["gpus"], state, cuda=facts["cuda_driver"], nvml=seen)


def _findings() -> tuple[Finding, ...]:
    """Every backend on every device it has code for, in the registry's order."""
    known = {(name, device): found for name in backends.names() for device, found in _targets(name).items()}
    answers = available(list(known))
    return tuple(
        Finding(
            backend=name,
            device=device,
            availability=answers[name, device],
            needs=_needs(name),
            precisions=found,
            options=_options(name, device),
        )
        for (name, device), found in known.items()
    )


def _targets(name: str) -> dict[Device, tuple[Precision, ...]]:
    """The devices that a backend has code for, and the precisions on each; a broken one has a row to say so."""
    found = backends.describe(name)
    targets = found.capabilities.targets
    if found.why:
        return {Device.CPU: ()}
    return {
        device: tuple(one for one in Precision if (device, one) in targets)
        for device in Device
        if any(on == device for on, _ in targets)
    }


def _options(name: str, device: Device) -> tuple[str, ...]:
    known = backends.capabilities(name).settable()
    return tuple(option.name for option in known.values() if device in option.devices)


def _needs(name: str) -> str:
    try:
        return backends.entry(name).needs
    except UsageError:
        return ""  # a name claimed twice


def state(found: Availability) -> str:
    """One word or two for people: does it work here?"""
    return "works" if found.ok else "builds only" if found.builds else "missing"


def as_data(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    findings = [asdict(finding) | {"availability": _flat(finding.availability)} for finding in report.findings]
    return asdict(report) | {"findings": findings}


def _flat(found: Availability) -> dict[str, Any]:
    names = ("ok", "version", "reason", "fix", "builds")
    return {name: getattr(found, name) for name in names}


def render(report: Report) -> RenderableType:
    """The report for people: a table of backends, what is missing, how quiet it is, what would help, what to try."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("backend", "device", "", "version", "needs", "why", box=None, pad_edge=False)
    for finding in report.findings:
        found = finding.availability
        row = (finding.backend, finding.device, state(found), found.version, finding.needs, found.reason)
        # Texts, because a library's own words may look like markup.
        table.add_row(*map(Text, row))
    advice = (f"advice: {line}" for line in report.advice)
    lines = [*_fixes(report), "", *_summary(report), *advice, *_uninstalled(report)]
    return Group(table, *map(Text, lines))


def _fixes(report: Report) -> list[str]:
    """One line per fix, behind the backends that it helps; what need only be installed has a line of its own."""
    helped: dict[str, list[str]] = {}
    uninstalled = _runs_if_installed(report)
    for finding in report.findings:
        if not finding.availability.ok and not (finding.backend in uninstalled and _is_absent(finding)):
            helped.setdefault(finding.availability.fix, []).append(f"{finding.backend}:{finding.device}")
    return [f"fix for {', '.join(names)}: {fix}" for fix, names in helped.items()] + _gpu(report)


def _uninstalled(report: Report) -> list[str]:
    """What could be tried beside what is here, and the one command for it."""
    names = _runs_if_installed(report)
    extras = dict.fromkeys(backends.entry(name).extra for name in names)
    return [f"Also runs here: {', '.join(names)} ({install(','.join(extras))})"] if names else []


def _runs_if_installed(report: Report) -> list[str]:
    """The backends that lack nothing but their library on a device that is here."""
    here = {Device.CPU, *([Device.CUDA] if report.environment.get("gpus") else [])}
    return list(dict.fromkeys(one.backend for one in report.findings if one.device in here and _is_absent(one)))


def _is_absent(finding: Finding) -> bool:
    """Whether its own extra is all that it asks for."""
    why = finding.availability.why
    if why is None or why.kind is not NotRunKind.NOT_INSTALLED:
        return False
    extra = backends.entry(finding.backend).extra
    return bool(extra) and why.fix == install(extra)


def _gpu(report: Report) -> list[str]:
    """What an NVIDIA GPU would add, where none is used: each backend's targets, and what can be built without one."""
    on_gpu = [finding for finding in report.findings if finding.device is Device.CUDA]
    if not on_gpu or any(finding.availability.ok for finding in on_gpu):
        return []
    return ["", "a machine with an NVIDIA GPU would add:", *map(_addition, on_gpu)]


def _addition(finding: Finding) -> str:
    version = finding.availability.version
    here = f"; builds here already, with {version}" if finding.availability.builds else ""
    return f"  {finding.backend}:cuda in {', '.join(finding.precisions) or 'no known precision'}{here}"


def _summary(report: Report) -> list[str]:
    cpu, heard = report.environment["cpu"], report.quiet
    shares = {"steal": heard.steal_share, "other programs": heard.foreign_share}
    told = [f"{name} {'not told' if share is None else f'{share:.1%}'}" for name, share in shares.items()]
    throttled = "not told" if heard.throttled is None else f"{heard.throttled} times"
    noise = [*told, f"throttled {throttled}"]
    cpus = f"CPUs allowed: {len(cpu['allowed_cpus'])}, threads a target: {report.threads}"
    memory = f"memory free: {report.memory_available_bytes / 2**30:.1f} GiB"
    return [
        f"machine: {cpu['model']}, {cpus}, {memory}",
        *_cards(report.environment),
        f"noise: {', '.join(noise)}".replace("%", " %"),
    ]


def _cards(environment: Mapping[str, Any]) -> list[str]:
    """The GPU in use."""
    used = [gpu for gpu in environment.get("gpus", ()) if gpu.get("visible")]
    return [
        f"GPU {gpu['index']}: {gpu['name']}, driver {gpu['driver']}, CUDA {environment['cuda_driver']}" for gpu in used
    ]


def ceilings(*, threads: str | None, fresh: bool, as_json: bool) -> int:
    """Print what is remembered, or measure it now; returns the exit code."""
    placement = place("all" if threads == "all" else None if threads is None else read_whole("--threads", threads))
    facts = environment.facts()
    found = None if fresh else read_ceilings(facts).get(placement.threads)  # else another run is waited for
    if found is None:
        with show_progress() as progress, machine_lock("shootout ceilings", progress.wait):
            found = obtain_ceilings(placement, facts, progress.say, fresh=fresh)
    return print_answer(render_ceilings(found), found.model_dump(mode="json"), as_json=as_json)
