"""The doctor, and what it says of machines in trouble."""

from __future__ import annotations

import dataclasses
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shootout.commands import doctor
from shootout.commands.doctor import Quietness
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Precision
from shootout.core.host.placement import Placement
from shootout.core.install import install as install_command
from shootout.core.worker import availability

QUIET = Quietness(steal_share=0.0, foreign_share=None, throttled=0)


def test_every_backend_is_asked_on_every_device_that_it_has_code_for(monkeypatch: pytest.MonkeyPatch):
    missing = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "not looked for", "look"))
    cheap = [("numpy", Device.CPU)]
    asked: list[tuple[str, Device]] = []

    def available(pairs: list[tuple[str, Device]], tell: Callable[..., None]) -> dict[tuple[str, Device], Availability]:
        asked.extend(pairs)
        tell({("iree", Device.CPU): missing, ("iree", Device.VULKAN): missing}, 1)
        return dict.fromkeys(pairs, missing) | availability.find_available(cheap, tell=tell)

    def listen(_: frozenset[int]) -> Quietness:
        assert told == ["watching for 2 s how busy this machine is"], "before the first silence"
        return QUIET

    told = list[str]()
    monkeypatch.setattr(doctor, "listen", listen)
    monkeypatch.setattr(doctor, "find_available", available)
    report = doctor.examine(told.append)
    assert re.fullmatch(r"importing the libraries of \d\d backends, \d at once: 5 to 30 s", told[1])
    assert told[2:] == ["iree does not work; 1 more to import", "numpy works"]
    everything = {(name, device) for name in backends.names() for device, _ in backends.get(name).capabilities.targets}
    assert set(asked) == everything == {(finding.backend, finding.device) for finding in report.findings}
    assert [(f.backend, f.device) for f in report.findings if f.availability.ok] == cheap
    assert {f.availability.fix for f in report.findings} == {"", "look"}
    numpy = next(finding for finding in report.findings if finding.backend == "numpy")
    assert numpy.precisions == (Precision.FP32,)


@pytest.mark.slow
def test_the_real_backends_are_all_examined(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "listen", lambda _: QUIET)
    report = doctor.examine()
    assert {("numpy", Device.CPU), ("torch-eager", Device.CPU), ("onnxruntime", Device.CPU)} <= {
        (finding.backend, finding.device) for finding in report.findings if finding.availability.ok
    }
    assert all(f.availability.ok or (f.availability.reason and f.availability.fix) for f in report.findings)


def shown(report: doctor.DoctorReport) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(doctor.render(report))
    return console.file.getvalue()  # type: ignore[attr-defined]


def report_of(*findings: doctor.BackendFinding, **facts: Any) -> doctor.DoctorReport:
    """A report of a plain machine, but for these facts."""
    plain = doctor.DoctorReport(
        findings=findings,
        quiet=QUIET,
        threads=1,
        advice=(),
        environment={"cpu": {"model": "A CPU", "allowed_cpus": [0]}},
    )
    return dataclasses.replace(plain, **facts)


WORKS = Availability(version="2.4")
BUILDS = Availability(version="1.7", why=NotRun(NotRunKind.BUILT_ONLY, "no driver", "get one"))


def finding(name: str, device: Device, why: Availability | NotRun) -> doctor.BackendFinding:
    found = why if isinstance(why, Availability) else Availability(why=why)
    return doctor.BackendFinding(backend=name, device=device, availability=found)


def absent(name: str, device: Device, extra: str) -> doctor.BackendFinding:
    return finding(name, device, NotRun(NotRunKind.NOT_INSTALLED, "it is not installed", install_command(extra)))


