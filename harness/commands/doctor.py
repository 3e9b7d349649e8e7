"""Run `shootout doctor`: what works on this machine, what is missing and how to get it, and how quiet it is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import sleep
from typing import TYPE_CHECKING, Any

from shootout.apps.ceilings.measure import obtain_ceilings, read_ceilings, render_ceilings
from shootout.backends.devices.cuda import Cuda, find_nvml
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, show_progress
from shootout.core import backends
from shootout.core.constants import FOREIGN_SHARE, STEAL_SHARE
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Precision
from shootout.core.errors import UsageError, one_line, shorten
from shootout.core.host.noise import NoiseMeter, foreign_share, steal_share, throttle_count
from shootout.core.host.placement import Placement, place
from shootout.core.host.store import cache_folder
from shootout.core.install import install
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
WIDEST = 100
"""Letters in a line, on a wider terminal and in a pipe too."""
INDENT = 2
LONGEST_REASON = 160
ACCELERATORS = (Device.XPU, Device.NPU)
"""No software stands in for these, as it does for a GPU with Vulkan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quietness:
    """Outside evidence over a short while; None where the system doesn't tell.

    Attributes:
        steal_share: CPU time the hypervisor took, of the arms' CPUs.
        foreign_share: CPU time that other programs took, of the arms' CPUs.
        throttled: how often the control group held us back.
        gpu_processes: how many processes have a context on the GPU while nothing of ours runs.
        gpu_throttled: what holds the GPU's clock down, in NVML's words.
    """

    steal_share: float | None
    foreign_share: float | None
    throttled: int | None
    gpu_processes: int | None = None
    gpu_throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFinding:
    """One backend on one device: if it is available, and the precisions and options it has code for."""

    backend: str
    device: Device
    availability: Availability
    precisions: tuple[Precision, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """All that `shootout doctor` found.

    Attributes:
        threads: compute threads an arm gets by default.
        advice: what would make runs possible or quieter, what matters most first.
        environment: the facts about this machine.
    """

    findings: tuple[BackendFinding, ...]
    quiet: Quietness
    threads: int
    advice: tuple[str, ...]
    environment: Mapping[str, Any]


def doctor(*, as_json: bool) -> int:
    """Look at everything and print it; return the exit code."""
    with show_progress() as progress:
        report = examine(progress.stage)
    data = asdict(report)
    for told, finding in zip(data["findings"], report.findings, strict=True):
        found = finding.availability
        told["availability"] = {name: getattr(found, name) for name in ("ok", "version", "reason", "fix", "builds")}
    return print_answer(render(report), data, as_json=as_json)


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
    heard, facts = listen(placement.arms), machines.facts()
    return DoctorReport(
        findings=_check_backends(tell),
        quiet=heard,
        threads=placement.threads,
        advice=tuple(advise(placement, facts, heard, has_nvml=find_nvml() is not None)),
        environment=facts,
    )


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


def listen(cpus: frozenset[int], seconds: float = LISTEN_S) -> Quietness:
    """Watch `cpus` for so many seconds, in which nothing of ours runs."""
    card = Cuda()
    meter = NoiseMeter(cpus, gpu=card, parent=cpus)
    before = meter.mark()
    sleep(seconds)
    after = meter.mark()
    return Quietness(
        steal_share=steal_share(before, after),
        foreign_share=foreign_share(before, after, own_ns=0),
        throttled=throttle_count(before, after),
        gpu_processes=after.gpu_processes,
        gpu_throttled=card.state().throttled,
    )


def advise(placement: Placement, facts: Mapping[str, Any], quiet: Quietness, *, has_nvml: bool) -> Iterator[str]:
    """Yield what would make runs possible or quieter, one line each; nothing on a quiet machine.

    Args:
        placement: the default placement.
        facts: about this machine.
        has_nvml: whether the package nvidia-ml-py is installed.
    """
    try:
        if (free_bytes := shutil.disk_usage(cache_folder()).free) < ENOUGH_FREE_BYTES:
            yield f"only {size(free_bytes)} of disk is free for the cache folder {cache_folder()}: make room"
        if not os.access(cache_folder(), os.W_OK | os.X_OK):
            yield f"can't write into the cache folder {cache_folder()}: chmod u+w it"
    except UsageError as error:
        yield str(error)
    if placement.note:
        yield placement.note
    quota, governor = facts["cpu"].get("quota_cpus"), facts["cpu"].get("governor")
    if quota is not None and quota != int(quota):
        yield f"the container's quota is {quota:g} CPUs: give it a whole number, or it is throttled"
    if governor not in (None, "performance"):
        yield f"the CPU governor is {governor!r}: sudo cpupower frequency-set --governor performance"
    stolen, foreign = quiet.steal_share or 0.0, quiet.foreign_share or 0.0
    if stolen > STEAL_SHARE:
        yield f"the hypervisor takes {100 * stolen:.1f} % of the CPU time: use a dedicated or larger instance"
    if foreign > FOREIGN_SHARE:
        yield f"other programs take {100 * foreign:.0f} % of the CPUs measured on: close them, or ratios get wider"
    if quiet.throttled:
        yield f"the container was throttled {quiet.throttled} times: raise its CPU quota"
    if quiet.gpu_processes:
        yield f"programs that use the GPU: {quiet.gpu_processes} (nvidia-smi): stop them, or every round is flagged"
    if quiet.gpu_throttled:
        held = ", ".join(quiet.gpu_throttled)
        yield f"the GPU's clock is held down ({held}): see to its cooling and power limit (nvidia-smi -q)"
    if facts.get("cuda_driver") and not has_nvml:
        yield f"the GPU's clock, heat, memory and other users can't be seen: {install('gpu')} (nvidia-ml-py)"
    if any(gpu.get("mig") for gpu in facts.get("gpus", ()) if gpu.get("visible")):
        yield "the GPU is divided (MIG): figures are those of one instance, and its neighbors share clock and power"


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
    """Return the backends that lack the same, with the beginning of why (`--json` has all of it), and the one fix.

    A backend whose artifacts can be built here all the same says so.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for one in findings:
        reason = shorten(one_line(one.availability.reason), LONGEST_REASON)
        name = f"{one.backend}:{one.device}{' (builds here)' if one.availability.builds else ''}"
        alike.setdefault((reason, one.availability.fix), []).append(name)
    return [part for (reason, fix), names in alike.items() for part in _lay_out(f"{', '.join(names)}: {reason}", fix)]


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
    """Return the lines on this machine, on the GPU in use, and on the noise."""
    facts, heard = report.environment, report.quiet
    cpu, shares = facts["cpu"], {"steal": heard.steal_share, "other programs": heard.foreign_share}
    told = [f"{name} {'not told' if share is None else f'{100 * share:.1f} %'}" for name, share in shares.items()]
    throttled = "not told" if heard.throttled is None else f"{heard.throttled} times"
    seen = "" if cpu.get("quota_cpus") is None else f" ({tell_cpus(cpu)})"
    cpus = f"CPUs allowed: {len(cpu['allowed_cpus'])}{seen}, threads a target: {report.threads}"
    return [
        f"machine: {cpu['model']}, {cpus}",
        *(
            f"GPU {gpu['index']}: {gpu['name']}, driver {gpu['driver']}, CUDA {facts['cuda_driver']}"
            for gpu in facts.get("gpus", ())
            if gpu.get("visible")
        ),
        f"noise: {', '.join(told)}, throttled {throttled}",
    ]
