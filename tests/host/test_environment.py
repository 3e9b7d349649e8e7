"""Facts about recorded machines and about this one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.gpus.fake_nvidia import H200_BYTES, IDS, FakeDriver, FakeNvml, install

from shootout.backends import common
from shootout.backends.devices import cpu, cuda
from shootout.core.backends import shipped
from shootout.core.host import environment
from shootout.tell import machines

ROOT = Path(__file__).resolve().parents[2]

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
microcode\t: 0x2007006
flags\t\t: fpu sse4_2 fma avx avx2 avx512f avx512_vnni amx_tile hypervisor
power management:

processor\t: 1
model name\t: another
"""
PI = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0b

processor\t: 1
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd05
"""
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd aes atomics asimddp sve i8mm bf16
CPU implementer\t: 0x41
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: /proc and /sys are folders to be filled."""
    monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
    monkeypatch.setattr(environment, "SYSTEM", tmp_path / "sys")
    return tmp_path


def test_facts_of_this_machine_are_json_and_complete():
    facts = machines.facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]["logical_cpus"] == os.cpu_count()
    assert facts["memory"]["total_bytes"] == psutil.virtual_memory().total
    assert facts["python"]["version"] == sys.version.split()[0]
    assert 0 < facts["clock"]["resolution_ns"] <= 1_000
    assert facts["libraries"]["numpy"]


def test_no_record_names_the_machine():
    text = json.dumps(machines.facts())
    assert socket.gethostname() not in text or len(socket.gethostname()) < 4
    assert (environment.first_line([Path("/etc/machine-id")]) or "none here") not in text


def test_learning_the_versions_imports_no_library():
    code = "import sys; from shootout.tell import machines; machines.facts(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {"torch", "onnxruntime", "onnx", "sklearn", "scipy", "pyarrow", "numpy"} & set(done.stdout.split())
    assert not loaded - {"numpy"}


@pytest.mark.parametrize(
    ("machine", "flags", "saturates"),
    [
        ("x86_64", "flags: sse4_2 avx2 avx512f avx512bw", True),
        ("AMD64", "flags: avx2 avx_vnni", False),
        ("x86_64", "flags: avx512f avx512_vnni", False),
        ("aarch64", "Features: asimd asimddp", False),
    ],
)
def test_x86_without_vnni_saturates_and_arm_takes_signed_activations(
    machine: str, flags: str, saturates: bool, recorded: Path, monkeypatch: pytest.MonkeyPatch
):
    write(recorded, {"proc/cpuinfo": flags})
    monkeypatch.setattr(environment.platform, "machine", lambda: machine)
    assert environment.saturates() is saturates
    assert common.prefers_signed() is (machine == "aarch64")


def test_an_intel_machine(recorded: Path):
    write(
        recorded,
        {
            "proc/cpuinfo": X86,
            "sys/devices/system/cpu/smt/active": "1\n",
            "sys/devices/system/node/node0/cpulist": "0",
            "sys/devices/system/node/node1/cpulist": "1",
            "sys/class/dmi/id/product_name": "Google Compute Engine\n",
        },
    )
    facts = cpu.cpu_facts()
    assert facts["vendor"] == "GenuineIntel"
    assert facts["flags"] == ["sse4_2", "fma", "avx", "avx2", "avx512f", "avx512_vnni", "amx_tile"]
    assert (facts["smt"], facts["numa_nodes"]) == (True, 2)
    assert facts["microcode"] == "0x2007006"
    assert "virtual machine (Google Compute Engine)" in machines.virtualisation()


def test_an_arm_machine_has_its_own_flags(recorded: Path):
    write(recorded, {"proc/cpuinfo": ARM})
    facts = cpu.cpu_facts()
    assert facts["flags"] == ["asimd", "asimddp", "bf16", "i8mm", "sve"]
    assert facts["model"]
    assert facts["kind"], "without a part's number, its architecture"


def test_caches_by_level_and_kind(tmp_path: Path):
    levels = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"), ("3", "Unified", "odd")]
    for index, (level, kind, size) in enumerate(levels):
        write(tmp_path / f"index{index}", {"level": level, "type": kind, "size": f"{size}\n"})
    assert cpu.caches(tmp_path) == {"L1d": 48 * 1024, "L1i": 32 * 1024, "L2": 2 * 2**20}


@pytest.mark.parametrize(
    ("files", "turbo"),
    [
        ({"cpufreq/boost": "1"}, True),
        ({"cpufreq/boost": "0"}, False),
        ({"intel_pstate/no_turbo": "0"}, True),
        ({"intel_pstate/no_turbo": "1", "cpufreq/boost": "1"}, False),
        ({"cpufreq/boost": "?"}, None),
        ({}, None),
    ],
)
def test_turbo_of_each_driver(tmp_path: Path, files: dict[str, str], turbo: bool | None):
    write(tmp_path, {**files, "cpu3/cpufreq/scaling_governor": "powersave\n"})
    assert cpu.clock_facts(tmp_path, 3) == {"governor": "powersave", "turbo": turbo}


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(), FakeNvml())
    assert cuda.gpu_facts() == [
        {
            "index": 0,
            "visible": True,
            "name": "NVIDIA H200",
            "memory_bytes": H200_BYTES,
            "l2_bytes": 50 * 2**20,
            "compute_capability": "9.0",
            "sm_clock_max_mhz": 1980,
            "memory_clock_max_mhz": 1980,
            "power_limit_w": 700.0,
            "ecc": True,
            "persistence": True,
            "compute_mode": "default",
            "mig": False,
            "driver": "580.1",
        }
    ]


