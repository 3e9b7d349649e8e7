"""The doctor, and what it says of machines in trouble."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.gpus.fake_nvidia import IDS, FakeDriver, FakeNvml, install

from shootout.backends import chosen_gpu
from shootout.backends.devices.cuda import Cuda
from shootout.commands import doctor
from shootout.commands.doctor import FolderRoom, Quietness
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, NotRunKind, Precision
from shootout.core.errors import Unavailable
from shootout.core.host.noise import NoiseMark
from shootout.core.host.placement import Placement
from shootout.core.host.store import cache_folder
from shootout.core.install import install as install_command
from shootout.core.messages import GpuState
from shootout.core.worker import availability

QUIET = Quietness(
    sources=("steal",),
    steal_share=0.0,
    foreign_share=None,
    throttled=0,
    load_average=0.1,
)


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


@pytest.mark.parametrize("answer", ["gpu 3: Vulkan has only 1 here", "no Vulkan driver"])
def test_a_gpu_that_is_not_there_is_told_before_anything_else(monkeypatch: pytest.MonkeyPatch, answer: str):
    asked: list[tuple[str, Device]] = []

    def available(pairs: list[tuple[str, Device]]) -> dict[tuple[str, Device], Availability]:
        asked.extend(pairs)
        return dict.fromkeys(pairs, Availability(why=NotRun(NotRunKind.UNAVAILABLE, answer, "choose another")))

    install(monkeypatch, None, None)
    monkeypatch.setenv(chosen_gpu.CHOSEN, "")
    monkeypatch.setattr(doctor, "find_available", available)
    monkeypatch.setattr(doctor, "examine", lambda: pytest.fail("it looked at everything first"))
    told = answer.removeprefix("gpu 3: ")
    with pytest.raises(Unavailable) as caught:
        doctor.doctor(3, as_json=True)
    assert str(caught.value) == f"gpu 3: no NVIDIA driver on this machine, and for Vulkan: {told}; choose another"
    counting = (Device.VULKAN, Device.XPU)  # the first answer is the one that is told
    can = {name: {device for device, _ in backends.get(name).capabilities.targets} for name in backends.names()}
    assert asked == [(name, device) for device in counting for name in can if device in can[name]]


def test_with_nvidia_s_driver_a_number_is_one_of_its_gpus(monkeypatch: pytest.MonkeyPatch):
    for name in (chosen_gpu.CHOSEN, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    install(monkeypatch, FakeDriver(), FakeNvml(gpus=IDS))
    monkeypatch.setattr(doctor, "find_available", lambda _: pytest.fail("no backend is asked"))
    with pytest.raises(Unavailable, match=f"gpu {len(IDS)}: this machine has"):
        doctor._choose_gpu(len(IDS))
    doctor._choose_gpu(1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.slow
def test_the_real_backends_are_all_examined(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "listen", lambda _: QUIET)
    report = doctor.examine()
    assert {("numpy", Device.CPU), ("torch-eager", Device.CPU), ("onnxruntime", Device.CPU)} <= {
        (finding.backend, finding.device) for finding in report.findings if finding.availability.ok
    }
    assert all(f.availability.ok or (f.availability.reason and f.availability.fix) for f in report.findings)
    data = json.loads(json.dumps(doctor.as_data(report)))
    assert set(data) == {field.name for field in dataclasses.fields(report)}
    assert data["findings"][0]["availability"]["ok"] is True


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
        folders=(),
        memory_available_bytes=0,
        limits={},
        lock_holder="",
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
        memory_available_bytes=3 * 2**30,
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
        "machine: A CPU, CPUs allowed: 2, threads a target: 1, memory free: 3.0 GiB",
        "noise: steal 0.0 %, other programs not told, throttled 0 times",
        "advice: do this",
    ]


def test_a_container_is_told_by_its_quota_and_its_memory_limit():
    cpu = {"model": "A CPU", "cpuset": [0, 1, 2, 3], "allowed_cpus": [0], "quota_cpus": 1.5}
    report = report_of(
        memory_available_bytes=2**30, environment={"cpu": cpu, "memory": {"total_bytes": 2**34, "limit_bytes": 2**31}}
    )
    assert (
        "machine: A CPU, CPUs allowed: 1 (4 CPUs, quota 1.5 CPUs), threads a target: 1, memory free: 1.0 GiB (limit "
        "2.0 GiB)" in " ".join(shown(report).split())
    )


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


def test_no_line_is_wider_than_a_page_and_a_long_reason_is_cut():
    words = NotRun(NotRunKind.BROKEN, "a tiny session failed:\n" + "many words\n" * 50, "try " * 60)
    report = report_of(finding("iree", Device.CPU, words), finding("numpy", Device.CPU, WORKS))
    lines = shown(report).splitlines()
    assert max(map(len, lines)) <= doctor.WIDEST
    (start,) = (number for number, line in enumerate(lines) if "a tiny session failed: | many words" in line)
    told = " ".join(line.strip() for line in lines[start:]).partition("…")[0]
    assert 0 <= len("iree:cpu: ") + doctor.LONGEST_REASON - len(told) < len(" words")
    assert told.endswith((" many", " words")), "no word is cut"


def test_listening_reports_what_the_meter_says(monkeypatch: pytest.MonkeyPatch):
    marks = [
        NoiseMark(now_ns=0, steal_jiffies=0, total_jiffies=0, idle_jiffies=0, harness_ns=0, throttled=1),
        NoiseMark(
            now_ns=10**9,
            steal_jiffies=5,
            total_jiffies=100,
            idle_jiffies=70,
            harness_ns=50_000_000,
            throttled=3,
            gpu_processes=2,
        ),
    ]
    states = iter(marks)

    class Meter:
        def __init__(self, cpus: frozenset[int], gpu: Cuda, parent: frozenset[int]) -> None:
            assert cpus == frozenset({0})
            assert gpu.processes() == 2
            assert parent == cpus, "what it does itself is no neighbor's"

        def mark(self) -> NoiseMark:
            return next(states)

        def sources(self) -> tuple[str, ...]:
            return ("steal",)

    told = FakeNvml()
    told.answers["nvmlDeviceGetCurrentClocksEventReasons"] = 0x20
    install(monkeypatch, FakeDriver(), told)
    monkeypatch.setattr(doctor, "NoiseMeter", Meter)
    heard = doctor.listen(frozenset({0}), seconds=0.0)
    assert (heard.steal_share, heard.foreign_share, heard.throttled) == (0.05, 0.2, 2)
    assert (heard.gpu_processes, heard.gpu_throttled) == (2, ("sw_thermal_slowdown",))


def test_listening_to_this_machine_tells_shares():
    heard = doctor.listen(frozenset({0}), seconds=0.1)
    assert heard.foreign_share is None or 0 <= heard.foreign_share <= 1


def test_folders_that_cannot_be_used_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert doctor.look_at("temporary", tmp_path).problem == ""
    assert "No such file" in doctor.look_at("temporary", tmp_path / "lost").problem
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "file"))
    assert "set SHOOTOUT_CACHE" in doctor.look_at_cache().problem
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "chmod u+w" in doctor.look_at("temporary", tmp_path).problem


def test_the_cache_folder_is_the_one_that_exported_models_use():
    folder = doctor.look_at_cache()
    assert (folder.path, folder.problem) == (str(cache_folder()), "")


def test_process_limits_in_force_are_found_and_explained():
    code = (
        "import json, resource; from shootout.commands import doctor as s\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); resource.setrlimit(resource.RLIMIT_CPU, (50, 50))\n"
        "limits = s.process_limits(); print(json.dumps([limits, s.limit_advice(limits)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    limits, lines = json.loads(done.stdout)
    assert (limits["RLIMIT_NOFILE"], limits["RLIMIT_CPU"]) == (64, 50)
    assert "only 64 files may be open: ulimit -n 1024" in lines
    assert any("time (ulimit -t) to 50 s" in line for line in lines)
    assert doctor.limit_advice({"RLIMIT_NOFILE": 1024, "RLIMIT_NPROC": 10}) == ()
    assert "memory (ulimit -v) to 1,000" in doctor.limit_advice({"RLIMIT_AS": 1000})[0]


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
BUSY = GpuState(sm_clock_mhz=1_980)


APART = Placement(parent=frozenset({0}), arms=frozenset({1}), threads=1)
ROOM = FolderRoom(use="cache", path="/c", free_bytes=2**40)


def test_a_machine_that_is_set_up_well_needs_no_advice():
    silent = H200 | dict.fromkeys(("compute_mode", "persistence", "ecc", "mig", "sm_clock_max_mhz"))
    assert not [
        *doctor.noise_advice(QUIET),
        *doctor.noise_advice(dataclasses.replace(QUIET, gpu_processes=0)),
        *doctor.room_advice([ROOM], 2**40),
        *doctor.cpu_advice(APART, {"quota_cpus": 2.0, "governor": "performance"}),
        *doctor.cpu_advice(APART, {"quota_cpus": None, "governor": None}),
        *doctor.gpu_advice([H200], BUSY, cuda="13.0", nvml=True),
        *doctor.gpu_advice([silent], GpuState(), cuda="13.0", nvml=True),
        *doctor.gpu_advice([], GpuState(), cuda=None, nvml=False),
    ]


def test_what_harms_figures_is_told_with_what_to_do():
    loud = dataclasses.replace(QUIET, steal_share=0.031, foreign_share=0.4, throttled=7)
    held = dataclasses.replace(QUIET, gpu_processes=1, gpu_throttled=("hw_slowdown", "sw_thermal_slowdown"))
    full = dataclasses.replace(ROOM, free_bytes=2**30)
    broken = FolderRoom(use="temporary", path="/t", problem="can't write")
    one_cpu = dataclasses.replace(APART, note="only one CPU is allowed: …")
    odd = H200 | {"compute_mode": "exclusive_process", "persistence": False, "mig": True, "ecc": False}
    told = [
        *doctor.noise_advice(loud),
        *doctor.noise_advice(held),
        *doctor.room_advice([full, broken], 2**29),
        *doctor.cpu_advice(one_cpu, {"quota_cpus": 1.5, "governor": "powersave"}),
        *doctor.gpu_advice([odd], GpuState(sm_clock_mhz=345), cuda="13.0", nvml=True),
        *doctor.gpu_advice([H200, H200 | {"index": 1, "visible": False}], BUSY, cuda="13.0", nvml=True),
        *doctor.gpu_advice([], GpuState(), cuda="13.0", nvml=False),
    ]
    text = "\n".join([*told, ""]).replace(install_command("gpu"), "pip install 'shootout[gpu]'")
    kept = Path(__file__).parent / "advice.txt"
    if os.environ.get("SCREENS") == "write":
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")


def test_the_gpu_in_use_is_in_the_report():
    report = report_of(
        environment={
            "cpu": {"model": "A CPU", "allowed_cpus": [0]},
            "gpus": [H200, H200 | {"index": 1, "visible": False}],
            "cuda_driver": "13.0",
        },
    )
    assert "GPU 0: NVIDIA H200, driver 580.1, CUDA 13.0\n" in shown(report)
    assert "GPU 1" not in shown(report)
