"""Where LiteRT's converter and quantizer come from: this environment, or a folder in the cache that is filled once.

They can't be requirements of ours (see `converter.txt`), and only a build needs them. So the first build that does
installs them where they are in nobody's way: a folder of their own, which sees this environment's torch, and which
nothing but such a build looks into.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shootout.clock import Stopwatch
from shootout.errors import NotRunKind, SkippedArm, pip_install
from shootout.host.scratch import scratch
from shootout.host.store import CONVERTER, KEY_DIGITS, cache_folder, mark_used
from shootout.units import span

PINS = Path(__file__).with_name("converter.txt")
MODULES = ("litert_torch", "ai_edge_quantizer")
INSTALL_S = 600
NETWORK = (
    "PIP_*",
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
)
"""Variables that say how pip reaches a package index, and whether it may: with PIP_NO_INDEX it opens no connection."""


def require_converter() -> str:
    """Make the converter and the quantizer importable; says what that took where it had to be installed, else "".

    Raises:
        SkippedArm: they are not here, and can't be had; with the command that installs them.
    """
    if all(map(importlib.util.find_spec, MODULES)):
        return ""
    folder = cache_folder().parent / f"{CONVERTER}{_key()}"
    with alone(folder):
        told = "" if folder.is_dir() else _install(folder)
    mark_used(folder)
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    return told


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only process that makes `path`: others wait, and then find it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # which doesn't name the file
            raise OSError(error.errno, f"{error.strerror} (a disk without locks?)", lock.name) from None
        yield


def pins() -> list[str]:
    """The packages with their versions, as pip takes them."""
    return [line for line in PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def _key() -> str:
    """Of what is in such a folder: the packages, and the Python that their compiled parts are for."""
    return hashlib.sha256(f"{sys.version_info[:2]} {pins()}".encode()).hexdigest()[:KEY_DIGITS]


def _install(folder: Path) -> str:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", "--retries", "1"]
    with scratch(cache_folder()) as made, Stopwatch() as watch:
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
            raise _unobtainable(error) from None
        os.sync()  # nobody looks into these files again before they are imported
        place.rename(folder)
    megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    return f"LiteRT's converter was installed into the cache once: {megabytes:.0f} MB, {span(watch.seconds)}"


def _unobtainable(error: Exception) -> SkippedArm:
    said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    reason = f"LiteRT's converter is not installed, and pip could not get it: {said[-1] if said else error}"
    return SkippedArm(reason, pip_install(*pins(), options="--no-deps"), NotRunKind.NOT_INSTALLED)
