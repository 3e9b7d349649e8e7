"""Record the environment of a measurement: the machine, its libraries, its clock. Every record carries it.

Nothing is imported to learn its version. Nothing identifies the user or the machine: the host's name stays out, and the
machine's key is a hash that can't be reversed. Parsers of text read CPUs and GPUs from the system's files, so recorded
machines can test them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from shootout.core import plugins
from shootout.core.host import devices, placement
from shootout.core.host.placement import is_changing, read_text

SYSTEM = Path("/sys")
PROC = Path("/proc")
_MACHINE_ID = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
BOARD = "device-tree/model"
_SAME_RUN = ("machine", "os", "cpu", "gpus", "python", "libraries", "variables")
_VOLATILE = frozenset({"microcode", "governor", "turbo", "persistence", "compute_mode"})
_APART = re.compile(r"extra\s*==\s*['\"](boxes|cluster|dev|images|mcp|parquet|report|site|testing|texts)['\"]")
"""Extras that take no part in a measurement: tools, agents, Ray, pages, readers of data. All others are recorded."""
VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Any of them multiplies 8-bit integers and adds up in 32 bits."""
SEVEN_BITS = "7-bit {}: this CPU has no VNNI, and without it a sum of two 8-bit products may overflow"
"""The note of a row whose quantizer left a bit out because of `saturates`."""
_EMULATORS = ("qemu", "rosetta")
"""Parts of the names of programs that run others for another kind of CPU: Docker has a `buildkit-qemu-aarch64`."""


def facts() -> dict[str, Any]:
    """Return the facts that a run is bound to, as JSON values; None (or empty) if the system doesn't tell."""
    told = devices.facts()
    return {
        "machine": machine_key(),
        "os": {"name": _os_name(), "system": platform.system(), "kernel": platform.release()},
        **told,
        "cpu": told["cpu"] | placement.facts(),
        "python": {"version": platform.python_version(), "implementation": sys.implementation.name},
        "libraries": libraries(),
        "variables": variables(os.environ),
    }


def fingerprint(environment: Mapping[str, Any]) -> str:
    """Hash what must not change within one run: machine, system, processors, libraries.

    Args:
        environment: what `facts` returned, here or read back from a record.
    """
    same = {key: environment.get(key) for key in _SAME_RUN}
    cpu = same["cpu"]
    if isinstance(cpu, Mapping):
        same["cpu"] = {key: value for key, value in cpu.items() if key not in _VOLATILE}
    same["gpus"] = [{key: gpu[key] for key in gpu if key not in _VOLATILE} for gpu in same["gpus"] or ()]
    return _hash_text(json.dumps(same, sort_keys=True))


def machine_key() -> str:
    """Return a name for this machine that reveals nothing.

    The processor is part of it because images share their machine id. Two machines of one image with the same processor
    and as many CPUs share a name.
    """
    return _hash_text(f"{first_line(_MACHINE_ID)}|{devices.cpu_model()}|{os.cpu_count()}")


def memory_available_bytes() -> int:
    """Return the memory that can still be taken: the smaller of what the machine and the control group have left."""
    import psutil

    available = int(psutil.virtual_memory().available)
    free = placement.memory_free_bytes(placement.control_groups("memory"))
    return available if free is None else min(available, free)


def libraries() -> dict[str, str]:
    """Return the version of every installed package that shootout can use, and of those that bring further backends."""
    try:
        wanted = required(metadata.requires("shootout") or ())
    except metadata.PackageNotFoundError:
        wanted = set()
    wanted |= {point.dist.name for point in plugins.third_parties(plugins.BACKENDS) if point.dist}
    versions = {name: version_of(name) for name in sorted({*wanted, *import_module(plugins.BACKENDS).OTHER_PACKAGES})}
    return {name: version for name, version in versions.items() if version}


def required(requirements: Iterable[str]) -> set[str]:
    """Return the package names in requirement lines, without those that take no part in a measurement."""
    used = (line for line in requirements if not _APART.search(line))
    return {name.group() for line in used if (name := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line))}


@functools.cache  # what is installed stays while we run
def installed() -> dict[str, str]:
    """Return the version of every installed package."""
    return {one.name: one.version for one in sorted(metadata.distributions(), key=lambda one: one.name)}


@functools.cache  # a grid asks for each of its thousand models, and what is installed stays while we run
def version_of(package: str) -> str:
    """Return the installed version of a package, "" if it isn't installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how the libraries run, without secrets and without the ids of GPUs."""
    return {name: nameless(environment[name]) for name in sorted(environment) if is_changing(name)}


def nameless(text: str) -> str:
    """Return a text without the ids of GPUs, because they identify the machine."""
    return re.sub(r"\b(GPU|MIG)-[0-9A-Fa-f][\w/-]*", r"\1-…", text)


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _hash_text(text: str) -> str:
    return hashlib.sha256(f"shootout:{text}".encode()).hexdigest()[:16]


def cpu_flags() -> frozenset[str]:
    """Return the CPU's instruction sets by their names in Linux."""
    table = parse_cpuinfo(cpuinfo())
    if flags := (table.get("flags") or table.get("Features") or "").split():
        return frozenset(flags)
    from archspec import cpu as archspec  # which another interpreter need not have

    return frozenset(archspec.host().features)


def saturates() -> bool:
    """Return whether INT8 products of 8-bit weights overflow: an x86 CPU without VNNI adds two of them in 16 bits."""
    return platform.machine().lower() in {"x86_64", "amd64"} and not VNNI & cpu_flags()


def cpuinfo() -> str:
    """Return the text of /proc/cpuinfo; "" without one."""
    return read_text(PROC / "cpuinfo") or ""


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Read the first processor's table from the text of /proc/cpuinfo."""
    first = text.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


@functools.cache
def emulator() -> str:
    """Return the name of the program that runs this process for another kind of CPU, such as `qemu-aarch64-static`; ""
    if the CPU itself runs it.

    QEMU answers for `/proc/self` itself, as if it weren't there, but not for `/proc/thread-self`.
    """
    with suppress(OSError):
        name = (PROC / "thread-self/exe").readlink().name
        return name if any(word in name for word in _EMULATORS) else ""
    return ""


def read_line(path: Path) -> str | None:
    """Return the text of a one-line file; None if it has none."""
    text = read_text(path)
    return text.strip() if text and text.strip() else None


def first_line(paths: Iterable[Path]) -> str:
    """Return the text of the first of these one-line files that has any, or ""."""
    return next((text for path in paths if (text := read_line(path))), "")
