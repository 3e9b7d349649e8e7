"""Wheels that were carried here: which of them are needed, and installed into a folder of their own, without a network.

What the machine has stays as it is. A wheel is installed where its package is missing, or is too old for us or for
another wheel that is installed; the libraries whose builds belong to the machine's driver are never replaced.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path

from . import parts
from .requirements import Need, key, needs, normal

KEPT = re.compile(r"torch|triton|jax|jaxlib|jax-cuda\S*|numpy|nvidia-(?!ml-py).*")
"""Packages of the machine's own that no wheel takes the place of."""
PIP_TIMEOUT_S = 600


@dataclass(frozen=True)
class Wheel:
    """One file. Its name says which package and version it is (PEP 427)."""

    path: Path

    @property
    def name(self) -> str:
        return normal(self.path.name.split("-")[0])

    @property
    def version(self) -> str:
        return self.path.name.split("-")[1]

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """What it needs in turn.

        Raises:
            ValueError: it is no whole wheel.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                (file,) = (one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one))
                text = archive.read(file).decode()
        except (zipfile.BadZipFile, ValueError) as error:
            raise ValueError(f"{self.path} is no whole wheel ({error}): carry it again") from None
        return needs(HeaderParser().parsestr(text).get_all("Requires-Dist", []))


def wheels(folders: Sequence[Path], scratch: Path) -> list[Wheel]:
    """All wheels in these folders, newest version first; those in parts are joined in `scratch`.

    Raises:
        ValueError: a folder isn't there, holds no wheel, or a part is missing.
    """
    files = []
    for folder in folders:
        found = [*folder.glob("*.whl"), *folder.glob("*.whl.part*")]
        if not found:
            raise ValueError(f"WHEELS={folder} holds no wheel: fill it with `make gpu-wheels WHEELS={folder}`")
        files += found
    whole = [file for file in files if file.suffix == ".whl"]
    joined = [parts.join(pieces, scratch / name) for name, pieces in parts.gathered(files).items()]
    return sorted(map(Wheel, [*whole, *joined]), key=lambda one: (one.name, key(one.version)), reverse=True)


def chosen(offered: Sequence[Wheel], have: Mapping[str, str], wanted: Sequence[Need]) -> dict[str, list[Wheel]]:
    """Which of these wheels to install, by package: the newest first, others in case that one isn't for this Python.

    Args:
        have: the packages that are there, version by name.
        wanted: what we need.
    """
    needed, found = list(wanted), dict[str, list[Wheel]]()
    while more := [one for one in offered if one.name not in found and _is_needed(one, have, needed)]:
        for wheel in more:
            found.setdefault(wheel.name, []).append(wheel)
            needed += wheel.needs
    return found


def _is_needed(wheel: Wheel, have: Mapping[str, str], wanted: Sequence[Need]) -> bool:
    version = have.get(wheel.name)
    if version is None:
        return True
    if KEPT.fullmatch(wheel.name) or key(version) >= key(wheel.version):
        return False
    return not all(one.met(version) for one in wanted if one.name == wheel.name)


def install(found: Mapping[str, list[Wheel]], folder: Path) -> dict[str, str]:
    """Install the first wheel of each package that pip takes.

    Returns:
        Pip's words by package, for those of which it took none.
    """
    refused = {}
    for name, candidates in found.items():
        words: list[str] = []
        for wheel in candidates:
            if (said := _installed(wheel, folder)) is None:
                break
            words.append(said)
        else:
            refused[name] = "; ".join(words)
    return refused


def _installed(wheel: Wheel, folder: Path) -> str | None:
    """Pip's words where it doesn't take the wheel.

    Each goes into a folder of its own first: pip leaves out what is already there, and packages share folders (`bin`,
    `nvidia`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
        command += ["--no-deps", "--target", scratch, str(wheel.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            return lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with code {done.returncode}"
        for old in folder.glob("*.dist-info"):
            if normal(old.name.split("-")[0]) == wheel.name:
                shutil.rmtree(old)
        _merge(Path(scratch), folder)
    return None


def _merge(source: Path, target: Path) -> None:
    """Move everything over, into folders that may be there; what was there before goes."""
    for entry in source.iterdir():
        place = target / entry.name
        if entry.is_dir() and place.is_dir():
            _merge(entry, place)
        else:
            place.unlink(missing_ok=True)
            shutil.move(entry, place)
