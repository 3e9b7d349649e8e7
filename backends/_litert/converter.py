"""Convert a torch module to a float .tflite file, once for all precisions: Google's quantizer starts from it.

The converter and the quantizer can't be requirements of ours (see `converter.txt`), and only a build needs them.
So the first build that does installs them into a folder of their own in the cache. That folder sees this environment's
torch, and only such a build looks into it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends import CONVERTER, KEY_DIGITS, RUNTIME_FORMS
from shootout.backends.common_torch import float32_module
from shootout.core.clock import Stopwatch
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.exported.model import sha256
from shootout.core.host.environment import version_of
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used, open_sealed, sealed
from shootout.core.install import pip_install
from shootout.core.units import span

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

PINS = Path(__file__).with_name("converter.txt")
MODULES = ("litert_torch", "ai_edge_quantizer")
INSTALL_S = 600
NETWORK = (
    "PIP_*",
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
)
"""Variables that say how pip reaches a package index, and whether it may: with PIP_NO_INDEX it opens no connection."""


FILE, RECORD = "model.tflite", "made.json"
MAKERS = ("litert-torch", "litert-converter", "torch")
"""Whose version decides what a file holds."""


def convert(exported: ExportedModel) -> tuple[Path, list[str]]:
    """Return the float file, from the cache or converted now, and what a row should say of it.

    Raises:
        SkippedArm: the converter can't be had.
    """
    installed = require_converter()
    stored = cache_folder() / RUNTIME_FORMS / _hash_sources(exported)
    with lock_path(stored):
        if not _is_whole(stored):
            with Scratch(cache_folder()) as folder:
                _write_file(exported, folder / FILE)
                (folder / RECORD).write_text(sealed({"digest": sha256(folder / FILE)}), encoding="utf-8")
                shutil.rmtree(stored, ignore_errors=True)
                folder.rename(stored)
    mark_used(stored)
    return stored / FILE, [installed] if installed else []


def require_converter() -> str:
    """Make the converter and the quantizer importable; return what that took if they had to be installed, else "".

    Raises:
        SkippedArm: they are not here, and can't be had; with the command that installs them.
    """
    if find_converter():
        return ""
    folder = _find_folder()
    with lock_path(folder):
        note = "" if folder.is_dir() else _install_converter(folder)
    find_converter()
    return note


def find_converter() -> bool:
    """Make the converter and the quantizer importable if they are here, or in the cache; return whether they are."""
    if all(map(importlib.util.find_spec, MODULES)):
        return True
    if not (folder := _find_folder()).is_dir():
        return False
    mark_used(folder)
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    return True


def _find_folder() -> Path:
    return cache_folder().parent / f"{CONVERTER}{_hash_pins()}"


@contextmanager
def lock_path(path: Path) -> Iterator[None]:
    """Let no other process make `path`: others wait, and then find it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # which doesn't name the file
            raise OSError(error.errno, f"{error.strerror} (a disk without locks?)", lock.name) from None
        yield


def pins() -> list[str]:
    """Return the packages with their versions, as pip takes them."""
    return [line for line in PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def _hash_sources(exported: ExportedModel) -> str:
    """Hash all that the file is made from; another torch exports another graph. The converter has to be there."""
    made_by = [version_of(one) for one in MAKERS]
    return hashlib.sha256(f"{exported.key} {made_by} {sha256(Path(__file__))}".encode()).hexdigest()


def _is_whole(stored: Path) -> bool:
    """Return whether a file is there as it was written: after a power cut it may be empty."""
    try:
        return bool(open_sealed(stored / RECORD)["digest"] == sha256(stored / FILE))
    except (OSError, ValueError, KeyError):
        return False


def _write_file(exported: ExportedModel, path: Path) -> None:
    import torch

    with torch.no_grad():
        import litert_torch

        inputs = exported.input_buffers()[0]
        example = tuple(torch.from_numpy(inputs[spec.name]) for spec in exported.inputs)
        litert_torch.convert(float32_module(exported), example).export(str(path))


def _install_converter(folder: Path) -> str:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--retries", "1"]
    with Scratch(cache_folder()) as made, Stopwatch() as watch:
        place = made / "site"
        try:
            subprocess.run(  # noqa: S603
                [*command, "--quiet", "--target", str(place), *pins()],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                check=True,
                encoding="utf-8",
                errors="replace",
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _unobtainable_error(error) from None
        os.sync()  # these files aren't checked again before they are imported
        place.rename(folder)
    megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    return f"LiteRT's converter was installed into the cache once: {megabytes:.0f} MB, {span(watch.seconds)}"


def _unobtainable_error(error: Exception) -> SkippedArm:
    said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    reason = f"LiteRT's converter is not installed, and pip could not get it: {said[-1] if said else error}"
    return SkippedArm(reason, pip_install(*pins(), options="--no-deps"), NotRunKind.NOT_INSTALLED)


def _hash_pins() -> str:
    """Hash what is in such a folder: the packages, and the Python that their compiled parts are for."""
    return hashlib.sha256(f"{sys.version_info[:2]} {pins()}".encode()).hexdigest()[:KEY_DIGITS]