def test_of_several_gpus_the_one_in_use_is_marked_and_none_is_named(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(shown=[IDS[1]]), FakeNvml(gpus=IDS))
    facts = cuda.gpu_facts()
    assert [(gpu["visible"], gpu["l2_bytes"]) for gpu in facts] == [(False, None), (True, 50 * 2**20)]
    assert not any(str(one) in str(facts) for one in IDS)


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch, broken: str):
    install(monkeypatch, None, FakeNvml([broken]))
    assert cuda.gpu_facts() == []


def test_the_driver_s_cuda_is_a_fact_and_none_without_a_driver(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(version=13_010), None)
    assert machines.facts()["cuda_driver"] == "13.1"
    install(monkeypatch, None, None)
    assert machines.facts()["cuda_driver"] is None


def test_the_fingerprint_survives_the_record_and_ignores_the_moment():
    facts = machines.facts()
    later = json.loads(json.dumps(facts))
    later["date_utc"] = "2001-01-01T00:00:00+00:00"
    later["cpu"]["governor"] = "powersave"
    assert environment.fingerprint(later) == environment.fingerprint(facts)


@pytest.mark.parametrize(
    ("part", "change"), [("libraries", {"numpy": "0"}), ("cpu", {"model": "another"}), ("machine", "0"), ("cpu", None)]
)
def test_the_fingerprint_sees_another_machine_or_version(part: str, change: Any):
    facts = machines.facts()
    assert environment.fingerprint({**facts, part: change}) != environment.fingerprint(facts)


def test_the_machine_key_tells_machines_apart_and_stays(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "_MACHINE_ID", (recorded / "none", recorded / "id"))
    keys = []
    for name, model in [("a", X86), ("b", X86), ("a", ARM), ("a", X86)]:
        write(recorded, {"id": name, "proc/cpuinfo": model})
        keys.append(environment.machine_key())
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3
    (recorded / "id").unlink()
    assert len(environment.machine_key()) == 16


def test_of_our_extras_those_are_recorded_that_bring_what_is_measured():
    """What the others bring may come in the middle of a run: a page is drawn, the site is built, and it goes on."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = {extra: [f"{one}; extra == '{extra}'" for one in ones] for extra, ones in extras.items()}
    recorded = {extra for extra in extras if environment.required(lines[extra])}
    backends = {row.extra for row in shipped().values() if row.extra}
    assert recorded == backends | {"tensorrt", "cpu", "onnx", "gpu", "models", "metrics"}


def test_only_variables_that_change_the_libraries_are_recorded():
    given = {"OMP_NUM_THREADS": "2", "XLA_FLAGS": "a", "LD_PRELOAD": "x.so", "HOME": "/home/me", "OMPTY": "1"}
    assert environment.variables({**given, "AWS_SECRET": "s", "NVIDIA_API_KEY": "k"}) == {
        "LD_PRELOAD": "x.so",
        "OMP_NUM_THREADS": "2",
        "XLA_FLAGS": "a",
    }


@pytest.mark.parametrize("name", ["SHOOTOUT_GPU", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "CUDA_VISIBLE_DEVICES"])
def test_figures_of_two_gpus_do_not_go_into_one_run(name: str):
    first, second = ({"variables": environment.variables({name: value})} for value in "01")
    assert environment.fingerprint(first) != environment.fingerprint(second)


def test_an_arm_cpu_is_named_by_its_cores_and_its_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "PROC", tmp_path)
    assert cpu.arm_model(PI) == "Cortex-A55 + Cortex-A76"
    write(tmp_path, {"device-tree/model": "Some Board 5\0"})
    assert cpu.arm_model(PI) == "Cortex-A55 + Cortex-A76 (Some Board 5)"
    assert cpu.arm_model(PI.replace("0xd05", "0xfff")) == "Some Board 5", "a core without a name"
    assert cpu.arm_model(X86) == "Some Board 5"
    write(tmp_path, {"cpuinfo": PI})
    assert cpu.cpu_model() == "Cortex-A55 + Cortex-A76 (Some Board 5)"


def test_a_kind_of_cpu_is_what_the_system_says_without_a_table():
    assert cpu.cpu_kind(PI, "Some Board 5\0") == "0x41/0xd05, 0x41/0xd0b, Some Board 5"
    assert cpu.cpu_kind(PI.replace("0x41", "0x77"), "") == "0x77/0xd05, 0x77/0xd0b", "a maker without a name"
    assert cpu.cpu_kind(X86, "Some Board 5") == "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
    assert cpu.cpu_kind("", "") == ""


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("qemu-aarch64-static", "qemu-aarch64-static"),
        ("buildkit-qemu-aarch64", "buildkit-qemu-aarch64"),
        ("rosetta", "rosetta"),
        ("python3.11", ""),
    ],
)
def test_an_emulator_is_what_the_kernel_runs_in_our_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, named: str
):
    (tmp_path / "thread-self").mkdir()
    (tmp_path / "thread-self/exe").symlink_to(f"/usr/bin/{program}")
    monkeypatch.setattr(environment, "PROC", tmp_path)
    environment.emulator.cache_clear()
    try:
        assert environment.emulator() == named
        signs = machines.virtualisation()
        assert [sign for sign in signs if "emulated" in sign] == ([f"emulated CPU ({named})"] if named else [])
    finally:
        environment.emulator.cache_clear()


def test_the_instruction_sets_need_no_package_where_the_kernel_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another interpreter in a race has NumPy and its backend's library alone."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu avx2 fma\n")
    monkeypatch.setattr(environment, "PROC", tmp_path)
    monkeypatch.setitem(sys.modules, "archspec", None)
    assert environment.cpu_flags() == {"fpu", "avx2", "fma"}