def test_the_report_is_in_three_parts_and_takes_no_markup_from_libraries():
    broken = NotRun(NotRunKind.BROKEN, "[bold]no module[/bold] [torch]", "mend it")
    report = report_of(
        finding("numpy", Device.CPU, WORKS),
        finding("torch-eager", Device.CPU, broken),
        finding("torch-eager", Device.CUDA, broken),
        finding("tensorrt", Device.CUDA, BUILDS),
        finding("openvino", Device.NPU, NotRun(NotRunKind.UNAVAILABLE, "no NPU", "")),
        finding("iree", Device.VULKAN, BUILDS),
        advice=("do this",),
        environment={"cpu": {"model": "A CPU", "allowed_cpus": [0, 1]}},
    )
    lines = [line.rstrip() for line in shown(report).splitlines()]
    assert lines == [
        "works here",
        "  numpy  cpu  2.4",
        "",
        "one command away",
        "  torch-eager:cpu: [bold]no module[/bold] [torch]",
        "    mend it",
        "  iree:vulkan (builds here): no driver",
        "    get one",
        "",
        "needs other hardware",
        "  torch-eager:cuda: [bold]no module[/bold] [torch]",
        "    mend it",
        "  tensorrt:cuda (builds here): no driver",
        "    get one",
        "  openvino:npu: no NPU",
        "",
        "machine: A CPU, CPUs allowed: 2, threads a target: 1",
        "noise: steal 0.0 %, other programs not told, throttled 0 times",
        "advice: do this",
    ]


def test_what_need_only_be_installed_has_one_command():
    absentees = (
        absent("torch-eager", Device.CPU, "torch"),
        absent("torch-compile", Device.CPU, "torch"),
        absent("litert", Device.CPU, "litert"),
        absent("ncnn", Device.CPU, "ncnn"),
        absent("ncnn", Device.VULKAN, "ncnn"),
        absent("tensorrt", Device.CUDA, "tensorrt-rtx"),
        absent("jax-jit", Device.CPU, "another"),
    )
    report = report_of(*absentees, environment={"cpu": {"model": "A CPU", "allowed_cpus": [0]}, "cuda_driver": "13.0"})
    text = shown(report)
    assert text.startswith(
        "one command away\n  torch-eager, torch-compile, litert, ncnn: not installed\n"
        f"    {install_command('torch,litert,ncnn')}\n"
        f"  jax-jit:cpu: it is not installed\n    {install_command('another')}\n\n"
        "needs other hardware\n  tensorrt:cuda: it is not installed\n"
    )
    assert text.count("ncnn:") == 1
    here = dataclasses.replace(report, environment={**report.environment, "gpus": [H200]})
    assert "ncnn, tensorrt: not installed\n" in shown(here)


H200 = {
    "index": 0,
    "visible": True,
    "name": "NVIDIA H200",
    "driver": "580.1",
    "sm_clock_max_mhz": 1_980,
    "compute_mode": "default",
    "persistence": True,
    "ecc": True,
    "mig": False,
}
APART = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
GOOD: dict[str, Any] = {"cpu": {"quota_cpus": 2.0, "governor": "performance"}, "gpus": [H200], "cuda_driver": "13.0"}


def advice(place: Placement, quiet: Quietness, *, has_nvml: bool = True, **facts: Any) -> list[str]:
    return [*doctor.advise(place, {**GOOD, **facts}, quiet, has_nvml=has_nvml)]


def test_a_machine_that_is_set_up_well_needs_no_advice():
    assert advice(APART, QUIET) == []
    assert advice(APART, dataclasses.replace(QUIET, gpu_processes=0), cpu={}) == []
    assert advice(APART, QUIET, has_nvml=False, cuda_driver=None, gpus=[]) == []


def test_what_harms_figures_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loud = dataclasses.replace(QUIET, steal_share=0.031, foreign_share=0.4, throttled=7)
    held = dataclasses.replace(loud, gpu_processes=1, gpu_throttled=("hw_slowdown", "sw_thermal_slowdown"))
    one_cpu = dataclasses.replace(APART, note="only one CPU is allowed: …")
    cpu = {"quota_cpus": 1.5, "governor": "powersave"}
    told = advice(one_cpu, held, has_nvml=False, cpu=cpu, gpus=[H200 | {"mig": True}])
    text = "\n".join([*told, ""]).replace(install_command("gpu"), "pip install 'shootout[gpu]'")
    kept = Path(__file__).parent / "advice.txt"
    if os.environ.get("SCREENS") == "write":
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "can't write into the cache folder" in advice(APART, QUIET)[0]
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "file"))
    assert "set SHOOTOUT_CACHE" in advice(APART, QUIET)[0]
