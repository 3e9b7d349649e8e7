"""Look up what a document's rows need to know of their backends, which this machine may not have."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from shootout.core import backends
from shootout.core.constants import SHIPPED as SHIPPED_PLACE
from shootout.core.contract import Device, Option, Precision, Target, is_among
from shootout.core.errors import SkippedArm, UsageError


def shows_inside(name: str) -> bool:
    """Tell whether `shootout explain` can look into a backend; False of one that isn't known on this machine."""
    try:
        return hasattr(backends.get(name), "look_inside")
    except (UsageError, SkippedArm):
        return False


def settable(name: str) -> list[Option]:
    """Return a backend's options that a user can set, each for the devices with code only.

    Raises:
        UsageError: no such backend.
    """
    can = backends.capabilities(name)
    own = {option.name: option for option in can.options if not option.settled}
    return [replace(option, devices=option.devices & can.devices) for option in own.values()]


def reads_own_files(backend: str) -> bool:
    """Tell whether a row's backend runs only files that its own library wrote; False of one that isn't known here."""
    row = backends.shipped().get(backend.partition("+")[0])
    return row is not None and row.own_files


def why_unshippable(target: Target, model: str = "your model file") -> str:
    """Return why a target's artifact can't be shipped; "" if it can.

    Args:
        model: its name for people.

    Raises:
        UsageError: no such backend.
    """
    if target.folder:
        return f"it is a shipped folder already; copy {target.folder}"
    if target.device.is_gpu:
        return "what a GPU runs needs its drivers, memory and streams; ship a target on the CPU"
    row = backends.entry(target.backend)
    why = row.unshippable.get(target.mode, "")
    why = why or ("" if row.ships else row.unshippable.get("", "its adapter doesn't say how"))
    return why.format(model=model)


def why_row_unshippable(backend: str, device: str, model: str) -> str:
    """Return why what a row names can't be shipped; "" if it can, or if its backend isn't known on this machine.

    Args:
        backend: with its mode, as a row of a document has it.
        model: its name for people.
    """
    if backend.startswith(f"{SHIPPED_PLACE}:"):
        return "it is a shipped folder already, so copy that"
    name, _, mode = backend.partition("+")
    try:
        return why_unshippable(Target(backend=name, mode=mode, device=Device(device)), model)
    except (UsageError, ValueError):
        return ""


def offers(name: str, precision: Precision, word: str) -> bool:
    """Tell whether a backend offers a word of a scheme; False of one that isn't known on this machine."""
    try:
        return is_among(word, backends.capabilities(name).schemes.get(precision, ()))
    except (UsageError, SkippedArm):
        return False


def is_installed(name: str, packages: Collection[str]) -> bool:
    """Return whether a backend's library, or a third party's package, is among these packages.

    Args:
        packages: names, such as those of a run's environment; none: they weren't recorded, and nothing is missing.

    Raises:
        UsageError: no such backend.
    """
    row = backends.entry(name)
    if not packages or not (row.extra or row.package):
        return True
    own = row.package or (row.installs[""] or ("",))[0]
    return not {*map(_normalize, own.split("|"))}.isdisjoint(map(_normalize, packages))


def _normalize(package: str) -> str:
    return re.sub("[-_.]+", "-", package).lower()
